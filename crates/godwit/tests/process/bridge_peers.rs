//! Requirements of the remote broker on a bridge: limits, observed on the connection between the
//! two, a shared subscription of several bridges, and retained messages.

use crate::bridges::{edge, mosquitto_with, servers, wait_for_value, wait_until_done};
use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit, run, scratch};
use crate::clients::{publish, subscriber};
use crate::tap::{TapDirection, tap};
use mqtt::{Packet, Property, ProtocolVersion, Publish, QoS};
use std::any::Any;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The remote broker of a bridge: godwit or mosquitto.
struct PeerBroker {
    address: SocketAddr,
    _broker: Box<dyn Any>,
}

impl PeerBroker {
    fn ours(options: &[&str]) -> PeerBroker {
        let options: Vec<&str> = options.iter().flat_map(|option| ["--set", *option]).collect();
        let broker = TestBroker::start(&options);
        PeerBroker { address: broker.address, _broker: Box::new(broker) }
    }

    /// Starts mosquitto as the remote broker. Returns `None` if mosquitto is not installed.
    fn mosquitto(name: &str, options: &str) -> Option<PeerBroker> {
        let (program, port) = mosquitto_with(name, options)?;
        let address = ([127, 0, 0, 1], port).into();
        Some(PeerBroker { address, _broker: Box::new(program) })
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }
}

/// A proxy that observes the packets of a bridge. The proxy delays acknowledgements by
/// `ANSWERS_LATE_BY`, so that the bridge reaches its limits.
struct WatchedLine {
    address: SocketAddr,
    seen: Arc<Mutex<LineObservations>>,
}

#[derive(Default)]
struct LineObservations {
    /// Packet ids of sent messages without an acknowledgement.
    open: HashSet<u16>,
    open_max: usize,
    packet_bytes_max: usize,
    alias_max: u16,
    /// Number of messages with a topic alias and without a topic.
    unnamed: usize,
}

const ANSWERS_LATE_BY: Duration = Duration::from_millis(20);

impl WatchedLine {
    /// Starts a proxy to the remote broker, for bridges of MQTT 5.0.
    fn to(far: SocketAddr) -> WatchedLine {
        let seen: Arc<Mutex<LineObservations>> = Arc::default();
        let (begun, notes) = (seen.clone(), seen.clone());
        let lets_in = move || {
            *begun.lock().expect("nobody panicked") = LineObservations::default();
            true
        };
        let address = tap(far, lets_in, move |towards, packet, _| {
            match towards {
                TapDirection::Far => note_out(&notes, packet),
                TapDirection::Near => note_answer(&notes, packet),
            }
            true
        });
        WatchedLine { address, seen }
    }

    fn seen(&self) -> MutexGuard<'_, LineObservations> {
        self.seen.lock().expect("nobody panicked")
    }
}

fn note_out(seen: &Mutex<LineObservations>, packet: &[u8]) {
    let Ok(Some(frame)) = mqtt::split_frame(packet, u32::MAX) else { return };
    let Ok(Packet::Publish(publish)) = Packet::decode(frame, ProtocolVersion::V5) else { return };
    let Publish { packet_id, properties, topic, .. } = publish;
    let mut seen = seen.lock().expect("nobody panicked");
    seen.packet_bytes_max = seen.packet_bytes_max.max(packet.len());
    seen.open.extend(packet_id.map(|id| id.get()));
    seen.open_max = seen.open_max.max(seen.open.len());
    seen.unnamed += usize::from(topic.is_empty());
    for property in properties.iter() {
        if let Property::TopicAlias(alias) = property {
            seen.alias_max = seen.alias_max.max(alias);
        }
    }
}

fn note_answer(seen: &Mutex<LineObservations>, packet: &[u8]) {
    let Ok(Some(frame)) = mqtt::split_frame(packet, u32::MAX) else { return };
    let done = match Packet::decode(frame, ProtocolVersion::V5) {
        Ok(Packet::PubAck(ack) | Packet::PubComp(ack)) => ack,
        Ok(Packet::PubRec(ack)) if ack.reason.is_error() => ack,
        _ => return,
    };
    thread::sleep(ANSWERS_LATE_BY);
    seen.lock().expect("nobody panicked").open.remove(&done.packet_id.get());
}

/// Publishes each line as a message.
pub(crate) fn publish_lines(port: &str, topic: &str, qos: &str, lines: &[String]) {
    let wants = ["pub", "-p", port, "-V", "5", "-t", topic, "-q", qos, "-l"];
    let mut program = TestProgram::start(godwit(&wants));
    program.write(&lines.join("\n"));
    assert_eq!(program.finish().0, Some(0));
}

pub(crate) fn named(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name}{number}")).collect()
}

const OUT: &str = "[[bridge.out]]\nfilter = \"up/#\"\n";

/// Starts a broker with a bridge through a [`WatchedLine`], and waits until the bridge is
/// connected.
fn watched(name: &str, far: SocketAddr) -> (WatchedLine, TestBroker) {
    let line = WatchedLine::to(far);
    let (near, _) = edge(name, &(servers(line.address) + OUT), &[]);
    wait_for_value(&near, "state", |value| value == "1");
    (line, near)
}

#[test]
fn no_more_is_under_way_than_the_other_broker_takes() {
    let ours = PeerBroker::ours(&["connection.receive_maximum=5"]);
    let theirs = PeerBroker::mosquitto("peers-window", "max_inflight_messages 5\n");
    for peer_broker in [Some(ours), theirs].into_iter().flatten() {
        let (line, near) = watched("peers-window-near", peer_broker.address);
        let form = ["-V", "5", "-t", "up/#", "-q", "2", "-C", "120", "-W", "20"];
        let sub = subscriber(&peer_broker.port(), &form);
        for qos in ["1", "2"] {
            publish_lines(&near.port(), "up/x", qos, &named(qos, 60));
        }
        let (code, came) = sub.finish();
        assert_eq!((code, came.lines().count()), (Some(0), 120));
        assert_eq!(line.seen().open_max, 5);
        assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
    }
}

#[test]
fn what_is_too_large_for_the_other_broker_is_dropped_alone() {
    let ours = PeerBroker::ours(&["connection.packet_bytes_max=1KiB"]);
    let theirs = PeerBroker::mosquitto("peers-large", "max_packet_size 1024\n");
    for peer_broker in [Some(ours), theirs].into_iter().flatten() {
        let (line, near) = watched("peers-large-near", peer_broker.address);
        let form = ["-V", "5", "-t", "up/#", "-q", "2", "-C", "6", "-W", "20"];
        let sub = subscriber(&peer_broker.port(), &form);
        let (large, fits) = ("y".repeat(1024), "z".repeat(950));
        for qos in ["0", "1", "2"] {
            for payload in ["x", &large, &fits] {
                publish(&near.port(), &["-V", "5", "-t", "up/x", "-m", payload, "-q", qos]);
            }
        }
        let (code, came) = sub.finish();
        assert_eq!((code, came), (Some(0), format!("x\n{fits}\n").repeat(3)));
        wait_for_value(&near, "dropped/packet_too_large", |value| value == "3");
        wait_until_done(&near);
        assert!((950..=1024).contains(&line.seen().packet_bytes_max));
        assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
    }
}

#[test]
fn names_are_shortened_as_far_as_the_other_broker_lets_them() {
    let ours =
        |most: &str| Some(PeerBroker::ours(&[&format!("connection.topic_alias_max={most}")]));
    let theirs = |most: &str| {
        PeerBroker::mosquitto(&format!("peers-alias-{most}"), &format!("max_topic_alias {most}\n"))
    };
    let all = [(ours("2"), 2), (ours("0"), 0), (theirs("2"), 2), (theirs("0"), 0)];
    for (peer_broker, most) in all {
        let Some(peer_broker) = peer_broker else { continue };
        let (line, near) = watched("peers-alias-near", peer_broker.address);
        let form = ["-V", "5", "-t", "up/#", "-q", "1", "-C", "12", "-W", "20", "-F", "%t %p"];
        let sub = subscriber(&peer_broker.port(), &form);
        let topics = ["up/a", "up/b", "up/c", "up/d"];
        let mut expected = String::new();
        for round in ["1", "2", "3"] {
            for topic in topics {
                publish(&near.port(), &["-V", "5", "-t", topic, "-m", round, "-q", "1"]);
                expected += &format!("{topic} {round}\n");
            }
        }
        assert_eq!(sub.finish(), (Some(0), expected));
        let seen = line.seen();
        // Two of the names, and each twice more.
        assert_eq!((seen.alias_max, seen.unnamed), (most, 2 * usize::from(most)));
    }
}

/// Both bridges share a subscription at the remote broker and also publish to its topics, so a
/// bridge may receive messages which it sent itself.
#[test]
fn bridges_that_share_a_subscription_split_it_and_nothing_comes_twice() {
    const COUNT: usize = 200;
    for version in ["5.0", "3.1.1"] {
        let ours = PeerBroker::ours(&[]);
        let theirs = PeerBroker::mosquitto(&format!("peers-share-{version}"), "");
        for peer_broker in [Some(ours), theirs].into_iter().flatten() {
            let near = |name: &str| {
                let rules = "[[bridge.out]]\nfilter = \"all/#\"\n\
                             [[bridge.in]]\nfilter = \"$share/g/all/#\"\n";
                let more = format!("version = \"{version}\"\nclient_id = \"{name}\"\n");
                let bridge = servers(peer_broker.address) + &more + rules;
                let (near, _) = edge(&format!("peers-share-{name}"), &bridge, &[]);
                wait_for_value(&near, "state", |value| value == "1");
                // What goes out waits until the other broker has answered what was asked of it.
                publish(&near.port(), &["-t", "all/ready", "-m", "ready", "-q", "1"]);
                wait_for_value(&near, "out/messages", |value| value == "1");
                near
            };
            let nears = [near("one"), near("two")];
            let hears = |broker: &TestBroker| {
                subscriber(&broker.port(), &["-V", "5", "-t", "all/+", "-q", "2", "-W", "6"])
            };
            let subs = nears.each_ref().map(hears);
            publish_lines(&peer_broker.port(), "all/far", "1", &named("f", COUNT));
            publish_lines(&peer_broker.port(), "all/far", "2", &named("F", COUNT));
            for (near, own) in nears.iter().zip(["a", "b"]) {
                publish_lines(&near.port(), "all/near", "1", &named(own, 30));
            }
            let came = subs
                .map(|sub| -> Vec<String> { sub.finish().1.lines().map(str::to_string).collect() });
            check_shares(&came, COUNT);
            nears.iter().for_each(wait_until_done);
        }
    }
}

fn check_shares(came: &[Vec<String>; 2], count: usize) {
    for lines in came {
        let once: HashSet<&String> = lines.iter().collect();
        assert_eq!(once.len(), lines.len(), "something came twice: {lines:?}");
    }
    let of = |at: usize, name: &str| came[at].iter().filter(|line| line.starts_with(name)).count();
    for name in ["f", "F"] {
        let (one, other) = (of(0, name), of(1, name));
        assert!(one > 0 && other > 0, "{name}: {one} and {other}");
        assert_eq!(one + other, count, "{name}: {one} and {other}");
    }
    // Everyone hears its own by itself, and of the other's what is not given back to that.
    assert_eq!((of(0, "a"), of(1, "b")), (30, 30));
    assert!(of(1, "a") <= 30 && of(0, "b") <= 30);
}

/// Rules in both directions with each value of the option `retained` (`once`, `always`, `never`),
/// and messages that are retained before the bridge connects.
#[test]
fn retained_messages_go_over_when_a_rule_says_so() {
    let theirs = PeerBroker::mosquitto("peers-retained", "");
    for peer_broker in [Some(PeerBroker::ours(&[])), theirs].into_iter().flatten() {
        let data = scratch("peers-retained-data").display().to_string();
        let words = ["once", "always", "never"];
        let retain = |port: &str, way: &str| {
            for word in words {
                let topic = format!("{way}/{word}");
                publish(port, &["-V", "5", "-t", &topic, "-m", "x", "-q", "1", "-r"]);
            }
        };
        let mut before = TestBroker::start(&["--data", &data]);
        retain(&before.port(), "out");
        before.program.signal("TERM");
        before.program.exit_code();
        retain(&peer_broker.port(), "in");
        let mut rules = servers(peer_broker.address);
        for (way, word) in ["out", "in"].iter().flat_map(|way| words.map(|word| (way, word))) {
            rules += &format!(
                "[[bridge.{way}]]\nfilter = \"{way}/{word}\"\ntopic = \"over/{way}/{word}\"\n\
                 retained = \"{word}\"\n"
            );
        }
        let over = |port: &str| {
            let wants = ["sub", "-p", port, "-V", "5", "-t", "over/#", "-W", "1", "-F", "%t %r"];
            let mut lines: Vec<String> = run(&wants).1.lines().map(str::to_string).collect();
            lines.sort_unstable();
            lines
        };
        // As it begins, and as it comes back.
        for count in ["2", "1"] {
            let (mut near, _) = edge("peers-retained-near", &rules, &["--data", &data]);
            wait_for_value(&near, "out/messages", |value| value == count);
            wait_for_value(&near, "in/messages", |value| value == count);
            assert_eq!(over(&peer_broker.port()), ["over/out/always 1", "over/out/once 1"]);
            assert_eq!(over(&near.port()), ["over/in/always 1", "over/in/once 1"]);
            thread::sleep(Duration::from_millis(1500));
            wait_for_value(&near, "out/messages", |value| value == count);
            wait_for_value(&near, "in/messages", |value| value == count);
            near.program.signal("TERM");
            near.program.exit_code();
        }
    }
}

/// Connects as soon as the port accepts, and sends CONNECT and a QoS 1 message for each topic
/// without waiting for CONNACK. Returns the response of the broker.
fn say_at_once(port: u16, topics: &[String]) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(why) => assert!(Instant::now() < until, "nobody listens: {why}"),
        }
    };
    let mut bytes = b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01c".to_vec();
    for (topic, id) in topics.iter().zip(1..) {
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic,
            packet_id: mqtt::PacketId::new(id),
            properties: mqtt::Properties::default(),
            payload: topic.as_bytes(),
        };
        publish.encode(ProtocolVersion::V5, &mut bytes);
    }
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(&bytes)?;
    let (mut read, mut reasons, mut buffer) = (Vec::new(), Vec::new(), [0; 512]);
    while reasons.len() < topics.len() {
        let len = stream.read(&mut buffer)?;
        assert!(len > 0, "it hung up after {read:?}");
        read.extend_from_slice(&buffer[..len]);
        while let Ok(Some(frame)) = mqtt::split_frame(&read, u32::MAX) {
            if let Ok(Packet::PubAck(ack)) = Packet::decode(frame, ProtocolVersion::V5) {
                reasons.push(ack.reason.code());
            }
            let len = frame.len;
            read.drain(..len);
        }
    }
    Ok(reasons)
}

/// A PUBACK with the reason 0x10 (no matching subscribers) would show that a message went past the
/// bridge.
#[test]
fn nothing_goes_past_a_link_in_the_first_moment() {
    let far = TestBroker::start(&[]);
    let folder = scratch("peers-moment");
    let lines = folder.join("lines");
    let file = folder.join("godwit.toml");
    let away = "[[bridge]]\nname = \"away\"\nservers = [\"tcp://127.0.0.1:1\"]\n\
                [[bridge.out]]\nfilter = \"away/#\"\n";
    let options = format!(
        "{away}[[bridge]]\nname = \"b\"\n{}{OUT}[[sink]]\nname = \"s\"\nfilters = [\"sink/#\"]\n\
         batch.wait_ms = 1\nfile.path = \"{}\"\ncolumns = [\"topic=${{topic}}\"]\n",
        servers(far.address),
        lines.display()
    );
    std::fs::write(&file, options).expect("this host has room for it");
    let file = file.display().to_string();
    for round in 0..20 {
        let port = crate::clients::unused_port();
        let url = format!("tcp://127.0.0.1:{port}");
        let mut near =
            TestProgram::start(godwit(&["--memory", "--config", &file, "--listen", &url]));
        let topics = ["up", "away", "sink"].map(|place| format!("{place}/{round}"));
        let reasons = say_at_once(port.parse().expect("a port"), &topics).unwrap_or_else(|why| {
            // Fails with all that it said.
            near.wait_for(&format!("start {round}: {why}"));
            Vec::new()
        });
        assert_eq!(reasons, vec![0; topics.len()], "start {round}");
        let wants = ["sub", "-p", &far.port(), "-t", &topics[0], "-C", "1", "-W", "20"];
        assert_eq!(run(&wants).0, Some(0), "start {round}");
        let until = Instant::now() + PATIENCE;
        let is_written = || {
            let text = std::fs::read_to_string(&lines).unwrap_or_default();
            text.contains(&format!("\"sink/{round}\""))
        };
        while !is_written() {
            assert!(Instant::now() < until, "start {round}: it is not in the file");
            thread::sleep(Duration::from_millis(5));
        }
        drop(near);
    }
}

#[test]
fn a_link_that_a_reload_brings_is_there_when_it_says_so() {
    let away = |name: &str| {
        format!(
            "[[bridge]]\nname = \"{name}\"\nservers = [\"tcp://127.0.0.1:1\"]\n\
             [[bridge.out]]\nfilter = \"{name}/#\"\n"
        )
    };
    let file = scratch("peers-reload").join("godwit.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("this host has room for it");
    write("");
    let mut near = TestBroker::start(&["--config", &file.display().to_string()]);
    let mut all = String::new();
    for round in 0..10 {
        let name = format!("b{round}");
        all += &away(&name);
        write(&all);
        near.program.signal("HUP");
        near.program.wait_for("options read again");
        let reasons = say_at_once(near.address.port(), &[format!("{name}/x")]).expect("it answers");
        assert_eq!(reasons, [0], "{name}");
    }
}
