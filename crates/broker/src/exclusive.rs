//! Subscriptions that one session alone may have: `$exclusive/` in front of a filter. The shard
//! that the filter's name hashes to knows whose it is; a session of another shard asks, and its
//! SUBACK waits for the answer. Beside that it is a subscription like any other, and
//! others may have the plain filter beside it.

use crate::conn::State;
use crate::input::{Cross, Member, SessionId};
use crate::memory::cost;
use crate::note::Note;
use crate::outbox::{Effect, Outbox};
use crate::refusal::Refusal;
use crate::rewrite::is_special;
use crate::shard::Shard;
use crate::topics::Packed;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::SubscribeOptions;
use std::sync::Arc;

/// What stands in front of the filter.
pub(crate) const EXCLUSIVE: &str = "$exclusive/";

/// The filter itself.
pub(crate) fn behind(filter: &str) -> &str {
    filter.strip_prefix(EXCLUSIVE).unwrap_or(filter)
}

#[derive(Debug, Default)]
pub(crate) struct Exclusives {
    /// Whose the filters are that are at home here.
    held: HashMap<Arc<str>, Member, FixedState>,
    /// What sessions here have given up, and their owners are still to hear of.
    released: Vec<(Arc<str>, Member)>,
}

/// One that a SUBACK waits for.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Its place in the packet.
    pub(crate) at: usize,
    pub(crate) said: Box<str>,
    pub(crate) filter: Arc<str>,
    pub(crate) options: SubscribeOptions,
    pub(crate) subscription_id: u32,
}

/// What comes of asking for one.
pub(crate) enum Claimed {
    Asked(Arc<str>),
    Granted,
    Taken,
}

impl Exclusives {
    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64 * cost::EXCLUSIVE
    }

    /// Says whether it is the member's now.
    fn give(&mut self, filter: &Arc<str>, member: Member) -> bool {
        *self.held.entry(filter.clone()).or_insert(member) == member
    }

    fn take_back(&mut self, filter: &str, member: Member) {
        if self.held.get(filter) == Some(&member) {
            self.held.remove(filter);
        }
    }
}

impl Shard {
    pub(crate) fn permit_exclusive(&self, filter: &str) -> Result<(), Refusal> {
        if !self.options.exclusive_available {
            return Err(Refusal::ExclusiveUnsupported);
        }
        match mqtt::topic::check_filter(filter).is_err() || is_special(filter) {
            true => Err(Refusal::TopicFilterInvalid),
            false => Ok(()),
        }
    }

    /// Asks for a filter for a session alone.
    pub(crate) fn claim(&mut self, id: SessionId, known: &str, out: &mut Outbox) -> Claimed {
        if self.has_exclusive(id, known) {
            return Claimed::Granted;
        }
        let (filter, member) = (Arc::from(known), self.member(id));
        let owner = self.home_of(known);
        if owner != self.id {
            let claim = Cross::Claim { filter: Arc::clone(&filter), member };
            out.lanes[usize::from(owner.0)].push_back(claim);
            return Claimed::Asked(filter);
        }
        match self.exclusives.give(&filter, member) {
            true => {
                self.sessions.get_mut(id).rare().exclusives.push(filter);
                Claimed::Granted
            }
            false => Claimed::Taken,
        }
    }

    pub(crate) fn has_exclusive(&self, id: SessionId, known: &str) -> bool {
        let rare = self.sessions.get(id).rare.as_ref();
        rare.is_some_and(|rare| rare.exclusives.iter().any(|own| **own == *known))
    }

    /// A session of another shard asks.
    pub(crate) fn claimed_by(&mut self, filter: Arc<str>, member: Member, out: &mut Outbox) {
        let is_granted = self.exclusives.give(&filter, member);
        let answer = Cross::Claimed { filter, member, is_granted };
        out.lanes[usize::from(member.shard.0)].push_back(answer);
    }

    /// A session of another shard has it no more.
    pub(crate) fn unclaimed_by(&mut self, filter: &str, member: Member) {
        self.exclusives.take_back(filter, member);
    }

    /// The filter's owner has answered. Whoever waited may be gone.
    pub(crate) fn claim_answered(
        &mut self,
        filter: &Arc<str>,
        member: Member,
        is_granted: bool,
        out: &mut Outbox,
    ) {
        let id = member.session;
        let is_here = self.sessions.current(id, member.generation);
        let claims = if is_here { self.claims_of(id, filter) } else { Vec::new() };
        if is_granted && claims.is_empty() && !(is_here && self.has_exclusive(id, filter)) {
            return self.exclusives.released.push((filter.clone(), member));
        }
        for claim in claims {
            let code = match is_granted {
                true => self.subscribe_claimed(id, &claim),
                false => Refusal::ExclusiveTaken.reason().code(),
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.notes.push(Note::Subscribed { client_id, filter: claim.said, code });
            let conn = self.sessions.get(id).conn().and_then(|conn| self.conn_mut(conn));
            if let Some(State::Held { suback, .. }) = conn.map(|known| &mut known.state) {
                suback.codes[claim.at] = code;
                if !is_granted {
                    suback.what = suback.what.or(Some(Refusal::ExclusiveTaken.what()));
                }
            }
        }
        if is_here {
            self.go_on_held(id, out);
        }
    }

    /// What the SUBACK of a session waits for under this filter.
    fn claims_of(&mut self, id: SessionId, filter: &str) -> Vec<Claim> {
        let conn = self.sessions.get(id).conn().and_then(|conn| self.conn_mut(conn));
        let Some(State::Held { suback, .. }) = conn.map(|known| &mut known.state) else {
            return Vec::new();
        };
        let (answered, open) =
            suback.claims.drain(..).partition(|claim: &Claim| *claim.filter == *filter);
        suback.claims = open;
        answered
    }

    fn subscribe_claimed(&mut self, id: SessionId, claim: &Claim) -> u8 {
        let Claim { filter, options, subscription_id, .. } = claim;
        if !self.has_exclusive(id, filter) {
            self.sessions.get_mut(id).rare().exclusives.push(filter.clone());
        }
        let (known, is_new) = self.subscribe_own(id, filter, *options, *subscription_id);
        self.write_filter(id, filter, Packed::new(*options), *subscription_id);
        self.feed_from(id, known, (options.qos, is_new), (*options, *subscription_id));
        options.qos as u8
    }

    /// Sends the SUBACK that nothing holds any more.
    pub(crate) fn go_on_held(&mut self, id: SessionId, out: &mut Outbox) {
        let Some(conn) = self.sessions.get(id).conn() else { return };
        let Some(known) = self.conn_mut(conn) else { return };
        let State::Held { session, suback } = &known.state else { return };
        let session = *session;
        if !suback.groups.is_empty() || !suback.claims.is_empty() {
            return;
        }
        let suback = std::mem::replace(&mut known.state, State::Live { session });
        if let State::Held { suback, .. } = suback {
            self.suback(conn, session, &suback, out);
        }
        out.effects.push(Effect::Resume { conn });
    }

    /// The session gives a subscription up: if it had it alone, others may have it.
    pub(crate) fn release_exclusive(&mut self, id: SessionId, known: &str) {
        let member = self.member(id);
        let Some(rare) = &mut self.sessions.get_mut(id).rare else { return };
        if let Some(at) = rare.exclusives.iter().position(|own| **own == *known) {
            let filter = rare.exclusives.swap_remove(at);
            self.exclusives.released.push((filter, member));
        }
    }

    /// The same of all that a session has, which ends.
    pub(crate) fn release_exclusives(&mut self, id: SessionId) {
        let member = self.member(id);
        let Some(rare) = &mut self.sessions.get_mut(id).rare else { return };
        let all = rare.exclusives.drain(..).map(|filter| (filter, member));
        self.exclusives.released.extend(all);
    }

    /// Tells the owners what was given up in this tick.
    pub(crate) fn report_released(&mut self, out: &mut Outbox) {
        while let Some((filter, member)) = self.exclusives.released.pop() {
            let owner = self.home_of(&filter);
            if owner == self.id {
                self.exclusives.take_back(&filter, member);
            } else {
                let released = Cross::Unclaim { filter, member };
                out.lanes[usize::from(owner.0)].push_back(released);
            }
        }
    }
}

/// A session has it from an earlier process.
pub(crate) fn restore_exclusive(shards: &mut [Shard], at: usize, id: SessionId, filter: &str) {
    let (filter, member) = (Arc::from(filter), shards[at].member(id));
    let owner = usize::from(shards[at].home_of(&filter).0);
    if shards[owner].exclusives.give(&filter, member) {
        shards[at].sessions.get_mut(id).rare().exclusives.push(filter);
    }
}
