//! Due timers, and work that the previous tick left unfinished.

use super::*;
use crate::input::SessionId;
use crate::outbox::Outbox;
use crate::timer::ShardTimer;

impl Shard {
    pub(super) fn on_tick(&mut self, out: &mut Outbox) {
        self.routing.interest.follow_growth(
            self.sessions.context.id.0,
            &mut self.routing.shard_interest,
            self.routing.topics.texts(),
        );
        let mut timers = std::mem::take(&mut self.fired_timers);
        self.sessions.context.timers.fire(self.sessions.context.now, &mut timers);
        for timer in timers.drain(..) {
            self.fire_timer(timer, out);
        }
        if timers.capacity() <= TIMERS_KEPT {
            self.fired_timers = timers;
        }
        if self.rule_engine.windows.is_behind() {
            self.check_windows(out);
        }
        self.routing.plan_sweep(&mut self.sessions);
        self.prune_timers();
        self.publish_due(out);
        self.caches.continue_cache_requests(&mut self.routing, &mut self.sessions, out);
        self.authorization.continue_reauthorization(&mut self.routing, &mut self.sessions, out);
        self.continue_ban_watch(out);
        self.connections.look_for_stalls(&mut self.sessions, out);
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
                self.authorization.check_authz_deadline(
                    index,
                    generation,
                    &mut self.connections,
                    &mut self.sessions,
                    out,
                )
            }
            ShardTimer::Caches => self.caches.expire_cached(&mut self.sessions),
            // `publish_due` below publishes the messages.
            ShardTimer::Delayed => {}
            ShardTimer::Reauthorization => {
                self.authorization.check_reauthorization(&mut self.routing, &mut self.sessions, out)
            }
            ShardTimer::GarbageCollection => self.sessions.start_garbage_collection(out),
            ShardTimer::QueueDrain { index, generation } => {
                self.sessions.resume_drain(SessionId(index), generation, out);
            }
            ShardTimer::ReadRate { index, generation } => {
                self.connections.resume_rate_limited(index, generation, &mut self.sessions, out)
            }
            ShardTimer::EventFlush => self.flush_withheld_events(out),
            ShardTimer::Sys => self.sys_round(out),
            ShardTimer::Windows => self.rule_engine.mark_windows_due(),
            ShardTimer::RetainedSweep => {
                self.routing.sweep_at = None;
                for topic in self.routing.retained.sweep(self.sessions.context.now) {
                    self.sessions.erase_retained(&topic);
                }
            }
        }
    }
}

impl ShardRouting {
    pub(crate) fn plan_sweep(&mut self, sessions: &mut SessionTable) {
        if self.sweep_at.is_none()
            && let Some(at) = self.retained.next_sweep()
        {
            self.sweep_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::RetainedSweep);
        }
    }
}
