//! Conversion between kinds of values.

use super::maths::to_int;
use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::evaluation::EvalFrame;
use crate::json::{JsonTape, TapeIndex};
use crate::operators::{FLOAT_DIGITS_MAX, decimal, write_string};
use crate::value::{Number, Value, ValueMap};

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "bool",
        1..=1,
        "value",
        "true or false of a boolean, of the numbers 1 and 0, and of the texts `true` and `false`.",
        ("bool('true')", "true"),
        bool,
    ),
    row(
        "float",
        1..=2,
        "value[, decimals]",
        "A number, or the number that a text says, as a float; rounded to so many decimals.",
        ("float('3.14159', 2)", "3.14"),
        float,
    ),
    row(
        "float2str",
        2..=2,
        "number, decimals",
        "A number as text with at most so many decimals, 253 at most.",
        ("float2str(20.2, 5)", r#""20.2""#),
        float2str,
    ),
    row(
        "int",
        1..=1,
        "value",
        "The next integer below a number, or below the one that a text says; 1 and 0 of a boolean.",
        ("int('42.7')", "42"),
        int,
    ),
    row(
        "map",
        1..=1,
        "value",
        "A map as it is, or the map that a JSON text says.",
        (r#"map('{"a": 1}')"#, r#"{"a":1}"#),
        map,
    ),
    row(
        "str",
        1..=1,
        "value",
        "Any value as text: a float with at most ten decimals, arrays and maps as JSON, \
         `undefined` \
         of what is not there.",
        ("str([1, 'a'])", r#""[1,\"a\"]""#),
        str,
    ),
    row(
        "str_utf16_le",
        1..=1,
        "value",
        "The same as bytes of UTF-16, the low byte first.",
        ("bin2hexstr(str_utf16_le('hi'))", r#""68006900""#),
        str_utf16_le,
    ),
    row(
        "str_utf8",
        1..=1,
        "value",
        "The same as `str`; bytes that are not a character are marked as such.",
        ("str_utf8(12)", r#""12""#),
        str,
    ),
];

fn bool<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    match a.peek(0) {
        Value::Bool(of) => Ok(Value::Bool(*of)),
        Value::Int(of @ (0 | 1)) => Ok(Value::Bool(*of == 1)),
        Value::Float(of) if *of == 0.0 || *of == 1.0 => Ok(Value::Bool(*of == 1.0)),
        Value::Text(text) if text == "true" || text == "false" => Ok(Value::Bool(text == "true")),
        _ => a.type_error(0, "a boolean, 0, 1, 'true' or 'false'"),
    }
}

fn float<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let Some(of) = a.peek(0).number() else { return a.type_error(0, "a number or its text") };
    let of = of.float();
    if a.len() == 1 {
        return Ok(Value::Float(of));
    }
    if a.int(1)? == 0 {
        return a.type_error(1, "a number of decimals from 1 to 253");
    }
    let decimals = decimals(a)?;
    f.budget.step(FLOAT_DIGITS_MAX as u64 / 8)?;
    let rounded = decimal(of, decimals).parse().unwrap_or(of);
    Ok(Value::Float(rounded))
}

fn decimals(a: &CallArguments<'_, '_>) -> Result<usize, crate::RunError> {
    match a.size(1)? {
        decimals @ 0..=253 => Ok(decimals),
        _ => a.type_error(1, "a number of decimals from 0 to 253"),
    }
}

fn float2str<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let decimals = decimals(a)?;
    let of = a.number(0)?.float();
    charge_output(f.budget, FLOAT_DIGITS_MAX)?;
    Ok(Value::Text(decimal(of, decimals).into()))
}

fn int<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    if let Value::Bool(of) = a.peek(0) {
        return Ok(Value::Int(i64::from(*of)));
    }
    match a.peek(0).number() {
        Some(Number::Int(of)) => Ok(Value::Int(of)),
        Some(Number::Float(of)) => to_int(of.floor()).map_or_else(|| a.fail("overflow"), Ok),
        None => a.type_error(0, "a number, its text or a boolean"),
    }
}

fn map<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    match a.peek(0) {
        Value::Map(_) => Ok(a.take(0)),
        Value::Array(values) if values.is_empty() => Ok(Value::Map(ValueMap::default())),
        _ => match json(f, a)? {
            map @ Value::Map(_) => Ok(map),
            _ => a.fail("the text is not a map"),
        },
    }
}

/// Parses JSON text. A text in the message or in the plan is not copied.
pub(super) fn json<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let text = a.bytes(0)?;
    let value = match &text {
        std::borrow::Cow::Borrowed(bytes) => match JsonTape::read(bytes, f.budget)? {
            Some(tape) => Some(tape.value(TapeIndex::ROOT, f.budget)?),
            None => None,
        },
        std::borrow::Cow::Owned(bytes) => match JsonTape::read(bytes, f.budget)? {
            Some(tape) => {
                let value = tape.value(TapeIndex::ROOT, f.budget)?;
                let (steps, bytes) = value.size();
                f.budget.step(steps)?;
                f.budget.take(bytes as usize + text.len())?;
                Some(value.into_owned())
            }
            None => None,
        },
    };
    value.map_or_else(|| a.fail("the text is not JSON"), Ok)
}

fn str<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    if let Value::Text(_) = a.peek(0) {
        return Ok(a.take(0));
    }
    let mut out = String::new();
    write_string(a.peek(0), &mut out, f.budget)?;
    Ok(Value::Text(out.into()))
}

fn str_utf16_le<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let mut text = String::new();
    write_string(a.peek(0), &mut text, f.budget)?;
    charge_output(f.budget, 2 * text.len())?;
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    Ok(Value::of_vec(bytes))
}
