//! The connections of a shard.

use crate::access_rules::placeholders::PlaceholderValues;
use crate::broker_event::{BURST_LINES_PER_S, PeerLog};
use crate::connection::conn::{Conn, ConnState};
use crate::connection::flapping::FlappingDetector;
use crate::connection::stalls::StallSearch;
use crate::ids::{ConnId, MonotonicMs, SessionId};
use crate::interface::outbox::Outbox;
use crate::limits::CONNECT_BYTES_MAX;
use crate::log_rate_limiter::LogRateLimiter;
use crate::message::namespace::{is_valid_namespace, split_client_id};
use crate::peer::PeerInfo;
use crate::peer::authentication::AuthOutcome;
use crate::permissions::placeholder_values::client_placeholder_values;
use crate::refusal::Refusal;
use crate::session::send_gate::SendGate;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use mqtt::ProtocolVersion;

/// The connections of a shard, and what is known of addresses and clients that come and go.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    pub(crate) conns: Vec<Option<Conn>>,
    pub(in crate::connection) conn_generation: u32,
    /// ConnectionTable which are held while the store has a backlog.
    pub(crate) store_waiters: Vec<ConnId>,
    /// Details of the violation that ends a connection next.
    pub(crate) violation_detail: Box<str>,
    pub(in crate::connection) flapping: FlappingDetector,
    pub(crate) stalls: StallSearch,
    pub(crate) draining: bool,
    /// Limits log events of connections which the broker closed.
    pub(crate) end_log_limiter: LogRateLimiter,
    /// Limits log events of clients whose windows are stalled.
    pub(crate) stall_log_limiter: LogRateLimiter,
    pub(crate) not_opened: PeerLog,
}

impl Default for ConnectionTable {
    fn default() -> ConnectionTable {
        ConnectionTable {
            conns: Vec::new(),
            conn_generation: 0,
            store_waiters: Vec::new(),
            violation_detail: Box::default(),
            flapping: FlappingDetector::default(),
            stalls: StallSearch::default(),
            draining: false,
            end_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            stall_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            not_opened: PeerLog::default(),
        }
    }
}

impl ConnectionTable {
    /// Subtracts a closed connection and all its memory.
    pub(crate) fn uncount_conn(&self, conn: ConnId, sessions: &mut SessionTable) {
        if let Some(known) = self.conn(conn) {
            let transport_bytes = known.peer.transport_bytes;
            sessions.ledger.aliases -= u64::from(known.alias_bytes);
            sessions.ledger.transports -= u64::from(transport_bytes);
            sessions.ledger.conns -= 1;
        }
    }

    pub(crate) fn on_opened(
        &mut self,
        conn: ConnId,
        peer: PeerInfo,
        since: MonotonicMs,
        moved: bool,
        sessions: &mut SessionTable,
    ) {
        let options = sessions.context.options.options_of_listener(peer.listener);
        let packet_bytes_max = options.packet_bytes_max.min(CONNECT_BYTES_MAX);
        let timer_at =
            MonotonicMs(since.0 + u64::from(sessions.context.options.connect_timeout_ms));
        let heard = sessions.context.now;
        let generation = self.add_conn(
            conn,
            |generation| Conn {
                state: ConnState::AwaitingConnect,
                peer,
                version: ProtocolVersion::V311,
                is_bridge: false,
                moved,
                generation,
                silence_ms_max: 0,
                last_activity: heard,
                timer_at,
                topic_alias_max: 0,
                receive_maximum: u16::MAX,
                packet_bytes_max,
                aliases: Vec::new(),
                alias_bytes: 0,
                meter: None,
                exchange: None,
                pending_acks: 0,
            },
            sessions,
        );
        sessions.context.timers.set(timer_at, ShardTimer::Conn { index: conn.0, generation });
    }

    /// Stores a connection at its index, counts its memory, and returns its generation.
    pub(crate) fn add_conn(
        &mut self,
        conn: ConnId,
        make: impl FnOnce(u32) -> Conn,
        sessions: &mut SessionTable,
    ) -> u32 {
        self.conn_generation = self.conn_generation.wrapping_add(1);
        let made = make(self.conn_generation);
        sessions.ledger.conns += 1;
        sessions.ledger.transports += u64::from(made.peer.transport_bytes);
        let index = conn.0 as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        self.conns[index] = Some(made);
        self.conn_generation
    }

    #[inline]
    pub(crate) fn conn(&self, conn: ConnId) -> Option<&Conn> {
        self.conns.get(conn.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn conn_mut(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(conn.0 as usize)?.as_mut()
    }

    pub(crate) fn take_conn(&mut self, conn: ConnId, sessions: &mut SessionTable) -> Option<Conn> {
        self.drop_pending_acks(conn, sessions);
        self.uncount_conn(conn, sessions);
        let known = self.conns.get_mut(conn.0 as usize)?.take();
        if sessions.ledger.conns == 0 {
            self.conns = Vec::new();
        }
        known
    }

    pub(crate) fn set_congested(
        &self,
        conn: ConnId,
        congested: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(id) = self.conn(conn).and_then(Conn::session) else { return };
        let session = sessions.get_mut(id);
        session.gate.set(SendGate::CONGESTED, congested);
        if session.is_member {
            sessions.room_changes.push(id);
        }
        if !congested {
            sessions.drain_queue(id, out);
        }
    }

    /// Returns the placeholder values of a session's client.
    pub(crate) fn placeholder_values<'a>(
        &'a self,
        id: SessionId,
        sessions: &'a SessionTable,
    ) -> PlaceholderValues<'a> {
        let session = sessions.get(id);
        let peer = session.conn().and_then(|conn| self.conn(conn)).map(|known| &known.peer);
        let (_, client_id) = split_client_id(&session.client_id);
        client_placeholder_values(client_id, session.permissions.as_deref(), peer)
    }

    /// Returns the namespace of a client whose CONNECT is being handled. The empty text is none.
    /// The namespace of the authenticator takes precedence over the option's.
    pub(crate) fn namespace_at(
        &self,
        conn: ConnId,
        sessions: &SessionTable,
    ) -> Result<Box<str>, Refusal> {
        let Some(known) = self.conn(conn) else { return Ok("".into()) };
        let peer = &known.peer;
        let grant = peer.auth_outcome().and_then(AuthOutcome::principal);
        if let Some(own) = grant.and_then(|grant| grant.namespace.as_deref()) {
            return if own.is_empty() || is_valid_namespace(own) {
                Ok(own.into())
            } else {
                Err(Refusal::NoNamespace)
            };
        }
        let Some(namespace) = &sessions.context.options.options_of_peer(peer).namespace else {
            return Ok("".into());
        };
        let user = grant.and_then(|grant| grant.user.as_deref());
        let certificate = peer.certificate();
        let common_name = certificate.and_then(|known| known.common_name.as_deref());
        namespace.of(user, common_name).ok_or(Refusal::NoNamespace)
    }
}
