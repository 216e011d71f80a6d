//! A self-contained HTML file without network access, complete without its script: the conclusion,
//! charts of each load with all brokers, all figures, and the disclosure.

mod charts;
mod details;
mod disclosure;
mod result_section;
mod tables;

use super::grouping::{LoadGroup, group_by_load};
use super::verdict::{GroupVerdict, group_verdict, verdict};
use super::wording::list_of;
use serde_json::Value;
use std::fmt::Write as _;

/// Returns the page of one report, or of several reports whose brokers are compared.
pub(crate) fn html(reports: &[Value]) -> String {
    let groups = group_by_load(reports);
    let mut body = String::new();
    result_section::write(&groups, &verdict(&groups), &mut body);
    for (at, group) in groups.iter().enumerate() {
        write_load(at, group, &group_verdict(group), &mut body);
    }
    disclosure::write(&groups, &mut body);
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let title = escape_html(&format!("{} - godwit-bench", list_of(&names)));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Writes the section of a load: charts, then details.
fn write_load(at: usize, group: &LoadGroup<'_>, own: &GroupVerdict, out: &mut String) {
    let _ = writeln!(
        out,
        "<section aria-labelledby=\"load-{at}\">\n<h2 id=\"load-{at}\">{}</h2>",
        escape_html(&group.name)
    );
    if !group.title.is_empty() {
        let _ = writeln!(out, "<p>{}.</p>", escape_html(group.title.trim_end_matches('.')));
    }
    if !group.scaled.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">Scaled: {}.</p>", escape_html(group.scaled));
    }
    charts::bars(group, own, out);
    charts::over_time(group, out);
    details::write(group, out);
    let _ = writeln!(out, "</section>");
}

/// Escapes text for HTML, also within double quotes.
fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns the CSS classes for the colour and the dashes of a broker's line.
fn series_class(at: usize) -> String {
    format!("s{} d{}", at % COLORS, at % DASHES)
}

/// Number of colours in the style sheet.
const COLORS: usize = 9;
const DASHES: usize = 4;
const CSS: &str = include_str!("../../../assets/report.css");
/// Script that opens folded parts before printing. The page is complete without the script.
const SCRIPT: &str = include_str!("../../../assets/report.js");

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_text_of_a_report_can_leave_its_place() {
        let evil = "\"'></script><script>alert(1)</script>";
        let report = json!({
            "tool": "godwit-bench",
            "command": evil,
            "scenario": { "name": evil, "text": evil, "scaled": evil },
            "target": { "broker": evil, "version": evil, "configuration": evil, "urls": [evil] },
            "host": { "processor": evil, "system": evil },
            "warnings": [evil],
            "faults": [evil],
            "failures": [{ "what": evil, "count": 1 }],
            "streams": [{ "publisher": evil, "topic": evil, "lost": 1 }],
            "samplers": [{ "name": evil, "p99": 1.0 }],
            "seconds": [{ "t": 0, "received": 1 }, { "t": 1, "received": 2 }],
        });
        let error = json!({ "scenario": { "name": "x" }, "error": evil, "faults": [evil] });
        let page = html(&[report, error]);
        assert!(!page.contains("<script>alert") && !page.contains("\"'>"), "{page}");
        assert!(page.contains("<title>&quot;'&gt;&lt;/script&gt;"), "{page}");
    }

    #[test]
    fn a_page_asks_the_network_for_nothing() {
        let page = html(&[json!({})]);
        for way in ["src=", "<link", "@import", "url(", "http:", "https:", "fetch("] {
            assert!(!page.contains(way), "{way}");
        }
    }

    #[test]
    fn four_brokers_are_four_everywhere() {
        let names = ["a", "bee", "cat, with a long name of its own", "doggy"];
        let reports = names.map(|broker| {
            json!({
                "tool": "godwit-bench",
                "scenario": { "name": "fan" },
                "target": { "broker": broker },
                "messages": { "expected": 10, "received": 10 },
                "samplers": [{ "name": "Sub", "p99": 2 + broker.len(), "hits": 10 }],
                "seconds": [{ "t": 0, "received": 1 }, { "t": 1, "received": 2 }],
            })
        });
        let page = html(&reports);
        for name in names {
            // In the picture, in each chart's key, in the tables and in the disclosure.
            let times = page.matches(&format!(">{name}<")).count();
            assert!(times >= 5, "{name}: {times}");
        }
        assert!(page.contains("a won fan: its 99th percentile of delivery latency is 3 ms"));
    }
}
