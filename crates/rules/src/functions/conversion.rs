//! One kind of value into another.

use super::maths::to_int;
use super::{Arguments, Function, Outcome, room, row};
use crate::json::{Place, Tape};
use crate::operate::write_text;
use crate::run::Frame;
use crate::value::{Number, Value};

pub(super) const ROWS: &[Function] = &[
    row(
        "bool",
        1..=1,
        "value",
        "true or false of a boolean, of 1 and 0, and of the texts `true` and `false`.",
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
        "A number as text with at most so many decimals.",
        ("float2str(20.2, 5)", r#""20.2""#),
        float2str,
    ),
    row(
        "int",
        1..=1,
        "value",
        "A number without its fraction, the number that a text says, or 1 and 0 of a boolean.",
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
        "Any value as text, arrays and maps as JSON.",
        ("str([1, 'a'])", r#""[1,\"a\"]""#),
        str,
    ),
    row(
        "str_utf8",
        1..=1,
        "value",
        "The same as `str`; bytes that are no character are marked as such.",
        ("str_utf8(12)", r#""12""#),
        str,
    ),
];

fn bool<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    match a.peek(0) {
        Value::Bool(of) => Ok(Value::Bool(*of)),
        Value::Int(of @ (0 | 1)) => Ok(Value::Bool(*of == 1)),
        Value::Text(text) if text == "true" || text == "false" => Ok(Value::Bool(text == "true")),
        _ => a.wants(0, "a boolean, 0, 1, 'true' or 'false'"),
    }
}

fn float<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let Some(of) = a.peek(0).number() else { return a.wants(0, "a number or its text") };
    let of = of.float();
    if a.len() == 1 {
        return Ok(Value::Float(of));
    }
    let decimals = decimals(a)?;
    let rounded = format!("{of:.decimals$}").parse().unwrap_or(of);
    Ok(Value::Float(rounded))
}

/// More than a float can tell apart would only be zeros.
fn decimals(a: &Arguments<'_, '_>) -> Result<usize, crate::Failed> {
    match a.size(1)? {
        decimals @ 0..=17 => Ok(decimals),
        _ => a.wants(1, "a number of decimals from 0 to 17"),
    }
}

fn float2str<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let decimals = decimals(a)?;
    let of = a.number(0)?.float();
    // The largest float has 309 digits.
    room(f.budget, 330)?;
    let text = format!("{of:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    Ok(Value::Text(text.to_string().into()))
}

fn int<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    if let Value::Bool(of) = a.peek(0) {
        return Ok(Value::Int(i64::from(*of)));
    }
    match a.peek(0).number() {
        Some(Number::Int(of)) => Ok(Value::Int(of)),
        Some(Number::Float(of)) => to_int(of.trunc()).map_or_else(|| a.no("overflow"), Ok),
        None => a.wants(0, "a number, its text or a boolean"),
    }
}

fn map<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    match a.peek(0) {
        Value::Map(_) => Ok(a.take(0)),
        _ => match json(f, a)? {
            map @ Value::Map(_) => Ok(map),
            _ => a.no("the text is no map"),
        },
    }
}

/// What a JSON text says; of a text that stands in the message or the plan nothing is copied.
pub(super) fn json<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.bytes(0)?;
    let value = match &text {
        std::borrow::Cow::Borrowed(bytes) => match Tape::read(bytes, f.budget)? {
            Some(tape) => Some(tape.value(Place::ROOT, f.budget)?),
            None => None,
        },
        std::borrow::Cow::Owned(bytes) => match Tape::read(bytes, f.budget)? {
            Some(tape) => {
                let value = tape.value(Place::ROOT, f.budget)?;
                let (steps, bytes) = value.size();
                f.budget.step(steps)?;
                f.budget.take(bytes as usize + text.len())?;
                Some(value.into_owned())
            }
            None => None,
        },
    };
    value.map_or_else(|| a.no("the text is no JSON"), Ok)
}

fn str<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    if let Value::Text(_) = a.peek(0) {
        return Ok(a.take(0));
    }
    let mut out = String::new();
    write_text(a.peek(0), &mut out, f.budget)?;
    Ok(Value::Text(out.into()))
}
