//! `report`: other forms of reports that were written as JSON before.

use super::{csv, html, jtl, markdown};
use crate::flags::{ParsedFlags, WORDS, parse_line};
use crate::test_session::write_text;
use command_line::{Command, FlagRow};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn command() -> Command {
    let files =
        command_line::word(WORDS, "FILE.json", "what --json of another command has written");
    command_line::command("report", "Writes other forms of JSON reports", FLAGS)
        .arg(files.num_args(1..))
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let line = match parse_line(command(), arguments) {
        Ok(line) => line,
        Err(code) => return code,
    };
    match write_forms(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => crate::refuse_arguments(&[why]),
    }
}

fn write_forms(line: &ParsedFlags) -> Result<(), String> {
    let mut reports: Vec<Value> = Vec::new();
    for path in &line.words() {
        reports.extend(read_reports(path)?);
    }
    let first = reports.first().ok_or("the reports are empty")?;
    let each = |form: fn(&Value) -> String| reports.iter().map(form).collect::<Vec<_>>().join("\n");
    let mut wrote = false;
    for flag in ["--html", "--markdown", "--csv", "--jtl"] {
        let Some(path) = line.text(flag) else { continue };
        let text = match flag {
            "--html" => html(&reports),
            "--markdown" => each(markdown),
            "--csv" => csv(first),
            _ => jtl(first),
        };
        write_text(Path::new(path), &text)?;
        wrote = true;
    }
    if !wrote {
        write_text(Path::new("-"), &each(markdown))?;
    }
    Ok(())
}

/// Reads the report of a file, or the list of reports that `compare --json` has written.
fn read_reports(path: &str) -> Result<Vec<Value>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let wrong = |why: &str| {
        format!(
            "{path}: this is not a report of godwit-bench: {why}; use the JSON file that --json of \
             run, ramp, compare, conn, pub or sub has written"
        )
    };
    let text = str::from_utf8(&bytes).map_err(|_| wrong("the file is not text in UTF-8"))?;
    let list = match serde_json::from_str(text.trim_start_matches(BYTE_ORDER_MARK)) {
        Ok(Value::Array(list)) => list,
        Ok(report) => vec![report],
        Err(error) => {
            return Err(match file_kind(text) {
                Some(kind) => wrong(&format!("the file is {kind}")),
                None => wrong(&format!("not JSON: {error}")),
            });
        }
    };
    if list.is_empty() || !list.iter().all(is_report) {
        return Err(wrong("the file is JSON without what a report has"));
    }
    Ok(list)
}

/// Describes the kind of a file given in the place of another kind, for an error; `None` if
/// unknown.
pub(crate) fn file_kind(text: &str) -> Option<&'static str> {
    let text = text.trim_start_matches(BYTE_ORDER_MARK).trim_start();
    let is_toml =
        || toml::de::DeTable::parse(text).is_ok_and(|document| !document.get_ref().is_empty());
    match (text.chars().next(), serde_json::from_str::<Value>(text)) {
        (None, _) => Some("empty"),
        (Some('<'), _) => Some("HTML, such as --html writes"),
        (_, Ok(Value::Array(list))) if !list.is_empty() && list.iter().all(is_report) => {
            Some("JSON with the reports of a comparison")
        }
        (_, Ok(report)) if is_report(&report) => Some("JSON with a report"),
        (Some('{' | '['), Ok(_)) => Some("JSON"),
        _ if is_toml() => Some("TOML, such as a scenario or the plan of a comparison"),
        (Some('#' | '*' | '|'), _) => Some("Markdown, such as --markdown writes"),
        _ => None,
    }
}

/// Whether a value is a report. In a comparison a broker that failed to run has an `error` instead.
fn is_report(value: &Value) -> bool {
    value["tool"] == "godwit-bench" || value["error"].is_string()
}

const BYTE_ORDER_MARK: char = '\u{FEFF}';

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--html"], &["FILE"], "one page, all reports overlaid"),
    FlagRow::new(&["--markdown"], &["FILE"], "one after the other"),
    FlagRow::new(&["--csv"], &["FILE"], "the first one's seconds"),
    FlagRow::new(&["--jtl"], &["FILE"], "the first one's, for JMeter"),
];
