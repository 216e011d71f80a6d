//! `godwit pub` and `godwit sub` with godwit, with mosquitto's broker, and together with
//! mosquitto's clients, if installed.

use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::installed::{installed, is_installed};
use crate::ports::free_port;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Starts `godwit sub` and waits for its SUBACK.
pub(crate) fn subscriber(port: &str, arguments: &[&str]) -> TestProgram {
    let fixed = ["sub", "-p", port, "-d"];
    let mut sub = TestProgram::start(godwit(&[&fixed, arguments].concat()));
    sub.wait_for("SUBACK");
    sub
}

pub(crate) fn publish(port: &str, arguments: &[&str]) {
    let (code, _, stderr) = run(&[&["pub", "-p", port], arguments].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
}

#[test]
fn every_qos_in_every_version_arrives_once() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    for version in ["31", "311", "5"] {
        for qos in ["0", "1", "2"] {
            let wants = ["-t", "a/#", "-q", qos, "-V", version, "-v", "-C", "2", "-F", "%t %p %q"];
            let sub = subscriber(&port, &wants);
            publish(&port, &["-t", "a/b", "-m", "hello", "-q", qos, "-V", version]);
            publish(&port, &["-t", "a", "-n", "-q", qos, "-V", version]);
            let expected = format!("a/b hello {qos}\na  {qos}\n");
            assert_eq!(sub.finish(), (Some(0), expected), "{version} {qos}");
        }
    }
}

#[test]
fn lines_files_and_repeats_are_messages() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    let file = scratch("payload").join("payload");
    std::fs::write(&file, "from a file").unwrap();
    let sub = subscriber(&port, &["-t", "t", "-q", "2", "-C", "108"]);
    let mut lines = TestProgram::start(godwit(&["pub", "-p", &port, "-t", "t", "-l", "-q", "2"]));
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    lines.write(&numbers.join("\n"));
    assert_eq!(lines.finish().0, Some(0));
    publish(&port, &["-t", "t", "-f", file.to_str().unwrap()]);
    publish(&port, &["-t", "t", "-m", "x", "--repeat", "5", "-q", "1"]);
    publish(&port, &["-t", "t", "-m", "y", "--repeat", "2", "--repeat-delay", "0.05"]);
    let mut expected = numbers.join("\n");
    expected.push_str("\nfrom a file\nx\nx\nx\nx\nx\ny\ny\n");
    assert_eq!(sub.finish(), (Some(0), expected));
}

#[test]
fn retained_messages_are_kept_shown_and_removed() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    let sub = |arguments: &[&str]| {
        let (code, stdout, _) = run(&[&["sub", "-p", &port], arguments].concat());
        (code, stdout)
    };
    publish(&port, &["-t", "r/a", "-m", "1", "-r"]);
    publish(&port, &["-t", "r/b", "-m", "2", "-r"]);
    assert_eq!(sub(&["-t", "r/a", "-C", "1", "-F", "%p %r"]), (Some(0), "1 1\n".into()));
    assert_eq!(sub(&["-t", "r/+", "-T", "r/b", "-W", "0.3"]), (Some(27), "1\n".into()));
    assert_eq!(sub(&["-t", "r/#", "-R", "-W", "0.3"]), (Some(27), String::new()));
    let removed = sub(&["-t", "r/#", "-T", "r/b", "--remove-retained", "--retained-only"]);
    assert_eq!(removed, (Some(0), "1\n".into()));
    assert_eq!(sub(&["-t", "r/#", "-C", "1"]), (Some(0), "2\n".into()));
}

#[test]
fn a_session_keeps_what_came_while_its_client_was_away() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    for version in ["311", "5"] {
        let (id, topic) = (format!("id{version}"), format!("s/{version}"));
        let session = ["sub", "-p", &port, "-i", &id, "-c", "-q", "2", "-V", version, "-t", &topic];
        assert_eq!(run(&[&session[..], &["-E"]].concat()).0, Some(0));
        for text in ["one", "two"] {
            publish(&port, &["-t", &topic, "-m", text, "-q", "2"]);
        }
        let (code, stdout, _) = run(&[&session[..], &["-C", "2"]].concat());
        assert_eq!((code, stdout.as_str()), (Some(0), "one\ntwo\n"), "{version}");
    }
}

#[test]
fn a_will_is_published_when_its_client_is_killed() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    let will = ["--will-topic", "w", "--will-payload", "gone", "--will-qos", "1", "-t", "x"];
    let mortal = subscriber(&port, &will);
    let witness = subscriber(&port, &["-t", "w", "-q", "1", "-C", "1"]);
    drop(mortal);
    assert_eq!(witness.finish(), (Some(0), "gone\n".to_string()));
}

#[test]
fn properties_travel() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    let format = "%p|%C|%R|%D|%P|%S|%E|%F";
    let wants =
        ["-t", "p", "-C", "1", "-F", format, "-D", "subscribe", "subscription-identifier", "77"];
    let sub = subscriber(&port, &wants);
    let properties = [
        ["content-type", "text/plain"],
        ["response-topic", "p/answer"],
        ["correlation-data", "c1"],
        ["message-expiry-interval", "500"],
        ["payload-format-indicator", "1"],
    ];
    let mut arguments = vec!["-t", "p", "-m", "x"];
    for [name, value] in properties {
        arguments.extend(["-D", "publish", name, value]);
    }
    arguments.extend(["-D", "publish", "user-property", "k", "v"]);
    publish(&port, &arguments);
    assert_eq!(sub.finish(), (Some(0), "x|text/plain|p/answer|c1|k:v|77|500|1\n".to_string()));
}

#[test]
fn failures_name_the_broker_the_reason_and_an_exit_code() {
    let (code, stdout, stderr) = run(&["sub", "-t", "a", "-p", &unused_port()]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("Error: localhost:") && stderr.contains("refused"), "{stderr}");

    let broker =
        TestBroker::start(&["--set", "message.qos_max=1", "--set", "retain.available=false"]);
    let port = broker.port();
    let (code, _, stderr) = run(&["sub", "-p", &port, "-t", "a", "-W", "0.2"]);
    assert_eq!((code, stderr.as_str()), (Some(27), "Error: Timed out\n"));
    let (code, _, stderr) = run(&["pub", "-p", &port, "-t", "a", "-m", "x", "-q", "2", "-V", "5"]);
    assert_eq!(code, Some(0x9B), "{stderr}");
    assert!(stderr.contains("QoS not supported"), "{stderr}");
    let (_, _, stderr) = run(&["pub", "-p", &port, "-t", "a", "-m", "x", "--will-qos", "1"]);
    assert_eq!(stderr, "godwit: --will-qos needs --will-topic\n");
    assert_eq!(run(&["pub", "--quiet", "-p", &unused_port(), "-t", "a", "-n"]).2, "");
}

#[test]
fn a_lost_broker_is_looked_for_again() {
    let mut broker = TestBroker::start(&[]);
    let port = broker.port();
    let mut sub = TestProgram::start(godwit(&["sub", "-p", &port, "-t", "a", "-C", "1", "-d"]));
    sub.wait_for("SUBACK");
    broker.program.signal("KILL");
    broker.program.exit_code();
    sub.wait_for("connecting again");
    let url = format!("tcp://127.0.0.1:{port}");
    let mut again = TestProgram::start(godwit(&["--memory", "--listen", &url]));
    again.wait_for("listening on");
    sub.wait_for("SUBACK");
    publish(&port, &["-t", "a", "-m", "back"]);
    assert_eq!(sub.finish(), (Some(0), "back\n".to_string()));
}

#[test]
fn our_clients_and_mosquittos_understand_each_other() {
    if !is_installed("mosquitto_sub", "mosquitto_sub") {
        return;
    }
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    for version in ["311", "5"] {
        for qos in ["0", "1", "2"] {
            let sub = subscriber(&port, &["-t", "m", "-q", qos, "-V", version, "-C", "1"]);
            let status = Command::new("mosquitto_pub")
                .args(["-p", &port, "-t", "m", "-m", "hi", "-q", qos, "-V", version])
                .status();
            assert!(status.unwrap().success());
            assert_eq!(sub.finish(), (Some(0), "hi\n".to_string()));
        }
    }
    publish(&port, &["-t", "kept", "-m", "hello", "-r", "-V", "5"]);
    let theirs = Command::new("mosquitto_sub")
        .args(["-p", &port, "-t", "kept", "-C", "1", "-v", "-W", "10"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(theirs.stdout).unwrap(), "kept hello\n");
}

#[test]
fn our_clients_work_with_mosquittos_broker() {
    let Some(program) = installed("mosquitto", "mosquitto") else { return };
    let (port, _broker) = mosquitto(&program);
    for version in ["31", "311", "5"] {
        for qos in ["0", "1", "2"] {
            let sub = subscriber(&port, &["-t", "m/+", "-q", qos, "-V", version, "-C", "3"]);
            publish(&port, &["-t", "m/a", "-m", "hi", "--repeat", "3", "-q", qos, "-V", version]);
            assert_eq!(sub.finish(), (Some(0), "hi\nhi\nhi\n".to_string()));
        }
    }
}

/// Starts mosquitto on a free port, and tries another port if another program has taken the port in
/// between.
fn mosquitto(program: &Path) -> (String, TestProgram) {
    loop {
        let port = unused_port();
        let mut command = Command::new(program);
        command.args(["-p", &port, "-v"]);
        let mut broker = TestProgram::start(command);
        broker.wait_for("mosquitto version");
        for _ in 0..100 {
            if TcpStream::connect(format!("localhost:{port}")).is_ok() {
                return (port, broker);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn unused_port() -> String {
    free_port().to_string()
}

/// Returns an address of the loopback interface on which no process listens.
pub(crate) fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
