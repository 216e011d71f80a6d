//! Functions of arrays. The first element has index 1.

use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::equality::EqualityMode;
use crate::evaluation::EvalFrame;
use crate::index::position;
use crate::value::Value;

const NO_SUCH: &str = "the array has no such element";

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "contains",
        2..=2,
        "value, array",
        "Whether the value is one of the elements, of the same kind: 1 is not 1.0 or `'1'`.",
        ("contains(2, [1, 2, 3])", "true"),
        contains,
    ),
    row(
        "first",
        1..=1,
        "array",
        "The first element; an array without one is an error.",
        ("first([1, 2])", "1"),
        |_, a| match a.array(0)?.into_iter().next() {
            Some(value) => Ok(value),
            None => a.fail(NO_SUCH),
        },
    ),
    row(
        "last",
        1..=1,
        "array",
        "The last element; an array without one is an error.",
        ("last([1, 2])", "2"),
        |_, a| match a.array(0)?.pop() {
            Some(value) => Ok(value),
            None => a.fail(NO_SUCH),
        },
    ),
    row(
        "length",
        1..=1,
        "array",
        "How many elements there are.",
        ("length([1, 2])", "2"),
        |_, a| Ok(Value::Int(a.array(0)?.len() as i64)),
    ),
    row(
        "nth",
        2..=2,
        "index, array",
        "An element, counted from 1, or from the end from -1; one that is not there is an error.",
        ("nth(2, tokens('a/b/c', '/'))", r#""b""#),
        nth,
    ),
    row(
        "range",
        2..=2,
        "from, to",
        "The integers from one to another.",
        ("range(1, 4)", "[1,2,3,4]"),
        range,
    ),
    row(
        "sublist",
        2..=3,
        "[start, ]length, array",
        "So many elements from a place on, or from the first.",
        ("sublist(2, 2, ['a', 'b', 'c', 'd'])", r#"["b","c"]"#),
        sublist,
    ),
];

fn contains<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let values = a.array(1)?;
    let sought = a.peek(0);
    for value in &values {
        if value.is_same(sought, EqualityMode::Exact, f.budget)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn nth<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let index = a.int(0)?;
    let mut values = a.array(1)?;
    match position(index, values.len()) {
        Some(at) => Ok(values.swap_remove(at)),
        None => a.fail(NO_SUCH),
    }
}

fn range<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (from, to) = (a.int(0)?, a.int(1)?);
    let count = i128::from(to) - i128::from(from) + 1;
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    f.budget.step(count as u64)?;
    charge_output(f.budget, count.saturating_mul(size_of::<Value>()))?;
    Ok(Value::Array((from..=to).map(Value::Int).collect()))
}

fn sublist<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let last = a.len() - 1;
    let start = if last == 2 { a.size(0)? } else { 1 };
    let len = a.size(last - 1)?;
    if start == 0 {
        return a.type_error(0, "an integer from 1 on");
    }
    let mut values = a.array(last)?;
    values.truncate(start.saturating_sub(1).saturating_add(len));
    values.drain(..values.len().min(start - 1));
    Ok(Value::Array(values))
}
