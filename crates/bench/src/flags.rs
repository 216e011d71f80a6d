//! Reads command lines from tables of flags, in the manner of emqtt_bench's parser: `-c 10`,
//! `-c10`, `--count 10`, `--count=10`, and switches with or without a truth behind them.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// A flag of the command line. The program knows the flag by its last name.
#[derive(Debug)]
pub(crate) struct FlagSpec {
    pub(crate) names: &'static [&'static str],
    /// Placeholder of the value; empty, or `BOOL`, for a switch.
    pub(crate) value: &'static str,
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

/// A parsed command line.
#[derive(Debug, Default)]
pub(crate) struct ParsedFlags {
    values: Vec<(&'static str, String)>,
    /// Flags that have their default values.
    defaulted: Vec<&'static str>,
    /// Arguments that are not flags, in their order.
    pub(crate) positional: Vec<String>,
}

/// Reads all of a command line, or says everything that is wrong with it.
pub(crate) fn parse_flags(
    tables: &[&'static [FlagSpec]],
    arguments: &[String],
) -> Result<ParsedFlags, Vec<String>> {
    let mut line = ParsedFlags::default();
    let mut wrongs = Vec::new();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        if !argument.starts_with('-') || argument == "-" {
            line.positional.push(argument.clone());
            continue;
        }
        let Some((flag, glued)) = find_flag(tables, argument) else {
            wrongs.push(format!("{argument} is not a flag, --help lists them all"));
            continue;
        };
        let name = flag.names[flag.names.len() - 1];
        let value = match glued {
            Some(value) => Some(value),
            None if flag.is_switch() => {
                let said = rest.next_if(|value| parse_bool(value).is_some());
                Some(said.cloned().unwrap_or_else(|| "true".into()))
            }
            None => rest.next().cloned(),
        };
        match value {
            Some(value) if flag.is_switch() => match parse_bool(&value) {
                Some(is_on) => line.values.push((name, is_on.to_string())),
                None => wrongs.push(format!("{argument}: use true or false")),
            },
            Some(value) => line.values.push((name, value)),
            None => wrongs.push(format!("{argument} needs {}", flag.value)),
        }
    }
    let defaults = tables.iter().flat_map(|table| table.iter());
    for flag in defaults.filter(|flag| !flag.default.is_empty()) {
        let name = flag.names[flag.names.len() - 1];
        if !line.has(name) {
            line.values.push((name, flag.default.into()));
            line.defaulted.push(name);
        }
    }
    if wrongs.is_empty() { Ok(line) } else { Err(wrongs) }
}

/// The flag, and the value that is glued to it.
fn find_flag(
    tables: &[&'static [FlagSpec]],
    argument: &str,
) -> Option<(&'static FlagSpec, Option<String>)> {
    let flags = || tables.iter().flat_map(|table| table.iter());
    let named = |name: &str| flags().find(|flag| flag.names.contains(&name));
    if argument.starts_with("--") {
        return match argument.split_once('=') {
            Some((name, value)) => Some((named(name)?, Some(value.into()))),
            None => Some((named(argument)?, None)),
        };
    }
    let (short, rest) = argument.split_at_checked(2)?;
    let flag = named(short)?;
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    Some((flag, (!rest.is_empty()).then(|| rest.into())))
}

impl FlagSpec {
    fn is_switch(&self) -> bool {
        ["", "BOOL"].contains(&self.value)
    }
}

/// As emqtt_bench's parser has it (`getopt:to_type/2`).
fn parse_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "enabled" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "off" | "disabled" | "0" => Some(false),
        _ => None,
    }
}

impl ParsedFlags {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(used, _)| *used == name)
    }

    /// Whether the command line said it, and not the table.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.has(name) && !self.defaulted.contains(&name)
    }

    /// The last word counts.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let name = name.to_string();
        self.values.iter().filter(move |(used, _)| *used == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// Reads any unsigned number up to the largest `T`. `None` if neither the command line nor the
    /// table has the flag.
    pub(crate) fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, String> {
        self.number_in(name, 0..=largest::<T>())
    }

    /// As [`ParsedFlags::number`], in a range.
    pub(crate) fn number_in<T: TryFrom<u64>>(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<T>, String> {
        let read = |value: &str| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
                let (min, max) = (range.start(), range.end());
                format!("{name} {value}: use a whole number from {min} to {max}, without a unit")
            })
        };
        self.text(name).map(read).transpose()
    }

    /// `None` as in [`ParsedFlags::number`]; zero and below are refused, and so is infinity.
    pub(crate) fn positive(&self, name: &str) -> Result<Option<f64>, String> {
        let read = |value: &str| {
            let number = value.parse().ok().filter(|number: &f64| *number > 0.0);
            let number = number.filter(|number| number.is_finite());
            number.ok_or_else(|| format!("{name} {value}: use a number above 0"))
        };
        self.text(name).map(read).transpose()
    }

    /// Reads a number as `positive` does, zero included.
    pub(crate) fn not_negative(&self, name: &str) -> Result<Option<f64>, String> {
        let read = |value: &str| {
            let number = value.parse().ok().filter(|number: &f64| *number >= 0.0);
            let number = number.filter(|number| number.is_finite());
            number.ok_or_else(|| format!("{name} {value}: use a number from 0 on"))
        };
        self.text(name).map(read).transpose()
    }

    /// Reads milliseconds: `10`, as in emqtt_bench, or with a unit: `10ms`, `1.5s`, `2m`.
    pub(crate) fn milliseconds(&self, name: &str) -> Result<Option<f64>, String> {
        let wrong = |value: &str| {
            format!(
                "{name} {value}: use a number from 0 on, milliseconds as 10, or with a unit: \
                 10ms, 1.5s, 2m"
            )
        };
        let read = |value: &str| match value.parse::<f64>() {
            Ok(ms) => (ms >= 0.0 && ms.is_finite()).then_some(ms),
            Err(_) => parse_seconds(value).map(|seconds| seconds * 1_000.0),
        };
        self.text(name).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    /// Reads whole seconds up to the largest `T`, with or without a unit: `300`, `5m`.
    pub(crate) fn whole_seconds<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, String> {
        let max = largest::<T>();
        let wrong = |value: &str| {
            format!(
                "{name} {value}: use whole seconds from 0 to {max}, as 300, or with a unit: \
                 300s, 5m, 1h"
            )
        };
        let read = |value: &str| {
            let seconds = parse_seconds(value).filter(|seconds| seconds.fract() == 0.0)?;
            T::try_from(seconds as u64).ok()
        };
        self.text(name).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    /// Seconds: `90`, `1.5`, `90s`, `500ms`, `5m`, `1h`.
    pub(crate) fn seconds(&self, name: &str) -> Result<Option<f64>, String> {
        let wrong = |value: &str| format!("{name} {value}: use 90s, 500ms, 5m or 1h");
        self.text(name).map(|value| parse_seconds(value).ok_or_else(|| wrong(value))).transpose()
    }
}

/// Returns the largest number of `T`, an unsigned type of at most 64 bits.
fn largest<T>() -> u64 {
    u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>())
}

pub(crate) fn parse_seconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let factor = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let seconds = digits.parse::<f64>().ok()? * factor;
    (seconds >= 0.0 && seconds.is_finite()).then_some(seconds)
}

/// A line a flag, for `--help`.
pub(crate) fn help(tables: &[&'static [FlagSpec]]) -> String {
    let mut help = String::new();
    for flag in tables.iter().flat_map(|table| table.iter()) {
        let left = format!("{} {}", flag.names.join(", "), flag.value);
        let default = match flag.default {
            "" => String::new(),
            default => format!(" [{default}]"),
        };
        let _ = writeln!(help, "  {left:30} {}{default}", flag.doc);
    }
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[FlagSpec] = &[
        FlagSpec { names: &["-c", "--count"], value: "N", default: "200", doc: "" },
        FlagSpec { names: &["-r", "--retain"], value: "BOOL", default: "false", doc: "" },
        FlagSpec { names: &["-w", "--wait"], value: "", default: "false", doc: "" },
        FlagSpec { names: &["-t", "--topic"], value: "TOPIC", default: "", doc: "" },
    ];

    fn line(text: &str) -> Result<ParsedFlags, Vec<String>> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        parse_flags(&[FLAGS], &arguments)
    }

    #[test]
    fn a_value_may_be_apart_or_glued() {
        for text in ["-c 5", "-c5", "--count 5", "--count=5", "-c=5", "-c 9 -c 5"] {
            assert_eq!(line(text).expect("a good line").number("--count"), Ok(Some(5)), "{text}");
        }
        assert_eq!(line("").expect("a good line").number("--count"), Ok(Some(200)));
    }

    #[test]
    fn a_switch_takes_a_truth_or_nothing() {
        for (text, on) in [
            ("-r", true),
            ("-r -c 1", true),
            ("-r true -c 1", true),
            ("-r1", true),
            ("--retain=Yes", true),
            ("-r off", false),
            ("-r false", false),
            ("-r -r 0", false),
            ("", false),
        ] {
            assert_eq!(line(text).expect("a good line").is_on("--retain"), on, "{text}");
            let text = text.replace("-r", "-w").replace("--wetain", "--wait");
            assert_eq!(line(&text).expect("a good line").is_on("--wait"), on, "{text}");
        }
        assert_eq!(line("run -r name").expect("a good line").positional, ["run", "name"]);
        assert_eq!(
            line("--retain=maybe").expect_err("no truth"),
            ["--retain=maybe: use true or false"]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        let wrongs = line("--topick a -z -t").expect_err("a bad line");
        let expected = [
            "--topick is not a flag, --help lists them all",
            "-z is not a flag, --help lists them all",
            "-t needs TOPIC",
        ];
        assert_eq!(wrongs, expected);
        let line = line("-c many").expect("read, not understood");
        assert!(line.number::<u64>("--count").is_err());
    }

    #[test]
    fn numbers_of_emqtt_bench_may_have_units() {
        let of = |text: &str| line(text).expect("read").milliseconds("--count");
        let all = ["10", "10ms", "1.5s", "2m", "0", "0.5"].map(|n| of(&format!("-c {n}")));
        assert_eq!(all, [10.0, 10.0, 1_500.0, 120_000.0, 0.0, 0.5].map(|ms| Ok(Some(ms))));
        for wrong in ["-5", "10d", "ten", "inf"] {
            assert!(of(&format!("--count={wrong}")).unwrap_err().contains("10ms, 1.5s"), "{wrong}");
        }
        let of = |text: &str| line(text).expect("read").whole_seconds::<u16>("--count");
        assert_eq!(["300", "5m"].map(|n| of(&format!("-c {n}"))), [Ok(Some(300)), Ok(Some(300))]);
        assert!(of("-c 500ms").is_err() && of("-c 24h").is_err());
    }

    #[test]
    fn a_number_out_of_its_range_is_answered_with_the_range() {
        let line = |value: &str| line(&format!("--count={value}")).expect("read");
        for value in ["-1", "65536", "ten", "1.5", "1e3", ""] {
            let says =
                format!("--count {value}: use a whole number from 0 to 65535, without a unit");
            assert_eq!(line(value).number::<u16>("--count"), Err(says));
            let says = format!("--count {value}: use a whole number from 1 to 9, without a unit");
            assert_eq!(line(value).number_in::<u16>("--count", 1..=9), Err(says));
        }
        assert_eq!(line("65535").number::<u16>("--count"), Ok(Some(65_535)));
        let most = u64::MAX.to_string();
        assert_eq!(line(&most).number::<u64>("--count"), Ok(Some(u64::MAX)));
    }

    #[test]
    fn a_default_is_not_what_was_said() {
        let line = line("-c 200").expect("a good line");
        assert!(line.is_given("--count") && !line.is_given("--retain"));
    }

    #[test]
    fn spans_have_units() {
        let all = ["2", "1.5s", "250ms", "2m", "1h"].map(parse_seconds);
        assert_eq!(all, [2.0, 1.5, 0.25, 120.0, 3_600.0].map(Some));
        assert_eq!(["", "s", "1d", "-1", "1e400"].map(parse_seconds), [None; 5]);
    }
}
