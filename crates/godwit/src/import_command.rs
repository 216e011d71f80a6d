//! `godwit import`: the command line of the crate `import`.

use crate::option_catalog::option_catalog;
use crate::options::{OptionPlan, OptionSources};
use crate::{fail, fail_with_usage_error, parse_line, print, print_errors};
use command_line::{ArgMatches, Command, FlagRow};
use import::ImportRequest;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const FLAGS: &[FlagRow] = &[
    FlagRow::new(
        &["--from"],
        &["KIND"],
        "mosquitto, nanomq, nanomq-old, emqx or emqx4; told by the keys without it",
    ),
    FlagRow::new(&["--out"], &["FILE"], "where to write; it must not be there yet"),
    FlagRow::new(&["--strict"], &[], "a key that nobody knows is an error"),
    FlagRow::new(&["--markdown"], &[], "the tables, as the page docs/import.md"),
];

const HELP: &str = "\
Writes to stdout or FILE, with the line that each value comes from. What has no equal stands at its
end and on stderr. Rules and plain passwords go to files beside FILE. Exit code 2 if anything is
wrong; nothing is written then. What decided there about access and has no equal here lets nobody
in.";

pub(crate) fn command() -> Command {
    command_line::command(
        "import",
        "Writes our options from those of mosquitto, NanoMQ or EMQX",
        FLAGS,
    )
    .arg(command_line::words(WORDS, "the configuration to read"))
    .override_usage("godwit import [--from KIND] [--out FILE] [--strict] FILE")
    .after_help(HELP)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let matches = match parse_line(command(), arguments) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    if matches.contains_id("--markdown") {
        return print(&import::markdown());
    }
    let request = match parse_request(&matches) {
        Ok(request) => request,
        Err(why) => return fail_with_usage_error(&[why]),
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
            // Files that the result names may be on another host, so only `check` reads them.
            let sources = OptionSources { config: Some(out), ..OptionSources::default() };
            let left = OptionPlan::read(&sources).err().unwrap_or_default();
            print_errors(&left.iter().map(|one| format!("still to do: {one}")).collect::<Vec<_>>());
            ExitCode::SUCCESS
        }
    }
}

/// Whether a word is a kind for `--from`.
fn is_kind(word: &OsStr) -> bool {
    import::kinds().any(|kind| word.eq_ignore_ascii_case(kind))
}

fn kind_instead_of_file(kind: &OsStr, file: &str) -> String {
    let kind = kind.to_string_lossy().to_lowercase();
    format!(
        "{kind} is a kind of configuration and not a file: use godwit import {file} --from {kind}"
    )
}

const USAGE: &str = "use godwit import [--from KIND] [--out FILE] [--strict] FILE";

const WORDS: &str = "FILE";

fn parse_request(matches: &ArgMatches) -> Result<ImportRequest, String> {
    let text = |name| command_line::text(matches, name);
    let files = command_line::words_of(matches, WORDS);
    let file = match &files[..] {
        [file] if is_kind(file) && !Path::new(file).exists() => {
            return Err(kind_instead_of_file(file, "FILE"));
        }
        [file] => file,
        [kind, file] if is_kind(kind) => {
            return Err(kind_instead_of_file(kind, &file.to_string_lossy()));
        }
        [] => return Err(format!("the file is missing, {USAGE}")),
        many => return Err(format!("{} files are given, {USAGE}", many.len())),
    };
    Ok(ImportRequest {
        file: PathBuf::from(file),
        from: text("--from").map(str::to_string),
        out: text("--out").map(PathBuf::from),
        strict: matches.contains_id("--strict"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let matches = parse_line(command(), &arguments).expect("clap takes it");
        parse_request(&matches).expect_err("it is wrong")
    }

    #[test]
    fn a_kind_in_the_place_of_the_file_is_answered_with_its_flag() {
        for (line, says) in [
            ("mosquitto m.conf", "use godwit import m.conf --from mosquitto"),
            ("EMQX m.conf --strict", "use godwit import m.conf --from emqx"),
            ("nanomq-old", "use godwit import FILE --from nanomq-old"),
            ("", "the file is missing, use godwit import [--from KIND]"),
            ("a.conf b.conf", "2 files are given, use godwit import [--from KIND]"),
        ] {
            let found = refusal(line);
            assert!(found.contains(says), "{line}: {found}");
        }
    }

    #[test]
    fn kinds_are_those_that_imports_know() {
        let doc = FLAGS[0].doc;
        for kind in import::kinds() {
            let request =
                ImportRequest { from: Some(kind.to_string()), ..ImportRequest::default() };
            let wrongs = import::import(&request, option_catalog()).err().expect("no file");
            assert!(!wrongs[0].contains("unknown kind") && doc.contains(kind), "{wrongs:?}");
        }
    }
}
