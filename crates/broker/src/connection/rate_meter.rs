//! Rate limits of a client: messages and bytes per second, in each direction. A client above the
//! limit is not read until the rate allows more; no message is dropped and no other client waits.
//! Messages to a client above the limit wait in the session's queue, under the policy of the queue,
//! as with a full window.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::leaky_bucket::LeakyBucket;
use crate::connection::send_gate::SendGate;
use crate::input::{ConnId, MonotonicMs, SessionId};
use crate::options::BrokerOptions;
use crate::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use mqtt::{PacketFrame, PacketType};

/// Rate meter of one direction of a connection. Absent without a limit.
#[derive(Debug)]
pub(crate) struct RateMeter {
    messages: LeakyBucket,
    bytes: LeakyBucket,
    /// PUBLISH packets per second; 0 for no limit, as in `bytes_per_s`.
    messages_per_s: u32,
    bytes_per_s: u32,
}

impl RateMeter {
    /// Creates the meter for packets from the client; `None` without a limit.
    pub(crate) fn of_reads(options: &BrokerOptions) -> Option<Box<RateMeter>> {
        RateMeter::new(options.messages_per_s, options.bytes_per_s)
    }

    /// Creates the meter for packets to the client; `None` without a limit.
    pub(crate) fn of_writes(options: &BrokerOptions) -> Option<Box<RateMeter>> {
        RateMeter::new(options.messages_out_per_s, options.bytes_out_per_s)
    }

    fn new(messages_per_s: u32, bytes_per_s: u32) -> Option<Box<RateMeter>> {
        (messages_per_s > 0 || bytes_per_s > 0).then(|| {
            let (messages, bytes) = (LeakyBucket::default(), LeakyBucket::default());
            Box::new(RateMeter { messages, bytes, messages_per_s, bytes_per_s })
        })
    }

    fn blocked_until(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        let waits = |pace: LeakyBucket, per_s| {
            if per_s > 0 { pace.blocked_until(now, per_s) } else { None }
        };
        waits(self.messages, self.messages_per_s).max(waits(self.bytes, self.bytes_per_s))
    }

    /// Counts a packet, and a message if `publishes`. A packet larger than a second's worth is
    /// charged whole and delays later packets.
    fn charge(&mut self, now: MonotonicMs, publishes: bool, bytes: u64) {
        if self.messages_per_s > 0 && publishes {
            self.messages.charge(now, 1, self.messages_per_s);
        }
        if self.bytes_per_s > 0 {
            self.bytes.charge(now, bytes, self.bytes_per_s);
        }
    }
}

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
        sessions: &mut SessionTable,
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
        sessions: &mut SessionTable,
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

impl SessionTable {
    /// Sets the timers for the sessions that `is_rate_limited` has stopped; `SessionTable` cannot
    /// set timers.
    pub(crate) fn set_rate_timers(&mut self) {
        while let Some((id, until)) = self.rate_limited.pop() {
            if self.contains(id) {
                let generation = self.get(id).generation;
                self.context.timers.set(until, ShardTimer::QueueDrain { index: id.0, generation });
            }
        }
    }
}

impl SessionTable {
    /// Sets the meter for messages to a client that has connected, and the gate bit `METERED`.
    pub(crate) fn set_meter(&mut self, id: SessionId, meter: Option<Box<RateMeter>>) {
        let session = self.get_mut(id);
        session.gate.set(SendGate::METERED, meter.is_some());
        if meter.is_some() || session.extras.is_some() {
            session.extras().meter = meter;
        }
    }

    /// Whether a client has received as much as the rate limit allows for now. If so, sets the gate
    /// bit `AHEAD`, and the queue goes on at a timer.
    #[cold]
    pub(crate) fn is_rate_limited(&mut self, id: SessionId) -> bool {
        let now = self.context.now;
        let session = self.get_mut(id);
        let meter = session.extras.as_ref().and_then(|extras| extras.meter.as_ref());
        let Some(until) = meter.and_then(|meter| meter.blocked_until(now)) else { return false };
        session.gate.set(SendGate::AHEAD, true);
        self.rate_limited.push((id, until));
        true
    }

    /// Charges a sent message to the meter of the client, if present.
    #[cold]
    pub(crate) fn charge_sent(&mut self, id: SessionId, bytes: u64) {
        let now = self.context.now;
        let extras = self.get_mut(id).extras.as_mut();
        if let Some(meter) = extras.and_then(|extras| extras.meter.as_mut()) {
            meter.charge(now, true, bytes);
        }
    }

    /// Drains the queue of a client once the rate allows more. A timer of an earlier generation of
    /// the session has no effect.
    pub(crate) fn resume_drain(&mut self, id: SessionId, generation: u32, out: &mut Outbox) {
        if !self.is_current(id, generation) || !self.get(id).gate.has(SendGate::AHEAD) {
            return;
        }
        let now = self.context.now;
        let session = self.get_mut(id);
        let meter = session.extras.as_ref().and_then(|extras| extras.meter.as_ref());
        if meter.is_none_or(|meter| meter.blocked_until(now).is_none()) {
            session.gate.set(SendGate::AHEAD, false);
            self.drain_queue(id, out);
        }
    }
}
