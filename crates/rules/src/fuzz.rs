//! Bodies of the fuzz targets of rules; `cargo test` replays their corpora without a fuzzer.

use crate::{Budget, RuleInput, RulePlan, Value, WindowState};

/// Parses any text with [`RulePlan::parse`]: a valid rule runs, and an error must have a location
/// in the text.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(crate::split(text).iter().all(|(start, rule)| text[*start..].starts_with(rule)));
    match RulePlan::parse(text) {
        Ok(plan) => run_plan(&plan, PAYLOAD.as_bytes()),
        Err(refused) => {
            let lines = text.split('\n').count().max(1);
            assert!((1..=lines).contains(&(refused.line as usize)), "{refused} of {lines} lines");
            assert!(refused.column >= 1 && !refused.message.is_empty());
            assert!(refused.show(text).contains('^'));
        }
    }
}

/// Runs a rule of `RULES`, chosen by the first byte, on the rest as payload.
pub fn run(bytes: &[u8]) {
    let Some((which, payload)) = bytes.split_first() else { return };
    let rule = RULES[usize::from(*which) % RULES.len()];
    let plan = RulePlan::parse(rule).expect("the rules of the table are rules");
    run_plan(&plan, payload);
    run_windows(payload);
}

/// Adds payloads separated by line feeds to windows. The first state is decoded from the same
/// bytes.
fn run_windows(payloads: &[u8]) {
    for rule in WINDOWS {
        let plan = RulePlan::parse(rule).expect("the rules of the table are rules");
        let mut gathering = WindowState::decode(&plan, payloads).unwrap_or_default();
        let mut rows = Vec::new();
        for (at, payload) in payloads.split(|byte| *byte == b'\n').enumerate() {
            let seen = RuleInput { topic: "car/7", payload, ..RuleInput::default() };
            let whole = Budget { steps: 20_000, bytes: 1 << 18, rows: 50 };
            let now = at as u64 * 700;
            for _ in 0..10 {
                if gathering.due(&plan).is_some_and(|due| due <= now) {
                    let _ = gathering.close(&plan, now, &mut whole.clone(), &mut rows);
                }
            }
            if let Ok(Some(offer)) = plan.offer(&seen, &mut whole.clone())
                && gathering.add(&plan, offer.values, now, &mut whole.clone()) == Ok(true)
            {
                let _ = gathering.close(&plan, now, &mut whole.clone(), &mut rows);
            }
            let (mut bytes, mut again) = (Vec::new(), Vec::new());
            gathering.encode(&mut bytes);
            let back = WindowState::decode(&plan, &bytes).expect("a record comes back");
            back.encode(&mut again);
            assert_eq!(bytes, again);
        }
    }
}

fn run_plan(plan: &RulePlan, payload: &[u8]) {
    let more = [("reason", Value::text("kicked")), ("list", Value::Array(vec![Value::Int(1)]))];
    let seen = RuleInput {
        topic: "car/7/speed",
        payload,
        clientid: "c1",
        username: Some("eric"),
        now_ms: 1_795_334_400_250,
        chance: 7,
        extra_fields: &more,
        ..RuleInput::default()
    };
    for steps in [300, 20_000] {
        let whole = Budget { steps, bytes: 1 << 18, rows: 50 };
        let (mut budget, mut rows) = (whole, Vec::new());
        let ran = plan.run(&seen, &mut budget, &mut rows);
        assert!(budget.steps <= whole.steps && rows.len() <= 50);
        for row in rows {
            // The output of a rule is JSON, which a rule can read.
            let text = row.to_string();
            let mut plenty = Budget { steps: u64::MAX, bytes: u64::MAX, rows: 1 };
            let read = crate::json::JsonTape::read(text.as_bytes(), &mut plenty);
            let nested = ran.is_ok() && text.matches(['[', '{']).count() > 60;
            assert!(nested || matches!(read, Ok(Some(_))), "{text}");
        }
    }
}

const PAYLOAD: &str = r#"{"a":{"b":[{"c":1},{"c":"two"}]},"t":21.5,"n":7,"s":"sieben","yes":true,
    "none":null,"sensors":[{"idx":0,"name":"t0"},{"idx":1,"name":"t1"}]}"#;

const WINDOWS: &[&str] = &[
    r#"SELECT payload.k AS k, count(*) AS n, sum(payload.v) AS s, avg(payload.v) AS a,
        stddev(payload.v) AS d FROM "t" GROUP BY payload.k, TUMBLINGWINDOW(ss, 2)"#,
    r#"SELECT min(payload.v) AS a, max(payload.v) AS b, first_value(payload) AS c,
        last_value(payload.v) AS d FROM "t" GROUP BY HOPPINGWINDOW(ss, 3, 2)"#,
    r#"SELECT distinct(payload.v) AS a, count_distinct(payload.v) AS b, collect(payload) AS c
        FROM "t" GROUP BY SLIDINGWINDOW(ss, 2) HAVING count(payload.v) > 1"#,
    r#"SELECT percentile_cont(payload.v, 0.9) AS a, percentile_disc(payload.v, 0.1) AS b
        FROM "t" GROUP BY SESSIONWINDOW(ss, 3, 1)"#,
    r#"SELECT window_start() AS a, window_end() AS b, payload.v.x AS c
        FROM "t" GROUP BY COUNTWINDOW(3)"#,
];

const RULES: &[&str] = &[
    r#"SELECT * FROM "t""#,
    r#"SELECT payload.a AS a, payload.b[1].c AS b, payload.a[-1] AS c
        FROM "t" WHERE payload.a > 1"#,
    r#"SELECT json_decode(payload) AS all, json_encode(json_decode(payload)) AS text FROM "t""#,
    r#"FOREACH payload.list AS i DO i.a AS a, i.b[1..2] AS b INCASE i.a <> 'x' FROM "t""#,
    r#"FOREACH json_decode(payload) AS i DO i, i.a.b AS c FROM "t""#,
    r#"SELECT unescape(payload) AS u, split(payload, ',') AS s, tokens(payload, ' ,;') AS t,
        replace(payload, 'a', 'bb') AS r, reverse(payload) AS v, trim(payload) AS m FROM "t""#,
    r#"SELECT subbits(payload, 3, 9) AS a,
        subbits(payload, 5, 20, 'integer', 'signed', 'little') AS b,
        subbits(payload, 2, 13, 'bits') AS c, bin2hexstr(payload) AS d, md5(payload) AS e,
        base64_encode(payload) AS f FROM "t""#,
    r#"SELECT hexstr2bin(payload) AS v FROM "t""#,
    r#"SELECT base64_decode(payload) AS v FROM "t""#,
    r#"SELECT rfc3339_to_unix_ts(payload, 'nanosecond') AS v FROM "t""#,
    r#"SELECT date_to_unix_ts('second', '%Y-%m-%dT%H:%M:%S.%3N%z', payload) AS v FROM "t""#,
    r#"SELECT format_date('second', 'Z', payload, 1) AS v FROM "t""#,
    r#"SELECT regex_extract(payload, '([a-z]+)([0-9]*)') AS a,
        regex_replace(payload, 'a*', '&\g{0}') AS b, payload LIKE '%a_b%' AS c,
        payload =~ '+/a/#' AS d FROM "t""#,
    r#"SELECT regex_match('aaaaaaaaaaab', payload) AS v FROM "t""#,
    r#"SELECT float(payload, 3) AS a, int(payload) AS b FROM "t""#,
    r#"SELECT map_keys(map(payload)) AS k, map_put('a.b.c', 1, map(payload)) AS p,
        map_get('a.b', map(payload)) AS g FROM "t""#,
    r#"SELECT *, 1 AS payload.x, 2 AS payload.list[1], 3 AS payload.new[-0] FROM "t""#,
    r#"FOREACH payload AS p FROM "t""#,
    r#"FOREACH json_decode(payload) AS p, p.a AS a, a.b AS e DO e, p.c AS c FROM "t""#,
    r#"SELECT gunzip(payload) AS v FROM "t""#,
    r#"SELECT unzip(payload) AS v FROM "t""#,
    r#"SELECT zip_uncompress(payload) AS v FROM "t""#,
    r#"SELECT term_decode(payload) AS v FROM "t""#,
    r#"SELECT term_decode(term_encode(json_decode(payload))) AS v FROM "t""#,
    r#"SELECT sprintf(payload, 'a', 1, 2.5) AS v FROM "t""#,
    r#"SELECT sprintf_s('~p ~5s ~.3f', json_decode(payload)) AS v FROM "t""#,
    r#"SELECT pad(payload, 50, 'both', payload) AS p, trim(payload, 'ab') AS t,
        concat([payload, 1]) AS c, coalesce_ne([payload, 2]) AS n FROM "t""#,
    r#"SELECT base64_decode(payload, 'urlsafe', 'no_padding') AS v FROM "t""#,
    r#"SELECT subbits(payload, 1, 16, 'float') AS v FROM "t""#,
    r#"SELECT mput(json_decode(payload), 1, map_new()) AS v FROM "t""#,
];
