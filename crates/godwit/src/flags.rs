//! Reads command lines from a table of flags, for every subcommand alike. By hand rather than by a
//! library: the tables are needed anyway, and clap, without its colours, made a bare program 270 KB
//! larger and 290 KB heavier when idle.

use crate::options;
use config::nearest::nearest_word;
use std::ffi::OsString;
use std::fmt::Write as _;

/// A flag of the command line. The program knows the flag by its last name.
pub(crate) struct CliFlag {
    pub(crate) names: &'static [&'static str],
    /// Names of the values that follow the flag.
    pub(crate) values: &'static [&'static str],
    pub(crate) doc: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedFlag {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<String>,
}

impl ParsedFlag {
    /// The only value of a flag that takes one.
    pub(crate) fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    /// A number in a range.
    pub(crate) fn number<T>(&self, min: T, max: T) -> Result<T, String>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        match self.value().parse::<T>() {
            Ok(number) if number >= min && number <= max => Ok(number),
            _ => Err(format!("{} {}: use a number from {min} to {max}", self.name, self.value())),
        }
    }
}

/// Every flag of a command line in its order, or everything that is wrong with it.
pub(crate) fn parse_flags(
    flags: &[CliFlag],
    arguments: &[OsString],
) -> Result<Vec<ParsedFlag>, Vec<String>> {
    parse_arguments(flags, arguments, false).map(|(used, _)| used)
}

/// Flags, and the words between them: they stand in any order.
pub(crate) fn parse_flags_and_words(
    flags: &[CliFlag],
    arguments: &[OsString],
) -> Result<FlagsAndWords, Vec<String>> {
    parse_arguments(flags, arguments, true)
}

/// The verb of a subcommand, and the rest: flags may stand before it. Without a verb the first word
/// is what stands in its place.
pub(crate) fn split_verb(
    flags: &[CliFlag],
    arguments: &[OsString],
) -> (Option<String>, Vec<OsString>) {
    let (mut at, mut rest) = (0, arguments.to_vec());
    while let Some(word) = arguments.get(at).map(|word| word.to_string_lossy()) {
        let name = word.split_once('=').map_or(word.as_ref(), |(name, _)| name);
        let flag = flags.iter().find(|flag| flag.names.contains(&name));
        match flag.filter(|flag| !flag.names.contains(&"--help")) {
            Some(flag) if !word.contains('=') => at += 1 + flag.values.len(),
            Some(_) => at += 1,
            None => break,
        }
    }
    let at = if at < rest.len() { at } else { 0 };
    let verb = (!rest.is_empty()).then(|| rest.remove(at).to_string_lossy().into_owned());
    (verb, rest)
}

type FlagsAndWords = (Vec<ParsedFlag>, Vec<OsString>);

fn parse_arguments(
    flags: &[CliFlag],
    arguments: &[OsString],
    takes_words: bool,
) -> Result<FlagsAndWords, Vec<String>> {
    let mut used = Vec::new();
    let mut words = Vec::new();
    let mut wrongs = Vec::new();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let argument = word.to_string_lossy();
        if takes_words && !argument.starts_with('-') {
            words.push(word.clone());
            continue;
        }
        let following = rest.as_slice().first().map(|word| word.to_string_lossy());
        if let Some((hint, takes_following)) = option_hint(flags, &argument, following.as_deref()) {
            wrongs.push(hint);
            if takes_following {
                rest.next();
            }
            continue;
        }
        // `--flag=value` is `--flag value`.
        let (name, glued) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_string())),
            _ => (argument.as_ref(), None),
        };
        let Some(flag) = flags.iter().find(|flag| flag.names.contains(&name)) else {
            wrongs.push(unknown(flags, name));
            continue;
        };
        match take_values(flag, glued, &mut rest) {
            Ok(values) => used.push(ParsedFlag { name: flag.names[flag.names.len() - 1], values }),
            Err(why) => wrongs.push(format!("{name}: {why}")),
        }
    }
    if wrongs.is_empty() { Ok((used, words)) } else { Err(wrongs) }
}

fn take_values<'a>(
    flag: &CliFlag,
    glued: Option<String>,
    rest: &mut impl Iterator<Item = &'a OsString>,
) -> Result<Vec<String>, String> {
    if glued.is_some() && flag.values.is_empty() {
        return Err("takes no value".to_string());
    }
    let mut values: Vec<String> = glued.into_iter().collect();
    // A user property has a name and a value where other properties have only a value.
    let named = |values: &[String]| usize::from(values.get(1).is_some_and(|v| v == USER_PROPERTY));
    while values.len() < flag.values.len() + named(&values) {
        let value = rest.next().ok_or_else(|| format!("needs {}", flag.values.join(" ")))?;
        let value = value.clone().into_string();
        values.push(value.map_err(|_| "its value is not UTF-8 text".to_string())?);
    }
    Ok(values)
}

/// Answer to an option that is given as if it were a flag of a command that has `--set`: its right
/// form, and whether the next word is the option's value.
fn option_hint(
    flags: &[CliFlag],
    argument: &str,
    following: Option<&str>,
) -> Option<(String, bool)> {
    let (name, glued) = match argument.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument, None),
    };
    let is_flag = |name: &str| flags.iter().any(|flag| flag.names.contains(&name));
    if !is_flag("--set") || is_flag(name) {
        return None;
    }
    let typed = name.trim_start_matches('-').replace('-', "_");
    let key = options::meant_option(&typed)?;
    let is_like_a_flag = || {
        let names = flags.iter().flat_map(|flag| flag.names).copied();
        nearest_word(name, names).is_some()
    };
    let is_word = !name.starts_with('-');
    if key != typed && (is_word || !typed.contains('.') && is_like_a_flag()) {
        return None;
    }
    let following = following.filter(|word| glued.is_none() && !is_word && !word.starts_with('-'));
    if is_word && glued.is_none() {
        return None;
    }
    let right = options::set_flag(key, glued.or(following));
    Some((format!("{name} is not a flag: an option is given as {right}"), following.is_some()))
}

fn unknown(flags: &[CliFlag], name: &str) -> String {
    if !name.starts_with('-') {
        return format!("{name}: only flags are expected here");
    }
    let long = |name: &&str| name.len() > 2;
    let names = flags.iter().flat_map(|flag| flag.names).copied().filter(long);
    match nearest_word(name, names) {
        Some(meant) => format!("{name} is not a flag, did you mean {meant}?"),
        None => format!("{name} is not a flag, --help lists them all"),
    }
}

/// A line a flag, for `--help`.
pub(crate) fn help(flags: &[CliFlag]) -> String {
    let left = |flag: &CliFlag| format!("{} {}", flag.names.join(", "), flag.values.join(" "));
    let width = flags.iter().map(|flag| left(flag).len()).max().unwrap_or(0).min(30);
    let mut help = String::new();
    for flag in flags {
        let _ = writeln!(help, "  {:width$}  {}", left(flag), flag.doc);
    }
    help
}

const USER_PROPERTY: &str = "user-property";

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[CliFlag] = &[
        CliFlag { names: &["-p", "--port"], values: &["PORT"], doc: "" },
        CliFlag { names: &["-q", "--quiet"], values: &[], doc: "" },
        CliFlag { names: &["-D", "--property"], values: &["COMMAND", "NAME", "VALUE"], doc: "" },
    ];

    fn run(line: &str) -> Result<Vec<(&'static str, String)>, Vec<String>> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let used = parse_flags(FLAGS, &arguments)?;
        Ok(used.into_iter().map(|used| (used.name, used.values.join(" "))).collect())
    }

    #[test]
    fn flags_are_read_in_their_order_with_their_values() {
        let used = run("-p 1 --port=2 -q -D publish user-property a b -D publish topic-alias 3");
        let expected = [
            ("--port", "1"),
            ("--port", "2"),
            ("--quiet", ""),
            ("--property", "publish user-property a b"),
            ("--property", "publish topic-alias 3"),
        ];
        assert_eq!(used.unwrap(), expected.map(|(name, value)| (name, value.to_string())));
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        assert_eq!(
            run("--quiet=1 --prot 1 file -z -D publish topic-alias").unwrap_err(),
            [
                "--quiet: takes no value",
                "--prot is not a flag, did you mean --port?",
                "1: only flags are expected here",
                "file: only flags are expected here",
                "-z is not a flag, --help lists them all",
                "-D: needs COMMAND NAME VALUE",
            ]
        );
    }

    #[test]
    fn words_stand_before_between_and_behind_flags() {
        for line in ["file -p 1 -q", "-p 1 file -q", "-p 1 -q file"] {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let (used, words) = parse_flags_and_words(FLAGS, &arguments).unwrap();
            assert_eq!((used.len(), words), (2, vec![OsString::from("file")]), "{line}");
        }
    }

    #[test]
    fn numbers_have_a_range() {
        let port = ParsedFlag { name: "--port", values: vec!["70000".to_string()] };
        assert_eq!(
            port.number::<u16>(1, 65_535).unwrap_err(),
            "--port 70000: use a number from 1 to 65535"
        );
    }
}
