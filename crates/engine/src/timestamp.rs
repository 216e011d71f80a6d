//! A moment as people and logs write it, in UTC.

use std::fmt;
use std::time::{Duration, SystemTime};

/// Since 1970.
#[derive(Clone, Copy, Debug)]
pub struct UnixTimestamp(pub Duration);

impl UnixTimestamp {
    pub fn now() -> UnixTimestamp {
        UnixTimestamp(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// When a day of the Gregorian calendar begins, from 1970 on.
    pub fn of_day(year: u64, month: u64, day: u64) -> Option<UnixTimestamp> {
        // In years that begin in March, as below.
        let (year, march_month) = (year.checked_sub(u64::from(month <= 2))?, (month + 9) % 12);
        let leap_days = year / 4 - year / 100 + year / 400;
        let days = year * 365 + leap_days + (153 * march_month + 2) / 5 + day.checked_sub(1)?;
        Some(UnixTimestamp(Duration::from_secs(days.checked_sub(719_468)? * 86_400)))
    }

    /// `2026-11-21T10:00:00`
    pub fn seconds(self) -> String {
        let seconds = self.0.as_secs();
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

/// `2026-11-21T10:00:00.000Z`
impl fmt::Display for UnixTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}Z", self.seconds(), self.0.subsec_millis())
    }
}

/// The day of the Gregorian calendar, counted in years that begin in March, so that the leap day
/// is the last of its year.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
    }

    #[test]
    fn days_begin_where_their_dates_say() {
        for (year, month, day) in [(1970, 1, 1), (2000, 2, 29), (2026, 11, 21), (2100, 3, 1)] {
            let begins = UnixTimestamp::of_day(year, month, day).expect("it is after 1970");
            assert_eq!(begins.seconds(), format!("{year:04}-{month:02}-{day:02}T00:00:00"));
        }
        assert!(UnixTimestamp::of_day(1969, 12, 31).is_none());
    }
}
