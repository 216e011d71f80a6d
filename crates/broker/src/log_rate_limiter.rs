//! Rate limit of the log lines of one kind. Withheld events are counted, and the next line contains
//! their number.

use crate::ids::MonotonicMs;

/// Period of a limit, in milliseconds.
pub(crate) const LOG_PERIOD_MS: u64 = 1_000;

/// Rate limiter of one kind of log line. Small, because every session with permissions has a
/// limiter.
#[derive(Clone, Copy, Debug)]
pub struct LogRateLimiter {
    /// End of the period in which `written` lines were written.
    until: MonotonicMs,
    /// Number of events since the last line.
    withheld: u32,
    written: u16,
    per_s: u16,
}

impl LogRateLimiter {
    pub const fn new(per_s: u16) -> LogRateLimiter {
        LogRateLimiter { until: MonotonicMs(0), withheld: 0, written: 0, per_s }
    }

    /// Counts events. Returns the number of events since the last line, including `events`, if a
    /// line may be written now.
    pub fn count(&mut self, events: u64, now: MonotonicMs) -> Option<u64> {
        let events = u64::from(self.withheld).saturating_add(events);
        if now >= self.until {
            (self.until, self.written) = (MonotonicMs(now.0 + LOG_PERIOD_MS), 0);
        }
        if self.written >= self.per_s {
            self.withheld = u32::try_from(events).unwrap_or(u32::MAX);
            return None;
        }
        self.written += 1;
        self.withheld = 0;
        Some(events)
    }

    /// Returns the number of events since the last line if it is not 0. The line counts as the
    /// first of a new period.
    pub fn flush(&mut self, now: MonotonicMs) -> Option<u64> {
        if self.withheld == 0 {
            return None;
        }
        (self.until, self.written) = (MonotonicMs(now.0 + LOG_PERIOD_MS), 1);
        Some(std::mem::take(&mut self.withheld).into())
    }

    /// Returns when the next line is allowed at the latest.
    pub fn next_line_at(&self) -> MonotonicMs {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_reported_a_few_times_a_second_and_counted() {
        let mut few = LogRateLimiter::new(20);
        let counts: Vec<_> = (0..100).filter_map(|at| few.count(1, MonotonicMs(at))).collect();
        assert_eq!(counts, [1; 20]);
        assert_eq!(few.count(1, MonotonicMs(1_000)), Some(81));
        assert_eq!(few.count(3, MonotonicMs(1_001)), Some(3));
        assert_eq!(few.flush(MonotonicMs(1_002)), None, "nothing is withheld");
    }

    #[test]
    fn a_flush_begins_a_new_second() {
        let mut seldom = LogRateLimiter::new(1);
        assert_eq!(seldom.count(2, MonotonicMs(500)), Some(2));
        assert_eq!(seldom.count(2, MonotonicMs(600)), None);
        assert_eq!(seldom.next_line_at(), MonotonicMs(1_500));
        assert_eq!(seldom.flush(MonotonicMs(1_400)), Some(2));
        assert_eq!(seldom.count(1, MonotonicMs(2_399)), None);
        assert_eq!(seldom.count(1, MonotonicMs(2_400)), Some(2));
    }

    #[test]
    fn a_number_of_events_above_32_bits_saturates() {
        let mut seldom = LogRateLimiter::new(1);
        assert_eq!(seldom.count(u64::MAX, MonotonicMs(0)), Some(u64::MAX));
        assert_eq!(seldom.count(u64::MAX, MonotonicMs(1)), None);
        assert_eq!(seldom.flush(MonotonicMs(2)), Some(u32::MAX.into()));
    }
}
