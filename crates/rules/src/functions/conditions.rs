//! What a value is, and what to take in its place.

use super::{Arguments, Function, Outcome, row};
use crate::run::Frame;
use crate::value::Value;

macro_rules! is {
    ($name:literal, $says:literal, $example:expr, $pattern:pat) => {
        row($name, 1..=1, "value", $says, $example, |_, a| {
            Ok(Value::Bool(matches!(a.peek(0), $pattern)))
        })
    };
}

pub(super) const ROWS: &[Function] = &[
    row(
        "coalesce",
        1..=16,
        "value, ...",
        "The first argument that is not null.",
        ("coalesce(payload.no, 'none')", r#""none""#),
        coalesce,
    ),
    is!("is_array", "Whether it is an array.", ("is_array([1])", "true"), Value::Array(_)),
    is!("is_bool", "Whether it is true or false.", ("is_bool(1 = 1)", "true"), Value::Bool(_)),
    row(
        "is_empty",
        1..=1,
        "value",
        "Whether it is null, an empty text, array or map.",
        ("is_empty('')", "true"),
        is_empty,
    ),
    is!(
        "is_float",
        "Whether it is a number with a fraction.",
        ("is_float(1.5)", "true"),
        Value::Float(_)
    ),
    is!("is_int", "Whether it is an integer.", ("is_int(1.5)", "false"), Value::Int(_)),
    is!("is_map", "Whether it is a map.", ("is_map(flags)", "true"), Value::Map(_)),
    row(
        "is_not_null",
        1..=1,
        "value",
        "The same as IS NOT NULL.",
        ("is_not_null(topic)", "true"),
        |_, a| Ok(Value::Bool(!a.peek(0).is_null())),
    ),
    is!("is_null", "The same as IS NULL.", ("is_null(payload.no)", "true"), Value::Null),
    is!(
        "is_num",
        "Whether it is a number.",
        ("is_num(1.5)", "true"),
        Value::Int(_) | Value::Float(_)
    ),
    is!("is_str", "Whether it is text.", ("is_str(topic)", "true"), Value::Text(_)),
];

fn coalesce<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let first = (0..a.len()).find(|at| !a.peek(*at).is_null());
    Ok(first.map_or(Value::Null, |at| a.take(at)))
}

fn is_empty<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    Ok(Value::Bool(match a.peek(0) {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Map(map) => map.is_empty(),
        other => other.as_bytes().is_some_and(<[u8]>::is_empty),
    }))
}
