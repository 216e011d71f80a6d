//! Sinks to a web server: the JSON of each event, lines in place of an array, and a server that is
//! down while the broker is killed.

use super::contract::{SinkRig, wait_until};
use super::own::{hook, server};
use super::places::row_of;
use crate::broker::{run, scratch};
use crate::clients;
use crate::ports::free_port;
use crate::stub::{TestWebServer, WebResponse};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

const PATIENCE: std::time::Duration = crate::broker::PATIENCE;

/// Connects a client of MQTT 3.1.1 that sends CONNECT and `more`, and reads `answers` bytes.
fn speak(port: &str, id: &str, more: &[u8], answers: usize) -> TcpStream {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut bytes = vec![0x10, 12 + id.len() as u8];
    bytes.extend_from_slice(b"\0\x04MQTT\x04\x02\0\x3c\0");
    bytes.push(id.len() as u8);
    bytes.extend_from_slice(id.as_bytes());
    bytes.extend_from_slice(more);
    stream.write_all(&bytes).expect("it reads");
    stream.read_exact(&mut vec![0; answers]).expect("it answers");
    stream
}

/// Causes one event of each kind.
fn cause_all(port: &str) {
    // To "t" and no more, and then gone without a word.
    let subscribes = b"\x82\x06\0\x01\0\x01t\0\xa2\x05\0\x02\0\x01t";
    drop(speak(port, "raw", subscribes, 4 + 5 + 4));
    let mut leaves = speak(port, "leaves", b"\xe0\0", 4);
    let _ = leaves.read(&mut [0]);
    let twins = [speak(port, "twin", b"", 4), speak(port, "twin", b"", 4)];
    drop(twins);
    let wrong = ["pub", "-p", port, "-i", "wrong", "-u", "ann", "-P", "no", "-t", "a", "-m", "x"];
    assert_ne!(run(&wrong).0, Some(0));
    run(&["pub", "-p", port, "-i", "denied", "-t", "secret", "-m", "x", "-q", "1"]);
    let full = ["sub", "-p", port, "-V", "5", "-i", "full", "-c", "-x", "-1", "-q", "1"];
    run(&[&full[..], &["-t", "q", "-W", "1"]].concat());
    clients::publish(port, &["-t", "q", "-m", "x", "-q", "1", "--repeat", "3"]);
    let reads = clients::subscriber(port, &["-i", "reads", "-t", "r/+", "-q", "1", "-C", "1"]);
    clients::publish(port, &["-t", "r/a", "-m", "{\"v\": 2.50}", "-q", "2"]);
    reads.finish();
}

/// Placeholder for an expected text with a port, which differs in each run.
const ANY: &str = "any text";

#[test]
fn every_event_reaches_a_web_server_with_what_is_known_of_it() {
    let (folder, hooks) = (scratch("sink-events-all"), free_port());
    let file = |name: &str| folder.join(name).display().to_string();
    let (users, rules) = (file("users"), file("rules.toml"));
    assert_eq!(run(&["passwd", "-b", &users, "ann", "annsecret"]).0, Some(0));
    let text = "[[rule]]\ndeny = \"publish\"\ntopic = [\"secret\"]\n\
                [[rule]]\nallow = \"all\"\ntopic = [\"#\", \"$SYS/#\"]\n";
    fs::write(&rules, text).expect("it is the test's own");
    let (_web, heard) = server(hooks, |_| WebResponse::Json(200, String::new()));
    let options = format!(
        "allow_anonymous = \"true\"\nauth.users = \"{users}\"\nacl.file = \"{rules}\"\n\
         queue.messages_max = 2\n{}",
        hook(hooks, "events = [\"*\"]")
    );
    let edge = SinkRig::start("sink-events-all-options", &options, &[]);
    edge.wait_for_value("state", |value| value == "1");
    cause_all(&edge.broker.port());
    let read = json!({
        "username": null, "topic": "r/a", "qos": 1, "retain": false, "payload": "{\"v\": 2.50}"
    });
    let expected = [
        ("client.connack", "wrong", json!({"reason": "Bad User Name or Password"})),
        (
            "client.connected",
            "raw",
            json!({
                "peername": ANY, "proto_ver": "3.1.1", "session_present": false, "keepalive": 60
            }),
        ),
        (
            "client.denied",
            "denied",
            json!({
                "username": null, "action": "publish", "topic": "secret", "count": 1
            }),
        ),
        ("client.disconnected", "raw", json!({"reason": "connection lost"})),
        ("client.disconnected", "leaves", json!({"reason": "Success"})),
        ("message.acked", "reads", read.clone()),
        ("message.delivered", "reads", read),
        ("message.dropped", "full", json!({"reason": "queue_full", "count": 1})),
        ("session.subscribed", "raw", json!({"topic": "t", "reason_code": 0})),
        ("session.takenover", "twin", json!({"peername": ANY})),
        ("session.terminated", "leaves", json!({"reason": "ended"})),
        ("session.unsubscribed", "raw", json!({"topic": "t", "reason_code": 0})),
    ];
    for (event, client_id, fields) in expected {
        let bodies = || -> Vec<Value> {
            let heard = heard.lock().expect("nobody panicked");
            let rows = heard.iter().flat_map(|body| -> Vec<Value> {
                serde_json::from_str(body).expect("an array of JSON")
            });
            let own = rows.filter(|row| row["event"] == event && row["clientid"] == client_id);
            own.map(|row| row["payload"].clone()).collect()
        };
        wait_until(&format!("{event} of {client_id}"), || !bodies().is_empty());
        let body = bodies().remove(0);
        assert_eq!((&body["event"], &body["clientid"]), (&json!(event), &json!(client_id)));
        assert!(body["timestamp"].as_u64() > Some(1_700_000_000_000), "{body}");
        for (name, wanted) in fields.as_object().expect("it is written so") {
            let is_right = match wanted == ANY {
                true => body[name].as_str().is_some_and(|text| text.starts_with("127.0.0.1:")),
                false => body.get(name) == Some(wanted),
            };
            assert!(is_right, "{name} of {event}: {body}");
        }
        assert_eq!(bodies().len(), 1, "{event} of {client_id} came more than once");
    }
}

/// Messages that the sink itself delivers cause no events of messages, and a sink receives only the
/// events in its option.
#[test]
fn what_becomes_of_messages_is_told_to_who_asks() {
    let port = free_port();
    let (_web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    let of = |events: &str| hook(port, &format!("filters = [\"#\"]\nevents = [{events}]"));
    let mut edge = SinkRig::start("sink-fates", &of("\"client.denied\""), &[]);
    edge.wait_for_value("state", |value| value == "1");
    let near = edge.broker.port();
    let told = |payload: &str| -> Vec<String> {
        let heard = heard.lock().expect("nobody panicked");
        let rows = heard.iter().flat_map(|body| -> Vec<Value> {
            serde_json::from_str(body).expect("an array of JSON")
        });
        let own = rows.filter(|row| row.to_string().contains(payload));
        own.map(|row| row["event"].as_str().expect("it has a name").to_string()).collect()
    };
    let say = |payload: &str| {
        let reads = clients::subscriber(&near, &["-t", "a", "-q", "1", "-C", "1"]);
        clients::publish(&near, &["-t", "a", "-m", payload, "-q", "1"]);
        reads.finish();
        clients::publish(&near, &["-t", "b", "-m", &format!("end of {payload}"), "-q", "1"]);
        wait_until("the last one came", || !told(&format!("end of {payload}")).is_empty());
        std::thread::sleep(std::time::Duration::from_millis(500));
        let mut told = told(&format!("\"{payload}\""));
        told.sort();
        told
    };
    assert_eq!(say("first"), ["message.publish"]);
    edge.reload(&of("\"message.acked\", \"message.delivered\""));
    assert_eq!(say("second"), ["message.acked", "message.delivered", "message.publish"]);
    edge.reload(&of("\"message.delivered\""));
    assert_eq!(say("third"), ["message.delivered", "message.publish"]);
    let file = edge.file.with_file_name("bytes");
    fs::write(&file, b"\xff\xfe").expect("it is the test's own");
    let wants = ["-t", "a", "-q", "1", "-C", "1", "-F", "%t"];
    let reads = clients::subscriber(&near, &wants);
    clients::publish(&near, &["-t", "a", "-f", &file.display().to_string(), "-q", "1"]);
    reads.finish();
    wait_until("bytes", || told("data:;base64,//4=").contains(&"message.delivered".to_string()));
}

/// A waiting event holds the whole message in memory, so the memory of waiting events is bounded:
/// of messages with 1 MiB of payload or of properties, 63 fit.
#[test]
fn events_of_large_messages_that_wait_have_a_bound_in_bytes() {
    let text = hook(free_port(), "events = [\"message.delivered\"]");
    // None is lost to a reader that is slow.
    let edge = SinkRig::start("sink-fates-large", &text, &["--set", "queue.bytes_max=256MiB"]);
    edge.wait_for_value("state", |value| value == "0");
    let file = edge.file.with_file_name("large");
    fs::write(&file, vec![b'x'; 1024 * 1024]).expect("it is the test's own");
    let (near, file) = (edge.broker.port(), file.display().to_string());
    let wants = ["-t", "a", "-V", "5", "-q", "1", "-C", "40", "-F", "%q", "-W", "60"];
    let value = "v".repeat(0xFFFF);
    let property = ["-D", "publish", "user-property", "k", &value];
    let message = ["-t", "a", "-V", "5", "-q", "1", "--repeat", "40"];
    for body in [&["-f", &file][..], &[&["-m", "x"][..], &property.repeat(16)[..]].concat()[..]] {
        let reads = clients::subscriber(&near, &wants);
        clients::publish(&near, &[&message, body].concat());
        assert_eq!(reads.finish().0, Some(0));
    }
    edge.wait_for_value("dropped/events_full", |value| value == "17");
}

#[test]
fn a_batch_can_be_lines_of_json() {
    let (port, asked) = (free_port(), Arc::new(Mutex::new(Vec::new())));
    let own = asked.clone();
    let more = "filters = [\"a\"]\nhttp.batch = \"lines\"\nbatch.wait_ms = 400";
    let text = hook(port, more).replace("batch.wait_ms = 100\n", "");
    let edge = SinkRig::start("sink-lines", &text, &[]);
    edge.wait_for_value("state", |value| value == "0");
    for payload in ["one", "two\nlines", "{\"v\": 3}"] {
        edge.publish(&["-t", "a", "-m", payload, "-q", "1"]);
    }
    let _web = TestWebServer::start(port, None, move |question| {
        own.lock().expect("nobody panicked").push(question.body.clone());
        WebResponse::Json(200, String::new())
    });
    edge.wait_for_value("out/messages", |value| value == "3");
    let bodies = asked.lock().expect("nobody panicked").clone();
    assert!(bodies.iter().any(|body| body.lines().count() > 1), "{bodies:?}");
    let all = bodies.concat();
    assert!(all.ends_with("}\n"), "{all}");
    let lines = all.lines().map(|line| serde_json::from_str(line).expect("each is JSON"));
    let payloads: Vec<String> = lines.map(|row: Value| row_of(&row).1).collect();
    assert_eq!(payloads, ["one", "two\nlines", "{\"v\":3}"]);
}

#[test]
fn what_waits_for_a_server_that_is_away_comes_through_a_kill() {
    let port = free_port();
    let data = scratch("sink-away-data").display().to_string();
    let start = || {
        let text = hook(port, "filters = [\"a\"]");
        let edge = SinkRig::start("sink-away", &text, &["--data", &data]);
        edge.wait_for_value("last_error", |value| !value.is_empty());
        edge
    };
    let edge = start();
    edge.count("a", "1", 0..150);
    edge.count("a", "2", 150..200);
    edge.broker.program.signal("KILL");
    drop(edge);
    let edge = start();
    edge.count("a", "1", 200..300);
    let (_web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    edge.wait_until_done();
    let heard = heard.lock().expect("nobody panicked");
    let rows = heard
        .iter()
        .flat_map(|body| -> Vec<Value> { serde_json::from_str(body).expect("an array of JSON") });
    let came: Vec<String> = rows.map(|row| row_of(&row).1).collect();
    let wanted: Vec<String> = (0..300).map(|number: u32| number.to_string()).collect();
    assert_eq!(came, wanted);
}
