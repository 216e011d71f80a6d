//! All figures of a load: medians with the range of the rounds, requests by kind, individual runs,
//! and faults.

use super::super::cpu_resolution::{
    CPU_OF_DELIVERY, PROCESSOR_MEAN, cpu_resolution, fixed_or_bound,
};
use super::super::grouping::{GroupKind, LoadGroup};
use super::super::verdict::sampler;
use super::super::wording::{amount, fixed};
use super::super::{list, number, text};
use super::escape_html;
use super::tables::{HtmlCell, HtmlRow, table};
use serde_json::Value;
use std::fmt::Write as _;

pub(super) fn write(group: &LoadGroup<'_>, out: &mut String) {
    let _ = writeln!(out, "<h3>All figures</h3>");
    overview(group, out);
    let runs_made: usize = group.brokers.iter().map(|broker| broker.runs.len()).sum();
    let more = match runs_made {
        1 => "Each kind of request".to_string(),
        n => format!("Each kind of request, and each of the {n} runs"),
    };
    let _ = writeln!(out, "<details><summary>{more}</summary>");
    requests(
        group,
        "Times of requests, ms. Latency counts from the time at which a message was \
        meant to leave.",
        TIME_COLUMNS,
        out,
    );
    requests(group, "Results of requests", RESULT_COLUMNS, out);
    runs(group, out);
    let _ = writeln!(out, "</details>");
    faults(group, out);
}

/// Writes a table with a row per figure of `FIGURES` and a column per broker.
fn overview(group: &LoadGroup<'_>, out: &mut String) {
    let rounds = group.brokers.iter().map(|one| one.runs.len()).max().unwrap_or(1);
    let what = if group.kind == GroupKind::Steps { "step" } else { "broker" };
    let caption = match rounds {
        1 => format!("Figures of each {what}"),
        n => format!("Figures of each {what}: median of {n} rounds, with the least and the most"),
    };
    let mut heads = vec!["figure".to_string()];
    heads.extend(group.brokers.iter().map(|one| one.name.clone()));
    let mut rows: Vec<HtmlRow> = Vec::new();
    for (name, path, factor, digits) in FIGURES {
        let of = |run: &Value| Some(run.pointer(path)?.as_f64()? * factor);
        let cells: Vec<HtmlCell> = group
            .brokers
            .iter()
            .map(|broker| {
                let resolution = broker.median(|run| Some(cpu_resolution(run, path)));
                let shown =
                    |value| fixed_or_bound(value, *digits, resolution.unwrap_or_default() * factor);
                let value = broker.median(of).map_or("-".into(), shown);
                let more = match broker.range(of) {
                    Some((least, most)) if least < most => {
                        format!("{} to {}", shown(least), shown(most))
                    }
                    _ => String::new(),
                };
                HtmlCell { value, more }
            })
            .collect();
        if cells.iter().any(|cell| cell.value != "-") {
            rows.push(((*name).to_string(), cells));
        }
    }
    table(&caption, &heads, &rows, out);
}

/// Writes a table with a row for each kind of request and broker.
fn requests(group: &LoadGroup<'_>, caption: &str, columns: &[SamplerColumn], out: &mut String) {
    let mut heads = vec!["request".to_string()];
    heads.extend(columns.iter().map(|(name, ..)| (*name).to_string()));
    let mut names: Vec<&str> = Vec::new();
    let all = group.brokers.iter().flat_map(|broker| &broker.runs);
    for one in all.flat_map(|run| list(run, "/samplers")) {
        let name = text(one, "/name");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut rows: Vec<HtmlRow> = Vec::new();
    for name in names {
        for broker in &group.brokers {
            let cells = columns.iter().map(|(_, key, factor, digits)| {
                let value = broker.median(|run| Some(sampler(run, name, key)? * factor));
                HtmlCell::from(value.map_or("-".to_string(), |value| fixed(value, *digits)))
            });
            let cells: Vec<HtmlCell> = cells.collect();
            if cells.iter().any(|cell| cell.value != "-") {
                let what = SAMPLER_NAMES.iter().find(|(known, _)| *known == name);
                let what = what.map_or(name, |(_, what)| what);
                rows.push((format!("{what}: {}", broker.name), cells));
            }
        }
    }
    if !rows.is_empty() {
        table(caption, &heads, &rows, out);
    }
}

/// Writes a row for every run, since a median hides the spread.
fn runs(group: &LoadGroup<'_>, out: &mut String) {
    let mut heads = vec!["run".to_string()];
    heads.extend(RUN_COLUMNS.iter().map(|(name, ..)| (*name).to_string()));
    heads.push("result".into());
    let mut rows: Vec<HtmlRow> = Vec::new();
    for broker in &group.brokers {
        for (round, run) in broker.runs.iter().enumerate() {
            let mut cells: Vec<HtmlCell> = RUN_COLUMNS
                .iter()
                .map(|(_, of, digits)| {
                    HtmlCell::from(of(run).map_or("-".to_string(), |value| fixed(value, *digits)))
                })
                .collect();
            cells.push(result(run).into());
            let name = match broker.runs.len() {
                1 => broker.name.clone(),
                _ => format!("{}, round {}", broker.name, round + 1),
            };
            rows.push((name, cells));
        }
    }
    table("Each run", &heads, &rows, out);
}

fn result(run: &Value) -> String {
    let faults = list(run, "/faults").iter().filter_map(Value::as_str);
    let faults = faults.collect::<Vec<_>>().join("; ");
    if faults.is_empty() { "no fault".into() } else { faults }
}

/// Writes the failures by kind, the worst streams, and the warnings of each run.
fn faults(group: &LoadGroup<'_>, out: &mut String) {
    let mut warnings: Vec<(String, String)> = Vec::new();
    for broker in &group.brokers {
        for (round, run) in broker.runs.iter().enumerate() {
            let name = match broker.runs.len() {
                1 => broker.name.clone(),
                _ => format!("{}, round {}", broker.name, round + 1),
            };
            for warning in list(run, "/warnings").iter().filter_map(Value::as_str) {
                match warnings.iter_mut().find(|(_, known)| known == warning) {
                    Some((names, _)) => *names += &format!("; {name}"),
                    None => warnings.push((name.clone(), warning.to_string())),
                }
            }
            failures(&name, run, out);
        }
    }
    if warnings.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h3>Warnings</h3>\n<ul>");
    for (names, warning) in warnings {
        let _ = writeln!(out, "<li>{}: {}</li>", escape_html(&names), escape_html(&warning));
    }
    let _ = writeln!(out, "</ul>");
}

fn failures(name: &str, run: &Value, out: &mut String) {
    let all = list(run, "/failures");
    if !all.is_empty() {
        let rows: Vec<HtmlRow> = all
            .iter()
            .map(|one| (text(one, "/what").to_string(), vec![amount(number(one, "/count")).into()]))
            .collect();
        let heads = ["failure", "how often"].map(String::from);
        table(&format!("Failures of {name}"), &heads, &rows, out);
    }
    let is_faulty = |stream: &&Value| {
        ["/lost", "/duplicates", "/reordered"].iter().any(|path| number(stream, path) > 0.0)
    };
    let streams: Vec<&Value> = list(run, "/streams").iter().filter(is_faulty).collect();
    if streams.is_empty() {
        return;
    }
    let keys = ["topic", "sent", "expected", "received", "lost", "duplicates", "reordered"];
    let mut heads = vec!["publisher".to_string()];
    heads.extend(keys.map(String::from));
    let rows: Vec<HtmlRow> = streams
        .iter()
        .map(|stream| {
            let cells = keys.iter().map(|key| match &stream[*key] {
                Value::String(text) => text.clone(),
                other => fixed(other.as_f64().unwrap_or(0.0), 0),
            });
            (text(stream, "/publisher").to_string(), cells.map(HtmlCell::from).collect())
        })
        .collect();
    table(&format!("Publishers and topics of {name} with faults"), &heads, &rows, out);
}

/// Name with unit, path in the report, factor, digits.
const FIGURES: &[(&str, &str, f64, usize)] = &[
    ("clients planned", "/clients/planned", 1.0, 0),
    ("clients connected", "/clients/live_at_start", 1.0, 0),
    ("published, messages/s", "/rates/published", 1.0, 1),
    ("delivered, messages/s", "/rates/received", 1.0, 1),
    ("deliveries expected", "/messages/expected", 1.0, 0),
    ("deliveries received", "/messages/received", 1.0, 0),
    ("lost", "/messages/lost", 1.0, 0),
    ("duplicates", "/messages/duplicates", 1.0, 0),
    ("out of order", "/messages/reordered", 1.0, 0),
    ("never acknowledged", "/messages/unanswered", 1.0, 0),
    ("measured, s", "/phases_s/measure", 1.0, 1),
    ("requests of all kinds, requests/s", "/overview/requests_per_s", 1.0, 1),
    ("of them successful, requests/s", "/overview/success_per_s", 1.0, 1),
    ("of them failed, requests/s", "/overview/failed_per_s", 1.0, 1),
    ("most clients at once", "/overview/virtual_users_max", 1.0, 0),
    ("response time of all kinds, mean, ms", "/overview/response_ms/mean", 1.0, 3),
    ("response time, least, ms", "/overview/response_ms/min", 1.0, 3),
    ("response time, most, ms", "/overview/response_ms/max", 1.0, 3),
    ("answered with success, %", "/overview/success", 100.0, 3),
    ("verified, %", "/overview/verified", 100.0, 3),
    ("message, KiB", "/overview/request_kib", 1.0, 3),
    ("publishers", "/overview/publishers", 1.0, 0),
    ("subscribers", "/overview/subscribers", 1.0, 0),
    ("topics", "/overview/topics", 1.0, 0),
    ("broker CPU, processors", PROCESSOR_MEAN, 1.0, 2),
    ("broker CPU a delivery, \u{b5}s", CPU_OF_DELIVERY, 1.0, 2),
    ("broker memory at most, MB", "/target_use/memory_kb/max", 1.0 / 1024.0, 1),
    ("host CPU in use, %", "/target_use/host_cpu/mean", 100.0, 1),
    ("host CPU given to others (steal), %", "/target_use/host_stolen/mean", 100.0, 1),
    ("host CPU of other processes, %", "/target_use/host_others/mean", 100.0, 1),
    ("tester's busiest thread, % of a processor", "/own/thread_cpu_max", 100.0, 0),
    ("the same while connecting, %", "/own/thread_cpu_max_connecting", 100.0, 0),
    ("tester's lateness, 99th percentile, ms", "/own/lateness_ms/p99", 1.0, 3),
];

/// Column of a table of samplers: heading, key in the sampler's figures, factor, and number of
/// decimals.
type SamplerColumn = (&'static str, &'static str, f64, usize);

const TIME_COLUMNS: &[SamplerColumn] = &[
    ("count", "hits", 1.0, 0),
    ("mean", "mean", 1.0, 3),
    ("least", "min", 1.0, 3),
    ("50 %", "p50", 1.0, 3),
    ("90 %", "p90", 1.0, 3),
    ("99 %", "p99", 1.0, 3),
    ("99.9 %", "p999", 1.0, 3),
    ("most", "max", 1.0, 3),
    ("standard deviation", "stdev", 1.0, 3),
    ("mean of the fastest 90 %", "mean_fastest_90", 1.0, 3),
];

const RESULT_COLUMNS: &[SamplerColumn] = &[
    ("successful, requests/s", "success_per_s", 1.0, 1),
    ("failed, requests/s", "failed_per_s", 1.0, 1),
    ("success, %", "success", 100.0, 2),
    ("checks passed", "checks_passed", 1.0, 0),
    ("checks failed", "checks_failed", 1.0, 0),
    ("payload, KiB", "kib", 1.0, 3),
];

const SAMPLER_NAMES: &[(&str, &str)] =
    &[("Sub", "Delivery"), ("Pub", "Publish"), ("Lateness", "Tester's lateness")];

type RunColumn = (&'static str, fn(&Value) -> Option<f64>, usize);

const RUN_COLUMNS: &[RunColumn] = &[
    ("delivered, messages/s", |run| run.pointer("/rates/received")?.as_f64(), 1),
    ("latency 50 %, ms", |run| sampler(run, "Sub", "p50"), 3),
    ("latency 99 %, ms", |run| sampler(run, "Sub", "p99"), 3),
    ("lost", |run| run.pointer("/messages/lost")?.as_f64(), 0),
    ("tester thread, %", |run| Some(run.pointer("/own/thread_cpu_max")?.as_f64()? * 100.0), 0),
    ("host CPU, %", |run| Some(run.pointer("/target_use/host_cpu/mean")?.as_f64()? * 100.0), 0),
    ("steal, %", |run| Some(run.pointer("/target_use/host_stolen/mean")?.as_f64()? * 100.0), 1),
    ("others, %", |run| Some(run.pointer("/target_use/host_others/mean")?.as_f64()? * 100.0), 1),
    ("tries", |run| run["tries"].as_f64(), 0),
];
