//! How fast a client may talk, and be talked to: so many messages and bytes a second. Above that
//! it is not read until time has paid for what it said: nothing is dropped, and nobody else waits.
//! What is for it waits in its session's queue, under the queue's policy, as if its window were
//! full.

use crate::connection::conn::ConnState;
use crate::connection::leaky_bucket::LeakyBucket;
use crate::connection::send_gate::SendGate;
use crate::input::{ConnId, MonotonicMs, SessionId};
use crate::options::BrokerOptions;
use crate::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::{PacketFrame, PacketType};

/// Rate meter of one direction of a connection. Absent without a limit.
#[derive(Debug)]
pub(crate) struct RateMeter {
    messages: LeakyBucket,
    bytes: LeakyBucket,
    /// 0 is any number, here and below.
    messages_per_s: u32,
    bytes_per_s: u32,
}

impl RateMeter {
    /// Creates the meter for packets from the client.
    pub(crate) fn of_reads(options: &BrokerOptions) -> Option<Box<RateMeter>> {
        RateMeter::new(options.messages_per_s, options.bytes_per_s)
    }

    /// Creates the meter for packets to the client.
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

    /// A packet that is larger than a second's worth is taken whole.
    fn charge(&mut self, now: MonotonicMs, publishes: bool, bytes: u64) {
        if self.messages_per_s > 0 && publishes {
            self.messages.charge(now, 1, self.messages_per_s);
        }
        if self.bytes_per_s > 0 {
            self.bytes.charge(now, bytes, self.bytes_per_s);
        }
    }
}

impl Shard {
    /// Holds a connection that is ahead of its rate. Says whether it is.
    pub(crate) fn hold_for_rate(
        &mut self,
        conn: ConnId,
        session: SessionId,
        out: &mut Outbox,
    ) -> bool {
        let now = self.now;
        let Some(known) = self.conn_mut(conn) else { return false };
        let until = known.meter.as_ref().and_then(|meter| meter.blocked_until(now));
        let Some(until) = until else { return false };
        known.state = ConnState::RateLimited { session };
        let generation = known.generation;
        self.timers.set(until, ShardTimer::ReadRate { index: conn.0, generation });
        self.sessions.counters.paced += 1;
        out.effects.push(Effect::Hold { conn });
        true
    }

    /// Counts the next packet of a connection that has a limit.
    pub(crate) fn charge_packet(&mut self, conn: ConnId, frame: PacketFrame<'_>) {
        let now = self.now;
        if let Some(known) = self.conn_mut(conn)
            && let Some(meter) = &mut known.meter
        {
            let publishes = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
            meter.charge(now, publishes, frame.len as u64);
        }
    }

    /// Time has paid for what the connection said.
    pub(crate) fn resume_rate_limited(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.now, ConnId(index));
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation == generation
            && let ConnState::RateLimited { session } = known.state
        {
            known.state = ConnState::Live { session };
            // Until now it was we who did not listen.
            known.last_activity = now;
            out.effects.push(Effect::Resume { conn });
        }
    }

    /// When what waits for clients that are ahead of their rates goes on.
    pub(crate) fn set_rate_timers(&mut self) {
        while let Some((id, until)) = self.sessions.rate_limited.pop() {
            if self.sessions.contains(id) {
                let generation = self.sessions.get(id).generation;
                self.timers.set(until, ShardTimer::QueueDrain { index: id.0, generation });
            }
        }
    }
}

impl SessionTable {
    /// Sets the meter of messages to a client that has connected.
    pub(crate) fn set_meter(&mut self, id: SessionId, meter: Option<Box<RateMeter>>) {
        let session = self.get_mut(id);
        session.gate.set(SendGate::METERED, meter.is_some());
        if meter.is_some() || session.extras.is_some() {
            session.extras().meter = meter;
        }
    }

    /// Whether a client was sent what its rate allows for now. Time will pay for it.
    #[cold]
    pub(crate) fn is_rate_limited(&mut self, id: SessionId) -> bool {
        let now = self.now;
        let session = self.get_mut(id);
        let meter = session.extras.as_ref().and_then(|extras| extras.meter.as_ref());
        let Some(until) = meter.and_then(|meter| meter.blocked_until(now)) else { return false };
        session.gate.set(SendGate::AHEAD, true);
        self.rate_limited.push((id, until));
        true
    }

    /// A client that has a rate was sent a message.
    #[cold]
    pub(crate) fn charge_sent(&mut self, id: SessionId, bytes: u64) {
        let now = self.now;
        let extras = self.get_mut(id).extras.as_mut();
        if let Some(meter) = extras.and_then(|extras| extras.meter.as_mut()) {
            meter.charge(now, true, bytes);
        }
    }

    /// Time has paid for what a client was sent. A timer of an earlier connection says nothing.
    pub(crate) fn resume_drain(&mut self, id: SessionId, generation: u32, out: &mut Outbox) {
        if !self.is_current(id, generation) || !self.get(id).gate.has(SendGate::AHEAD) {
            return;
        }
        let now = self.now;
        let session = self.get_mut(id);
        let meter = session.extras.as_ref().and_then(|extras| extras.meter.as_ref());
        if meter.is_none_or(|meter| meter.blocked_until(now).is_none()) {
            session.gate.set(SendGate::AHEAD, false);
            self.drain_queue(id, out);
        }
    }
}
