//! The source of `MonotonicMs` on this machine.
//!
//! | clock | measures |
//! |---|---|
//! | `CLOCK_BOOTTIME` | `MonotonicMs`: waits and lifetimes; also counts while the host sleeps |
//! | `CLOCK_MONOTONIC` | `Instant`: loads, timers of QUIC, timeouts of pollers |
//! | `CLOCK_REALTIME` | the time of day, read where it is written |
//!
//! No correction of the time of day changes the first two.

use broker::{ClockReading, MonotonicMs};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Source of [`MonotonicMs`] for all shards. Clones share one `ClockState`.
#[derive(Clone, Debug)]
pub(crate) struct SystemClock(Arc<ClockState>);

#[derive(Debug)]
struct ClockState {
    start: Instant,
    start_ms: AtomicU64,
    /// Time that the host had slept before the start of this clock.
    asleep_at_start: Duration,
    /// Time slept by the host since then, in milliseconds.
    asleep_ms: AtomicU64,
    /// Time of day minus `MonotonicMs`, in milliseconds; negative if the time of day is behind.
    time_of_day_offset_ms: AtomicI64,
    /// Last reading of `CLOCK_BOOTTIME` and the time of day, in milliseconds of `Instant` since
    /// `start`.
    read_at_ms: AtomicU64,
    /// `MonotonicMs` at the last clock record of a shard in the store.
    kept_at_ms: AtomicU64,
}

/// Shortest interval in milliseconds between two readings of the sleep and the time of day.
const READ_EVERY_MS: u64 = 100;
/// Interval in milliseconds of clock records while a shard has other records to commit.
const KEPT_EVERY_MS: u64 = 60_000;
/// Interval in milliseconds of clock records without other records. Each costs a page of the log,
/// so the interval is a quarter of an hour.
const KEPT_ALONE_EVERY_MS: u64 = 900_000;

impl SystemClock {
    /// Starts at the time of day; [`SystemClock::resume`] may move the clock before any shard reads
    /// it.
    pub(crate) fn starting() -> SystemClock {
        let start_ms = time_of_day_ms();
        SystemClock(Arc::new(ClockState {
            start: Instant::now(),
            start_ms: AtomicU64::new(start_ms),
            asleep_at_start: host_sleep_time(),
            asleep_ms: AtomicU64::new(0),
            time_of_day_offset_ms: AtomicI64::new(0),
            read_at_ms: AtomicU64::new(0),
            kept_at_ms: AtomicU64::new(0),
        }))
    }

    /// Continues the clock of an earlier process from its last record `kept`. Must run before any
    /// shard has read the time.
    pub(crate) fn resume(&self, kept: &ClockReading) {
        let current = self.reading();
        let start_ms = self.0.start_ms.load(Relaxed);
        let ahead_ms = kept.resume(&current).wrapping_sub(current.now_ms);
        self.0.start_ms.store(start_ms.wrapping_add(ahead_ms), Relaxed);
        self.read_time_of_day(Instant::now());
    }

    /// Claims the writing of a clock record: only one shard gets true per interval. If the next
    /// process cannot trust the time of day, its `MonotonicMs` continues from the last record.
    pub(crate) fn claim_clock_record(&self, now: MonotonicMs, has_records: bool) -> bool {
        let kept_at_ms = self.0.kept_at_ms.load(Relaxed);
        let every_ms = if has_records { KEPT_EVERY_MS } else { KEPT_ALONE_EVERY_MS };
        let is_due = now.0 >= kept_at_ms.saturating_add(every_ms);
        is_due && self.0.kept_at_ms.compare_exchange(kept_at_ms, now.0, Relaxed, Relaxed).is_ok()
    }

    /// Reads all clocks at once, for a record in the store.
    pub(crate) fn reading(&self) -> ClockReading {
        ClockReading {
            now_ms: self.now().0,
            time_of_day_ms: time_of_day_ms(),
            uptime_ms: uptime().as_millis() as u64,
            host_start: boot_id(),
        }
    }

    pub(crate) fn now(&self) -> MonotonicMs {
        self.at(Instant::now())
    }

    /// Nanoseconds since the first call in this process, for the timing of rules.
    pub(crate) fn monotonic_ns() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    pub(crate) fn at(&self, moment: Instant) -> MonotonicMs {
        let clock = &*self.0;
        let awake_ms = (moment - clock.start).as_millis() as u64;
        let start_ms = clock.start_ms.load(Relaxed);
        MonotonicMs(start_ms.wrapping_add(awake_ms + clock.asleep_ms.load(Relaxed)))
    }

    pub(crate) fn time_of_day_offset_ms(&self) -> i64 {
        self.0.time_of_day_offset_ms.load(Relaxed)
    }

    /// Reads the sleep of the host and the time of day, at most once per [`READ_EVERY_MS`].
    pub(crate) fn read_other_clocks(&self, moment: Instant) {
        let clock = &*self.0;
        let awake_ms = (moment - clock.start).as_millis() as u64;
        let read_at_ms = clock.read_at_ms.load(Relaxed);
        if awake_ms < read_at_ms + READ_EVERY_MS {
            return;
        }
        clock.read_at_ms.store(awake_ms, Relaxed);
        let asleep = host_sleep_time().saturating_sub(clock.asleep_at_start);
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

/// Returns the sleep of the host since its start: `CLOCK_BOOTTIME` minus `CLOCK_MONOTONIC`. The two
/// are read one after another, so differences below a millisecond carry no meaning. Zero on systems
/// other than Linux.
fn host_sleep_time() -> Duration {
    #[cfg(target_os = "linux")]
    let awake = read_clock(rustix::time::ClockId::Monotonic);
    #[cfg(not(target_os = "linux"))]
    let awake = uptime();
    uptime().saturating_sub(awake)
}

/// Returns the time since the host started, with its sleep on Linux and without elsewhere.
fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    return read_clock(rustix::time::ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    read_clock(rustix::time::ClockId::Monotonic)
}

fn read_clock(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the random id of this boot of the host [random(4)], or zero where `/proc` has none.
fn boot_id() -> [u8; 16] {
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
        let clock = SystemClock::starting();
        let moment = Instant::now();
        let before = clock.at(moment);
        clock.0.asleep_ms.store(3_600_000, Relaxed);
        assert_eq!(clock.at(moment).0 - before.0, 3_600_000);
    }

    #[test]
    fn a_clock_goes_on_where_an_earlier_one_was() {
        let clock = SystemClock::starting();
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
        let clock = SystemClock::starting();
        assert!(clock.claim_clock_record(MonotonicMs(10_000_000), true), "none was kept yet");
        let later = |ms: u64| MonotonicMs(10_000_000 + ms);
        assert!(!clock.claim_clock_record(later(59_999), true));
        assert!(!clock.claim_clock_record(later(60_000), false));
        assert!(clock.claim_clock_record(later(60_000), true));
        assert!(!clock.claim_clock_record(later(60_000), true), "another shard has it");
        assert!(!clock.claim_clock_record(later(959_999), false));
        assert!(clock.claim_clock_record(later(960_000), false));
    }

    #[test]
    fn the_time_never_goes_back_when_the_other_clocks_are_read() {
        let clock = SystemClock::starting();
        clock.0.asleep_ms.store(50, Relaxed);
        let moment = Instant::now() + Duration::from_secs(1);
        let before = clock.at(moment);
        clock.read_other_clocks(moment);
        assert!(clock.at(moment) >= before);
    }
}
