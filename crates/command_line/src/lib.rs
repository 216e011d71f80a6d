//! Command lines of the programs: tables of flags, from which clap parses and describes a line,
//! and from which shell completions and man pages are made.

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

/// A flag of a command line. The program knows the flag by its last name.
#[derive(Clone, Copy, Debug)]
pub struct FlagRow {
    pub names: &'static [&'static str],
    /// Names of the values that follow the flag; none for a switch, and [`TRUTH`] for a switch
    /// that may be followed by one.
    pub values: &'static [&'static str],
    /// Value of a flag that is not given; empty where there is none.
    pub default: &'static str,
    pub doc: &'static str,
}

/// The value of a switch that is on without one, as `--retain` and `--retain false`.
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

    /// The name by which the program knows the flag.
    pub fn name(&self) -> &'static str {
        self.names[self.names.len() - 1]
    }

    /// The flag as clap knows it.
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

/// A switch that may be given any number of times.
fn switch(name: &'static str) -> Arg {
    Arg::new(name).action(ArgAction::Append).default_missing_value("true")
}

/// A flag that may be given any number of times, and whose values may begin with a dash.
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

/// As emqtt_bench's parser has it (`getopt:to_type/2`).
fn parse_truth(text: &str) -> Result<String, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "enabled" | "1" => Ok("true".into()),
        "false" | "f" | "no" | "n" | "off" | "disabled" | "0" => Ok("false".into()),
        _ => Err("use true or false"),
    }
}

/// Parser of a value that the program checks itself; the words are there for help and completions.
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

/// A command with the flags of a table and `--help`, which has the short form too unless a flag
/// of the table has it.
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

/// Words that are not flags: any number of them, and any bytes.
pub fn words(name: &'static str, doc: &'static str) -> Arg {
    Arg::new(name).help(doc).num_args(0..).value_parser(value_parser!(OsString))
}

/// A word that a command needs, by the name that help has for it.
pub fn word(name: &'static str, shown: &'static str, doc: &'static str) -> Arg {
    words(name, doc).num_args(1).required(true).value_name(shown)
}

/// Parses the arguments of a command, which does not come out of it: the table of a large one
/// would stay in memory.
///
/// # Errors
///
/// The line is wrong, or asks for help: [`error_text`] is what to print.
pub fn parse(program: &str, command: Command, arguments: &[OsString]) -> Result<ArgMatches, Error> {
    let bin_name = match command.get_name() {
        name if name == program => program.to_string(),
        name => format!("{program} {name}"),
    };
    command.bin_name(bin_name).no_binary_name(true).try_get_matches_from(arguments)
}

/// The text to print for an error, in the name of the program. Help is an error as well, for
/// which [`Error::use_stderr`] is false.
pub fn error_text(program: &str, error: &Error) -> String {
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(why) => format!("{program}: {why}"),
        None => text,
    }
}

/// The argument that an error says is unknown.
pub fn unknown_argument(error: &Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => {
            Some(argument.clone())
        }
        _ => None,
    }
}

/// An error about an unknown argument with a tip of the program's own, in the place of clap's.
/// `argument` is what the error shows of it.
#[must_use]
pub fn with_tip(mut error: Error, argument: &str, tip: String) -> Error {
    error.insert(ContextKind::InvalidArg, ContextValue::String(argument.into()));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// A flag of a line, with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedFlag {
    pub name: &'static str,
    pub values: Vec<String>,
}

impl ParsedFlag {
    /// The only value of a flag that takes one.
    pub fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    /// A number in a range.
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

/// The flags of a line in their order, those alone that it has.
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
            // Each value has an index.
            let first = indices.next().unwrap_or_default();
            indices.by_ref().take(values.len().saturating_sub(1)).for_each(drop);
            found.push((first, ParsedFlag { name, values }));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, flag)| flag).collect()
}

/// The value of a flag or word; the last one counts.
pub fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_many::<String>(name)?.next_back().map(String::as_str)
}

/// The words of a line that are not flags.
pub fn words_of(matches: &ArgMatches, name: &str) -> Vec<OsString> {
    matches.get_many::<OsString>(name).into_iter().flatten().cloned().collect()
}

/// Widest line of a help text.
const COLUMNS: usize = 100;
