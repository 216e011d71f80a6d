//! The protocol state of one connection.

use crate::connection::auth_exchange::AuthExchange;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::pending_authz::PendingAuthz;
use crate::ids::{ConnId, MonotonicMs, SessionId};
use crate::interface::outbox::Outbox;
use crate::limits;
use crate::peer::PeerInfo;
use crate::routing::exclusive::ExclusiveClaim;
use crate::session::rate_meter::RateMeter;
use crate::session::receipt::{PUBACK, PUBCOMP, PUBREC};
use crate::session::session_table::SessionTable;
use crate::timer::TimerWheel;
use mqtt::{PacketId, ProtocolVersion};
use std::sync::Arc;

/// Protocol state of a connection. Fields that every packet uses come first, side by side.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: ConnState,
    pub(crate) last_activity: MonotonicMs,
    /// Meter of the packets from the client; absent without a rate limit.
    pub(crate) meter: Option<Box<RateMeter>>,
    /// Bytes of the largest packet accepted from the client [MQTT-3.2.2-15].
    pub(crate) packet_bytes_max: u32,
    /// Acknowledgements to the client, held until the store has committed a batch.
    pub(in crate::connection) pending_acks: u32,
    pub(crate) generation: u32,
    /// Longest allowed silence of the client in milliseconds: one and a half times the keep-alive,
    /// or 0 for no limit [MQTT 5.0, 3.1.2.10].
    pub(crate) silence_ms_max: u32,
    /// Due time of the only valid `ShardTimer::Conn`; a timer that fires earlier is ignored.
    pub(crate) timer_at: MonotonicMs,
    pub(crate) peer: PeerInfo,
    /// State of the authentication exchange; absent if CONNECT had no Authentication Method.
    pub(crate) exchange: Option<Box<AuthExchange>>,
    /// Topics of the client's aliases: alias `n` is at index `n - 1`. The list ends with the
    /// connection [MQTT-3.3.2-7].
    pub(in crate::connection) aliases: Vec<Option<Arc<str>>>,
    /// Bytes of memory of the topics in `aliases`.
    pub(in crate::connection) alias_bytes: u32,
    pub(in crate::connection) topic_alias_max: u16,
    /// Receive Maximum as sent in CONNACK, even if the options have changed since.
    pub(in crate::connection) receive_maximum: u16,
    pub(in crate::connection) version: ProtocolVersion,
    /// Whether the client is a bridge, to which the broker does not return the bridge's own
    /// messages.
    pub(crate) is_bridge: bool,
    /// Whether the connection came from another shard; a connection moves at most once.
    pub(crate) moved: bool,
}

#[derive(Debug)]
pub(crate) enum ConnState {
    /// Only CONNECT is allowed [MQTT-3.1.0-1].
    AwaitingConnect,
    /// CONNECT has arrived and waits for an authentication decision.
    Authenticating,
    /// The backend has asked for a further step, and the client has received AUTH 0x18: only AUTH
    /// and DISCONNECT are allowed.
    Challenged,
    Live {
        session: SessionId,
    },
    /// CONNACK waits for the commit that erases the client's previous session. Packets from the
    /// client stay unread until then.
    AwaitingCommit {
        session: SessionId,
    },
    /// The store has a backlog, and the next packet would add to the backlog: the packet stays
    /// unread.
    StoreBacklogged {
        session: SessionId,
    },
    /// The client has exceeded the rate limit: the next packet stays unread until
    /// `resume_rate_limited`.
    RateLimited {
        session: SessionId,
    },
    /// The next packet stays unread until a decision of the authorization server, or the deadline.
    Authorizing {
        session: SessionId,
        inquiry: Box<PendingAuthz>,
    },
    /// A CONNECT with a will stays unread until a decision of the authorization server on the will.
    AuthorizingWill {
        inquiry: Box<PendingAuthz>,
    },
    /// The authorization server has decided on the will of the CONNECT to be read next.
    WillAuthorized {
        is_allowed: bool,
    },
    /// SUBACK waits for answers from the shards that own the shared groups or exclusive filters.
    /// Packets from the client stay unread until then.
    AwaitingSubAck {
        session: SessionId,
        suback: Box<PendingSubAck>,
    },
}

// Every connection has a `Conn`, so the size is a cost for idle clients.
const _: () = assert!(size_of::<ConnState>() == 16 || size_of::<usize>() != 8);
const _: () = assert!(size_of::<Option<Conn>>() <= 152);

#[derive(Debug)]
pub(crate) struct PendingSubAck {
    pub(crate) packet_id: PacketId,
    pub(crate) codes: Vec<u8>,
    /// Description of the first refusal among `codes`, for the Reason String.
    pub(crate) what: Option<&'static str>,
    pub(crate) groups: Vec<Arc<str>>,
    /// Exclusive filters whose owner is known to another shard.
    pub(crate) claims: Vec<ExclusiveClaim>,
}

/// Memory of a connection with its timer and the engine's socket, in bytes.
pub(crate) const CONN_COST: u64 =
    (size_of::<Option<Conn>>() + TimerWheel::TIMER_BYTES + limits::SOCKET_BYTES) as u64;

impl Conn {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.state {
            ConnState::Authenticating
            | ConnState::Challenged
            | ConnState::AwaitingConnect
            | ConnState::WillAuthorized { .. }
            | ConnState::AuthorizingWill { .. } => None,
            ConnState::Live { session }
            | ConnState::StoreBacklogged { session }
            | ConnState::RateLimited { session }
            | ConnState::AwaitingSubAck { session, .. }
            | ConnState::Authorizing { session, .. }
            | ConnState::AwaitingCommit { session } => Some(session),
        }
    }

    /// Whether the broker has stopped reading from the client, in which case silence is not the
    /// client's fault.
    pub(crate) fn is_read_blocked(&self) -> bool {
        use ConnState::{Authorizing, RateLimited, StoreBacklogged};
        matches!(self.state, StoreBacklogged { .. } | RateLimited { .. } | Authorizing { .. })
    }

    /// Returns the time at which keep-alive ends the connection unless a packet arrives; `None`
    /// without a keep-alive.
    pub(crate) fn keep_alive_deadline(&self) -> Option<MonotonicMs> {
        let ms = u64::from(self.silence_ms_max);
        (ms > 0).then_some(MonotonicMs(self.last_activity.0 + ms))
    }

    /// Returns the session if the client has received CONNACK, which must be the first packet to a
    /// client [MQTT-3.2.0-1] [MQTT-3.14.0-1].
    pub(crate) fn connacked_session(&self) -> Option<SessionId> {
        self.session().filter(|_| !matches!(self.state, ConnState::AwaitingCommit { .. }))
    }
}

impl ConnectionTable {
    #[inline]
    pub(crate) fn note_activity(&mut self, conn: ConnId, sessions: &SessionTable) {
        let now = sessions.context.now;
        if let Some(known) = self.conn_mut(conn) {
            known.last_activity = now;
        }
    }

    /// Handles the acknowledgements at the front of `bytes` that need no decoding, because their
    /// form is the shortest. Returns the length in bytes.
    #[inline]
    pub(crate) fn read_acks(
        &self,
        conn: ConnId,
        session: SessionId,
        bytes: &[u8],
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> usize {
        match bytes.first() {
            Some(&PUBACK) => sessions.pubacks(session, bytes, out),
            Some(&PUBREC) if !self.has_pending_acks(conn, sessions) => {
                sessions.pubrecs(session, bytes, out)
            }
            Some(&PUBCOMP) => sessions.pubcomps(session, bytes),
            _ => 0,
        }
    }
}

/// Result of handling a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectOutcome {
    OtherShard,
    Accepted,
    /// The client waits for an authentication or authorization decision.
    Pending,
}
