//! The report's seconds as CSV, and as JTL, which JMeter's listeners open.

use super::{list, number, text};
use serde_json::Value;
use std::fmt::Write as _;

/// A line a second.
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

/// JMeter's CSV results. A row is one response there; here it is one second of one sampler with the
/// mean as its time, since a row a message would be gigabytes. Failures have a row each.
pub(crate) fn jtl(report: &Value) -> String {
    let mut out = String::from(
        "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success,bytes,sentBytes,\
         grpThreads,allThreads,Latency,IdleTime,Connect\n",
    );
    let began_ms = number(report, "/began_unix_s") * 1_000.0;
    let row = |out: &mut String, at: f64, elapsed: f64, label: &str, failure: &str, live: f64| {
        let (code, is_good) = if failure.is_empty() { (200, true) } else { (500, false) };
        let elapsed = elapsed.round();
        let _ = writeln!(
            out,
            "{at:.0},{elapsed},{label},{code},{failure},load,{is_good},0,0,{live:.0},{live:.0},\
             {elapsed},0,0"
        );
    };
    for second in list(report, "/seconds") {
        let at = began_ms + number(second, "/t") * 1_000.0;
        for (label, path) in
            [("Connect", "/connect_ms/mean"), ("Pub", "/pub_ms/mean"), ("Sub", "/sub_ms/mean")]
        {
            if let Some(mean) = second.pointer(path).and_then(Value::as_f64) {
                row(&mut out, at, mean, label, "", number(second, "/live"));
            }
        }
    }
    for failure in list(report, "/failures") {
        let what = text(failure, "/what").replace([',', '"', '\n'], " ");
        for _ in 0..(number(failure, "/count") as usize).min(FAILURES_MAX) {
            row(&mut out, began_ms, 0.0, "failure", &what, 0.0);
        }
    }
    out
}

/// Of one kind: JMeter shows shares, and they stay visible.
const FAILURES_MAX: usize = 1_000;

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

    #[test]
    fn a_jtl_has_its_columns_in_every_row() {
        let report = json!({
            "began_unix_s": 2,
            "seconds": [{ "t": 1.0, "live": 3, "received": 7, "sub_ms": { "mean": 4.0 } }],
            "failures": [{ "what": "a, \"b\"", "count": 2 }],
        });
        let rows = [
            "3000,4,Sub,200,,load,true,0,0,3,3,4,0,0",
            "2000,0,failure,500,a   b ,load,false,0,0,0,0,0,0,0",
            "2000,0,failure,500,a   b ,load,false,0,0,0,0,0,0,0",
        ];
        assert_eq!(jtl(&report).lines().skip(1).collect::<Vec<_>>(), rows);
    }
}
