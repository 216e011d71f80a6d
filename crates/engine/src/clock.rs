//! What `Now` is on this machine.

use broker::Now;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

/// Tells shards the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_ms: u64,
}

impl Clock {
    /// From the time of day on: times mean something to rules, and to the next process.
    pub(crate) fn starting() -> Clock {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), start_ms: today.as_millis() as u64 }
    }

    pub(crate) fn now(self) -> Now {
        self.at(Instant::now())
    }

    /// Nanoseconds since somebody asked first.
    pub(crate) fn ns() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    pub(crate) fn at(self, moment: Instant) -> Now {
        Now(self.start_ms + (moment - self.start).as_millis() as u64)
    }
}
