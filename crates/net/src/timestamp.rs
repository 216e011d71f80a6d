//! A point in time, formatted in UTC for logs and users.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Time since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug)]
pub struct UnixTimestamp(pub Duration);

impl UnixTimestamp {
    pub fn now() -> UnixTimestamp {
        UnixTimestamp(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// Returns the beginning of a day of the Gregorian calendar, from 1970; `None` for a day that
    /// does not exist.
    pub fn of_day(year: u64, month: u64, day: u64) -> Option<UnixTimestamp> {
        let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?);
        let begin = Offset::UTC.to_timestamp(date.ok()?.at(0, 0, 0, 0)).ok()?;
        begin.as_second().try_into().ok().map(|seconds| UnixTimestamp(Duration::from_secs(seconds)))
    }

    /// Formats the time in UTC with seconds, for example `2026-11-21T10:00:00`.
    pub fn seconds(self) -> String {
        Offset::UTC.to_datetime(self.moment()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }

    /// Converts to `jiff`'s type, at most to the end of year 9999.
    fn moment(self) -> Timestamp {
        self.0.try_into().and_then(Timestamp::from_duration).unwrap_or(Timestamp::MAX)
    }
}

/// Formats the time in UTC with milliseconds, for example `2026-11-21T10:00:00.000Z`.
impl fmt::Display for UnixTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.moment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_dates() {
        let at = |ms| UnixTimestamp(Duration::from_millis(ms)).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(at(1_795_255_199_999), "2026-11-21T09:59:59.999Z");
        assert_eq!(at(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(UnixTimestamp(Duration::MAX).seconds(), "9999-12-30T22:00:00");
    }

    #[test]
    fn days_begin_where_their_dates_say() {
        for (year, month, day) in [(1970, 1, 1), (2000, 2, 29), (2026, 11, 21), (2100, 3, 1)] {
            let begins = UnixTimestamp::of_day(year, month, day).expect("it is after 1970");
            assert_eq!(begins.seconds(), format!("{year:04}-{month:02}-{day:02}T00:00:00"));
        }
        for (year, month, day) in [(1969, 12, 31), (2026, 2, 29), (2026, 13, 1), (10_000, 1, 1)] {
            assert!(UnixTimestamp::of_day(year, month, day).is_none(), "{year}-{month}-{day}");
        }
    }
}
