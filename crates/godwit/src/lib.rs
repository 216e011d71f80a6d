//! The `godwit` program: the broker and its small tools, one subcommand each. It is a library so
//! that the fuzzer can reach what it reads.
//!
//! Exit codes: 0 done (a drained broker too); 1 it could not start or go on; 2 a wrong command
//! line or option. `pub` and `sub` have mosquitto's, see `clients`.
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

mod acl;
mod bans;
mod check;
mod clients;
mod flags;
mod folder;
mod host;
mod identity;
mod import;
#[cfg(feature = "bridge")]
mod links;
mod listen;
mod logs;
#[cfg(test)]
mod mutations;
mod notes;
mod options;
mod outside;
#[cfg(feature = "remote")]
mod patience;
pub mod probes;
#[cfg(feature = "psk")]
mod psk;
mod reference;
mod rulebook;
#[cfg(feature = "remote")]
mod runtime;
mod security;
mod serve;
mod source;
mod timestamp;
mod trial;
mod withheld;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

struct Subcommand {
    name: &'static str,
    run: fn(&[OsString]) -> ExitCode,
    short: &'static str,
}

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "serve", run: serve::run, short: "run the broker; the default" },
    Subcommand {
        name: "check",
        run: check::run,
        short: "read all options, print what they change",
    },
    Subcommand { name: "options", run: check::list, short: "list every option" },
    Subcommand {
        name: "reference",
        run: reference::run,
        short: "print the tables of the protocol and of $SYS",
    },
    Subcommand { name: "rules", run: trial::run, short: "try rules without a broker" },
    Subcommand {
        name: "import",
        run: import::run,
        short: "write our options from those of mosquitto, NanoMQ or EMQX",
    },
    Subcommand { name: "store", run: folder::run, short: "check, export or import a data folder" },
    Subcommand {
        name: "passwd",
        run: identity::passwd::run,
        short: "write the file of users and passwords",
    },
    Subcommand { name: "pub", run: clients::publish::run, short: "publish messages" },
    Subcommand { name: "sub", run: clients::subscribe::run, short: "subscribe and print messages" },
];

/// What `godwit` does with its command line.
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
        _ => refuse(&[unknown(name)]),
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
    help + &options::text::help() + "\n" + EXIT_CODES
}

fn unknown(name: &str) -> String {
    let names = SUBCOMMANDS.iter().map(|subcommand| subcommand.name);
    match options::nearest::nearest(name, names) {
        Some(meant) => format!("{name} is no subcommand, did you mean {meant}?"),
        None => format!("{name} is no subcommand, --help lists them all"),
    }
}

/// To stdout. Whoever closed it has read enough.
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Says everything that is wrong with a command line or an option.
fn refuse(wrongs: &[String]) -> ExitCode {
    complain(wrongs);
    ExitCode::from(EXIT_WRONG_OPTION)
}

fn fail(wrongs: &[String]) -> ExitCode {
    complain(wrongs);
    ExitCode::FAILURE
}

fn complain(wrongs: &[String]) {
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
