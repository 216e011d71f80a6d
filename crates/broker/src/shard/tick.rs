//! Due timers, and work that the previous tick left unfinished.

use crate::broker_event::BrokerEvent;
use crate::connection::conn::ConnState;
use crate::ids::{ConnId, MonotonicMs, SessionId};
use crate::interface::outbox::Outbox;
use crate::options::bans::{BanSubject, LOOKED_AT_PER_TICK};
use crate::peer::authentication::AuthDecision;
use crate::refusal::{CloseReason, Refusal};
use crate::shard::{Shard, TIMERS_KEPT};
use crate::timer::{ShardTimer, TimerWheel, turn_of};
use mqtt::Violation;

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
                self.connections.resume_rate_limited(index, generation, &self.sessions, out)
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

    /// Removes outdated timers once there are more than four per connection and session (plus
    /// `TIMERS_KEPT`). Timers of earlier users of an index otherwise stay in the wheel until they
    /// fire.
    pub(crate) fn prune_timers(&mut self) {
        let owners = 2 * (self.sessions.ledger.conns as usize + self.sessions.len());
        if self.sessions.context.timers.len() <= 2 * owners + TIMERS_KEPT {
            return;
        }
        let empty = TimerWheel::new(self.sessions.context.now);
        let mut timers = std::mem::replace(&mut self.sessions.context.timers, empty);
        let (conns, sessions, delayed) =
            (&self.connections.conns, &self.sessions, &self.routing.delayed);
        timers.retain(|timer, due| match timer {
            ShardTimer::AuthzDeadline { index, generation }
            | ShardTimer::Conn { index, generation }
            | ShardTimer::ReadRate { index, generation } => {
                let conn = conns.get(index as usize).and_then(Option::as_ref);
                conn.is_some_and(|conn| conn.generation == generation)
            }
            ShardTimer::QueueDrain { index, generation } => {
                sessions.is_current(SessionId(index), generation)
            }
            ShardTimer::QueueAge { index, generation } => {
                let id = SessionId(index);
                let extras =
                    sessions.is_current(id, generation).then(|| sessions.get(id).extras.as_ref());
                let ages_at = extras.flatten().and_then(|extras| extras.ages_at);
                ages_at.is_some_and(|at| turn_of(at) == due)
            }
            ShardTimer::Session { index, generation } => {
                let id = SessionId(index);
                let is_due = |at: Option<MonotonicMs>| at.is_some_and(|at| turn_of(at) == due);
                sessions.is_current(id, generation)
                    && sessions
                        .get(id)
                        .extras
                        .as_ref()
                        .is_some_and(|extras| is_due(extras.will_at) || is_due(extras.ends_at))
            }
            ShardTimer::Delayed => delayed.is_timer_current(due),
            ShardTimer::Caches
            | ShardTimer::Reauthorization
            | ShardTimer::GarbageCollection
            | ShardTimer::EventFlush
            | ShardTimer::RetainedSweep
            | ShardTimer::Sys
            | ShardTimer::Windows => true,
        });
        self.sessions.context.timers = timers;
    }

    /// Handles a timer of an offline session: publishes the will if the delay has passed, and ends
    /// the session if the expiry has.
    pub(crate) fn check_away_timers(&mut self, id: SessionId, out: &mut Outbox) {
        let now = self.sessions.context.now;
        let Some(extras) = &self.sessions.get(id).extras else { return };
        let (will_at, ends_at) = (extras.will_at, extras.ends_at);
        if will_at.is_some_and(|at| now >= at) {
            self.publish_will(id, out);
        }
        // [MQTT-4.1.0-2]
        if ends_at.is_some_and(|at| now >= at) {
            self.sessions.counters.sessions_expired += 1;
            self.end_session(id, true, out);
        }
    }

    /// Compares further connections with the list. New connections are checked at CONNECT.
    pub(crate) fn continue_ban_watch(&mut self, out: &mut Outbox) {
        let Some(first) = self.authorization.ban_watch.next else { return };
        let end = self.connections.conns.len().min(first + LOOKED_AT_PER_TICK);
        for index in first..end {
            if out.is_full() {
                self.authorization.ban_watch.next = Some(index);
                return;
            }
            self.compare_with_bans(ConnId(index as u32), out);
        }
        self.authorization.ban_watch.next = (end < self.connections.conns.len()).then_some(end);
    }

    fn compare_with_bans(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.connections.conn(conn) else { return };
        let Some(id) = known.session() else { return };
        let (peer, session) = (known.peer.address, self.sessions.get(id));
        let suspect = BanSubject {
            client_id: Some(session.own_client_id()),
            user: session.permissions.as_ref().and_then(|rights| rights.subject.user.as_deref()),
            address: peer.ip(),
        };
        if let Some((by, reason)) = self.authorization.find_ban(suspect, &self.sessions) {
            let client_id = session.client_id.clone();
            out.events.push(BrokerEvent::Banned { client_id, peer, by, reason });
            self.end_connection(conn, CloseReason::Refusal(Refusal::BannedMeanwhile), out);
        }
    }

    /// Handles the timer of a connection: the connect timeout, the deadline of a decision, then
    /// keep-alive and the expiry of credentials. The timer is not moved by activity; when it fires,
    /// the handler compares `last_activity` and sets the timer anew.
    pub(crate) fn check_conn_timer(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.sessions.context.now, ConnId(index));
        let Some(known) = self.connections.conn_mut(conn) else { return };
        if known.generation != generation || now < known.timer_at {
            return;
        }
        let (timer_at, session) = (known.timer_at, known.session());
        let due = self.sessions.context.extend_conn_deadline(timer_at, session);
        let pause = self.sessions.context.pause;
        let Some(known) = self.connections.conn_mut(conn) else { return };
        if now < due {
            known.timer_at = due;
            return self.sessions.context.timers.set(due, ShardTimer::Conn { index, generation });
        }
        if matches!(known.state, ConnState::Authenticating | ConnState::Challenged) {
            let case = known.generation;
            return self.on_auth_decision(conn, case, AuthDecision::Deny(Refusal::NoVerdict), out);
        }
        let Some(session) = known.session() else {
            if matches!(known.state, ConnState::AuthorizingWill { .. }) {
                return self.authorization.resume_after_authz(
                    conn,
                    &mut self.connections,
                    &mut self.sessions,
                    out,
                );
            }
            let ms = self.sessions.context.options.connect_timeout_ms;
            self.connections.violation_detail =
                format!("no CONNECT came in time: connect.timeout_ms = {ms}").into();
            return self.end_connection(
                conn,
                CloseReason::Violation(Violation::ConnectExpected),
                out,
            );
        };
        if known.is_read_blocked() {
            // The broker has stopped reading, so the silence does not count.
            known.last_activity = now;
        }
        let silent_at =
            known.keep_alive_deadline().map(|at| pause.extend(at, known.silence_ms_max));
        let expires = self.sessions.get(session).expires();
        if expires.is_some_and(|at| now >= at) {
            return self.end_connection(conn, CloseReason::Refusal(Refusal::Expired), out);
        }
        if silent_at.is_some_and(|at| now >= at) {
            // [MQTT-3.1.2-22]
            return self.end_connection(
                conn,
                CloseReason::Violation(Violation::KeepAliveTimeout),
                out,
            );
        }
        let Some(due) = silent_at.into_iter().chain(expires).min() else { return };
        let Some(known) = self.connections.conn_mut(conn) else { return };
        known.timer_at = due;
        self.sessions.context.timers.set(due, ShardTimer::Conn { index, generation });
        self.sessions.get_mut(session).free_idle_flight();
    }
}
