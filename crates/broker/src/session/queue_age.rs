//! The age limit of queues (`queue_age_s_max`): messages that wait longer are dropped by a timer,
//! even if no new message arrives and the client stays offline.

use crate::ids::{MonotonicMs, SessionId};
use crate::interface::outbox::Outbox;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;

impl SessionTable {
    /// Sets the timers for queues in `SessionTable::aging`.
    pub(crate) fn set_age_timers(&mut self) {
        while let Some((id, at)) = self.aging.pop() {
            if self.contains(id) {
                let generation = self.get(id).generation;
                self.context.timers.set(at, ShardTimer::QueueAge { index: id.0, generation });
            }
        }
    }
}

impl SessionTable {
    /// Watches the age of a queue after a message was added. One timer per queue is enough, due for
    /// the oldest message.
    #[inline]
    pub(crate) fn watch_age(&mut self, id: SessionId) {
        if self.context.options.options_of_session(self.get(id)).queue_age_s_max != u32::MAX {
            self.plan_age(id);
        }
    }

    #[cold]
    fn plan_age(&mut self, id: SessionId) {
        let session = self.get(id);
        let age_s_max = self.context.options.options_of_session(session).queue_age_s_max;
        if session.extras.as_ref().is_some_and(|extras| extras.ages_at.is_some()) {
            return;
        }
        let waiting = session.flight.iter().flat_map(|flight| &flight.waiting);
        let oldest = waiting.filter(|slot| slot.may_be_dropped()).map(|slot| slot.message).next();
        let Some(oldest) = oldest else { return };
        let at = self.messages.get(oldest).at().0 + u64::from(age_s_max) * 1000;
        // A message above the limit may have to stay behind a message that must not be dropped. The
        // check then repeats after `AGE_RECHECK_MS`, not every tick.
        let at = MonotonicMs(at.max(self.context.now.0 + AGE_RECHECK_MS));
        self.get_mut(id).extras().ages_at = Some(at);
        self.aging.push((id, at));
    }

    /// Drops the messages above the age limit at the front of a queue. A timer of an earlier
    /// generation of the session has no effect.
    pub(crate) fn drop_aged(&mut self, id: SessionId, generation: u32, out: &mut Outbox) {
        if !self.is_current(id, generation) {
            return;
        }
        if let Some(extras) = &mut self.get_mut(id).extras {
            extras.ages_at = None;
        }
        self.drop_stale(id, out);
        self.watch_age(id);
        self.get_mut(id).free_idle_flight();
    }
}

const AGE_RECHECK_MS: u64 = 1000;
