//! The rate limit of packets from a client. A client above the limit is not read until the rate
//! allows more; no message is dropped and no other client waits.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, SessionId};
use crate::interface::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use mqtt::{PacketFrame, PacketType};

impl ConnectionTable {
    /// Stops reading from a connection above the rate limit until a `ShardTimer::ReadRate` is due.
    /// Returns whether the connection is above the limit.
    pub(crate) fn hold_for_rate(
        &mut self,
        conn: ConnId,
        session: SessionId,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let now = sessions.context.now;
        let Some(known) = self.conn_mut(conn) else { return false };
        let until = known.meter.as_ref().and_then(|meter| meter.blocked_until(now));
        let Some(until) = until else { return false };
        known.state = ConnState::RateLimited { session };
        let generation = known.generation;
        sessions.context.timers.set(until, ShardTimer::ReadRate { index: conn.0, generation });
        sessions.counters.paced += 1;
        out.effects.push(Effect::Hold { conn });
        true
    }

    /// Charges the next packet to the meter of a connection with a limit.
    pub(crate) fn charge_packet(
        &mut self,
        conn: ConnId,
        frame: PacketFrame<'_>,
        sessions: &SessionTable,
    ) {
        let now = sessions.context.now;
        if let Some(known) = self.conn_mut(conn)
            && let Some(meter) = &mut known.meter
        {
            let publishes = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
            meter.charge(now, publishes, frame.len as u64);
        }
    }

    /// Resumes reading from a connection in `ConnState::RateLimited` when the timer is due.
    pub(crate) fn resume_rate_limited(
        &mut self,
        index: u32,
        generation: u32,
        sessions: &SessionTable,
        out: &mut Outbox,
    ) {
        let (now, conn) = (sessions.context.now, ConnId(index));
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation == generation
            && let ConnState::RateLimited { session } = known.state
        {
            known.state = ConnState::Live { session };
            // The broker did not read until now, so the silence does not count for keep-alive.
            known.last_activity = now;
            out.effects.push(Effect::Resume { conn });
        }
    }
}
