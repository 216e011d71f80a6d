//! Functions of the bits of integers and bytes.

use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::evaluation::EvalFrame;
use crate::value::Value;

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "bitand",
        2..=2,
        "integer, integer",
        "Bits that both have.",
        ("bitand(10, 8)", "8"),
        |_, a| Ok(Value::Int(a.int(0)? & a.int(1)?)),
    ),
    row(
        "bitnot",
        1..=1,
        "integer",
        "Bits that it does not have.",
        ("bitnot(10)", "-11"),
        |_, a| Ok(Value::Int(!a.int(0)?)),
    ),
    row(
        "bitor",
        2..=2,
        "integer, integer",
        "Bits that either has.",
        ("bitor(10, 8)", "10"),
        |_, a| Ok(Value::Int(a.int(0)? | a.int(1)?)),
    ),
    row(
        "bitsize",
        1..=1,
        "text",
        "How many bits text or bytes have.",
        ("bitsize('abc')", "24"),
        |_, a| Ok(Value::Int(8 * a.bytes(0)?.len() as i64)),
    ),
    row("bitsl", 2..=2, "integer, count", "Shifted to the left.", ("bitsl(8, 2)", "32"), |_, a| {
        shift(a, 0, 1)
    }),
    row("bitsr", 2..=2, "integer, count", "Shifted to the right.", ("bitsr(8, 2)", "2"), |_, a| {
        shift(a, 0, -1)
    }),
    row(
        "bitxor",
        2..=2,
        "integer, integer",
        "Bits that one of both has.",
        ("bitxor(10, 8)", "2"),
        |_, a| Ok(Value::Int(a.int(0)? ^ a.int(1)?)),
    ),
    row(
        "bytesize",
        1..=1,
        "text",
        "How many bytes text or bytes have.",
        ("bytesize('abc')", "3"),
        |_, a| Ok(Value::Int(a.bytes(0)?.len() as i64)),
    ),
    row(
        "subbits",
        2..=6,
        "bytes, [start, ]length[, type[, sign[, order]]]",
        "So many bits from a place on, which is counted from 1, or as many as there are; the \
         type is \
         `integer`, `float` (16, 32 or 64 bits) or `bits`, the sign `unsigned` or `signed`, the \
         order `big` or `little`; null where nothing is at the place.",
        ("subbits('abc', 9, 16, 'integer', 'signed', 'little')", "25442"),
        subbits,
    ),
];

fn shift<'a>(a: &CallArguments<'_, 'a>, at: usize, direction: i64) -> EvalResult<'a> {
    let (of, count) = (a.int(at)?, a.int(at + 1)?.saturating_mul(direction));
    let places = u32::try_from(count.unsigned_abs()).unwrap_or(u32::MAX);
    if count <= 0 {
        return Ok(Value::Int(of.checked_shr(places).unwrap_or(if of < 0 { -1 } else { 0 })));
    }
    // A shift that loses bits is an overflow, and not another number.
    let shifted = of.checked_shl(places).filter(|shifted| shifted >> places == of);
    match shifted {
        _ if of == 0 => Ok(Value::Int(0)),
        Some(shifted) => Ok(Value::Int(shifted)),
        None => a.fail("overflow"),
    }
}

fn subbits<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (start, len) = if a.len() == 2 { (1, a.int(1)?) } else { (a.int(1)?, a.int(2)?) };
    let word = |at: usize, words: &[&str], wants| match a.len() > at {
        true => a.keyword(at, words, wants),
        false => Ok(0),
    };
    let kind = word(3, &["integer", "float", "bits"], "'integer', 'float' or 'bits'")?;
    let is_signed = word(4, &["unsigned", "signed"], "'unsigned' or 'signed'")? == 1;
    let is_little = word(5, &["big", "little"], "'big' or 'little'")? == 1;
    let bytes = a.bytes(0)?;
    let all = bytes.len() * 8;
    let first = usize::try_from(start).ok().and_then(|start| start.checked_sub(1));
    let Some(first) = first.filter(|first| *first < all) else { return Ok(Value::Null) };
    // If fewer bits are left, or the length is negative, the rest is taken.
    let left = all - first;
    let len = usize::try_from(len).ok().filter(|len| *len <= left).unwrap_or(left);
    charge_output(f.budget, len / 8 + 1)?;
    f.budget.step(len as u64)?;
    let range = BitRange { bytes: &bytes, first, len };
    match kind {
        2 => Ok(Value::of_vec(range.aligned())),
        _ if len > 64 => a.fail("a number has at most 64 bits"),
        1 => match range.float(is_little).filter(|of| of.is_finite()) {
            Some(of) => Ok(Value::Float(of)),
            None => a.fail("a float has 16, 32 or 64 bits, and is a number"),
        },
        _ => {
            let number = range.number(is_little);
            let of = match is_signed && len > 0 {
                true => Some((number << (64 - len)) as i64 >> (64 - len)),
                false => i64::try_from(number).ok(),
            };
            of.map_or_else(|| a.fail("overflow"), |of| Ok(Value::Int(of)))
        }
    }
}

/// A range of bits within `bytes`, never beyond the end.
struct BitRange<'b> {
    bytes: &'b [u8],
    first: usize,
    len: usize,
}

impl BitRange<'_> {
    fn bit(&self, at: usize) -> u8 {
        self.bytes[at / 8] >> (7 - at % 8) & 1
    }

    /// Iterates over octets, each with its number of bits: eight, or fewer in the last.
    fn octets(&self) -> impl DoubleEndedIterator<Item = (u64, usize)> {
        let end = self.first + self.len;
        (0..self.len.div_ceil(8)).map(move |at| {
            let from = self.first + 8 * at;
            let to = (from + 8).min(end);
            let octet = (from..to).fold(0, |octet, at| octet << 1 | u64::from(self.bit(at)));
            (octet, to - from)
        })
    }

    /// Returns a range of at most 64 bits as a number. In little order the last octet is the
    /// highest.
    fn number(&self, is_little: bool) -> u64 {
        let join = |number: u64, (octet, bits): (u64, usize)| {
            number.checked_shl(bits as u32).unwrap_or(0) | octet
        };
        match is_little {
            true => self.octets().rev().fold(0, join),
            false => self.octets().fold(0, join),
        }
    }

    fn float(&self, is_little: bool) -> Option<f64> {
        let number = self.number(is_little);
        match self.len {
            16 => Some(half(number as u16)),
            32 => Some(f64::from(f32::from_bits(number as u32))),
            64 => Some(f64::from_bits(number)),
            _ => None,
        }
    }

    /// Returns the bits as bytes, with leading zeros up to a whole number of bytes.
    fn aligned(&self) -> Vec<u8> {
        let missing = (8 - self.len % 8) % 8;
        let mut out = vec![0; self.len.div_ceil(8)];
        for at in 0..self.len {
            let to = missing + at;
            out[to / 8] |= self.bit(self.first + at) << (7 - to % 8);
        }
        out
    }
}

/// Converts a binary16 of IEEE 754.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    match exponent {
        0 => sign * fraction * 2_f64.powi(-14),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}
