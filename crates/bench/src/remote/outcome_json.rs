//! Results of an agent as JSON, in both directions: counters exactly, histograms by recorded
//! values.

use crate::load::{StreamSummary, ThreadSummary};
use crate::load_stats::{COUNTS, LoadFailure, LoadStats, SAMPLERS};
use crate::test_driver::{ProcessOutcome, SecondRow, TestPhases};
use crate::track::TrackTotals;
use serde_json::{Value, json};
use std::collections::HashMap;

pub(super) fn write(gathered: &ProcessOutcome) -> Value {
    let phases = &gathered.phases;
    json!({
        "phases": [
            phases.began, phases.connected, phases.start,
            phases.measure_from, phases.publish_until, phases.drained,
        ],
        "total": tally(&gathered.total),
        "measured": tally(&gathered.measured),
        "rows": gathered.rows.iter().map(row).collect::<Vec<_>>(),
        "ends": gathered.ends.iter().map(end).collect::<Vec<_>>(),
        "live_at_start": gathered.live_at_start,
        "interrupted": gathered.was_interrupted,
    })
}

/// Reads the results of an agent. A missing or wrong field makes the whole result `None`.
pub(super) fn read(value: &Value) -> Option<ProcessOutcome> {
    let phases = numbers(&value["phases"])?;
    let &[began, connected, start, measure_from, publish_until, drained] = &phases[..] else {
        return None;
    };
    Some(ProcessOutcome {
        phases: TestPhases { began, connected, start, measure_from, publish_until, drained },
        total: read_tally(&value["total"])?,
        measured: read_tally(&value["measured"])?,
        rows: value["rows"].as_array()?.iter().map(read_row).collect::<Option<_>>()?,
        ends: value["ends"].as_array()?.iter().map(read_end).collect::<Option<_>>()?,
        live_at_start: value["live_at_start"].as_u64()?,
        was_interrupted: value["interrupted"].as_bool()?,
    })
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

fn tally(stats: &LoadStats) -> Value {
    let times = stats.times.iter().map(|times| {
        let steps = times.iter_recorded();
        let flat = steps.flat_map(|step| [step.value_iterated_to(), step.count_at_value()]);
        flat.collect::<Vec<u64>>()
    });
    let failures = stats.failures.iter().map(|(failure, n)| json!([failure.to_string(), n]));
    json!({
        "counts": stats.counts,
        "times": times.collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
        "cpu_ns": stats.cpu_ns,
    })
}

fn read_tally(value: &Value) -> Option<LoadStats> {
    let mut stats = LoadStats::new();
    let counts = numbers(&value["counts"])?;
    let times = value["times"].as_array()?;
    if counts.len() != COUNTS.len() || times.len() != SAMPLERS.len() {
        return None;
    }
    stats.counts.copy_from_slice(&counts);
    for (into, steps) in stats.times.iter_mut().zip(times) {
        for step in numbers(steps)?.chunks_exact(2) {
            into.record_n(step[0], step[1]).ok()?;
        }
    }
    for row in value["failures"].as_array()? {
        let failure = LoadFailure::FromAgent(row[0].as_str()?.into());
        stats.failures.insert(failure, row[1].as_u64()?);
    }
    stats.cpu_ns = value["cpu_ns"].as_u64()?;
    Some(stats)
}

fn row(row: &SecondRow) -> Value {
    json!({
        "from": row.from_ns,
        "until": row.until_ns,
        "live": row.live,
        "tally": tally(&row.stats),
        "cpu": row.thread_cpu_max,
    })
}

fn read_row(value: &Value) -> Option<SecondRow> {
    Some(SecondRow {
        from_ns: value["from"].as_u64()?,
        until_ns: value["until"].as_u64()?,
        live: value["live"].as_u64()?,
        stats: read_tally(&value["tally"])?,
        thread_cpu_max: value["cpu"].as_f64()?,
    })
}

fn end(end: &ThreadSummary) -> Value {
    let tracked = end.tracked.iter().map(|(stream, one)| {
        json!([stream, one.received, one.holes, one.duplicates, one.reordered])
    });
    let streams = end
        .streams
        .iter()
        .map(|one| json!([one.stream, one.client, one.topic, one.sent, one.unanswered]));
    json!({
        "tracked": tracked.collect::<Vec<_>>(),
        "streams": streams.collect::<Vec<_>>(),
        "consumers": end.consumers.iter().map(|(f, n)| json!([f, n])).collect::<Vec<_>>(),
    })
}

fn read_end(value: &Value) -> Option<ThreadSummary> {
    let mut tracked = HashMap::new();
    for row in value["tracked"].as_array()? {
        let &[stream, received, holes, duplicates, reordered] = &numbers(row)?[..] else {
            return None;
        };
        let one = TrackTotals { received, holes, duplicates, reordered };
        tracked.insert(u32::try_from(stream).ok()?, one);
    }
    let stream = |row: &Value| {
        Some(StreamSummary {
            stream: u32::try_from(row[0].as_u64()?).ok()?,
            client: row[1].as_str()?.into(),
            topic: row[2].as_str()?.into(),
            sent: row[3].as_u64()?,
            unanswered: row[4].as_u64()?,
        })
    };
    let consumer = |row: &Value| Some((row[0].as_str()?.to_string(), row[1].as_u64()?));
    Some(ThreadSummary {
        tracked,
        streams: value["streams"].as_array()?.iter().map(stream).collect::<Option<_>>()?,
        consumers: value["consumers"].as_array()?.iter().map(consumer).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_stats::{LatencySampler, LoadCounter};

    #[test]
    fn what_was_gathered_comes_back_to_the_last_count() {
        let mut total = LoadStats::new();
        total.add(LoadCounter::Recv, 7);
        total.record_failure(LoadFailure::ConnAck(0x87));
        [3, 3, 9_999_999].iter().for_each(|us| total.record(LatencySampler::Sub, *us));
        let (stats, one) = (total.clone(), TrackTotals { received: 1, ..TrackTotals::default() });
        let row = SecondRow { from_ns: 1, until_ns: 2, live: 3, stats, thread_cpu_max: 0.5 };
        let stream = StreamSummary {
            stream: 4,
            client: "c".into(),
            topic: "t".into(),
            sent: 9,
            unanswered: 1,
        };
        let end = ThreadSummary {
            tracked: HashMap::from([(u32::MAX, one)]),
            streams: vec![stream],
            consumers: HashMap::from([("t/#".into(), 2)]),
        };
        let gathered = ProcessOutcome {
            phases: TestPhases { began: u64::MAX, ..TestPhases::default() },
            measured: total.clone(),
            total,
            rows: vec![row],
            ends: vec![end],
            live_at_start: 5,
            was_interrupted: false,
        };
        let value = write(&gathered);
        let text = value.to_string();
        let back = read(&serde_json::from_str(&text).expect("JSON")).expect("complete");
        assert_eq!(write(&back), value);
        assert_eq!(
            back.total.times(LatencySampler::Sub),
            gathered.total.times(LatencySampler::Sub)
        );
    }

    #[test]
    fn nothing_is_believed_of_a_torn_report() {
        assert!(read(&json!({})).is_none());
        assert!(read_tally(&json!({ "counts": [1], "times": [], "failures": [] })).is_none());
    }
}
