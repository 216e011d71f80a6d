//! Arrays. The first element is 1.

use super::{Arguments, Function, Outcome, room, row};
use crate::run::{Frame, position};
use crate::value::Value;

pub(super) const ROWS: &[Function] = &[
    row(
        "contains",
        2..=2,
        "value, array",
        "Whether the value is one of the elements.",
        ("contains(2, [1, 2, 3])", "true"),
        contains,
    ),
    row(
        "first",
        1..=1,
        "array",
        "The first element, null where there is none.",
        ("first([1, 2])", "1"),
        |_, a| Ok(a.array(0)?.into_iter().next().unwrap_or_default()),
    ),
    row(
        "last",
        1..=1,
        "array",
        "The last element, null where there is none.",
        ("last([1, 2])", "2"),
        |_, a| Ok(a.array(0)?.pop().unwrap_or_default()),
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
        "An element, counted from 1, or from the end from -1; null where there is none.",
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

fn contains<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let values = a.array(1)?;
    let sought = a.peek(0);
    for value in &values {
        if value.equals(sought, f.budget)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn nth<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let index = a.int(0)?;
    let mut values = a.array(1)?;
    Ok(position(index, values.len()).map_or(Value::Null, |at| values.swap_remove(at)))
}

fn range<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let (from, to) = (a.int(0)?, a.int(1)?);
    let count = i128::from(to) - i128::from(from) + 1;
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    f.budget.step(count as u64)?;
    room(f.budget, count.saturating_mul(size_of::<Value>()))?;
    Ok(Value::Array((from..=to).map(Value::Int).collect()))
}

fn sublist<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let last = a.len() - 1;
    let start = if last == 2 { a.size(0)? } else { 1 };
    let len = a.size(last - 1)?;
    if start == 0 {
        return a.wants(0, "an integer from 1 on");
    }
    let mut values = a.array(last)?;
    values.truncate(start.saturating_sub(1).saturating_add(len));
    values.drain(..values.len().min(start - 1));
    Ok(Value::Array(values))
}
