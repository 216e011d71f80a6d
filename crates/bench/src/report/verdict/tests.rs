//! Tests of the conclusions for runs with known figures.

use super::*;
use crate::report::grouping::group_by_load;
use serde_json::json;

/// Returns the report of a run in a comparison, with this throughput, 99th percentile, and number
/// of lost deliveries of 1,000.
fn run(broker: &str, round: u64, (received, p99, lost): (f64, f64, u64)) -> Value {
    let faults = if lost > 0 { vec![format!("{lost} deliveries were lost")] } else { vec![] };
    json!({
        "tool": "godwit-bench",
        "scenario": { "name": "fan" },
        "comparison": { "task": 0, "round": round },
        "target": { "broker": broker },
        "rates": { "received": received, "published": 10.0 },
        "counts": { "pub": 1_000 },
        "messages": { "expected": 1_000, "received": 1_000 - lost, "lost": lost },
        "samplers": [{ "name": "Sub", "p99": p99 }],
        "own": { "hot_seconds": 0 },
        "faults": faults,
    })
}

/// Messages per second, 99th percentile in ms, and lost deliveries, in each of three rounds.
type ThreeRounds = [(f64, f64, u64); 3];

fn rounds(all: &[(&str, ThreeRounds)]) -> Vec<Value> {
    let each = |broker: &str, rounds: &ThreeRounds| -> Vec<Value> {
        rounds.iter().zip(1..).map(|(figures, round)| run(broker, round, *figures)).collect()
    };
    all.iter().flat_map(|(broker, rounds)| each(broker, rounds)).collect()
}

fn concluded(reports: &[Value]) -> PageVerdict {
    verdict(&group_by_load(reports))
}

#[test]
fn who_won_by_how_much_and_whether_it_counts() {
    for (all, says, standing) in [
        (
            rounds(&[
                ("a", [(1_000.0, 2.0, 0), (1_000.0, 2.2, 0), (1_000.0, 1.9, 0)]),
                ("b", [(1_000.0, 5.0, 0), (1_000.0, 5.1, 0), (1_000.0, 4.9, 0)]),
            ]),
            "a won fan: its 99th percentile of delivery latency is 2 ms; b, the next, has 5, 2.5 \
             times as much.",
            VerdictStanding::Counts,
        ),
        (
            rounds(&[
                ("a", [(900.0, 2.0, 0), (910.0, 2.2, 0), (890.0, 1.9, 0)]),
                ("b", [(1_000.0, 5.0, 0), (1_100.0, 5.1, 0), (1_050.0, 4.9, 0)]),
            ]),
            "b won fan: its throughput is 1,050 messages/s delivered; a, the next, has 900, 14 % \
             less.",
            VerdictStanding::Counts,
        ),
        (
            rounds(&[
                ("a", [(1_000.0, 2.0, 0), (1_000.0, 4.2, 0), (1_000.0, 1.9, 0)]),
                ("b", [(1_000.0, 3.0, 0), (1_000.0, 3.1, 0), (1_000.0, 2.9, 0)]),
            ]),
            "No clear winner in fan: the 99th percentile of delivery latency of a is best in the \
             median, 2 ms, and its rounds (1.9 to 4.2) overlap with those of b (2.9 to 3.1).",
            VerdictStanding::Counts,
        ),
        (
            rounds(&[
                ("a", [(1_000.0, 2.0, 0), (1_000.0, 2.0, 250), (1_000.0, 1.9, 0)]),
                ("b", [(1_000.0, 3.0, 0), (1_000.0, 3.1, 0), (1_000.0, 2.9, 0)]),
            ]),
            "b won fan: it alone had no fault. a is out: it lost 250 of 3,000 deliveries (8.33 %).",
            VerdictStanding::Counts,
        ),
        (
            rounds(&[
                ("a", [(1_000.0, 3.0, 0), (1_000.0, 3.0, 0), (1_000.0, 3.0, 0)]),
                ("b", [(1_000.0, 3.0, 0), (1_000.0, 3.02, 0), (1_000.0, 3.01, 0)]),
            ]),
            "No clear winner in fan: the 99th percentile of delivery latency of a and of b is the \
             same within 2 %, 3 ms.",
            VerdictStanding::Counts,
        ),
        (
            vec![run("a", 1, (1_000.0, 2.0, 1)), run("b", 1, (1_000.0, 2.0, 2))],
            "No broker passed fan without a fault. a is out: it lost 1 of 1,000 deliveries (0.1 \
             %). b is out: it lost 2 of 1,000 deliveries (0.2 %).",
            VerdictStanding::CountsWithReservations,
        ),
    ] {
        let found = concluded(&all);
        assert_eq!(found.sentence, says);
        assert_eq!(found.standing, standing, "{says}: {:?}", found.reservations);
    }
}

#[test]
fn what_disturbed_the_runs_is_said_and_may_decide_that_they_do_not_count() {
    let with = |path: &str, key: &str, value: Value| {
        let mut all = vec![run("a", 1, (1_000.0, 2.0, 0)), run("b", 1, (1_000.0, 9.0, 0))];
        all[1][path] = json!({ key: value });
        all
    };
    let mean = |share: f64| json!({ "mean": share });
    let mut late = with("x", "x", json!(0));
    late[0]["warnings"] = json!(["One message in a hundred left 12 ms later than intended"]);
    let mut cut = with("x", "x", json!(0));
    cut[0]["interrupted"] = json!(true);
    for (all, says, is_major) in [
        (with("x", "x", json!(0)), "There was one round", false),
        (with("own", "hot_seconds", json!(1)), "The tester was at its limit in 1 of 2 runs", true),
        (with("target_use", "host_stolen", mean(0.05)), "The host gave others up to 5 %", false),
        (with("target_use", "host_stolen", mean(0.20)), "The host gave others up to 20 %", true),
        (with("target_use", "host_others", mean(0.20)), "Other processes used up to 20 %", false),
        (with("target_use", "host_others", mean(0.50)), "Other processes used up to 50 %", true),
        (
            with("target_use", "host_cpu", mean(0.97)),
            "processors were busy for more than 95 %",
            false,
        ),
        (late, "The tester sent late", false),
        (cut, "1 of 2 runs were cut short", true),
    ] {
        let found = concluded(&all);
        let one = found.reservations.iter().find(|one| one.text.contains(says));
        let one = one.unwrap_or_else(|| panic!("{says}: {:?}", found.reservations));
        assert_eq!(one.is_major, is_major, "{says}");
        let does_count = found.standing != VerdictStanding::DoesNotCount;
        assert_eq!(does_count, !is_major, "{says}");
        let void = if is_major { "Not a valid comparison. By its figures " } else { "" };
        let says = format!("{void}a won fan");
        assert!(found.sentence.starts_with(&says), "{}", found.sentence);
    }
}

#[test]
fn every_load_that_does_not_count_is_named_and_has_no_winner() {
    let of = |task: u64, is_cut: bool| {
        [("a", 2.0), ("b", 9.0)].map(|(broker, p99)| {
            let mut one = run(broker, 1, (1_000.0, p99, 0));
            one["comparison"]["task"] = json!(task);
            one["interrupted"] = json!(is_cut);
            one
        })
    };
    let found = concluded(&[of(0, true), of(1, false), of(2, true)].concat());
    assert!(found.sentence.starts_with("a won 1 of 3 loads"), "{}", found.sentence);
    assert!(found.sentence.ends_with("; 2 do not count."), "{}", found.sentence);
    assert_eq!(found.describe_standing().matches("were cut short").count(), 2);
    let found = concluded(&[of(0, true), of(1, true)].concat());
    assert_eq!(found.sentence, "None of the 2 loads has a clear winner that counts.");
}

#[test]
fn several_loads_are_summed_up() {
    let of = |task: u64, all: [(&str, f64); 2]| {
        all.map(|(broker, p99)| {
            let mut one = run(broker, 1, (1_000.0, p99, 0));
            one["comparison"]["task"] = json!(task);
            one
        })
    };
    let all = |third: [(&str, f64); 2]| {
        let loads =
            [of(0, [("a", 1.0), ("b", 1.5)]), of(1, [("a", 1.0), ("b", 3.0)]), of(2, third)];
        concluded(&loads.concat()).sentence
    };
    let expected = "a won 3 of 3 loads, 20 % to 3.0 times ahead.";
    assert_eq!(all([("a", 1.0), ("b", 1.2)]), expected);
    let expected = "a won 2 of 3 loads, 50 % to 3.0 times ahead; b won 1.";
    assert_eq!(all([("a", 2.0), ("b", 1.0)]), expected);
    let expected = "a won 2 of 3 loads, 50 % to 3.0 times ahead; 1 has no clear winner.";
    assert_eq!(all([("a", 1.0), ("b", 1.0)]), expected);
}

/// The sentence mentions only results that the run has.
#[test]
fn a_single_run_says_what_it_found_out() {
    let with = |counts: Value, expected: u64, faults: &[&str]| {
        let report = json!({
            "tool": "godwit-bench",
            "scenario": { "name": "x" },
            "target": { "broker": "mine" },
            "rates": { "received": 10.0, "published": 10.0 },
            "counts": counts,
            "messages": { "expected": expected, "received": expected },
            "faults": faults,
        });
        concluded(&[report]).sentence
    };
    for (sentence, says) in [
        (with(json!({ "pub": 5 }), 20, &[]), "mine delivered all 20 messages once and in order"),
        (with(json!({ "pub": 5 }), 0, &[]), "mine took 5 messages, 10 a second. Whether they"),
        (with(json!({ "recv": 7 }), 0, &[]), "mine delivered 7 messages"),
        (
            with(json!({ "connect_succ": 3 }), 0, &[]),
            "mine took 3 connections. No message was sent.",
        ),
        (with(json!({}), 0, &[]), "Nothing happened in this run of mine"),
        (with(json!({}), 0, &["nothing was published"]), "mine failed: nothing was published."),
    ] {
        assert!(sentence.starts_with(says), "{sentence}");
    }
}

#[test]
fn a_ramp_says_which_load_and_why_it_ended() {
    let step = |rate: f64, is_recommended: bool, broken: Value| {
        json!({
            "tool": "godwit-bench",
            "scenario": { "name": "p2p" },
            "ramp": { "rate": rate, "load": rate * 100.0, "is_recommended": is_recommended,
                      "broken": broken, "host_note": null },
            "samplers": [{ "name": "Sub", "p99": 1.5 }],
        })
    };
    let steps = [step(10.0, true, Value::Null), step(20.0, false, json!("3 deliveries lost"))];
    let expected = "The recommended load of p2p is 1,000 messages/s in and out (rate 10), with 1.5 \
        ms p99. The step of rate 20 ended the ramp: 3 deliveries lost.";
    assert_eq!(concluded(&steps).sentence, expected);
}
