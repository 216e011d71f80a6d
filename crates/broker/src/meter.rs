//! How fast a client may talk, and be talked to: so many messages and bytes a second. Above that
//! it is not read until time has paid for what it said: nothing is dropped, and nobody else waits.
//! What is for it waits in its session's queue, under the queue's policy, as if its window were
//! full.

use crate::conn::State;
use crate::gate::Gate;
use crate::input::{ConnId, Now, SessionId};
use crate::options::Options;
use crate::outbox::{Effect, Outbox};
use crate::pace::Pace;
use crate::session::Sessions;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{Frame, PacketType};

/// Of one connection and one direction, as long as it lasts. There is none where there is no
/// limit.
#[derive(Debug)]
pub(crate) struct Meter {
    messages: Pace,
    bytes: Pace,
    /// 0 is any number, here and below.
    messages_per_s: u32,
    bytes_per_s: u32,
}

impl Meter {
    /// Of what comes from a client.
    pub(crate) fn inward(options: &Options) -> Option<Box<Meter>> {
        Meter::new(options.messages_per_s, options.bytes_per_s)
    }

    /// Of what goes to it.
    pub(crate) fn outward(options: &Options) -> Option<Box<Meter>> {
        Meter::new(options.messages_out_per_s, options.bytes_out_per_s)
    }

    fn new(messages_per_s: u32, bytes_per_s: u32) -> Option<Box<Meter>> {
        (messages_per_s > 0 || bytes_per_s > 0).then(|| {
            let (messages, bytes) = (Pace::default(), Pace::default());
            Box::new(Meter { messages, bytes, messages_per_s, bytes_per_s })
        })
    }

    fn waits(&self, now: Now) -> Option<Now> {
        let waits = |pace: Pace, per_s| if per_s > 0 { pace.waits(now, per_s) } else { None };
        waits(self.messages, self.messages_per_s).max(waits(self.bytes, self.bytes_per_s))
    }

    /// A packet that is larger than a second's worth is taken whole.
    fn take(&mut self, now: Now, publishes: bool, bytes: u64) {
        if self.messages_per_s > 0 && publishes {
            self.messages.take(now, 1, self.messages_per_s);
        }
        if self.bytes_per_s > 0 {
            self.bytes.take(now, bytes, self.bytes_per_s);
        }
    }
}

impl Shard {
    /// Holds a connection that is ahead of its rate. Says whether it is.
    pub(crate) fn waits_for_pace(
        &mut self,
        conn: ConnId,
        session: SessionId,
        out: &mut Outbox,
    ) -> bool {
        let now = self.now;
        let Some(known) = self.conn_mut(conn) else { return false };
        let until = known.meter.as_ref().and_then(|meter| meter.waits(now));
        let Some(until) = until else { return false };
        known.state = State::Paced { session };
        let generation = known.generation;
        self.timers.set(until, Timer::Pace { index: conn.0, generation });
        self.sessions.counters.paced += 1;
        out.effects.push(Effect::Hold { conn });
        true
    }

    /// Counts the next packet of a connection that has a limit.
    pub(crate) fn pace(&mut self, conn: ConnId, frame: Frame<'_>) {
        let now = self.now;
        if let Some(known) = self.conn_mut(conn)
            && let Some(meter) = &mut known.meter
        {
            let publishes = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
            meter.take(now, publishes, frame.len as u64);
        }
    }

    /// Time has paid for what the connection said.
    pub(crate) fn read_paced(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.now, ConnId(index));
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation == generation
            && let State::Paced { session } = known.state
        {
            known.state = State::Live { session };
            // Until now it was we who did not listen.
            known.heard = now;
            out.effects.push(Effect::Resume { conn });
        }
    }

    /// When what waits for clients that are ahead of their rates goes on.
    pub(crate) fn time_ahead(&mut self) {
        while let Some((id, until)) = self.sessions.ahead.pop() {
            if self.sessions.contains(id) {
                let generation = self.sessions.get(id).generation;
                self.timers.set(until, Timer::Flow { index: id.0, generation });
            }
        }
    }
}

impl Sessions {
    /// How fast the client that has come may be sent messages.
    pub(crate) fn set_meter(&mut self, id: SessionId, meter: Option<Box<Meter>>) {
        let session = self.get_mut(id);
        session.gate.set(Gate::METERED, meter.is_some());
        if meter.is_some() || session.rare.is_some() {
            session.rare().meter = meter;
        }
    }

    /// Whether a client was sent what its rate allows for now. Time will pay for it.
    #[cold]
    pub(crate) fn is_ahead(&mut self, id: SessionId) -> bool {
        let now = self.now;
        let session = self.get_mut(id);
        let meter = session.rare.as_ref().and_then(|rare| rare.meter.as_ref());
        let Some(until) = meter.and_then(|meter| meter.waits(now)) else { return false };
        session.gate.set(Gate::AHEAD, true);
        self.ahead.push((id, until));
        true
    }

    /// A client that has a rate was sent a message.
    #[cold]
    pub(crate) fn meter_sent(&mut self, id: SessionId, bytes: u64) {
        let now = self.now;
        let rare = self.get_mut(id).rare.as_mut();
        if let Some(meter) = rare.and_then(|rare| rare.meter.as_mut()) {
            meter.take(now, true, bytes);
        }
    }

    /// Time has paid for what a client was sent. A timer of an earlier connection says nothing.
    pub(crate) fn flow_again(&mut self, id: SessionId, generation: u32, out: &mut Outbox) {
        if !self.current(id, generation) || !self.get(id).gate.has(Gate::AHEAD) {
            return;
        }
        let now = self.now;
        let session = self.get_mut(id);
        let meter = session.rare.as_ref().and_then(|rare| rare.meter.as_ref());
        if meter.is_none_or(|meter| meter.waits(now).is_none()) {
            session.gate.set(Gate::AHEAD, false);
            self.flow(id, out);
        }
    }
}
