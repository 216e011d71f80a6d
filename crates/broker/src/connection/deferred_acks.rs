//! Acknowledgements of a connection that wait for a commit.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::durability::pending_acks::{AckPacket, PendingAck};
use crate::ids::{ConnId, SessionId};
use crate::interface::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;

impl ConnectionTable {
    /// Whether earlier answers to this connection still wait.
    #[inline]
    pub(crate) fn has_pending_acks(&self, conn: ConnId, sessions: &SessionTable) -> bool {
        sessions.durability.pending_acks.has_answers()
            && self.conn(conn).is_some_and(|known| known.pending_acks > 0)
    }

    /// Defers an answer until the commit of all records of this tick, in [`TickAcks`].
    pub(crate) fn defer_ack(&mut self, answer: PendingAck, sessions: &mut SessionTable) {
        if let Some(known) = answer.conn().and_then(|conn| self.conn_mut(conn)) {
            known.pending_acks += 1;
        }
        sessions.durability.pending_acks.defer(answer);
    }

    /// Removes one pending acknowledgement from a connection's count, and returns its session;
    /// `None` if the connection has ended.
    pub(crate) fn take_pending_ack(&mut self, conn: ConnId) -> Option<SessionId> {
        let known = self.conn_mut(conn)?;
        known.pending_acks -= 1;
        known.session()
    }

    /// Drops the pending answers of a connection that ends, but not `PositionsCommitted`. The
    /// records stay.
    pub(crate) fn drop_pending_acks(&self, conn: ConnId, sessions: &mut SessionTable) {
        if self.has_pending_acks(conn, sessions) {
            sessions.durability.pending_acks.drop_answers_to(conn);
        }
    }

    /// Sends one of the four acknowledgements, at once or when the records of this tick are
    /// durable.
    pub(crate) fn acknowledge_when_durable(
        &mut self,
        conn: ConnId,
        ack: AckPacket,
        waits: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if waits || self.has_pending_acks(conn, sessions) {
            return self.defer_ack(PendingAck::Ack { conn, ack }, sessions);
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            sessions.acknowledge(id, ack, out);
        }
    }

    /// Defers [`PendingAck::ResumeFlight`] on a new connection of a persistent session until the
    /// changes of the previous connection are committed: a repeated packet must get the same answer
    /// after a power cut.
    pub(crate) fn resume_when_durable(
        &mut self,
        conn: ConnId,
        id: SessionId,
        sessions: &mut SessionTable,
    ) {
        let lasts = sessions.get(id).persistent.is_some();
        let waits = lasts && sessions.durability.pending_acks.has_answers();
        sessions.set_suspended(id, waits);
        if let Some(persistent) = &mut sessions.get_mut(id).persistent {
            persistent.is_unreadable = false;
        }
        if waits {
            self.defer_ack(PendingAck::ResumeFlight { conn }, sessions);
        }
    }

    /// Defers CONNACK in `ConnState::AwaitingCommit` until the end of the client's previous session
    /// is committed, since CONNACK reports that no session is present. Reading stops meanwhile.
    pub(crate) fn accept_when_durable(
        &mut self,
        conn: ConnId,
        session: SessionId,
        bytes: Vec<u8>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if let Some(known) = self.conn_mut(conn) {
            known.state = ConnState::AwaitingCommit { session };
        }
        out.effects.push(Effect::Hold { conn });
        self.defer_ack(PendingAck::ConnAck { conn, bytes: bytes.into() }, sessions);
    }

    /// Sends an encoded packet, at once or when the records of this tick are durable.
    pub(crate) fn send_when_durable(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        waits: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if waits || self.has_pending_acks(conn, sessions) {
            return self.defer_ack(PendingAck::Bytes { conn, bytes: bytes.into() }, sessions);
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            sessions.send_packet(id, bytes, out);
        }
    }
}
