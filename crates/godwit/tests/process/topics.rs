//! Options about topics with the real program: delayed messages through a kill, rewritten topics,
//! and exclusive, automatic and preset subscriptions.

use crate::broker::{TestBroker, run, scratch};
use crate::clients::subscriber;
use std::path::Path;
use std::time::{Duration, Instant};

const NAMES: &str = r#"[[rewrite]]
source = "old/#"
regex = '^old/(.+)$'
dest = "new/$1"

[[auto_subscribe]]
topic = "to/${clientid}"
qos = "1"
"#;

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("the file can be written");
    path.display().to_string()
}

fn publish(port: &str, topic: &str, payload: &str) -> (Option<i32>, String) {
    let whole = ["pub", "-V", "5", "-p", port, "-t", topic, "-q", "1", "-m", payload];
    let (code, _, said) = run(&whole);
    (code, said)
}

/// Reads waiting messages with the persistent session `kept`. Returns the exit code and stdout.
fn session(port: &str, more: &[&str]) -> (Option<i32>, String) {
    let fixed = ["sub", "-p", port, "-i", "kept", "-c", "-q", "1", "-t", "t"];
    let (code, said, _) = run(&[&fixed, more].concat());
    (code, said)
}

#[test]
fn a_delayed_message_comes_at_its_time_and_after_a_kill_too() {
    let folder = scratch("delayed").join("data");
    let folder = folder.to_str().expect("a path in UTF-8");
    let start = || TestBroker::start(&["--data", folder, "--shards", "2"]);
    let mut broker = start();
    let port = broker.port();
    assert_eq!(session(&port, &["-E"]).0, Some(0));
    let said = Instant::now();
    for (topic, payload) in [("$delayed/2/t", "soon"), ("$delayed/7/t", "late")] {
        assert_eq!(publish(&port, topic, payload), (Some(0), String::new()));
    }
    assert_eq!(session(&port, &["-C", "1", "-W", "10"]).1, "soon\n");
    let after = said.elapsed();
    assert!(after >= Duration::from_secs(2), "it came after {after:?}");
    broker.program.signal("KILL");
    broker.program.exit_code();
    let broker = start();
    let port = broker.port();
    let mut next = session(&port, &["-C", "1", "-W", "20"]).1;
    // Where the kill was sooner than what the broker made of its PUBACK it comes again.
    if next == "soon\n" {
        next = session(&port, &["-C", "1", "-W", "20"]).1;
    }
    assert_eq!(next, "late\n");
    let after = said.elapsed();
    assert!(after >= Duration::from_secs(7), "it came after {after:?}");
}

#[test]
fn what_is_due_while_nobody_runs_comes_at_the_start() {
    let folder = scratch("delayed-due").join("data");
    let folder = folder.to_str().expect("a path in UTF-8");
    let mut broker = TestBroker::start(&["--data", folder]);
    assert_eq!(session(&broker.port(), &["-E"]).0, Some(0));
    assert_eq!(publish(&broker.port(), "$delayed/1/t", "1").0, Some(0));
    broker.program.signal("KILL");
    broker.program.exit_code();
    std::thread::sleep(Duration::from_millis(1100));
    let broker = TestBroker::start(&["--data", folder]);
    assert_eq!(session(&broker.port(), &["-C", "1", "-W", "20"]).1, "1\n");
}

#[test]
fn what_is_no_delay_and_one_too_many_are_told() {
    let broker = TestBroker::start(&["--set", "delayed.messages_max=1"]);
    let port = broker.port();
    let (code, said) = publish(&port, "$delayed/0/t", "x");
    assert!(code == Some(0x90) && said.contains("Topic Name invalid"), "{code:?} {said}");
    assert_eq!(publish(&port, "$delayed/60/t", "x").0, Some(0));
    let (code, said) = publish(&port, "$delayed/60/t", "x");
    assert!(code == Some(0x97) && said.contains("Quota exceeded"), "{code:?} {said}");
}

#[test]
fn names_come_from_the_file_and_change_live() {
    let path = scratch("names").join("godwit.toml");
    let file = write(&path, NAMES);
    let mut broker = TestBroker::start(&["--config", &file]);
    let port = broker.port();
    let all = subscriber(&port, &["-t", "old/+", "-i", "me", "-v", "-C", "2"]);
    assert_eq!(publish(&port, "old/a", "1").0, Some(0));
    assert_eq!(publish(&port, "to/me", "2").0, Some(0));
    assert_eq!(all.finish(), (Some(0), "new/a 1\nto/me 2\n".into()));

    write(&path, &NAMES.replace("new/$1", "newer/$1").replace("to/", "for/"));
    broker.program.signal("HUP");
    let line = broker.program.wait_for("options read again");
    assert!(line.contains("rewrite") && line.contains("auto_subscribe"), "{line}");
    let all = subscriber(&port, &["-t", "newer/#", "-i", "me", "-v", "-C", "2"]);
    for topic in ["to/me", "old/a", "for/me"] {
        assert_eq!(publish(&port, topic, "3").0, Some(0));
    }
    assert_eq!(all.finish(), (Some(0), "newer/a 3\nfor/me 3\n".into()));

    // A file that is wrong changes nothing.
    write(&path, &NAMES.replace("(.+)", "(.+"));
    broker.program.signal("HUP");
    let line = broker.program.wait_for("godwit.toml");
    assert!(line.contains("godwit.toml:1") && line.contains("regex"), "{line}");
    let all = subscriber(&port, &["-t", "newer/#", "-v", "-C", "1"]);
    assert_eq!(publish(&port, "old/a", "4").0, Some(0));
    assert_eq!(all.finish().1, "newer/a 4\n");
}

#[test]
fn a_name_that_is_wrong_is_told_with_its_place() {
    let path = scratch("names-wrong").join("godwit.toml");
    for (from, to, place, wanted) in [
        ("old/#", "old/#/x", "godwit.toml:2", "topic filter"),
        ("(.+)$'", "(.+$'", "godwit.toml:1", "regex: "),
        ("new/$1", "new/$2", "godwit.toml:1", "it has 1"),
        ("new/$1", "new/#/$1", "godwit.toml:1", "becomes no topic"),
        ("dest = ", "destination = ", "godwit.toml:4", "destination"),
        ("dest = \"new/$1\"", "", "godwit.toml:1", "a rewrite needs"),
        ("${clientid}", "${client}", "godwit.toml:6", "unknown variable"),
        ("\"to/", "\"to/#/", "godwit.toml:6", "topic filter"),
        ("\"to/", "\"$exclusive/", "godwit.toml:6", "topic filter"),
        ("qos = \"1\"", "qos = \"3\"", "godwit.toml:8", "qos"),
    ] {
        let file = write(&path, &NAMES.replace(from, to));
        let (code, _, said) = run(&["check", "--config", &file]);
        assert_eq!(code, Some(2), "{from} {to}: {said}");
        assert!(said.contains(place) && said.contains(wanted), "{to}: {said}");
    }
}

#[test]
fn a_preset_session_keeps_messages_for_whoever_comes_for_the_first_time() {
    let scratch = scratch("preset");
    let (path, folder) = (scratch.join("godwit.toml"), scratch.join("data"));
    let folder = folder.to_str().expect("a path in UTF-8");
    let preset = "[[preset]]\nclient_id = \"kept\"\nsubscriptions = [\"t\"]\n";
    let file = write(&path, preset);
    let start = || TestBroker::start(&["--data", folder, "--config", &file, "--shards", "2"]);
    let mut broker = start();
    assert_eq!(publish(&broker.port(), "t", "1").0, Some(0));
    broker.program.signal("KILL");
    broker.program.exit_code();
    let mut broker = start();
    let port = broker.port();
    assert_eq!(publish(&port, "t", "2").0, Some(0));
    // One more by SIGHUP, and the one that is there keeps what it has.
    let more = format!("{preset}\n{}", preset.replace("kept", "more"));
    write(&path, &more);
    broker.program.signal("HUP");
    let line = broker.program.wait_for("options read again");
    assert!(line.contains("preset"), "{line}");
    assert_eq!(publish(&port, "t", "3").0, Some(0));
    assert_eq!(session(&port, &["-C", "3", "-W", "10"]), (Some(0), "1\n2\n3\n".into()));
    let more = ["sub", "-p", &port, "-i", "more", "-c", "-q", "1", "-t", "t", "-C", "1"];
    assert_eq!(run(&more).1, "3\n");
    // The same client twice, and filters that are none.
    for (text, place, wanted) in [
        (format!("{preset}\n{preset}"), "godwit.toml:5", "stands above"),
        (preset.replace("[\"t\"]", "[\"#/t\"]"), "godwit.toml:3", "topic filter"),
        (preset.replace("[\"t\"]", "[\"$share/g/t\"]"), "godwit.toml:1", "topic filter"),
        (preset.replace("kept", "$link/x"), "godwit.toml:1", "client_id"),
        (format!("{preset}expiry_s = 0\n"), "godwit.toml:1", "expiry_s"),
    ] {
        write(&path, &text);
        let (code, _, said) = run(&["check", "--config", &file]);
        assert!(code == Some(2) && said.contains(place) && said.contains(wanted), "{said}");
    }
}

#[test]
fn one_client_alone_has_an_exclusive_subscription() {
    for shards in ["1", "2"] {
        let allowed = ["--set", "subscription.exclusive_available=true", "--shards", shards];
        let broker = TestBroker::start(&allowed);
        let port = broker.port();
        let first = subscriber(&port, &["-t", "$exclusive/jobs", "-i", "first", "-C", "1"]);
        let second = ["sub", "-V", "5", "-p", &port, "-t", "$exclusive/jobs", "-W", "5"];
        let (code, _, said) = run(&second);
        assert!(code == Some(0x97) && said.contains("refused"), "{code:?} {said}");
        assert_eq!(publish(&port, "jobs", "1").0, Some(0));
        assert_eq!(first.finish(), (Some(0), "1\n".into()));
        let second = subscriber(&port, &["-t", "$exclusive/jobs", "-C", "1"]);
        assert_eq!(publish(&port, "jobs", "2").0, Some(0));
        assert_eq!(second.finish(), (Some(0), "2\n".into()));
    }
}
