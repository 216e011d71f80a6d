//! Functions of time: numbers since 1970, RFC 3339, and formats with `%Y %m %d %H %M %S %3N %6N %N
//! %z %:z`.

use super::dates::{EpochTime, UNITS, offset, read, read_rfc3339, write};
use super::{CallArguments, EvalResult, FunctionNeeds, RuleFunction, charge_output, row};
use crate::budget::RunError;
use crate::evaluation::EvalFrame;
use crate::value::Value;

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "date_to_unix_ts",
        3..=4,
        "unit[, offset], format, text",
        "The time that a text says in a format. What is not a part of a time in the format may be \
         anything in the text.",
        (
            "date_to_unix_ts('second', '%Y-%m-%d %H:%M:%S%:z', '2026-11-22 10:00:00+02:00')",
            "1795334400",
        ),
        date_to_unix_ts,
    ),
    now(row(
        "format_date",
        3..=4,
        "unit, offset, format[, time]",
        "A time, or now, in a format, as clocks show it at that offset from UTC, such as `+08:00`, \
         `Z` or a number of seconds.",
        (
            "format_date('second', '+02:00', '%Y-%m-%d %H:%M:%S%:z', 1795334400)",
            r#""2026-11-22 10:00:00+02:00""#,
        ),
        format_date,
    )),
    now(row(
        "mongo_date",
        0..=2,
        "[time[, unit]]",
        "A time in milliseconds, or in another unit, or now, as MongoDB's shell writes it.",
        ("mongo_date()", r#""ISODate(2026-11-22T08:00:00.250Z)""#),
        mongo_date,
    )),
    now(row(
        "now_rfc3339",
        0..=1,
        "[unit]",
        "The time of day in UTC after RFC 3339.",
        ("now_rfc3339('millisecond')", r#""2026-11-22T08:00:00.250Z""#),
        |f, a| {
            let per_second = if a.len() == 1 { unit(a, 0)? } else { 1 };
            let now = EpochTime::of(f.input.now_ms, 1000);
            now.map_or_else(
                || a.fail("the year has more than four digits"),
                |now| rfc3339(a, now, per_second),
            )
        },
    )),
    now(row(
        "now_timestamp",
        0..=1,
        "[unit]",
        "The time of day since 1970, in seconds if no unit is said.",
        ("now_timestamp()", "1795334400"),
        |f, a| {
            let per_second = if a.len() == 1 { unit(a, 0)? } else { 1 };
            count(a, EpochTime::of(f.input.now_ms, 1000), per_second)
        },
    )),
    row(
        "rfc3339_to_unix_ts",
        1..=2,
        "text[, unit]",
        "The time that a text after RFC 3339 says, in seconds if no unit is said.",
        ("rfc3339_to_unix_ts('2026-11-22T10:00:00+02:00')", "1795334400"),
        |f, a| {
            let per_second = if a.len() == 2 { unit(a, 1)? } else { 1 };
            let text = a.text(0)?;
            f.budget.scan(text.len())?;
            // 64 bytes hold every moment with nine decimals of a second and more.
            let read = if text.len() <= 64 { read_rfc3339(&text) } else { None };
            count(a, read, per_second)
        },
    ),
    row(
        "timezone_to_offset_seconds",
        1..=1,
        "offset",
        "An offset from UTC in seconds.",
        ("timezone_to_offset_seconds('+02:00')", "7200"),
        |_, a| Ok(Value::Int(zone(a, 0)?)),
    ),
    row(
        "timezone_to_second",
        1..=1,
        "offset",
        "The same as `timezone_to_offset_seconds`.",
        ("timezone_to_second('-00:30')", "-1800"),
        |_, a| Ok(Value::Int(zone(a, 0)?)),
    ),
    row(
        "unix_ts_to_rfc3339",
        1..=2,
        "time[, unit]",
        "A time in UTC after RFC 3339; it is in seconds if no unit is said.",
        ("unix_ts_to_rfc3339(1795334400)", r#""2026-11-22T08:00:00Z""#),
        |_, a| {
            let per_second = if a.len() == 2 { unit(a, 1)? } else { 1 };
            let moment = EpochTime::of(a.int(0)?, per_second);
            moment.map_or(Ok(Value::Null), |moment| rfc3339(a, moment, per_second))
        },
    ),
];

const fn now(of: RuleFunction) -> RuleFunction {
    RuleFunction { needs: FunctionNeeds::Now, ..of }
}

fn unit(a: &CallArguments<'_, '_>, at: usize) -> Result<i64, RunError> {
    let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
    let wants = "'second', 'millisecond', 'microsecond' or 'nanosecond'";
    a.keyword(at, &names, wants).map(|at| UNITS[at].1)
}

/// Returns an offset from UTC in seconds: text, a number of seconds as in EMQX, or 0 for null.
fn zone(a: &CallArguments<'_, '_>, at: usize) -> Result<i64, RunError> {
    let of = match a.peek(at) {
        Value::Int(seconds) => Some(*seconds).filter(|seconds| seconds.unsigned_abs() < 86_400),
        Value::Null => Some(0),
        Value::Text(text) if text.len() <= 9 => offset(text),
        _ => None,
    };
    of.map_or_else(|| a.type_error(at, "an offset from UTC such as '+08:00' or 'Z'"), Ok)
}

fn count<'a>(
    a: &CallArguments<'_, 'a>,
    moment: Option<EpochTime>,
    per_second: i64,
) -> EvalResult<'a> {
    match moment {
        Some(moment) => {
            moment.count(per_second).map_or_else(|| a.fail("overflow"), |of| Ok(Value::Int(of)))
        }
        None => a.fail("the text is not of this format, or the day does not exist"),
    }
}

fn rfc3339<'a>(a: &CallArguments<'_, 'a>, moment: EpochTime, per_second: i64) -> EvalResult<'a> {
    let format = match per_second {
        1 => "%Y-%m-%dT%H:%M:%SZ",
        1_000 => "%Y-%m-%dT%H:%M:%S.%3NZ",
        1_000_000 => "%Y-%m-%dT%H:%M:%S.%6NZ",
        _ => "%Y-%m-%dT%H:%M:%S.%NZ",
    };
    match write(moment, 0, format) {
        Some(text) => Ok(Value::Text(text.into())),
        None => a.fail("the year has more than four digits"),
    }
}

fn format_date<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (per_second, zone) = (unit(a, 0)?, zone(a, 1)?);
    let moment = match a.len() {
        4 => EpochTime::of(a.int(3)?, per_second),
        _ => EpochTime::of(f.input.now_ms, 1000),
    };
    let format = a.text(2)?;
    // No directive of a format becomes more than nine characters per byte.
    charge_output(f.budget, 9 * format.len())?;
    match moment.and_then(|moment| write(moment, zone, &format)) {
        Some(text) => Ok(Value::Text(text.into())),
        None => a.fail("the year has more than four digits"),
    }
}

fn mongo_date<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let per_second = if a.len() == 2 { unit(a, 1)? } else { 1000 };
    let moment = match a.len() {
        0 => EpochTime::of(f.input.now_ms, 1000),
        _ => EpochTime::of(a.int(0)?, per_second),
    };
    charge_output(f.budget, 40)?;
    match moment.and_then(|moment| write(moment, 0, "ISODate(%Y-%m-%dT%H:%M:%S.%3NZ)")) {
        Some(text) => Ok(Value::Text(text.into())),
        None => a.fail("the year has more than four digits"),
    }
}

fn date_to_unix_ts<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let per_second = unit(a, 0)?;
    let (zone, at) = if a.len() == 4 { (zone(a, 1)?, 2) } else { (0, 1) };
    let (format, text) = (a.text(at)?, a.text(at + 1)?);
    f.budget.scan(format.len() * 4 + text.len())?;
    count(a, read(&text, zone, &format), per_second)
}
