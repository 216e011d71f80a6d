//! Exclusive subscriptions: a filter with the prefix `$exclusive/` belongs to a single session. The
//! shard which owns the filter's name knows the session. A session of another shard claims the
//! filter by `ShardMessage::ClaimExclusive`, and the SUBACK waits for the answer. Other clients may
//! still subscribe to the plain filter.

use crate::ids::{SessionId, SessionRef, SubscriptionFlags};
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::memory::cost;
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::SubscribeOptions;
use std::sync::Arc;

/// Exclusive filters owned by this shard, and releases not yet reported to other owners.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveFilters {
    /// Sessions by exclusive filter, for the filters which this shard owns.
    held: HashMap<Arc<str>, SessionRef, FixedState>,
    /// Filters which sessions of this shard have released, until `report_released` informs the
    /// owners.
    pub(crate) released: Vec<(Arc<str>, SessionRef)>,
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

/// Result of `ShardRouting::claim_exclusive`: `Pending` waits for the answer of the filter's owner.
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
    pub(crate) fn assign(&mut self, filter: &Arc<str>, member: SessionRef) -> bool {
        *self.held.entry(filter.clone()).or_insert(member) == member
    }

    fn unassign(&mut self, filter: &str, member: SessionRef) {
        if self.held.get(filter) == Some(&member) {
            self.held.remove(filter);
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

    pub(crate) fn subscribe_claimed(
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
        self.start_retained_feed(id, known, is_new, *options, *subscription_id, sessions);
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
    pub(crate) fn report_released(&mut self, sessions: &SessionTable, out: &mut Outbox) {
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
