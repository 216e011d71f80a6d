//! What happens when the rules change under a session, or its client comes back: subscriptions are
//! compared with them tick by tick, whether or not anybody answers. Those of which they say nothing
//! are asked about where somebody is asked, a batch at a time, in turn with those of which nobody
//! could say anything. A subscription stays until somebody says no.

use crate::ask::{Answer, Slip, Wish, question};
use crate::input::{Now, SessionId};
use crate::mount::share_of;
use crate::outbox::{Effect, Outbox};
use crate::shard::Shard;
use crate::timer::Timer;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// Sessions that are still to be compared with the rules.
    queue: Round,
    /// Those with subscriptions of which the rules say nothing.
    open: Round,
    /// What is asked just now.
    batch: Option<Batch>,
    /// Of which nobody could say anything: it is asked again, ...
    again: VecDeque<Held>,
    /// ... after a while.
    pause: Option<Now>,
    /// Nobody answers at all: neither is anything else asked before the pause is over.
    is_silent: bool,
    timer_at: Option<Now>,
}

/// Sessions that have their turn one after the other, once each.
#[derive(Debug, Default)]
struct Round {
    all: BTreeMap<SessionId, Doubt>,
    last: Option<SessionId>,
}

impl Round {
    fn put(&mut self, doubt: Doubt) {
        self.all.insert(doubt.session, doubt);
    }

    fn take(&mut self) -> Option<Doubt> {
        let after = |last| (Bound::Excluded(last), Bound::Unbounded);
        let next = self.last.and_then(|last| self.all.range(after(last)).next());
        let session = *next.or_else(|| self.all.iter().next())?.0;
        self.last = Some(session);
        self.all.remove(&session)
    }
}

/// A session, and how many of its subscriptions and shares are not compared yet. They are taken
/// from the end, so that one that goes moves none of those.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    session: SessionId,
    generation: u32,
    own: usize,
    shares: usize,
}

#[derive(Debug)]
struct Batch {
    number: u32,
    deadline: Now,
    all: Vec<Held>,
    unanswered: usize,
}

/// A subscription of which somebody is asked.
#[derive(Debug)]
struct Held {
    session: SessionId,
    generation: u32,
    /// As it is known here.
    filter: String,
    qos: u8,
    answer: Option<Answer>,
}

/// Subscriptions that are compared with new rules in one tick, if the rules are not too many.
const DOUBTED_PER_TICK: usize = 1_024;
/// Questions of a shard about them at a time: clients that wait for theirs wait behind no more.
const BATCH_MAX: usize = 32;
/// So many of which nobody could say anything are remembered one by one; of others their session.
const AGAIN_MAX: usize = 1_024;
/// Who could not say is left alone for so long.
const PAUSE_MS: u64 = 1_000;

impl Doubts {
    /// Whether something is to be done now, and not when an answer or the time comes.
    pub(crate) fn is_due(&self, now: Now) -> bool {
        !self.queue.all.is_empty() || self.may_ask(now)
    }

    fn is_over(&self, now: Now) -> bool {
        self.pause.is_none_or(|until| until <= now)
    }

    fn may_ask(&self, now: Now) -> bool {
        let is_over = self.is_over(now);
        let has_open = !self.open.all.is_empty() && (is_over || !self.is_silent);
        self.batch.is_none() && (has_open || !self.again.is_empty() && is_over)
    }
}

impl Doubt {
    fn new(session: SessionId, generation: u32) -> Doubt {
        Doubt { session, generation, own: usize::MAX, shares: usize::MAX }
    }
}

impl Shard {
    /// The rules are others, or whoever is asked: what was decided is forgotten at once, and
    /// subscriptions are compared with them tick by tick.
    pub(crate) fn look_at_rights_again(&mut self) {
        self.rights_generation = self.rights_generation.wrapping_add(1);
        for index in 0..self.conns.len() {
            let Some(known) = &self.conns[index] else { continue };
            if let Some(id) = known.session()
                && self.sessions.get(id).rights.is_none()
            {
                let rights = self.rights_of(&known.peer);
                self.sessions.set_rights(id, rights);
            }
        }
        let timer_at = self.doubts.timer_at;
        self.doubts = Doubts { timer_at, ..Doubts::default() };
        if self.options.has_permissions() {
            let all = self.sessions.iter().filter(|(_, session)| session.rights.is_some());
            let all = all.map(|(id, session)| Doubt::new(id, session.generation));
            self.doubts.queue.all = all.map(|doubt| (doubt.session, doubt)).collect();
        }
    }

    /// Goes on comparing.
    pub(crate) fn doubt_on(&mut self, out: &mut Outbox) {
        if !self.doubts.is_due(self.now) {
            return;
        }
        let mut left = self.doubted_per_tick();
        while left > 0
            && !out.is_full()
            && let Some(mut doubt) = self.doubts.queue.take()
        {
            if !self.sessions.current(doubt.session, doubt.generation) {
                continue;
            }
            left = left.saturating_sub(1 + self.compare_all(&mut doubt, left, out));
            if doubt.own + doubt.shares > 0 {
                self.doubts.queue.put(doubt);
            }
        }
        if self.doubts.may_ask(self.now) {
            self.ask_on(left, out);
        }
    }

    fn doubted_per_tick(&self) -> usize {
        self.filters_per_tick().clamp(1, DOUBTED_PER_TICK)
    }

    /// The next batch: half of it is for those that nobody could say anything about.
    fn ask_on(&mut self, mut left: usize, out: &mut Outbox) {
        let again = if self.doubts.is_over(self.now) { self.doubts.again.len() } else { 0 };
        let has_open = !self.doubts.open.all.is_empty();
        let again = again.min(if has_open { BATCH_MAX / 2 } else { BATCH_MAX });
        let mut asked: Vec<Held> = self.doubts.again.drain(..again).collect();
        while left > 0
            && asked.len() < BATCH_MAX
            && !out.is_full()
            && let Some(mut doubt) = self.doubts.open.take()
        {
            if !self.sessions.current(doubt.session, doubt.generation) {
                continue;
            }
            let most = left.min(BATCH_MAX - asked.len());
            let looked = self.compare(&mut doubt, most, out, |held| asked.push(held));
            left = left.saturating_sub(1 + looked);
            if doubt.own + doubt.shares > 0 {
                self.doubts.open.put(doubt);
            }
        }
        self.ask_about(asked, out);
    }

    /// Takes away the subscriptions of a session that its client may not have any more: all at once
    /// where they are not too many. Of some of them somebody may have to be asked.
    pub(crate) fn doubt(&mut self, id: SessionId, out: &mut Outbox) {
        let mut doubt = Doubt::new(id, self.sessions.get(id).generation);
        self.compare_all(&mut doubt, self.doubted_per_tick(), out);
        if doubt.own + doubt.shares > 0 {
            self.doubts.queue.put(doubt);
        }
    }

    /// The same, and remembers a session of which somebody has to be asked.
    fn compare_all(&mut self, doubt: &mut Doubt, most: usize, out: &mut Outbox) -> usize {
        let mut is_open = false;
        let looked = self.compare(doubt, most, out, |_| is_open = true);
        if is_open {
            let (session, generation) = (doubt.session, doubt.generation);
            self.doubts.open.put(Doubt::new(session, generation));
        }
        looked
    }

    /// Compares so many subscriptions of a session with the rules. How many it looked at.
    fn compare(
        &mut self,
        doubt: &mut Doubt,
        most: usize,
        out: &mut Outbox,
        mut ask: impl FnMut(Held),
    ) -> usize {
        let (session, generation) = (doubt.session, doubt.generation);
        let known = self.sessions.get(session);
        let shares = known.rare.as_ref().map_or(0, |rare| rare.shares.len());
        doubt.own = doubt.own.min(known.subscriptions.len());
        doubt.shares = doubt.shares.min(shares);
        let before = doubt.own + doubt.shares;
        while doubt.own + doubt.shares > before.saturating_sub(most) {
            let known = self.sessions.get(session);
            let (filter, qos) = if doubt.own > 0 {
                doubt.own -= 1;
                let one = &known.subscriptions[doubt.own];
                let filter = self.topics.filter(one.filter);
                let qos = filter.subscribers[one.place as usize].options.qos();
                (filter.text.to_string(), qos as u8)
            } else {
                doubt.shares -= 1;
                let Some(rare) = &known.rare else { break };
                let share = &rare.shares[doubt.shares];
                (share.group.to_string(), share.options.qos as u8)
            };
            let said = known.said(named_filter(&filter)).to_string();
            match self.decide(session, &Wish::subscribe(&said, qos)) {
                Some(true) => {}
                Some(false) => self.take_away(session, &filter, out),
                None => ask(Held { session, generation, filter, qos, answer: None }),
            }
        }
        before - doubt.own - doubt.shares
    }

    fn ask_about(&mut self, all: Vec<Held>, out: &mut Outbox) {
        if all.is_empty() {
            return;
        }
        let (number, deadline) = self.next_slip();
        let mut batch = Batch { number, deadline, unanswered: all.len(), all };
        for (at, held) in batch.all.iter_mut().enumerate() {
            let session = Some(held.session);
            let session = session.filter(|id| self.sessions.current(*id, held.generation));
            let session = session.map(|id| self.sessions.get(id));
            let Some((session, rights)) = session.and_then(|s| Some((s, s.rights.as_ref()?)))
            else {
                // It went while nobody could say.
                held.answer = Some(Answer::Allow);
                batch.unanswered -= 1;
                continue;
            };
            let client = (&rights.who, session.said_id(), session.namespace());
            let wish = Wish::subscribe(session.said(named_filter(&held.filter)), held.qos);
            let slip = Slip { conn: None, number, at: at as u32 };
            out.effects.push(Effect::Ask { slip, question: question(client, wish) });
        }
        self.sessions.counters.asked += batch.unanswered as u64;
        let is_over = batch.unanswered == 0;
        self.doubts.batch = Some(batch);
        match is_over {
            true => self.settle_doubts(out),
            false => self.time_doubts(deadline),
        }
    }

    fn time_doubts(&mut self, at: Now) {
        if self.doubts.timer_at.is_none_or(|set| at < set) {
            self.doubts.timer_at = Some(at);
            self.timers.set(at, Timer::Doubts);
        }
    }

    pub(crate) fn answered_of_doubts(&mut self, slip: Slip, answer: Answer, out: &mut Outbox) {
        let batch = self.doubts.batch.as_mut().filter(|batch| batch.number == slip.number);
        let Some(batch) = batch else { return };
        let held = batch.all.get_mut(slip.at as usize);
        let Some(held) = held.filter(|held| held.answer.is_none()) else { return };
        held.answer = Some(answer);
        batch.unanswered -= 1;
        if batch.unanswered == 0 {
            self.settle_doubts(out);
        }
    }

    /// The timer has fired, which may have been set for an earlier batch.
    pub(crate) fn check_doubts(&mut self, out: &mut Outbox) {
        self.doubts.timer_at = None;
        let deadline = self.doubts.batch.as_ref().map(|batch| batch.deadline);
        match deadline.map(|deadline| self.extend_question(deadline)) {
            Some(deadline) if self.now < deadline => self.time_doubts(deadline),
            Some(_) => self.settle_doubts(out),
            None => {
                if let Some(until) = self.doubts.pause.filter(|until| self.now < *until) {
                    self.time_doubts(until);
                }
            }
        }
    }

    /// The batch is answered, or it is too late.
    fn settle_doubts(&mut self, out: &mut Outbox) {
        let Some(batch) = self.doubts.batch.take() else { return };
        let is_said = |held: &Held| matches!(held.answer, Some(Answer::Allow | Answer::Deny));
        self.doubts.is_silent = !batch.all.iter().any(is_said);
        let mut pauses = false;
        for held in batch.all {
            match held.answer {
                Some(Answer::Allow) => {}
                Some(Answer::Deny) => {
                    if self.sessions.current(held.session, held.generation) {
                        self.take_away(held.session, &held.filter, out);
                    }
                }
                None | Some(Answer::Silence) => {
                    self.sessions.counters.unanswered += 1;
                    pauses = true;
                    if self.doubts.again.len() < AGAIN_MAX {
                        self.doubts.again.push_back(Held { answer: None, ..held });
                    } else {
                        self.doubts.open.put(Doubt::new(held.session, held.generation));
                    }
                }
            }
        }
        if pauses {
            let until = Now(self.now.0 + PAUSE_MS);
            self.doubts.pause = Some(until);
            self.time_doubts(until);
        }
    }

    /// The client may not have it any more, if it still has it.
    fn take_away(&mut self, id: SessionId, filter: &str, out: &mut Outbox) {
        let found = match share_of(filter) {
            Some(_) => self.unsubscribe_shared(id, filter, out),
            None => self.unsubscribe_own(id, filter),
        };
        if !found {
            return;
        }
        self.sessions.counters.denied_subscribes += 1;
        let said = self.sessions.get(id).said(named_filter(filter)).to_string();
        let qos = self.qos_max_of(id) as u8;
        self.note_denial(id, "keep the subscription", Wish::subscribe(&said, qos), out);
    }
}

/// The filter in what a subscription is known by.
fn named_filter(filter: &str) -> &str {
    share_of(filter).map_or(filter, |share| share.filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_again_and_again_does_not_keep_others_from_their_turn() {
        let mut round = Round::default();
        for session in 0..10 {
            round.put(Doubt::new(SessionId(session), 0));
        }
        let mut seen = Vec::new();
        for _ in 0..10 {
            let doubt = round.take().expect("all want their turn");
            seen.push(doubt.session.0);
            // The first is back at once, twice, and there once.
            round.put(Doubt::new(SessionId(0), 0));
            round.put(Doubt::new(SessionId(0), 0));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(round.all.len(), 1);
        assert!(round.take().is_some() && round.take().is_none());
    }
}
