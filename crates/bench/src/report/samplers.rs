//! Tables in the form of XMeter, a service for load tests of MQTT brokers: a row for each kind of
//! request, and an overview of all requests.

use super::build::StreamTotals;
use crate::load_stats::{LatencySampler, LoadCounter, LoadStats, SAMPLERS, histogram};
use crate::plan::LoadPlan;
use crate::test_driver::TestOutcome;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// Returns XMeter's detail table, with a row per sampler of `SAMPLERS`, and further percentiles of
/// the tail.
pub(super) fn samplers(outcome: &TestOutcome, sums: &StreamTotals, measured_s: f64) -> Value {
    let stats = &outcome.total;
    let rows = SAMPLERS.iter().filter(|(sampler, _)| !stats.times(*sampler).is_empty());
    rows.map(|(sampler, name)| {
        let times = stats.times(*sampler);
        let (good, bad) = match sampler {
            LatencySampler::Connect => (LoadCounter::ConnectSucc, LoadCounter::ConnectFail),
            LatencySampler::Subscribe => (LoadCounter::Sub, LoadCounter::SubFail),
            LatencySampler::Pub => (LoadCounter::PubSucc, LoadCounter::PubFail),
            _ => (LoadCounter::Recv, LoadCounter::SubFail),
        };
        let failed = if *sampler == LatencySampler::Sub { 0 } else { stats.count(bad) };
        let all = (stats.count(good) + failed).max(1);
        let mut row = percentiles(times);
        row.insert("name".into(), (*name).into());
        row.insert("hits".into(), times.len().into());
        row.insert("per_s".into(), (times.len() as f64 / measured_s.max(0.001)).into());
        row.insert("failed".into(), failed.into());
        row.insert("success".into(), (1.0 - failed as f64 / all as f64).into());
        let (passed, unpassed) = checks(*sampler, outcome, sums);
        let per_s = |n: f64| n / measured_s.max(0.001);
        row.insert("success_per_s".into(), per_s(times.len() as f64).into());
        row.insert("failed_per_s".into(), per_s(failed as f64).into());
        row.insert("kib".into(), kib(*sampler, stats).into());
        row.insert("checks_passed".into(), passed.into());
        row.insert("checks_failed".into(), unpassed.into());
        row.insert("stdev".into(), ms(times.stdev()).into());
        row.insert("mean_fastest_90".into(), ms(mean_of_fastest(times, 0.9)).into());
        row.insert("histogram_us".into(), recorded(times));
        Value::Object(row)
    })
    .collect()
}

pub(super) fn percentiles(times: &Histogram<u64>) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("min".into(), ms(times.min() as f64).into());
    row.insert("mean".into(), ms(times.mean()).into());
    for (name, quantile) in QUANTILES {
        row.insert((*name).into(), ms(times.value_at_quantile(*quantile) as f64).into());
    }
    row.insert("max".into(), ms(times.max() as f64).into());
    row
}

/// Returns the percentiles; null without samples, so that a chart shows a gap instead of zero.
pub(super) fn known_percentiles(times: &Histogram<u64>) -> Value {
    if times.is_empty() { Value::Null } else { Value::Object(percentiles(times)) }
}

/// Summarizes a second: percentiles, and the count of each whole millisecond. Whole milliseconds
/// are as exact as the times of a JTL, at a hundredth of the size.
pub(super) fn of_second(times: &Histogram<u64>) -> Value {
    if times.is_empty() {
        return Value::Null;
    }
    let mut whole_ms: Vec<(u64, u64)> = Vec::new();
    for step in times.iter_recorded() {
        let ms = step.value_iterated_to() / 1_000;
        match whole_ms.last_mut().filter(|(known, _)| *known == ms) {
            Some((_, count)) => *count += step.count_at_value(),
            None => whole_ms.push((ms, step.count_at_value())),
        }
    }
    let mut row = percentiles(times);
    row.insert("hits".into(), times.len().into());
    row.insert("whole_ms".into(), json!(whole_ms));
    Value::Object(row)
}

/// Returns each recorded value with its count, from which reports can be merged without loss.
fn recorded(times: &Histogram<u64>) -> Value {
    times
        .iter_recorded()
        .map(|step| json!([step.value_iterated_to(), step.count_at_value()]))
        .collect()
}

/// Returns the mean of the fastest `share` of the samples: XMeter's "90% average".
fn mean_of_fastest(times: &Histogram<u64>, share: f64) -> f64 {
    let wanted = (times.len() as f64 * share).ceil() as u64;
    let (mut taken, mut sum) = (0, 0.0);
    for step in times.iter_recorded() {
        let count = step.count_at_value().min(wanted - taken);
        taken += count;
        sum += count as f64 * times.median_equivalent(step.value_iterated_to()) as f64;
    }
    sum / taken.max(1) as f64
}

pub(super) fn ms(us: f64) -> f64 {
    (us.round()) / 1_000.0
}

/// Returns the number of correct answers, and of wrong or missing answers.
fn checks(sampler: LatencySampler, outcome: &TestOutcome, sums: &StreamTotals) -> (u64, u64) {
    let count = |count: LoadCounter| outcome.total.count(count);
    let tracked = &sums.tracked;
    match sampler {
        LatencySampler::Connect => {
            (count(LoadCounter::ConnectSucc), count(LoadCounter::ConnectFail))
        }
        LatencySampler::Subscribe => (count(LoadCounter::Sub), count(LoadCounter::SubFail)),
        LatencySampler::Pub => (
            count(LoadCounter::PubSucc),
            count(LoadCounter::PubFail) + count(LoadCounter::PubUnanswered),
        ),
        LatencySampler::Sub => (
            tracked.received.saturating_sub(tracked.reordered),
            sums.lost + tracked.duplicates + tracked.reordered,
        ),
        LatencySampler::Reconnect => (count(LoadCounter::ReconnectSucc), 0),
        LatencySampler::Lateness => (0, 0),
    }
}

/// Returns the mean payload of a message in KiB; 0 for samplers without payload.
fn kib(sampler: LatencySampler, stats: &LoadStats) -> f64 {
    let (bytes, messages) = match sampler {
        LatencySampler::Pub => (LoadCounter::PayloadOut, LoadCounter::Pub),
        LatencySampler::Sub => (LoadCounter::PayloadIn, LoadCounter::Recv),
        _ => return 0.0,
    };
    stats.count(bytes) as f64 / stats.count(messages).max(1) as f64 / 1024.0
}

pub(super) fn failed_in(stats: &LoadStats) -> u64 {
    [LoadCounter::ConnectFail, LoadCounter::SubFail, LoadCounter::PubFail]
        .iter()
        .map(|one| stats.count(*one))
        .sum()
}

/// Returns the totals of all requests, and the load in terms of the Open MQTT Benchmark Suite.
pub(super) fn overview(plan: &LoadPlan, outcome: &TestOutcome, sums: &StreamTotals) -> Value {
    let stats = &outcome.total;
    let mut times = histogram();
    let (mut passed, mut unpassed) = (0, 0);
    for (sampler, _) in SAMPLERS.iter().filter(|(sampler, _)| *sampler != LatencySampler::Lateness)
    {
        times += stats.times(*sampler);
        let (good, bad) = checks(*sampler, outcome, sums);
        (passed, unpassed) = (passed + good, unpassed + bad);
    }
    let answered =
        [LoadCounter::ConnectSucc, LoadCounter::Sub, LoadCounter::PubSucc, LoadCounter::Recv];
    let answered: u64 = answered.iter().map(|one| stats.count(*one)).sum();
    let failed = failed_in(stats);
    let share = |good: u64, bad: u64| good as f64 / (good + bad).max(1) as f64;
    let of = |has: fn(&crate::plan::PlanGroup) -> bool| -> u64 {
        plan.groups.iter().filter(|group| has(group)).map(|group| group.clients).sum()
    };
    let topics: std::collections::BTreeSet<&str> =
        outcome.streams.iter().map(|stream| stream.end.topic.as_str()).collect();
    let all = (outcome.phases.began, outcome.phases.drained.max(outcome.phases.connected));
    let per_s = |n: u64| n as f64 / super::build::seconds(all.0, all.1).max(0.001);
    json!({
        "requests_per_s": per_s(answered + failed),
        "success_per_s": per_s(answered),
        "failed_per_s": per_s(failed),
        "virtual_users_max": outcome.rows.iter().map(|row| row.live).max().unwrap_or(0),
        "response_ms": known_percentiles(&times),
        "success": share(answered, failed),
        "verified": share(passed, unpassed),
        "request_kib": kib(LatencySampler::Pub, stats),
        "publishers": of(|group| group.publish.is_some()),
        "subscribers": of(|group| !group.subscribe.is_empty()),
        "topics": topics.len(),
        "subscribe_per_s": stats.count(LoadCounter::Sub) as f64
            / super::build::seconds(outcome.phases.began, outcome.phases.connected).max(0.001),
    })
}

const QUANTILES: &[(&str, f64)] =
    &[("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_nine_in_ten_leave_the_tail_out() {
        let mut times = crate::load_stats::histogram();
        times.saturating_record_n(10, 9);
        times.saturating_record(1_000);
        assert_eq!(mean_of_fastest(&times, 0.9), 10.0);
        assert_eq!(mean_of_fastest(&crate::load_stats::histogram(), 0.9), 0.0);
    }

    #[test]
    fn a_second_holds_its_whole_milliseconds() {
        let mut times = crate::load_stats::histogram();
        [100, 900, 1_000, 7_999].iter().for_each(|us| times.record(*us).expect("it grows"));
        let second = of_second(&times);
        assert_eq!(second["whole_ms"], json!([[0, 2], [1, 1], [7, 1]]));
        assert_eq!(second["hits"], json!(4));
        assert_eq!(of_second(&crate::load_stats::histogram()), Value::Null);
    }

    #[test]
    fn a_histogram_in_a_report_holds_every_count() {
        let mut times = crate::load_stats::histogram();
        [1, 1, 5_000].iter().for_each(|us| times.saturating_record(*us));
        let sum: u64 = recorded(&times)
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|step| step[1].as_u64())
            .sum();
        assert_eq!(sum, 3);
    }
}
