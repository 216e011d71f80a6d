//! `report`: other forms of reports that were written as JSON before.

use super::{csv, html, jtl, markdown};
use crate::flags::{FlagSpec, ParsedFlags, help, parse_flags};
use crate::test_session::write_text;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help") {
        crate::print_line(format_args!(
            "Usage: godwit-bench report FILE.json... [FLAGS]\n\n{}",
            help(&[FLAGS])
        ));
        return ExitCode::SUCCESS;
    }
    match parse_flags(&[FLAGS], arguments)
        .and_then(|line| write_forms(&line).map_err(|why| vec![why]))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrongs) => crate::refuse_arguments(&wrongs),
    }
}

fn write_forms(line: &ParsedFlags) -> Result<(), String> {
    let mut reports: Vec<Value> = Vec::new();
    for path in &line.positional {
        reports.extend(read_reports(path)?);
    }
    let first = reports.first().ok_or("report needs at least one FILE.json")?;
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

const FLAGS: &[FlagSpec] = &[
    FlagSpec {
        names: &["--html"],
        value: "FILE",
        default: "",
        doc: "one page, all reports overlaid",
    },
    FlagSpec { names: &["--markdown"], value: "FILE", default: "", doc: "one after the other" },
    FlagSpec { names: &["--csv"], value: "FILE", default: "", doc: "the first one's seconds" },
    FlagSpec { names: &["--jtl"], value: "FILE", default: "", doc: "the first one's, for JMeter" },
];
