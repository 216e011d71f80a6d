//! Due timers, and work that the previous tick left unfinished.

use super::*;
use crate::input::SessionId;
use crate::outbox::Outbox;
use crate::timer::ShardTimer;

impl Shard {
    pub(super) fn on_tick(&mut self, out: &mut Outbox) {
        self.interest.follow_growth(self.id.0, &mut self.shard_interest, self.topics.texts());
        let mut timers = std::mem::take(&mut self.scratch.timers);
        self.timers.fire(self.now, &mut timers);
        for timer in timers.drain(..) {
            self.fire_timer(timer, out);
        }
        if timers.capacity() <= TIMERS_KEPT {
            self.scratch.timers = timers;
        }
        if self.windows.is_behind() {
            self.check_windows(out);
        }
        self.plan_sweep();
        self.prune_timers();
        self.publish_due(out);
        self.continue_cache_requests(out);
        self.continue_reauthorization(out);
        self.continue_ban_watch(out);
        self.look_for_stalls(out);
        let mut unfinished = std::mem::take(&mut self.sessions.unfinished);
        // Rotate: all sessions share the tick's bounds, so each tick starts with a different
        // session.
        if !unfinished.is_empty() {
            unfinished.rotate_left(1);
        }
        for id in unfinished {
            if out.is_full() {
                self.sessions.unfinished.push(id);
                continue;
            }
            if self.sessions.contains(id) {
                self.sessions.get_mut(id).unfinished = false;
                self.sessions.drain_queue(id, out);
            }
        }
    }

    fn fire_timer(&mut self, timer: ShardTimer, out: &mut Outbox) {
        match timer {
            ShardTimer::Conn { index, generation } => self.check_conn_timer(index, generation, out),
            ShardTimer::Session { index, generation } => {
                let id = SessionId(index);
                if self.sessions.is_current(id, generation) {
                    self.check_away_timers(id, out);
                }
            }
            ShardTimer::QueueAge { index, generation } => {
                self.sessions.drop_aged(SessionId(index), generation, out);
            }
            ShardTimer::AuthzDeadline { index, generation } => {
                self.check_authz_deadline(index, generation, out)
            }
            ShardTimer::Caches => self.expire_cached(),
            // `publish_due` below publishes the messages.
            ShardTimer::Delayed => {}
            ShardTimer::Reauthorization => self.check_reauthorization(out),
            ShardTimer::GarbageCollection => self.start_garbage_collection(out),
            ShardTimer::QueueDrain { index, generation } => {
                self.sessions.resume_drain(SessionId(index), generation, out);
            }
            ShardTimer::ReadRate { index, generation } => {
                self.resume_rate_limited(index, generation, out)
            }
            ShardTimer::EventFlush => self.flush_withheld_events(out),
            ShardTimer::Sys => self.sys_round(out),
            ShardTimer::Windows => self.mark_windows_due(),
            ShardTimer::RetainedSweep => {
                self.sweep_at = None;
                for topic in self.retained.sweep(self.now) {
                    self.erase_retained(&topic);
                }
            }
        }
    }

    pub(super) fn plan_sweep(&mut self) {
        if self.sweep_at.is_none()
            && let Some(at) = self.retained.next_sweep()
        {
            self.sweep_at = Some(at);
            self.timers.set(at, ShardTimer::RetainedSweep);
        }
    }
}
