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

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

struct BenchSubcommand {
    name: &'static str,
    run: fn(&[String]) -> ExitCode,
    summary: &'static str,
}

const SUBCOMMANDS: &[BenchSubcommand] = &[
    BenchSubcommand { name: "conn", run: classic::conn, summary: "connections, held" },
    BenchSubcommand { name: "pub", run: classic::publish, summary: "publishers" },
    BenchSubcommand { name: "sub", run: classic::subscribe, summary: "subscribers" },
    BenchSubcommand {
        name: "scenarios",
        run: run::list_scenarios,
        summary: "list what can be run",
    },
    BenchSubcommand { name: "show", run: run::print_scenario, summary: "print a scenario's file" },
    BenchSubcommand { name: "run", run: run::run, summary: "run a scenario and report" },
    BenchSubcommand { name: "report", run: report::run, summary: "other forms of JSON reports" },
    BenchSubcommand {
        name: "ramp",
        run: ramp::run,
        summary: "raise the load to the recommended one",
    },
    BenchSubcommand { name: "compare", run: compare::run, summary: "several brokers side by side" },
    BenchSubcommand {
        name: "agent",
        run: remote::agent,
        summary: "send load for a controller elsewhere",
    },
    BenchSubcommand {
        name: "brokers",
        run: compare::list_brokers,
        summary: "list brokers ready to compare",
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into()).collect();
    let name = arguments.first().map_or("--help", String::as_str);
    if let Some(subcommand) = SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name) {
        return (subcommand.run)(&arguments[1..]);
    }
    match name {
        "--help" | "-h" | "help" => {
            print_line(format_args!(
                "godwit-bench {VERSION}: load for any MQTT broker, and a report\n"
            ));
            print_line(format_args!(
                "Usage: godwit-bench SUBCOMMAND [FLAGS]    (SUBCOMMAND --help says more)\n"
            ));
            for subcommand in SUBCOMMANDS {
                print_line(format_args!("  {:10} {}", subcommand.name, subcommand.summary));
            }
            print_line(format_args!("\n{EXIT_CODES}"));
            ExitCode::SUCCESS
        }
        "--version" => {
            print_line(format_args!("godwit-bench {VERSION}"));
            ExitCode::SUCCESS
        }
        other => refuse_arguments(&[format!("{other} is not a subcommand, --help lists them all")]),
    }
}

/// The line of a subcommand without flags: its words if they are as many as it takes, and else
/// what to answer.
fn positional_args<'a>(
    arguments: &'a [String],
    count: usize,
    usage: &str,
) -> Result<&'a [String], ExitCode> {
    if arguments.iter().any(|argument| argument == "--help") {
        print_line(format_args!("Usage: godwit-bench {usage}"));
        return Err(ExitCode::SUCCESS);
    }
    if arguments.len() == count {
        return Ok(arguments);
    }
    Err(refuse_arguments(&[format!("usage: godwit-bench {usage}")]))
}

/// A line on stdout. Whoever has closed the pipe has seen enough, and the exit code still tells.
fn print_line(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line to stderr; errors are ignored.
fn print_error(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says everything that is wrong with a command line.
fn refuse_arguments(wrongs: &[String]) -> ExitCode {
    wrongs.iter().for_each(|wrong| print_error(format_args!("godwit-bench: {wrong}")));
    ExitCode::from(EXIT_WRONG_LINE)
}

/// The test could not be run.
fn report_failure(why: &str) -> ExitCode {
    print_error(format_args!("godwit-bench: {why}"));
    ExitCode::from(EXIT_NOT_RUN)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const EXIT_WRONG_LINE: u8 = 2;
pub(crate) const EXIT_NOT_RUN: u8 = 3;
const EXIT_CODES: &str = "Exit codes: 0 all that was sent arrived, 1 something was lost, doubled, \
refused or cut off,\n2 wrong command line or scenario, 3 the test could not be run.";
