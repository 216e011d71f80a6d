//! Maps, and JSON texts that say one. A key of `map_get` and `map_put` may be a path: `a.b.c`.

use super::{Arguments, Function, Outcome, room, row};
use crate::budget::Failed;
use crate::run::Frame;
use crate::value::{Map, Value};
use std::borrow::Cow;

/// Names in a path.
const PATH_MAX: usize = 32;

pub(super) const ROWS: &[Function] = &[
    row(
        "map_get",
        2..=3,
        "path, map[, default]",
        "What stands under a path of names, or the default, which is null if left out.",
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
        Ok(Value::Map(Map::default()))
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
        "The same as `map_get` for one name, which may have dots.",
        (r#"mget('a.b', map('{"a.b": 1}'))"#, "1"),
        |f, a| get(f, a, false),
    ),
    row(
        "mput",
        3..=3,
        "name, value, map",
        "The same as `map_put` for one name, which may have dots.",
        ("mput('a.b', 1, map_new())", r#"{"a.b":1}"#),
        |f, a| put(f, a, false),
    ),
];

/// A map, or the map that a JSON text says.
fn map<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>, at: usize) -> Result<Map<'a>, Failed> {
    let is_text = matches!(a.peek(at), Value::Text(_));
    match a.take(at).opened(f.budget)? {
        Value::Map(map) => Ok(map),
        _ if is_text => a.no("the text is no map"),
        other => {
            a.values[at] = other;
            a.wants(at, "a map")
        }
    }
}

/// The names of a path: one, or those between dots.
fn names<'t>(a: &Arguments<'_, '_>, path: &'t str, dots: bool) -> Result<Vec<&'t str>, Failed> {
    let names: Vec<&str> = match dots {
        true => path.split('.').take(PATH_MAX + 1).collect(),
        false => vec![path],
    };
    if names.len() > PATH_MAX { a.no("the path has more than 32 names") } else { Ok(names) }
}

fn get<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>, dots: bool) -> Outcome<'a> {
    let path = a.text(0)?;
    f.budget.scan(path.len())?;
    let mut at = Value::Map(map(f, a, 1)?);
    for name in names(a, &path, dots)? {
        at = match at.opened(f.budget)? {
            Value::Map(mut map) => {
                f.budget.step(map.len() as u64 / 4)?;
                map.take(name).unwrap_or_default()
            }
            _ => Value::Null,
        };
    }
    Ok(if at.is_null() && a.len() == 3 { a.take(2) } else { at })
}

fn put<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>, dots: bool) -> Outcome<'a> {
    let path = a.text(0)?;
    let value = a.take(1);
    let mut map = Value::Map(map(f, a, 2)?);
    room(f.budget, path.len())?;
    let mut slot = &mut map;
    for name in names(a, &path, dots)? {
        room(f.budget, 64)?;
        if !matches!(slot, Value::Map(_)) {
            *slot = Value::Map(Map::default());
        }
        if let Value::Map(map) = slot {
            f.budget.step(map.len() as u64 / 4)?;
            slot = map.entry(Cow::Owned(name.to_string()));
        } else {
            break;
        }
    }
    *slot = value;
    Ok(map)
}

/// An array with an element for each name of a map.
fn each<'a>(
    f: &mut Frame<'_, 'a>,
    a: &mut Arguments<'_, 'a>,
    bytes: usize,
    of: fn((Cow<'a, str>, Value<'a>)) -> Value<'a>,
) -> Outcome<'a> {
    let map = map(f, a, 0)?;
    f.budget.step(map.len() as u64)?;
    room(f.budget, map.len() * bytes)?;
    Ok(Value::Array(map.into_entries().into_iter().map(of).collect()))
}

fn map_keys<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    each(f, a, size_of::<Value>(), |(key, _)| Value::Text(key))
}

fn map_values<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    each(f, a, size_of::<Value>(), |(_, value)| value)
}

fn map_to_entries<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    each(f, a, 5 * size_of::<Value>(), |(key, value)| {
        let mut entry = Map::with_room(2);
        entry.push("key".into(), Value::Text(key));
        entry.push("value".into(), value);
        Value::Map(entry)
    })
}
