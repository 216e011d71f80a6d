//! Command lines of the programs. Tables of [`FlagRow`] define the flags; clap parses and describes
//! a line from the tables, and shell completions and man pages are generated from the same tables.

mod documents;

#[cfg(test)]
mod tests;

pub use clap::builder::PossibleValuesParser;
pub use clap::error::ErrorKind;
pub use clap::parser::ValueSource;
pub use clap::{Arg, ArgMatches, Command, Error};
pub use documents::{completions_command, man_command, print_completions, print_man_page};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, ValueHint, value_parser};
use std::ffi::{OsStr, OsString};

/// Flag of a command line. The last name identifies the flag in the program.
#[derive(Clone, Copy, Debug)]
pub struct FlagRow {
    pub names: &'static [&'static str],
    /// Names of the values of the flag: empty for a switch, [`TRUTH`] for a switch with an optional
    /// value.
    pub values: &'static [&'static str],
    /// Value of an absent flag; empty for a flag without a default.
    pub default: &'static str,
    pub doc: &'static str,
}

/// [`FlagRow::values`] of a switch with an optional boolean, such as `--retain` and `--retain
/// false`.
pub const TRUTH: &[&str] = &["BOOL"];

impl FlagRow {
    pub const fn new(
        names: &'static [&'static str],
        values: &'static [&'static str],
        doc: &'static str,
    ) -> FlagRow {
        FlagRow { names, values, default: "", doc }
    }

    #[must_use]
    pub const fn with_default(self, default: &'static str) -> FlagRow {
        FlagRow { default, ..self }
    }

    /// Returns the name that identifies the flag in the program.
    pub fn name(&self) -> &'static str {
        self.names[self.names.len() - 1]
    }

    /// Returns the flag as an [`Arg`] of clap.
    pub fn argument(&self) -> Arg {
        let mut argument = match self.values {
            [] => switch(self.name()).num_args(0),
            values if values == TRUTH => {
                switch(self.name()).num_args(0..=1).value_names(values).value_parser(parse_truth)
            }
            values => value_argument(self.name(), values),
        };
        for name in self.names {
            argument = match name.strip_prefix("--") {
                Some(long) => argument.long(long),
                None => argument.short(name.chars().nth(1)),
            };
        }
        let argument = argument.help(self.doc);
        match self.default {
            "" => argument,
            default => argument.default_value(default),
        }
    }
}

/// Returns a switch that may be repeated.
fn switch(name: &'static str) -> Arg {
    Arg::new(name).action(ArgAction::Append).default_missing_value("true")
}

/// Returns a flag that may be repeated and whose values may begin with a dash.
pub fn value_argument(name: &'static str, values: &'static [&'static str]) -> Arg {
    let argument = Arg::new(name).action(ArgAction::Append).num_args(values.len());
    argument.value_names(values).allow_hyphen_values(true).value_hint(match values {
        ["DIR"] => ValueHint::DirPath,
        ["FILE"] => ValueHint::FilePath,
        ["HOST"] => ValueHint::Hostname,
        ["PATH"] => ValueHint::AnyPath,
        ["URL"] => ValueHint::Url,
        _ => ValueHint::Unknown,
    })
}

/// Parses a boolean with the words of emqtt_bench (`getopt:to_type/2`).
fn parse_truth(text: &str) -> Result<String, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "enabled" | "1" => Ok("true".into()),
        "false" | "f" | "no" | "n" | "off" | "disabled" | "0" => Ok("false".into()),
        _ => Err("use true or false"),
    }
}

/// Returns a parser that accepts any value, because the program checks the value itself. Help and
/// completions show `words`.
pub fn suggested_values(words: &'static [&'static str]) -> ValueParser {
    ValueParser::new(SuggestedValues(words))
}

#[derive(Clone)]
struct SuggestedValues(&'static [&'static str]);

impl TypedValueParser for SuggestedValues {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|word| PossibleValue::new(*word))))
    }
}

/// Returns a command with the flags of a table and `--help`. The short form `-h` is help unless a
/// flag of the table uses `-h`.
pub fn command<'a>(
    name: &'static str,
    about: &'static str,
    rows: impl IntoIterator<Item = &'a FlagRow>,
) -> Command {
    let (mut arguments, mut has_h) = (Vec::new(), false);
    for row in rows {
        has_h |= row.names.contains(&"-h");
        arguments.push(row.argument());
    }
    let help = Arg::new("help").long("help").action(ArgAction::Help).help("print this");
    let help = if has_h { help } else { help.short('h') };
    Command::new(name)
        .about(about)
        .max_term_width(COLUMNS)
        .disable_help_flag(true)
        .args(arguments)
        .arg(help)
}

/// Returns the positional arguments `name` of a command: any number of them, with any bytes.
pub fn words(name: &'static str, doc: &'static str) -> Arg {
    Arg::new(name).help(doc).num_args(0..).value_parser(value_parser!(OsString))
}

/// Returns the required positional argument `name`; help shows the name `shown`.
pub fn word(name: &'static str, shown: &'static str, doc: &'static str) -> Arg {
    words(name, doc).num_args(1).required(true).value_name(shown)
}

/// Parses the arguments of a command. Consumes the command, because the table of a large command
/// would stay in memory.
///
/// # Errors
///
/// Fails if the line is wrong or asks for help. [`error_text`] returns the text to print.
pub fn parse(program: &str, command: Command, arguments: &[OsString]) -> Result<ArgMatches, Error> {
    let bin_name = match command.get_name() {
        name if name == program => program.to_string(),
        name => format!("{program} {name}"),
    };
    command.bin_name(bin_name).no_binary_name(true).try_get_matches_from(arguments)
}

/// Returns the text to print for an error, with the name of the program. A request for help is an
/// error for which [`Error::use_stderr`] is false.
pub fn error_text(program: &str, error: &Error) -> String {
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(why) => format!("{program}: {why}"),
        None => text,
    }
}

/// Returns the argument of an error of [`ErrorKind::UnknownArgument`].
pub fn unknown_argument(error: &Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => {
            Some(argument.clone())
        }
        _ => None,
    }
}

/// Replaces clap's tip in an error about an unknown argument. `argument` is the text of the
/// argument in the message.
#[must_use]
pub fn with_tip(mut error: Error, argument: &str, tip: String) -> Error {
    error.insert(ContextKind::InvalidArg, ContextValue::String(argument.into()));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Flag of a line, with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedFlag {
    pub name: &'static str,
    pub values: Vec<String>,
}

impl ParsedFlag {
    /// Returns the first value of the flag; empty for a flag without values.
    pub fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    /// Parses the value as a number from `min` to `max`. The error states the flag and the range.
    pub fn number<T>(&self, min: T, max: T) -> Result<T, String>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        match self.value().parse::<T>() {
            Ok(number) if number >= min && number <= max => Ok(number),
            _ => Err(format!("{} {}: use a number from {min} to {max}", self.name, self.value())),
        }
    }
}

/// Returns the flags of a line in order, without defaults.
pub fn flags_in_order(
    matches: &ArgMatches,
    names: impl Iterator<Item = &'static str>,
) -> Vec<ParsedFlag> {
    let mut found: Vec<(usize, ParsedFlag)> = Vec::new();
    for name in names {
        if matches.value_source(name) != Some(ValueSource::CommandLine) {
            continue;
        }
        let mut indices = matches.indices_of(name).into_iter().flatten();
        for values in matches.get_occurrences::<String>(name).into_iter().flatten() {
            let values: Vec<String> = values.cloned().collect();
            // clap gives each value an index.
            let first = indices.next().unwrap_or_default();
            indices.by_ref().take(values.len().saturating_sub(1)).for_each(drop);
            found.push((first, ParsedFlag { name, values }));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, flag)| flag).collect()
}

/// Returns the value of a flag or positional argument; the last occurrence counts.
pub fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_many::<String>(name)?.next_back().map(String::as_str)
}

/// Returns the values of the positional argument `name`.
pub fn words_of(matches: &ArgMatches, name: &str) -> Vec<OsString> {
    matches.get_many::<OsString>(name).into_iter().flatten().cloned().collect()
}

/// Maximum width of help texts, in columns.
const COLUMNS: usize = 100;
