//! Time of the load threads: nanoseconds since the Unix epoch, counted by the monotonic clock, so
//! that the time never steps and still agrees between processes of one host.

use std::time::{Duration, Instant, SystemTime};

/// The clock of a run: the wall clock at the start, plus `Instant`s since then. A process reads the
/// wall clock once, and copies agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    began: Instant,
    pub(crate) began_ns: u64,
}

impl RunClock {
    /// Starts the clock. `shift_ns` is added to this host's time, to match the clock of another
    /// host.
    pub(crate) fn start(shift_ns: i64) -> RunClock {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began_ns = wall.map_or(0, |wall| wall.as_nanos() as u64);
        RunClock { began: Instant::now(), began_ns: began_ns.saturating_add_signed(shift_ns) }
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        let elapsed = self.began.elapsed();
        self.began_ns + elapsed.as_secs() * SECOND_NS + u64::from(elapsed.subsec_nanos())
    }

    pub(crate) fn until(&self, at_ns: u64) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.now_ns()))
    }
}

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Converts seconds to nanoseconds; a negative number becomes 0.
pub(crate) fn seconds_ns(seconds: f64) -> u64 {
    (seconds.max(0.0) * SECOND_NS as f64) as u64
}
