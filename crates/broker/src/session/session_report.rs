//! Reports on sessions for the management interfaces: a copy of counters and names.

use crate::input::ConnId;
use crate::routing::ShardRouting;
use crate::session::flight::SlotMarks;
use crate::session::session_table::Session;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::sys::DROPS;
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

impl Shard {
    /// Returns reports on the selected sessions that this shard owns.
    pub fn report_sessions(&self, which: &SessionSelector) -> Vec<SessionReport> {
        match which {
            SessionSelector::ClientIds(all) => {
                let known = all.iter().filter_map(|id| self.sessions.find(id));
                known
                    .map(|id| self.routing.report_session(self.sessions.get(id), &self.sessions))
                    .collect()
            }
            SessionSelector::ClientIdPrefix(with) => {
                let all = self.sessions.iter().map(|(_, session)| session);
                let meant = all.filter(|session| session.client_id.starts_with(&**with));
                meant.map(|session| self.routing.report_session(session, &self.sessions)).collect()
            }
        }
    }

    /// Returns the connection of a session that this shard owns; `None` for an offline client.
    pub fn connection_of(&self, client_id: &str) -> Option<ConnId> {
        self.sessions.get(self.sessions.find(client_id)?).conn()
    }
}

impl ShardRouting {
    fn report_session(&self, session: &Session, sessions: &SessionTable) -> SessionReport {
        let flight = session.flight.as_deref();
        let spooled = session.persistent.as_deref();
        let spooled = spooled.map_or((0, 0), |one| (one.spooled, one.spooled_bytes));
        let waiting = flight.map_or((0, 0), |one| (one.waiting.len(), one.waiting_bytes));
        let oldest = flight.and_then(|flight| flight.waiting.front());
        let oldest = oldest.filter(|slot| !slot.marks.has(SlotMarks::RELEASED));
        let shares = session.extras.iter().flat_map(|extras| &extras.shares);
        let filters = session.subscriptions.iter().map(|own| self.topics.text(own.filter));
        let filters = filters.chain(shares.map(|share| &*share.group));
        SessionReport {
            client_id: session.client_id.clone(),
            is_online: session.conn().is_some(),
            in_flight: flight.map_or(0, |flight| u32::from(flight.unacknowledged)),
            queued: waiting.0 as u64 + u64::from(spooled.0),
            queued_bytes: waiting.1 + spooled.1,
            oldest_age_ms: oldest.map(|slot| {
                sessions.context.now.0.saturating_sub(sessions.messages.get(slot.message).at().0)
            }),
            drops: session.extras.as_ref().map_or([0; DROPS], |extras| extras.drops),
            received: flight.map_or_else(Vec::new, |flight| flight.received.iter().collect()),
            filters: filters.map(|filter| session.strip_prefix(filter).into()).collect(),
        }
    }
}
