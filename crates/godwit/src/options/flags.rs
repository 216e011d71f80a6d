//! Flags: the layer of options with the highest precedence. Every option is a flag, `--set` accepts
//! every option, and some options have a second flag.

use super::table::{self, ProgramOption};
use super::{OptionError, OptionOrigin, OptionPlan, RawOption, unknown_option};
use command_line::{Arg, Command, Error, ErrorKind, suggested_values};
use config::value::{NumberUnit, OptionKind, OptionValue};
use std::ffi::OsString;

/// A flag that sets an option: `--log.level=debug`, `--set log.level=debug`, `--memory`.
#[derive(Clone, Debug)]
pub(crate) struct OptionFlag {
    /// Flag as written by the user, without the value.
    flag: String,
    key: String,
    /// Value; `None` for a `--set` without `=`.
    value: Option<String>,
}

impl OptionFlag {
    pub(crate) fn new(flag: &str, key: &str, value: &str) -> OptionFlag {
        OptionFlag { flag: flag.into(), key: key.into(), value: Some(value.into()) }
    }

    /// Creates the flag for the value of `--set`.
    pub(crate) fn set(text: &str) -> OptionFlag {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim().to_string())),
            None => (text.trim(), None),
        };
        OptionFlag { flag: format!("--set {key}"), key: key.to_string(), value }
    }

    fn origin(&self) -> OptionOrigin {
        OptionOrigin::Flag(self.flag.clone())
    }
}

/// Returns every option as a flag, under the heading of its section.
pub(crate) fn option_arguments() -> impl Iterator<Item = Arg> {
    table::rows().map(option_argument)
}

fn option_argument(row: &'static ProgramOption) -> Arg {
    let default = match row.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let argument = command_line::value_argument(row.key, value_names(row.kind)).long(row.key);
    let argument = argument.help(format!("{}{default}", row.short));
    let argument = match row.kind {
        OptionKind::Bool => {
            argument.value_parser(suggested_values(&["true", "false"])).hide_possible_values(true)
        }
        OptionKind::Choice(words) => argument.value_parser(suggested_values(words)),
        _ => argument,
    };
    let argument = if row.key == "listen" { argument.short('l') } else { argument };
    match row.section() {
        "" => argument,
        section => argument.help_heading(section),
    }
}

fn value_names(kind: OptionKind) -> &'static [&'static str] {
    match kind {
        OptionKind::Bool => &["BOOL"],
        OptionKind::Choice(_) => &["WORD"],
        OptionKind::Hidden(kind) => value_names(*kind),
        OptionKind::List { .. } => &["LIST"],
        OptionKind::Map { .. } => &["NAME=VALUE"],
        OptionKind::Number { unit: NumberUnit::Bytes, .. } => &["BYTES"],
        OptionKind::Number { .. } => &["N"],
        OptionKind::Text { of: "a path", .. } => &["PATH"],
        OptionKind::Text { .. } => &["TEXT"],
    }
}

/// Refuses an option with a single dash, which clap would parse as the value of a short flag.
pub(crate) fn check_dashes(command: &mut Command, arguments: &[OsString]) -> Result<(), Error> {
    let wrong = arguments.iter().find_map(|argument| {
        let (key, right) = option_of_word(argument.to_str()?.strip_prefix('-')?)?;
        Some(format!("unexpected argument '-{key}' found: an option is given as {right}"))
    });
    wrong.map_or(Ok(()), |why| Err(command.error(ErrorKind::UnknownArgument, why)))
}

/// Adds the right form to the error for an option without dashes.
pub(crate) fn add_option_tip(error: Error) -> Error {
    let word = command_line::unknown_argument(&error).unwrap_or_default();
    match option_of_word(&word) {
        Some((key, right)) => {
            command_line::with_tip(error, key, format!("an option is given as {right}"))
        }
        None => error,
    }
}

/// Returns the option's key in a word like `log.level=debug`, and the correct flag, for an error;
/// `None` for other words. The value of a secret is not repeated.
fn option_of_word(word: &str) -> Option<(&str, String)> {
    let (key, value) = word.split_once('=')?;
    let row = table::find(key)?;
    let value = if matches!(row.kind, OptionKind::Hidden(_)) { "VALUE" } else { value };
    let is_special = |c: char| !c.is_ascii_alphanumeric() && !"/._-:,@+".contains(c);
    let right = match value.contains(is_special) {
        true => format!("'--{key}={value}'"),
        false => format!("--{key}={value}"),
    };
    Some((key, right))
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

/// Splits the key of a map entry: `shared.strategies.billing` is the entry `billing` of the map
/// `shared.strategies`. `None` for keys of other options.
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
