//! The strongest layer: flags. `--set` takes every option; a few have a flag of their own.

use super::table::{self, Row};
use super::value::Value;
use super::{Given, Origin, Plan, Wrong, unknown};

/// One flag that sets an option: `--set key=value`, or `--listen URL` as `listen`.
#[derive(Clone, Debug)]
pub(crate) struct OptionFlag {
    /// As the user wrote it.
    pub(crate) flag: &'static str,
    pub(crate) key: String,
    /// Missing where `--set` was given no `=`.
    pub(crate) value: Option<String>,
}

impl OptionFlag {
    /// Of the value of `--set`.
    pub(crate) fn set(text: &str) -> OptionFlag {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.trim().to_string())),
            None => (text, None),
        };
        OptionFlag { flag: "--set", key: key.trim().to_string(), value }
    }

    fn origin(&self) -> Origin {
        match self.flag {
            "--set" => Origin::Flag(format!("--set {}", self.key)),
            flag => Origin::Flag(flag.to_string()),
        }
    }
}

pub(super) fn read(flags: &[OptionFlag], plan: &mut Plan, wrongs: &mut Vec<Wrong>) {
    for flag in flags {
        match read_one(flag, plan) {
            Ok((row, value)) => plan.give(row, value, flag.origin()),
            Err(why) => wrongs.push(Wrong { origin: flag.origin(), why }),
        }
    }
}

fn read_one(flag: &OptionFlag, plan: &Plan) -> Result<(&'static Row, Value), String> {
    let Some(given) = &flag.value else {
        return Err("there is no \"=\", use --set key=value".to_string());
    };
    let (row, text) = match table::find(&flag.key) {
        Some(row) => (row, given.clone()),
        None => {
            let (row, entry) = map_entry(&flag.key).ok_or_else(|| unknown(&flag.key))?;
            (row, format!("{entry}={given}"))
        }
    };
    let value = row.kind.read_text(&text);
    let value = value.map_err(|why| {
        let given = row.kind.excerpt(&format!("{given:?}"));
        format!("{}{given}: {why}", row.key)
    })?;
    Ok((row, joined(plan.given.get(row.key), value)))
}

/// `shared.strategies.billing` is the entry `billing` of the map `shared.strategies`.
fn map_entry(key: &str) -> Option<(&'static Row, &str)> {
    table::rows().filter(|row| row.kind.is_map()).find_map(|row| {
        let entry = key.strip_prefix(row.key)?.strip_prefix('.')?;
        Some((row, entry))
    })
}

/// Lists and maps grow by repeating the flag; they replace what weaker layers say.
fn joined(before: Option<&Given>, value: Value) -> Value {
    match (before, value) {
        (Some(Given { value: Value::List(list), origin: Origin::Flag(_) }), Value::List(more)) => {
            Value::List(list.iter().cloned().chain(more).collect())
        }
        (Some(Given { value: Value::Map(map), origin: Origin::Flag(_) }), Value::Map(more)) => {
            Value::Map(map.iter().cloned().chain(more).collect())
        }
        (_, value) => value,
    }
}
