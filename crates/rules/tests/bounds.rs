//! Every run of a rule ends within its budget, whatever the rule and the message, and reports the
//! exceeded bound.

use rules::{Budget, RuleInput, RulePlan, RunError};

fn run(rule: &str, payload: &[u8], mut budget: Budget) -> (Result<usize, RunError>, Budget) {
    let plan = RulePlan::parse(rule).unwrap_or_else(|refused| panic!("{}", refused.show(rule)));
    let mut rows = Vec::new();
    let seen = RuleInput { topic: "t", payload, ..RuleInput::default() };
    let ran = plan.run(&seen, &mut budget, &mut rows);
    (ran.map(|()| rows.len()), budget)
}

/// Rules whose memory or time would grow without limit if there were no budget, each with a
/// payload.
const GREEDY: &[(&str, &str)] = &[
    (r#"SELECT range(1, 100000000) AS v FROM "t""#, ""),
    (r#"SELECT pad('a', 100000000) AS v FROM "t""#, ""),
    (r#"SELECT replace(pad('', 3000, 'leading', 'a'), 'a', pad('', 3000)) AS v FROM "t""#, ""),
    (
        r#"SELECT regex_replace(pad('', 99999), '(.*)', replace(pad('', 60), ' ', '\1')) AS v
           FROM "t""#,
        "",
    ),
    (r#"SELECT regex_match(pad('', 300000), '( | | | )*x') AS v FROM "t""#, ""),
    (r#"SELECT regex_match(pad('', 3000), '(x?){400}(x*){400}y') AS v FROM "t""#, ""),
    (r#"SELECT regex_replace(pad('', 9000), '.*[^ ]|[ ]', 'x') AS v FROM "t""#, ""),
    (r#"SELECT regex_match(topic, concat('a{1000}', 'b{1000}')) AS v FROM "t""#, ""),
    (r#"FOREACH range(1, 5000) FROM "t""#, ""),
    (r#"FOREACH range(1, 900) AS i DO range(1, 900) AS v FROM "t""#, ""),
    (r#"FOREACH range(1, 900) AS i DO length(range(1, 900)) AS v FROM "t""#, ""),
    (r#"SELECT json_decode(payload) AS v FROM "t""#, "[1]"),
    (r#"SELECT join_to_string(pad('', 3000), range(1, 3000)) AS v FROM "t""#, ""),
    (r#"SELECT pad('', 3000, 'both', pad('', 3000)) AS v FROM "t""#, ""),
    (r#"SELECT trim(pad('', 30000), pad('', 30000, 'leading', 'x')) AS v FROM "t""#, ""),
    (r#"SELECT sprintf('~999999999s', 'a') AS v FROM "t""#, ""),
    (r#"SELECT zip(pad('', 300000)) AS v FROM "t""#, ""),
    (r#"SELECT hash('sha512', pad('', 3000000)) AS v FROM "t""#, ""),
    (r#"SELECT concat(range(1, 190000)) AS v FROM "t""#, ""),
    (
        r#"SELECT contains('x', split(pad('', 900000, 'leading', ','), ',', 'notrim')) AS v
           FROM "t""#,
        "",
    ),
];

#[test]
fn what_is_greedy_fails_within_its_budget() {
    for (rule, payload) in GREEDY {
        let payload = match payload.is_empty() {
            true => Vec::new(),
            // A million elements.
            false => format!("[1{}]", ",1".repeat(1_000_000)).into_bytes(),
        };
        let (ran, _) = run(rule, &payload, Budget::default());
        let reason = ran.expect_err(rule).reason();
        assert!(["steps", "bytes", "rows", "function"].contains(&reason), "{rule}: {reason}");
    }
}

/// A compressed payload of some kilobytes with an output of many megabytes fails before the output
/// is produced.
#[test]
fn what_inflates_without_end_fails_within_its_budget() {
    let zeros = vec![0; 32 << 20];
    let deflated = miniz_oxide::deflate::compress_to_vec(&zeros, 6);
    let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&zeros, 6);
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    gzip.extend_from_slice(&deflated);
    gzip.extend_from_slice(&[0; 8]);
    for (function, bytes) in [("unzip", deflated), ("zip_uncompress", zlib), ("gunzip", gzip)] {
        assert!(bytes.len() < 100_000, "{function}: {}", bytes.len());
        let rule = format!("SELECT {function}(payload) AS v FROM \"t\"");
        let (ran, left) = run(&rule, &bytes, Budget::default());
        assert_eq!(ran, Err(RunError::Bytes), "{function}");
        assert!(left.bytes < Budget::default().bytes, "{function} is paid for");
        // Half of them is no more than an error, and paid for as well.
        let (ran, left) = run(&rule, &bytes[..bytes.len() / 64], Budget::default());
        assert!(ran.is_err() && left.bytes < Budget::default().bytes - 100_000, "{function}");
    }
}

/// Each rule has a smallest sufficient budget; with every smaller budget the run fails with an
/// error.
#[test]
fn a_smaller_budget_is_a_clean_failure() {
    let payload =
        br#"{"list":[{"a":"x\ny"},{"a":[1,2,{"b":null}]},{"a":"xxxxxxxxxxxxxxxxxxxx"}],"n":5}"#;
    for rule in [
        r#"SELECT * FROM "t" WHERE payload.n = 5"#,
        r#"SELECT payload.list AS l, str(payload.list) AS s, upper(payload.list[1].a) AS u
           FROM "t""#,
        r#"FOREACH payload.list AS i DO i.a AS a, map_put('x.y', i, map_new()) AS m FROM "t""#,
        r#"SELECT split('a/b/c', '/') AS s, range(1, 20) AS r, flags, pub_props FROM "t""#,
        r#"SELECT regex_replace('abc', '[a-z]', '<&>') AS r, sha256(payload) AS h FROM "t""#,
    ] {
        let whole = Budget::default();
        let (ran, left) = run(rule, payload, whole);
        let rows = ran.expect(rule);
        let (steps, bytes) = (whole.steps - left.steps, whole.bytes - left.bytes);
        assert!(
            steps > 0 && steps < 5000 && bytes < 10_000,
            "{rule}: {steps} steps, {bytes} bytes"
        );
        for steps in 0..steps {
            let (ran, _) = run(rule, payload, Budget { steps, ..whole });
            assert_eq!(ran, Err(RunError::Steps), "{rule}");
        }
        for bytes in 0..bytes {
            let (ran, _) = run(rule, payload, Budget { bytes, ..whole });
            assert_eq!(ran, Err(RunError::Bytes), "{rule}, {bytes}");
        }
        let (ran, _) = run(rule, payload, Budget { rows: rows as u32 - 1, ..whole });
        assert_eq!(ran, Err(RunError::Rows), "{rule}");
        let exactly = Budget { steps, bytes, rows: rows as u32 };
        assert_eq!(run(rule, payload, exactly).0, Ok(rows), "{rule}");
    }
}

/// Several accesses to the payload parse it once.
#[test]
fn a_payload_is_read_once() {
    let payload = format!(r#"{{"pad":"{}","a":1}}"#, "x".repeat(16_000));
    let used = |rule: &str| {
        let (ran, left) = run(rule, payload.as_bytes(), Budget::default());
        ran.unwrap();
        Budget::default().steps - left.steps
    };
    let once = used(r#"SELECT payload.a AS a FROM "t""#);
    let often = used(r#"SELECT payload.a AS a, payload.a AS b, payload.a AS c FROM "t""#);
    assert!(once > 1000 && often < once + 50, "{once}, {often}");
    assert!(used(r#"SELECT topic FROM "t""#) < 10, "and not at all where nobody asks");
}

/// Comparing maps in the same order costs their size; in different orders the sorting of their
/// names is charged as well.
#[test]
fn maps_that_are_compared_are_paid_for() {
    const NAMES: usize = 3000;
    let map = |names: &mut dyn Iterator<Item = usize>| {
        let names: Vec<String> = names.map(|name| format!("\"name{name:05}\":1")).collect();
        format!("{{{}}}", names.join(","))
    };
    let there = map(&mut (0..NAMES));
    let back = map(&mut (0..NAMES).rev());
    let used = |other: &str, rule: &str| {
        let payload = format!("{{\"a\":{there},\"b\":{other}}}");
        let (ran, left) = run(rule, payload.as_bytes(), Budget::default());
        assert_eq!(ran, Ok(1), "{rule}");
        Budget::default().steps - left.steps
    };
    for rule in [
        r#"SELECT topic FROM "t" WHERE payload.a = payload.b"#,
        r#"SELECT topic FROM "t" WHERE payload.a IN (1, payload.b)"#,
        r#"SELECT topic FROM "t" WHERE CASE payload.a WHEN payload.b THEN true END"#,
        r#"SELECT topic FROM "t" WHERE contains(payload.a, [payload.b])"#,
    ] {
        let (alike, turned) = (used(&there, rule), used(&back, rule));
        assert!(turned > alike + (NAMES * NAMES.ilog2() as usize) as u64, "{alike}, {turned}");
    }
}
