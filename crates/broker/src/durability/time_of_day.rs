//! The time of day, as an offset to `MonotonicMs`. Timers and lifetimes use `MonotonicMs`, which
//! continues in the store from one process to the next and is not moved by corrections of the
//! clock. The engine keeps the offset right; the time of day is used only in output.

use crate::durability::records::{self, kind};
use crate::interface::store_access::{RecordSpace, RestoreError, StoreReader};

/// Readings of all clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    pub now_ms: u64,
    /// Milliseconds since 1970.
    pub time_of_day_ms: u64,
    /// Milliseconds since the start of the host, including suspended time.
    pub uptime_ms: u64,
    /// Random id of the start of the host; zero if the host has none.
    pub host_start: [u8; 16],
}

/// Smallest change of the time of day that [`Shard::set_time_of_day`] reports, in milliseconds.
pub(crate) const STEP_MS: u64 = 500;
/// 2026-01-01, a lower bound for a plausible clock: hosts without a battery-backed clock start in
/// 1970 or at the date of the firmware. The bound need not be close to the present. A later bound,
/// as the date of the build or the newest time in the store, would detect more wrong clocks, but
/// after a clock that once ran ahead would reject the right time.
const PLAUSIBLE_FROM_MS: u64 = 1_767_225_600_000;
const RECORD_LEN: usize = 40;

impl ClockReading {
    /// Returns the value of `MonotonicMs` with which a process continues after this reading, stored
    /// by an earlier process; `current.now_ms` is ignored. Within one start of the host,
    /// `uptime_ms` gives the elapsed time. Across a restart only the time of day can: if
    /// implausible, or gone back, no time has elapsed, so stored data live longer and never
    /// shorter.
    pub fn resume(&self, current: &ClockReading) -> u64 {
        let is_same_start = self.host_start != [0; 16] && self.host_start == current.host_start;
        let passed_ms = match current.uptime_ms.checked_sub(self.uptime_ms) {
            Some(passed_ms) if is_same_start => passed_ms,
            _ if self.is_plausible() && current.is_plausible() => {
                current.time_of_day_ms.saturating_sub(self.time_of_day_ms)
            }
            _ => 0,
        };
        self.now_ms.saturating_add(passed_ms)
    }

    fn is_plausible(&self) -> bool {
        self.time_of_day_ms >= PLAUSIBLE_FROM_MS
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_LEN);
        for number in [self.now_ms, self.time_of_day_ms, self.uptime_ms] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.host_start);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<ClockReading> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let host_start = bytes.get(24..RECORD_LEN)?.try_into().ok()?;
        Some(ClockReading {
            now_ms: number(0)?,
            time_of_day_ms: number(8)?,
            uptime_ms: number(16)?,
            host_start,
        })
    }
}

/// Returns the clock readings that an earlier process wrote to the store; `None` if there are none
/// and the time of day is plausible. A store of an earlier version has no reading, only times of
/// day: if the present time is implausible, `MonotonicMs` continues from the newest stored time.
pub fn stored_clock(
    stored: &dyn StoreReader,
    current: &ClockReading,
) -> Result<Option<ClockReading>, RestoreError> {
    let value = stored.get(RecordSpace::Sessions, &[kind::CLOCK])?;
    if let Some(reading) = value.and_then(|value| ClockReading::decode(&value)) {
        return Ok(Some(reading));
    }
    if current.is_plausible() {
        return Ok(None);
    }
    let newest_ms = newest_time(stored)?;
    let reading = |now_ms| ClockReading { now_ms, ..ClockReading::default() };
    Ok((newest_ms > current.now_ms).then(|| reading(newest_ms)))
}

/// Returns the newest time at which a client went offline or a retained message was received.
fn newest_time(stored: &dyn StoreReader) -> Result<u64, RestoreError> {
    let mut newest_ms = 0;
    stored.scan(RecordSpace::Sessions, &[kind::SESSION], &[], &mut |_, value| {
        let away_at = records::read_session(value).and_then(|record| record.away_at);
        newest_ms = newest_ms.max(away_at.unwrap_or(0));
        true
    })?;
    stored.scan(RecordSpace::Retained, &[], &[], &mut |_, value| {
        let came_at = records::read_retained(value).map(|(_, message)| message.view().at().0);
        newest_ms = newest_ms.max(came_at.unwrap_or(0));
        true
    })?;
    Ok(newest_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::id_shifts::IdShifts;
    use crate::ids::{MonotonicMs, RecordNumber, RetainStamp};
    use crate::interface::store_access::StoreReadError;
    use crate::message::{IncomingPublish, Message};

    const NOON: u64 = PLAUSIBLE_FROM_MS + 43_200_000;
    const HOUR: u64 = 3_600_000;

    fn reading(now_ms: u64, time_of_day_ms: u64, uptime_ms: u64, host: u8) -> ClockReading {
        ClockReading { now_ms, time_of_day_ms, uptime_ms, host_start: [host; 16] }
    }

    fn resumed(kept: ClockReading, time_of_day_ms: u64, uptime_ms: u64, host: u8) -> u64 {
        kept.resume(&reading(7, time_of_day_ms, uptime_ms, host))
    }

    #[test]
    fn since_the_same_start_of_the_host_the_time_of_day_does_not_matter() {
        let kept = reading(100, 1_000, 50, 1);
        for time_of_day in [0, 1_000, NOON, u64::MAX] {
            assert_eq!(resumed(kept, time_of_day, 60_050, 1), 60_100, "{time_of_day}");
        }
    }

    #[test]
    fn over_a_start_of_the_host_plausible_times_of_day_tell_what_has_passed() {
        let kept = reading(NOON, NOON, 50, 1);
        assert_eq!(resumed(kept, NOON + HOUR, 10, 2), NOON + HOUR);
        // `MonotonicMs` began at another value.
        let kept = reading(500, NOON, 50, 1);
        assert_eq!(resumed(kept, NOON + HOUR, 10, 2), 500 + HOUR);
    }

    #[test]
    fn a_time_of_day_that_cannot_be_right_makes_nobody_older() {
        let from_1970 = reading(90_000, 90_000, 50, 1);
        assert_eq!(resumed(from_1970, NOON, 10, 2), 90_000);
        assert_eq!(resumed(reading(NOON, NOON, 50, 1), 90_000, 10, 2), NOON);
        assert_eq!(resumed(reading(NOON, NOON, 50, 1), NOON - HOUR, 10, 2), NOON, "it went back");
        // A host without an id of the start, and a host whose uptime belongs to another start.
        assert_eq!(resumed(reading(9, 9, 50, 0), NOON, 60, 0), 9);
        assert_eq!(resumed(reading(9, NOON, 50, 1), NOON + HOUR, 40, 1), 9 + HOUR);
    }

    /// A store of a version without a reading, with the times at which a client went offline and a
    /// retained message was received.
    #[derive(Debug)]
    struct OlderStore {
        away_at_ms: u64,
        came_at_ms: u64,
    }

    impl StoreReader for OlderStore {
        fn get(&self, _: RecordSpace, _: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
            Ok(None)
        }

        fn scan(
            &self,
            space: RecordSpace,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), StoreReadError> {
            if space == RecordSpace::Retained {
                let message =
                    Message::new(&IncomingPublish::new("t", b"1", MonotonicMs(self.came_at_ms)));
                let bytes = message.view();
                visit(b"t", &records::retained_value(RetainStamp::default(), bytes.as_bytes()));
                return Ok(());
            }
            let record = records::SessionRecord {
                number: RecordNumber(1),
                mark: 0,
                shifts: IdShifts::default(),
                unsent: 0,
                version: mqtt::ProtocolVersion::V5,
                expiry_s: 600,
                away_at: Some(self.away_at_ms),
                will_at: None,
                owner: None,
                will: None,
            };
            visit(&[kind::SESSION, b'a'], &records::session_value(&record, None));
            Ok(())
        }
    }

    #[test]
    fn a_store_without_a_reading_goes_on_from_its_newest_time_where_no_clock_is_right() {
        for (away_at_ms, came_at_ms) in [(NOON, NOON - HOUR), (NOON - HOUR, NOON)] {
            let older = OlderStore { away_at_ms, came_at_ms };
            let current = reading(90_000, 90_000, 10, 2);
            let kept = stored_clock(&older, &current).expect("it can be read");
            assert_eq!(kept.map(|kept| kept.resume(&current)), Some(NOON));
            let right = reading(NOON + HOUR, NOON + HOUR, 10, 2);
            assert_eq!(stored_clock(&older, &right), Ok(None), "the time of day goes on");
        }
        let current = reading(90_000, 90_000, 10, 2);
        let from_1970 = OlderStore { away_at_ms: 80_000, came_at_ms: 70_000 };
        assert_eq!(stored_clock(&from_1970, &current), Ok(None));
    }

    #[test]
    fn a_reading_comes_back_as_it_was() {
        let kept = reading(1, u64::MAX, 3, 4);
        assert_eq!(ClockReading::decode(&kept.encode()), Some(kept));
        assert_eq!(ClockReading::decode(&kept.encode()[1..]), None);
    }
}
