//! Parsed command lines: the values of flags as texts, numbers and times.

use command_line::{ArgMatches, Command, Error, ErrorKind, ValueSource};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::process::ExitCode;

/// A parsed command line. A flag that is not given has the default of its table.
#[derive(Debug)]
pub(crate) struct ParsedFlags(ArgMatches);

/// Parses a command line. Help, or what is wrong, is printed, and the error is the exit code.
pub(crate) fn parse_line(
    command: Command,
    arguments: &[OsString],
) -> Result<ParsedFlags, ExitCode> {
    let matches = command_line::parse(crate::PROGRAM, command, arguments);
    matches.map(ParsedFlags::new).map_err(|error| report_line_error(&error))
}

pub(crate) fn report_line_error(error: &Error) -> ExitCode {
    let text = command_line::error_text(crate::PROGRAM, error);
    if !error.use_stderr() {
        crate::print_text(&text);
        return ExitCode::SUCCESS;
    }
    crate::print_error(text.trim_end());
    match error.kind() {
        ErrorKind::Io => ExitCode::from(crate::EXIT_NOT_RUN),
        _ => ExitCode::from(crate::EXIT_WRONG_LINE),
    }
}

/// Name under which a command declares its positional arguments.
pub(crate) const WORDS: &str = "WORDS";

impl ParsedFlags {
    pub(crate) fn new(matches: ArgMatches) -> ParsedFlags {
        ParsedFlags(matches)
    }

    /// Returns the positional arguments in order.
    pub(crate) fn words(&self) -> Vec<String> {
        let words = self.0.try_get_many::<OsString>(WORDS).ok().flatten();
        let words = words.into_iter().flatten();
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Returns the first positional argument; empty if there is none.
    pub(crate) fn word(&self) -> String {
        self.words().into_iter().next().unwrap_or_default()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// Whether the command line has it, and not the table alone.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.0.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// Returns the value of a flag; the last one if the flag is repeated.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    /// Returns every value of a flag; none if the command has no such flag.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let values = self.0.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().map(String::as_str)
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// Reads any unsigned number up to the largest `T`. `None` if neither the command line nor the
    /// table has the flag.
    pub(crate) fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, String> {
        self.number_in(name, 0..=largest::<T>())
    }

    /// Returns the value of a flag as a number in `range`, like [`ParsedFlags::number`]. A number
    /// outside of the range is an error.
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

    /// Returns the value of a flag as a finite number above 0; `None` if the flag has neither a
    /// value nor a default. Any other value is an error.
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

#[cfg(test)]
mod tests {
    use super::*;
    use command_line::{FlagRow, TRUTH};

    const FLAGS: &[FlagRow] = &[
        FlagRow::new(&["-c", "--count"], &["N"], "").with_default("200"),
        FlagRow::new(&["-r", "--retain"], TRUTH, "").with_default("false"),
        FlagRow::new(&["-w", "--wait"], TRUTH, "").with_default("false"),
    ];

    fn line(text: &str) -> Result<ParsedFlags, String> {
        let arguments: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        let command = command_line::command("test", "", FLAGS);
        let matches = command_line::parse(crate::PROGRAM, command, &arguments);
        matches.map(ParsedFlags::new).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_may_be_apart_or_glued() {
        for text in ["-c 5", "-c5", "--count 5", "--count=5", "-c=5", "-c 9 -c 5"] {
            assert_eq!(line(text).expect("a good line").number("--count"), Ok(Some(5)), "{text}");
        }
        assert_eq!(line("").expect("a good line").number("--count"), Ok(Some(200)));
        let line = line("-c many").expect("read, not understood");
        assert!(line.number::<u64>("--count").is_err());
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
        let why = line("--retain=maybe").expect_err("no truth");
        assert!(why.contains("'maybe' for '--retain [<BOOL>]': use true or false"), "{why}");
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
