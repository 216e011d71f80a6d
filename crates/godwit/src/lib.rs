//! The `godwit` program: the broker and its tools, one subcommand each. A library, so that tests of
//! other crates can use its options.
//!
//! Exit codes: 0 done (also a drained broker); 1 it could not start or continue; 2 a wrong command
//! line or option. `pub` and `sub` have mosquitto's exit codes, see `clients`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "gateway", feature = "sink")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "a build without some of the links or backends has no use for parts of the others"
    )
)]

mod check;
mod clients;
mod event_log;
mod host;
mod import_command;
mod links;
mod listener_socket;
mod logs;
mod option_catalog;
mod options;
mod passwd_command;
mod reference;
mod rule_tester;
mod rules_reference;
mod serve;
mod store_command;

#[cfg(test)]
mod tests;

pub use option_catalog::option_catalog;

use command_line::{ArgMatches, Command, Error, ErrorKind};
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// Subcommand. Only the subcommand of the command line is built, except for descriptions of all
/// subcommands.
struct CliSubcommand {
    name: &'static str,
    command: fn() -> Command,
    run: fn(&[OsString]) -> ExitCode,
}

const SUBCOMMANDS: &[CliSubcommand] = &[
    CliSubcommand { name: "serve", command: serve::command, run: serve::run },
    CliSubcommand { name: "check", command: check::command, run: check::run },
    CliSubcommand { name: "options", command: check::list_command, run: check::list_options },
    CliSubcommand { name: "reference", command: reference::command, run: reference::run },
    CliSubcommand { name: "rules", command: rule_tester::command, run: rule_tester::run },
    CliSubcommand { name: "import", command: import_command::command, run: import_command::run },
    CliSubcommand { name: "store", command: store_command::command, run: store_command::run },
    CliSubcommand { name: "passwd", command: passwd_command::command, run: passwd_command::run },
    CliSubcommand { name: "pub", command: clients::publish::command, run: clients::publish::run },
    CliSubcommand {
        name: "sub",
        command: clients::subscribe::command,
        run: clients::subscribe::run,
    },
    CliSubcommand {
        name: "completions",
        command: command_line::completions_command,
        run: print_completions,
    },
    CliSubcommand { name: "man", command: command_line::man_command, run: print_man_page },
];

/// Runs the program with its command line.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let first = arguments.first().map(|first| first.to_string_lossy().into_owned());
    let name = first.as_deref().unwrap_or("serve");
    if let Some(subcommand) = SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name) {
        return (subcommand.run)(arguments.get(1..).unwrap_or_default());
    }
    match name {
        "-V" | "--version" => print(&format!("{PROGRAM} {VERSION}\n")),
        "help" => print(&program_command().render_help().to_string()),
        flag if flag.starts_with('-') && !["-h", "--help"].contains(&flag) => {
            serve::run(&arguments)
        }
        _ => match command_line::parse(PROGRAM, program_command(), &arguments) {
            Ok(_) => unreachable!("a known subcommand was run"),
            Err(error) => report_line_error(&error, EXIT_WRONG_OPTION),
        },
    }
}

/// Returns the whole program. Flags without a subcommand are flags of `serve`.
fn program_command() -> Command {
    serve::broker_command(PROGRAM, "An MQTT broker for 3.1, 3.1.1 and 5.0")
        .override_usage(USAGE)
        .version(VERSION)
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

fn print_document(document: Result<Vec<u8>, Error>) -> ExitCode {
    match document {
        Ok(text) => print(&String::from_utf8_lossy(&text)),
        Err(error) => report_line_error(&error, EXIT_WRONG_OPTION),
    }
}

/// Parses the arguments of a subcommand. Prints help or an error, and returns the exit code as the
/// error.
fn parse_line(command: Command, arguments: &[OsString]) -> Result<ArgMatches, ExitCode> {
    let parsed = command_line::parse(PROGRAM, command, arguments);
    parsed.map_err(|error| report_line_error(&error, EXIT_WRONG_OPTION))
}

fn report_line_error(error: &Error, exit_code: u8) -> ExitCode {
    let text = command_line::error_text(PROGRAM, error);
    if !error.use_stderr() {
        return print(&text);
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    match error.kind() {
        ErrorKind::Io => ExitCode::FAILURE,
        _ => ExitCode::from(exit_code),
    }
}

/// Prints to stdout. A closed stdout is not an error.
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints all errors of a command line or of options, and returns `EXIT_WRONG_OPTION`.
fn fail_with_usage_error(wrongs: &[String]) -> ExitCode {
    print_errors(wrongs);
    ExitCode::from(EXIT_WRONG_OPTION)
}

fn fail(wrongs: &[String]) -> ExitCode {
    print_errors(wrongs);
    ExitCode::FAILURE
}

fn print_errors(wrongs: &[String]) {
    let mut stderr = std::io::stderr().lock();
    for wrong in wrongs {
        let _ = writeln!(stderr, "{PROGRAM}: {wrong}");
    }
}

const PROGRAM: &str = "godwit";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const EXIT_WRONG_OPTION: u8 = 2;
const USAGE: &str = "\
godwit [OPTIONS]          runs the broker, as godwit serve does
       godwit COMMAND [OPTIONS]  godwit COMMAND --help says more";
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 could not start or go on, 2 wrong command line or option.
Signals: SIGTERM and SIGINT drain and stop, SIGHUP reads the options again.";
