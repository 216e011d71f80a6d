//! Numbers, times, sizes and truth values of other brokers, converted to the form of options here.

use super::config_tree::ConfigEntry;
use super::row::ImportValue;

type UnitResult = Result<ImportValue, String>;

/// Words for an unlimited value.
const ENDLESS: &[&str] = &["infinity", "unlimited", "disabled", "none", "off"];

pub(super) fn read_text(entry: &ConfigEntry<'_>) -> UnitResult {
    entry.text().map(|text| ImportValue::Text(text.to_string()))
}

/// Reads a text as a list with one element.
pub(super) fn read_single(entry: &ConfigEntry<'_>) -> UnitResult {
    entry.text().map(|text| ImportValue::List(vec![text.to_string()]))
}

/// Reads comma-separated texts, or a list.
pub(super) fn read_list(entry: &ConfigEntry<'_>) -> UnitResult {
    let texts = entry.node.texts().ok_or("use a text or a list of them")?;
    let items = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
    Ok(ImportValue::List(items.filter(|item| !item.is_empty()).map(str::to_string).collect()))
}

pub(super) fn is_true(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" | "enable" => Ok(true),
        "false" | "off" | "no" | "0" | "disable" => Ok(false),
        _ => Err("not a truth value, use true or false".to_string()),
    }
}

pub(super) fn read_flag(entry: &ConfigEntry<'_>) -> UnitResult {
    is_true(entry.text()?).map(|yes| ImportValue::Text(yes.to_string()))
}

/// Reads a number, or one of the words of [`ENDLESS`].
pub(super) fn read_count(entry: &ConfigEntry<'_>) -> UnitResult {
    let text = entry.text()?;
    if ENDLESS.contains(&text) {
        return Ok(ImportValue::Unlimited);
    }
    let number: u64 = text.parse().map_err(|_| "not a number, use one like 100".to_string())?;
    Ok(ImportValue::Text(number.to_string()))
}

/// Reads a number, where 0 or a negative number means unlimited.
pub(super) fn count_or_none(entry: &ConfigEntry<'_>) -> UnitResult {
    match entry.text()? {
        "0" => Ok(ImportValue::Unlimited),
        text if text.starts_with('-') && text.parse::<i64>().is_ok() => Ok(ImportValue::Unlimited),
        _ => read_count(entry),
    }
}

/// Reads a size in bytes, such as `64KB`, `1MB` or a plain number; K is 1024.
pub(super) fn read_bytes(entry: &ConfigEntry<'_>) -> UnitResult {
    let text = entry.text()?;
    if ENDLESS.contains(&text) || text == "0" {
        return Ok(ImportValue::Unlimited);
    }
    parse_size(text).map(|number| ImportValue::Text(number.to_string()))
}

/// Reads a size in KiB, the unit of NanoMQ's old file, converted to bytes.
pub(super) fn kibibytes(entry: &ConfigEntry<'_>) -> UnitResult {
    let number = parse_size(entry.text()?)?;
    Ok(ImportValue::Text(number.saturating_mul(1024).to_string()))
}

fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size, use one like 10MB".to_string();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor: u64 = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Reads a time, converted to seconds and rounded up; the unit of a plain number is the second.
pub(super) fn seconds(entry: &ConfigEntry<'_>) -> UnitResult {
    parse_duration(entry, 1000)
        .map(|ms| ms.map_or(ImportValue::Unlimited, |ms| number_value(ms.div_ceil(1000))))
}

/// Reads seconds as [`seconds`] does, where 0 means unlimited.
pub(super) fn seconds_or_none(entry: &ConfigEntry<'_>) -> UnitResult {
    match entry.text()? {
        "0" | "0s" => Ok(ImportValue::Unlimited),
        _ => seconds(entry),
    }
}

/// Reads a time, converted to milliseconds; the unit of a plain number is the second.
pub(super) fn seconds_in_ms(entry: &ConfigEntry<'_>) -> UnitResult {
    parse_duration(entry, 1000).map(|ms| ms.map_or(ImportValue::Unlimited, number_value))
}

/// Reads a time, converted to milliseconds; the unit of a plain number is the millisecond.
pub(super) fn milliseconds(entry: &ConfigEntry<'_>) -> UnitResult {
    parse_duration(entry, 1).map(|ms| ms.map_or(ImportValue::Unlimited, number_value))
}

fn number_value(number: u64) -> ImportValue {
    ImportValue::Text(number.to_string())
}

/// Parses `1h30m`, `15s`, `500ms`, or a plain number in units of `plain_ms`. `None` is unlimited.
fn parse_duration(entry: &ConfigEntry<'_>, plain_ms: u64) -> Result<Option<u64>, String> {
    let wrong = || "not a time, use one like 30s".to_string();
    let text = entry.text()?.trim();
    if ENDLESS.contains(&text) {
        return Ok(None);
    }
    let (mut sum, mut rest) = (0_u64, text);
    while !rest.is_empty() || sum == 0 && text.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let factor = match &rest[..letters] {
            "" if digits == text.len() => plain_ms,
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return Err(wrong()),
        };
        rest = rest[letters..].trim_start();
        sum = number.checked_mul(factor).and_then(|ms| sum.checked_add(ms)).ok_or_else(wrong)?;
    }
    Ok(Some(sum))
}

/// Reads an age of mosquitto such as `14d`, converted to seconds. The unit `m` is a month of 30
/// days.
pub(super) fn read_age(entry: &ConfigEntry<'_>) -> UnitResult {
    let text = entry.text()?;
    match text.strip_suffix('m') {
        Some(months) => {
            let wrong = |_| "not a time, use one like 14d or 2m".to_string();
            let months: u32 = months.trim().parse().map_err(wrong)?;
            Ok(number_value(u64::from(months) * 30 * 86_400))
        }
        None => seconds(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config_tree::{ConfigNode, SourceLocation};
    use super::*;

    fn read(by: fn(&ConfigEntry<'_>) -> UnitResult, text: &str) -> String {
        let place = SourceLocation { file: "x".into(), line: 1 };
        let node = ConfigNode::text_at(&place, text);
        match by(&ConfigEntry { key: String::new(), names: Vec::new(), node: &node }) {
            Ok(ImportValue::Text(text)) => text,
            Ok(ImportValue::Unlimited) => "endless".to_string(),
            Ok(_) => "another".to_string(),
            Err(why) => why,
        }
    }

    #[test]
    fn times_sizes_and_truth_are_read_in_every_form() {
        for (text, expected) in [
            ("15s", "15"),
            ("1h30m", "5400"),
            ("1500ms", "2"),
            ("7", "7"),
            ("infinity", "endless"),
            ("", "not a time, use one like 30s"),
            ("5 parsecs", "not a time, use one like 30s"),
            ("99999999999999999999s", "not a time, use one like 30s"),
            ("1s5", "not a time, use one like 30s"),
        ] {
            assert_eq!(read(seconds, text), expected, "{text:?}");
        }
        assert_eq!(read(milliseconds, "5000"), "5000");
        assert_eq!(read(seconds_in_ms, "5"), "5000");
        assert_eq!(read(read_age, "2m"), "5184000");
        assert_eq!(read(read_age, "14d"), "1209600");
        assert_eq!(read(read_bytes, "10MB"), "10485760");
        assert_eq!(read(read_bytes, "0"), "endless");
        assert_eq!(read(read_bytes, "ten"), "not a size, use one like 10MB");
        assert_eq!(read(kibibytes, "10240"), "10485760");
        assert_eq!(read(count_or_none, "-1"), "endless");
        assert_eq!(read(read_count, "-1"), "not a number, use one like 100");
        assert_eq!(read(read_flag, "On"), "true");
        assert_eq!(read(read_flag, "maybe"), "not a truth value, use true or false");
    }
}
