//! Software, host, commands and scenarios of the runs, so that a reader can repeat the runs.

use super::super::grouping::{BrokerRuns, LoadGroup};
use super::super::{host_lines, list, text};
use super::escape_html;
use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::Value;
use std::fmt::Write as _;

pub(super) fn write(groups: &[LoadGroup<'_>], out: &mut String) {
    let _ = writeln!(out, "<section aria-labelledby=\"disclosure\">");
    let _ = writeln!(out, "<h2 id=\"disclosure\">Disclosure</h2>");
    let runs = || groups.iter().flat_map(|group| &group.brokers).flat_map(|one| &one.runs);
    if let Some(run) = runs().find(|run| run["tool"].is_string()) {
        let _ = writeln!(out, "<h3>Host and tester</h3>\n<dl>");
        write_pair("Command", text(run, "/command"), out);
        let began = run["began_unix_s"].as_u64().map(utc).unwrap_or_default();
        write_pair("Began", &began, out);
        for line in host_lines(run) {
            let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
            write_pair(name, value, out);
        }
        let _ = writeln!(out, "</dl>");
    }
    let mut shown: Vec<&str> = Vec::new();
    for broker in groups.iter().flat_map(|group| &group.brokers) {
        if !shown.contains(&broker.name.as_str()) {
            shown.push(&broker.name);
            write_broker(broker, out);
        }
    }
    scenarios(groups, out);
    let _ = writeln!(out, "</section>");
}

fn write_broker(broker: &BrokerRuns<'_>, out: &mut String) {
    let run = broker.runs.iter().find(|run| run["tool"].is_string()).unwrap_or(&broker.runs[0]);
    let _ = writeln!(out, "<h3>{}</h3>\n<dl>", escape_html(&broker.name));
    let urls = list(run, "/target/urls").iter().filter_map(Value::as_str);
    write_pair("Target", &urls.collect::<Vec<_>>().join(", "), out);
    write_pair("Version", text(run, "/target/version"), out);
    write_pair("Command", text(run, "/target/command"), out);
    if let Some(why) = broker.error() {
        write_pair("Could not be run", why, out);
    }
    let _ = writeln!(out, "</dl>");
    let configuration = text(run, "/target/configuration").trim();
    if !configuration.is_empty() {
        let _ = writeln!(out, "<pre>{}</pre>", escape_html(configuration));
    }
}

/// Writes each distinct text of a scenario once, also if the scenario ran at several scales.
fn scenarios(groups: &[LoadGroup<'_>], out: &mut String) {
    let mut shown: Vec<&str> = Vec::new();
    for group in groups {
        let runs = group.brokers.iter().flat_map(|one| &one.runs);
        let mut texts = runs.map(|run| text(run, "/scenario/text").trim());
        let Some(scenario) = texts.find(|text| !text.is_empty()) else { continue };
        if !shown.contains(&scenario) {
            shown.push(scenario);
            let _ = writeln!(
                out,
                "<details><summary>Scenario {}</summary>\n<pre>{}</pre>\n</details>",
                escape_html(&group.name),
                escape_html(scenario)
            );
        }
    }
}

fn write_pair(name: &str, value: &str, out: &mut String) {
    if !value.trim().is_empty() {
        let _ = writeln!(
            out,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escape_html(name),
            escape_html(value)
        );
    }
}

/// Formats a Unix time in seconds, for example `2026-11-21 10:00:00 UTC`.
fn utc(unix_s: u64) -> String {
    let moment = i64::try_from(unix_s).ok().and_then(|at| Timestamp::from_second(at).ok());
    let moment = Offset::UTC.to_datetime(moment.unwrap_or(Timestamp::MAX));
    moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_255_199), "2026-11-21 09:59:59 UTC");
    }
}
