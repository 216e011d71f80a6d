//! The Gregorian calendar: writes and reads moments in a format like that of `strftime`.

use jiff::ToSpan;
use jiff::civil::{Date, date};
use std::fmt::Write as _;

/// A moment relative to 1970: whole seconds, and the nanoseconds after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochTime {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// Units of a timestamp, with the number of units in a second.
pub(super) const UNITS: &[(&str, i64)] = &[
    ("second", 1),
    ("millisecond", 1_000),
    ("microsecond", 1_000_000),
    ("nanosecond", 1_000_000_000),
];

const DAY: i64 = 86_400;
const EPOCH: Date = date(1970, 1, 1);
/// First and last second of the years 0 to 9999, the range of four digits.
const FIRST: i64 = -719_528 * DAY;
const LAST: i64 = 2_932_897 * DAY - 1;

impl EpochTime {
    pub(super) fn of(count: i64, per_second: i64) -> Option<EpochTime> {
        let nanos = count.rem_euclid(per_second) * (1_000_000_000 / per_second);
        Some(EpochTime { seconds: count.div_euclid(per_second), nanos: u32::try_from(nanos).ok()? })
    }

    pub(super) fn count(self, per_second: i64) -> Option<i64> {
        let part = i64::from(self.nanos) / (1_000_000_000 / per_second);
        self.seconds.checked_mul(per_second)?.checked_add(part)
    }
}

/// Parses an offset from UTC into seconds: `Z`, `+08:00`, `-0530`, or `+08:00:30`.
pub(super) fn offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let rest = &text[1..];
    let mut parts = rest.split(':');
    let (hours, minutes, seconds) = match (parts.next()?, parts.next(), parts.next()) {
        (hours, Some(minutes), seconds) => (hours, minutes, seconds.unwrap_or("0")),
        (all, None, _) => {
            (all.get(..2)?, all.get(2..4)?, all.get(4..).filter(|s| !s.is_empty()).unwrap_or("0"))
        }
    };
    let part = |digits: &str, below: i64| {
        let of = Some(digits).filter(|digits| matches!(digits.len(), 1 | 2)).and_then(number);
        of.filter(|of| *of < below)
    };
    let (hours, minutes, seconds) = (part(hours, 24)?, part(minutes, 60)?, part(seconds, 60)?);
    parts.next().is_none().then_some(sign * (hours * 3600 + minutes * 60 + seconds))
}

fn number(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Writes a moment in local time, `offset` seconds east of UTC. `None` for years outside of four
/// digits. An unknown letter after `%` is copied.
pub(super) fn write(moment: EpochTime, offset: i64, format: &str) -> Option<String> {
    let local = moment.seconds.checked_add(offset).filter(|s| (FIRST..=LAST).contains(s))?;
    let (days, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let date = EPOCH.checked_add(i32::try_from(days).ok()?.days()).ok()?;
    let mut out = String::with_capacity(format.len() + 16);
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let Some(part) = PARTS.iter().find(|(name, _)| after.starts_with(name)) else {
            out.push('%');
            rest = after;
            continue;
        };
        rest = &after[part.0.len()..];
        let _ = match part.1 {
            DatePart::Year => write!(out, "{:04}", date.year()),
            DatePart::Month => write!(out, "{:02}", date.month()),
            DatePart::Day => write!(out, "{:02}", date.day()),
            DatePart::Hour => write!(out, "{:02}", second / 3600),
            DatePart::Minute => write!(out, "{:02}", second / 60 % 60),
            DatePart::Second => write!(out, "{:02}", second % 60),
            DatePart::Fraction(digits) => {
                let part = moment.nanos / 10u32.pow(9 - digits);
                write!(out, "{part:0width$}", width = digits as usize)
            }
            DatePart::Offset(colons) => {
                write_offset(offset, colons, &mut out);
                Ok(())
            }
            DatePart::Percent => write!(out, "%"),
        };
    }
    out.push_str(rest);
    Some(out)
}

fn write_offset(offset: i64, colons: usize, out: &mut String) {
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset.abs() / 3600, offset.abs() / 60 % 60);
    let _ = match colons {
        0 => write!(out, "{sign}{hours:02}{minutes:02}"),
        1 => write!(out, "{sign}{hours:02}:{minutes:02}"),
        _ => write!(out, "{sign}{hours:02}:{minutes:02}:{:02}", offset.abs() % 60),
    };
}

/// Reads a moment in a format; `offset` counts if the text has none. Only the directives are
/// compared: text between directives may be anything of the same length. The text may end before
/// the format, or continue behind, if year, month and day are complete.
pub(super) fn read(text: &str, offset: i64, format: &str) -> Option<EpochTime> {
    read_between(text, offset, format, |text, between| {
        Some(text.char_indices().nth(between.chars().count()).map_or("", |(at, _)| &text[at..]))
    })
}

fn read_between(
    text: &str,
    offset: i64,
    format: &str,
    skip: for<'t> fn(&'t str, &str) -> Option<&'t str>,
) -> Option<EpochTime> {
    let mut fields = DateFields { offset, ..DateFields::default() };
    let (mut text, mut rest) = (text, format);
    while let Some(at) = rest.find('%') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let part = PARTS.iter().find(|(name, _)| after.starts_with(name));
        // An unknown letter counts as text between the directives.
        let (before, behind) = match part {
            Some((name, _)) => (before, &after[name.len()..]),
            None => (&rest[..=at], after),
        };
        text = skip(text, before)?;
        rest = behind;
        if text.is_empty() {
            break;
        }
        if let Some((_, part)) = part {
            text = fields.read(*part, text)?;
        }
    }
    fields.moment()
}

/// Reads `2026-11-22T10:00:00.123+08:00`; the fraction may have any number of digits or be missing,
/// and a space may replace the T.
pub(super) fn read_rfc3339(text: &str) -> Option<EpochTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let (clock, behind) = (time.get(..8)?, time.get(8..)?);
    let (nanos, zone) = match behind.strip_prefix('.') {
        Some(fraction) => {
            let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let digits: String = fraction[..len].chars().chain("000000000".chars()).collect();
            (digits.get(..9).and_then(number).filter(|_| len > 0)?, &fraction[len..])
        }
        None => (0, behind),
    };
    if date.len() != 10 {
        return None;
    }
    let text = format!("{date}T{clock}");
    let moment = read_between(&text, offset(zone)?, "%Y-%m-%dT%H:%M:%S", exact)?;
    Some(EpochTime { nanos: u32::try_from(nanos).ok()?, ..moment })
}

fn exact<'t>(text: &'t str, between: &str) -> Option<&'t str> {
    text.strip_prefix(between)
}

#[derive(Default)]
struct DateFields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    seconds: i64,
    nanos: u32,
    offset: i64,
}

impl DateFields {
    /// Reads the value of one directive at the start of the text. Returns the rest of the text.
    fn read<'t>(&mut self, part: DatePart, text: &'t str) -> Option<&'t str> {
        let digits = |len: usize| {
            let number = text.get(..len).and_then(number)?;
            Some(DigitPrefix { number, rest: text.get(len..)? })
        };
        let two = |below: i64| digits(2).filter(|read| read.number < below);
        let rest = match part {
            DatePart::Year => set(&mut self.year, digits(4)?),
            DatePart::Month => set(&mut self.month, two(13)?),
            DatePart::Day => set(&mut self.day, two(32)?),
            DatePart::Hour => add(&mut self.seconds, 3600, two(24)?),
            DatePart::Minute => add(&mut self.seconds, 60, two(60)?),
            DatePart::Second => add(&mut self.seconds, 1, two(61)?),
            DatePart::Fraction(len) => {
                let DigitPrefix { number, rest } = digits(len as usize)?;
                self.nanos = u32::try_from(number).ok()? * 10u32.pow(9 - len);
                rest
            }
            DatePart::Offset(_) => {
                let end = text.find(|c: char| !"+-:zZ0123456789".contains(c));
                let (zone, rest) = text.split_at(end.unwrap_or(text.len()));
                self.offset = offset(zone)?;
                rest
            }
            DatePart::Percent => text.strip_prefix('%')?,
        };
        Some(rest)
    }

    fn moment(&self) -> Option<EpochTime> {
        let (year, month, day) = (self.year?, self.month?, self.day?);
        let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?);
        let days = EPOCH.until(date.ok()?).ok()?.get_days();
        let seconds = i64::from(days) * DAY + self.seconds - self.offset;
        Some(EpochTime { seconds, nanos: self.nanos })
    }
}

/// Digits at the start of a text, and the text behind.
struct DigitPrefix<'t> {
    number: i64,
    rest: &'t str,
}

fn set<'t>(field: &mut Option<i64>, read: DigitPrefix<'t>) -> &'t str {
    *field = Some(read.number);
    read.rest
}

fn add<'t>(field: &mut i64, times: i64, read: DigitPrefix<'t>) -> &'t str {
    *field += read.number * times;
    read.rest
}

#[derive(Clone, Copy)]
enum DatePart {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    /// Fraction of a second with this many digits.
    Fraction(u32),
    /// Offset from UTC with this many colons.
    Offset(usize),
    Percent,
}

/// Directives after `%`; a name stands before its own prefixes.
const PARTS: &[(&str, DatePart)] = &[
    ("Y", DatePart::Year),
    ("m", DatePart::Month),
    ("d", DatePart::Day),
    ("H", DatePart::Hour),
    ("M", DatePart::Minute),
    ("S", DatePart::Second),
    ("3N", DatePart::Fraction(3)),
    ("6N", DatePart::Fraction(6)),
    ("N", DatePart::Fraction(9)),
    ("::z", DatePart::Offset(2)),
    (":z", DatePart::Offset(1)),
    ("z", DatePart::Offset(0)),
    ("%", DatePart::Percent),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_goes_from_year_0_to_9999() {
        for (text, seconds) in [
            ("0000-01-01", FIRST),
            ("0000-02-29", FIRST + 59 * DAY),
            ("1969-12-31", -DAY),
            ("2000-02-29", 951_782_400),
            ("2100-03-01", 4_107_542_400),
            ("9999-12-31", LAST + 1 - DAY),
        ] {
            let moment = EpochTime { seconds, nanos: 0 };
            assert_eq!(read(text, 0, "%Y-%m-%d"), Some(moment), "{text}");
            assert_eq!(write(moment, 0, "%Y-%m-%d").as_deref(), Some(text));
        }
        for seconds in [FIRST - 1, LAST + 1] {
            assert_eq!(write(EpochTime { seconds, nanos: 0 }, 0, "%Y"), None);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let moment = EpochTime { seconds: 1_700_000_000, nanos: 123_456_789 };
        for format in ["%Y-%m-%dT%H:%M:%S.%N%::z", "%%%z %S %M %H %d %m %Y.%N"] {
            for offset in [0, 8 * 3600, -19_800] {
                let text = write(moment, offset, format).expect("in range");
                assert_eq!(read(&text, 0, format), Some(moment), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_moment_is_not_read() {
        for text in ["2023-02-29", "2023-13-01", "2023-00-01", "2023-1-1", ""] {
            assert_eq!(read(text, 0, "%Y-%m-%d"), None, "{text}");
        }
        for text in ["2023-01-01", "2023-01-01T00:00:00", "2023-01-01T00:00:00.Z", "x"] {
            assert_eq!(read_rfc3339(text), None, "{text}");
        }
        for zone in ["", "+", "8", "+8", "+08:00:0:0", "+24:00", "+\u{e4}0", "+080000000"] {
            assert_eq!(offset(zone), None, "{zone}");
        }
        assert_eq!(write(EpochTime { seconds: i64::MAX, nanos: 0 }, 1, "%Y"), None);
        let written = write(EpochTime { seconds: 0, nanos: 0 }, 0, "%Q%Y%");
        assert_eq!(written.as_deref(), Some("%Q1970%"));
    }
}
