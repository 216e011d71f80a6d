//! What `Now` is on this machine.
//!
//! | clock | measures |
//! |---|---|
//! | `CLOCK_BOOTTIME` | `Now`: waits and lifetimes; goes on while the host sleeps |
//! | `CLOCK_MONOTONIC` | `Instant`: loads, QUIC's timers, what a poller waits for |
//! | `CLOCK_REALTIME` | the time of day, read where it is written |
//!
//! No correction of the time of day moves the first two.

use broker::{ClockReading, Now};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Tells shards the time. All clones are one clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<ClockState>);

#[derive(Debug)]
struct ClockState {
    start: Instant,
    start_ms: AtomicU64,
    /// What the host had slept by then, in all.
    asleep_at_start: Duration,
    /// What it has slept since, in milliseconds.
    asleep_ms: AtomicU64,
    /// The time of day less `Now`.
    time_of_day_offset_ms: AtomicI64,
    /// The other clocks were read last at this time after the start.
    read_at_ms: AtomicU64,
    /// `Now` when a shard last kept a reading in the store.
    kept_at_ms: AtomicU64,
}

/// The other clocks are read this often, where anything happens.
const READ_EVERY_MS: u64 = 100;
/// The store gets a reading this often together with something else, ...
const KEPT_EVERY_MS: u64 = 60_000;
/// ... and this often on its own: four times an hour, with each time one page of the log.
const KEPT_ALONE_EVERY_MS: u64 = 900_000;

impl Clock {
    /// From the time of day on, until `resume`.
    pub(crate) fn starting() -> Clock {
        let start_ms = time_of_day_ms();
        Clock(Arc::new(ClockState {
            start: Instant::now(),
            start_ms: AtomicU64::new(start_ms),
            asleep_at_start: slept(),
            asleep_ms: AtomicU64::new(0),
            time_of_day_offset_ms: AtomicI64::new(0),
            read_at_ms: AtomicU64::new(0),
            kept_at_ms: AtomicU64::new(0),
        }))
    }

    /// Goes on where the clock of an earlier process was, before any shard has the time.
    pub(crate) fn resume(&self, kept: &ClockReading) {
        let current = self.reading();
        let start_ms = self.0.start_ms.load(Relaxed);
        let ahead_ms = kept.resume(&current).wrapping_sub(current.now_ms);
        self.0.start_ms.store(start_ms.wrapping_add(ahead_ms), Relaxed);
        self.read_time_of_day(Instant::now());
    }

    /// Whether the caller is to keep a reading in the store, and nobody else is. If the next
    /// process cannot trust the time of day, `Now` goes on from the last reading.
    pub(crate) fn claim_record(&self, now: Now, has_records: bool) -> bool {
        let kept_at_ms = self.0.kept_at_ms.load(Relaxed);
        let every_ms = if has_records { KEPT_EVERY_MS } else { KEPT_ALONE_EVERY_MS };
        let is_due = now.0 >= kept_at_ms.saturating_add(every_ms);
        is_due && self.0.kept_at_ms.compare_exchange(kept_at_ms, now.0, Relaxed, Relaxed).is_ok()
    }

    /// What all clocks say.
    pub(crate) fn reading(&self) -> ClockReading {
        ClockReading {
            now_ms: self.now().0,
            time_of_day_ms: time_of_day_ms(),
            uptime_ms: uptime().as_millis() as u64,
            host_start: host_start(),
        }
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
        let start_ms = clock.start_ms.load(Relaxed);
        Now(start_ms.wrapping_add(awake_ms + clock.asleep_ms.load(Relaxed)))
    }

    pub(crate) fn time_of_day_offset_ms(&self) -> i64 {
        self.0.time_of_day_offset_ms.load(Relaxed)
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
        self.read_time_of_day(moment);
    }

    fn read_time_of_day(&self, moment: Instant) {
        let offset_ms = time_of_day_ms().wrapping_sub(self.at(moment).0) as i64;
        self.0.time_of_day_offset_ms.store(offset_ms, Relaxed);
    }
}

fn time_of_day_ms() -> u64 {
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    today.as_millis() as u64
}

/// How long the host has slept since it started: one clock counts that, the other does not. The
/// two are read one after the other, so what is below a millisecond means nothing.
fn slept() -> Duration {
    #[cfg(target_os = "linux")]
    let awake = read(rustix::time::ClockId::Monotonic);
    #[cfg(not(target_os = "linux"))]
    let awake = uptime();
    uptime().saturating_sub(awake)
}

/// How long the host has run, its sleep included where the system counts that.
fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    return read(rustix::time::ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    read(rustix::time::ClockId::Monotonic)
}

fn read(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What Linux draws whenever it starts: random(4). Zero on other systems.
fn host_start() -> [u8; 16] {
    static DRAWN: OnceLock<[u8; 16]> = OnceLock::new();
    *DRAWN.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits = text.trim().replace('-', "");
        let number = u128::from_str_radix(&digits, 16).unwrap_or_default();
        number.to_be_bytes()
    })
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
    fn a_clock_goes_on_where_an_earlier_one_was() {
        let clock = Clock::starting();
        let kept = ClockReading { now_ms: 5_000, ..clock.reading() };
        clock.resume(&kept);
        let now = clock.now().0;
        assert!((5_000..60_000).contains(&now), "{now}");
        let today = now as i64 + clock.time_of_day_offset_ms();
        assert!(time_of_day_ms() as i64 - today < 60_000, "the time of day is as it was");
        if cfg!(target_os = "linux") {
            assert_ne!(clock.reading().host_start, [0; 16]);
        }
    }

    #[test]
    fn a_reading_is_kept_once_a_minute_with_other_records_and_seldom_alone() {
        let clock = Clock::starting();
        assert!(clock.claim_record(Now(10_000_000), true), "none was kept yet");
        let later = |ms: u64| Now(10_000_000 + ms);
        assert!(!clock.claim_record(later(59_999), true));
        assert!(!clock.claim_record(later(60_000), false));
        assert!(clock.claim_record(later(60_000), true));
        assert!(!clock.claim_record(later(60_000), true), "another shard has it");
        assert!(!clock.claim_record(later(959_999), false));
        assert!(clock.claim_record(later(960_000), false));
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
