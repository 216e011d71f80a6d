//! `godwit-bench`: load for any MQTT broker, and a report of what the broker did with it.
//!
//! Exit codes: 0 all that was sent arrived; 1 something was lost, doubled, refused or cut off;
//! 2 a wrong command line or scenario; 3 the test could not be run.
#![forbid(unsafe_code)]

mod classic;
mod clock;
mod compare;
mod conduct;
mod flags;
mod host;
mod limits;
mod load;
mod metrics;
mod plan;
mod ramp;
mod remote;
mod report;
mod run;
mod scenario;
mod session;
mod stamp;
mod tally;
mod target;
mod template;
mod track;
mod watch;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

struct Subcommand {
    name: &'static str,
    run: fn(&[String]) -> ExitCode,
    short: &'static str,
}

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "conn", run: classic::conn, short: "connections, held" },
    Subcommand { name: "pub", run: classic::publish, short: "publishers" },
    Subcommand { name: "sub", run: classic::subscribe, short: "subscribers" },
    Subcommand { name: "scenarios", run: run::list, short: "list what can be run" },
    Subcommand { name: "show", run: run::show, short: "print a scenario's file" },
    Subcommand { name: "run", run: run::run, short: "run a scenario and report" },
    Subcommand { name: "report", run: report::run, short: "other forms of JSON reports" },
    Subcommand { name: "ramp", run: ramp::run, short: "raise the load to the recommended one" },
    Subcommand { name: "compare", run: compare::run, short: "several brokers side by side" },
    Subcommand { name: "agent", run: remote::agent, short: "send load for a controller elsewhere" },
    Subcommand { name: "brokers", run: compare::list, short: "list brokers ready to compare" },
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
            say(format_args!("godwit-bench {VERSION}: load for any MQTT broker, and a report\n"));
            say(format_args!(
                "Usage: godwit-bench SUBCOMMAND [FLAGS]    (SUBCOMMAND --help says more)\n"
            ));
            for subcommand in SUBCOMMANDS {
                say(format_args!("  {:10} {}", subcommand.name, subcommand.short));
            }
            say(format_args!("\n{EXIT_CODES}"));
            ExitCode::SUCCESS
        }
        "--version" => {
            say(format_args!("godwit-bench {VERSION}"));
            ExitCode::SUCCESS
        }
        other => refuse(&[format!("{other} is no subcommand, --help lists them all")]),
    }
}

/// The line of a subcommand without flags: its words if they are as many as it takes, and else
/// what to answer.
fn words<'a>(arguments: &'a [String], count: usize, usage: &str) -> Result<&'a [String], ExitCode> {
    if arguments.iter().any(|argument| argument == "--help") {
        say(format_args!("Usage: godwit-bench {usage}"));
        return Err(ExitCode::SUCCESS);
    }
    if arguments.len() == count {
        return Ok(arguments);
    }
    Err(refuse(&[format!("usage: godwit-bench {usage}")]))
}

/// A line on stdout. Whoever has closed the pipe has seen enough, and the exit code still tells.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// The same on stderr.
fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says everything that is wrong with a command line.
fn refuse(wrongs: &[String]) -> ExitCode {
    wrongs.iter().for_each(|wrong| tell(format_args!("godwit-bench: {wrong}")));
    ExitCode::from(EXIT_WRONG_LINE)
}

/// The test could not be run.
fn fail(why: &str) -> ExitCode {
    tell(format_args!("godwit-bench: {why}"));
    ExitCode::from(EXIT_NOT_RUN)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const EXIT_WRONG_LINE: u8 = 2;
pub(crate) const EXIT_NOT_RUN: u8 = 3;
const EXIT_CODES: &str = "Exit codes: 0 all that was sent arrived, 1 something was lost, doubled, \
refused or cut off,\n2 wrong command line or scenario, 3 the test could not be run.";
