//! How fast a client may talk: so many messages and bytes a second. Above that it is not read until
//! time has paid for what it said. Nothing is dropped, and nobody else waits.

use crate::conn::State;
use crate::input::{ConnId, Now, SessionId};
use crate::options::Options;
use crate::outbox::{Effect, Outbox};
use crate::pace::Pace;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{Frame, PacketType};

/// Of one connection, as long as it lasts. There is none where there is no limit.
#[derive(Debug)]
pub(crate) struct Meter {
    messages: Pace,
    bytes: Pace,
    /// 0 is any number, here and below.
    messages_per_s: u32,
    bytes_per_s: u32,
}

impl Meter {
    pub(crate) fn new(options: &Options) -> Option<Box<Meter>> {
        let (messages_per_s, bytes_per_s) = (options.messages_per_s, options.bytes_per_s);
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
    fn take(&mut self, now: Now, frame: Frame<'_>) {
        let publishes = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
        if self.messages_per_s > 0 && publishes {
            self.messages.take(now, 1, self.messages_per_s);
        }
        if self.bytes_per_s > 0 {
            self.bytes.take(now, frame.len as u64, self.bytes_per_s);
        }
    }
}

impl Shard {
    /// Counts the next packet of a connection that has a limit, or holds the connection before it.
    /// Says whether it is held.
    pub(crate) fn waits_for_pace(
        &mut self,
        conn: ConnId,
        session: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let now = self.now;
        let Some(known) = self.conn_mut(conn) else { return false };
        let Some(meter) = &mut known.meter else { return false };
        let Some(until) = meter.waits(now) else {
            meter.take(now, frame);
            return false;
        };
        known.state = State::Paced { session };
        let generation = known.generation;
        self.timers.set(until, Timer::Pace { index: conn.0, generation });
        self.sessions.counters.paced += 1;
        out.effects.push(Effect::Hold { conn });
        true
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
}
