//! The subscriptions of one session, found by filter: a list for up to `LOOKED_THROUGH_MAX`
//! entries, and a map in addition above that number.

use crate::ids::FilterId;
use crate::session::session_table::{Session, SessionTable};
use hashbrown::HashMap;

/// A subscription of a session. `place` is the index of the subscriber in the filter's list; the
/// subscriber has the index of this entry, so removal needs no search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    pub(crate) filter: FilterId,
    pub(crate) place: u32,
}

/// Number of subscriptions above which lookups use the map `SessionExtras::by_filter`.
const LOOKED_THROUGH_MAX: usize = 16;

impl Session {
    pub(crate) fn subscription(&self, filter: FilterId) -> Option<u32> {
        if self.subscriptions.len() > LOOKED_THROUGH_MAX {
            return self.extras.as_ref()?.by_filter.get(&filter.0).copied();
        }
        let at = self.subscriptions.iter().position(|own| own.filter == filter)?;
        Some(at as u32)
    }

    pub(crate) fn add_subscription(&mut self, subscription: Subscription) {
        self.subscriptions.push(subscription);
        let len = self.subscriptions.len();
        if len == LOOKED_THROUGH_MAX + 1 {
            let all = self.subscriptions.clone();
            let all = all.iter().enumerate().map(|(at, own)| (own.filter.0, at as u32));
            self.extras().by_filter = all.collect();
        } else if len > LOOKED_THROUGH_MAX {
            self.extras().by_filter.insert(subscription.filter.0, len as u32 - 1);
        }
    }

    /// Removes an entry. Returns the last entry, which moves into the free place, unless the
    /// removed entry was the last.
    pub(crate) fn take_subscription(&mut self, at: u32) -> Option<Subscription> {
        let gone = self.subscriptions.swap_remove(at as usize);
        let moved = self.subscriptions.get(at as usize).copied();
        if self.subscriptions.len() * 4 < self.subscriptions.capacity() {
            self.subscriptions.shrink_to_fit();
        }
        if self.subscriptions.len() >= LOOKED_THROUGH_MAX {
            let len = self.subscriptions.len();
            let by_filter = &mut self.extras().by_filter;
            by_filter.remove(&gone.filter.0);
            if let Some(moved) = moved {
                by_filter.insert(moved.filter.0, at);
            }
            if len == LOOKED_THROUGH_MAX {
                *by_filter = HashMap::default();
            } else if len * 4 < by_filter.capacity() {
                by_filter.shrink_to_fit();
            }
        }
        moved
    }
}

impl SessionTable {
    pub(crate) fn keep_ids(&mut self, list: &[u32]) -> u32 {
        match list {
            [] => packed_ids::NONE,
            [one] => *one,
            many => self.id_lists.insert(many.into()) | packed_ids::LIST,
        }
    }

    #[inline]
    pub(crate) fn release_ids(&mut self, packed: u32) {
        if packed & packed_ids::LIST != 0 {
            self.id_lists.remove(packed & !packed_ids::LIST);
        }
    }

    pub(crate) fn ids_of(&self, packed: u32) -> SubscriptionIdList {
        if packed & packed_ids::LIST != 0 {
            return SubscriptionIdList::Many(self.id_lists[packed & !packed_ids::LIST].clone());
        }
        if packed == packed_ids::NONE {
            SubscriptionIdList::None
        } else {
            SubscriptionIdList::One([packed])
        }
    }
}

/// Subscription Identifiers of a delivery, unpacked. Two or more need an allocation.
pub(crate) enum SubscriptionIdList {
    None,
    One([u32; 1]),
    Many(Box<[u32]>),
}

impl SubscriptionIdList {
    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            SubscriptionIdList::None => &[],
            SubscriptionIdList::One(one) => one,
            SubscriptionIdList::Many(many) => many,
        }
    }
}

/// Subscription Identifiers of one delivery, packed in a `u32`: none, one, or the index of a list.
pub(crate) mod packed_ids {
    pub(crate) const NONE: u32 = 0;
    /// Marks the index of a list. Subscription Identifiers end at 268,435,455, so the bit is free.
    pub(crate) const LIST: u32 = 1 << 31;
}
