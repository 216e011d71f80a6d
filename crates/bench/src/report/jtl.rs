//! The report as JMeter's CSV results (JTL). JMeter computes the same means and rates from the
//! file.
//!
//! A row is a sample. JMeter's times are whole milliseconds, so the rows of a second are rounded up
//! or down such that their sum, and therefore the mean, is right. Rows are spread over their
//! second: JMeter's rate is the number of samples divided by the time from the start of the first
//! sample to the end of the last. In a test with more than `JTL_ROWS_MAX` samples a row holds
//! several: `elapsed` is the sum and `SampleCount` the number, as in JMeter's statistical samples.

use super::{list, number, text};
use crate::limits::JTL_ROWS_MAX;
use serde_json::Value;
use std::fmt::Write as _;

pub(crate) fn jtl(report: &Value) -> String {
    let mut out = String::from(
        "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success,bytes,sentBytes,\
         grpThreads,allThreads,Latency,SampleCount,ErrorCount,IdleTime,Connect\n",
    );
    let seconds = list(report, "/seconds");
    let samples: u64 = seconds.iter().flat_map(labels).map(|(_, n)| n).sum();
    let each = samples.div_ceil(JTL_ROWS_MAX).max(1);
    for second in seconds {
        let at = JtlSecond::of(report, second);
        for (label, path, kib) in LABELS {
            if let Some(times) = second.pointer(path).filter(|times| times.is_object()) {
                at.samples(label, times, size(report, kib), each, &mut out);
            }
        }
        for failure in list(second, "/failures") {
            at.failures(failure, &mut out);
        }
    }
    out
}

/// Label, path of the times in a second, and the sampler whose payload size applies.
const LABELS: &[(&str, &str, &str)] = &[
    ("Connect", "/connect_ms", ""),
    ("Subscribe", "/subscribe_ms", ""),
    ("Pub", "/pub_ms", "Pub"),
    ("Sub", "/sub_ms", "Sub"),
    ("Reconnect", "/reconnect_ms", ""),
];

/// Returns the number of samples of a second for each label.
fn labels(second: &Value) -> impl Iterator<Item = (&'static str, u64)> {
    let hits = |path: &str| second.pointer(path)?["hits"].as_u64();
    LABELS.iter().map(move |(label, path, _)| (*label, hits(path).unwrap_or(0)))
}

/// Returns the payload bytes of a message of `sampler`.
fn size(report: &Value, sampler: &str) -> u64 {
    let of = list(report, "/samplers").iter().find(|one| text(one, "/name") == sampler);
    of.map_or(0, |one| (number(one, "/kib") * 1024.0).round() as u64)
}

struct JtlSecond {
    from_ms: f64,
    span_ms: f64,
    live: f64,
}

impl JtlSecond {
    fn of(report: &Value, second: &Value) -> JtlSecond {
        let span = number(second, "/span");
        JtlSecond {
            from_ms: (number(report, "/began_unix_s") + number(second, "/t")) * 1_000.0,
            span_ms: if span > 0.0 { span * 1_000.0 } else { 1_000.0 },
            live: number(second, "/live"),
        }
    }

    fn samples(&self, label: &str, times: &Value, bytes: u64, each: u64, out: &mut String) {
        // Neighbours of the sorted times share a row, so that JMeter's percentiles are right.
        let all =
            if each == 1 { shuffled_times(rounded_times(times)) } else { rounded_times(times) };
        let size = usize::try_from(each).unwrap_or(usize::MAX);
        for (at, some) in all.chunks(size).enumerate() {
            let elapsed: u64 = some.iter().sum();
            let count = some.len() as u64;
            let begins = self.from_ms + self.span_ms * (at as u64 * each) as f64 / all.len() as f64;
            let (received, sent) = match label {
                "Pub" => (0, bytes * count),
                _ => (bytes * count, 0),
            };
            let connect = if label == "Connect" { elapsed } else { 0 };
            let _ = writeln!(
                out,
                "{begins:.0},{elapsed},{label},200,,load,true,{received},{sent},{live:.0},\
                 {live:.0},{elapsed},{count},0,0,{connect}",
                live = self.live
            );
        }
    }

    /// Writes failures under labels of their own: failures have no times, and zeros would falsify
    /// the means of successful samples.
    fn failures(&self, failure: &Value, out: &mut String) {
        let label = match text(failure, "/request") {
            "" => "connection lost".to_string(),
            request => format!("{request} failed"),
        };
        let what = text(failure, "/what").replace([',', '"', '\n', '\r'], " ");
        let count = number(failure, "/count") as u64;
        for at in 0..count {
            let begins = self.from_ms + self.span_ms * at as f64 / count as f64;
            let _ = writeln!(
                out,
                "{begins:.0},0,{label},500,{what},load,false,0,0,{live:.0},{live:.0},0,1,1,0,0",
                live = self.live
            );
        }
    }
}

/// Returns the times of a second in whole milliseconds, ascending, with the right sum. The
/// remainder of the rounding is spread evenly over all times.
fn rounded_times(times: &Value) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    for step in list(times, "/whole_ms") {
        let (ms, count) = (step[0].as_u64().unwrap_or(0), step[1].as_u64().unwrap_or(0));
        all.extend((0..count).map(|_| ms));
    }
    let sum = (number(times, "/mean") * all.len() as f64).round() as u64;
    let missing = sum.saturating_sub(all.iter().sum()).min(all.len() as u64);
    let count = (all.len() as u64).max(1);
    for (at, time) in all.iter_mut().enumerate() {
        let at = at as u64;
        *time += (at + 1) * missing / count - at * missing / count;
    }
    all
}

/// Reorders the times, reproducibly, so that a second does not begin with its shortest times.
fn shuffled_times(all: Vec<u64>) -> Vec<u64> {
    let len = all.len();
    // A step coprime to the length visits each index once.
    let step = (len * 618 / 1_000..).find(|step| gcd(*step, len) == 1).unwrap_or(1);
    (0..len).map(|at| all[at * step % len]).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// Figures of JMeter's aggregate report for a label: `StatCalculator.addValue` with the sample
    /// count, and `SamplingStatCalculator.addSample` for the rate and the errors (5.6.3).
    #[derive(Debug, Default)]
    struct JtlAggregate {
        count: u64,
        sum: u64,
        errors: u64,
        first: u64,
        end: u64,
    }

    impl JtlAggregate {
        fn mean(&self) -> f64 {
            self.sum as f64 / self.count as f64
        }

        fn per_s(&self) -> f64 {
            self.count as f64 / (self.end - self.first) as f64 * 1_000.0
        }
    }

    fn aggregates(jtl: &str) -> BTreeMap<String, JtlAggregate> {
        let mut lines = jtl.lines();
        let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
        let at = |name: &str| names.iter().position(|known| *known == name).expect(name);
        let mut all: BTreeMap<String, JtlAggregate> = BTreeMap::new();
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), names.len(), "{line}");
            let number = |name: &str| fields[at(name)].parse::<u64>().expect(line);
            let one = all.entry(fields[at("label")].into()).or_default();
            let (begins, elapsed) = (number("timeStamp"), number("elapsed"));
            one.count += number("SampleCount");
            one.sum += elapsed;
            one.errors += u64::from(fields[at("success")] != "true");
            one.first = if one.first == 0 { begins } else { one.first.min(begins) };
            one.end = one.end.max(begins + elapsed);
        }
        all
    }

    fn second(t: u64, count: u64, mean: f64, whole_ms: &Value) -> Value {
        json!({ "t": t, "span": 1.0, "live": 3, "phase": "measure",
                "sub_ms": { "mean": mean, "hits": count, "whole_ms": whole_ms } })
    }

    #[test]
    fn jmeter_computes_the_means_and_rates_of_the_report() {
        // Means of 0.4 ms in the first second and of 2.5 ms in the second.
        let report = json!({
            "began_unix_s": 1_700_000_000,
            "samplers": [{ "name": "Sub", "kib": 0.25 }],
            "seconds": [
                second(0, 1_000, 0.4, &json!([[0, 1_000]])),
                second(1, 500, 2.5, &json!([[1, 100], [2, 300], [4, 100]])),
            ],
        });
        let all = aggregates(&jtl(&report));
        let sub = &all["Sub"];
        assert_eq!((sub.count, sub.errors), (1_500, 0));
        assert!((sub.mean() - (400.0 + 1_250.0) / 1_500.0).abs() < 1e-9, "{sub:?}");
        assert!((sub.per_s() - 750.0).abs() < 10.0, "{}", sub.per_s());
        let first = jtl(&report);
        let first: Vec<&str> = first.lines().nth(1).expect("a row").split(',').collect();
        assert_eq!([first[0], first[7], first[12]], ["1700000000000", "256", "1"]);
    }

    #[test]
    fn a_sum_stays_what_it_was() {
        for (mean, whole_ms) in [
            (0.0, json!([[0, 7]])),
            (0.999, json!([[0, 1_000]])),
            (12.345, json!([[11, 10], [12, 80], [13, 10]])),
            (5.5, json!([[5, 1]])),
        ] {
            let times = rounded_times(&json!({ "mean": mean, "whole_ms": whole_ms }));
            let sum: u64 = times.iter().sum();
            assert_eq!(sum, (mean * times.len() as f64).round() as u64, "{mean}");
        }
    }

    #[test]
    fn rows_of_several_samples_have_the_same_mean_and_rate() {
        let second = second(0, 1_000, 0.4, &json!([[0, 1_000]]));
        let at = JtlSecond::of(&json!({ "began_unix_s": 1 }), &second);
        let mut out = String::from(
            "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success,bytes,\
             sentBytes,grpThreads,allThreads,Latency,SampleCount,ErrorCount,IdleTime,Connect\n",
        );
        at.samples("Sub", &second["sub_ms"], 10, 7, &mut out);
        assert_eq!(out.lines().count(), 1 + 143);
        let sub = &aggregates(&out)["Sub"];
        assert_eq!((sub.count, sub.sum), (1_000, 400));
        assert!((sub.per_s() - 1_000.0).abs() < 10.0, "{}", sub.per_s());
    }

    #[test]
    fn failures_stand_apart_and_in_their_second() {
        let report = json!({
            "began_unix_s": 2,
            "seconds": [{ "t": 1.0, "span": 1.0, "live": 3, "failures": [
                { "what": "CONNACK 0x87, \"no\"", "count": 2, "request": "Connect" },
                { "what": "closed by the broker", "count": 1, "request": null },
            ]}],
        });
        let text = jtl(&report);
        let rows = [
            "3000,0,Connect failed,500,CONNACK 0x87   no ,load,false,0,0,3,3,0,1,1,0,0",
            "3500,0,Connect failed,500,CONNACK 0x87   no ,load,false,0,0,3,3,0,1,1,0,0",
            "3000,0,connection lost,500,closed by the broker,load,false,0,0,3,3,0,1,1,0,0",
        ];
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), rows);
        assert_eq!(aggregates(&text)["Connect failed"].errors, 2);
    }
}
