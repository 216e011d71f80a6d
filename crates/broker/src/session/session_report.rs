//! Reports on sessions for the management interfaces: a copy of counters and names.

use crate::counters::DROPS;
use mqtt::PacketId;

/// Report on a session.
#[derive(Clone, Debug)]
pub struct SessionReport {
    pub client_id: Box<str>,
    pub is_online: bool,
    /// Number of QoS 1 and 2 messages sent and not acknowledged.
    pub in_flight: u32,
    /// Number and bytes of queued messages. Of messages that only the store has, those added since
    /// the start of the process count.
    pub queued: u64,
    pub queued_bytes: u64,
    /// Age of the oldest queued message; `None` if the message is only in the store.
    pub oldest_age_ms: Option<u64>,
    /// Dropped messages, indexed by `sys::DropReason`.
    pub drops: [u64; DROPS],
    /// Packet ids of QoS 2 messages received from the client, without PUBREL.
    pub received: Vec<PacketId>,
    /// Filters of the session: own subscriptions, then shared groups, without the namespace prefix.
    pub filters: Vec<Box<str>>,
}

/// Selection of sessions for a report.
#[derive(Clone, Debug)]
pub enum SessionSelector {
    ClientIds(Vec<Box<str>>),
    /// Sessions whose client ids begin with this text; all sessions are scanned.
    ClientIdPrefix(Box<str>),
}
