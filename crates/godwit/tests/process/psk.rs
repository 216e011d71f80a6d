//! Listeners with pre-shared keys in place of certificates, tested with openssl and mosquitto's
//! clients. Only in a build with the feature `psk`.

use crate::broker::{TestProgram, run, scratch};
use crate::doors::{ListenerBroker, refs, s_client, s_client_bytes};
use crate::installed::installed;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const KEY: &str = "0badc0ffee0badc0ffee0badc0ffee01";
const OTHER: &str = "0badc0ffee0badc0ffee0badc0ffee02";

/// Creates a folder with a file of keys. Returns the folder and the file.
fn keys(name: &str) -> (PathBuf, PathBuf) {
    let folder = scratch(name);
    let file = folder.join("keys");
    std::fs::write(&file, format!("sensor-7:{KEY}\nurn:dev:8:{OTHER}\n")).expect("it can be");
    (folder, file)
}

fn set(file: &Path) -> String {
    format!("tls.psk_file={}", file.display())
}

fn serve(file: &Path, more: &[&str]) -> ListenerBroker {
    // Each shard notes one handshake that failed a second.
    let own = ["--listen", "tls://127.0.0.1:0", "--shards", "1", "--set", &set(file)];
    ListenerBroker::start(&[&own[..], more].concat())
}

/// Runs `openssl s_client` with a PSK identity and key. Returns whether CONNACK arrived, and the
/// output.
fn show(port: &str, identity: &str, key: &str, more: &[&str]) -> (bool, String) {
    s_client(port, &[&["-psk_identity", identity, "-psk", key][..], more].concat())
}

#[test]
fn who_has_a_key_gets_in_by_every_exchange_of_keys() {
    let (_, file) = keys("psk-exchanges");
    let broker = serve(&file, &[]);
    for suite in [
        "ECDHE-PSK-CHACHA20-POLY1305",
        "PSK-AES128-GCM-SHA256",
        "PSK-AES128-CCM8",
        "PSK-AES128-CBC-SHA256",
    ] {
        let more = ["-cipher", suite, "-no_tls1_3"];
        let (welcomed, said) = show(&broker.port(0), "sensor-7", KEY, &more);
        assert!(welcomed && said.contains(suite), "{said}");
    }
    // Whoever offers all gets forward secrecy, and 1.3 is left for 1.2.
    let (welcomed, said) = show(&broker.port(0), "urn:dev:8", OTHER, &["-cipher", "PSK:ECDHEPSK"]);
    assert!(welcomed && said.contains("Cipher is ECDHE-PSK-CHACHA20-POLY1305"), "{said}");
}

#[test]
fn a_wrong_key_and_an_unknown_identity_get_the_same_answer() {
    let (_, file) = keys("psk-strangers");
    let mut broker = serve(&file, &[]);
    let port = broker.port(0);
    let long = "i".repeat(200);
    for (identity, key, why) in [
        ("sensor-7", OTHER, "the key is not that of identity \"sensor-7\""),
        ("sensor-9", KEY, "nobody has identity \"sensor-9\""),
        (&long, KEY, "nobody has identity \"iiii"),
    ] {
        let (welcomed, said) = show(&port, identity, key, &["-tls1_2"]);
        assert!(!welcomed && said.contains("alert bad record mac"), "{said}");
        let line = broker.program.wait_for("connections ended before CONNECT");
        // In a line of the log quotes stand with a backslash.
        assert!(line.replace('\\', "").contains(why), "{line}");
        assert!(!line.contains(KEY) && !line.contains(OTHER), "{line}");
        sleep(Duration::from_millis(1050));
    }
    assert!(show(&port, "sensor-7", KEY, &["-tls1_2"]).0, "others are served as before");
}

#[test]
fn who_shares_no_suite_or_version_is_told_so() {
    let (_, file) = keys("psk-versions");
    let mut broker = serve(&file, &[]);
    let port = broker.port(0);
    for (more, alert, why) in [
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256:DHEPSK"][..],
            "handshake failure",
            "no shared",
        ),
        (&["-tls1_3"], "protocol version", "unsupported protocol"),
        (&["-tls1_1", "-cipher", "PSK:@SECLEVEL=0"], "protocol version", "unsupported protocol"),
    ] {
        let (welcomed, said) = show(&port, "sensor-7", KEY, more);
        assert!(!welcomed && said.contains(alert), "{said}");
        let line = broker.program.wait_for("connections ended before CONNECT");
        assert!(line.contains(why), "{line}");
        sleep(Duration::from_millis(1050));
    }
}

#[test]
fn nobody_comes_back_without_its_key() {
    let (folder, file) = keys("psk-tickets");
    let broker = serve(&file, &[]);
    let session = folder.join("session");
    let out = ["-tls1_2", "-sess_out", session.to_str().expect("the path is text")];
    let (welcomed, said) = show(&broker.port(0), "sensor-7", KEY, &out);
    assert!(welcomed && said.contains("New, TLS"), "{said}");
    // openssl writes down what it could come back with: a session's id or a ticket.
    assert!(!session.exists() && !said.contains("session ticket"), "{said}");
}

#[test]
fn websocket_stands_behind_keys_too() {
    let (_, file) = keys("psk-web");
    let own = ["--listen", "wss://127.0.0.1:0/mqtt", "--set", &set(&file)];
    let broker = ListenerBroker::start(&own);
    let port = broker.urls[0].rsplit(':').next().expect("a port").replace("/mqtt", "");
    let arguments = ["-psk_identity", "sensor-7", "-psk", KEY, "-tls1_2"];
    let said = s_client_bytes(&port, &arguments, b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("HTTP/1.1 404"), "{said}");
}

/// Returns a command that runs one of mosquitto's clients with a PSK identity and key; `None` if
/// not installed.
fn mosquitto(program: &str, port: &str, identity: &str, key: &str) -> Option<Command> {
    let mut command = Command::new(installed(program, program)?);
    command.args(["-h", "127.0.0.1", "-p", port, "--psk", key, "--psk-identity", identity]);
    Some(command)
}

#[test]
fn an_identity_is_a_name_that_rules_know() {
    let (folder, file) = keys("psk-mosquitto");
    let rules = folder.join("acl.toml");
    std::fs::write(
        &rules,
        "[[rule]]\nallow = \"all\"\nuser = \"sensor-7\"\ntopic = \"own/${cert_cn}\"\n",
    )
    .expect("it can be written");
    let rules = format!("acl.file={}", rules.display());
    let names = ["--set", &rules, "--set", "auth.certificate=common_name"];
    let broker = serve(&file, &names);
    let port = broker.port(0);
    let publish = |identity: &str, key: &str, topic: &str| {
        let mut publisher = mosquitto("mosquitto_pub", &port, identity, key)?;
        publisher.args(["-V", "5", "-t", topic, "-m", "from them", "-r", "-q", "2"]);
        let output = publisher.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Some((output.status.code() == Some(0) && !said.contains("ot authorized"), said))
    };
    let Some((welcomed, said)) = publish("sensor-7", KEY, "own/sensor-7") else {
        return;
    };
    assert!(welcomed, "{said}");
    for (identity, key, topic) in [
        ("sensor-7", KEY, "own/sensor-8"),
        ("urn:dev:8", OTHER, "own/sensor-7"),
        ("sensor-7", OTHER, "own/sensor-7"),
    ] {
        let (welcomed, said) = publish(identity, key, topic).expect("it is there");
        assert!(!welcomed, "{identity} {topic}: {said}");
    }
    let mut subscriber = mosquitto("mosquitto_sub", &port, "sensor-7", KEY).expect("it is there");
    let output = subscriber.args(["-t", "own/sensor-7", "-C", "1", "-W", "10"]).output();
    assert_eq!(output.expect("it runs").stdout, b"from them\n");
}

#[test]
fn large_messages_and_slow_readers_pass_through_keys_whole() {
    let (folder, file) = keys("psk-large");
    let broker = serve(&file, &["--shards", "2"]);
    let port = broker.port(0);
    let payload: Vec<u8> = (0..1_900_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    let large = folder.join("payload");
    std::fs::write(&large, &payload).expect("it can be written");
    let Some(mut subscriber) = mosquitto("mosquitto_sub", &port, "sensor-7", KEY) else {
        return;
    };
    subscriber.args(["-t", "l", "-q", "1", "-C", "4", "-N", "-c", "-i", "reader", "-W", "20"]);
    // With a session that waits, so that nothing depends on who comes first.
    let mut first = mosquitto("mosquitto_sub", &port, "sensor-7", KEY).expect("it is there");
    first.args(["-t", "l", "-q", "1", "-c", "-i", "reader", "-E"]);
    assert!(first.status().expect("it runs").success());
    let mut publisher = mosquitto("mosquitto_pub", &port, "urn:dev:8", OTHER).expect("it is there");
    publisher.args(["-t", "l", "-q", "1", "--repeat", "4", "-f"]).arg(&large);
    assert!(publisher.status().expect("it runs").success());
    let printed = subscriber.output().expect("it runs").stdout;
    assert_eq!(printed.len(), 4 * payload.len());
    assert!(printed.chunks(payload.len()).all(|chunk| chunk == payload));
}

#[test]
fn keys_are_read_again_and_nobody_is_dropped() {
    let (_, file) = keys("psk-reload");
    let mut broker = serve(&file, &[]);
    let port = broker.port(0);
    let Some(mut sub) = mosquitto("mosquitto_sub", &port, "sensor-7", KEY) else {
        return;
    };
    // It prints what was retained, so that it is known to be in.
    let publish = |identity: &str, key: &str, message: &str| {
        let mut publisher = mosquitto("mosquitto_pub", &port, identity, key).expect("it is there");
        let publisher = publisher.args(["-t", "a", "-q", "1", "-r", "-m", message]);
        publisher.output().expect("it runs").status.success()
    };
    assert!(publish("sensor-7", KEY, "first"));
    sub.args(["-t", "a", "-C", "2", "-W", "20"]);
    let reader = TestProgram::start(sub);
    sleep(Duration::from_millis(500));
    std::fs::write(&file, format!("sensor-7:{OTHER}\n")).expect("it can be written");
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    assert!(!publish("sensor-7", KEY, "by the old key"));
    assert!(publish("sensor-7", OTHER, "second"));
    assert_eq!(reader.finish(), (Some(0), "first\nsecond\n".to_string()));

    // A file that cannot be used changes nothing.
    std::fs::write(&file, format!("sensor-7:{KEY}\n\nsensor-8:{KEY}0\n")).expect("it can be");
    broker.program.signal("HUP");
    let line = broker.program.wait_for("not reloaded");
    assert!(line.contains("keys:3: the key of") && !line.contains(KEY), "{line}");
    assert!(publish("sensor-7", OTHER, "third"));
}

#[test]
fn renegotiation_is_declined() {
    let (_, file) = keys("psk-renegotiation");
    let broker = serve(&file, &[]);
    let address = format!("127.0.0.1:{}", broker.port(0));
    let script = format!(
        "(sleep 0.3; printf 'R\\n'; sleep 0.5; printf 'Q\\n') | timeout 10 openssl s_client \
         -connect {address} -tls1_2 -psk_identity sensor-7 -psk {KEY} 2>&1"
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no renegotiation"), "{said}");
    assert!(show(&broker.port(0), "sensor-7", KEY, &["-tls1_2"]).0, "others are served as before");
}

#[test]
fn what_does_not_go_with_keys_is_refused_in_words() {
    let (_, file) = keys("psk-options");
    let keys = set(&file);
    let refused = |listen: &str, more: &[&str]| {
        let own = ["check", "--listen", listen, "--set", &keys, "--memory"];
        let more = more.iter().flat_map(|option| ["--set", option]);
        let (code, _, why) = run(&own.into_iter().chain(more).collect::<Vec<_>>());
        assert_ne!(code, Some(0), "{listen} {why}");
        why
    };
    let why = refused("quic://127.0.0.1:0", &[]);
    assert!(why.contains("tls.psk_file is not for quic, which needs a certificate"), "{why}");
    let why = refused("tls://127.0.0.1:0", &["tls.version_min=1.3"]);
    assert!(why.contains("tls.psk_file is for TLS 1.2"), "{why}");
    let more = ["tls.client_certificate=required", "tls.client_ca=/none"];
    let why = refused("tls://127.0.0.1:0", &more);
    assert!(why.contains("a client with a key shows no certificate"), "{why}");
    let why = refused("tls://127.0.0.1:0", &["tls.psk_file=/nowhere/at/all"]);
    assert!(
        why.contains("/nowhere/at/all: the file of keys (tls.psk_file) cannot be read: No such"),
        "{why}"
    );
    std::fs::write(&file, "sensor-7 0badc0ffee\n").expect("it can be written");
    let why = refused("tls://127.0.0.1:0", &[]);
    assert!(why.contains("keys:1: a colon is missing") && !why.contains("c0ffee"), "{why}");
    // Who has a key has shown who it is: the listener may be reached from anywhere.
    std::fs::write(&file, format!("sensor-7:{KEY}\n")).expect("it can be written");
    let open = ["check", "--listen", "tls://0.0.0.0:0", "--set", &keys, "--memory"];
    let (code, _, why) = run(&refs(&open.map(String::from)));
    assert_eq!(code, Some(0), "{why}");
}
