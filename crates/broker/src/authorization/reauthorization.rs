//! Reauthorization: existing subscriptions are compared with the rules again when the rules change
//! or the client reconnects, a bounded number per tick. Without a matching rule the authorization
//! server is asked, one batch at a time, where new subscriptions alternate with retries. A
//! subscription stays until a rule or the server denies it.

use crate::authorization::ShardAuthorization;
use crate::connection::connection_table::ConnectionTable;
use crate::context::ShardContext;
use crate::ids::{MonotonicMs, RequestId, SessionId};
use crate::interface::authz::AuthzDecision;
use crate::interface::outbox::{Effect, Outbox};
use crate::message::namespace::filter_behind_share;
use crate::permissions::access_check::{AccessCheck, authz_request};
use crate::permissions::client_permissions::ClientPermissions;
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

#[derive(Debug, Default)]
pub(crate) struct ReauthorizationQueue {
    /// Sessions still to be compared with the rules.
    unchecked: ReauthorizationRound,
    /// Sessions with subscriptions to which no rule applies.
    unresolved: ReauthorizationRound,
    /// Requests to the authorization server in progress.
    batch: Option<ReauthorizationBatch>,
    /// Subscriptions without a decision, requested again after `pause`.
    retries: VecDeque<PendingSubscription>,
    /// Time until which `retries` wait.
    pause: Option<MonotonicMs>,
    /// Whether the last batch had no decision at all: further requests wait until the pause is
    /// over.
    is_silent: bool,
    timer_at: Option<MonotonicMs>,
}

/// Sessions processed in turn, once each, in the order of [`SessionId`].
#[derive(Debug, Default)]
struct ReauthorizationRound {
    all: BTreeMap<SessionId, ReauthorizationTask>,
    last: Option<SessionId>,
}

impl ReauthorizationRound {
    pub(crate) fn put(&mut self, doubt: ReauthorizationTask) {
        self.all.insert(doubt.session, doubt);
    }

    fn take(&mut self) -> Option<ReauthorizationTask> {
        let after = |last| (Bound::Excluded(last), Bound::Unbounded);
        let next = self.last.and_then(|last| self.all.range(after(last)).next());
        let session = *next.or_else(|| self.all.iter().next())?.0;
        self.last = Some(session);
        self.all.remove(&session)
    }
}

/// A session with the number of own and shared subscriptions still to compare. Subscriptions are
/// taken from the end, so a removal moves no entry that is still to come.
#[derive(Clone, Copy, Debug)]
struct ReauthorizationTask {
    session: SessionId,
    generation: u32,
    own: usize,
    shares: usize,
}

#[derive(Debug)]
struct ReauthorizationBatch {
    number: u32,
    deadline: MonotonicMs,
    all: Vec<PendingSubscription>,
    unanswered: usize,
}

/// A subscription with a request to the authorization server.
#[derive(Debug)]
struct PendingSubscription {
    session: SessionId,
    generation: u32,
    /// Filter with the namespace prefix, including `$share/`.
    filter: String,
    qos: u8,
    answer: Option<AuthzDecision>,
}

/// Largest number of subscriptions compared with the rules in one tick, fewer with many rules.
pub(crate) const REAUTHORIZED_PER_TICK: usize = 1_024;
/// Largest number of requests in a batch, so that requests for clients' packets wait behind no
/// more.
const BATCH_MAX: usize = 32;
/// Number of subscriptions without a decision in `retries`. Beyond the bound only the session is
/// remembered, in `unresolved`.
const RETRIES_MAX: usize = 1_024;
/// Pause in milliseconds after a batch with missing decisions.
const PAUSE_MS: u64 = 1_000;

impl ReauthorizationQueue {
    /// Whether work is due now, without an answer or a timer.
    pub(crate) fn is_due(&self, now: MonotonicMs) -> bool {
        !self.unchecked.all.is_empty() || self.can_request(now)
    }

    fn is_pause_over(&self, now: MonotonicMs) -> bool {
        self.pause.is_none_or(|until| until <= now)
    }

    fn can_request(&self, now: MonotonicMs) -> bool {
        let is_over = self.is_pause_over(now);
        let has_open = !self.unresolved.all.is_empty() && (is_over || !self.is_silent);
        self.batch.is_none() && (has_open || !self.retries.is_empty() && is_over)
    }
}

impl ReauthorizationTask {
    pub(crate) fn new(session: SessionId, generation: u32) -> ReauthorizationTask {
        ReauthorizationTask { session, generation, own: usize::MAX, shares: usize::MAX }
    }
}

impl ShardAuthorization {
    /// Restarts the comparison of all subscriptions, after a change of the rules or of the
    /// authorization server. Cached decisions are invalid at once, by `rights_generation`.
    pub(crate) fn reauthorize_all(
        &mut self,
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
    ) {
        self.rights_generation = self.rights_generation.wrapping_add(1);
        for index in 0..connections.conns.len() {
            let Some(known) = &connections.conns[index] else { continue };
            if let Some(id) = known.session()
                && sessions.get(id).permissions.is_none()
            {
                let rights = ClientPermissions::of_peer(&known.peer, &sessions.context.options);
                sessions.set_permissions(id, rights);
            }
        }
        let timer_at = self.reauthorization.timer_at;
        self.reauthorization = ReauthorizationQueue { timer_at, ..ReauthorizationQueue::default() };
        if sessions.context.options.has_permissions() {
            let all = sessions.iter().filter(|(_, session)| session.permissions.is_some());
            let all = all.map(|(id, session)| ReauthorizationTask::new(id, session.generation));
            self.reauthorization.unchecked.all = all.map(|doubt| (doubt.session, doubt)).collect();
        }
    }

    /// Compares further subscriptions with the rules and starts the next batch of requests.
    pub(crate) fn continue_reauthorization(
        &mut self,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if !self.reauthorization.is_due(sessions.context.now) {
            return;
        }
        let mut left = reauthorized_per_tick(&sessions.context);
        while left > 0
            && !out.is_full()
            && let Some(mut doubt) = self.reauthorization.unchecked.take()
        {
            if !sessions.is_current(doubt.session, doubt.generation) {
                continue;
            }
            left = left
                .saturating_sub(1 + self.recheck_session(&mut doubt, left, routing, sessions, out));
            if doubt.own + doubt.shares > 0 {
                self.reauthorization.unchecked.put(doubt);
            }
        }
        if self.reauthorization.can_request(sessions.context.now) {
            self.request_next_batch(left, routing, sessions, out);
        }
    }

    /// Requests the next batch. Retries get at most half of the batch while sessions are in
    /// `unresolved`.
    fn request_next_batch(
        &mut self,
        mut left: usize,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let again = if self.reauthorization.is_pause_over(sessions.context.now) {
            self.reauthorization.retries.len()
        } else {
            0
        };
        let has_open = !self.reauthorization.unresolved.all.is_empty();
        let again = again.min(if has_open { BATCH_MAX / 2 } else { BATCH_MAX });
        let mut asked: Vec<PendingSubscription> =
            self.reauthorization.retries.drain(..again).collect();
        while left > 0
            && asked.len() < BATCH_MAX
            && !out.is_full()
            && let Some(mut doubt) = self.reauthorization.unresolved.take()
        {
            if !sessions.is_current(doubt.session, doubt.generation) {
                continue;
            }
            let most = left.min(BATCH_MAX - asked.len());
            let looked = self.recheck_subscriptions(
                &mut doubt,
                most,
                out,
                |held| asked.push(held),
                routing,
                sessions,
            );
            left = left.saturating_sub(1 + looked);
            if doubt.own + doubt.shares > 0 {
                self.reauthorization.unresolved.put(doubt);
            }
        }
        self.request_authz(asked, routing, sessions, out);
    }

    /// Revokes the subscriptions of a session that the rules deny, at once up to
    /// `reauthorized_per_tick` and the rest in later ticks. Subscriptions without a rule are put in
    /// `unresolved`.
    pub(crate) fn reauthorize_session(
        &mut self,
        id: SessionId,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut doubt = ReauthorizationTask::new(id, sessions.get(id).generation);
        self.recheck_session(
            &mut doubt,
            reauthorized_per_tick(&sessions.context),
            routing,
            sessions,
            out,
        );
        if doubt.own + doubt.shares > 0 {
            self.reauthorization.unchecked.put(doubt);
        }
    }

    /// Compares a session's subscriptions with the rules, and puts the session in `unresolved` if
    /// the server has to be asked. Returns the number of compared subscriptions.
    fn recheck_session(
        &mut self,
        doubt: &mut ReauthorizationTask,
        most: usize,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> usize {
        let mut is_open = false;
        let looked =
            self.recheck_subscriptions(doubt, most, out, |_| is_open = true, routing, sessions);
        if is_open {
            let (session, generation) = (doubt.session, doubt.generation);
            self.reauthorization.unresolved.put(ReauthorizationTask::new(session, generation));
        }
        looked
    }

    /// Compares up to `most` subscriptions of a session with the rules, and calls `ask` for each
    /// without a decision. Returns the number of compared subscriptions.
    fn recheck_subscriptions(
        &self,
        doubt: &mut ReauthorizationTask,
        most: usize,
        out: &mut Outbox,
        mut ask: impl FnMut(PendingSubscription),
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
    ) -> usize {
        let (session, generation) = (doubt.session, doubt.generation);
        let known = sessions.get(session);
        let shares = known.extras.as_ref().map_or(0, |extras| extras.shares.len());
        doubt.own = doubt.own.min(known.subscriptions.len());
        doubt.shares = doubt.shares.min(shares);
        let before = doubt.own + doubt.shares;
        while doubt.own + doubt.shares > before.saturating_sub(most) {
            let known = sessions.get(session);
            let (filter, qos) = if doubt.own > 0 {
                doubt.own -= 1;
                let one = &known.subscriptions[doubt.own];
                let filter = routing.topics.filter(one.filter);
                let qos = filter.subscribers[one.place as usize].options.qos();
                (filter.text.to_string(), qos as u8)
            } else {
                doubt.shares -= 1;
                let Some(extras) = &known.extras else { break };
                let share = &extras.shares[doubt.shares];
                (share.group.to_string(), share.options.qos as u8)
            };
            let said = known.strip_prefix(filter_behind_share(&filter)).to_string();
            match self.decide_access(session, &AccessCheck::subscribe(&said, qos), sessions) {
                Some(true) => {}
                Some(false) => routing.revoke_subscription(session, &filter, sessions, out),
                None => ask(PendingSubscription { session, generation, filter, qos, answer: None }),
            }
        }
        before - doubt.own - doubt.shares
    }

    fn request_authz(
        &mut self,
        all: Vec<PendingSubscription>,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if all.is_empty() {
            return;
        }
        let (number, deadline) = self.next_authz_request(sessions);
        let mut batch = ReauthorizationBatch { number, deadline, unanswered: all.len(), all };
        for (at, held) in batch.all.iter_mut().enumerate() {
            let session = Some(held.session);
            let session = session.filter(|id| sessions.is_current(*id, held.generation));
            let session = session.map(|id| sessions.get(id));
            let Some((session, rights)) = session.and_then(|s| Some((s, s.permissions.as_ref()?)))
            else {
                // The session ended or lost the permissions while the retry waited.
                held.answer = Some(AuthzDecision::Allow);
                batch.unanswered -= 1;
                continue;
            };
            let client = (&rights.subject, session.own_client_id(), session.namespace());
            let wish = AccessCheck::subscribe(
                session.strip_prefix(filter_behind_share(&held.filter)),
                held.qos,
            );
            let request_id = RequestId { conn: None, number, at: at as u32 };
            out.effects.push(Effect::Authorize {
                request_id,
                question: authz_request(client.0, client.1, client.2, wish),
            });
        }
        sessions.counters.asked += batch.unanswered as u64;
        let is_over = batch.unanswered == 0;
        self.reauthorization.batch = Some(batch);
        match is_over {
            true => self.finish_reauthorization_batch(routing, sessions, out),
            false => self.set_reauthorization_timer(deadline, sessions),
        }
    }

    fn set_reauthorization_timer(&mut self, at: MonotonicMs, sessions: &mut SessionTable) {
        if self.reauthorization.timer_at.is_none_or(|set| at < set) {
            self.reauthorization.timer_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::Reauthorization);
        }
    }

    pub(crate) fn on_reauthorization_decision(
        &mut self,
        request_id: RequestId,
        answer: AuthzDecision,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let batch =
            self.reauthorization.batch.as_mut().filter(|batch| batch.number == request_id.number);
        let Some(batch) = batch else { return };
        let held = batch.all.get_mut(request_id.at as usize);
        let Some(held) = held.filter(|held| held.answer.is_none()) else { return };
        held.answer = Some(answer);
        batch.unanswered -= 1;
        if batch.unanswered == 0 {
            self.finish_reauthorization_batch(routing, sessions, out);
        }
    }

    /// Handles the timer, which may have been set for an earlier batch.
    pub(crate) fn check_reauthorization(
        &mut self,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        self.reauthorization.timer_at = None;
        let deadline = self.reauthorization.batch.as_ref().map(|batch| batch.deadline);
        match deadline.map(|deadline| sessions.context.extend_authz_deadline(deadline)) {
            Some(deadline) if sessions.context.now < deadline => {
                self.set_reauthorization_timer(deadline, sessions)
            }
            Some(_) => self.finish_reauthorization_batch(routing, sessions, out),
            None => {
                if let Some(until) =
                    self.reauthorization.pause.filter(|until| sessions.context.now < *until)
                {
                    self.set_reauthorization_timer(until, sessions);
                }
            }
        }
    }

    /// Applies the decisions of a batch after the last answer or the deadline. Subscriptions
    /// without a decision are requested again after `PAUSE_MS`.
    fn finish_reauthorization_batch(
        &mut self,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(batch) = self.reauthorization.batch.take() else { return };
        let is_said = |held: &PendingSubscription| {
            matches!(held.answer, Some(AuthzDecision::Allow | AuthzDecision::Deny))
        };
        self.reauthorization.is_silent = !batch.all.iter().any(is_said);
        let mut pauses = false;
        for held in batch.all {
            match held.answer {
                Some(AuthzDecision::Allow) => {}
                Some(AuthzDecision::Deny) => {
                    if sessions.is_current(held.session, held.generation) {
                        routing.revoke_subscription(held.session, &held.filter, sessions, out);
                    }
                }
                None | Some(AuthzDecision::Unavailable) => {
                    sessions.counters.unanswered += 1;
                    pauses = true;
                    if self.reauthorization.retries.len() < RETRIES_MAX {
                        self.reauthorization
                            .retries
                            .push_back(PendingSubscription { answer: None, ..held });
                    } else {
                        self.reauthorization
                            .unresolved
                            .put(ReauthorizationTask::new(held.session, held.generation));
                    }
                }
            }
        }
        if pauses {
            let until = MonotonicMs(sessions.context.now.0 + PAUSE_MS);
            self.reauthorization.pause = Some(until);
            self.set_reauthorization_timer(until, sessions);
        }
    }
}

/// Returns how many subscriptions are compared with the rules in one tick.
fn reauthorized_per_tick(context: &ShardContext) -> usize {
    context.filters_per_tick().clamp(1, REAUTHORIZED_PER_TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_again_and_again_does_not_keep_others_from_their_turn() {
        let mut round = ReauthorizationRound::default();
        for session in 0..10 {
            round.put(ReauthorizationTask::new(SessionId(session), 0));
        }
        let mut seen = Vec::new();
        for _ in 0..10 {
            let doubt = round.take().expect("all want their turn");
            seen.push(doubt.session.0);
            // The first is taken again at once, twice, and is present once.
            round.put(ReauthorizationTask::new(SessionId(0), 0));
            round.put(ReauthorizationTask::new(SessionId(0), 0));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(round.all.len(), 1);
        assert!(round.take().is_some() && round.take().is_none());
    }
}
