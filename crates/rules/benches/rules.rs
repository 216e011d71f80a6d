//! Nanoseconds per message for each kind of rule: `cargo bench -p rules`.

use rules::{Budget, RuleInput, RulePlan, ValueMap, WindowState};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 9;
const RUNS: u32 = 20_000;

/// A payload of 200 bytes, with fields that the rules use near its start and at its end.
const PAYLOAD: &str = concat!(
    r#"{"id":"a81758fffe03f6b2","ts":1795334400123,"site":{"name":"hall 4","line":7},"#,
    r#""temperature":21.75,"humidity":48,"battery":3.61,"state":"running","alarm":false,"#,
    r#""tags":["north","roof"],"seq":1049,"x":1}"#
);

const KINDS: &[(&str, &str)] = &[
    ("everything (`*`)", r#"SELECT * FROM "t/#""#),
    ("a field of the message", r#"SELECT topic FROM "t/#""#),
    ("two JSON fields", r#"SELECT payload.temperature AS t, payload.seq AS n FROM "t/#""#),
    ("two nested JSON fields", r#"SELECT payload.site.name AS s, payload.tags[2] AS t FROM "t/#""#),
    ("WHERE fails on a JSON field", r#"SELECT * FROM "t/#" WHERE payload.temperature > 30"#),
    ("WHERE fails on the topic", r#"SELECT * FROM "t/#" WHERE topic =~ 'a/+'"#),
    ("arithmetic", r#"SELECT (payload.temperature * 9 / 5 + 32) * 2 AS f FROM "t/#""#),
    ("regular expression", r#"SELECT regex_match(payload.id, '^a8[0-9a-f]+b2$') AS m FROM "t/#""#),
    (
        "format_date",
        r#"SELECT format_date('millisecond', 'Z', '%Y-%m-%d', payload.ts) AS d FROM "t/#""#,
    ),
    ("sha256 of the payload", r#"SELECT sha256(payload) AS h FROM "t/#""#),
];

/// Names and texts of rules with a window. All messages have the same key and follow each other at
/// intervals of a millisecond.
const WINDOWS: &[(&str, &str)] = &[
    ("count, tumbling", r#"SELECT count(*) AS n FROM "t" GROUP BY TUMBLINGWINDOW(ss, 1)"#),
    (
        "five totals of a JSON field, tumbling",
        r#"SELECT count(payload.temperature) AS n, sum(payload.temperature) AS s,
            avg(payload.temperature) AS a, min(payload.temperature) AS l,
            max(payload.temperature) AS h
            FROM "t" GROUP BY payload.id, TUMBLINGWINDOW(ss, 1)"#,
    ),
    (
        "avg of a JSON field, hopping",
        r#"SELECT avg(payload.temperature) AS a FROM "t" GROUP BY HOPPINGWINDOW(ss, 10, 1)"#,
    ),
    (
        "avg of a JSON field, sliding over 100",
        r#"SELECT avg(payload.temperature) AS a FROM "t" GROUP BY SLIDINGWINDOW(ms, 100)"#,
    ),
    (
        "percentile of a JSON field, of 500",
        r#"SELECT percentile_cont(payload.temperature, 0.9) AS p FROM "t"
            GROUP BY COUNTWINDOW(500)"#,
    ),
];

fn main() {
    assert_eq!(PAYLOAD.len(), 200);
    println!("{:<38} {:>8} {:>12}", "rule", "ns", "rules/s");
    for (name, text) in KINDS {
        measure(name, text, PAYLOAD);
    }
    let list: Vec<String> = (0..10).map(|n| format!(r#"{{"idx":{n},"name":"s{n}"}}"#)).collect();
    let list = format!(r#"{{"sensors":[{}]}}"#, list.join(","));
    let text =
        r#"FOREACH payload.sensors AS s DO clientid, s.name AS name INCASE s.idx >= 0 FROM "t/#""#;
    measure("FOREACH of 10, two columns", text, &list);
    for (name, text) in WINDOWS {
        gather(name, text);
    }
    parse();
}

fn measure(name: &str, text: &str, payload: &str) {
    let plan = RulePlan::parse(text).expect("the rule can be read");
    let seen = RuleInput {
        topic: "t/hall4/7",
        clientid: "client-4711",
        payload: payload.as_bytes(),
        timestamp_ms: 1_795_334_400_123,
        ..RuleInput::default()
    };
    let mut rows: Vec<ValueMap> = Vec::new();
    let best = best(|| {
        for _ in 0..RUNS {
            rows.clear();
            let mut budget = Budget::default();
            black_box(&plan).run(black_box(&seen), &mut budget, &mut rows).expect("it runs");
            black_box(&rows);
        }
    });
    println!("{name:<38} {best:>8.0} {:>12.0}", 1e9 / best);
}

/// Measures a rule with a window, including the rows of closed windows.
fn gather(name: &str, text: &str) {
    let plan = RulePlan::parse(text).expect("the rule can be read");
    let (mut gathering, mut now) = (WindowState::default(), 1_795_334_400_000);
    let best = best(|| {
        let mut rows: Vec<ValueMap> = Vec::new();
        for _ in 0..RUNS {
            now += 1;
            let seen =
                RuleInput { topic: "t", payload: PAYLOAD.as_bytes(), ..RuleInput::default() };
            let mut budget = Budget::default();
            while gathering.due(&plan).is_some_and(|due| due <= now) {
                gathering.close(&plan, now, &mut budget, &mut rows).expect("it closes");
            }
            let offer = plan.offer(black_box(&seen), &mut budget).expect("it runs");
            let values = offer.expect("WHERE holds").values;
            if gathering.add(&plan, values, now, &mut budget).expect("it has room") {
                gathering.close(&plan, now, &mut budget, &mut rows).expect("it closes");
            }
            rows.clear();
        }
    });
    println!("{name:<38} {best:>8.0} {:>12.0}", 1e9 / best);
}

fn parse() {
    let text = KINDS[2].1;
    let best = best(|| {
        for _ in 0..RUNS {
            black_box(RulePlan::parse(black_box(text)).is_ok());
        }
    });
    println!("{:<38} {best:>8.0} {:>12.0}", "reading a rule's text", 1e9 / best);
}

/// Returns the nanoseconds per run in the fastest of several rounds.
fn best(mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        run();
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(RUNS));
    }
    best
}
