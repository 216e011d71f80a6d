//! `[[rule]]` with the real program: rules from the file, by SIGHUP, and over events of bridges,
//! and errors with their position.

use crate::bridges::{BOTH, edge, servers};
use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit, run, scratch};
use crate::clients;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const HOT: &str = r#"[[rule]]
name = "hot"
sql = """SELECT payload.t AS t, nth(2, tokens(topic, '/')) AS room
         FROM "rooms/+/climate" WHERE payload.t > 30"""
publish.topic = "alarms/${room}"
publish.payload = '{"t": ${t}}'
publish.qos = "1"
publish.user_properties = { rule = "hot" }
"#;

pub(crate) fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("the file can be written");
    path.display().to_string()
}

fn publish(broker: &TestBroker, topic: &str, payload: &str) {
    let port = broker.port();
    let (code, _, said) = run(&["pub", "-p", &port, "-t", topic, "-q", "1", "-m", payload]);
    assert_eq!(code, Some(0), "{said}");
}

fn subscriber(broker: &TestBroker, count: &str) -> TestProgram {
    let arguments = ["sub", "-p", &broker.port(), "-t", "#", "-v", "-q", "1", "-C", count];
    let mut subscriber = TestProgram::start(godwit(&[&arguments[..], &["-d"]].concat()));
    subscriber.wait_for("SUBACK");
    subscriber
}

/// Waits until a value below `$SYS/broker/rule/` satisfies `is_right`, and returns the value.
fn wait_for_value(broker: &TestBroker, value: &str, is_right: impl Fn(u64) -> bool) -> u64 {
    let (port, topic) = (broker.port(), format!("$SYS/broker/rule/{value}"));
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, found, _) = run(&["sub", "-p", &port, "-t", &topic, "-C", "1", "-W", "2"]);
        if let Some(found) = found.trim().parse().ok().filter(|found| is_right(*found)) {
            return found;
        }
        assert!(Instant::now() < until, "{value} is {found:?}");
    }
}

#[test]
fn rules_come_from_the_file_and_change_live() {
    let path = scratch("rules").join("godwit.toml");
    let file = write(&path, HOT);
    let mut broker = TestBroker::start(&["--config", &file, "--set", "sys.interval_s=1"]);
    let all = subscriber(&broker, "3");
    publish(&broker, "rooms/kitchen/climate", r#"{"t": 31}"#);
    publish(&broker, "rooms/kitchen/climate", r#"{"t": 30}"#);
    let (_, said) = all.finish();
    assert!(said.contains(r#"alarms/kitchen {"t": 31}"#), "{said}");

    write(
        &path,
        &HOT.replace("> 30", "> 50").replace("name = \"hot\"", "name = \"hot\"\nprint = true"),
    );
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    publish(&broker, "rooms/hall/climate", r#"{"t": 49}"#);
    publish(&broker, "rooms/hall/climate", r#"{"t": 51}"#);
    let line = broker.program.wait_for("a row");
    assert!(line.contains("rule=hot") && line.contains("51"), "{line}");
    // What it counted goes on.
    wait_for_value(&broker, "hot/passed", |value| value == 2);
    // A file that is wrong changes nothing.
    write(&path, &HOT.replace("WHERE", "WERE"));
    broker.program.signal("HUP");
    let line = broker.program.wait_for("godwit.toml");
    assert!(line.contains("godwit.toml:1"), "{line}");
    let all = subscriber(&broker, "2");
    publish(&broker, "rooms/hall/climate", r#"{"t": 52}"#);
    assert!(all.finish().1.contains("alarms/hall"));
}

/// `godwit check`, the start and a reload report the same error text, and a reload with an error
/// changes no rule.
#[test]
fn a_rule_that_is_wrong_is_told_with_its_place() {
    let path = scratch("rules-wrong").join("godwit.toml");
    let mut broker = TestBroker::start(&["--config", &write(&path, HOT)]);
    for (from, to, wanted) in [
        ("payload.t > 30", "payload.t > ", "line 2:"),
        ("WHERE", "GROUP BY room HAVING", "a message has no room"),
        (
            "> 30\"\"\"",
            "> 30 GROUP BY COUNTWINDOW(2)\"\"\"\ndrop = true",
            "a window is over long after",
        ),
        ("nth(2", "nht(2", "line 1:24: no function is named nht"),
        ("alarms/${room}", "alarms/${room", "without its }"),
        ("publish.qos", "publish.qso", "publish.qos"),
        ("name = \"hot\"", "name = \"h t\"", "needs a name"),
        ("rooms/+/climate", "$events/client/conected", "is not an event; client/connected, "),
    ] {
        let file = write(&path, &HOT.replace(from, to));
        let (code, _, said) = run(&["check", "--config", &file]);
        assert_eq!(code, Some(2), "{from} {to}: {said}");
        assert!(said.contains("godwit.toml:") && said.contains(wanted), "{to}: {said}");
        assert_eq!(run(&["--memory", "--config", &file]), (code, String::new(), said.clone()));
        broker.program.signal("HUP");
        for wrong in said.trim_start_matches("godwit: ").split("\ngodwit: ") {
            let line = broker.program.wait_for("not reloaded: ");
            let (_, told) = line.split_once("not reloaded: ").expect("it has been found");
            // A line of the log is one line.
            assert_eq!(told.replace("\\n", "\n").trim_end(), wrong.trim_end(), "{line}");
        }
    }
    let all = subscriber(&broker, "2");
    publish(&broker, "rooms/hall/climate", r#"{"t": 52}"#);
    assert!(all.finish().1.contains("alarms/hall"), "the rule that was there is there");
}

const COSTLY: &str = r#"[[rule]]
name = "costly"
sql = """SELECT topic FROM "a" WHERE pad(topic, 300000) LIKE '%y'"""
publish.topic = "never"
"#;

#[test]
fn the_time_that_a_rule_takes_is_told() {
    let file = write(&scratch("rules-time").join("godwit.toml"), COSTLY);
    let broker = TestBroker::start(&["--config", &file, "--set", "sys.interval_s=1"]);
    let begun = Instant::now();
    publish_often(&broker, "a", "x", "64");
    let took = begun.elapsed();
    wait_for_value(&broker, "costly/matched", |value| value == 64);
    // To look for something in 300,000 bytes takes more than a microsecond.
    let told = wait_for_value(&broker, "costly/time_us", |value| value > 64);
    // Each that was timed stands for sixteen.
    assert!(u128::from(told) <= took.as_micros() * 16, "{told} us in {took:?}");
}

const COUNTED: &str = r#"[[rule]]
name = "counted"
sql = """SELECT topic, count(*) AS n, sum(payload.t) AS sum FROM "rooms/+/climate"
         GROUP BY topic, COUNTWINDOW(10)"""
publish.topic = "counted"
publish.payload = "${topic} ${n} ${sum}"
"#;

fn publish_often(broker: &TestBroker, topic: &str, payload: &str, times: &str) {
    clients::publish(&broker.port(), &["-t", topic, "-q", "1", "-m", payload, "--repeat", times]);
}

#[test]
fn windows_go_on_after_a_restart() {
    for (signal, late) in [("TERM", None), ("KILL", None), ("KILL", Some("2"))] {
        let folder = scratch("rules-windows");
        let file = write(&folder.join("godwit.toml"), COUNTED);
        let data = folder.join("data").display().to_string();
        let fixed = ["--config", &file, "--data", &data, "--shards", "2"];
        let mut broker = TestBroker::start(&fixed);
        publish_often(&broker, "rooms/kitchen/climate", r#"{"t": 1}"#, "6");
        publish_often(&broker, "rooms/hall/climate", r#"{"t": 1}"#, "3");
        if signal == "KILL" {
            // Windows are written once a second.
            thread::sleep(Duration::from_millis(2500));
        }
        if let Some(times) = late {
            publish_often(&broker, "rooms/kitchen/climate", r#"{"t": 1}"#, times);
        }
        broker.program.signal(signal);
        broker.program.exit_code();
        let broker = TestBroker::start(&fixed);
        let wants = ["-t", "counted", "-C", "2", "-W", "10"];
        let counted = clients::subscriber(&broker.port(), &wants);
        publish_often(&broker, "rooms/kitchen/climate", r#"{"t": 10}"#, "4");
        publish_often(&broker, "rooms/hall/climate", r#"{"t": 10}"#, "7");
        let said = counted.finish().1;
        let mut rows: Vec<&str> = said.lines().collect();
        rows.sort_unstable();
        assert_eq!(rows.len(), 2, "{signal} {late:?}: {said}");
        assert_eq!(rows[0], "rooms/hall/climate 10 73", "{signal} {late:?}");
        // Of the last second all may be there, or nothing.
        let wanted = ["rooms/kitchen/climate 10 46", "rooms/kitchen/climate 10 28"];
        assert!(wanted[..1 + usize::from(late.is_some())].contains(&rows[1]), "{said}");
    }
}

#[test]
fn rules_hear_of_bridges() {
    let mut far = TestBroker::start(&[]);
    let rule = "[[rule]]\nname = \"links\"\nprint = true\n\
                sql = 'SELECT event, bridge, server, reason FROM \"$events/bridge/connected\", \
                \"$events/bridge/disconnected\"'\n";
    let bridge = servers(far.address) + BOTH + rule;
    let (mut near, _) = edge("rules-bridges", &bridge, &[]);
    let line = near.program.wait_for("bridge.connected");
    let server = format!("tcp://{}", far.address);
    assert!(line.contains("rule=links") && line.contains(&server), "{line}");
    far.program.signal("KILL");
    far.program.exit_code();
    let line = near.program.wait_for("bridge.disconnected");
    assert!(line.contains("reason"), "{line}");
}
