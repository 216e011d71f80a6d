//! A leaky bucket: a rate per second, with a burst of at most one second's worth. The state is one
//! number, the time at which all units taken so far are paid for.

use crate::ids::MonotonicMs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeakyBucket {
    pub(crate) paid_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;

impl LeakyBucket {
    /// Returns the time at which the next unit may be taken, or `None` for at once. `per_s` must
    /// not be 0.
    pub(crate) fn blocked_until(self, now: MonotonicMs, per_s: u32) -> Option<MonotonicMs> {
        let ready_ns = self.paid_ns + SECOND_NS / u64::from(per_s);
        let ready = ready_ns.saturating_sub(SECOND_NS).div_ceil(MS_NS);
        (ready > now.0).then_some(MonotonicMs(ready))
    }

    /// Takes `count` units without a check, even more than a second's worth: `blocked_until` makes
    /// later callers wait for the debt.
    pub(crate) fn charge(&mut self, now: MonotonicMs, count: u64, per_s: u32) {
        let cost = count.saturating_mul(SECOND_NS) / u64::from(per_s);
        self.paid_ns = self.paid_ns.max(now.0 * MS_NS).saturating_add(cost);
    }

    /// Whether the bucket is in its initial state: every unit taken so far is paid for.
    pub(crate) fn is_empty(self, now: MonotonicMs) -> bool {
        self.paid_ns <= now.0 * MS_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes units one by one at the time `now`. Returns their number.
    fn taken(pace: &mut LeakyBucket, now: u64, per_s: u32) -> usize {
        let mut taken = 0;
        while pace.blocked_until(MonotonicMs(now), per_s).is_none() {
            pace.charge(MonotonicMs(now), 1, per_s);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_seconds_worth_comes_at_once_and_then_it_goes_by_time() {
        for start in [0, 1_795_255_200_000] {
            let mut pace = LeakyBucket::default();
            assert_eq!(taken(&mut pace, start, 10), 10);
            assert_eq!(pace.blocked_until(MonotonicMs(start), 10), Some(MonotonicMs(start + 100)));
            assert_eq!(taken(&mut pace, start + 99, 10), 0);
            assert_eq!(taken(&mut pace, start + 100, 10), 1);
            assert_eq!(taken(&mut pace, start + 600, 10), 5);
            assert_eq!(taken(&mut pace, start + 60_000, 10), 10, "nothing is saved up");
            assert!(
                !pace.is_empty(MonotonicMs(start + 60_999))
                    && pace.is_empty(MonotonicMs(start + 61_000))
            );
        }
    }

    #[test]
    fn what_is_larger_than_a_second_is_taken_and_paid_for_afterwards() {
        let mut pace = LeakyBucket::default();
        assert_eq!(pace.blocked_until(MonotonicMs(0), 1000), None);
        pace.charge(MonotonicMs(0), 5000, 1000);
        assert_eq!(pace.blocked_until(MonotonicMs(0), 1000), Some(MonotonicMs(4001)));
    }
}
