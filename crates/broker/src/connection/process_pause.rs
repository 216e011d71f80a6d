//! Pauses of the process: times in which no shard ran, because the process was stopped or the host
//! slept. What clients wait for and what the broker waits for must not end because of them.

use crate::input::{MonotonicMs, SessionId};
use crate::shard::Shard;

/// The last time span in which no timer could fire and no socket could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessPause {
    /// The first timer that was late was due at this time or later.
    pub from: MonotonicMs,
    /// Every socket has been read by this time.
    pub until: MonotonicMs,
}

impl ProcessPause {
    /// When a wait ends that was to end at `due` and lasts `whole_ms` in all. A wait that the
    /// pause cut short lasts as long after the pause as the pause was, and never longer than it
    /// lasts in all: a peer that needs a round trip gets the time for it.
    pub fn extend(self, due: MonotonicMs, whole_ms: u32) -> MonotonicMs {
        let length_ms = self.until.0.saturating_sub(self.from.0);
        let extended = MonotonicMs(self.until.0 + length_ms.min(u64::from(whole_ms)));
        if due >= self.from && due < extended { extended } else { due }
    }
}

impl Shard {
    /// The process did not run for a while. Keep-alives, greetings and questions wait longer;
    /// what has a lifetime, as sessions and messages have, does not.
    pub fn note_pause(&mut self, pause: ProcessPause) {
        self.pause = pause;
    }

    pub fn last_pause(&self) -> ProcessPause {
        self.pause
    }

    /// The deadline of a question, as `ProcessPause::extend` has it.
    pub(crate) fn extend_authz_deadline(&self, deadline: MonotonicMs) -> MonotonicMs {
        self.pause.extend(deadline, self.options.verdict_timeout_ms)
    }

    /// When the timer of a connection without a session, or with one, really is due.
    pub(crate) fn extend_conn_deadline(
        &self,
        due: MonotonicMs,
        session: Option<SessionId>,
    ) -> MonotonicMs {
        match session {
            // Keep-alive is looked at apart from what else may end the session.
            Some(_) => due,
            None => {
                let options = &self.options;
                self.pause.extend(due, options.verdict_timeout_ms.max(options.connect_timeout_ms))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_a_pause_cut_short_goes_on_after_it() {
        let pause = ProcessPause { from: MonotonicMs(10_000), until: MonotonicMs(13_000) };
        // As long as the pause, ...
        assert_eq!(pause.extend(MonotonicMs(10_000), 60_000), MonotonicMs(16_000));
        assert_eq!(pause.extend(MonotonicMs(12_999), 60_000), MonotonicMs(16_000));
        assert_eq!(pause.extend(MonotonicMs(15_999), 60_000), MonotonicMs(16_000));
        // ... or as long as the wait is in all.
        assert_eq!(pause.extend(MonotonicMs(12_000), 1_500), MonotonicMs(14_500));
        // It is extended once.
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
