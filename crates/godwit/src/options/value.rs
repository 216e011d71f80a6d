//! What an option may hold: its kind, how text and TOML become a value, how a value is written
//! back. Reading never guesses: what does not fit is an error that says what would.

use super::nearest::nearest;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

/// Says why a text does not fit, and what would.
pub(crate) type Check = fn(&str) -> Result<(), String>;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Like another, but there may be a secret in it: what is written of it leaves that out.
    Hidden(&'static Kind),
    List {
        of: &'static str,
        check: Check,
    },
    Map {
        of: &'static str,
        value: &'static str,
        check: fn(&str, &str) -> Result<(), String>,
    },
    /// `word` stands for one special number, inside the range or not.
    Number {
        min: u64,
        max: u64,
        unit: Unit,
        word: Option<(&'static str, u64)>,
    },
    Text {
        of: &'static str,
        check: Check,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Also written with a suffix: "64KiB".
    Bytes,
    Of(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bool(bool),
    List(Vec<String>),
    Map(Vec<(String, String)>),
    Number(u64),
    Text(String),
}

/// A value in a file that does not fit: where it stands (a byte offset) and why.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) at: usize,
    pub(crate) why: String,
}

impl Value {
    pub(crate) fn bool(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    pub(crate) fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            _ => unreachable!("the row's kind is a number"),
        }
    }

    pub(crate) fn u32(&self) -> u32 {
        u32::try_from(self.number()).expect("the row's range fits")
    }

    pub(crate) fn u16(&self) -> u16 {
        u16::try_from(self.number()).expect("the row's range fits")
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => unreachable!("the row's kind is text"),
        }
    }

    pub(crate) fn list(&self) -> &[String] {
        match self {
            Value::List(list) => list,
            _ => unreachable!("the row's kind is a list"),
        }
    }

    pub(crate) fn map(&self) -> &[(String, String)] {
        match self {
            Value::Map(map) => map,
            _ => unreachable!("the row's kind is a map"),
        }
    }
}

impl Kind {
    pub(crate) fn is_map(self) -> bool {
        match self {
            Kind::Hidden(kind) => kind.is_map(),
            kind => matches!(kind, Kind::Map { .. }),
        }
    }

    /// What somebody gave, for an error: of what may be secret nothing, since it could not be read.
    pub(crate) fn excerpt(self, given: &str) -> String {
        match self {
            Kind::Hidden(_) => String::new(),
            _ => format!(" = {given}"),
        }
    }

    /// From an environment variable or a flag: lists as `a,b`, maps as `a=1,b=2`.
    pub(crate) fn read_text(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Bool => read_bool(text),
            Kind::Choice(words) => read_choice(words, text),
            Kind::Hidden(kind @ Kind::Map { .. }) => {
                let read = kind.read_text(text);
                read.map_err(|_| format!("not as it has to be, use {}", kind.right()))
            }
            Kind::Hidden(kind) => kind.read_text(text),
            Kind::List { check, .. } => {
                let list = split_list(text);
                list.iter().try_for_each(|item| check(item))?;
                Ok(Value::List(list))
            }
            Kind::Map { of, value, check } => {
                let pairs = split_list(text).into_iter().map(|pair| match pair.split_once('=') {
                    Some((key, value)) => {
                        let (key, value) = (key.trim(), value.trim());
                        check(key, value).map(|()| (key.to_string(), value.to_string()))
                    }
                    None => Err(format!("{pair:?} has no \"=\", use {of}={value}")),
                });
                Ok(Value::Map(pairs.collect::<Result<Vec<_>, String>>()?))
            }
            Kind::Number { .. } => self.read_number(text),
            Kind::Text { check, .. } => check(text).map(|()| Value::Text(text.to_string())),
        }
    }

    pub(crate) fn read_toml(self, given: &Spanned<DeValue<'_>>) -> Result<Value, Misfit> {
        let misfit = |why| Misfit { at: given.span().start, why };
        match (self, given.get_ref()) {
            (Kind::Hidden(kind), _) => kind.read_toml(given),
            (Kind::List { check, .. }, DeValue::Array(items)) => {
                let texts = items.iter().map(|item| toml_text(item, check));
                Ok(Value::List(texts.collect::<Result<_, _>>()?))
            }
            (Kind::Map { check, .. }, DeValue::Table(table)) => {
                let pairs = table.iter().map(|(key, value)| {
                    let key = key.get_ref().to_string();
                    let text = toml_text(value, |value| check(&key, value))?;
                    Ok((key, text))
                });
                Ok(Value::Map(pairs.collect::<Result<_, _>>()?))
            }
            (Kind::Bool, DeValue::Boolean(yes)) => Ok(Value::Bool(*yes)),
            (Kind::Choice(words), DeValue::Boolean(yes)) => {
                read_choice(words, if *yes { "true" } else { "false" }).map_err(misfit)
            }
            (Kind::Number { .. }, DeValue::Integer(integer)) => {
                self.read_number(&decimal(integer)).map_err(misfit)
            }
            (Kind::Number { .. }, DeValue::String(text)) if self.takes_words() => {
                self.read_number(text).map_err(misfit)
            }
            (Kind::Choice(_) | Kind::Text { .. }, DeValue::String(text)) => {
                self.read_text(text).map_err(misfit)
            }
            (_, other) => Err(misfit(format!("{}, use {}", article(other), self.right()))),
        }
    }

    /// What would be right, for the end of an error and for the docs.
    pub(crate) fn right(self) -> String {
        match self {
            Kind::Bool => "true or false".to_string(),
            Kind::Choice(words) => one_of(words),
            Kind::Hidden(kind) => kind.right(),
            Kind::List { of, .. } => format!("a list of {of}"),
            Kind::Map { of, value, .. } => format!("a table of {of} = {value}"),
            Kind::Number { min, max, unit, word } => {
                let (min, max) = (write_number(min, unit), write_number(max, unit));
                let unit = match unit {
                    Unit::Bytes => ", a number of bytes or a size like \"64MiB\"".to_string(),
                    Unit::Of("") => String::new(),
                    Unit::Of(unit) => format!(" {unit}"),
                };
                let word = word.map_or(String::new(), |(word, _)| format!(", or \"{word}\""));
                format!("{min} to {max}{unit}{word}")
            }
            Kind::Text { of, .. } => of.to_string(),
        }
    }

    /// As it stands in a file.
    pub(crate) fn write(self, value: &Value) -> String {
        match (self, value) {
            (Kind::Hidden(kind), _) => kind.write(&hide(value)),
            (_, Value::Bool(yes)) => yes.to_string(),
            (_, Value::List(list)) => {
                let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
                format!("[{}]", items.join(", "))
            }
            (_, Value::Map(map)) => {
                let pair =
                    |(key, value): &(String, String)| format!("{} = {}", bare(key), quote(value));
                let pairs: Vec<String> = map.iter().map(pair).collect();
                if pairs.is_empty() { "{}".into() } else { format!("{{ {} }}", pairs.join(", ")) }
            }
            (Kind::Number { word: Some((word, special)), .. }, Value::Number(number))
                if *number == special =>
            {
                quote(word)
            }
            (Kind::Number { unit, .. }, Value::Number(number)) => {
                let text = write_number(*number, unit);
                if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { quote(&text) }
            }
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Text(text)) => quote(text),
        }
    }

    fn takes_words(self) -> bool {
        matches!(self, Kind::Number { unit: Unit::Bytes, .. } | Kind::Number { word: Some(_), .. })
    }

    fn read_number(self, text: &str) -> Result<Value, String> {
        let Kind::Number { min, max, unit, word } = self else {
            unreachable!("called for numbers only")
        };
        if let Some((word, number)) = word
            && word == text
        {
            return Ok(Value::Number(number));
        }
        let number = match unit {
            Unit::Bytes => parse_bytes(text),
            Unit::Of(_) => parse_digits(text),
        };
        match number {
            Parsed::Number(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
            Parsed::Number(_) | Parsed::OutOfRange => {
                Err(format!("out of range, use {}", self.right()))
            }
            Parsed::Nothing => Err(format!("not a number, use {}", self.right())),
        }
    }
}

/// Values of a table are hidden whole, of a URL the password.
fn hide(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            Value::Map(map.iter().map(|(key, _)| (key.clone(), "***".to_string())).collect())
        }
        Value::Text(text) => Value::Text(hide_password(text)),
        other => other.clone(),
    }
}

fn hide_password(url: &str) -> String {
    let at = url.find("://").map_or(0, |at| at + 3);
    let end = url[at..].find(['/', '?']).map_or(url.len(), |len| at + len);
    match url[at..end].rsplit_once('@').map(|(who, place)| (who.split_once(':'), place)) {
        Some((Some((user, _)), place)) => {
            format!("{}{user}:***@{place}{}", &url[..at], &url[end..])
        }
        _ => url.to_string(),
    }
}

enum Parsed {
    Number(u64),
    OutOfRange,
    Nothing,
}

fn parse_digits(text: &str) -> Parsed {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Parsed::Nothing;
    }
    text.parse().map_or(Parsed::OutOfRange, Parsed::Number)
}

fn parse_bytes(text: &str) -> Parsed {
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
    let Some((suffix, bytes)) = suffix else { return parse_digits(text) };
    match parse_digits(text[..text.len() - suffix.len()].trim_end()) {
        Parsed::Number(number) => {
            number.checked_mul(*bytes).map_or(Parsed::OutOfRange, Parsed::Number)
        }
        other => other,
    }
}

/// Sizes in the largest unit that says them exactly.
fn write_number(number: u64, unit: Unit) -> String {
    let whole = |(_, bytes): &&(&str, u64)| number != 0 && number.is_multiple_of(*bytes);
    match SUFFIXES.iter().find(whole) {
        Some((suffix, bytes)) if unit == Unit::Bytes => format!("{}{suffix}", number / bytes),
        _ => number.to_string(),
    }
}

/// TOML writes one number in many ways; errors and ranges see the decimal one.
fn decimal(integer: &DeInteger<'_>) -> String {
    let digits = integer.as_str().trim_start_matches('+');
    match u64::from_str_radix(digits, integer.radix()) {
        Ok(number) => number.to_string(),
        Err(_) if integer.radix() == 10 => digits.to_string(),
        Err(_) => u128::MAX.to_string(),
    }
}

fn read_bool(text: &str) -> Result<Value, String> {
    match text {
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        _ => Err("not a truth value, use true or false".to_string()),
    }
}

fn read_choice(words: &[&str], text: &str) -> Result<Value, String> {
    if words.contains(&text) {
        return Ok(Value::Text(text.to_string()));
    }
    let hint = nearest(text, words.iter().copied());
    let hint = hint.map_or(String::new(), |word| format!(", did you mean \"{word}\"?"));
    Err(format!("no such choice, use {}{hint}", one_of(words)))
}

fn toml_text(
    given: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<String, Misfit> {
    let misfit = |why| Misfit { at: given.span().start, why };
    match given.get_ref() {
        DeValue::String(text) => check(text).map(|()| text.to_string()).map_err(misfit),
        other => Err(misfit(format!("{}, use text in quotes", article(other)))),
    }
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(String::from).collect()
}

fn article(value: &DeValue<'_>) -> &'static str {
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

/// `"a", "b" or "c"`
pub(crate) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// A TOML key: quoted only where it must be.
fn bare(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.bytes().all(plain) { key.to_string() } else { quote(key) }
}

/// A TOML basic string.
pub(crate) fn quote(text: &str) -> String {
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

/// Largest first: a size is written in the first that divides it.
const SUFFIXES: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_written_without_it() {
        static URL: Kind = Kind::Text { of: "a URL", check: |_| Ok(()) };
        static MAP: Kind = Kind::Map { of: "names", value: "value", check: |_, _| Ok(()) };
        for (url, shown) in [
            ("redis://ann:secret@h:1/0", "redis://ann:***@h:1/0"),
            ("redis://:a:b@c@h", "redis://:***@h"),
            ("http://h/a@b:c", "http://h/a@b:c"),
            ("a/path", "a/path"),
        ] {
            let kind = Kind::Hidden(&URL);
            assert_eq!(kind.write(&kind.read_text(url).unwrap()), quote(shown));
        }
        let kind = Kind::Hidden(&MAP);
        let map = kind.read_text("x-key=secret").unwrap();
        assert_eq!(kind.write(&map), "{ x-key = \"***\" }");
        assert!(!kind.read_text("secret").unwrap_err().contains("secret"));
    }
}
