//! Kinds of option values: parsing from text and TOML, and formatting. Parsing never guesses: a
//! value which does not fit is an error which describes valid values.

use crate::nearest::nearest_word;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

/// Checks a text. The error gives the reason, and a text which would be valid.
pub type TextCheck = fn(&str) -> Result<(), String>;

/// The kind of an option: the values which [`OptionKind::read_text`] and [`OptionKind::read_toml`]
/// accept.
#[derive(Clone, Copy)]
pub enum OptionKind {
    Bool,
    /// A value that is a member of this list of words.
    Choice(&'static [&'static str]),
    /// A kind whose value may contain a secret. [`OptionKind::format_value`] replaces the secret by
    /// `***`, and [`OptionKind::excerpt`] leaves the value out of errors.
    Hidden(&'static OptionKind),
    List {
        of: &'static str,
        check: TextCheck,
    },
    Map {
        of: &'static str,
        value: &'static str,
        check: fn(&str, &str) -> Result<(), String>,
    },
    /// A number from `min` to `max`. `word` stands for a special number, inside or outside the
    /// range.
    Number {
        min: u64,
        max: u64,
        unit: NumberUnit,
        word: Option<(&'static str, u64)>,
    },
    Text {
        of: &'static str,
        check: TextCheck,
    },
}

/// Unit of an [`OptionKind::Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberUnit {
    /// Bytes, also written with a suffix: "64KiB".
    Bytes,
    Named(&'static str),
}

/// A parsed value. The accessors `bool`, `number`, `text`, `list` and `map` rely on the kind of the
/// row: another variant is a programming error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    Bool(bool),
    List(Vec<String>),
    Map(Vec<(String, String)>),
    Number(u64),
    Text(String),
}

/// A value in a file which does not fit: its position, a byte offset, and the reason.
#[derive(Debug)]
pub struct ValueError {
    pub at: usize,
    pub why: String,
}

impl OptionValue {
    pub fn bool(&self) -> bool {
        matches!(self, OptionValue::Bool(true))
    }

    pub fn number(&self) -> u64 {
        match self {
            OptionValue::Number(number) => *number,
            _ => unreachable!("the row's kind is a number"),
        }
    }

    pub fn u32(&self) -> u32 {
        u32::try_from(self.number()).expect("the row's range fits")
    }

    pub fn u16(&self) -> u16 {
        u16::try_from(self.number()).expect("the row's range fits")
    }

    pub fn text(&self) -> &str {
        match self {
            OptionValue::Text(text) => text,
            _ => unreachable!("the row's kind is text"),
        }
    }

    pub fn list(&self) -> &[String] {
        match self {
            OptionValue::List(list) => list,
            _ => unreachable!("the row's kind is a list"),
        }
    }

    pub fn map(&self) -> &[(String, String)] {
        match self {
            OptionValue::Map(map) => map,
            _ => unreachable!("the row's kind is a map"),
        }
    }
}

impl OptionKind {
    pub fn is_map(self) -> bool {
        match self {
            OptionKind::Hidden(kind) => kind.is_map(),
            kind => matches!(kind, OptionKind::Map { .. }),
        }
    }

    /// Returns the given text for an error message, or "" for a secret. A secret which cannot be
    /// parsed cannot be redacted either.
    pub fn excerpt(self, given: &str) -> String {
        match self {
            OptionKind::Hidden(_) => String::new(),
            _ => format!(" = {given}"),
        }
    }

    /// Parses a value from an environment variable or a flag: lists as `a,b`, maps as `a=1,b=2`.
    pub fn read_text(self, text: &str) -> Result<OptionValue, String> {
        match self {
            OptionKind::Bool => read_bool(text),
            OptionKind::Choice(words) => read_choice(words, text),
            OptionKind::Hidden(kind @ OptionKind::Map { .. }) => {
                let read = kind.read_text(text);
                read.map_err(|_| format!("not as it has to be, use {}", kind.expected()))
            }
            OptionKind::Hidden(kind) => kind.read_text(text),
            OptionKind::List { check, .. } => {
                let list = split_list(text);
                list.iter().try_for_each(|item| check(item))?;
                Ok(OptionValue::List(list))
            }
            OptionKind::Map { of, value, check } => {
                let pairs = split_list(text).into_iter().map(|pair| match pair.split_once('=') {
                    Some((key, value)) => {
                        let (key, value) = (key.trim(), value.trim());
                        check(key, value).map(|()| (key.to_string(), value.to_string()))
                    }
                    None => Err(format!("{pair:?} has no \"=\", use {of}={value}")),
                });
                Ok(OptionValue::Map(pairs.collect::<Result<Vec<_>, String>>()?))
            }
            OptionKind::Number { .. } => self.read_number(text),
            OptionKind::Text { check, .. } => {
                check(text).map(|()| OptionValue::Text(text.to_string()))
            }
        }
    }

    /// Parses a value of a TOML document. Numbers accept text only for sizes and special words.
    pub fn read_toml(self, given: &Spanned<DeValue<'_>>) -> Result<OptionValue, ValueError> {
        let misfit = |why| ValueError { at: given.span().start, why };
        match (self, given.get_ref()) {
            (OptionKind::Hidden(kind), _) => kind.read_toml(given),
            (OptionKind::List { check, .. }, DeValue::Array(items)) => {
                let texts = items.iter().map(|item| toml_text(item, check));
                Ok(OptionValue::List(texts.collect::<Result<_, _>>()?))
            }
            (OptionKind::Map { check, .. }, DeValue::Table(table)) => {
                let pairs = table.iter().map(|(key, value)| {
                    let key = key.get_ref().to_string();
                    let text = toml_text(value, |value| check(&key, value))?;
                    Ok((key, text))
                });
                Ok(OptionValue::Map(pairs.collect::<Result<_, _>>()?))
            }
            (OptionKind::Bool, DeValue::Boolean(yes)) => Ok(OptionValue::Bool(*yes)),
            (OptionKind::Choice(words), DeValue::Boolean(yes)) => {
                read_choice(words, if *yes { "true" } else { "false" }).map_err(misfit)
            }
            (OptionKind::Number { .. }, DeValue::Integer(integer)) => {
                self.read_number(&decimal(integer)).map_err(misfit)
            }
            (OptionKind::Number { .. }, DeValue::String(text)) if self.takes_words() => {
                self.read_number(text).map_err(misfit)
            }
            (OptionKind::Choice(_) | OptionKind::Text { .. }, DeValue::String(text)) => {
                self.read_text(text).map_err(misfit)
            }
            (_, other) => {
                Err(misfit(format!("{}, use {}", describe_toml_type(other), self.expected())))
            }
        }
    }

    /// Returns the description of valid values, for errors and documents.
    pub fn expected(self) -> String {
        match self {
            OptionKind::Bool => "true or false".to_string(),
            OptionKind::Choice(words) => one_of(words),
            OptionKind::Hidden(kind) => kind.expected(),
            OptionKind::List { of, .. } => format!("a list of {of}"),
            OptionKind::Map { of, value, .. } => format!("a table of {of} = {value}"),
            OptionKind::Number { min, max, unit, word } => {
                let (min, max) = (write_number(min, unit), write_number(max, unit));
                let unit = match unit {
                    NumberUnit::Bytes => ", a number of bytes or a size like \"64MiB\"".to_string(),
                    NumberUnit::Named("") => String::new(),
                    NumberUnit::Named(unit) => format!(" {unit}"),
                };
                let word = word.map_or(String::new(), |(word, _)| format!(", or \"{word}\""));
                format!("{min} to {max}{unit}{word}")
            }
            OptionKind::Text { of, .. } => of.to_string(),
        }
    }

    /// Formats a value as TOML, with secrets replaced by `***`.
    pub fn format_value(self, value: &OptionValue) -> String {
        match (self, value) {
            (OptionKind::Hidden(kind), _) => kind.format_value(&redact_value(value)),
            (_, OptionValue::Bool(yes)) => yes.to_string(),
            (_, OptionValue::List(list)) => {
                let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
                format!("[{}]", items.join(", "))
            }
            (_, OptionValue::Map(map)) => {
                let pair = |(key, value): &(String, String)| {
                    format!("{} = {}", bare_key(key), quote(value))
                };
                let pairs: Vec<String> = map.iter().map(pair).collect();
                if pairs.is_empty() { "{}".into() } else { format!("{{ {} }}", pairs.join(", ")) }
            }
            (
                OptionKind::Number { word: Some((word, special)), .. },
                OptionValue::Number(number),
            ) if *number == special => quote(word),
            (OptionKind::Number { unit, .. }, OptionValue::Number(number)) => {
                let text = write_number(*number, unit);
                if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { quote(&text) }
            }
            (_, OptionValue::Number(number)) => number.to_string(),
            (_, OptionValue::Text(text)) => quote(text),
        }
    }

    /// Whether a number may also be text in TOML: a size with a suffix, or a special word.
    fn takes_words(self) -> bool {
        matches!(
            self,
            OptionKind::Number { unit: NumberUnit::Bytes, .. }
                | OptionKind::Number { word: Some(_), .. }
        )
    }

    fn read_number(self, text: &str) -> Result<OptionValue, String> {
        let OptionKind::Number { min, max, unit, word } = self else {
            unreachable!("called for numbers only")
        };
        if let Some((word, number)) = word
            && word == text
        {
            return Ok(OptionValue::Number(number));
        }
        let number = match unit {
            NumberUnit::Bytes => parse_bytes(text),
            NumberUnit::Named(_) => parse_digits(text),
        };
        match number {
            ParsedNumber::Number(number) if (min..=max).contains(&number) => {
                Ok(OptionValue::Number(number))
            }
            ParsedNumber::Number(_) | ParsedNumber::OutOfRange => {
                Err(format!("out of range, use {}", self.expected()))
            }
            ParsedNumber::Nothing => Err(format!("not a number, use {}", self.expected())),
        }
    }
}

/// Replaces secrets: all values of a map, and the password in a URL.
fn redact_value(value: &OptionValue) -> OptionValue {
    match value {
        OptionValue::Map(map) => {
            OptionValue::Map(map.iter().map(|(key, _)| (key.clone(), "***".to_string())).collect())
        }
        OptionValue::Text(text) => OptionValue::Text(redact_password(text)),
        other => other.clone(),
    }
}

fn redact_password(url: &str) -> String {
    let at = url.find("://").map_or(0, |at| at + 3);
    let end = url[at..].find(['/', '?']).map_or(url.len(), |len| at + len);
    match url[at..end].rsplit_once('@').map(|(who, place)| (who.split_once(':'), place)) {
        Some((Some((user, _)), place)) => {
            format!("{}{user}:***@{place}{}", &url[..at], &url[end..])
        }
        _ => url.to_string(),
    }
}

enum ParsedNumber {
    Number(u64),
    OutOfRange,
    Nothing,
}

fn parse_digits(text: &str) -> ParsedNumber {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return ParsedNumber::Nothing;
    }
    text.parse().map_or(ParsedNumber::OutOfRange, ParsedNumber::Number)
}

fn parse_bytes(text: &str) -> ParsedNumber {
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
    let Some((suffix, bytes)) = suffix else { return parse_digits(text) };
    match parse_digits(text[..text.len() - suffix.len()].trim_end()) {
        ParsedNumber::Number(number) => {
            number.checked_mul(*bytes).map_or(ParsedNumber::OutOfRange, ParsedNumber::Number)
        }
        other => other,
    }
}

/// Formats a size in the largest unit of `SUFFIXES` which divides the number.
fn write_number(number: u64, unit: NumberUnit) -> String {
    let whole = |(_, bytes): &&(&str, u64)| number != 0 && number.is_multiple_of(*bytes);
    match SUFFIXES.iter().find(whole) {
        Some((suffix, bytes)) if unit == NumberUnit::Bytes => format!("{}{suffix}", number / bytes),
        _ => number.to_string(),
    }
}

/// Returns the decimal form of a TOML integer, which may be hexadecimal, octal or binary. Ranges
/// and errors use the decimal form.
fn decimal(integer: &DeInteger<'_>) -> String {
    let digits = integer.as_str().trim_start_matches('+');
    match u64::from_str_radix(digits, integer.radix()) {
        Ok(number) => number.to_string(),
        Err(_) if integer.radix() == 10 => digits.to_string(),
        Err(_) => u128::MAX.to_string(),
    }
}

fn read_bool(text: &str) -> Result<OptionValue, String> {
    match text {
        "true" => Ok(OptionValue::Bool(true)),
        "false" => Ok(OptionValue::Bool(false)),
        _ => Err("not a truth value, use true or false".to_string()),
    }
}

fn read_choice(words: &[&str], text: &str) -> Result<OptionValue, String> {
    if words.contains(&text) {
        return Ok(OptionValue::Text(text.to_string()));
    }
    let hint = nearest_word(text, words.iter().copied());
    let hint = hint.map_or(String::new(), |word| format!(", did you mean \"{word}\"?"));
    Err(format!("no such choice, use {}{hint}", one_of(words)))
}

fn toml_text(
    given: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<String, ValueError> {
    let misfit = |why| ValueError { at: given.span().start, why };
    match given.get_ref() {
        DeValue::String(text) => check(text).map(|()| text.to_string()).map_err(misfit),
        other => Err(misfit(format!("{}, use text in quotes", describe_toml_type(other)))),
    }
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(String::from).collect()
}

fn describe_toml_type(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::Array(_) => "this is a list",
        DeValue::Boolean(_) => "this is a truth value",
        DeValue::Datetime(_) => "this is a date",
        DeValue::Float(_) => "this is a number with a point",
        DeValue::Integer(_) => "this is a number",
        DeValue::String(_) => "this is text",
        DeValue::Table(_) => "this is a table",
    }
}

/// Returns a list of choices for an error: `"a", "b" or "c"`.
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Returns a TOML key, quoted only if necessary.
fn bare_key(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.bytes().all(plain) { key.to_string() } else { quote(key) }
}

/// Returns a TOML basic string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            char if char.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// Units from largest to smallest, so `write_number` finds the largest unit which divides a size.
const SUFFIXES: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Parses the mode of a file: octal digits, at most `777`.
pub fn file_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && text.len() <= 4 => Ok(mode),
        _ => Err("not a file mode, use three octal digits like \"660\"".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_written_without_it() {
        static URL: OptionKind = OptionKind::Text { of: "a URL", check: |_| Ok(()) };
        static MAP: OptionKind =
            OptionKind::Map { of: "names", value: "value", check: |_, _| Ok(()) };
        for (url, shown) in [
            ("redis://ann:secret@h:1/0", "redis://ann:***@h:1/0"),
            ("redis://:a:b@c@h", "redis://:***@h"),
            ("http://h/a@b:c", "http://h/a@b:c"),
            ("a/path", "a/path"),
        ] {
            let kind = OptionKind::Hidden(&URL);
            assert_eq!(kind.format_value(&kind.read_text(url).unwrap()), quote(shown));
        }
        let kind = OptionKind::Hidden(&MAP);
        let map = kind.read_text("x-key=secret").unwrap();
        assert_eq!(kind.format_value(&map), "{ x-key = \"***\" }");
        assert!(!kind.read_text("secret").unwrap_err().contains("secret"));
    }
}
