//! Reactions of the running broker to signals: an orderly stop, and a reload of the options.

use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit, scratch};
use std::os::unix::net::UnixDatagram;

#[test]
fn sigterm_and_sigint_drain_and_exit_0() {
    for signal in ["TERM", "INT"] {
        let mut broker = TestBroker::start(&[]);
        let port = broker.port();
        let mut sub = TestProgram::start(godwit(&["sub", "-p", &port, "-t", "a", "-V", "5", "-d"]));
        sub.wait_for("SUBACK");
        broker.program.signal(signal);
        sub.wait_for("the broker ended the connection: Server shutting down");
        assert_eq!(broker.program.exit_code(), Some(0));
    }
}

#[test]
fn sighup_applies_what_is_live_and_names_what_needs_a_restart() {
    let file = scratch("reload").join("godwit.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "shards = 1\n").unwrap();
    let mut broker = TestBroker::start(&["--config", path]);

    std::fs::write(&file, "shards = 2\n[session]\nsubscriptions_max = 1\n").unwrap();
    broker.program.signal("HUP");
    let line = broker.program.wait_for("options read again");
    assert!(line.ends_with("changed=session.subscriptions_max"), "{line}");
    let line = broker.program.wait_for("these changes need a restart");
    assert!(line.ends_with("options=shards"), "{line}");
    let port = broker.port();
    let sub = ["sub", "-p", &port, "-t", "a", "-t", "b", "-E", "-V", "5"];
    let mut sub = TestProgram::start(godwit(&sub));
    sub.wait_for("\"b\" was refused: Quota exceeded");
    assert_eq!(sub.exit_code(), Some(0));

    std::fs::write(&file, "[session]\nsubscriptions_max = 0\n").unwrap();
    broker.program.signal("HUP");
    let line = broker.program.wait_for("not reloaded");
    assert!(line.contains(&format!("{path}:2: session.subscriptions_max = 0: ")), "{line}");
}

#[test]
fn sighup_opens_a_rotated_log_file_anew() {
    let folder = scratch("rotate");
    let (file, old) = (folder.join("log"), folder.join("log.1"));
    let set = format!("log.file={}", file.display());
    let options = ["--set", "log.target=file", "--set", &set, "--set", "log.format=json"];
    let mut broker = TestBroker::start(&options);
    std::fs::rename(&file, &old).unwrap();
    broker.program.signal("HUP");
    broker.program.signal("TERM");
    assert_eq!(broker.program.exit_code(), Some(0));
    let (old, new) = (read(&old), read(&file));
    assert!(old.contains("\"module\":\"godwit::serve\",\"message\":\"started\""), "{old}");
    assert!(new.contains("\"message\":\"stopped\""), "{new}");
    assert!(old.lines().chain(new.lines()).all(|line| line.starts_with("{\"time\":\"")));
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).expect("the log file")
}

#[test]
fn the_service_manager_hears_that_we_are_ready_and_that_we_stop() {
    let path = scratch("notify").join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut broker = TestBroker::start_with(&[("NOTIFY_SOCKET", path.to_str().unwrap())], &[]);
    let told = || {
        let mut bytes = [0; 64];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    broker.program.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(broker.program.exit_code(), Some(0));
}

#[test]
fn a_trace_writes_the_packets_of_one_client() {
    let mut broker = TestBroker::start(&[
        "--set",
        "trace.client_id=seen",
        "--set",
        "log.level=warn",
        "--set",
        "log.modules.trace=info",
    ]);
    let port = broker.port();
    for id in ["unseen", "seen"] {
        let (code, _) =
            TestProgram::start(godwit(&["pub", "-p", &port, "-i", id, "-t", "a/b", "-m", "hello"]))
                .finish();
        assert_eq!(code, Some(0));
    }
    let line = broker.program.wait_for("godwit::trace");
    assert!(line.contains("client_id=seen"), "{line}");
    let line = broker.program.wait_for("PUBLISH");
    assert!(line.contains("client_id=seen") && line.contains("a/b"), "{line}");
}
