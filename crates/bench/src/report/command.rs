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
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let value = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
        let list = match value {
            // A comparison is a list of reports.
            Value::Array(list) => list,
            report => vec![report],
        };
        if list.is_empty() || !list.iter().all(is_report) {
            return Err(format!("{path}: no report of godwit-bench, use what --json has written"));
        }
        reports.extend(list);
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

/// In a comparison a broker that could not be run has an error in a report's place.
fn is_report(value: &Value) -> bool {
    value["tool"] == "godwit-bench" || value["error"].is_string()
}

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
