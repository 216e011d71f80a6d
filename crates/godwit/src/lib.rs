//! The `godwit` program: the broker and its tools, one subcommand each. A library, so that tests of
//! other crates can use its options.
//!
//! Exit codes: 0 done (also a drained broker); 1 it could not start or continue; 2 a wrong command
//! line or option. `pub` and `sub` have mosquitto's exit codes, see `clients`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "http", feature = "mysql", feature = "postgres", feature = "redis")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "a build without some of the backends has no use for parts of the others"
    )
)]

mod check;
mod clients;
mod event_log;
mod flags;
mod host;
mod import_command;
mod listener_socket;
mod logs;
mod option_catalog;
mod options;
mod passwd_command;
mod process_resources;
mod reference;
mod rule_tester;
mod rules_reference;
mod serve;
mod store_command;

pub use option_catalog::option_catalog;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

struct CliSubcommand {
    name: &'static str,
    run: fn(&[OsString]) -> ExitCode,
    short: &'static str,
}

const SUBCOMMANDS: &[CliSubcommand] = &[
    CliSubcommand { name: "serve", run: serve::run, short: "run the broker; the default" },
    CliSubcommand {
        name: "check",
        run: check::run,
        short: "read all options, print what they change",
    },
    CliSubcommand { name: "options", run: check::list_options, short: "list every option" },
    CliSubcommand {
        name: "reference",
        run: reference::run,
        short: "print the tables of the protocol and of $SYS",
    },
    CliSubcommand { name: "rules", run: rule_tester::run, short: "try rules without a broker" },
    CliSubcommand {
        name: "import",
        run: import_command::run,
        short: "write our options from those of mosquitto, NanoMQ or EMQX",
    },
    CliSubcommand {
        name: "store",
        run: store_command::run,
        short: "check, export or import a data folder",
    },
    CliSubcommand {
        name: "passwd",
        run: passwd_command::run,
        short: "write the file of users and passwords",
    },
    CliSubcommand { name: "pub", run: clients::publish::run, short: "publish messages" },
    CliSubcommand {
        name: "sub",
        run: clients::subscribe::run,
        short: "subscribe and print messages",
    },
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
        "-h" | "--help" | "help" => print(&help()),
        "-V" | "--version" => print(&format!("godwit {VERSION}\n")),
        flag if flag.starts_with('-') => serve::run(&arguments),
        _ => fail_with_usage_error(&[unknown_subcommand(name)]),
    }
}

fn help() -> String {
    let mut help = format!("godwit {VERSION}: an MQTT broker for 3.1, 3.1.1 and 5.0\n\n");
    help.push_str("Usage: godwit [SUBCOMMAND] [FLAGS]    (godwit SUBCOMMAND --help says more)\n\n");
    for subcommand in SUBCOMMANDS {
        let _ = writeln!(help, "  {:9}  {}", subcommand.name, subcommand.short);
    }
    let _ = write!(help, "\nFlags of serve and check:\n{}", flags::help(serve::FLAGS));
    let _ = write!(help, "\nOptions, for --set, the file and the environment [default]:\n");
    help + &options::option_text::help() + "\n" + EXIT_CODES
}

fn unknown_subcommand(name: &str) -> String {
    let names = SUBCOMMANDS.iter().map(|subcommand| subcommand.name);
    match config::nearest::nearest_word(name, names) {
        Some(meant) => format!("{name} is not a subcommand, did you mean {meant}?"),
        None => format!("{name} is not a subcommand, --help lists them all"),
    }
}

/// To stdout. Whoever closed it has read enough.
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
        let _ = writeln!(stderr, "godwit: {wrong}");
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const EXIT_WRONG_OPTION: u8 = 2;
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 could not start or go on, 2 wrong command line or option.
Signals: SIGTERM and SIGINT drain and stop, SIGHUP reads the options again.
";
