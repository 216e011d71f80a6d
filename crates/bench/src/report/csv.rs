//! The report's seconds as CSV.

use super::list;
use serde_json::Value;
use std::fmt::Write as _;

/// Formats a report as CSV, with one line per second and the columns of [`COLUMNS`].
pub(crate) fn csv(report: &Value) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut out = names.join(",") + "\n";
    for second in list(report, "/seconds") {
        let values = COLUMNS.iter().map(|(_, path)| match second.pointer(path) {
            None | Some(Value::Null) => String::new(),
            Some(value) => value.to_string(),
        });
        let _ = writeln!(out, "{}", values.collect::<Vec<_>>().join(","));
    }
    out
}

const COLUMNS: &[(&str, &str)] = &[
    ("t_s", "/t"),
    ("live", "/live"),
    ("connects_per_s", "/connects"),
    ("published_per_s", "/published"),
    ("received_per_s", "/received"),
    ("bytes_in_per_s", "/bytes_in"),
    ("lost_connections", "/lost_connections"),
    ("succeeded_per_s", "/succeeded"),
    ("failed", "/failed"),
    ("connect_mean_ms", "/connect_ms/mean"),
    ("sub_mean_ms", "/sub_ms/mean"),
    ("sub_p50_ms", "/sub_ms/p50"),
    ("sub_p99_ms", "/sub_ms/p99"),
    ("sub_max_ms", "/sub_ms/max"),
    ("pub_mean_ms", "/pub_ms/mean"),
    ("pub_p99_ms", "/pub_ms/p99"),
    ("tester_thread_cpu_max", "/thread_cpu_max"),
    ("broker_cpu", "/target/cpu"),
    ("broker_memory_kb", "/target/memory_kb"),
    ("broker_threads", "/target/threads"),
    ("broker_descriptors", "/target/descriptors"),
    ("broker_switches_per_s", "/target/switches_per_s"),
    ("broker_disk_read_per_s", "/target/disk_read_per_s"),
    ("broker_disk_written_per_s", "/target/disk_written_per_s"),
    ("host_cpu", "/target/host_cpu"),
    ("host_stolen", "/target/host_stolen"),
    ("host_others", "/target/host_others"),
    ("host_memory_kb", "/target/host_memory_kb"),
    ("host_net_in_per_s", "/target/net_in_per_s"),
    ("host_net_out_per_s", "/target/net_out_per_s"),
    ("host_packets_in_per_s", "/target/packets_in_per_s"),
    ("host_packets_out_per_s", "/target/packets_out_per_s"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_absent_figure_is_an_empty_field() {
        let report = json!({ "seconds": [{ "t": 1.5, "received": 7, "target": { "cpu": null } }] });
        let text = csv(&report);
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().expect("names").split(',').collect();
        let values: Vec<&str> = lines.next().expect("a second").split(',').collect();
        assert_eq!(names.len(), values.len());
        assert_eq!(values[..5], ["1.5", "", "", "", "7"]);
    }
}
