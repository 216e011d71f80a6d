//! Erlang's external term format for the values of rules: writes as `term_to_binary` of OTP 26, and
//! reads the corresponding part of the format.

use super::{CallArguments, EvalResult, charge_output};
use crate::budget::{Budget, RunError};
use crate::evaluation::EvalFrame;
use crate::operators::charge_json;
use crate::value::{Value, ValueMap};
use mqtt::ByteReader;
use std::borrow::Cow;

const VERSION: u8 = 131;
/// Deepest nesting of terms, the same as for JSON.
const DEPTH_MAX: u32 = 64;

pub(super) fn term_encode<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
) -> EvalResult<'a> {
    charge_json(a.peek(0), f.budget)?;
    let mut out = vec![VERSION];
    put(a.peek(0), &mut out);
    Ok(Value::of_vec(out))
}

pub(super) fn term_decode<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
) -> EvalResult<'a> {
    let bytes = a.bytes(0)?;
    f.budget.scan(bytes.len())?;
    let mut reader = ErlangTermReader { from: ByteReader::new(&bytes), budget: f.budget };
    let value = match reader.from.u8() {
        Some(VERSION) => reader.term(DEPTH_MAX)?,
        _ => None,
    };
    match value {
        Some(value) if reader.from.is_empty() => Ok(value),
        _ => a.fail("the bytes are not a term, or one that a rule has no value for"),
    }
}

fn put_len(tag: u8, len: usize, out: &mut Vec<u8>) {
    out.push(tag);
    // No value of a run has 4 GB.
    out.extend_from_slice(&(len as u32).to_be_bytes());
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_len(b'm', bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn put_atom(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&[119, name.len() as u8]);
    out.extend_from_slice(name.as_bytes());
}

fn put_int(of: i64, out: &mut Vec<u8>) {
    if let Ok(small) = u8::try_from(of) {
        out.extend_from_slice(&[97, small]);
    } else if let Ok(int) = i32::try_from(of) {
        out.push(98);
        out.extend_from_slice(&int.to_be_bytes());
    } else {
        let digits = of.unsigned_abs().to_le_bytes();
        let len = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        out.extend_from_slice(&[110, len as u8, u8::from(of < 0)]);
        out.extend_from_slice(&digits[..len]);
    }
}

fn put(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => put_atom("undefined", out),
        Value::JsonNull => put_atom("null", out),
        Value::Bool(of) => put_atom(if *of { "true" } else { "false" }, out),
        Value::Int(of) => put_int(*of, out),
        Value::Float(of) => {
            out.push(70);
            out.extend_from_slice(&of.to_bits().to_be_bytes());
        }
        Value::Text(of) => put_bytes(of.as_bytes(), out),
        Value::Bytes(of) => put_bytes(of, out),
        Value::Array(values) if values.is_empty() => out.push(106),
        Value::Array(values) => match small_integers(values) {
            Some(bytes) => {
                out.push(107);
                out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
                out.extend_from_slice(&bytes);
            }
            None => {
                put_len(108, values.len(), out);
                values.iter().for_each(|value| put(value, out));
                out.push(106);
            }
        },
        Value::Map(map) => {
            put_len(116, map.len(), out);
            for (name, value) in map.iter() {
                put_bytes(name.as_bytes(), out);
                put(value, out);
            }
        }
    }
}

/// Returns the bytes of a list of integers below 256, for STRING_EXT (tag 107), which holds at most
/// 65535.
fn small_integers(values: &[Value<'_>]) -> Option<Vec<u8>> {
    let byte = |value: &Value<'_>| match value {
        Value::Int(of) => u8::try_from(*of).ok(),
        _ => None,
    };
    if values.len() > usize::from(u16::MAX) {
        return None;
    }
    values.iter().map(byte).collect()
}

struct ErlangTermReader<'r, 'b> {
    from: ByteReader<'r>,
    budget: &'b mut Budget,
}

impl ErlangTermReader<'_, '_> {
    /// Reads one Erlang term: a tag, then the data of that tag. Returns `None` for invalid bytes,
    /// for terms nested deeper than `depth`, and for tags without a counterpart in [`Value`].
    fn term<'v>(&mut self, depth: u32) -> Result<Option<Value<'v>>, RunError> {
        self.budget.step(1)?;
        let (Some(tag), Some(deeper)) = (self.from.u8(), depth.checked_sub(1)) else {
            return Ok(None);
        };
        match tag {
            107 => self.bytes_as_list(),
            108 => self.list(deeper),
            109 => {
                let Some(bytes) = self.from.vector_be(4) else { return Ok(None) };
                charge_output(self.budget, bytes.len())?;
                Ok(Some(Value::of_vec(bytes.to_vec())))
            }
            116 => self.map(deeper),
            tag => Ok(self.simple(tag)),
        }
    }

    fn simple<'v>(&mut self, tag: u8) -> Option<Value<'v>> {
        Some(match tag {
            70 => Value::Float(self.from.array().map(f64::from_be_bytes)?).finite()?,
            97 => Value::Int(i64::from(self.from.u8()?)),
            98 => Value::Int(self.from.array().map(i32::from_be_bytes)?.into()),
            100 | 118 => atom(self.from.vector_be(2)?),
            106 => Value::Array(Vec::new()),
            110 => {
                let (len, sign) = (self.from.u8()?, self.from.u8()?);
                let digits = self.from.bytes(len.into())?;
                let large = digits.iter().skip(8).any(|digit| *digit != 0);
                let size = digits.iter().take(8).rev();
                let size = size.fold(0, |size: i128, digit| size << 8 | i128::from(*digit));
                let size = if sign == 0 { size } else { -size };
                Value::Int(i64::try_from(size).ok().filter(|_| !large)?)
            }
            115 | 119 => atom(self.from.vector_be(1)?),
            _ => return None,
        })
    }

    fn bytes_as_list<'v>(&mut self) -> Result<Option<Value<'v>>, RunError> {
        let Some(bytes) = self.from.vector_be(2) else { return Ok(None) };
        charge_output(self.budget, bytes.len() * size_of::<Value<'_>>())?;
        Ok(Some(Value::Array(bytes.iter().map(|byte| Value::Int(i64::from(*byte))).collect())))
    }

    /// Reads the number of elements, each of which takes at least a byte.
    fn count(&mut self) -> Option<usize> {
        let count = self.from.u32_be()? as usize;
        (count <= self.from.rest().len()).then_some(count)
    }

    fn list<'v>(&mut self, depth: u32) -> Result<Option<Value<'v>>, RunError> {
        let Some(count) = self.count() else { return Ok(None) };
        charge_output(self.budget, count * size_of::<Value<'_>>())?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(value) = self.term(depth)? else { return Ok(None) };
            values.push(value);
        }
        // The end of a proper list is an empty list.
        Ok((self.from.u8() == Some(106)).then_some(Value::Array(values)))
    }

    fn map<'v>(&mut self, depth: u32) -> Result<Option<Value<'v>>, RunError> {
        let Some(count) = self.count() else { return Ok(None) };
        charge_output(self.budget, count * 2 * size_of::<Value<'_>>())?;
        let mut map = ValueMap::with_room(count);
        for _ in 0..count {
            let name = match self.term(depth)? {
                Some(Value::Text(name)) => name,
                _ => return Ok(None),
            };
            let Some(value) = self.term(depth)? else { return Ok(None) };
            map.push(Cow::Owned(name.into_owned()), value);
        }
        Ok(Some(Value::Map(map)))
    }
}

fn atom<'v>(name: &[u8]) -> Value<'v> {
    match name {
        b"undefined" => Value::Null,
        b"null" => Value::JsonNull,
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        name => Value::Text(String::from_utf8_lossy(name).into_owned().into()),
    }
}

impl Value<'_> {
    /// Returns the value; `None` for NaN and infinities, which JSON does not have.
    fn finite(self) -> Option<Self> {
        match self {
            Value::Float(of) if !of.is_finite() => None,
            other => Some(other),
        }
    }
}
