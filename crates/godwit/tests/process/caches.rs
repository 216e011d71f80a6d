//! `[[cache]]` with the real program: requests of clients on any shard, changes by SIGHUP, and
//! errors of wrong options.

use crate::broker::{TestBroker, run, scratch};
use crate::clients::{publish, subscriber};
use std::path::Path;

const CACHE: &str = r##"[[cache]]
name = "climate"
filters = ["rooms/+/climate", "halls/#"]
messages_max = 2
topics_max = 100
bytes_max = "1MiB"
age_s_max = 3600
"##;

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("the file can be written");
    path.display().to_string()
}

/// Sends a cache request with `payload` from a new connection, and returns the first `count`
/// responses in order.
fn ask(port: &str, topic: &str, payload: &str, count: &str) -> String {
    let answers = subscriber(port, &["-t", "answers", "-V", "5", "-q", "1", "-C", count]);
    let asked = ["-V", "5", "-t", topic, "-m", payload, "-q", "1"];
    publish(port, &[&asked[..], &["-D", "publish", "response-topic", "answers"]].concat());
    answers.finish().1
}

#[test]
fn every_shard_reads_what_clients_of_others_published() {
    let path = scratch("caches").join("godwit.toml");
    let file = write(&path, CACHE);
    for shards in ["1", "3"] {
        let broker = TestBroker::start(&["--config", &file, "--shards", shards]);
        let port = broker.port();
        // Each comes under another client id, so from some shard.
        for at in 0..8 {
            let (topic, payload) = (format!("rooms/{at}/climate"), format!("{at}"));
            publish(&port, &["-t", &topic, "-m", "old", "-q", "1"]);
            publish(&port, &["-t", &topic, "-m", "older", "-q", "1"]);
            publish(&port, &["-t", &topic, "-m", &payload, "-q", "1"]);
        }
        publish(&port, &["-t", "rooms/0/light", "-m", "no cache's"]);
        let all: String = (0..8).map(|at| format!("older\n{at}\n")).collect();
        for _ in 0..4 {
            let every = r##"{"topic":"#"}"##;
            assert_eq!(ask(&port, "$cache/climate", every, "16"), all);
            assert_eq!(ask(&port, "$cache/climate/rooms/7/climate", "", "2"), "older\n7\n");
        }
    }
}

#[test]
fn a_reload_keeps_what_a_cache_has() {
    let path = scratch("caches-live").join("godwit.toml");
    let file = write(&path, CACHE);
    let mut broker = TestBroker::start(&["--config", &file, "--shards", "2"]);
    let port = broker.port();
    for payload in ["1", "2"] {
        publish(&port, &["-t", "halls/a", "-m", payload, "-q", "1"]);
        publish(&port, &["-t", "rooms/b/climate", "-m", payload, "-q", "1"]);
    }
    let every = r##"{"topic":"#"}"##;
    let mut reload = |text: &str| {
        write(&path, text);
        broker.program.signal("HUP");
        broker.program.wait_for("options read again")
    };
    let more = CACHE.replace("= 2", "= 3");
    assert!(reload(&more).contains("cache"));
    publish(&port, &["-t", "halls/a", "-m", "3", "-q", "1"]);
    assert_eq!(ask(&port, "$cache/climate", every, "5"), "1\n2\n3\n1\n2\n");
    reload(&CACHE.replace("= 2", "= 1").replace(", \"halls/#\"", ""));
    assert_eq!(ask(&port, "$cache/climate", every, "1"), "2\n");
    reload("");
    let answers = subscriber(&port, &["-t", "answers", "-V", "5", "-C", "1", "-F", "%P"]);
    let asked = ["pub", "-p", &port, "-V", "5", "-t", "$cache/climate", "-m", every, "-q", "1"];
    let to = ["-D", "publish", "response-topic", "answers"];
    let (code, _, said) = run(&[&asked[..], &to].concat());
    assert!(code == Some(0x90) && said.contains("Topic Name invalid"), "{code:?} {said}");
    assert!(answers.finish().1.contains("cache_error:no such cache"));
}

#[test]
fn what_is_wrong_with_a_cache_is_told_with_its_place() {
    let path = scratch("caches-wrong").join("godwit.toml");
    let twice = format!("{CACHE}\n{CACHE}");
    for (text, place, wanted) in [
        (twice, "godwit.toml:9", "a cache needs a name of its own"),
        (CACHE.replace("\"climate\"", "\"a b\""), "godwit.toml:1", "a cache needs a name"),
        (CACHE.replace("halls/#", "halls/#/x"), "godwit.toml:3", "topic filter"),
        (CACHE.replace("halls/#", "$SYS/#"), "godwit.toml:1", "topic filter that it can have"),
        (CACHE.replace("filters = [", "# ["), "godwit.toml:1", "a cache needs filters"),
        (CACHE.replace("= 2", "= 0"), "godwit.toml:4", "out of range, use 1 to 1000"),
        (CACHE.replace("= 2", "= 1001"), "godwit.toml:4", "out of range, use 1 to 1000"),
        (CACHE.replace("= 100", "= 0"), "godwit.toml:5", "topics_max"),
        (CACHE.replace("1MiB", "0"), "godwit.toml:6", "bytes_max"),
        (CACHE.replace("3600", "\"soon\""), "godwit.toml:7", "age_s_max"),
        (CACHE.replace("age_s_max", "age_max_s"), "godwit.toml:7", "age_max_s"),
    ] {
        let file = write(&path, &text);
        let (code, _, said) = run(&["check", "--config", &file]);
        assert_eq!(code, Some(2), "{text}: {said}");
        assert!(said.contains(place) && said.contains(wanted), "{text}: {said}");
    }
}
