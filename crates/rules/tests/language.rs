//! Semantics of the rule language: a rule, its input, and the resulting rows.

use rules::{Budget, RuleInput, RulePlan, RunError, Value, ValueMap};

const SENSORS: &str = r#"{"a":{"b":[{"c":1},{"c":"two"}]},"t":21.5,"n":7,"s":"sieben","yes":true,
    "none":null,"sensors":[{"idx":0,"name":"t0"},{"idx":1,"name":"t1"},{"idx":2,"name":"t2"}]}"#;

fn seen(payload: &str) -> RuleInput<'_> {
    RuleInput {
        topic: "car/7/speed",
        payload: payload.as_bytes(),
        qos: 1,
        clientid: "c1",
        username: Some("eric"),
        timestamp_ms: 1_795_334_400_123,
        now_ms: 1_795_334_400_250,
        ..RuleInput::default()
    }
}

fn rows(rule: &str, payload: &str) -> Result<String, RunError> {
    let plan = RulePlan::parse(rule).unwrap_or_else(|refused| panic!("{}", refused.show(rule)));
    let mut rows = Vec::new();
    plan.run(&seen(payload), &mut Budget::default(), &mut rows)?;
    let rows: Vec<String> = rows.iter().map(ValueMap::to_string).collect();
    Ok(rows.join(" "))
}

#[track_caller]
fn gives(rule: &str, expected: &str) {
    assert_eq!(rows(rule, SENSORS).as_deref(), Ok(expected), "{rule}");
}

/// Checks the value of an expression, as JSON, or its error text.
#[track_caller]
fn is(expr: &str, expected: &str) {
    let got = rows(&format!("SELECT {expr} AS v FROM \"#\""), SENSORS);
    let got = got.unwrap_or_else(|failed| failed.to_string());
    let expected = format!("{{\"v\":{expected}}}");
    assert_eq!(got, expected, "{expr}");
}

#[track_caller]
fn fails(expr: &str, why: &str) {
    let got = rows(&format!("SELECT {expr} AS v FROM \"#\""), SENSORS);
    assert_eq!(got.map_err(|failed| failed.to_string()), Err(why.to_string()), "{expr}");
}

#[test]
fn columns_stand_under_their_alias_or_their_own_path() {
    gives(r#"SELECT topic, qos FROM "car/#""#, r#"{"topic":"car/7/speed","qos":1}"#);
    gives(r#"SELECT payload.a.b[1].c FROM "car/#""#, r#"{"payload":{"a":{"b":[{"c":1}]}}}"#);
    gives(
        r#"SELECT payload.sensors[1..1] FROM "t""#,
        r#"{"payload":{"sensors":[{"idx":0,"name":"t0"}]}}"#,
    );
    gives(r#"SELECT 'abc' FROM "t""#, r#"{"abc":"abc"}"#);
    gives(r#"SELECT payload.t, payload.n FROM "car/#""#, r#"{"payload":{"t":21.5,"n":7}}"#);
    gives(r#"SELECT payload.t AS out.x, qos as out.q FROM "t""#, r#"{"out":{"x":21.5,"q":1}}"#);
    gives(r#"SELECT upper(topic) FROM "t""#, r#"{"upper(topic)":"CAR/7/SPEED"}"#);
    gives(r#"SELECT qos + 1 FROM "t""#, r#"{"qos + 1":2}"#);
    gives(
        r#"SELECT 1 AS 'a b', 2 AS "c d", 3 AS x.'y z' FROM "t""#,
        r#"{"a b":1,"c d":2,"x":{"y z":3}}"#,
    );
    gives(r#"SELECT 1 AS a, 2 AS a.b FROM "t""#, r#"{"a":{"b":2}}"#);
}

#[test]
fn a_star_is_every_field() {
    let all = rows(r#"SELECT *, payload.n AS n FROM "t""#, r#"{"n":1}"#).unwrap();
    assert_eq!(
        all,
        concat!(
            r#"{"clientid":"c1","event":"message.publish","#,
            r#""flags":{"retain":false,"dup":false},"id":"","#,
            r#""node":"godwit","payload":"{\"n\":1}","peerhost":null,"pub_props":{},"qos":1,"#,
            r#""timestamp":1795334400123,"topic":"car/7/speed","username":"eric","n":1}"#
        )
    );
}

#[test]
fn paths_lead_through_maps_and_arrays() {
    is("payload.a.b[1].c", "1");
    is("payload.a.b[-1].c", r#""two""#);
    is("payload.a.b[2].c", r#""two""#);
    is("payload.a.b[0]", "null");
    is("payload.a.b[3]", "null");
    is("payload.a.b[-3]", "null");
    is("payload.a.b[9223372036854775807]", "null");
    is("payload.a['b'][1]['c']", "1");
    is("payload.'a'.\"b\"[1]", r#"{"c":1}"#);
    is("payload.sensors[payload.n - 6].name", r#""t0""#);
    is("payload[payload.no]", "null");
    is("payload.sensors[1..2]", r#"[{"idx":0,"name":"t0"},{"idx":1,"name":"t1"}]"#);
    is("payload.sensors[-2..-1]", r#"[{"idx":1,"name":"t1"},{"idx":2,"name":"t2"}]"#);
    is("payload.sensors[2 .. 2]", r#"[{"idx":1,"name":"t1"}]"#);
    is("payload.sensors[3..1]", "[]");
    is("payload.sensors[7..9]", "[]");
    is("payload.t.x", "null");
    is("payload.no.x[1]", "null");
    is("split(topic, '/')[2]", r#""7""#);
    is("map('{\"a\":{\"b\":5}}').a.b", "5");
    is("[1, [2, 3]][2][1]", "2");
}

/// A path into a text parses the text as JSON, whatever the origin of the text.
#[test]
fn paths_lead_through_json_texts() {
    let payload = r#"{"t":21,"inner":"{\"x\":{\"y\":[1,\"{\\\"z\\\":2}\"]}}","plain":"{x",
        "list":["{\"a\":1}","{\"a\":2}"],"array":"[1,2,3]","text":"\"x\""}"#;
    let gives = |rule: &str, expected: &str| {
        assert_eq!(rows(rule, payload).as_deref(), Ok(expected), "{rule}");
    };
    gives(r#"SELECT payload AS p, p.t AS t FROM "t" WHERE p.t > 20"#, &{
        format!("{{\"p\":{},\"t\":21}}", Value::text(payload))
    });
    gives(r#"SELECT payload.inner.x.y[1] AS v FROM "t""#, r#"{"v":1}"#);
    gives(r#"SELECT payload.inner.x.y[2].z AS v FROM "t""#, r#"{"v":2}"#);
    gives(
        r#"SELECT payload.inner AS i, i.x.y[-1].z AS v, i.no AS n FROM "t" WHERE i.x.y[1] = 1"#,
        &{ r#"{"i":"{\"x\":{\"y\":[1,\"{\\\"z\\\":2}\"]}}","v":2,"n":null}"#.to_string() },
    );
    gives(
        r#"SELECT payload.array[2..3] AS v, payload.array[-1] AS l FROM "t""#,
        r#"{"v":[2,3],"l":3}"#,
    );
    gives(r#"SELECT payload.array AS a, a[2..3] AS v FROM "t""#, r#"{"a":"[1,2,3]","v":[2,3]}"#);
    gives(r#"FOREACH payload.list AS i DO i.a AS a FROM "t""#, r#"{"a":1} {"a":2}"#);
    gives(r#"FOREACH [payload.inner] AS i DO i.x.y[1] AS a FROM "t""#, r#"{"a":1}"#);
    gives(r#"SELECT concat('{"a":', '5}').a AS v FROM "t""#, r#"{"v":5}"#);
    gives(
        r#"SELECT payload.plain.x AS a, payload.text.x AS b, payload.text[1] AS c, topic.x AS d
           FROM "t""#,
        r#"{"a":null,"b":null,"c":null,"d":null}"#,
    );
    // What is looked into is paid for.
    let plan =
        RulePlan::parse(r#"SELECT topic AS t, t.x AS x, payload.s.x AS y FROM "t""#).unwrap();
    let large = format!("{{\"s\":\"[{}1]\"}}", "1,".repeat(20_000));
    let mut budget = Budget { steps: 10_000, ..Budget::default() };
    let ran = plan.run(&seen(&large), &mut budget, &mut Vec::new());
    assert_eq!(ran, Err(RunError::Steps));
}

#[test]
fn what_is_no_json_has_no_fields() {
    for payload in
        ["", "{", "{\"n\":1}x", "{\"n\":01}", "{'n':1}", "[1,]", "\u{0}", "{\"n\":\"\n\"}"]
    {
        let got = rows(
            r#"SELECT payload.n AS n, payload AS p FROM "t" WHERE payload.n IS NULL"#,
            payload,
        );
        let text = Value::text(payload);
        assert_eq!(got, Ok(format!(r#"{{"n":null,"p":{text}}}"#)));
    }
    let deep = "[".repeat(65) + &"]".repeat(65);
    assert_eq!(rows(r#"SELECT payload[1] AS v FROM "t""#, &deep).unwrap(), r#"{"v":null}"#);
    let deep = "[".repeat(64) + &"]".repeat(64);
    assert!(rows(r#"SELECT payload[1] AS v FROM "t""#, &deep).unwrap().starts_with(r#"{"v":[[["#));
}

#[test]
fn json_texts_are_unescaped() {
    let payload = r#"{"a\u0041":"x\n\"\\\/\ud83d\ude00\ud83d!\u00e9","b":"\t"}"#;
    let got = rows(r#"SELECT payload.aA AS v, payload.b AS b FROM "t""#, payload).unwrap();
    assert_eq!(got, "{\"v\":\"x\\n\\\"\\\\/\u{1f600}\u{fffd}!\u{e9}\",\"b\":\"\\t\"}");
}

#[test]
fn numbers_stay_what_they_are() {
    let payload = r#"[9223372036854775807, 9223372036854775808, -0, 1e3, 1.0, -1.5e-9, 1e400]"#;
    let got = rows(r#"SELECT json_decode(payload) AS v FROM "t""#, payload).unwrap();
    assert_eq!(
        got,
        r#"{"v":[9223372036854775807,9223372036854775808.0,0,1000.0,1.0,-1.5e-9,null]}"#
    );
}

#[test]
fn arithmetic() {
    is("1 + 2 * 3 - 4", "3");
    is("(1 + 2) * 3", "9");
    is("7 / 2", "3.5");
    is("4 / 2", "2.0");
    is("7 div 2", "3");
    is("-7 div 2", "-3");
    is("7 MOD 4", "3");
    is("-7 mod 4", "-3");
    is("7 mod (2 + 2)", "3");
    is("payload.mod", "null");
    is("1.5 + 1", "2.5");
    is("-payload.n", "-7");
    is("- -7", "7");
    is("2 - -3", "5");
    is("'a' + 'b'", r#""ab""#);
    is("'a' || 1 || true || null || [1]", r#""a1truenull[1]""#);
    is("2 * 3 || 'x'", r#""6x""#);
    fails("1 / 0", "/: division by zero");
    fails("1 div 0", "div: division by zero");
    fails("1 mod 0", "mod: division by zero");
    fails("1.5 mod 2", "mod: is for two integers");
    fails("9223372036854775807 + 1", "+: overflow");
    fails("-9223372036854775807 - 2", "-: overflow");
    fails("(-9223372036854775807 - 1) div -1", "div: overflow");
    fails("(-9223372036854775807 - 1) mod -1", "mod: overflow");
    fails("1e308 * 10", "*: overflow");
    fails("payload.no + 1", "+: null and an integer do not go together");
    is("'a' + 1", r#""a1""#);
    is("1.50 + 'a'", r#""1.5a""#);
    fails("payload.s * 2", "*: text and an integer do not go together");
    fails("-payload.s", "-: an integer and text do not go together");
}

#[test]
fn comparison() {
    for truth in [
        "1 = 1.0",
        "1 < 1.5",
        "'b' > 'a'",
        "'10' > 9",
        "9 < '10'",
        "'a' = 'a'",
        "1 != 2",
        "1 <> 2",
        "'x' <> 1",
        "null = null",
        "payload.no = null",
        "payload.none IS NULL",
        "payload.no is null",
        "payload.n IS NOT NULL",
        "not 1 = 2",
        "payload.yes",
        "payload.yes = true",
        "'true' = true",
        "payload.yes IS TRUE",
        "payload.n IS NOT FALSE",
        "1 = 1 AND 2 = 2 OR 1 = 2",
        "1 = 2 AND 1 = 2 OR 1 = 1",
        "1 = 1 OR 1 / 0 = 1",
        "NOT (1 = 2 AND 1 / 0 = 1)",
        "2 BETWEEN 1 AND 3",
        "2 between 2 and 2 and 1 = 1",
        "5 NOT BETWEEN 1 AND 3",
        "2 IN (1, 2)",
        "'2' in (1, 2)",
        "3 NOT IN (1, 2)",
        "null IN (null)",
        "[1, 2] = [1, 2]",
        "[1, 2] <> [1, 3]",
        "map('{\"a\":1,\"b\":2}') = map('{\"b\":2,\"a\":1}')",
        "map('{\"a\":1,\"b\":2,\"c\":3}') = map('{\"a\":1,\"c\":3,\"b\":2}')",
        "map('{\"a\":1,\"a\":2}') = map('{\"a\":1,\"a\":2}')",
        "map('{\"a\":1,\"a\":1}') <> map('{\"a\":1,\"b\":2}')",
        "map('{\"a\":1,\"b\":2}') <> map('{\"b\":2,\"a\":2}')",
        "topic =~ 'car/+/speed'",
        "not topic =~ 'car/+'",
        "topic =~ '#'",
        "not topic =~ 'car/#/speed'",
        "not topic_matches(topic, '#/speed')",
        "not contains_topic_match(['#/speed'], topic)",
        "qos=1 and retain=false",
        "topic = \"car/7/speed\"",
        "1 == 1",
        "topic =~ 'car' || '/+/speed'",
        "flags.retain = false",
    ] {
        is(truth, "true");
    }
    for untruth in [
        "payload.no = 1",
        "payload.no > 1",
        "payload.no < 1",
        "null < 1",
        "null <= null",
        "'a' < 1",
        "true > 1",
        "[1] < [2]",
        "payload.n AND payload.yes",
        "NOT payload.yes",
        "payload.no BETWEEN 1 AND 2",
        "1 IN (2, 'one')",
        "'a' =~ 1",
        "'1x' = 1",
    ] {
        is(untruth, "false");
    }
    // What is not there is not unequal either, but it is no number.
    is("payload.no != 1", "false");
    is("payload.none != 1", "true");
    is("payload.no = payload.none", "false");
    is("payload.n <> null", "true");
    is("null <> payload.n", "true");
    is("payload.none = null", "true");
}

#[test]
fn like_patterns() {
    for (text, pattern, like) in [
        ("abc", "abc", true),
        ("abc", "a%", true),
        ("abc", "%c", true),
        ("abc", "%b%", true),
        ("abc", "a_c", true),
        ("abc", "a_", false),
        ("abc", "", false),
        ("", "%", true),
        ("a%c", r"a\%c", true),
        ("abc", r"a\%c", false),
        ("aXbXc", "a%b%c", true),
        ("aaab", "%aab", true),
        ("mississippi", "m%iss%ippi", true),
        ("abc", "%%%", true),
        ("\u{e4}b", "_b", true),
        ("abc", "A%", false),
        ("ab", "%a", false),
    ] {
        is(&format!("'{text}' LIKE '{pattern}'"), if like { "true" } else { "false" });
        is(&format!("'{text}' not like '{pattern}'"), if like { "false" } else { "true" });
    }
    is("'50%' LIKE '%!%' ESCAPE '!'", "true");
    is("payload.n LIKE '%'", "false");
}

#[test]
fn case_takes_the_first_that_holds() {
    is("CASE WHEN payload.n < 0 THEN 0 WHEN payload.n > 5 THEN 5 ELSE payload.n END", "5");
    is("case payload.s when 'eins' then 1 when 'sieben' then 7 end", "7");
    is("CASE 1 WHEN 2 THEN 3 END", "null");
    is("CASE WHEN 1 = 1 THEN 1 ELSE 1 / 0 END + 1", "2");
}

#[test]
fn where_may_say_an_alias() {
    gives(r#"SELECT payload.t AS t FROM "t" WHERE t > 21"#, r#"{"t":21.5}"#);
    gives(r#"SELECT payload.t AS t FROM "t" WHERE t > 22"#, "");
    gives(
        r#"SELECT payload.t * 2 AS a, a + 1 AS b FROM "t" WHERE b = 44"#,
        r#"{"a":43.0,"b":44.0}"#,
    );
    gives(
        r#"SELECT payload.a AS out.x FROM "t" WHERE out.x.b[1].c = 1"#,
        r#"{"out":{"x":{"b":[{"c":1},{"c":"two"}]}}}"#,
    );
    // What is not computed does not fail: columns come after WHERE that does not need them.
    gives(r#"SELECT payload.t + 'x' AS t FROM "t" WHERE payload.t > 22"#, "");
    // An alias hides a field of its name, but not the rest of the field.
    gives(
        r#"SELECT upper(topic) AS topic FROM "t" WHERE topic = 'CAR/7/SPEED'"#,
        r#"{"topic":"CAR/7/SPEED"}"#,
    );
    gives(
        r#"SELECT 1 AS payload.x, payload.n AS n FROM "t" WHERE payload.x = 1 AND payload.n = 7"#,
        r#"{"payload":{"x":1},"n":7}"#,
    );
}

#[test]
fn foreach_makes_a_row_of_each_element() {
    gives(
        r#"FOREACH payload.sensors AS s DO clientid, upper(s.name) AS name, s.idx INCASE s.idx >= 1
           FROM "car/#" WHERE qos = 1"#,
        concat!(
            r#"{"clientid":"c1","name":"T1","s":{"idx":1}} "#,
            r#"{"clientid":"c1","name":"T2","s":{"idx":2}}"#
        ),
    );
    gives(
        r#"FOREACH payload.sensors DO item.name AS name FROM "t""#,
        r#"{"name":"t0"} {"name":"t1"} {"name":"t2"}"#,
    );
    gives(r#"foreach payload.sensors do item.idx as i incase item.idx = 2 from "t""#, r#"{"i":2}"#);
    gives(r#"FOREACH [1, 'a'] AS x DO x FROM "t""#, r#"{"x":1} {"x":"a"}"#);
    gives(
        r#"FOREACH split(topic, '/') AS x DO x, length([x]) AS l FROM "t""#,
        r#"{"x":"car","l":1} {"x":"7","l":1} {"x":"speed","l":1}"#,
    );
    gives(
        r#"FOREACH payload.sensors[2..3] AS s DO s.idx AS i, s AS whole.it FROM "t""#,
        concat!(
            r#"{"i":1,"whole":{"it":{"idx":1,"name":"t1"}}} "#,
            r#"{"i":2,"whole":{"it":{"idx":2,"name":"t2"}}}"#
        ),
    );
    gives(r#"FOREACH payload.no FROM "t""#, "");
    gives(r#"FOREACH payload.none FROM "t""#, "");
    gives(r#"FOREACH payload.sensors FROM "t" WHERE qos = 2"#, "");
    gives(r#"FOREACH payload.t FROM "t""#, "");
    assert_eq!(rows(r#"FOREACH payload FROM "t""#, "no JSON"), Ok(String::new()));
}

#[test]
fn foreach_without_do_keeps_the_message_and_the_element() {
    let rows = rows(r#"FOREACH payload.list AS s FROM "t""#, r#"{"list":[{"a":1},2]}"#).unwrap();
    for part in [
        r#""clientid":"c1""#,
        r#""topic":"car/7/speed""#,
        r#""payload":"{\"list\":[{\"a\":1},2]}""#,
        r#""s":{"a":1}} {"#,
        r#""s":2}"#,
    ] {
        assert!(rows.contains(part), "{part}: {rows}");
    }
    let plan = RulePlan::parse(r#"FOREACH payload.list FROM "t""#).unwrap();
    assert!(plan.reads().publisher && plan.reads().properties && plan.reads().payload);
}

#[test]
fn values_before_the_array_of_foreach_have_names() {
    let payload = r#"{"page":2,"box":{"list":[{"a":1},{"a":2},{"b":3}]}}"#;
    let gives = |rule: &str, expected: &str| {
        assert_eq!(rows(rule, payload).as_deref(), Ok(expected), "{rule}");
    };
    gives(
        r#"FOREACH json_decode(payload) AS p, p.box AS b, b.list AS e DO e.a AS a, p.page AS page
           INCASE is_not_null(e.a) FROM "t" WHERE p.page = '2'"#,
        r#"{"a":1,"page":2} {"a":2,"page":2}"#,
    );
    gives(r#"FOREACH payload.box AS b, b.list AS e DO e.a AS a FROM "t" WHERE b.no = 1"#, "");
    gives(r#"FOREACH payload.page AS n, [n, n + 1] DO item AS i FROM "t""#, r#"{"i":2} {"i":3}"#);
}

/// A column below a field adds to the field; other parts of the field stay.
#[test]
fn columns_go_into_the_payload_that_is_there() {
    let payload = r#"{"t":21,"in":{"a":[1,{"b":2}],"text":"{\"c\":3}"}}"#;
    let gives = |rule: &str, expected: &str| {
        assert_eq!(rows(rule, payload).as_deref(), Ok(expected), "{rule}");
    };
    gives(
        r#"SELECT payload, 1 AS payload.site FROM "t""#,
        r#"{"payload":{"t":21,"in":{"a":[1,{"b":2}],"text":"{\"c\":3}"},"site":1}}"#,
    );
    gives(
        r#"SELECT payload, 5 AS payload.in.a[2].b, 4 AS payload.in.text.d FROM "t""#,
        r#"{"payload":{"t":21,"in":{"a":[1,{"b":5}],"text":{"c":3,"d":4}}}}"#,
    );
    gives(r#"SELECT 1 AS payload.site FROM "t""#, r#"{"payload":{"site":1}}"#);
    gives(
        r#"SELECT payload.in.a, 0 AS payload.in.a[-1] FROM "t""#,
        r#"{"payload":{"in":{"a":[1,0]}}}"#,
    );
    gives(r#"SELECT [2] AS c, 3 AS c[-0], 1 AS c[0], 9 AS c[7] FROM "t""#, r#"{"c":[1,2,3]}"#);
    gives(
        r#"SELECT 1 AS c[-0].x, 2 AS c[-0].x, 3 AS d[5] FROM "t""#,
        r#"{"c":[{"x":1},{"x":2}],"d":[3]}"#,
    );
    let all = rows(r#"SELECT *, 1 AS payload.site FROM "t""#, r#"{"t":21,"h":40}"#).unwrap();
    assert!(all.contains(r#""payload":{"t":21,"h":40,"site":1}"#), "{all}");
    let no_json = rows(r#"SELECT *, 1 AS payload.site FROM "t""#, "21 degrees");
    assert_eq!(no_json, Err(RunError::PayloadNotJson));
}
#[test]
fn words_have_any_case_and_comments_are_skipped() {
    gives("select -- one\n payload.n As N /* two */ From \"t\" wHERE N = 7 ; ", r#"{"N":7}"#);
}

#[test]
fn words_that_sql_knows_are_names_here() {
    let payload = r#"{"date":1,"time":2,"interval":3,"from":4,"order":5,"_x":6,"div":7}"#;
    let rule = r#"SELECT payload.date AS date, payload.time AS time, payload.interval AS interval,
        payload.from AS from, payload.order, payload._x, timestamp, payload.div AS div FROM "t""#;
    let refused = RulePlan::parse(rule).unwrap_err();
    assert_eq!((refused.line, refused.column), (2, 25), "{refused}");
    let rule = rule.replace("AS from", "AS 'from'");
    assert_eq!(
        rows(&rule, payload).unwrap(),
        concat!(
            r#"{"date":1,"time":2,"interval":3,"from":4,"payload":{"order":5,"_x":6},"#,
            r#""timestamp":1795334400123,"div":7}"#
        )
    );
}

#[test]
fn properties_are_a_map() {
    let mut properties = mqtt::PropertiesBuf::default();
    properties
        .push(mqtt::Property::ContentType("json"))
        .push(mqtt::Property::UserProperty("k", "1"));
    properties.push(mqtt::Property::UserProperty("k", "2"));
    properties.push(mqtt::Property::CorrelationData(&[0xff, 1]));
    let rule = r#"SELECT pub_props.'Content-Type' AS c, pub_props.'User-Property'.k AS k,
        pub_props.'User-Property-Pairs'[1].value AS first, pub_props.'Correlation-Data' AS d
        FROM "t""#;
    let plan = RulePlan::parse(rule).unwrap();
    let seen = RuleInput { properties: properties.as_properties(), ..seen("") };
    let mut rows = Vec::new();
    plan.run(&seen, &mut Budget::default(), &mut rows).unwrap();
    assert_eq!(
        rows[0].to_string(),
        "{\"c\":\"json\",\"k\":\"2\",\"first\":\"1\",\"d\":\"\u{fffd}\\u0001\"}"
    );
    assert_eq!(rows[0].get("d"), Some(&Value::Bytes(vec![0xff, 1].into())));
    assert!(plan.reads().properties && !plan.reads().payload);
}

#[test]
fn an_event_without_a_message_has_no_fields_of_one() {
    for (rule, name) in [
        (r#"SELECT payload FROM "$events/client/connected""#, "payload"),
        (r#"SELECT payload.t AS t FROM "$events/client/connected""#, "payload"),
        (r#"SELECT clientid FROM "$events/client/connected" WHERE QOS = 1"#, "QOS"),
        (r#"SELECT flags FROM "$events/session/subscribed", "$events/client/connack""#, "flags"),
        (r#"SELECT nothing FROM "$events/client/connected""#, "nothing"),
    ] {
        let refused = RulePlan::parse(rule).expect_err(rule);
        assert_eq!(refused.message, format!("no event of this rule has {name}"));
        assert!(refused.hint.contains("clientid, event, metadata, node"), "{refused}");
        assert!(!refused.hint.contains("payload") && !refused.hint.contains("retain"), "{refused}");
    }
    for rule in [
        r#"SELECT topic, QoS FROM "$events/session/subscribed""#,
        r#"SELECT payload FROM "$events/message/dropped""#,
        r#"SELECT payload, peername FROM "$events/client/connected", "t""#,
        r#"SELECT topic FROM "$events/client/connected", "$events/session/unsubscribed""#,
    ] {
        RulePlan::parse(rule).expect(rule);
    }
}

#[test]
fn events_have_fields_of_their_own() {
    let rule = r#"SELECT reason, clientid, namespace, peername FROM "$events/client_disconnected"
           WHERE reason = 'kicked'"#;
    let plan = RulePlan::parse(rule).unwrap();
    let event = &rules::EVENTS[plan.events().next().expect("it is about one")];
    assert_eq!((event.name, event.label), ("client/disconnected", "client.disconnected"));
    let more = [("reason", Value::text("kicked"))];
    let seen =
        RuleInput { event: event.label, has_message: false, extra_fields: &more, ..seen("") };
    let run = |rule: &str| {
        let (plan, mut rows) = (RulePlan::parse(rule).unwrap(), Vec::new());
        plan.run(&seen, &mut Budget::default(), &mut rows).unwrap();
        rows[0].to_string()
    };
    let row = r#"{"reason":"kicked","clientid":"c1","namespace":null,"peername":null}"#;
    assert_eq!(run(rule), row);
    let all = run(r#"SELECT * FROM "$events/client/disconnected""#);
    assert!(all.contains(r#""event":"client.disconnected""#), "{all}");
    assert!(all.contains(r#""reason":"kicked""#) && !all.contains("payload"), "{all}");
    let wrong = RulePlan::parse(r#"SELECT raeson FROM "$events/client/disconnected""#).unwrap_err();
    assert!(wrong.to_string().contains("no event of this rule has raeson"), "{wrong}");
}

#[test]
fn a_plan_is_shared_by_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let plan = RulePlan::parse(r#"SELECT regex_match(topic, 'a') AS m FROM "a/+", "b""#).unwrap();
    shared(&plan);
    assert_eq!(plan.filters().collect::<Vec<_>>(), ["a/+", "b"]);
}

#[test]
fn what_no_rule_ever_sees_is_refused_where_it_stands() {
    for filter in ["$delayed/1/t", "$delayed/#", "$cache/c", "$share/g/t", "$events/no", "a/#/b"] {
        let rule = format!("SELECT * FROM \"t\", \"{filter}\"");
        let refused = RulePlan::parse(&rule).expect_err(filter);
        assert_eq!((refused.line, refused.column), (1, 20), "{refused}");
    }
}
