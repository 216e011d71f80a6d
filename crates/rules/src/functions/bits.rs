//! Bits of integers and of bytes.

use super::{Arguments, Function, Outcome, room, row};
use crate::run::Frame;
use crate::value::Value;

pub(super) const ROWS: &[Function] = &[
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
        "So many bits from a place on, which is counted from 1; the type is `integer`, `float` or \
         `bits`, the sign `unsigned` or `signed`, the order `big` or `little`; null where there \
         are not so many bits, or more than 64 for a number.",
        ("subbits('abc', 9, 16, 'integer', 'signed', 'little')", "25442"),
        subbits,
    ),
];

fn shift<'a>(a: &Arguments<'_, 'a>, at: usize, direction: i64) -> Outcome<'a> {
    let (of, count) = (a.int(at)?, a.int(at + 1)?.saturating_mul(direction));
    let places = u32::try_from(count.unsigned_abs()).unwrap_or(u32::MAX);
    if count <= 0 {
        return Ok(Value::Int(of.checked_shr(places).unwrap_or(if of < 0 { -1 } else { 0 })));
    }
    // What would not come back is an overflow, and not another number.
    let shifted = of.checked_shl(places).filter(|shifted| shifted >> places == of);
    match shifted {
        _ if of == 0 => Ok(Value::Int(0)),
        Some(shifted) => Ok(Value::Int(shifted)),
        None => a.no("overflow"),
    }
}

fn subbits<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let (start, len) = if a.len() == 2 { (1, a.size(1)?) } else { (a.size(1)?, a.size(2)?) };
    let word = |at: usize, words: &[&str], wants| match a.len() > at {
        true => a.word(at, words, wants),
        false => Ok(0),
    };
    let kind = word(3, &["integer", "float", "bits"], "'integer', 'float' or 'bits'")?;
    let signed = word(4, &["unsigned", "signed"], "'unsigned' or 'signed'")? == 1;
    let little = word(5, &["big", "little"], "'big' or 'little'")? == 1;
    let bytes = a.bytes(0)?;
    let Some(first) = start.checked_sub(1) else { return Ok(Value::Null) };
    let end = first.saturating_add(len);
    if end > bytes.len() * 8 || (kind != 2 && len > 64) {
        return Ok(Value::Null);
    }
    room(f.budget, len / 8 + 1)?;
    f.budget.step(len as u64)?;
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    if kind == 2 {
        let whole: Vec<usize> = (first..end).step_by(8).collect();
        let byte = |from: &usize| {
            let last = (*from + 8).min(end);
            (*from..last).fold(0, |byte, at| byte << 1 | bit(at)) << (*from + 8 - last)
        };
        return Ok(Value::of_vec(whole.iter().map(byte).collect()));
    }
    let mut number = (first..end).fold(0u64, |number, at| number << 1 | u64::from(bit(at)));
    if little && len % 8 == 0 && len > 0 {
        number = number.swap_bytes() >> (64 - len);
    }
    Ok(match (kind, len) {
        (1, 32) => Value::Float(f64::from(f32::from_bits(number as u32))),
        (1, 64) => Value::Float(f64::from_bits(number)),
        (1, _) => return a.no("a float has 32 or 64 bits"),
        (_, 0) => Value::Int(0),
        _ if signed => Value::Int((number << (64 - len)) as i64 >> (64 - len)),
        _ => match i64::try_from(number) {
            Ok(number) => Value::Int(number),
            Err(_) => return a.no("overflow"),
        },
    })
}
