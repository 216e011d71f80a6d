//! `godwit-bench`: a load generator for any MQTT broker, with a report of the broker's behaviour.
//!
//! Exit codes: 0 every message arrived; 1 messages were lost, duplicated or refused, or connections
//! were lost; 2 wrong command line or scenario; 3 the test could not be run.
#![forbid(unsafe_code)]

mod classic;
mod clock;
mod compare;
mod flags;
mod host;
mod limits;
mod load;
mod load_stats;
mod metrics;
mod plan;
mod ramp;
mod remote;
mod report;
mod run;
mod scenario;
mod stamp;
mod target;
mod template;
mod test_driver;
mod test_session;
mod track;
mod watch;

use command_line::Command;
use flags::report_line_error;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Subcommand. Only the subcommand of the command line is built, except for descriptions of all
/// subcommands.
struct BenchSubcommand {
    name: &'static str,
    command: fn() -> Command,
    run: fn(&[OsString]) -> ExitCode,
}

const SUBCOMMANDS: &[BenchSubcommand] = &[
    BenchSubcommand { name: "conn", command: classic::conn_command, run: classic::conn },
    BenchSubcommand { name: "pub", command: classic::publish_command, run: classic::publish },
    BenchSubcommand { name: "sub", command: classic::subscribe_command, run: classic::subscribe },
    BenchSubcommand { name: "scenarios", command: run::list_command, run: run::list_scenarios },
    BenchSubcommand { name: "show", command: run::show_command, run: run::print_scenario },
    BenchSubcommand { name: "run", command: run::command, run: run::run },
    BenchSubcommand { name: "report", command: report::command, run: report::run },
    BenchSubcommand { name: "ramp", command: ramp::command, run: ramp::run },
    BenchSubcommand { name: "compare", command: compare::command, run: compare::run },
    BenchSubcommand { name: "agent", command: remote::agent_command, run: remote::agent },
    BenchSubcommand { name: "brokers", command: compare::list_command, run: compare::list_brokers },
    BenchSubcommand {
        name: "completions",
        command: command_line::completions_command,
        run: print_completions,
    },
    BenchSubcommand { name: "man", command: command_line::man_command, run: print_man_page },
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let name = arguments.first().map_or("--help".into(), |first| first.to_string_lossy());
    if let Some(subcommand) = SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name) {
        return (subcommand.run)(&arguments[1..]);
    }
    let parsed = match &*name {
        "help" | "--help" | "-h" => {
            print_text(&program_command().render_help().to_string());
            return ExitCode::SUCCESS;
        }
        _ => command_line::parse(PROGRAM, program_command(), &arguments),
    };
    match parsed {
        Ok(_) => unreachable!("a known subcommand was run"),
        Err(error) => report_line_error(&error),
    }
}

/// Returns the whole program.
fn program_command() -> Command {
    command_line::command(PROGRAM, "Load for any MQTT broker, and a report", [])
        .version(VERSION)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(SUBCOMMANDS.iter().map(|subcommand| (subcommand.command)()))
        .after_help(EXIT_CODES)
}

fn print_completions(arguments: &[OsString]) -> ExitCode {
    print_document(command_line::print_completions(program_command(), arguments))
}

fn print_man_page(arguments: &[OsString]) -> ExitCode {
    print_document(command_line::print_man_page(program_command(), arguments))
}

fn print_document(document: Result<Vec<u8>, command_line::Error>) -> ExitCode {
    match document {
        Ok(text) => {
            print_text(&String::from_utf8_lossy(&text));
            ExitCode::SUCCESS
        }
        Err(error) => report_line_error(&error),
    }
}

/// Prints a text to stdout; a closed stdout is not an error.
fn print_text(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Prints a line to stdout. A closed stdout is not an error, and the exit code still reports the
/// outcome.
fn print_line(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line to stderr; errors are ignored.
fn print_error(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints every error of a command line, and returns the exit code.
fn refuse_arguments(wrongs: &[String]) -> ExitCode {
    wrongs.iter().for_each(|wrong| print_error(format_args!("{PROGRAM}: {wrong}")));
    ExitCode::from(EXIT_WRONG_LINE)
}

/// Prints why the test could not run, and returns the exit code.
fn report_failure(why: &str) -> ExitCode {
    print_error(format_args!("{PROGRAM}: {why}"));
    ExitCode::from(EXIT_NOT_RUN)
}

const PROGRAM: &str = "godwit-bench";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const EXIT_WRONG_LINE: u8 = 2;
pub(crate) const EXIT_NOT_RUN: u8 = 3;
const EXIT_CODES: &str = "Exit codes: 0 all that was sent arrived, 1 something was lost, doubled, \
refused or cut off,\n2 wrong command line or scenario, 3 the test could not be run.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_man_page_of_a_subcommand_have_every_flag() {
        program_command().debug_assert();
        for row in SUBCOMMANDS {
            let command = (row.command)();
            assert_eq!(row.name, command.get_name());
            let help = (row.command)().render_help().to_string();
            let page = command_line::print_man_page(program_command(), &[row.name.into()]);
            let page = String::from_utf8(page.expect("it is known")).expect("text");
            for long in command.get_arguments().filter_map(|flag| flag.get_long()) {
                let is_shown = |line: &str| line.split(' ').any(|word| word == format!("--{long}"));
                assert!(help.lines().any(is_shown), "{} --{long}: {help}", row.name);
                let name = format!("\\-\\-{}", long.replace('-', "\\-"));
                assert!(page.contains(&name), "{} --{long}: {page}", row.name);
            }
        }
    }
}
