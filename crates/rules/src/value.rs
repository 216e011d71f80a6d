//! Values of rules: the kinds of JSON, with integers and floats apart, and bytes. Text and bytes
//! are borrowed from the message or the plan where possible.

use crate::budget::{Budget, RunError};
use crate::json::{JsonTape, TapeIndex};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Write as _};

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value<'a> {
    /// An absent value: a field which a message does not have, or an alias before its definition.
    #[default]
    Null,
    /// The null of a JSON text. Only comparisons and the functions for missing values, such as
    /// `coalesce`, distinguish `JsonNull` from `Null`.
    JsonNull,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Array(Vec<Value<'a>>),
    Map(ValueMap<'a>),
}

/// Names and their values in order of insertion. For a name which occurs twice, as JSON allows, the
/// first value counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueMap<'a> {
    entries: Vec<(Cow<'a, str>, Value<'a>)>,
}

impl<'a> Value<'a> {
    /// Borrows a text as a value.
    pub fn text(text: &'a str) -> Value<'a> {
        Value::Text(Cow::Borrowed(text))
    }

    /// Returns text if the bytes are UTF-8, and bytes otherwise.
    pub fn of_bytes(bytes: &'a [u8]) -> Value<'a> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => Value::Bytes(Cow::Borrowed(bytes)),
        }
    }

    /// Parses JSON text without a budget; `None` if invalid.
    pub fn from_json(text: &'a str) -> Option<Value<'a>> {
        let mut plenty = Budget { steps: u64::MAX, bytes: u64::MAX, rows: 0 };
        let tape = JsonTape::read(text.as_bytes(), &mut plenty).ok().flatten()?;
        tape.value(TapeIndex::ROOT, &mut plenty).ok()
    }

    /// Parses JSON text within a budget; `None` if invalid.
    pub(crate) fn of_json(
        text: &'a str,
        budget: &mut Budget,
    ) -> Result<Option<Value<'a>>, RunError> {
        let Some(tape) = JsonTape::read(text.as_bytes(), budget)? else { return Ok(None) };
        tape.value(TapeIndex::ROOT, budget).map(Some)
    }

    /// Parses JSON text into its map or array, for a path which continues inside; null for JSON of
    /// another kind.
    pub(crate) fn open_json(self, budget: &mut Budget) -> Result<Value<'a>, RunError> {
        let inside = match self {
            Value::Text(Cow::Borrowed(text)) => Value::of_json(text, budget)?,
            Value::Text(Cow::Owned(text)) => {
                budget.take(text.len())?;
                Value::of_json(&text, budget)?.map(Value::into_owned)
            }
            other => return Ok(other),
        };
        Ok(inside.filter(|of| matches!(of, Value::Array(_) | Value::Map(_))).unwrap_or_default())
    }

    pub(crate) fn of_vec(bytes: Vec<u8>) -> Value<'a> {
        match String::from_utf8(bytes) {
            Ok(text) => Value::Text(text.into()),
            Err(wrong) => Value::Bytes(wrong.into_bytes().into()),
        }
    }

    /// Returns the kind of the value for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null | Value::JsonNull => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::Array(_) => "an array",
            Value::Map(_) => "a map",
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::JsonNull)
    }

    /// Whether the value is [`Value::Null`], and not the null of JSON.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns the value with texts and bytes borrowed from `self`.
    pub fn view(&'a self) -> Value<'a> {
        match self {
            Value::Null => Value::Null,
            Value::JsonNull => Value::JsonNull,
            Value::Bool(of) => Value::Bool(*of),
            Value::Int(of) => Value::Int(*of),
            Value::Float(of) => Value::Float(*of),
            Value::Text(of) => Value::Text(Cow::Borrowed(of)),
            Value::Bytes(of) => Value::Bytes(Cow::Borrowed(of)),
            Value::Array(of) => Value::Array(of.iter().map(Value::view).collect()),
            Value::Map(of) => {
                let entries = of.entries.iter();
                let entries = entries.map(|(key, value)| (Cow::Borrowed(&**key), value.view()));
                Value::Map(ValueMap { entries: entries.collect() })
            }
        }
    }

    /// Returns the value with its own texts and bytes, to outlive the message.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::JsonNull => Value::JsonNull,
            Value::Bool(of) => Value::Bool(of),
            Value::Int(of) => Value::Int(of),
            Value::Float(of) => Value::Float(of),
            Value::Text(of) => Value::Text(of.into_owned().into()),
            Value::Bytes(of) => Value::Bytes(of.into_owned().into()),
            Value::Array(of) => Value::Array(of.into_iter().map(Value::into_owned).collect()),
            Value::Map(of) => Value::Map(of.into_owned()),
        }
    }

    /// Returns the value as a number; a text counts if its trimmed content is a number.
    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Value::Int(of) => Some(Number::Int(*of)),
            Value::Float(of) => Some(Number::Float(*of)),
            Value::Text(of) => Number::parse(of.trim()),
            _ => None,
        }
    }

    /// Compares two values, if they have an order: numbers by size, texts and bytes by their bytes,
    /// and a text with a number by the number in the text.
    pub(crate) fn order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Text(one), Value::Text(two)) => Some(one.as_bytes().cmp(two.as_bytes())),
            (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
            _ => match (self.as_bytes(), other.as_bytes()) {
                (Some(one), Some(two)) => Some(one.cmp(two)),
                _ => self.number()?.order(other.number()?),
            },
        }
    }

    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Text(of) => Some(of.as_bytes()),
            Value::Bytes(of) => Some(of),
            _ => None,
        }
    }

    /// Returns the steps to visit the whole value, and the bytes of memory of all parts not
    /// borrowed.
    pub(crate) fn size(&self) -> (u64, u64) {
        let each = std::mem::size_of::<Value>() as u64;
        match self {
            Value::Text(Cow::Owned(of)) => (1 + of.len() as u64 / 64, each + of.len() as u64),
            Value::Bytes(Cow::Owned(of)) => (1 + of.len() as u64 / 64, each + of.len() as u64),
            Value::Array(of) => sum(of.iter().map(Value::size)),
            Value::Map(of) => of.size(),
            _ => (1, each),
        }
    }

    /// Appends the value as JSON. Invalid UTF-8 becomes U+FFFD; NaN and infinities become null.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Value::Null | Value::JsonNull => out.push_str("null"),
            Value::Bool(of) => out.push_str(if *of { "true" } else { "false" }),
            Value::Int(of) => {
                let _ = write!(out, "{of}");
            }
            Value::Float(of) => write_float(*of, out),
            Value::Text(of) => write_json_text(of, out),
            Value::Bytes(of) => write_json_text(&String::from_utf8_lossy(of), out),
            Value::Array(of) => {
                out.push('[');
                for (at, value) in of.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    value.write_json(out);
                }
                out.push(']');
            }
            Value::Map(of) => of.write_json(out),
        }
    }

    /// Writes the value as text, as `str()`, `||` and templates do.
    pub fn write_text(&self, out: &mut String) {
        match self {
            Value::Text(of) => out.push_str(of),
            Value::Bytes(of) => out.push_str(&String::from_utf8_lossy(of)),
            other => other.write_json(out),
        }
    }
}

fn sum(sizes: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    let each = std::mem::size_of::<Value>() as u64;
    sizes.fold((1, each), |one, two| (one.0 + two.0, one.1 + two.1))
}

/// Writes the value as JSON.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_json(&mut out);
        f.write_str(&out)
    }
}

/// Writes the map as JSON.
impl fmt::Display for ValueMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_json(&mut out);
        f.write_str(&out)
    }
}

impl<'a> ValueMap<'a> {
    pub(crate) fn with_room(entries: usize) -> ValueMap<'a> {
        ValueMap { entries: Vec::with_capacity(entries) }
    }

    /// Returns the steps to visit the whole map, and the bytes of memory of all parts not borrowed.
    pub(crate) fn size(&self) -> (u64, u64) {
        sum(self.iter().map(|(key, value)| {
            let (steps, bytes) = value.size();
            (steps, bytes + key.len() as u64 + 24)
        }))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<Value<'a>> {
        let at = self.entries.iter().position(|(name, _)| name == key)?;
        Some(std::mem::take(&mut self.entries[at].1))
    }

    pub(crate) fn into_entries(self) -> Vec<(Cow<'a, str>, Value<'a>)> {
        self.entries
    }

    /// Returns the value of a name, after inserting null for a new name.
    pub(crate) fn entry(&mut self, key: Cow<'a, str>) -> &mut Value<'a> {
        let at = self.entries.iter().position(|(name, _)| *name == key);
        let at = at.unwrap_or_else(|| {
            self.entries.push((key, Value::Null));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    pub fn put(&mut self, key: impl Into<Cow<'a, str>>, value: Value<'a>) {
        *self.entry(key.into()) = value;
    }

    /// Appends a name which the map does not have yet, without a search.
    pub(crate) fn push(&mut self, key: Cow<'a, str>, value: Value<'a>) {
        self.entries.push((key, value));
    }

    /// Returns the map with its own texts and bytes, to outlive the message.
    pub fn into_owned(self) -> ValueMap<'static> {
        let entries = self.entries.into_iter();
        let entries =
            entries.map(|(key, value)| (Cow::Owned(key.into_owned()), value.into_owned()));
        ValueMap { entries: entries.collect() }
    }

    pub fn write_json(&self, out: &mut String) {
        out.push('{');
        for (at, (key, value)) in self.entries.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            write_json_text(key, out);
            out.push(':');
            value.write_json(out);
        }
        out.push('}');
    }
}

/// A number of an operand: two integers give an integer, and a float makes both operands floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    /// Parses a number as in JSON, also with `+` or a leading dot; an integer beyond `i64` becomes
    /// a float.
    pub(crate) fn parse(text: &str) -> Option<Number> {
        let first = text.trim_start_matches(['-', '+']).bytes().next()?;
        if !first.is_ascii_digit() && first != b'.' {
            return None;
        }
        if let Ok(of) = text.parse() {
            return Some(Number::Int(of));
        }
        text.parse().ok().filter(|of: &f64| of.is_finite()).map(Number::Float)
    }

    pub(crate) fn float(self) -> f64 {
        match self {
            Number::Int(of) => of as f64,
            Number::Float(of) => of,
        }
    }

    fn order(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(one), Number::Int(two)) => Some(one.cmp(&two)),
            (one, two) => one.float().partial_cmp(&two.float()),
        }
    }

    pub(crate) fn value<'a>(self) -> Value<'a> {
        match self {
            Number::Int(of) => Value::Int(of),
            Number::Float(of) => Value::Float(of),
        }
    }
}

fn write_float(of: f64, out: &mut String) {
    if !of.is_finite() {
        out.push_str("null");
        return;
    }
    let size = of.abs();
    let _ = match size != 0.0 && !(1e-7..1e21).contains(&size) {
        true => write!(out, "{of:e}"),
        false if of.fract() == 0.0 => write!(out, "{of:.1}"),
        false => write!(out, "{of}"),
    };
}

fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[written..at]);
        out.push_str(escape);
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        }
        written = at + 1;
    }
    out.push_str(&text[written..]);
    out.push('"');
}
