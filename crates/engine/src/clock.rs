//! What `Now` is on this machine.

use broker::Now;
use std::time::{Instant, SystemTime};

/// Tells shards the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_ms: u64,
}

impl Clock {
    /// From the time of day on, where times are to mean something to the next process, or from 0.
    pub(crate) fn starting(from_today: bool) -> Clock {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start_ms = if from_today { today.as_millis() as u64 } else { 0 };
        Clock { start: Instant::now(), start_ms }
    }

    pub(crate) fn now(self) -> Now {
        self.at(Instant::now())
    }

    pub(crate) fn at(self, moment: Instant) -> Now {
        Now(self.start_ms + (moment - self.start).as_millis() as u64)
    }
}
