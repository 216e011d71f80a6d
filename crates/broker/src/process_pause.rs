//! Pauses of the process: times in which no shard ran, because the process was stopped or the host
//! was suspended. Timeouts for clients and for backends must not expire because of a pause.

use crate::ids::MonotonicMs;

/// The last time span in which no timer could fire and no socket could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessPause {
    /// Earliest due time among the timers that fired late.
    pub from: MonotonicMs,
    /// Time by which every socket has been read.
    pub until: MonotonicMs,
}

impl ProcessPause {
    /// Returns the deadline of a wait of `whole_ms` in all that was due at `due`. A wait that ends
    /// within the pause or its extension is extended to the end of the pause plus the length of the
    /// pause, at most `whole_ms`: a peer needs time for a round trip.
    pub fn extend(self, due: MonotonicMs, whole_ms: u32) -> MonotonicMs {
        let length_ms = self.until.0.saturating_sub(self.from.0);
        let extended = MonotonicMs(self.until.0 + length_ms.min(u64::from(whole_ms)));
        if due >= self.from && due < extended { extended } else { due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_a_pause_cut_short_goes_on_after_it() {
        let pause = ProcessPause { from: MonotonicMs(10_000), until: MonotonicMs(13_000) };
        // Extended by the length of the pause, ...
        assert_eq!(pause.extend(MonotonicMs(10_000), 60_000), MonotonicMs(16_000));
        assert_eq!(pause.extend(MonotonicMs(12_999), 60_000), MonotonicMs(16_000));
        assert_eq!(pause.extend(MonotonicMs(15_999), 60_000), MonotonicMs(16_000));
        // ... or by the length of the whole wait.
        assert_eq!(pause.extend(MonotonicMs(12_000), 1_500), MonotonicMs(14_500));
        // A second call extends no further.
        assert_eq!(
            pause.extend(pause.extend(MonotonicMs(12_000), 1_500), 1_500),
            MonotonicMs(14_500)
        );
    }

    #[test]
    fn a_wait_that_ends_before_or_long_after_a_pause_is_as_it_was() {
        let pause = ProcessPause { from: MonotonicMs(10_000), until: MonotonicMs(13_000) };
        assert_eq!(pause.extend(MonotonicMs(9_999), 60_000), MonotonicMs(9_999));
        assert_eq!(pause.extend(MonotonicMs(16_001), 60_000), MonotonicMs(16_001));
        for due in [0, 1, u64::MAX] {
            assert_eq!(ProcessPause::default().extend(MonotonicMs(due), 60_000), MonotonicMs(due));
        }
    }
}
