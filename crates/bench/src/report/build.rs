//! Builds the JSON document of a report from the outcome of a test. Latencies are in milliseconds,
//! rates per second.

use super::host::{command_of, host_facts};
use super::samplers::{failed_in, ms, of_second, overview, percentiles, samplers};
use crate::limits::{
    HOST_CPU_MAX, LATENESS_US_MAX, OTHERS_NOTED, OWN_CPU_MAX, STOLEN_NOTED, STREAMS_LISTED_MAX,
};
use crate::load_stats::{COUNTS, LatencySampler, LoadCounter, LoadStats};
use crate::plan::{LoadPlan, PlanGroup, StartMode};
use crate::template;
use crate::test_driver::{MessageStream, SecondRow, TestOutcome, TestPhases};
use crate::track::TrackTotals;
use crate::watch::{FIGURES, ProcessFigure, ProcessSample, WatchTarget};
use serde_json::{Map, Value, json};

/// The tested broker and the method, for the disclosure of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestSubject {
    pub(crate) scenario: String,
    pub(crate) scenario_text: String,
    pub(crate) scale: f64,
    pub(crate) scaled: String,
    pub(crate) broker: String,
    pub(crate) broker_version: String,
    /// The broker's configuration file, or the relevant part.
    pub(crate) configuration: String,
    pub(crate) watch_target: Option<WatchTarget>,
    /// Address and token of the agent on the broker's host.
    pub(crate) watched_by: Option<(String, String)>,
}

pub(crate) fn build(
    subject: &TestSubject,
    plan: &LoadPlan,
    outcome: &TestOutcome,
    samples: &[(u64, ProcessSample)],
) -> Value {
    let streams = stream_totals(&outcome.streams);
    let phases = &outcome.phases;
    let measured_s = seconds(phases.measure_from, phases.publish_until);
    let rows: Vec<Value> = outcome
        .rows
        .iter()
        .map(|row| {
            let within = |(at, _): &&(u64, ProcessSample)| *at >= row.from_ns && *at < row.until_ns;
            second(row, phases, samples.iter().find(within))
        })
        .collect();
    let used = target_use(outcome, samples);
    let warnings = warnings(plan, outcome, &streams, &used);
    let faults = faults(plan, outcome, &streams);
    let rate = |count: LoadCounter| outcome.measured.count(count) as f64 / measured_s.max(0.001);
    json!({
        "tool": "godwit-bench",
        "version": env!("CARGO_PKG_VERSION"),
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "scenario": {
            "name": subject.scenario,
            "scale": subject.scale,
            "scaled": subject.scaled,
            "text": subject.scenario_text,
        },
        "target": target(subject, plan),
        "host": host_facts(plan),
        "began_unix_s": phases.began / 1_000_000_000,
        "phases_s": {
            "connect": seconds(phases.began, phases.connected),
            "warm_up": seconds(phases.start, phases.measure_from.min(phases.publish_until)),
            "measure": measured_s,
            "drain": seconds(phases.publish_until, phases.drained),
        },
        "clients": { "planned": plan.clients(), "live_at_start": outcome.live_at_start },
        "rates": {
            "published": rate(LoadCounter::Pub),
            "received": rate(LoadCounter::Recv),
            "bytes_in": rate(LoadCounter::BytesIn),
            "bytes_out": rate(LoadCounter::BytesOut),
            "connected": outcome.total.count(LoadCounter::ConnectSucc) as f64
                / seconds(phases.began, phases.connected).max(0.001),
        },
        "counts": counts(&outcome.total),
        "samplers": samplers(outcome, &streams, measured_s),
        "overview": overview(plan, outcome, &streams),
        "messages": messages(plan, outcome, &streams),
        "streams": worst_streams(&outcome.streams),
        "failures": failures(&outcome.total),
        "silent_s": silent_seconds(outcome),
        "own": tester_figures(plan, outcome),
        "target_use": used,
        "seconds": rows,
        "warnings": warnings,
        "faults": faults,
        "interrupted": outcome.was_interrupted,
    })
}

fn target(subject: &TestSubject, plan: &LoadPlan) -> Value {
    let pid = subject.watch_target.map(WatchTarget::pid);
    json!({
        "urls": plan.targets.iter().map(|target| target.url.as_str()).collect::<Vec<_>>(),
        "broker": subject.broker,
        "version": subject.broker_version,
        "configuration": subject.configuration,
        "pid": pid,
        "command": pid.filter(|_| subject.watched_by.is_none()).and_then(command_of),
    })
}

fn messages(plan: &LoadPlan, outcome: &TestOutcome, streams: &StreamTotals) -> Value {
    json!({
        "known": plan.receives_own_messages(),
        "sent": outcome.streams.iter().map(|stream| stream.end.sent).sum::<u64>(),
        "expected": streams.expected,
        "received": streams.tracked.received,
        "lost": streams.lost,
        "duplicates": streams.tracked.duplicates,
        "reordered": streams.tracked.reordered,
        "unanswered": outcome.total.count(LoadCounter::PubUnanswered),
        "streams": outcome.streams.len(),
        "faulty_streams": streams.faulty,
    })
}

pub(super) struct StreamTotals {
    pub(super) expected: u64,
    pub(super) lost: u64,
    pub(super) tracked: TrackTotals,
    faulty: u64,
}

fn stream_totals(streams: &[MessageStream]) -> StreamTotals {
    let mut sums =
        StreamTotals { expected: 0, lost: 0, tracked: TrackTotals::default(), faulty: 0 };
    for stream in streams {
        sums.expected += stream.expected();
        sums.lost += stream.lost();
        sums.tracked += stream.tracked;
        sums.faulty += u64::from(is_faulty(stream));
    }
    sums
}

fn is_faulty(stream: &MessageStream) -> bool {
    stream.lost() + stream.tracked.duplicates + stream.tracked.reordered > 0
}

pub(super) fn seconds(from: u64, until: u64) -> f64 {
    until.saturating_sub(from) as f64 / 1e9
}

fn counts(stats: &LoadStats) -> Value {
    let counts = COUNTS.iter().map(|(count, name)| ((*name).into(), stats.count(*count).into()));
    Value::Object(counts.collect::<Map<String, Value>>())
}

fn failures(stats: &LoadStats) -> Value {
    let failures = stats.failures.iter();
    let rows = failures.map(|(failure, n)| {
        json!({ "what": failure.to_string(), "count": n, "request": failure.request() })
    });
    rows.collect()
}

/// Returns the worst streams, at most `STREAMS_LISTED_MAX`; the sums include all streams.
fn worst_streams(streams: &[MessageStream]) -> Value {
    let badness = |stream: &MessageStream| {
        stream.lost() + stream.tracked.duplicates + stream.tracked.reordered
    };
    let mut order: Vec<&MessageStream> = streams.iter().collect();
    order.sort_by_key(|stream| std::cmp::Reverse(badness(stream)));
    let rows = order.into_iter().take(STREAMS_LISTED_MAX).map(|stream| {
        json!({
            "publisher": stream.end.client,
            "topic": stream.end.topic,
            "consumers": stream.consumers,
            "sent": stream.end.sent,
            "unanswered": stream.end.unanswered,
            "expected": stream.expected(),
            "received": stream.tracked.received,
            "lost": stream.lost(),
            "duplicates": stream.tracked.duplicates,
            "reordered": stream.tracked.reordered,
        })
    });
    rows.collect()
}

/// Returns the name of the phase in which a second began. A phase that did not take place has a
/// start of zero.
fn phase_of(row: &SecondRow, phases: &TestPhases) -> &'static str {
    match row.from_ns {
        at if phases.start == 0 || at < phases.start => "connect",
        at if at < phases.measure_from => "warm_up",
        at if at < phases.publish_until => "measure",
        _ => "drain",
    }
}

fn second(row: &SecondRow, phases: &TestPhases, sample: Option<&(u64, ProcessSample)>) -> Value {
    let span = seconds(row.from_ns, row.until_ns).max(0.001);
    let rate = |count: LoadCounter| (row.stats.count(count) as f64 / span).round();
    let mut value = json!({
        "t": seconds(phases.began, row.from_ns),
        "span": span,
        "phase": phase_of(row, phases),
        "live": row.live,
        "connects": rate(LoadCounter::ConnectSucc),
        "published": rate(LoadCounter::Pub),
        "received": rate(LoadCounter::Recv),
        "bytes_in": rate(LoadCounter::BytesIn),
        "lost_connections": row.stats.count(LoadCounter::Lost),
        "succeeded": rate(LoadCounter::PubSucc) + rate(LoadCounter::Recv),
        "failed": failed_in(&row.stats),
        "connect_ms": of_second(row.stats.times(LatencySampler::Connect)),
        "subscribe_ms": of_second(row.stats.times(LatencySampler::Subscribe)),
        "pub_ms": of_second(row.stats.times(LatencySampler::Pub)),
        "sub_ms": of_second(row.stats.times(LatencySampler::Sub)),
        "reconnect_ms": of_second(row.stats.times(LatencySampler::Reconnect)),
        "thread_cpu_max": row.thread_cpu_max,
    });
    if !row.stats.failures.is_empty() {
        value["failures"] = failures(&row.stats);
    }
    if let Some((_, sample)) = sample {
        value["target"] = sample.to_json();
    }
    value
}

/// Returns mean and maximum of each figure of [`FIGURES`] over the measured phase; null without
/// samples.
fn target_use(outcome: &TestOutcome, samples: &[(u64, ProcessSample)]) -> Value {
    let phases = &outcome.phases;
    let is_measured = |at: u64| at >= phases.measure_from && at < phases.publish_until;
    let samples: Vec<&ProcessSample> =
        samples.iter().filter(|(at, _)| is_measured(*at)).map(|(_, sample)| sample).collect();
    let mut used = Map::new();
    for (figure, name) in FIGURES {
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.figure(*figure)).collect();
        let sum: f64 = values.iter().sum();
        let max = values.iter().copied().fold(0.0, f64::max);
        let both = json!({ "mean": sum / values.len().max(1) as f64, "max": max });
        used.insert((*name).into(), if values.is_empty() { Value::Null } else { both });
    }
    let cpus: Vec<f64> =
        samples.iter().filter_map(|sample| sample.figure(ProcessFigure::Cpu)).collect();
    let received = outcome.measured.count(LoadCounter::Recv) as f64;
    let measured_s = seconds(phases.measure_from, phases.publish_until);
    let cpu_s = cpus.iter().sum::<f64>() / cpus.len().max(1) as f64 * measured_s;
    let cost = (!cpus.is_empty() && received > 0.0).then(|| cpu_s * 1e6 / received);
    used.insert("cpu_us_per_delivery".into(), cost.into());
    Value::Object(used)
}

/// Counts the complete seconds of the measured phase with published messages but without a
/// delivery.
fn silent_seconds(outcome: &TestOutcome) -> u64 {
    let phases = &outcome.phases;
    let whole = |row: &&SecondRow| {
        row.from_ns >= phases.measure_from
            && row.until_ns <= phases.publish_until
            && row.until_ns - row.from_ns >= 900_000_000
    };
    let silent = |row: &&SecondRow| {
        row.stats.count(LoadCounter::Recv) == 0
            && row.stats.count(LoadCounter::Pub) + row.stats.count(LoadCounter::PubOverrun) > 0
    };
    let wants = outcome.streams.iter().any(|stream| stream.consumers > 0);
    if wants { outcome.rows.iter().filter(whole).filter(silent).count() as u64 } else { 0 }
}

/// Figures of the tester itself. The busiest second of connecting is a separate figure, since the
/// measured phase does not depend on it.
fn tester_figures(plan: &LoadPlan, outcome: &TestOutcome) -> Value {
    let measured = measured_rows(outcome);
    let connects_first = plan.start == StartMode::Together;
    let is_connecting = |row: &&SecondRow| connects_first && row.from_ns < outcome.phases.connected;
    let connecting: Vec<&SecondRow> = outcome.rows.iter().filter(is_connecting).collect();
    let busiest =
        |rows: &[&SecondRow]| rows.iter().map(|row| row.thread_cpu_max).max_by(f64::total_cmp);
    json!({
        "cpu_s": outcome.total.cpu_ns as f64 / 1e9,
        "thread_cpu_max": busiest(&measured),
        "thread_cpu_max_connecting": busiest(&connecting),
        "hot_seconds": hot_seconds(&measured),
        "lateness_ms": Value::Object(percentiles(outcome.total.times(LatencySampler::Lateness))),
    })
}

fn measured_rows(outcome: &TestOutcome) -> Vec<&SecondRow> {
    let phases = &outcome.phases;
    let is_measured =
        |row: &&SecondRow| row.from_ns >= phases.measure_from && row.from_ns < phases.publish_until;
    outcome.rows.iter().filter(is_measured).collect()
}

fn hot_seconds(rows: &[&SecondRow]) -> usize {
    rows.iter().filter(|row| row.thread_cpu_max > OWN_CPU_MAX).count()
}

/// Warning for `LoadPlan::from_sending`.
const FROM_SENDING: &str = "Latency counts from the sending, as the scenario wants it: what the \
    tester itself was late is in Lateness only.";

const TOPICS_CHANGE: &str = "Topics that change from message to message: loss is only seen where \
    a subscriber's wildcard takes all of a publisher's topics.";

/// Warns if a load thread was at the limit of its processor in the measured phase.
fn busy_tester(outcome: &TestOutcome) -> Option<String> {
    let measured = measured_rows(outcome);
    let hot = hot_seconds(&measured);
    (hot > 0).then(|| {
        format!(
            "The tester was at its limit: a load thread used more than {:.0} % of a processor in \
             {hot} of {} seconds. The broker may be better than these figures; use --threads.",
            OWN_CPU_MAX * 100.0,
            measured.len()
        )
    })
}

fn warnings(
    plan: &LoadPlan,
    outcome: &TestOutcome,
    sums: &StreamTotals,
    used: &Value,
) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(busy_tester(outcome));
    let late = outcome.total.times(LatencySampler::Lateness).value_at_quantile(0.99);
    if !plan.is_closed_loop() && late > LATENESS_US_MAX {
        let held = if plan.from_sending {
            "do not hold this wait"
        } else {
            "hold this wait, as they must"
        };
        warnings.push(format!(
            "One message in a hundred left {:.1} ms later than intended, or more: the tester or \
             its window of unacknowledged messages was too slow for the schedule. The latencies \
             {held}.",
            ms(late as f64)
        ));
    }
    warnings.extend(plan.from_sending.then(|| FROM_SENDING.into()));
    let is_stamped = plan.groups.iter().filter_map(|group| group.publish.as_ref());
    if is_stamped.clone().any(|publishing| !publishing.body.is_stamped()) {
        warnings.push(
            "Payloads without our 16 byte stamp: no latency, loss, duplicates or order of them."
                .into(),
        );
    }
    if plan.groups.iter().any(|group| group.subscribe.iter().any(|f| f.starts_with("$share/"))) {
        warnings.push(
            "Shared subscriptions: loss and duplicates are judged over all members together; \
             order is not judged, since members get what follows each other side by side."
                .into(),
        );
    }
    if outcome.total.count(LoadCounter::PubMissed) > 0 {
        warnings.push(format!(
            "{} messages of the schedule were never sent: their publisher was not connected, or \
             had no room until the end.",
            outcome.total.count(LoadCounter::PubMissed)
        ));
    }
    warnings.extend(host_shared(used));
    if let Some(busy) = used["host_cpu"]["mean"].as_f64().filter(|busy| *busy > HOST_CPU_MAX) {
        warnings.push(format!(
            "This host's processors were busy for {:.0} % of the time, with the tester, the \
             broker if it is here, and whatever else ran: latencies hold waiting for a processor.",
            busy * 100.0
        ));
    }
    let changes = |group: &PlanGroup| {
        group.publish.as_ref().is_some_and(|one| template::varies_by_message(&one.topic))
    };
    if plan.receives_own_messages() && plan.groups.iter().any(changes) {
        warnings.push(TOPICS_CHANGE.into());
    } else if sums.tracked.received > sums.expected && plan.receives_own_messages() {
        warnings.push("More was received than expected: subscriptions overlap.".into());
    }
    warnings.extend(unmatched_publishes(plan, outcome, sums));
    warnings
}

/// Warns if deliveries should be visible, but no subscription matches a published topic.
fn unmatched_publishes(
    plan: &LoadPlan,
    outcome: &TestOutcome,
    sums: &StreamTotals,
) -> Option<String> {
    let mut publishing = plan.groups.iter().filter_map(|group| group.publish.as_ref());
    let is_to_be_seen = plan.receives_own_messages() && publishing.any(|one| one.body.is_stamped());
    let is_sent = outcome.total.count(LoadCounter::Pub) > 0;
    (is_to_be_seen && is_sent && sums.expected == 0).then(|| NOBODY_TAKES.into())
}

/// Warns if a hypervisor or other processes used the processors during the measured phase.
fn host_shared(used: &Value) -> Vec<String> {
    let above = |figure: &str, noted: f64| {
        used[figure]["mean"].as_f64().filter(|share| *share > noted).map(|share| share * 100.0)
    };
    let stolen = above("host_stolen", STOLEN_NOTED).map(|percent| {
        format!(
            "The host gave {percent:.1} % of its processors' time to others (steal): latencies \
             hold this wait."
        )
    });
    let others = above("host_others", OTHERS_NOTED).map(|percent| {
        format!(
            "Processes other than the broker and the tester used {percent:.1} % of the processors' \
             time: latencies hold waiting for them."
        )
    });
    stolen.into_iter().chain(others).collect()
}

const NOBODY_TAKES: &str = "No subscription of this test takes what it publishes: loss was not \
    judged.";

/// Returns the faults, one per line; an empty list means that the test passed.
fn faults(plan: &LoadPlan, outcome: &TestOutcome, sums: &StreamTotals) -> Vec<String> {
    let count = |count: LoadCounter| outcome.total.count(count);
    let missing = plan.clients().saturating_sub(outcome.live_at_start);
    let missing = if plan.start == StartMode::Together { missing } else { 0 };
    let nothing = nothing_published(plan, outcome);
    let rows = [
        (missing, "clients were never connected and subscribed"),
        (count(LoadCounter::Lost), "connections were lost"),
        (count(LoadCounter::SubFail), "subscriptions were refused"),
        (count(LoadCounter::PubFail), "messages were refused"),
        (count(LoadCounter::PubUnanswered), "messages were never acknowledged"),
        (
            if plan.receives_own_messages() { sums.lost } else { sums.tracked.holes },
            "deliveries were lost",
        ),
        (sums.tracked.duplicates, "deliveries came twice"),
        (sums.tracked.reordered, "deliveries came out of order"),
        (silent_seconds(outcome), "seconds passed without any delivery"),
        (
            if missing > 0 { 0 } else { count(LoadCounter::ConnectFail) },
            "connection attempts failed",
        ),
    ];
    let rows = rows.iter().filter(|(n, _)| *n > 0);
    let cut = cut_short(plan, outcome);
    let rows = rows.map(|(n, what)| format!("{n} {what}"));
    cut.into_iter().chain(nothing).chain(rows).collect()
}

/// Reports a fault if a plan with publishers published no message: such a test shows no result.
fn nothing_published(plan: &LoadPlan, outcome: &TestOutcome) -> Option<String> {
    let is_to_publish = plan.groups.iter().any(|group| group.publish.is_some());
    let is_nothing = is_to_publish && outcome.total.count(LoadCounter::Pub) == 0;
    is_nothing.then(|| "nothing was published".into())
}

/// Reports a fault if a signal ended a test before `LoadPlan::measure_s`. A test without a planned
/// end is complete after a signal.
fn cut_short(plan: &LoadPlan, outcome: &TestOutcome) -> Option<String> {
    let planned = plan.measure_s.filter(|_| outcome.was_interrupted)?;
    let measured = seconds(outcome.phases.measure_from, outcome.phases.publish_until);
    Some(format!("cut short by a signal: {measured:.1} s of {planned} s were measured"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::TestPhases;

    /// Builds consecutive seconds; `busy` is the share of the busiest thread in each.
    fn outcome(phases: [u64; 5], busy: &[f64]) -> TestOutcome {
        let [began, connected, start, measure_from, publish_until] = phases;
        let drained = busy.len() as u64;
        let rows = busy.iter().enumerate().map(|(at, busy)| SecondRow {
            from_ns: at as u64,
            until_ns: at as u64 + 1,
            live: 0,
            stats: LoadStats::new(),
            thread_cpu_max: *busy,
        });
        TestOutcome {
            phases: TestPhases { began, connected, start, measure_from, publish_until, drained },
            total: LoadStats::new(),
            measured: LoadStats::new(),
            rows: rows.collect(),
            streams: Vec::new(),
            live_at_start: 0,
            was_interrupted: false,
        }
    }

    #[test]
    fn the_tester_is_judged_by_the_measured_phase_and_connecting_is_told_apart() {
        let plan = LoadPlan { start: StartMode::Together, ..LoadPlan::default() };
        // Two seconds of connecting, one of warm-up, three measured, one of draining.
        let all = outcome([0, 2, 2, 3, 6], &[0.2, 0.95, 0.97, 0.3, 0.91, 0.5, 0.99]);
        let own = tester_figures(&plan, &all);
        assert_eq!(own["thread_cpu_max"], json!(0.91));
        assert_eq!(own["thread_cpu_max_connecting"], json!(0.95));
        assert_eq!(own["hot_seconds"], json!(1));
    }

    #[test]
    fn phases_that_did_not_come_have_no_busiest_thread() {
        let plan = LoadPlan { start: StartMode::Together, ..LoadPlan::default() };
        let own_of = |plan: &LoadPlan, outcome: &TestOutcome| {
            let own = tester_figures(plan, outcome);
            [own["thread_cpu_max"].as_f64(), own["thread_cpu_max_connecting"].as_f64()]
        };
        assert_eq!(own_of(&plan, &outcome([0, 2, 0, 0, 0], &[0.2, 0.3])), [None, Some(0.3)]);
        // Clients publish while others connect, so there is a single phase.
        let each = LoadPlan { start: StartMode::Each, ..plan };
        assert_eq!(own_of(&each, &outcome([0, 1, 1, 1, 2], &[0.2, 0.3])), [Some(0.3), None]);
    }
}
