//! `godwit import`: the command line of crate `import`.

use crate::flags::{self, CliFlag};
use crate::option_catalog::option_catalog;
use crate::options::{OptionPlan, OptionSources};
use crate::{fail, fail_with_usage_error, print, print_errors};
use import::ImportRequest;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const FLAGS: &[CliFlag] = &[
    CliFlag {
        names: &["--from"],
        values: &["KIND"],
        doc: "mosquitto, nanomq, nanomq-old, emqx or emqx4; told by the keys without it",
    },
    CliFlag {
        names: &["--out"],
        values: &["FILE"],
        doc: "where to write; it must not be there yet",
    },
    CliFlag { names: &["--strict"], values: &[], doc: "a key that nobody knows is an error" },
    CliFlag { names: &["--markdown"], values: &[], doc: "the tables, as the page docs/import.md" },
    CliFlag { names: &["-h", "--help"], values: &[], doc: "this" },
];

const HELP: &str = "\
Usage: godwit import [--from KIND] [--out FILE] [--strict] FILE

Reads a configuration of mosquitto, NanoMQ or EMQX and writes ours, to stdout or FILE, with the line
that each value comes from. What has no equal stands at its end and on stderr. Rules and plain
passwords go to files beside FILE. Exit code 2 if anything is wrong; nothing is written then. What
decided there about access and has no equal here lets nobody in.

";

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let request = match parse_arguments(arguments) {
        Ok(ImportCommand::Import(request)) => request,
        Ok(ImportCommand::Help) => return print(&format!("{HELP}{}", flags::help(FLAGS))),
        Ok(ImportCommand::Markdown) => return print(&import::markdown()),
        Err(wrongs) => return fail_with_usage_error(&wrongs),
    };
    let made = match import::import(&request, option_catalog()) {
        Ok(made) => made,
        Err(wrongs) => return fail_with_usage_error(&wrongs),
    };
    if let Err(why) = import::write_files(&made) {
        return fail(&[why]);
    }
    print_errors(&made.missing);
    match request.out {
        None => print(&String::from_utf8_lossy(&made.files[0].1)),
        Some(out) => {
            // Files that it names may be on another host: those are for `check` to look at.
            let sources = OptionSources { config: Some(out), ..OptionSources::default() };
            let left = OptionPlan::read(&sources).err().unwrap_or_default();
            print_errors(&left.iter().map(|one| format!("still to do: {one}")).collect::<Vec<_>>());
            ExitCode::SUCCESS
        }
    }
}

enum ImportCommand {
    Help,
    Import(ImportRequest),
    Markdown,
}

fn parse_arguments(arguments: &[OsString]) -> Result<ImportCommand, Vec<String>> {
    let (used, files) = flags::parse_flags_and_words(FLAGS, arguments)?;
    let named = |name: &str| used.iter().rev().find(|used| used.name == name);
    if named("--help").is_some() {
        return Ok(ImportCommand::Help);
    }
    if named("--markdown").is_some() {
        return Ok(ImportCommand::Markdown);
    }
    let [file] = &files[..] else {
        return Err(vec!["use godwit import [--out FILE] FILE".to_string()]);
    };
    Ok(ImportCommand::Import(ImportRequest {
        file: PathBuf::from(file),
        from: named("--from").map(|used| used.value().to_string()),
        out: named("--out").map(|used| PathBuf::from(used.value())),
        strict: named("--strict").is_some(),
    }))
}
