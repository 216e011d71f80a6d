//! What `Now` is on this machine.
//!
//! | clock | measures |
//! |---|---|
//! | `CLOCK_BOOTTIME` | `Now`: waits and lifetimes; goes on while the host sleeps |
//! | `CLOCK_MONOTONIC` | `Instant`: loads, QUIC's timers, what a poller waits for |
//! | `CLOCK_REALTIME` | the time of day, read where it is written |
//!
//! No correction of the time of day moves the first two.

use broker::Now;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Tells shards the time. All clones are one clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<ClockState>);

#[derive(Debug)]
struct ClockState {
    start: Instant,
    start_ms: u64,
    /// What the host had slept by then, in all.
    asleep_at_start: Duration,
    /// What it has slept since, in milliseconds.
    asleep_ms: AtomicU64,
    /// The other clocks were read last at this time after the start.
    read_at_ms: AtomicU64,
}

/// The other clocks are read this often, where anything happens.
const READ_EVERY_MS: u64 = 100;

impl Clock {
    /// From the time of day on: times mean something to rules, and to the next process.
    pub(crate) fn starting() -> Clock {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start = Instant::now();
        Clock(Arc::new(ClockState {
            start,
            start_ms: today.as_millis() as u64,
            asleep_at_start: slept(),
            asleep_ms: AtomicU64::new(0),
            read_at_ms: AtomicU64::new(0),
        }))
    }

    pub(crate) fn now(&self) -> Now {
        self.at(Instant::now())
    }

    /// Nanoseconds since somebody asked first.
    pub(crate) fn ns() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    pub(crate) fn at(&self, moment: Instant) -> Now {
        let clock = &*self.0;
        let awake_ms = (moment - clock.start).as_millis() as u64;
        Now(clock.start_ms + awake_ms + clock.asleep_ms.load(Relaxed))
    }

    /// Reads the other clocks, if it is time to.
    pub(crate) fn read_others(&self, moment: Instant) {
        let clock = &*self.0;
        let awake_ms = (moment - clock.start).as_millis() as u64;
        let read_at_ms = clock.read_at_ms.load(Relaxed);
        if awake_ms < read_at_ms + READ_EVERY_MS {
            return;
        }
        clock.read_at_ms.store(awake_ms, Relaxed);
        let asleep = slept().saturating_sub(clock.asleep_at_start);
        clock.asleep_ms.fetch_max(asleep.as_millis() as u64, Relaxed);
    }
}

/// How long the host has slept since it started: one clock counts that, the other does not. The
/// two are read one after the other, so what is below a millisecond means nothing.
#[cfg(target_os = "linux")]
fn slept() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let duration = |id| {
        let time = clock_gettime(id);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let awake = duration(ClockId::Monotonic);
    duration(ClockId::Boottime).saturating_sub(awake)
}

#[cfg(not(target_os = "linux"))]
fn slept() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_the_host_slept_counts() {
        let clock = Clock::starting();
        let moment = Instant::now();
        let before = clock.at(moment);
        clock.0.asleep_ms.store(3_600_000, Relaxed);
        assert_eq!(clock.at(moment).0 - before.0, 3_600_000);
    }

    #[test]
    fn the_time_never_goes_back_when_the_other_clocks_are_read() {
        let clock = Clock::starting();
        clock.0.asleep_ms.store(50, Relaxed);
        let moment = Instant::now() + Duration::from_secs(1);
        let before = clock.at(moment);
        clock.read_others(moment);
        assert!(clock.at(moment) >= before);
    }
}
