//! Windows: grouping of messages, the end of a window, bounds, and restored records.

use rules::{AGGREGATES, Budget, RuleInput, RulePlan, RunError, VALUES_MAX, ValueMap, WindowState};

/// The window state of one rule, and the rows it has produced.
struct WindowRun {
    plan: RulePlan,
    gathering: WindowState,
    rows: Vec<String>,
}

impl WindowRun {
    fn of(rule: &str) -> WindowRun {
        let plan = RulePlan::parse(rule).unwrap_or_else(|refused| panic!("{}", refused.show(rule)));
        WindowRun { plan, gathering: WindowState::default(), rows: Vec::new() }
    }

    fn close(&mut self, now: u64) {
        let mut rows: Vec<ValueMap<'_>> = Vec::new();
        self.gathering
            .close(&self.plan, now, &mut Budget::default(), &mut rows)
            .expect("it closes");
        self.rows.extend(rows.iter().map(ValueMap::to_string));
    }

    /// Closes all windows that end up to `now`.
    fn pass(&mut self, now: u64) {
        while let Some(due) = self.gathering.due(&self.plan).filter(|due| *due <= now) {
            self.close(due);
        }
    }

    fn add(&mut self, now: u64, payload: &str) -> Result<(), RunError> {
        self.pass(now);
        let seen = RuleInput { topic: "t/1", payload: payload.as_bytes(), ..RuleInput::default() };
        let Some(offer) = self.plan.offer(&seen, &mut Budget::default())? else { return Ok(()) };
        // A record is all of it.
        let mut bytes = Vec::new();
        self.gathering.encode(&mut bytes);
        assert_eq!(WindowState::decode(&self.plan, &bytes).as_ref(), Some(&self.gathering));
        if self.gathering.add(&self.plan, offer.values, now, &mut Budget::default())? {
            self.close(now);
        }
        Ok(())
    }

    #[track_caller]
    fn gives(&mut self, expected: &[&str]) {
        assert_eq!(self.rows, expected);
        self.rows.clear();
    }
}

#[test]
fn every_example_is_true() {
    let mut wrong = Vec::new();
    for row in AGGREGATES {
        let (expr, expected) = row.example;
        assert!(expr.contains(&format!("{}(", row.name)), "{expr} calls {}", row.name);
        let rule = format!("SELECT {expr} AS x FROM \"t/#\" GROUP BY COUNTWINDOW(5)");
        let mut run = WindowRun::of(&rule);
        for v in ["3", "1", "2", "2", "null"] {
            run.add(1_000, &format!("{{\"v\":{v}}}")).unwrap();
        }
        let got = run.rows.pop().unwrap_or_default();
        if got != format!("{{\"x\":{expected}}}") {
            wrong.push(format!("{expr}: {got}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(AGGREGATES.iter().map(|row| row.name).is_sorted());
}

#[test]
fn a_tumbling_window_has_each_message_once() {
    let mut run = WindowRun::of(
        r#"SELECT payload.dev AS dev, sum(payload.v) AS sum, window_start() AS a, window_end() AS b
           FROM "t/#" WHERE payload.v > 0 GROUP BY payload.dev, TUMBLINGWINDOW(ss, 10)"#,
    );
    for (now, v) in [(10_500, 1), (19_999, 2), (19_999, -5), (20_000, 4)] {
        run.add(now, &format!("{{\"dev\":\"d\",\"v\":{v}}}")).unwrap();
    }
    run.gives(&[r#"{"dev":"d","sum":3,"a":10000,"b":20000}"#]);
    run.pass(29_999);
    run.gives(&[]);
    run.pass(30_000);
    run.gives(&[r#"{"dev":"d","sum":4,"a":20000,"b":30000}"#]);
    assert!(run.gathering.is_empty());
}

#[test]
fn hopping_windows_overlap() {
    let mut run = WindowRun::of(
        r#"SELECT collect(payload) AS all FROM "t/#" GROUP BY HOPPINGWINDOW(ss, 10, 4)"#,
    );
    for (now, what) in [(1_000, "1"), (5_000, "5"), (9_000, "9")] {
        run.add(now, what).unwrap();
    }
    run.pass(60_000);
    run.gives(&[
        r#"{"all":["1"]}"#,
        r#"{"all":["1","5"]}"#,
        r#"{"all":["5","9"]}"#,
        r#"{"all":["9"]}"#,
    ]);
    assert!(run.gathering.is_empty());
}

#[test]
fn a_sliding_window_ends_with_each_message() {
    let mut run =
        WindowRun::of(r#"SELECT sum(payload.v) AS sum FROM "t/#" GROUP BY SLIDINGWINDOW(ms, 500)"#);
    for (now, v) in [(1_000, 1), (1_400, 2), (1_500, 4), (1_900, 8)] {
        run.add(now, &format!("{{\"v\":{v}}}")).unwrap();
    }
    run.gives(&[r#"{"sum":1}"#, r#"{"sum":3}"#, r#"{"sum":6}"#, r#"{"sum":12}"#]);
    run.pass(60_000);
    run.gives(&[]);
    assert!(run.gathering.is_empty());
}

#[test]
fn a_session_ends_with_a_pause_or_when_it_is_too_long() {
    let mut run =
        WindowRun::of(r#"SELECT count(*) AS n FROM "t/#" GROUP BY SESSIONWINDOW(ss, 10, 3)"#);
    for now in [1, 3, 5, 9, 11, 13, 15, 17, 19, 21] {
        run.add(now * 1_000, "x").unwrap();
    }
    run.pass(60_000);
    // A pause behind 5; ten seconds from 9 on; the rest.
    run.gives(&[r#"{"n":3}"#, r#"{"n":5}"#, r#"{"n":2}"#]);
}

#[test]
fn having_says_which_windows_make_a_row() {
    let mut run = WindowRun::of(
        r#"SELECT max(payload.v) AS max, topic FROM "t/#"
           GROUP BY COUNTWINDOW(2) HAVING max > 3 AND count(payload.v) = 2"#,
    );
    for v in [1, 2, 3, 4] {
        run.add(1_000, &format!("{{\"v\":{v}}}")).unwrap();
    }
    run.gives(&[r#"{"max":4,"topic":"t/1"}"#]);
}

#[test]
fn what_is_too_much_or_no_number_is_refused() {
    let mut run = WindowRun::of(
        r#"SELECT collect(payload) AS all FROM "t/#" GROUP BY TUMBLINGWINDOW(hh, 1)"#,
    );
    for _ in 0..VALUES_MAX {
        run.add(1_000, "x").unwrap();
    }
    let before = run.gathering.clone();
    assert_eq!(run.add(1_000, "x"), Err(RunError::Values));
    assert_eq!(run.gathering, before);
    let mut run = WindowRun::of(r#"SELECT sum(payload.v) AS s FROM "t/#" GROUP BY COUNTWINDOW(2)"#);
    let failed = run.add(1_000, r#"{"v":"one"}"#).unwrap_err();
    assert_eq!(
        (failed.reason(), &*failed.to_string()),
        ("type", "sum: argument 1 is text, but it has to be a number",)
    );
    run.add(1_000, r#"{"v":9223372036854775807}"#).unwrap();
    let plan = &run.plan;
    let seen = RuleInput { payload: br#"{"v":1}"#, ..RuleInput::default() };
    let offer = plan.offer(&seen, &mut Budget::default()).unwrap().unwrap();
    let mut budget = Budget::default();
    assert!(run.gathering.add(plan, offer.values, 1_000, &mut budget).unwrap());
    let closed = run.gathering.close(plan, 1_000, &mut Budget::default(), &mut Vec::new());
    assert_eq!(closed.unwrap_err().reason(), "arithmetic");
    assert!(run.gathering.is_empty(), "what fails does not fail for ever");
}

#[test]
fn a_record_of_another_rule_is_none() {
    let mut one = WindowRun::of(r#"SELECT sum(payload.v) AS s FROM "t/#" GROUP BY COUNTWINDOW(9)"#);
    one.add(1_000, r#"{"v":1}"#).unwrap();
    let mut bytes = Vec::new();
    one.gathering.encode(&mut bytes);
    let other =
        WindowRun::of(r#"SELECT collect(payload.v) AS s FROM "t/#" GROUP BY COUNTWINDOW(9)"#);
    assert_eq!(WindowState::decode(&other.plan, &bytes), None);
    for len in 0..bytes.len() {
        assert_eq!(WindowState::decode(&one.plan, &bytes[..len]), None, "half a record is none");
    }
}

#[test]
fn a_rule_with_a_window_can_be_tried_on_one_message() {
    let plan = RulePlan::parse(
        r#"SELECT count(*) AS n, payload.a.b AS b, upper(payload.a.b) AS up, topic_level(1) AS l
           FROM "t/#" GROUP BY payload.a, SLIDINGWINDOW(mi, 1)"#,
    )
    .unwrap();
    let seen = RuleInput { topic: "t/1", payload: br#"{"a":{"b":"x"}}"#, ..RuleInput::default() };
    let mut rows = Vec::new();
    plan.run(&seen, &mut Budget::default(), &mut rows).expect("it closes");
    assert_eq!(rows[0].to_string(), r#"{"n":1,"b":"x","up":"X","l":"t"}"#);
}

#[test]
fn what_is_no_window_is_refused_with_its_place() {
    for (rule, expected) in [
        ("SELECT a.b AS x FROM \"t\" GROUP BY COUNTWINDOW(1)", "a message has no a"),
        ("SELECT topic FROM \"t\" GROUP BY topic", "1:32: groups need a window; GROUP BY"),
        ("SELECT topic FROM \"t\" HAVING 1 = 1", "1:23: groups need a window"),
        ("SELECT count(*) FROM \"t\"", "1:8: count is for windows"),
        ("SELECT sum(avg(qos)) FROM \"t\" GROUP BY COUNTWINDOW(3)", "1:12: avg is for windows"),
        ("SELECT sum(*) FROM \"t\" GROUP BY COUNTWINDOW(3)", "1:8: sum takes (number)"),
        ("SELECT * FROM \"t\" GROUP BY COUNTWINDOW(3)", "a row of a window has no *"),
        ("SELECT qos FROM \"t\" GROUP BY COUNTWINDOW(0)", "it counts from 1 to"),
        ("SELECT qos FROM \"t\" GROUP BY TUMBLINGWINDOW(10)", "it begins with a unit"),
        ("SELECT qos FROM \"t\" GROUP BY TUMBLINGWINDOW(yy, 10)", "its unit is dd, hh, mi"),
        ("SELECT qos FROM \"t\" GROUP BY TUMBLINGWINDOW(ms, 10)", "a length is from 100 ms"),
        ("SELECT qos FROM \"t\" GROUP BY TUMBLINGWINDOW(dd, 32)", "a length is from 100 ms"),
        ("SELECT qos FROM \"t\" GROUP BY HOPPINGWINDOW(ss, 5, 10)", "would be in none"),
        ("SELECT qos FROM \"t\" GROUP BY HOPPINGWINDOW(ms, 86400000, 999)", "more than 1000"),
        ("SELECT qos FROM \"t\" GROUP BY COUNTWINDOW(1), COUNTWINDOW(2)", "a rule has one window"),
        (
            "SELECT percentile_cont(qos, 2) FROM \"t\" GROUP BY COUNTWINDOW(1)",
            "the part is a number from 0 to 1",
        ),
        ("FOREACH payload AS p FROM \"t\" GROUP BY COUNTWINDOW(1)", "FOREACH has no window"),
    ] {
        let refused = RulePlan::parse(rule).expect_err(rule).to_string();
        assert!(refused.contains(expected), "{rule}: {refused}");
    }
}

#[test]
fn a_thousand_different_values_are_counted() {
    let rule = r#"SELECT count_distinct(payload.v) AS n FROM "t/#" GROUP BY COUNTWINDOW(1000)"#;
    let mut run = WindowRun::of(rule);
    for value in 0..1000 {
        run.add(0, &format!("{{\"v\":{value}}}")).expect("it has room");
    }
    run.gives(&[r#"{"n":1000}"#]);
}

#[test]
fn numbers_that_are_large_and_near_each_other_differ() {
    let rule = r#"SELECT round(stddev(payload.v) * 1000) AS s FROM "t/#" GROUP BY COUNTWINDOW(3)"#;
    let mut run = WindowRun::of(rule);
    for value in [1_732_350_000_000_u64, 1_732_350_000_001, 1_732_350_000_002] {
        run.add(0, &format!("{{\"v\":{value}}}")).expect("it has room");
    }
    run.gives(&[r#"{"s":816}"#]);
    // Over several panes.
    let rule = r#"SELECT round(stddev(payload.v) * 1000) AS s FROM "t/#"
                  GROUP BY HOPPINGWINDOW(ss, 2, 1)"#;
    let mut run = WindowRun::of(rule);
    run.add(10, r#"{"v":1732350000000}"#).expect("it has room");
    run.add(1010, r#"{"v":1732350000001.0}"#).expect("it has room");
    run.add(1020, r#"{"v":1732350000002}"#).expect("it has room");
    run.pass(2000);
    assert_eq!(run.rows.last().map(String::as_str), Some(r#"{"s":816}"#), "{:?}", run.rows);
}

/// Equal values are found by their hash, so the cost of adding a value does not depend on the
/// earlier values.
#[test]
fn what_is_known_already_is_not_looked_through_for_each_value() {
    let rule =
        r#"SELECT count_distinct(payload.m) AS n FROM "t/#" GROUP BY HOPPINGWINDOW(ss, 2, 1)"#;
    let plan = RulePlan::parse(rule).unwrap();
    let names: Vec<String> = (0..1000).map(|name| format!("\"name{name:04}\":1")).collect();
    let mut gathering = WindowState::default();
    let add = |last: u32, now: u64, gathering: &mut WindowState| {
        let payload = format!("{{\"m\":{{{},\"last\":{last}}}}}", names.join(","));
        let seen = RuleInput { payload: payload.as_bytes(), ..RuleInput::default() };
        let offer = plan.offer(&seen, &mut Budget::default()).unwrap().unwrap();
        let mut budget = Budget::default();
        gathering.add(&plan, offer.values, now, &mut budget).expect("it has room and steps");
        Budget::default().steps - budget.steps
    };
    let first = add(0, 1, &mut gathering);
    for last in 1..50 {
        let used = add(last, 1, &mut gathering);
        assert!(used < first + 100, "{used} steps where the first took {first}");
    }
    assert!(add(7, 1, &mut gathering) < 2 * first, "the one that it is equal to is compared");
    for last in 40..60 {
        add(last, 1001, &mut gathering);
    }
    // The panes of a window come together in the same way.
    let (mut budget, mut rows) = (Budget::default(), Vec::new());
    gathering.close(&plan, 2000, &mut budget, &mut rows).expect("it has steps");
    assert_eq!(rows[0].to_string(), r#"{"n":60}"#);
}

/// Equal values count as one value, whatever their spelling.
#[test]
fn values_that_are_equal_are_not_distinct() {
    let rule = r#"SELECT distinct(payload.v) AS v FROM "t/#" GROUP BY COUNTWINDOW(16)"#;
    let mut run = WindowRun::of(rule);
    for v in [
        "1",
        "1.0",
        r#""1""#,
        r#"" 1 ""#,
        "0",
        "-0.0",
        "true",
        r#""true""#,
        r#"{"a":1,"b":[2]}"#,
        r#"{"b":["2"],"a":1.0}"#,
        "[1]",
        "[1.0]",
        r#""x""#,
        r#""x""#,
        "null",
        r#"{"a":1}"#,
    ] {
        run.add(1, &format!("{{\"v\":{v}}}")).unwrap();
    }
    run.gives(&[r#"{"v":[1,0,true,{"a":1,"b":[2]},[1],"x",{"a":1}]}"#]);
}
