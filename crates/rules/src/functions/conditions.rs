//! Tests of the kind of a value, and defaults for missing values.

use super::{CallArguments, EvalResult, RuleFunction, row};
use crate::budget::{Budget, RunError};
use crate::equality::EqualityMode;
use crate::evaluation::EvalFrame;
use crate::value::Value;

macro_rules! is {
    ($name:literal, $says:literal, $example:expr, $pattern:pat) => {
        row($name, 1..=1, "value", $says, $example, |_, a| {
            Ok(Value::Bool(matches!(a.peek(0), $pattern)))
        })
    };
}

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "coalesce",
        1..=16,
        "value, ...",
        "The first argument that is there, or the first element of one array; JSON's null is \
         there.",
        ("coalesce(payload.no, 'none')", r#""none""#),
        |f, a| first_wanted(f.budget, a, |value| !value.is_absent()),
    ),
    row(
        "coalesce_ne",
        1..=16,
        "value, ...",
        "The same for the first that is not an empty text either.",
        ("coalesce_ne(payload.no, '', 'none')", r#""none""#),
        |f, a| first_wanted(f.budget, a, is_non_empty),
    ),
    row(
        "eq",
        2..=2,
        "value, value",
        "Whether both are the same, where a text is not a number: `'1' = 1`, but not `eq('1', 1)`.",
        ("eq(1, 1.0)", "true"),
        |f, a| {
            let same = a.peek(0).is_same(a.peek(1), EqualityMode::Numeric, f.budget)?;
            Ok(Value::Bool(same))
        },
    ),
    is!("is_array", "Whether it is an array.", ("is_array([1])", "true"), Value::Array(_)),
    is!("is_bool", "Whether it is true or false.", ("is_bool(1 = 1)", "true"), Value::Bool(_)),
    row(
        "is_empty",
        1..=1,
        "value",
        "Whether it is an array or a map without elements, a JSON text of such a one, or an empty \
         text.",
        ("is_empty('{}')", "true"),
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
        "Whether it is there, JSON's null among it; `IS NOT NULL` and `is_not_null_var` tell both.",
        ("is_not_null(topic)", "true"),
        |_, a| Ok(Value::Bool(!a.peek(0).is_absent())),
    ),
    row(
        "is_not_null_var",
        1..=1,
        "value",
        "The same as IS NOT NULL: whether it is there and not JSON's null.",
        ("is_not_null_var(topic)", "true"),
        |_, a| Ok(Value::Bool(!a.peek(0).is_null())),
    ),
    row(
        "is_null",
        1..=1,
        "value",
        "Whether it is not there; JSON's null is. `IS NULL` and `is_null_var` tell both.",
        ("is_null(payload.no)", "true"),
        |_, a| Ok(Value::Bool(a.peek(0).is_absent())),
    ),
    row(
        "is_null_var",
        1..=1,
        "value",
        "The same as IS NULL: whether it is not there, or JSON's null.",
        ("is_null_var(json_decode('null'))", "true"),
        |_, a| Ok(Value::Bool(a.peek(0).is_null())),
    ),
    is!(
        "is_num",
        "Whether it is a number.",
        ("is_num(1.5)", "true"),
        Value::Int(_) | Value::Float(_)
    ),
    is!(
        "is_str",
        "Whether it is text or bytes.",
        ("is_str(topic)", "true"),
        Value::Text(_) | Value::Bytes(_)
    ),
    row("null", 0..=0, "", "What is not there.", ("is_null(null())", "true"), |_, _| {
        Ok(Value::Null)
    }),
];

/// Returns the first suitable argument, or the first suitable element of a single array argument.
fn first_wanted<'a>(
    budget: &mut Budget,
    a: &mut CallArguments<'_, 'a>,
    wanted: fn(&Value<'_>) -> bool,
) -> Result<Value<'a>, RunError> {
    if a.len() == 1
        && let Value::Array(values) = a.peek(0)
    {
        budget.step(values.len() as u64 / 4)?;
        let values = a.array(0)?;
        return Ok(values.into_iter().find(|value| wanted(value)).unwrap_or_default());
    }
    let first = (0..a.len()).find(|at| wanted(a.peek(*at)));
    Ok(first.map_or(Value::Null, |at| a.take(at)))
}

fn is_non_empty(value: &Value<'_>) -> bool {
    !value.is_absent() && !value.as_bytes().is_some_and(<[u8]>::is_empty)
}

fn is_empty<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let value = a.take(0);
    if value.as_bytes().is_some_and(<[u8]>::is_empty) {
        return Ok(Value::Bool(true));
    }
    Ok(Value::Bool(match value.open_json(f.budget)? {
        Value::Array(values) => values.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    }))
}
