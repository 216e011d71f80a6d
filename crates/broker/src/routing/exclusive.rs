//! Exclusive subscriptions: a filter with the prefix `$exclusive/` belongs to a single session. The
//! shard which owns the filter's name knows the session. A session of another shard claims the
//! filter by `ShardMessage::ClaimExclusive`, and the SUBACK waits for the answer. Other clients may
//! still subscribe to the plain filter.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::refusal::Refusal;
use crate::context::ShardContext;
use crate::input::{SessionId, SessionRef, ShardMessage};
use crate::memory::cost;
use crate::outbox::{Effect, Outbox};
use crate::routing::ShardRouting;
use crate::routing::rewrite::is_special;
use crate::routing::topics::SubscriptionFlags;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::SubscribeOptions;
use std::sync::Arc;

/// Prefix of the filter of an exclusive subscription.
pub(crate) const EXCLUSIVE: &str = "$exclusive/";

/// Returns the filter without the prefix `$exclusive/`.
pub(crate) fn strip_exclusive(filter: &str) -> &str {
    filter.strip_prefix(EXCLUSIVE).unwrap_or(filter)
}

/// Exclusive filters owned by this shard, and releases not yet reported to other owners.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveFilters {
    /// Sessions by exclusive filter, for the filters which this shard owns.
    held: HashMap<Arc<str>, SessionRef, FixedState>,
    /// Filters which sessions of this shard have released, until `report_released` informs the
    /// owners.
    released: Vec<(Arc<str>, SessionRef)>,
}

/// A claim to an exclusive filter that a SUBACK waits for.
#[derive(Debug)]
pub(crate) struct ExclusiveClaim {
    /// Index of the filter in the SUBSCRIBE packet.
    pub(crate) at: usize,
    pub(crate) said: Box<str>,
    pub(crate) filter: Arc<str>,
    pub(crate) options: SubscribeOptions,
    pub(crate) subscription_id: u32,
}

/// Result of `Shard::claim_exclusive`: `Pending` waits for the answer of the filter's owner.
pub(crate) enum ClaimOutcome {
    Pending(Arc<str>),
    Granted,
    Taken,
}

impl ExclusiveFilters {
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.held.len() as u64 * cost::EXCLUSIVE
    }

    /// Grants the filter to `member` if it is free. Returns whether `member` has the filter now.
    fn assign(&mut self, filter: &Arc<str>, member: SessionRef) -> bool {
        *self.held.entry(filter.clone()).or_insert(member) == member
    }

    fn unassign(&mut self, filter: &str, member: SessionRef) {
        if self.held.get(filter) == Some(&member) {
            self.held.remove(filter);
        }
    }
}

impl ShardContext {
    pub(crate) fn permit_exclusive(&self, filter: &str) -> Result<(), Refusal> {
        if !self.options.exclusive_available {
            return Err(Refusal::ExclusiveUnsupported);
        }
        match mqtt::topic::check_filter(filter).is_err() || is_special(filter) {
            true => Err(Refusal::TopicFilterInvalid),
            false => Ok(()),
        }
    }
}

impl ShardRouting {
    /// Claims an exclusive filter for a session, from this shard or from the filter's owner.
    pub(crate) fn claim_exclusive(
        &mut self,
        id: SessionId,
        known: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> ClaimOutcome {
        if sessions.has_exclusive(id, known) {
            return ClaimOutcome::Granted;
        }
        let (filter, member) = (Arc::from(known), sessions.session_ref(id));
        let owner = sessions.context.owner_of(known);
        if owner != sessions.context.id {
            let claim = ShardMessage::ClaimExclusive { filter: Arc::clone(&filter), member };
            out.lanes[usize::from(owner.0)].push_back(claim);
            return ClaimOutcome::Pending(filter);
        }
        match self.exclusives.assign(&filter, member) {
            true => {
                sessions.get_mut(id).extras().exclusives.push(filter);
                ClaimOutcome::Granted
            }
            false => ClaimOutcome::Taken,
        }
    }

    /// Answers the claim of a session on another shard.
    pub(crate) fn on_exclusive_claim(
        &mut self,
        filter: Arc<str>,
        member: SessionRef,
        out: &mut Outbox,
    ) {
        let is_granted = self.exclusives.assign(&filter, member);
        let answer = ShardMessage::ExclusiveClaimed { filter, member, is_granted };
        out.lanes[usize::from(member.shard.0)].push_back(answer);
    }

    /// Releases the filter of a session on another shard.
    pub(crate) fn on_exclusive_release(&mut self, filter: &str, member: SessionRef) {
        self.exclusives.unassign(filter, member);
    }

    fn subscribe_claimed(
        &mut self,
        id: SessionId,
        exclusive_claim: &ExclusiveClaim,
        sessions: &mut SessionTable,
    ) -> u8 {
        let ExclusiveClaim { filter, options, subscription_id, .. } = exclusive_claim;
        if !sessions.has_exclusive(id, filter) {
            sessions.get_mut(id).extras().exclusives.push(filter.clone());
        }
        let (known, is_new) = self.subscribe_own(id, filter, *options, *subscription_id, sessions);
        sessions.write_filter(id, filter, SubscriptionFlags::new(*options), *subscription_id);
        self.start_retained_feed(
            id,
            known,
            options.qos,
            is_new,
            *options,
            *subscription_id,
            sessions,
        );
        options.qos as u8
    }

    /// Releases the filter of an UNSUBSCRIBE, if the session had it exclusively.
    pub(crate) fn release_exclusive(
        &mut self,
        id: SessionId,
        known: &str,
        sessions: &mut SessionTable,
    ) {
        let member = sessions.session_ref(id);
        let Some(extras) = &mut sessions.get_mut(id).extras else { return };
        if let Some(at) = extras.exclusives.iter().position(|own| **own == *known) {
            let filter = extras.exclusives.swap_remove(at);
            self.exclusives.released.push((filter, member));
        }
    }

    /// Releases all exclusive filters of a session that ends.
    pub(crate) fn release_exclusives(&mut self, id: SessionId, sessions: &mut SessionTable) {
        let member = sessions.session_ref(id);
        let Some(extras) = &mut sessions.get_mut(id).extras else { return };
        let all = extras.exclusives.drain(..).map(|filter| (filter, member));
        self.exclusives.released.extend(all);
    }

    /// Reports the filters released in this tick to their owners.
    pub(crate) fn report_released(&mut self, sessions: &mut SessionTable, out: &mut Outbox) {
        while let Some((filter, member)) = self.exclusives.released.pop() {
            let owner = sessions.context.owner_of(&filter);
            if owner == sessions.context.id {
                self.exclusives.unassign(&filter, member);
            } else {
                let released = ShardMessage::ReleaseExclusive { filter, member };
                out.lanes[usize::from(owner.0)].push_back(released);
            }
        }
    }
}

impl SessionTable {
    pub(crate) fn has_exclusive(&self, id: SessionId, known: &str) -> bool {
        let extras = self.get(id).extras.as_ref();
        extras.is_some_and(|extras| extras.exclusives.iter().any(|own| **own == *known))
    }
}

impl Shard {
    /// Handles the answer of the filter's owner. If the session ended or no longer waits, a granted
    /// filter is released again.
    pub(crate) fn on_claim_answer(
        &mut self,
        filter: &Arc<str>,
        member: SessionRef,
        is_granted: bool,
        out: &mut Outbox,
    ) {
        let id = member.session;
        let is_here = self.sessions.is_current(id, member.generation);
        let claims = if is_here {
            self.connections.take_claims(id, filter, &mut self.sessions)
        } else {
            Vec::new()
        };
        if is_granted && claims.is_empty() && !(is_here && self.sessions.has_exclusive(id, filter))
        {
            return self.routing.exclusives.released.push((filter.clone(), member));
        }
        for exclusive_claim in claims {
            let code = match is_granted {
                true => self.routing.subscribe_claimed(id, &exclusive_claim, &mut self.sessions),
                false => Refusal::ExclusiveTaken.reason().code(),
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.events.push(BrokerEvent::Subscribed {
                client_id,
                filter: exclusive_claim.said,
                code,
            });
            let conn =
                self.sessions.get(id).conn().and_then(|conn| self.connections.conn_mut(conn));
            if let Some(ConnState::AwaitingSubAck { suback, .. }) =
                conn.map(|known| &mut known.state)
            {
                suback.codes[exclusive_claim.at] = code;
                if !is_granted {
                    suback.what = suback.what.or(Some(Refusal::ExclusiveTaken.description()));
                }
            }
        }
        if is_here {
            self.connections.send_ready_suback(id, &mut self.sessions, out);
        }
    }
}

impl ConnectionTable {
    /// Takes the pending claims of a session to this filter out of its SUBACK.
    fn take_claims(
        &mut self,
        id: SessionId,
        filter: &str,
        sessions: &mut SessionTable,
    ) -> Vec<ExclusiveClaim> {
        let conn = sessions.get(id).conn().and_then(|conn| self.conn_mut(conn));
        let Some(ConnState::AwaitingSubAck { suback, .. }) = conn.map(|known| &mut known.state)
        else {
            return Vec::new();
        };
        let (answered, open) = suback
            .claims
            .drain(..)
            .partition(|exclusive_claim: &ExclusiveClaim| *exclusive_claim.filter == *filter);
        suback.claims = open;
        answered
    }

    /// Sends the SUBACK once no group or claim is pending.
    pub(crate) fn send_ready_suback(
        &mut self,
        id: SessionId,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(conn) = sessions.get(id).conn() else { return };
        let Some(known) = self.conn_mut(conn) else { return };
        let ConnState::AwaitingSubAck { session, suback } = &known.state else { return };
        let session = *session;
        if !suback.groups.is_empty() || !suback.claims.is_empty() {
            return;
        }
        let suback = std::mem::replace(&mut known.state, ConnState::Live { session });
        if let ConnState::AwaitingSubAck { suback, .. } = suback {
            self.send_suback(conn, session, &suback, sessions, out);
        }
        out.effects.push(Effect::Resume { conn });
    }
}

/// Restores an exclusive subscription of a session from the store.
pub(crate) fn restore_exclusive(shards: &mut [Shard], at: usize, id: SessionId, filter: &str) {
    let (filter, member) = (Arc::from(filter), shards[at].sessions.session_ref(id));
    let owner = usize::from(shards[at].sessions.context.owner_of(&filter).0);
    if shards[owner].routing.exclusives.assign(&filter, member) {
        shards[at].sessions.get_mut(id).extras().exclusives.push(filter);
    }
}
