//! A bridge that returns to a server, or moves to another server: renewed subscriptions, the
//! destination of waiting messages, and the bridge bit of MQTT 3.1.1.

use crate::bridges::{BOTH, edge, mosquitto, servers, wait_for_value};
use crate::broker::{PATIENCE, TestBroker, run};
use crate::clients::{nowhere, publish, subscriber};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};

/// Starts a broker that listens on this address.
fn at(address: SocketAddr) -> TestBroker {
    let TestBroker { program, .. } = TestBroker::start(&["--listen", &format!("tcp://{address}")]);
    TestBroker { program, address }
}

/// A server without persistent storage has lost the session and its subscriptions after a restart.
#[test]
fn a_bridge_subscribes_again_at_a_server_that_lost_its_session() {
    for version in ["5.0", "3.1.1"] {
        let address = nowhere();
        let bridge = format!("{}version = \"{version}\"\n{BOTH}", servers(address));
        let (mut near, _) = edge("returns-lost", &bridge, &[]);
        for _ in 0..2 {
            let far = at(address);
            near.program.wait_for("godwit::bridge connected");
            // What goes out waits until the other broker has answered what was asked of it.
            let up = subscriber(&far.port(), &["-t", "site/up/+", "-C", "1", "-W", "20"]);
            publish(&near.port(), &["-t", "up/x", "-m", "ready", "-q", "1"]);
            assert_eq!(up.finish(), (Some(0), "ready\n".to_string()), "{version}");
            let down = subscriber(&near.port(), &["-t", "down/+", "-C", "1", "-W", "20"]);
            publish(&far.port(), &["-t", "site/down/x", "-m", "again", "-q", "1"]);
            assert_eq!(down.finish(), (Some(0), "again\n".to_string()), "{version}");
        }
    }
}

/// Returns topic and payload of the messages below `site/up/` which the broker has retained, so
/// that no subscriber is necessary before the bridge connects.
fn retained(broker: &TestBroker) -> String {
    run(&["sub", "-p", &broker.port(), "-t", "site/up/#", "-W", "1", "-F", "%t %p"]).1
}

#[test]
fn what_waited_goes_to_the_backup_and_what_comes_later_to_the_first_server() {
    let (first, backup) = (nowhere(), nowhere());
    let bridge = format!("servers = [\"tcp://{first}\", \"tcp://{backup}\"]\nreturn_s = 1\n{BOTH}");
    let (mut near, _) = edge("returns-backup", &bridge, &[]);
    near.program.wait_for("not connected");
    let publish = |topic: &str, qos: &str| {
        publish(&near.port(), &["-t", topic, "-m", "x", "-r", "-q", qos]);
    };
    publish("up/1", "1");
    publish("up/2", "2");
    wait_for_value(&near, "queue/messages", |value| value == "2");
    let backup = at(backup);
    wait_for_value(&near, "out/messages", |value| value == "2");
    assert_eq!(retained(&backup), "site/up/1 x\nsite/up/2 x\n");
    let first = at(first);
    wait_for_value(&near, "server", |value| value == format!("tcp://{}", first.address));
    wait_for_value(&near, "state", |value| value == "1");
    publish("up/3", "1");
    publish("up/4", "2");
    wait_for_value(&near, "out/messages", |value| value == "4");
    assert_eq!(retained(&first), "site/up/3 x\nsite/up/4 x\n");
    assert_eq!(retained(&backup), "site/up/1 x\nsite/up/2 x\n");
}

/// In MQTT 3.1.1 the bit 0x80 of the protocol version marks a bridge: the server then sends no
/// message back to the bridge that sent it. In 5.0 each subscription sets No Local instead.
#[test]
fn a_bridge_says_in_3_1_1_that_it_is_one_and_gets_no_echoes() {
    for (version, byte) in [("3.1.1", 0x84), ("5.0", 5)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("this host has room for it");
        let address = listener.local_addr().expect("it is bound");
        let bridge = format!("{}version = \"{version}\"\n{BOTH}", servers(address));
        let (_near, _) = edge("returns-byte", &bridge, &[]);
        let (mut stream, _) = listener.accept().expect("it comes");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut read = Vec::new();
        while read.len() < 10 {
            let mut some = [0; 64];
            let len = stream.read(&mut some).expect("it says CONNECT");
            assert!(len > 0, "it hung up after {read:?}");
            read.extend_from_slice(&some[..len]);
        }
        let name = read.windows(4).position(|four| four == b"MQTT").expect("a CONNECT");
        assert_eq!(read[name + 4], byte, "{version}");
    }
    let far = TestBroker::start(&[]);
    let theirs = mosquitto("returns-marks");
    let other = theirs.as_ref().map(|(_, port)| SocketAddr::from(([127, 0, 0, 1], *port)));
    for far in [Some(far.address), other].into_iter().flatten() {
        let rules = "[[bridge.out]]\nfilter = \"both/#\"\n[[bridge.in]]\nfilter = \"both/#\"\n";
        let bridge = format!("{}version = \"3.1.1\"\n{rules}", servers(far));
        let (mut near, _) = edge("returns-marks-near", &bridge, &[]);
        near.program.wait_for("godwit::bridge connected");
        publish(&near.port(), &["-t", "both/a", "-m", "out", "-q", "1"]);
        wait_for_value(&near, "out/messages", |value| value == "1");
        // It comes after what would have come back.
        publish(&far.port().to_string(), &["-t", "both/a", "-m", "in", "-q", "1"]);
        wait_for_value(&near, "in/messages", |value| value == "1");
        assert_eq!(wait_for_value(&near, "dropped/echo", |value| !value.is_empty()), "0", "{far}");
    }
}
