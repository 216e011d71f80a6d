//! The report as Markdown: overview, detail and full disclosure.

use super::cpu_resolution::{CPU_OF_DELIVERY, bound, cpu_resolution};
use super::grouping::group_by_load;
use super::verdict::verdict as conclude;
use super::{list, number, text};
use serde_json::Value;
use std::fmt::Write as _;

pub(crate) fn markdown(report: &Value) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}\n", text(report, "/scenario/name"));
    verdict(report, &mut out);
    overview(report, &mut out);
    detail(report, &mut out);
    streams(report, &mut out);
    failures(report, &mut out);
    target(report, &mut out);
    disclosure(report, &mut out);
    out
}

/// Returns the conclusion: the winner, the lead, and whether the result counts.
pub(crate) fn conclusion(reports: &[Value]) -> String {
    let groups = group_by_load(reports);
    let verdict = conclude(&groups);
    let mut out = format!("**{}**\n\n", verdict.sentence);
    for sentence in &verdict.of_loads {
        let _ = writeln!(out, "* {sentence}");
    }
    if !verdict.of_loads.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "{}\n", verdict.describe_standing());
    for one in &verdict.reservations {
        let _ = writeln!(out, "* {}", one.text);
    }
    if !verdict.reservations.is_empty() {
        out.push('\n');
    }
    out
}

/// Returns the statement of a run without faults.
fn passed(report: &Value) -> &'static str {
    match number(report, "/messages/expected") > 0.0 {
        true => "nothing was lost, doubled, refused or cut off",
        false => "nothing was refused or cut off; loss was not judged",
    }
}

fn verdict(report: &Value, out: &mut String) {
    let faults = list(report, "/faults");
    if faults.is_empty() {
        let _ = writeln!(out, "**Passed**: {}.\n", passed(report));
    } else {
        let _ = writeln!(out, "**Failed**:\n");
        faults.iter().filter_map(Value::as_str).for_each(|fault| {
            let _ = writeln!(out, "* {fault}");
        });
        let _ = writeln!(out);
    }
    for warning in list(report, "/warnings").iter().filter_map(Value::as_str) {
        let _ = writeln!(out, "> {warning}\n");
    }
}

fn overview(report: &Value, out: &mut String) {
    let row = |out: &mut String, name: &str, value: String| {
        let _ = writeln!(out, "| {name} | {value} |");
    };
    let _ = writeln!(out, "## Overview\n\n| | |\n|---|--:|");
    let planned = number(report, "/clients/planned");
    let live = number(report, "/clients/live_at_start");
    row(out, "clients planned / connected", format!("{planned:.0} / {live:.0}"));
    let names = [
        ("connected a second", "/rates/connected"),
        ("published a second", "/rates/published"),
        ("received a second", "/rates/received"),
        ("messages sent", "/messages/sent"),
        ("deliveries expected", "/messages/expected"),
        ("deliveries received", "/messages/received"),
        ("lost", "/messages/lost"),
        ("duplicates", "/messages/duplicates"),
        ("reordered", "/messages/reordered"),
        ("never acknowledged", "/messages/unanswered"),
        ("seconds without any delivery", "/silent_s"),
    ];
    for (name, path) in names {
        row(out, name, format!("{:.0}", number(report, path)));
    }
    for (name, path, digits) in OVERVIEW {
        let path = format!("/overview/{path}");
        if report.pointer(&path).is_some_and(|value| !value.is_null()) {
            row(out, name, format!("{:.*}", *digits, number(report, &path)));
        }
    }
    for name in ["connect", "warm_up", "measure", "drain"] {
        let value = number(report, &format!("/phases_s/{name}"));
        row(out, &format!("phase {name}, s"), format!("{value:.1}"));
    }
    let _ = writeln!(out);
}

fn detail(report: &Value, out: &mut String) {
    let _ = writeln!(out, "## Detail\n\nMilliseconds.\n");
    let names = DETAIL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(out, "| sampler | hits | {names} | a second | failed | success |");
    let _ = writeln!(out, "|---|--:|{}--:|--:|--:|", "--:|".repeat(DETAIL.len()));
    for row in list(report, "/samplers") {
        let _ = write!(out, "| {} | {:.0} ", text(row, "/name"), number(row, "/hits"));
        for (_, path) in DETAIL {
            let digits = if path.contains("checks") { 0 } else { 3 };
            let _ = write!(out, "| {:.*} ", digits, number(row, path));
        }
        let success = number(row, "/success") * 100.0;
        let (per_s, failed) = (number(row, "/per_s"), number(row, "/failed"));
        let _ = writeln!(out, "| {per_s:.1} | {failed:.0} | {success:.2} % |");
    }
    let _ = writeln!(out);
}

fn streams(report: &Value, out: &mut String) {
    let faulty = number(report, "/messages/faulty_streams");
    let all = number(report, "/messages/streams");
    if faulty == 0.0 {
        return;
    }
    let _ = writeln!(out, "## Publishers and topics with faults: {faulty:.0} of {all:.0}\n");
    let _ = writeln!(
        out,
        "| publisher | topic | sent | expected | received | lost | duplicates | reordered |"
    );
    let _ = writeln!(out, "|---|---|--:|--:|--:|--:|--:|--:|");
    for stream in list(report, "/streams").iter().take(LISTED) {
        let _ = write!(out, "| {} | {} ", text(stream, "/publisher"), text(stream, "/topic"));
        for path in ["/sent", "/expected", "/received", "/lost", "/duplicates", "/reordered"] {
            let _ = write!(out, "| {:.0} ", number(stream, path));
        }
        let _ = writeln!(out, "|");
    }
    let _ = writeln!(out);
}

fn failures(report: &Value, out: &mut String) {
    let failures = list(report, "/failures");
    if failures.is_empty() {
        return;
    }
    let _ = writeln!(out, "## Failures\n\n| what | how often |\n|---|--:|");
    for failure in failures {
        let _ = writeln!(out, "| {} | {:.0} |", text(failure, "/what"), number(failure, "/count"));
    }
    let _ = writeln!(out);
}

fn target(report: &Value, out: &mut String) {
    let _ = writeln!(out, "## Broker and host while measuring\n\n| | mean | most |\n|---|--:|--:|");
    let shown = |value: f64, digits: usize, path: &str| {
        let bound = bound(value, digits, cpu_resolution(report, path));
        bound.unwrap_or_else(|| format!("{value:.digits$}"))
    };
    for (name, key, factor) in USE {
        if report.pointer(&format!("/target_use/{key}")).is_none_or(Value::is_null) {
            continue;
        }
        let mean = number(report, &format!("/target_use/{key}/mean")) * factor;
        let max = number(report, &format!("/target_use/{key}/max")) * factor;
        let mean = shown(mean, 2, &format!("/target_use/{key}/mean"));
        let max = shown(max, 2, &format!("/target_use/{key}/max"));
        let _ = writeln!(out, "| {name} | {mean} | {max} |");
    }
    if let Some(cost) = report.pointer("/target_use/cpu_us_per_delivery").and_then(Value::as_f64) {
        let cost = shown(cost, 3, CPU_OF_DELIVERY);
        let _ = writeln!(out, "| broker CPU microseconds a delivery | {cost} | |");
    }
    for (name, path) in [("", "/own/thread_cpu_max"), (", connecting", CONNECTING)] {
        if let Some(own) = report.pointer(path).and_then(Value::as_f64) {
            let own = own * 100.0;
            let _ = writeln!(
                out,
                "| the tester's busiest thread{name}, % of a processor | | {own:.0} |"
            );
        }
    }
    let late = number(report, "/own/lateness_ms/p99");
    let _ = writeln!(out, "| the tester's lateness, ms, 99th percentile | {late:.3} | |\n");
}

pub(crate) fn disclosure(report: &Value, out: &mut String) {
    let _ = writeln!(out, "## Disclosure\n");
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(out, "* {name}: {value}");
        }
    };
    line("Command", format!("`{}`", text(report, "/command")));
    let urls = list(report, "/target/urls").iter().filter_map(Value::as_str);
    line("Target", urls.collect::<Vec<_>>().join(", "));
    line("Broker", text(report, "/target/broker").into());
    line("Broker's version", text(report, "/target/version").into());
    line("Broker's command", text(report, "/target/command").into());
    line("Scale", format!("{}", number(report, "/scenario/scale")));
    line("Scaled", text(report, "/scenario/scaled").into());
    for line in super::host_lines(report) {
        let _ = writeln!(out, "* {line}");
    }
    for (what, path, form) in [
        ("Scenario", "/scenario/text", "toml"),
        ("Broker's configuration", "/target/configuration", ""),
    ] {
        let text = text(report, path).trim();
        if !text.is_empty() {
            let _ = writeln!(out, "\n{what}:\n\n```{form}\n{text}\n```");
        }
    }
}

const LISTED: usize = 20;
const CONNECTING: &str = "/own/thread_cpu_max_connecting";

/// Name, key in the report, digits: XMeter's overview, and the load in terms of the Open MQTT
/// Benchmark Suite.
const OVERVIEW: &[(&str, &str, usize)] = &[
    ("requests of all kinds a second", "requests_per_s", 1),
    ("of them successful", "success_per_s", 1),
    ("of them failed", "failed_per_s", 1),
    ("most virtual users", "virtual_users_max", 0),
    ("response time of all kinds, mean, ms", "response_ms/mean", 3),
    ("least, ms", "response_ms/min", 3),
    ("most, ms", "response_ms/max", 3),
    ("answered with success, of 1", "success", 5),
    ("verified, of 1", "verified", 5),
    ("message, KiB", "request_kib", 3),
    ("publishers", "publishers", 0),
    ("subscribers", "subscribers", 0),
    ("topics", "topics", 0),
    ("subscriptions a second", "subscribe_per_s", 0),
];

const DETAIL: &[(&str, &str)] = &[
    ("mean", "/mean"),
    ("min", "/min"),
    ("p50", "/p50"),
    ("p90", "/p90"),
    ("p99", "/p99"),
    ("p99.9", "/p999"),
    ("max", "/max"),
    ("deviation", "/stdev"),
    ("fastest 90 %", "/mean_fastest_90"),
    ("KiB", "/kib"),
    ("checks passed", "/checks_passed"),
    ("checks failed", "/checks_failed"),
    ("successful a second", "/success_per_s"),
    ("failed a second", "/failed_per_s"),
];

/// Rows of the broker's resource use: name, key in `/target_use` of the report, and factor to the
/// unit in the name.
const USE: &[(&str, &str, f64)] = &[
    ("broker CPU, processors", "cpu", 1.0),
    ("broker memory, MB", "memory_kb", 1.0 / 1024.0),
    ("broker threads", "threads", 1.0),
    ("broker descriptors", "descriptors", 1.0),
    ("broker context switches a second", "switches_per_s", 1.0),
    ("broker disk reads, KB a second", "disk_read_per_s", 1.0 / 1024.0),
    ("broker disk writes, KB a second", "disk_written_per_s", 1.0 / 1024.0),
    ("host CPU, %", "host_cpu", 100.0),
    ("host CPU given to others, %", "host_stolen", 100.0),
    ("host CPU of other processes, %", "host_others", 100.0),
    ("host memory in use, MB", "host_memory_kb", 1.0 / 1024.0),
    ("host network in, KB a second", "net_in_per_s", 1.0 / 1024.0),
    ("host network out, KB a second", "net_out_per_s", 1.0 / 1024.0),
    ("packets in a second", "packets_in_per_s", 1.0),
    ("packets out a second", "packets_out_per_s", 1.0),
];
