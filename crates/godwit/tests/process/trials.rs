//! `godwit rules test`: rules tried on the command line.

use crate::broker::{run, scratch};

fn test(arguments: &[&str]) -> (Option<i32>, String, String) {
    run(&[&["rules", "test"], arguments].concat())
}

#[test]
fn rows_come_out_as_json() {
    let all = [
        "--sql",
        "SELECT payload.t AS t, qos, retain, clientid, username, peerhost, timestamp AS at, \
         pub_props.'User-Property'.k AS k FROM \"car/#\" WHERE topic = 'car/7'",
        "--topic",
        "car/7",
        "--payload",
        "{\"t\":21.5}",
        "--qos",
        "1",
        "--retain",
        "--clientid",
        "c",
        "--username",
        "eric",
        "--peerhost",
        "10.0.0.1",
        "--user-property",
        "k=v=w",
        "--timestamp",
        "12",
    ];
    let row = concat!(
        r#"{"t":21.5,"qos":1,"retain":true,"clientid":"c","username":"eric","#,
        r#""peerhost":"10.0.0.1","at":12,"k":"v=w"}"#
    );
    assert_eq!(test(&all), (Some(0), format!("{row}\n"), String::new()));
}

#[test]
fn what_does_not_come_out_says_why() {
    let sql = "SELECT 1 / qos AS v FROM \"a/+\" WHERE topic_level(2) = 'b'";
    let try_on = |topic: &str| test(&["--sql", sql, "--topic", topic]);
    let (code, out, why) = try_on("a/c");
    assert_eq!((code, &*out, &*why), (Some(0), "", "godwit: no row comes out\n"));
    let (code, out, why) = try_on("b");
    let said = "godwit: the topic b is not in FROM \"a/+\"\n";
    assert_eq!((code, &*out, &*why), (Some(0), "", said));
    let (code, out, why) = try_on("a/b");
    assert_eq!((code, &*out, &*why), (Some(1), "", "godwit: /: division by zero\n"));
}

#[test]
fn an_event_has_fields_of_its_own() {
    let sql = "SELECT clientid, reason, event FROM \"$events/client_disconnected\"";
    let json = "{\"reason\":\"kicked\",\"clientid\":\"c9\"}";
    let row = "{\"clientid\":\"c9\",\"reason\":\"kicked\",\"event\":\"client.disconnected\"}\n";
    for name in ["client_disconnected", "$events/client/disconnected"] {
        let ran = test(&["--sql", sql, "--event", name, "--json", json]);
        assert_eq!(ran, (Some(0), row.to_string(), String::new()));
    }
    let (_, _, why) = test(&["--sql", sql, "--event", "bridge/connected"]);
    let said = "godwit: $events/bridge/connected is not in FROM";
    assert_eq!(why, format!("{said} \"$events/client/disconnected\"\n"));
    let (code, _, why) = test(&["--sql", sql, "--event", "x"]);
    assert!(why.contains("--event x: no such event; there are client/connected"), "{why}");
    assert_eq!(code, Some(2));
}

#[test]
fn a_wrong_rule_is_shown_with_a_caret() {
    let (code, out, why) = test(&["--sql", "SELECT topic,\n  uper(topic) FROM \"t\""]);
    let shown = "godwit: 2:3: no function is named uper; there are upper\n      uper(topic) FROM \
                 \"t\"\n      ^\n";
    assert_eq!((code, &*out, &*why), (Some(2), "", shown));
}

#[test]
fn a_file_has_several_rules_and_every_wrong_one_is_told_with_its_line() {
    let folder = scratch("rules-file");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("all.rules");
    let name = file.to_str().unwrap();
    let good = "-- two rules\nSELECT 'a;b' AS v FROM \"t\";\nFOREACH [1, 2] DO item FROM \"t\"\n";
    std::fs::write(&file, good).unwrap();
    let rows = "{\"v\":\"a;b\"}\n{\"item\":1}\n{\"item\":2}\n";
    assert_eq!(test(&["--file", name]), (Some(0), rows.to_string(), String::new()));
    // As editors on some systems write it.
    std::fs::write(&file, format!("\u{feff}{}", good.replace('\n', "\r\n"))).unwrap();
    assert_eq!(test(&["--file", name]), (Some(0), rows.to_string(), String::new()));
    std::fs::write(&file, b"\xff\xfeS\0").unwrap();
    assert!(test(&["--file", name]).2.contains("UTF-16 text: save it as UTF-8"));
    std::fs::write(&file, "SELECT topic FROM \"t\"; SELECT a FROM \"t\";\n\nSELECT FROM \"t\"")
        .unwrap();
    let (code, _, why) = test(&["--file", name]);
    assert_eq!(code, Some(2));
    let told: Vec<&str> = why.lines().filter(|line| line.starts_with("godwit: ")).collect();
    assert!(told[0].starts_with(&format!("godwit: {name}:1:31: a message has no a;")), "{why}");
    assert!(told[1].starts_with(&format!("godwit: {name}:3:8: an expression is missing")), "{why}");
    assert_eq!(told.len(), 2, "{why}");
}

/// EMQX keeps the other fields of a payload when a rule adds a column below `payload`; rules
/// written for EMQX depend on that.
#[test]
fn a_rule_loses_nothing_of_the_payload() {
    for (sql, payload, rows) in [
        (
            "SELECT payload, 1 AS payload.site FROM \"t/#\"",
            r#"{"t":21,"h":40}"#,
            r#"{"payload":{"t":21,"h":40,"site":1}}"#,
        ),
        (
            "FOREACH payload AS p DO p.x AS x FROM \"t/#\"",
            r#"[{"x":1},{"x":2}]"#,
            "{\"x\":1}\n{\"x\":2}",
        ),
        ("SELECT is_null(payload.x) AS r FROM \"t/#\"", r#"{"x":null}"#, r#"{"r":false}"#),
        ("SELECT coalesce([payload.a, 42]) AS r FROM \"t/#\"", "{}", r#"{"r":42}"#),
        ("SELECT payload.x[2] FROM \"t/#\"", r#"{"x":[1,3]}"#, r#"{"payload":{"x":[3]}}"#),
        ("SELECT metadata FROM \"t/#\"", "{}", r#"{"metadata":{"rule_id":"test"}}"#),
    ] {
        let ran = test(&["--sql", sql, "--topic", "t/a", "--payload", payload]);
        assert_eq!(ran, (Some(0), format!("{rows}\n"), String::new()), "{sql}");
    }
    let all = ["--topic", "t/a", "--payload", r#"{"t":21,"s":[{"cmd":1}]}"#];
    let run = |sql: &str| test(&[&["--sql", sql][..], &all].concat()).1;
    let row = run("SELECT *, 1 AS payload.site FROM \"t/#\"");
    assert!(row.contains(r#""payload":{"t":21,"s":[{"cmd":1}],"site":1}"#), "{row}");
    let row = run("FOREACH payload.s FROM \"t/#\"");
    assert!(row.contains(r#""item":{"cmd":1}"#) && row.contains(r#""topic":"t/a""#), "{row}");
}

#[test]
fn what_is_wrong_with_the_command_line_is_told() {
    for (arguments, why) in [
        (&["--topic", "t"][..], "rules test needs --sql or --file"),
        (&["--sql", "x", "--qos", "3"], "--qos 3: use a number from 0 to 2"),
        (&["--sql", "x", "--topic", "a/#"], "--topic a/#: no topic name"),
        (&["--sql", "x", "--json", "[1]"], "--json is not a map in JSON"),
        (&["--sql", "x", "--user-property", "k"], "--user-property k: use NAME=VALUE"),
        (&["--file", "/no/such.rules"], "/no/such.rules: No such file"),
        (&["--sql", ";"], "the rule is missing"),
    ] {
        let (code, out, told) = test(arguments);
        assert_eq!((code, &*out), (Some(2), ""), "{arguments:?}");
        assert!(told.starts_with(&format!("godwit: {why}")), "{told}");
    }
    assert_eq!(run(&["rules"]).0, Some(2));
}
