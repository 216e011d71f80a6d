//! Functions of maps, and of JSON text with a map. A key of `map_get` and `map_put` may be a path
//! such as `a.b.c`.

use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::budget::RunError;
use crate::evaluation::EvalFrame;
use crate::operators::{FLOAT_DIGITS_MAX, decimal};
use crate::value::{Value, ValueMap};
use std::borrow::Cow;

/// Most names in a path.
const PATH_MAX: usize = 32;

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "map_get",
        2..=3,
        "path, map[, default]",
        "What stands under a path of names, or the default, which is null if left out; in what \
         is no \
         map nothing does.",
        (r#"map_get('a.b', '{"a": {"b": 1}}')"#, "1"),
        |f, a| get(f, a, true),
    ),
    row(
        "map_keys",
        1..=1,
        "map",
        "Its names as an array.",
        (r#"map_keys(map('{"a": 1, "b": 2}'))"#, r#"["a","b"]"#),
        map_keys,
    ),
    row("map_new", 0..=0, "", "An empty map.", ("map_new()", "{}"), |_, _| {
        Ok(Value::Map(ValueMap::default()))
    }),
    row(
        "map_put",
        3..=3,
        "path, value, map",
        "The map with a value under a path of names.",
        ("map_put('a.b', 1, map_new())", r#"{"a":{"b":1}}"#),
        |f, a| put(f, a, true),
    ),
    row(
        "map_size",
        1..=1,
        "map",
        "How many names it has.",
        (r#"map_size(map('{"a": 1}'))"#, "1"),
        |f, a| Ok(Value::Int(map(f, a, 0)?.len() as i64)),
    ),
    row(
        "map_to_entries",
        1..=1,
        "map",
        "An array of maps with `key` and `value`.",
        (r#"map_to_entries('{"a": 1}')"#, r#"[{"key":"a","value":1}]"#),
        map_to_entries,
    ),
    row(
        "map_to_redis_hset_args",
        1..=1,
        "map",
        "Its names and values in turn as texts, for HSET; what is not a number, text or boolean is \
         left \
         out.",
        (r#"map_to_redis_hset_args('{"a": 1, "b": true}')"#, r#"["a","1","b","true"]"#),
        map_to_redis_hset_args,
    ),
    row(
        "map_values",
        1..=1,
        "map",
        "Its values as an array.",
        (r#"map_values(map('{"a": 1, "b": 2}'))"#, "[1,2]"),
        map_values,
    ),
    row(
        "mget",
        2..=3,
        "name, map[, default]",
        "The same as `map_get` for one name, which may have dots, or for an array of names.",
        (r#"mget('a.b', map('{"a.b": 1}'))"#, "1"),
        |f, a| get(f, a, false),
    ),
    row(
        "mput",
        3..=3,
        "name, value, map",
        "The same as `map_put` for one name, which may have dots, or for an array of names.",
        ("mput('a.b', 1, map_new())", r#"{"a.b":1}"#),
        |f, a| put(f, a, false),
    ),
];

/// Takes argument `at` as a map: a map, JSON text of a map, or an empty array.
fn map<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
    at: usize,
) -> Result<ValueMap<'a>, RunError> {
    let is_text = matches!(a.peek(at), Value::Text(_));
    match a.take(at).open_json(f.budget)? {
        Value::Map(map) => Ok(map),
        Value::Array(values) if values.is_empty() => Ok(ValueMap::default()),
        _ if is_text => a.fail("the text is not a map"),
        other => {
            a.values[at] = other;
            a.type_error(at, "a map")
        }
    }
}

/// Returns the names of the path in argument 0: separated by dots with `dots`, otherwise a single
/// name or an array of names.
fn names<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
    dots: bool,
) -> Result<Vec<Cow<'a, str>>, RunError> {
    if !dots && matches!(a.peek(0), Value::Array(_)) {
        let values = a.array(0)?;
        if values.is_empty() || values.len() > PATH_MAX {
            return a.fail("the path has no names, or more than 32");
        }
        let name = |value| match value {
            Value::Text(name) => Some(name),
            _ => None,
        };
        let names: Option<Vec<_>> = values.into_iter().map(name).collect();
        return names.map_or_else(|| a.fail("the path has what is not a name"), Ok);
    }
    let path = a.text(0)?;
    f.budget.scan(path.len())?;
    if !dots {
        return Ok(vec![path]);
    }
    let names: Vec<Cow<'a, str>> = match path {
        Cow::Borrowed(path) => path.split('.').take(PATH_MAX + 1).map(Cow::Borrowed).collect(),
        Cow::Owned(path) => {
            charge_output(f.budget, path.len())?;
            path.split('.').take(PATH_MAX + 1).map(|name| name.to_string().into()).collect()
        }
    };
    if names.len() > PATH_MAX { a.fail("the path has more than 32 names") } else { Ok(names) }
}

fn get<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>, dots: bool) -> EvalResult<'a> {
    let names = names(f, a, dots)?;
    let mut at = if dots { a.take(1) } else { Value::Map(map(f, a, 1)?) };
    for name in names {
        at = match at.open_json(f.budget)? {
            Value::Map(mut map) => {
                f.budget.step(map.len() as u64 / 4)?;
                map.take(&name).unwrap_or_default()
            }
            _ => Value::Null,
        };
    }
    Ok(if at.is_absent() && a.len() == 3 { a.take(2) } else { at })
}

fn put<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>, dots: bool) -> EvalResult<'a> {
    let names = names(f, a, dots)?;
    let value = a.take(1);
    let mut map = if dots { a.take(2).open_json(f.budget)? } else { Value::Map(map(f, a, 2)?) };
    let mut slot = &mut map;
    for name in names {
        charge_output(f.budget, 64)?;
        if let Value::Text(_) = slot {
            *slot = std::mem::take(slot).open_json(f.budget)?;
        }
        if !matches!(slot, Value::Map(_)) {
            *slot = Value::Map(ValueMap::default());
        }
        let Value::Map(map) = slot else { break };
        f.budget.step(map.len() as u64 / 4)?;
        slot = map.entry(name);
    }
    *slot = value;
    Ok(map)
}

/// Returns names and values as arguments of HSET; floats have at most six decimals.
fn map_to_redis_hset_args<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
) -> EvalResult<'a> {
    let Value::Map(map) = a.take(0).open_json(f.budget)? else {
        return Ok(Value::Array(Vec::new()));
    };
    f.budget.step(map.len() as u64)?;
    charge_output(f.budget, map.len() * (2 * size_of::<Value>() + 24))?;
    let mut arguments = Vec::with_capacity(2 * map.len());
    for (name, value) in map.into_entries() {
        let value = match value {
            Value::Text(_) | Value::Bytes(_) => value,
            Value::Bool(of) => Value::Text(of.to_string().into()),
            Value::Int(of) => Value::Text(of.to_string().into()),
            Value::Float(of) => {
                f.budget.take(FLOAT_DIGITS_MAX)?;
                Value::Text(decimal(of, 6).into())
            }
            _ => continue,
        };
        arguments.extend([Value::Text(name), value]);
    }
    Ok(Value::Array(arguments))
}

/// Returns an array with an element for each entry of a map.
fn each<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
    bytes: usize,
    of: fn((Cow<'a, str>, Value<'a>)) -> Value<'a>,
) -> EvalResult<'a> {
    let map = map(f, a, 0)?;
    f.budget.step(map.len() as u64)?;
    charge_output(f.budget, map.len() * bytes)?;
    Ok(Value::Array(map.into_entries().into_iter().map(of).collect()))
}

fn map_keys<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    each(f, a, size_of::<Value>(), |(key, _)| Value::Text(key))
}

fn map_values<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    each(f, a, size_of::<Value>(), |(_, value)| value)
}

fn map_to_entries<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    each(f, a, 5 * size_of::<Value>(), |(key, value)| {
        let mut entry = ValueMap::with_room(2);
        entry.push("key".into(), Value::Text(key));
        entry.push("value".into(), value);
        Value::Map(entry)
    })
}
