//! A bridge with several servers, of which one closes or loses the connection in the middle of an
//! exchange.

use crate::bridges::{BOTH, edge, mosquitto_with, servers, wait_for_value, wait_until_done, write};
use crate::broker::{PATIENCE, TestBroker, run, scratch};
use crate::clients::{nowhere, publish, subscriber};
use crate::line::FreezableProxy;
use crate::tap::tap;
use mqtt::PacketType;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A proxy that closes the connection at the first packet of a given type, and does not forward
/// that packet.
struct CuttingProxy {
    address: SocketAddr,
    state: Arc<Mutex<CuttingProxyState>>,
}

#[derive(Clone, Copy)]
struct CuttingProxyState {
    at: Option<PacketType>,
    /// Whether the proxy refuses connections after the first closed one.
    shuts: bool,
    is_shut: bool,
}

impl CuttingProxy {
    fn to(far: SocketAddr, at: PacketType, shuts: bool) -> CuttingProxy {
        let state = Arc::new(Mutex::new(CuttingProxyState { at: Some(at), shuts, is_shut: false }));
        let (gate, shared) = (state.clone(), state.clone());
        let lets_in = move || !lock(&gate).is_shut;
        let address = tap(far, lets_in, move |_, packet, _| goes_on(&shared, packet));
        CuttingProxy { address, state }
    }

    /// Accepts connections from now on.
    fn open(&self) {
        lock(&self.state).is_shut = false;
    }
}

fn goes_on(state: &Mutex<CuttingProxyState>, packet: &[u8]) -> bool {
    let mut state = lock(state);
    let ends = state.at == PacketType::from_byte(packet[0]);
    if ends {
        *state = CuttingProxyState { at: None, is_shut: state.shuts, ..*state };
    }
    !ends
}

fn lock(state: &Mutex<CuttingProxyState>) -> MutexGuard<'_, CuttingProxyState> {
    state.lock().expect("nobody panicked")
}

/// Starts a godwit and, if installed, a mosquitto, each with a queue without a practical limit.
/// mosquitto delivers a QoS 2 message after PUBREL.
fn fars(name: &str) -> Vec<(&'static str, SocketAddr, Box<dyn std::any::Any>)> {
    let broker = TestBroker::start(&["--set", "queue.messages_max=100000"]);
    let mut all: Vec<(_, _, Box<dyn std::any::Any>)> = Vec::new();
    all.push(("godwit", broker.address, Box::new(broker)));
    if let Some((program, port)) = mosquitto_with(name, "max_queued_messages 0\n") {
        all.push(("mosquitto", ([127, 0, 0, 1], port).into(), Box::new(program)));
    }
    all
}

fn port(address: SocketAddr) -> String {
    address.port().to_string()
}

const OUT: &str = "return_s = 1\n[[bridge.out]]\nfilter = \"up/#\"\n";

#[test]
fn a_message_half_way_at_one_server_gets_to_the_next() {
    let firsts = fars("servers-first");
    for (version, (kind, first, _)) in
        firsts.iter().flat_map(|one| ["5.0", "3.1.1"].map(|version| (version, one)))
    {
        let second = TestBroker::start(&[]);
        let snip = CuttingProxy::to(*first, PacketType::PubRel, true);
        let servers = [snip.address, second.address].map(|one| format!("\"tcp://{one}\""));
        let bridge = format!(
            "servers = [{}]\nversion = \"{version}\"\nclient_id = \"{kind}{version}\"\n{OUT}",
            servers.join(", ")
        );
        let (mut near, _) = edge("servers-next", &bridge, &[]);
        near.program.wait_for("godwit::bridge connected");
        let wants = ["-t", "up/#", "-q", "2", "-W", "8"];
        let at_first = subscriber(&port(*first), &[&wants[..], &["-C", "2"]].concat());
        let at_second = subscriber(&second.port(), &[&wants[..], &["-C", "1"]].concat());
        publish(&near.port(), &["-t", "up/x", "-m", "one", "-q", "2"]);
        assert_eq!(at_second.finish(), (Some(0), "one\n".to_string()), "{kind} {version}");
        wait_until_done(&near);
        snip.open();
        near.program.wait_for("goes back to its first server");
        publish(&near.port(), &["-t", "up/x", "-m", "two", "-q", "2"]);
        // It had the first one too, and nobody could know.
        let expected = (Some(0), "one\ntwo\n".to_string());
        assert_eq!(at_first.finish(), expected, "{kind} {version}");
        wait_until_done(&near);
    }
}

/// The first server still holds the packet id of an unfinished QoS 2 message; after a restart the
/// bridge must not use that id for another message before it is released.
#[test]
fn what_was_half_way_at_a_server_takes_no_other_message_with_it_after_a_restart() {
    const IDS: usize = u16::MAX as usize;
    for (kind, first, _) in fars("servers-left") {
        let second = TestBroker::start(&[]);
        let snip = CuttingProxy::to(first, PacketType::PubRel, true);
        let servers = [snip.address, second.address].map(|one| format!("\"tcp://{one}\""));
        let room = "version = \"5.0\"\nqueue.messages_max = 100000\n";
        let bridge = format!("servers = [{}]\n{room}{OUT}", servers.join(", "));
        let data = scratch("servers-left-data").display().to_string();
        let (mut near, _) = edge("servers-left", &bridge, &["--data", &data]);
        near.program.wait_for("godwit::bridge connected");
        let count = (IDS + 1).to_string();
        let at_first =
            subscriber(&port(first), &["-t", "up/#", "-q", "2", "-W", "60", "-C", &count]);
        let at_second = subscriber(&second.port(), &["-t", "up/#", "-q", "2", "-C", "1"]);
        publish(&near.port(), &["-t", "up/x", "-m", "one", "-q", "2"]);
        assert_eq!(at_second.finish(), (Some(0), "one\n".to_string()), "{kind}");
        wait_until_done(&near);
        drop(near);
        snip.open();
        let (mut near, _) = edge("servers-left", &bridge, &["--data", &data]);
        let connected = near.program.wait_for("godwit::bridge connected");
        assert!(connected.contains(&port(snip.address)), "{connected}");
        let repeat = IDS.to_string();
        let many = ["--repeat", &repeat, "--repeat-delay", "0", "-M", "1000"];
        let two = ["-t", "up/x", "-m", "two", "-q", "2"];
        publish(&near.port(), &[&two[..], &many].concat());
        let (code, text) = at_first.finish();
        assert_eq!((code, text.lines().count()), (Some(0), IDS + 1), "{kind}");
        assert_eq!(text.matches("two").count(), IDS, "{kind}");
    }
}

#[test]
fn a_bridge_changes_its_server_or_client_id_and_back_and_goes_on() {
    for (kind, first, _) in fars("servers-back") {
        let second = TestBroker::start(&[]);
        let at = |far: SocketAddr, id: &str| format!("{}client_id = \"{id}\"\n{OUT}", servers(far));
        let ways =
            [at(first, "one"), at(second.address, "one"), at(first, "one"), at(first, "two")];
        let (mut near, file) = edge("servers-back", &ways[0], &[]);
        near.program.wait_for("godwit::bridge connected");
        let wants = ["-t", "up/#", "-q", "2", "-W", "20"];
        let at_first = subscriber(&port(first), &[&wants[..], &["-C", "4"]].concat());
        let at_second = subscriber(&second.port(), &[&wants[..], &["-C", "1"]].concat());
        for (number, way) in ways.iter().chain([&ways[0]]).enumerate() {
            if number > 0 {
                write(&file, way);
                near.program.signal("HUP");
                near.program.wait_for("godwit::bridge connected");
            }
            let payload = number.to_string();
            publish(&near.port(), &["-t", "up/x", "-m", &payload, "-q", "2"]);
            wait_until_done(&near);
        }
        assert_eq!(at_first.finish(), (Some(0), "0\n2\n3\n4\n".to_string()), "{kind}");
        assert_eq!(at_second.finish(), (Some(0), "1\n".to_string()), "{kind}");
    }
}

/// On a reload the bridge waits for the acknowledgements of the messages in flight.
#[test]
fn what_is_under_way_while_a_bridge_changes_comes_once() {
    const CHANGES: usize = 4;
    let delay = Duration::from_millis(200);
    for (kind, far, _) in fars("servers-change") {
        let late = tap(
            far,
            || true,
            move |_, packet, _| {
                if PacketType::from_byte(packet[0]) == Some(PacketType::PubRec) {
                    thread::sleep(delay);
                }
                true
            },
        );
        let of = |id: &str| format!("{}client_id = \"{id}\"\n{OUT}", servers(late));
        let (mut near, file) = edge("servers-change", &of("0"), &[]);
        near.program.wait_for("godwit::bridge connected");
        let wants = ["-t", "up/#", "-q", "2", "-W", "20", "-C", &CHANGES.to_string()];
        let sub = subscriber(&port(far), &wants);
        for number in 1..=CHANGES {
            let number = number.to_string();
            publish(&near.port(), &["-t", "up/x", "-m", &number, "-q", "2"]);
            thread::sleep(delay / 4);
            write(&file, &of(&number));
            near.program.signal("HUP");
            near.program.wait_for("godwit::bridge connected");
        }
        let (code, came) = sub.finish();
        let expected: String = (1..=CHANGES).map(|number| format!("{number}\n")).collect();
        assert_eq!((code, came), (Some(0), expected), "{kind}");
    }
}

#[test]
fn a_message_half_way_at_a_server_comes_once_where_the_bridge_stays() {
    for (kind, first, _) in fars("servers-stays") {
        for at in [PacketType::PubRec, PacketType::PubRel, PacketType::PubComp] {
            let snip = CuttingProxy::to(first, at, false);
            let nowhere = nowhere();
            let bridge =
                format!("servers = [\"tcp://{}\", \"tcp://{nowhere}\"]\n{OUT}", snip.address);
            let (mut near, _) = edge("servers-once", &bridge, &[]);
            near.program.wait_for("godwit::bridge connected");
            let wants = ["-t", "up/#", "-q", "2", "-W", "8", "-C", "2"];
            let sub = subscriber(&port(first), &wants);
            publish(&near.port(), &["-t", "up/x", "-m", "one", "-q", "2"]);
            near.program.wait_for("godwit::bridge connected");
            wait_until_done(&near);
            publish(&near.port(), &["-t", "up/x", "-m", "two", "-q", "2"]);
            assert_eq!(sub.finish(), (Some(0), "one\ntwo\n".to_string()), "{kind} {at:?}");
            // Ids of the next one begin anew.
            near.program.signal("TERM");
            near.program.exit_code();
        }
    }
}

/// The server sends DISCONNECT directly behind the PUBCOMP.
#[test]
fn what_a_server_completes_before_it_goes_comes_once() {
    let far = TestBroker::start(&[]);
    let (line, nowhere) = (goes_when_done(far.address), nowhere());
    let bridge = format!("servers = [\"tcp://{line}\", \"tcp://{nowhere}\"]\n{OUT}");
    let (mut near, _) = edge("servers-goes", &bridge, &[]);
    near.program.wait_for("godwit::bridge connected");
    let sub = subscriber(&far.port(), &["-t", "up/#", "-q", "2", "-W", "20", "-C", "2"]);
    publish(&near.port(), &["-t", "up/x", "-m", "one", "-q", "2"]);
    near.program.wait_for("godwit::bridge connected");
    wait_until_done(&near);
    publish(&near.port(), &["-t", "up/x", "-m", "two", "-q", "2"]);
    assert_eq!(sub.finish(), (Some(0), "one\ntwo\n".to_string()));
}

/// Starts a proxy that sends DISCONNECT to the bridge directly behind the first PUBCOMP, and closes
/// the connection.
fn goes_when_done(far: SocketAddr) -> SocketAddr {
    let gone = AtomicBool::new(false);
    tap(
        far,
        || true,
        move |_, packet, mut near| {
            let goes = is_completion(packet) && !gone.swap(true, Relaxed);
            if goes {
                let _ = near.write_all(&[packet, &[0xe0, 0]].concat());
            }
            !goes
        },
    )
}

fn is_completion(packet: &[u8]) -> bool {
    PacketType::from_byte(packet[0]) == Some(PacketType::PubComp)
}

/// Only the running process knows the state of a QoS 2 exchange with one of several servers, so a
/// reload or SIGTERM must wait for PUBCOMP.
#[test]
fn a_message_half_way_comes_once_when_options_change_and_when_the_process_ends() {
    for signal in ["HUP", "TERM"] {
        let far = TestBroker::start(&[]);
        let (late, is_due) = channel();
        let line = late_completion(far.address, late);
        let nowhere = nowhere();
        let bridge = format!("servers = [\"tcp://{line}\", \"tcp://{nowhere}\"]\n{OUT}");
        let data = scratch("servers-ends-data").display().to_string();
        let (mut near, file) = edge("servers-ends", &bridge, &["--data", &data]);
        near.program.wait_for("godwit::bridge connected");
        let sub = subscriber(&far.port(), &["-t", "up/#", "-q", "2", "-W", "20", "-C", "2"]);
        publish(&near.port(), &["-t", "up/x", "-m", "one", "-q", "2"]);
        is_due.recv_timeout(PATIENCE).expect("it is half-way");
        write(&file, &format!("keep_alive_s = 31\n{bridge}"));
        near.program.signal(signal);
        if signal == "TERM" {
            near.program.exit_code();
            near = edge("servers-ends", &bridge, &["--data", &data]).0;
        }
        near.program.wait_for("godwit::bridge connected");
        publish(&near.port(), &["-t", "up/x", "-m", "two", "-q", "2"]);
        assert_eq!(sub.finish(), (Some(0), "one\ntwo\n".to_string()), "{signal}");
    }
}

/// Starts a proxy that delays each PUBCOMP by 400 ms, and reports its arrival to `late` before the
/// delay.
fn late_completion(far: SocketAddr, late: Sender<()>) -> SocketAddr {
    tap(
        far,
        || true,
        move |_, packet, _| {
            if is_completion(packet) {
                let _ = late.send(());
                thread::sleep(Duration::from_millis(400));
            }
            true
        },
    )
}

#[test]
fn what_has_no_room_here_is_no_reason_to_go_to_the_next_server() {
    let (first, second) = (TestBroker::start(&[]), TestBroker::start(&[]));
    let servers = [first.address, second.address].map(|one| format!("\"tcp://{one}\""));
    let bridge = format!("servers = [{}]\n{BOTH}", servers.join(", "));
    let (mut near, file) = edge("servers-room", &bridge, &[]);
    near.program.wait_for("godwit::bridge connected");
    let text = std::fs::read_to_string(&file).expect("it was written");
    let reload = |near: &mut TestBroker, most: &str| {
        let text = format!("[retain]\nmessages_max = {most}\n{text}");
        std::fs::write(&file, text).expect("this host has room for it");
        near.program.signal("HUP");
        near.program.wait_for("options read again");
    };
    reload(&mut near, "0");
    publish(&first.port(), &["-t", "site/down/a", "-m", "x", "-r", "-q", "1"]);
    for _ in 0..3 {
        near.program.wait_for("this broker has no room for what comes in");
        let line = near.program.wait_for("godwit::bridge connected");
        assert!(line.contains(&first.address.to_string()), "{line}");
    }
    // Once there is room it comes.
    let sub = subscriber(&near.port(), &["-t", "down/a", "-C", "1", "-W", "20"]);
    reload(&mut near, "1000");
    assert_eq!(sub.finish(), (Some(0), "x\n".to_string()));
}

/// A bridge that is removed from the file ends its sessions at the current server and at the
/// earlier one.
#[test]
fn a_bridge_that_leaves_the_file_ends_its_sessions_there() {
    for (kind, first, _) in fars("servers-leaves") {
        for version in ["5.0", "3.1.1"] {
            let second = TestBroker::start(&[]);
            let snip = CuttingProxy::to(first, PacketType::Publish, true);
            let servers = [snip.address, second.address].map(|one| format!("\"tcp://{one}\""));
            let bridge = format!(
                "servers = [{}]\nversion = \"{version}\"\nclient_id = \"{version}\"\n\
                 return_s = \"never\"\n{BOTH}",
                servers.join(", ")
            );
            let (mut near, file) = edge("servers-leaves-near", &bridge, &[]);
            near.program.wait_for("godwit::bridge connected");
            publish(&near.port(), &["-t", "up/x", "-m", "x", "-q", "0"]);
            let line = near.program.wait_for("godwit::bridge connected");
            assert!(line.contains(&second.address.to_string()), "{line}");
            publish(&near.port(), &["-t", "up/x", "-m", "x", "-q", "1"]);
            wait_for_value(&near, "out/messages", |value| value == "2");
            snip.open();
            std::fs::write(&file, "").expect("this host has room for it");
            near.program.signal("HUP");
            near.program.wait_for("gone, with what it had queued");
            for address in [first, second.address] {
                let port = port(address);
                publish(&port, &["-t", "site/down/x", "-m", "waits", "-q", "1"]);
                let wants = ["sub", "-p", &port, "-i", version, "-c", "-t", "none", "-q", "1"];
                let (_, came, _) = run(&[&wants[..], &["-W", "1"]].concat());
                assert_eq!(came, "", "{kind} {version} {address}");
            }
        }
    }
}

/// The remote session belongs to the client id, not to the name of the bridge. The arrival of a
/// retained message shows that the bridge has subscribed.
#[test]
fn a_bridge_with_another_name_has_what_waits_for_its_client_id() {
    for (kind, far, _) in fars("servers-renamed") {
        publish(&port(far), &["-t", "site/down/0", "-m", "ready", "-q", "1", "-r"]);
        for version in ["5.0", "3.1.1"] {
            let line = FreezableProxy::to(far);
            let folder = scratch("servers-renamed-near");
            let file = folder.join("godwit.toml").display().to_string();
            let of = |name: &str| {
                format!(
                    "sys.interval_s = 1\n[[bridge]]\nname = \"{name}\"\nversion = \"{version}\"\n\
                     client_id = \"renamed-{version}\"\nservers = [\"tcp://{}\"]\n\
                     retry_min_ms = 600000\nretry_max_s = 3600\n\
                     [[bridge.out]]\nfilter = \"up/#\"\nqos = 1\n\
                     [[bridge.in]]\nfilter = \"site/down/+\"\ntopic = \"down/${{1}}\"\n",
                    line.address
                )
            };
            std::fs::write(&file, of("a")).expect("this host has room for it");
            let mut near = TestBroker::start(&["--config", &file]);
            let wants = ["-t", "down/+", "-C", "1", "-W", "20"];
            let (_, came, _) = run(&[&["sub", "-p", &near.port()], &wants[..]].concat());
            assert_eq!(came, "ready\n", "{kind} {version}");
            line.freeze();
            publish(&port(far), &["-t", "site/down/x", "-m", "waits", "-q", "1"]);
            line.wait_until_it_swallowed();
            line.thaw();
            near.program.wait_for("not connected");
            let of_x = ["-t", "down/x", "-q", "1", "-C", "1", "-W", "20"];
            let sub = subscriber(&near.port(), &of_x);
            std::fs::write(&file, of("b")).expect("this host has room for it");
            near.program.signal("HUP");
            near.program.wait_for("gone, with what it had queued");
            assert_eq!(sub.finish(), (Some(0), "waits\n".to_string()), "{kind} {version}");
            thread::sleep(Duration::from_millis(1500));
            assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
        }
    }
}

/// A server of MQTT 3.1.1 can neither announce its Maximum Packet Size nor state the reason for
/// which it closes the connection.
#[test]
fn what_is_too_large_for_a_broker_of_3_1_1_is_named_and_can_be_dropped() {
    let Some((_mosquitto, port)) = mosquitto_with("servers-large", "max_packet_size 1024\n") else {
        return;
    };
    let rules = "version = \"3.1.1\"\n[[bridge.out]]\nfilter = \"up/#\"\n";
    let bridge = servers(([127, 0, 0, 1], port).into()) + rules;
    let (mut near, file) = edge("servers-large-near", &bridge, &[]);
    near.program.wait_for("godwit::bridge connected");
    let wants = ["-t", "up/#", "-q", "2", "-W", "20", "-C", "3"];
    let sub = subscriber(&port.to_string(), &wants);
    let large = "y".repeat(2000);
    for (payload, qos) in [("one", "2"), (&large, "1"), ("two", "1"), (&large, "2"), ("three", "2")]
    {
        publish(&near.port(), &["-t", "up/x", "-m", payload, "-q", qos]);
    }
    let line = near.program.wait_for("3 times in a row");
    assert!(line.contains("2011 bytes to \"up/x\"") && line.contains("packet_bytes_max"), "{line}");
    wait_for_value(&near, "last_error", |value| value.contains("packet_bytes_max"));
    // Nobody knows, so it is not dropped.
    write(&file, &format!("packet_bytes_max = \"1KiB\"\n{bridge}"));
    near.program.signal("HUP");
    wait_for_value(&near, "dropped/packet_too_large", |value| value == "2");
    assert_eq!(sub.finish(), (Some(0), "one\ntwo\nthree\n".to_string()));
    wait_until_done(&near);
}
