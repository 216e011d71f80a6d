//! The rate limit of messages to a client. Messages above the limit wait in the session's queue,
//! under the policy of the queue, as with a full window.

use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::session::rate_meter::RateMeter;
use crate::session::send_gate::SendGate;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;

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
