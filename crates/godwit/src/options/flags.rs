//! The strongest layer: flags. `--set` takes every option; a few have a flag of their own.

use super::table::{self, ProgramOption};
use super::{OptionError, OptionOrigin, OptionPlan, RawOption, unknown_option};
use config::value::OptionValue;

/// A flag that sets an option: `--set key=value`, or `--listen URL` as `listen`.
#[derive(Clone, Debug)]
pub(crate) struct OptionFlag {
    /// As the user wrote it.
    pub(crate) flag: &'static str,
    pub(crate) key: String,
    /// Missing where `--set` was given no `=`.
    pub(crate) value: Option<String>,
}

impl OptionFlag {
    /// Creates the flag for the value of `--set`.
    pub(crate) fn set(text: &str) -> OptionFlag {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.trim().to_string())),
            None => (text, None),
        };
        OptionFlag { flag: "--set", key: key.trim().to_string(), value }
    }

    fn origin(&self) -> OptionOrigin {
        match self.flag {
            "--set" => OptionOrigin::Flag(format!("--set {}", self.key)),
            flag => OptionOrigin::Flag(flag.to_string()),
        }
    }
}

pub(super) fn apply_flags(
    flags: &[OptionFlag],
    plan: &mut OptionPlan,
    wrongs: &mut Vec<OptionError>,
) {
    for flag in flags {
        match read_flag(flag, plan) {
            Ok((row, value)) => plan.set_value(row, value, flag.origin()),
            Err(why) => wrongs.push(OptionError { origin: flag.origin(), why }),
        }
    }
}

fn read_flag(
    flag: &OptionFlag,
    plan: &OptionPlan,
) -> Result<(&'static ProgramOption, OptionValue), String> {
    let Some(given) = &flag.value else {
        return Err("there is no \"=\", use --set key=value".to_string());
    };
    let (row, text) = match table::find(&flag.key) {
        Some(row) => (row, given.clone()),
        None => {
            let (row, entry) = map_entry(&flag.key).ok_or_else(|| unknown_option(&flag.key))?;
            (row, format!("{entry}={given}"))
        }
    };
    let value = row.kind.read_text(&text);
    let value = value.map_err(|why| {
        let given = row.kind.excerpt(&format!("{given:?}"));
        format!("{}{given}: {why}", row.key)
    })?;
    Ok((row, append_value(plan.given.get(row.key), value)))
}

/// `shared.strategies.billing` is the entry `billing` of the map `shared.strategies`.
fn map_entry(key: &str) -> Option<(&'static ProgramOption, &str)> {
    table::rows().filter(|row| row.kind.is_map()).find_map(|row| {
        let entry = key.strip_prefix(row.key)?.strip_prefix('.')?;
        Some((row, entry))
    })
}

/// Appends to a list or map from an earlier flag; values of layers with lower precedence are
/// replaced.
fn append_value(before: Option<&RawOption>, value: OptionValue) -> OptionValue {
    match (before, value) {
        (
            Some(RawOption { value: OptionValue::List(list), origin: OptionOrigin::Flag(_) }),
            OptionValue::List(more),
        ) => OptionValue::List(list.iter().cloned().chain(more).collect()),
        (
            Some(RawOption { value: OptionValue::Map(map), origin: OptionOrigin::Flag(_) }),
            OptionValue::Map(more),
        ) => OptionValue::Map(map.iter().cloned().chain(more).collect()),
        (_, value) => value,
    }
}
