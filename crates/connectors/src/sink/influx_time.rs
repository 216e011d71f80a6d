//! The timestamp of a point of InfluxDB, taken from the payload.

use super::message::{MessageField, MessageValue, SinkMessage};
use super::template::{SinkTemplate, text_of};
use jiff::Timestamp;

/// Values of the options `influx.time` and `influx.time_unit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointTime {
    field: MessageField,
    unit: &'static TimeUnit,
}

/// Unit of a numeric timestamp.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimeUnit {
    name: &'static str,
    plural: &'static str,
    nanoseconds: i128,
}

pub(super) const UNIT_NAMES: &[&str] = &["s", "ms", "us", "ns"];

static UNITS: [TimeUnit; 4] = [
    TimeUnit { name: "s", plural: "seconds", nanoseconds: 1_000_000_000 },
    TimeUnit { name: "ms", plural: "milliseconds", nanoseconds: 1_000_000 },
    TimeUnit { name: "us", plural: "microseconds", nanoseconds: 1_000 },
    TimeUnit { name: "ns", plural: "nanoseconds", nanoseconds: 1 },
];

impl PointTime {
    /// Parses the options. Returns `None` if `influx.time` is empty.
    pub(super) fn parse(text: &str, unit: &str) -> Result<Option<PointTime>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let field = SinkTemplate::parse(text)?.only_field().cloned();
        let field = field.ok_or_else(|| {
            format!(
                "influx.time {text:?}: use one placeholder and nothing else, as ${{payload.at}}"
            )
        })?;
        let unit = UNITS.iter().find(|one| one.name == unit).unwrap_or(&UNITS[1]);
        Ok(Some(PointTime { field, unit }))
    }

    /// Returns the timestamp in nanoseconds since 1970, or `None` if the message has no value. A
    /// value which is not a time is an error, or the point would silently get a wrong time.
    pub(super) fn read_ns(&self, message: &SinkMessage) -> Result<Option<i64>, String> {
        let value = message.value(&self.field);
        if value == MessageValue::Nothing {
            return Ok(None);
        }
        let text = text_of(&value);
        let text = text.trim();
        let at = decimal_ns(text, self.unit.nanoseconds).or_else(|| rfc3339_ns(text));
        let at = at.and_then(|at| i64::try_from(at).ok()).filter(|at| EDGES.contains(at));
        let wrong = || {
            format!(
                "influx.time: {text:?} is neither a number of {} between the years 1678 and 2262 \
                 nor a time of RFC 3339, as 2026-11-21T10:00:00Z",
                self.unit.plural
            )
        };
        at.map(Some).ok_or_else(wrong)
    }
}

/// Timestamps which InfluxDB stores. Values outside the range have special meanings there.
const EDGES: std::ops::RangeInclusive<i64> = i64::MIN + 2..=i64::MAX - 1;

/// Converts a decimal number, in the form of JSON, to nanoseconds without the rounding of a float.
/// Digits below a nanosecond are cut off.
fn decimal_ns(text: &str, unit_ns: i128) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if whole.is_empty() || all.len() > DIGITS_MAX || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = all.parse::<i128>().ok()?.checked_mul(unit_ns)?;
    let places = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scale = |by: u32| 10_i128.checked_pow(by);
    let number = match places {
        0.. => number.checked_mul(scale(places.unsigned_abs())?)?,
        _ => scale(places.unsigned_abs()).map_or(0, |by| number / by),
    };
    Some(if is_negative { -number } else { number })
}

const DIGITS_MAX: usize = 28;

/// Parses a time of RFC 3339, 5.6, into nanoseconds since 1970.
fn rfc3339_ns(text: &str) -> Option<i128> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unit: &str, payload: &str) -> Result<Option<i64>, String> {
        let time = PointTime::parse("${payload.t}", unit).unwrap().unwrap();
        time.read_ns(&SinkMessage { payload: payload.into(), ..SinkMessage::default() })
    }

    #[test]
    fn a_time_of_the_payload_is_in_its_unit() {
        const AT: i64 = 1_700_000_000_000_000_000;
        for (unit, value, expected) in [
            ("s", "1700000000", AT),
            ("ms", "1700000000000", AT),
            ("us", "1700000000000000", AT),
            ("ns", "1700000000000000000", AT),
            ("ns", "1700000000000000001", AT + 1),
            ("s", "1700000000.25", AT + 250_000_000),
            // A JSON number is a float here, while text keeps all digits.
            ("s", "\"1700000000.123456789\"", AT + 123_456_789),
            ("ms", "1700000000000.5", AT + 500_000),
            ("s", "1.7e9", AT),
            ("s", "\"1700000000\"", AT),
            ("ms", "\"2023-11-14T22:13:20Z\"", AT),
            ("s", "\"2023-11-14T23:13:20.25+01:00\"", AT + 250_000_000),
            ("s", "\"2023-11-14 17:13:20-05:00\"", AT),
            ("s", "-1", -1_000_000_000),
            ("s", "0", 0),
        ] {
            assert_eq!(
                at(unit, &format!("{{\"t\":{value}}}")),
                Ok(Some(expected)),
                "{value} {unit}"
            );
        }
    }

    #[test]
    fn a_time_that_is_not_there_is_the_sinks_and_a_wrong_one_is_told() {
        for payload in ["{}", "{\"t\":null}", "no json"] {
            assert_eq!(at("ms", payload), Ok(None), "{payload}");
        }
        for value in [
            "\"yesterday\"",
            "\"\"",
            "true",
            "[1]",
            "1e300",
            "99999999999999999999",
            "9223372036854775807",
            "\"2023-13-01T00:00:00Z\"",
            "\"2023-11-14T22:13:20\"",
            "\"2023-11-14T22:13:20.Z\"",
            "\"2023-11-14T22:13:20+1:00\"",
        ] {
            let unit = if value.starts_with('9') { "ns" } else { "s" };
            let why = at(unit, &format!("{{\"t\":{value}}}")).expect_err(value);
            assert!(why.starts_with("influx.time: "), "{why}");
        }
        assert!(PointTime::parse("at ${payload.t}", "s").unwrap_err().contains("one placeholder"));
        assert!(PointTime::parse("1700000000", "s").is_err());
        assert_eq!(PointTime::parse("", "s"), Ok(None));
        let names: Vec<&str> = UNITS.iter().map(|unit| unit.name).collect();
        assert_eq!(names, UNIT_NAMES);
    }
}
