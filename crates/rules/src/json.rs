//! Indexes JSON text in one pass: where each value begins and ends, and where the next value
//! starts. A path follows these indexes, and only a selected value becomes a [`Value`].

use crate::budget::{Budget, RunError};
use crate::value::{Number, Value, ValueMap};
use std::borrow::Cow;

/// Deepest nesting of arrays and maps; a deeper document does not count as JSON.
const DEPTH_MAX: u32 = 64;

/// All values of a document in text order, each key of a map before its value. [`JsonTape::read`]
/// has validated the whole document.
pub(crate) struct JsonTape<'a> {
    text: &'a str,
    nodes: Vec<JsonNode>,
}

#[derive(Clone, Copy)]
struct JsonNode {
    kind: JsonKind,
    start: u32,
    end: u32,
    /// Index of the first node outside of this value.
    next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonKind {
    Array,
    /// Text with escapes; `start` and `end` exclude the quotes.
    Escaped,
    False,
    Map,
    Null,
    Number,
    Text,
    True,
}

/// Index of a value in a [`JsonTape`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapeIndex(u32);

impl TapeIndex {
    pub(crate) const ROOT: TapeIndex = TapeIndex(0);
}

impl<'a> JsonTape<'a> {
    /// Reads a document. `None` for bytes which are not UTF-8 or not JSON, and for 4 GiB or more.
    pub(crate) fn read(
        bytes: &'a [u8],
        budget: &mut Budget,
    ) -> Result<Option<JsonTape<'a>>, RunError> {
        budget.scan(bytes.len())?;
        let Ok(text) = std::str::from_utf8(bytes) else { return Ok(None) };
        if u32::try_from(bytes.len()).is_err() {
            return Ok(None);
        }
        let each = size_of::<JsonNode>();
        let room = usize::try_from(budget.bytes).unwrap_or(usize::MAX) / each;
        let nodes = Vec::with_capacity((bytes.len() / 8).min(64));
        let mut reader = JsonReader { bytes, at: 0, nodes, room };
        let read = reader.value(0).and_then(|()| reader.end());
        let nodes = reader.nodes;
        budget.step(nodes.len() as u64 / 2)?;
        budget.take(nodes.len() * each)?;
        match read {
            Ok(()) => Ok(Some(JsonTape { text, nodes })),
            Err(JsonError::Full) => Err(RunError::Bytes),
            Err(JsonError::NotJson) => Ok(None),
        }
    }

    fn node(&self, at: TapeIndex) -> JsonNode {
        self.nodes[at.0 as usize]
    }

    fn slice(&self, node: JsonNode) -> &'a str {
        self.text.get(node.start as usize..node.end as usize).unwrap_or("")
    }

    pub(crate) fn is_text(&self, at: TapeIndex) -> bool {
        matches!(self.node(at).kind, JsonKind::Escaped | JsonKind::Text)
    }

    /// Returns the value of a map under a key; `None` for values other than maps.
    pub(crate) fn find_key(
        &self,
        map: TapeIndex,
        key: &str,
        budget: &mut Budget,
    ) -> Result<Option<TapeIndex>, RunError> {
        let node = self.node(map);
        if node.kind != JsonKind::Map {
            return Ok(None);
        }
        let (mut at, mut seen) = (map.0 + 1, 0);
        while at < node.next {
            let name = self.nodes[at as usize];
            let same = match name.kind {
                JsonKind::Escaped => {
                    seen += self.slice(name).len() as u64 / 4;
                    unescape(self.slice(name)) == key
                }
                _ => self.slice(name) == key,
            };
            if same {
                budget.step(seen / 4)?;
                return Ok(Some(TapeIndex(name.next)));
            }
            at = self.nodes[name.next as usize].next;
            seen += 1;
        }
        budget.step(seen / 4)?;
        Ok(None)
    }

    /// Iterates over the values of an array; empty for values other than arrays.
    pub(crate) fn elements(&self, array: TapeIndex) -> impl Iterator<Item = TapeIndex> {
        let node = self.node(array);
        let end = if node.kind == JsonKind::Array { node.next } else { 0 };
        let mut at = array.0 + 1;
        std::iter::from_fn(move || {
            let place = (at < end).then_some(TapeIndex(at))?;
            at = self.nodes[at as usize].next;
            Some(place)
        })
    }

    /// Converts the value at `at` into a [`Value`]; text without escapes is borrowed.
    pub(crate) fn value(&self, at: TapeIndex, budget: &mut Budget) -> Result<Value<'a>, RunError> {
        let node = self.node(at);
        Ok(match node.kind {
            JsonKind::Null => Value::JsonNull,
            JsonKind::True => Value::Bool(true),
            JsonKind::False => Value::Bool(false),
            JsonKind::Number => Number::parse(self.slice(node)).map_or(Value::Null, Number::value),
            JsonKind::Text => Value::text(self.slice(node)),
            JsonKind::Escaped => {
                let text = self.slice(node);
                budget.take(text.len())?;
                Value::Text(unescape(text).into())
            }
            JsonKind::Array => {
                let count = self.elements(at).count();
                budget.step(count as u64)?;
                budget.take(count * size_of::<Value>())?;
                let mut values = Vec::with_capacity(count);
                for place in self.elements(at) {
                    values.push(self.value(place, budget)?);
                }
                Value::Array(values)
            }
            JsonKind::Map => Value::Map(self.map(at, budget)?),
        })
    }

    fn map(&self, at: TapeIndex, budget: &mut Budget) -> Result<ValueMap<'a>, RunError> {
        let end = self.node(at).next;
        let mut entries = 0;
        let mut key = at.0 + 1;
        while key < end {
            key = self.nodes[self.nodes[key as usize].next as usize].next;
            entries += 1;
        }
        budget.step(entries as u64)?;
        budget.take(entries * size_of::<(Cow<'_, str>, Value<'_>)>())?;
        let mut map = ValueMap::with_room(entries);
        let mut key = at.0 + 1;
        while key < end {
            let name = self.nodes[key as usize];
            let value = self.value(TapeIndex(name.next), budget)?;
            let name_text = match name.kind {
                JsonKind::Escaped => {
                    budget.take(self.slice(name).len())?;
                    Cow::Owned(unescape(self.slice(name)))
                }
                _ => Cow::Borrowed(self.slice(name)),
            };
            map.push(name_text, value);
            key = self.nodes[name.next as usize].next;
        }
        Ok(map)
    }
}

/// Why [`JsonReader`] stops before the end.
enum JsonError {
    /// The document has more values than the budget has memory for.
    Full,
    NotJson,
}

struct JsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<JsonNode>,
    /// Number of nodes which may still be added.
    room: usize,
}

impl JsonReader<'_> {
    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<(), JsonError> {
        self.skip_blanks();
        if self.at == self.bytes.len() { Ok(()) } else { Err(JsonError::NotJson) }
    }

    fn peek(&mut self) -> Result<u8, JsonError> {
        self.skip_blanks();
        self.bytes.get(self.at).copied().ok_or(JsonError::NotJson)
    }

    fn push(&mut self, kind: JsonKind, start: usize, end: usize) -> Result<(), JsonError> {
        if self.nodes.len() >= self.room {
            return Err(JsonError::Full);
        }
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(JsonNode { kind, start: start as u32, end: end as u32, next });
        Ok(())
    }

    fn value(&mut self, depth: u32) -> Result<(), JsonError> {
        match self.peek()? {
            b'"' => self.text(),
            b'{' => self.container(JsonKind::Map, b'}', depth),
            b'[' => self.container(JsonKind::Array, b']', depth),
            b't' => self.literal(b"true", JsonKind::True),
            b'f' => self.literal(b"false", JsonKind::False),
            b'n' => self.literal(b"null", JsonKind::Null),
            _ => self.number(),
        }
    }

    fn container(&mut self, kind: JsonKind, close: u8, depth: u32) -> Result<(), JsonError> {
        if depth == DEPTH_MAX {
            return Err(JsonError::NotJson);
        }
        let own = self.nodes.len();
        self.push(kind, self.at, self.at)?;
        self.at += 1;
        if self.peek()? == close {
            self.at += 1;
        } else {
            loop {
                if kind == JsonKind::Map {
                    if self.peek()? != b'"' {
                        return Err(JsonError::NotJson);
                    }
                    self.text()?;
                    if self.peek()? != b':' {
                        return Err(JsonError::NotJson);
                    }
                    self.at += 1;
                }
                self.value(depth + 1)?;
                let after = self.peek()?;
                self.at += 1;
                if after == close {
                    break;
                }
                if after != b',' {
                    return Err(JsonError::NotJson);
                }
            }
        }
        self.nodes[own].end = self.at as u32;
        self.nodes[own].next = self.nodes.len() as u32;
        Ok(())
    }

    fn literal(&mut self, word: &[u8], kind: JsonKind) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(JsonError::NotJson);
        }
        self.push(kind, self.at, self.at + word.len())?;
        self.at += word.len();
        Ok(())
    }

    fn text(&mut self) -> Result<(), JsonError> {
        let start = self.at + 1;
        let mut kind = JsonKind::Text;
        let mut at = start;
        loop {
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    kind = JsonKind::Escaped;
                    at += escape_len(&self.bytes[at..]).ok_or(JsonError::NotJson)?;
                }
                Some(0x20..) => at += 1,
                _ => return Err(JsonError::NotJson),
            }
        }
        self.at = at + 1;
        self.push(kind, start, at)
    }

    /// Reads a number: an optional `-`, digits without a leading zero, a fraction, an exponent.
    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        let byte = |at: usize| self.bytes.get(at).copied().unwrap_or(0);
        let digits = |mut at: usize| {
            let first = at;
            while byte(at).is_ascii_digit() {
                at += 1;
            }
            if at > first { Ok(at) } else { Err(JsonError::NotJson) }
        };
        let mut at = start + usize::from(byte(start) == b'-');
        at = if byte(at) == b'0' { at + 1 } else { digits(at)? };
        if byte(at) == b'.' {
            at = digits(at + 1)?;
        }
        if let b'e' | b'E' = byte(at) {
            at = digits(at + 1 + usize::from(matches!(byte(at + 1), b'+' | b'-')))?;
        }
        self.at = at;
        self.push(JsonKind::Number, start, at)
    }
}

/// Returns the length of the escape sequence after a backslash at the start; `None` if invalid.
fn escape_len(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => bytes.get(2..6)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// Decodes a validated text with escapes. Half of a surrogate pair becomes U+FFFD.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (c, len) = match after.as_bytes().first() {
            Some(b'u') => surrogates(after),
            Some(b'b') => ('\u{8}', 1),
            Some(b'f') => ('\u{c}', 1),
            Some(b'n') => ('\n', 1),
            Some(b'r') => ('\r', 1),
            Some(b't') => ('\t', 1),
            other => (other.map_or('\\', |byte| char::from(*byte)), 1),
        };
        out.push(c);
        rest = after.get(len..).unwrap_or("");
    }
    out.push_str(rest);
    out
}

/// Decodes `uXXXX`, together with a second `\uXXXX` if both form a surrogate pair. Returns the
/// length read.
fn surrogates(text: &str) -> (char, usize) {
    let unit = |text: Option<&str>| text.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let first = unit(text.get(1..5)).unwrap_or(0xfffd);
    if (0xd800..0xdc00).contains(&first) && text.get(5..7) == Some("\\u") {
        let second = unit(text.get(7..11)).unwrap_or(0);
        if (0xdc00..0xe000).contains(&second) {
            let pair = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return (char::from_u32(pair).unwrap_or('\u{fffd}'), 11);
        }
    }
    (char::from_u32(first).unwrap_or('\u{fffd}'), 5)
}
