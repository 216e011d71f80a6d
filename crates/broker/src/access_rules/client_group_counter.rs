//! Client groups: groups of users with limits of their own, and the number of connections of each.
//!
//! Options of a group override options of the listener, which override the options of the broker. A
//! client in several groups has the options of the first group in the configuration.

use crate::ids::MonotonicMs;
use crate::leaky_bucket::LeakyBucket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Index of a group. Every listener has the same groups in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGroupId(u8);

impl ClientGroupId {
    /// Returns the id of the group at an index, `None` above 255.
    pub(crate) fn from_index(index: usize) -> Option<ClientGroupId> {
        u8::try_from(index).ok().map(ClientGroupId)
    }

    /// Returns the index in `BrokerOptions::client_groups`.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Counts the connections of a group and the connection rate, for all shards of the process.
#[derive(Clone, Debug, Default)]
pub struct ClientGroupCounter(Arc<ClientGroupCounts>);

#[derive(Debug, Default)]
struct ClientGroupCounts {
    present: AtomicU32,
    /// State of a [`LeakyBucket`].
    paid_ns: AtomicU64,
}

/// Counts a connection of a group as present until dropped.
#[derive(Debug)]
pub(crate) struct ClientGroupGuard(ClientGroupCounter);

impl ClientGroupGuard {
    /// Whether the guard counts a connection of this group.
    pub(crate) fn is_of(&self, group: &ClientGroupCounter) -> bool {
        self.0 == *group
    }
}

impl ClientGroupCounter {
    /// Counts a connection, unless the group already has `max` of them.
    pub(crate) fn admit(&self, max: u32) -> Option<ClientGroupGuard> {
        let one_more = |count: u32| (count < max).then_some(count + 1);
        self.0.present.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        Some(ClientGroupGuard(self.clone()))
    }

    /// Whether the rate allows one more connection now. If so, the connection is charged.
    pub(crate) fn admit_rate(&self, now: MonotonicMs, per_s: u32) -> bool {
        let one_more = |paid_ns| {
            let mut pace = LeakyBucket { paid_ns };
            pace.blocked_until(now, per_s).is_none().then(|| {
                pace.charge(now, 1, per_s);
                pace.paid_ns
            })
        };
        self.0.paid_ns.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }
}

impl PartialEq for ClientGroupCounter {
    fn eq(&self, other: &ClientGroupCounter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientGroupCounter {}

impl Drop for ClientGroupGuard {
    fn drop(&mut self) {
        self.0.0.present.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerId;
    use crate::options::BrokerOptions;
    use crate::options::client_groups::ClientGroup;

    #[test]
    fn a_class_counts_up_to_its_limit_and_who_goes_makes_room() {
        let present = ClientGroupCounter::default();
        let (one, two) = (present.admit(2), present.admit(2));
        assert!(one.is_some() && two.is_some() && present.admit(2).is_none());
        drop(one);
        assert!(present.admit(2).is_some());
    }

    #[test]
    fn the_more_particular_limit_wins() {
        let with = |inflight_max| BrokerOptions { inflight_max, ..BrokerOptions::default() };
        let class = |inflight_max| ClientGroup {
            name: "slow".into(),
            options: Arc::new(with(inflight_max)),
            present: ClientGroupCounter::default(),
        };
        let own = BrokerOptions { client_groups: vec![class(4)], ..with(3) };
        let listeners = vec![None, Some(Arc::new(own))];
        let all = BrokerOptions { client_groups: vec![class(2)], listeners, ..with(1) };
        let slow = all.client_group_of(ListenerId(0), None, &["fast".into(), "slow".into()]);
        let limit = |at, class| all.options_of_client(ListenerId(at), class).inflight_max;
        assert_eq!([limit(0, None), limit(0, slow), limit(1, None), limit(1, slow)], [1, 2, 3, 4]);
        assert_eq!(all.client_group_of(ListenerId(0), None, &["fast".into()]), None);
    }
}
