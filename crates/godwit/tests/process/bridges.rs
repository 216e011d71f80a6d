//! Bridges between two godwit brokers, and to mosquitto: forwarding in both directions, without
//! loss when either broker or the connection fails.

use crate::bridge_peers::{named, publish_lines};
use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit, run, scratch};
use crate::clients::nowhere;
use crate::installed::installed;
use crate::line::FreezableProxy;
use crate::{certs, clients};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Starts a broker with one bridge; `bridge` is the text of its `[[bridge]]` table. Returns the
/// broker and its configuration file.
pub(crate) fn edge(name: &str, bridge: &str, more: &[&str]) -> (TestBroker, std::path::PathBuf) {
    let folder = scratch(name);
    let file = folder.join("godwit.toml");
    write(&file, bridge);
    let file_name = file.display().to_string();
    (
        TestBroker::start(&[&["--config", &file_name, "--set", "sys.interval_s=1"], more].concat()),
        file,
    )
}

pub(crate) fn write(file: &Path, bridge: &str) {
    let text = format!("[[bridge]]\nname = \"b\"\nretry_min_ms = 50\nretry_max_s = 1\n{bridge}");
    std::fs::write(file, text).expect("the file can be written");
}

pub(crate) const BOTH: &str = "
[[bridge.out]]
filter = \"up/#\"
topic = \"site/${topic}\"
[[bridge.in]]
filter = \"site/down/+\"
topic = \"down/${1}\"
";

pub(crate) fn servers(address: SocketAddr) -> String {
    format!("servers = [\"tcp://{address}\"]\n")
}

fn subscriber(broker: &TestBroker, arguments: &[&str]) -> TestProgram {
    clients::subscriber(&broker.port(), &[&["-V", "5"], arguments].concat())
}

fn publish(port: &str, arguments: &[&str]) {
    clients::publish(port, &[&["-V", "5"], arguments].concat());
}

/// Waits until a value below `$SYS/broker/bridge/b/` satisfies `is_right`. Returns the value.
pub(crate) fn wait_for_value(
    broker: &TestBroker,
    value: &str,
    is_right: impl Fn(&str) -> bool,
) -> String {
    let (port, topic) = (broker.port(), format!("$SYS/broker/bridge/b/{value}"));
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, found, _) = run(&["sub", "-p", &port, "-t", &topic, "-C", "1", "-W", "2"]);
        if is_right(found.trim()) {
            return found.trim().to_string();
        }
        assert!(Instant::now() < until, "{value} stays {found:?}");
    }
}

/// Waits until the bridge has neither queued messages nor messages in flight.
pub(crate) fn wait_until_done(broker: &TestBroker) {
    wait_for_round(broker);
    wait_for_value(broker, "queue/messages", |value| value == "0");
    wait_for_value(broker, "queue/in_flight", |value| value == "0");
}

/// Waits for a `$SYS` round newer than this call: a round publishes changed values only, and the
/// second value of `messages/sent` comes after the subscription.
pub(crate) fn wait_for_round(broker: &TestBroker) {
    let (port, changing) = (broker.port(), "$SYS/broker/messages/sent");
    let (_, rounds, _) = run(&["sub", "-p", &port, "-t", changing, "-R", "-C", "2", "-W", "10"]);
    assert_eq!(rounds.lines().count(), 2, "{rounds}");
}

#[test]
fn messages_of_every_qos_go_both_ways_under_their_names() {
    let far = TestBroker::start(&[]);
    let (mut near, _) = edge("bridge-both", &(servers(far.address) + BOTH), &[]);
    near.program.wait_for("godwit::bridge connected");
    for qos in ["0", "1", "2"] {
        let form = ["-q", "2", "-C", "1", "-F", "%t %p %q %R %P"];
        let up = subscriber(&far, &[&["-t", "site/up/#"], &form[..]].concat());
        let property = ["-D", "publish", "user-property", "k", "v"];
        let response = ["-D", "publish", "response-topic", "down/answer"];
        let message = ["-t", "up/a/b", "-m", "hello", "-q", qos];
        publish(&near.port(), &[&message[..], &property, &response].concat());
        let expected = format!("site/up/a/b hello {qos} site/down/answer k:v\n");
        assert_eq!(up.finish(), (Some(0), expected));
        let down = subscriber(&near, &[&["-t", "down/+"], &form[..]].concat());
        publish(&far.port(), &["-t", "site/down/x", "-m", "go", "-q", qos]);
        assert_eq!(down.finish(), (Some(0), format!("down/x go {qos}  \n")));
    }
}

#[test]
fn what_is_retained_goes_over_once_and_stays_retained() {
    let far = TestBroker::start(&[]);
    let rules = "[[bridge.out]]
filter = \"keep/#\"
[[bridge.out]]
filter = \"flag/#\"
retain = \"clear\"
";
    let (near, _) = edge("bridge-retained", &(servers(far.address) + rules), &[]);
    publish(&near.port(), &["-t", "keep/a", "-m", "1", "-r", "-q", "1"]);
    publish(&near.port(), &["-t", "flag/a", "-m", "2", "-r", "-q", "1"]);
    wait_for_value(&near, "out/messages", |value| value == "2");
    let (port, form) = (far.port(), ["-t", "keep/#", "-t", "flag/#", "-W", "1", "-F", "%t %p %r"]);
    let (_, found, _) = run(&[&["sub", "-p", &port], &form[..]].concat());
    assert_eq!(found, "keep/a 1 1\n");
}

#[test]
fn nothing_is_lost_while_the_other_broker_is_away() {
    let data = scratch("bridge-away-data").display().to_string();
    let address = nowhere();
    let bridge = servers(address) + BOTH;
    let (mut near, _) = edge("bridge-away", &bridge, &["--data", &data]);
    near.program.wait_for("not connected");
    let port = near.port();
    let all = named("message ", 500);
    publish_lines(&port, "up/x", "2", &all);
    wait_for_value(&near, "queue/messages", |value| value == "500");
    near.program.signal("KILL");
    drop(near);
    let (mut near, _) = edge("bridge-away", &bridge, &["--data", &data]);
    near.program.wait_for("not connected");
    let url = format!("tcp://{address}");
    let far = TestBroker::start(&["--listen", &url]);
    let port = address.port().to_string();
    let wants = ["-V", "5", "-t", "site/up/#", "-q", "2", "-W", "20"];
    let sub =
        TestProgram::start(godwit(&[&["sub", "-p", &port, "-C", "501"], &wants[..]].concat()));
    near.program.wait_for("godwit::bridge connected");
    // Nothing of what went before it comes behind it.
    publish(&near.port(), &["-t", "up/x", "-m", "last", "-q", "2"]);
    let (code, printed) = sub.finish();
    let came: Vec<&str> = printed.lines().collect();
    let wanted: Vec<&str> = all.iter().map(String::as_str).chain(["last"]).collect();
    assert_eq!((code, came), (Some(0), wanted));
    drop(far);
}

#[test]
fn brokers_that_are_killed_lose_and_double_nothing_on_the_way_out() {
    killed("bridge-killed-out", BOTH, BridgeCase::Out);
}

#[test]
fn brokers_that_are_killed_lose_and_double_nothing_on_the_way_in() {
    killed("bridge-killed-in", BOTH, BridgeCase::In);
}

#[test]
fn brokers_that_are_killed_lose_nothing_on_the_way_out_to_one_of_several_servers() {
    killed("bridge-killed-several", BOTH, BridgeCase::OutToSeveral);
}

#[test]
fn rows_that_a_rule_sends_to_a_bridge_are_not_lost_and_not_doubled_by_kills() {
    let rule = "[[rule]]\nname = \"r\"\nsql = 'SELECT payload AS p FROM \"up/#\"'\n\
                send.to = [\"bridge/b\"]\nsend.topic = \"site/up/row\"\n\
                send.payload = \"${p}\"\n";
    killed("bridge-killed-rows", rule, BridgeCase::Out);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BridgeCase {
    In,
    Out,
    /// Outward to several servers, where only the process knows the unfinished QoS 2 exchanges.
    OutToSeveral,
}

/// Kills both brokers. Each acknowledged message must arrive at the other broker exactly once.
fn killed(name: &str, rules: &str, way: BridgeCase) {
    let is_outward = way != BridgeCase::In;
    let data = |side: &str| scratch(&format!("{name}-{side}")).display().to_string();
    let (near_data, far_data) = (data("near"), data("far"));
    let (near_url, far_url) = (nowhere(), nowhere());
    let far = || {
        let url = format!("tcp://{far_url}");
        TestBroker::start(&["--data", &far_data, "--listen", &url])
    };
    let near = || {
        let url = format!("tcp://{near_url}");
        let mut bridge = servers(far_url);
        if way == BridgeCase::OutToSeveral {
            let second = nowhere();
            bridge = format!("servers = [\"tcp://{far_url}\", \"tcp://{second}\"]\n");
        }
        edge(name, &(bridge + rules), &["--data", &near_data, "--listen", &url])
    };
    let (mut there, mut here) = (far(), near().0);
    here.program.wait_for("godwit::bridge connected");
    let (from, to, topic, filter) = match is_outward {
        true => (near_url, far_url, "up/x", "site/up/#"),
        false => (far_url, near_url, "site/down/x", "down/#"),
    };
    let to = to.port().to_string();
    let session = ["sub", "-p", &to, "-V", "5", "-i", "s", "-c", "-x", "-1", "-q", "2"];
    let wants = [&session[..], &["-t", filter]].concat();
    // A session from the beginning, whose client comes at the end.
    run(&[&wants[..], &["-E"]].concat());
    let port = from.port().to_string();
    let publish = |qos: &'static str, from: u32| {
        let port = port.clone();
        thread::spawn(move || {
            let message = |number: &u32| {
                let text = number.to_string();
                let arguments =
                    ["pub", "-p", &port, "-V", "5", "-t", topic, "-q", qos, "-m", &text];
                run(&arguments).0 == Some(0)
            };
            (from..from + 120).filter(message).collect::<Vec<u32>>()
        })
    };
    let publishers = [publish("1", 1000), publish("2", 2000)];
    for round in 0..6 {
        thread::sleep(Duration::from_millis(150 + 70 * round));
        match round % 2 {
            0 => {
                there.program.signal("KILL");
                drop(there);
                there = far();
            }
            _ => {
                here.program.signal("KILL");
                drop(here);
                here = near().0;
            }
        }
    }
    let acknowledged: Vec<u32> =
        publishers.into_iter().flat_map(|one| one.join().expect("it counts")).collect();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    wait_for_value(&here, "state", |value| value == "1");
    wait_until_done(&here);
    // Nobody here knows how much waits there.
    thread::sleep(Duration::from_secs(if is_outward { 0 } else { 2 }));
    let (_, printed, _) = run(&[&wants[..], &["-W", "3", "-F", "%p"]].concat());
    let came: Vec<u32> = printed.lines().map(|line| line.parse().expect("a number")).collect();
    for number in &acknowledged {
        assert!(came.contains(number), "{number} was acknowledged and is lost");
    }
    let exactly: Vec<&u32> = came.iter().filter(|number| **number >= 2000).collect();
    let mut once = exactly.clone();
    once.sort_unstable();
    once.dedup();
    if way != BridgeCase::OutToSeveral {
        assert_eq!(once.len(), exactly.len(), "QoS 2 came twice");
    }
    drop(there);
}

#[test]
fn options_change_and_only_their_bridge_notices() {
    let (one, other) = (TestBroker::start(&[]), TestBroker::start(&[]));
    let rules = "[[bridge.out]]\nfilter = \"up/#\"\n";
    let second = |address: SocketAddr, rules: &str| {
        format!("{rules}\n[[bridge]]\nname = \"c\"\n{}{rules}", servers(address))
    };
    let first = servers(one.address) + &second(other.address, rules);
    let (mut near, file) = edge("bridge-live", &first, &[]);
    wait_for_value(&near, "state", |value| value == "1");
    let more = "[[bridge.out]]\nfilter = \"more/#\"\n";
    write(&file, &(servers(one.address) + rules + more + &second(other.address, rules)));
    near.program.signal("HUP");
    near.program.wait_for("options read again");
    wait_for_value(&near, "connects", |value| value == "2");
    let port = near.port();
    let (_, found, _) =
        run(&["sub", "-p", &port, "-t", "$SYS/broker/bridge/c/connects", "-C", "1", "-W", "5"]);
    assert_eq!(found, "1\n", "the other one goes on");
    let sub = subscriber(&one, &["-t", "#", "-C", "1", "-F", "%t"]);
    publish(&port, &["-t", "more/x", "-m", "1", "-q", "1"]);
    assert_eq!(sub.finish(), (Some(0), "more/x\n".to_string()));
    // Taken out, it goes with its session, and what it said of itself goes too.
    let text = format!("[[bridge]]\nname = \"c\"\n{}{rules}", servers(other.address));
    std::fs::write(&file, text).unwrap();
    near.program.signal("HUP");
    near.program.wait_for("gone, with what it had queued");
    wait_for_value(&near, "state", str::is_empty);
    let shared = "[[bridge.out]]\nfilter = \"$share/g/a\"\n";
    write(&file, &(servers(one.address) + shared));
    near.program.signal("HUP");
    let line = near.program.wait_for("not reloaded");
    assert!(line.contains("a shared filter is for what comes in"), "{line}");
    std::fs::write(&file, "[[bridge]]\nname = \"c\"\n").unwrap();
    near.program.signal("HUP");
    let line = near.program.wait_for("not reloaded");
    assert!(line.contains("godwit.toml:1: a bridge needs servers"), "{line}");
}

#[test]
fn limits_of_a_queue_change_without_a_new_connection() {
    let far = TestBroker::start(&[]);
    let bridge = servers(far.address) + BOTH;
    let (mut near, file) = edge("bridge-limits", &bridge, &[]);
    wait_for_value(&near, "state", |value| value == "1");
    write(&file, &("queue.messages_max = 7\n".to_string() + &bridge));
    near.program.signal("HUP");
    let line = near.program.wait_for("options read again");
    assert!(line.contains("bridge"), "{line}");
    // Nor does what goes for all make it come and go.
    let more = "[connection]\nwrite_bytes_max = \"2MiB\"\n";
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, more.to_string() + &text).unwrap();
    near.program.signal("HUP");
    near.program.wait_for("options read again");
    assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
    drop(far);
    wait_for_value(&near, "state", |value| value == "0");
    publish(&near.port(), &["-t", "up/x", "-m", "1", "-q", "1", "--repeat", "10"]);
    wait_for_value(&near, "queue/messages", |value| value == "7");
    wait_for_value(&near, "dropped/queue_full", |value| value == "3");
}

#[test]
fn a_first_server_that_lets_nobody_in_does_not_take_a_bridge_from_its_backup() {
    // It accepts, and hangs up before CONNACK.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let backup = TestBroker::start(&[]);
    let all =
        format!("servers = [\"tcp://{first}\", \"tcp://{}\"]\nreturn_s = 1\n", backup.address);
    let (near, _) = edge("bridge-firm", &(all + BOTH), &[]);
    wait_for_value(&near, "state", |value| value == "1");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
}

#[test]
fn a_backup_is_used_until_the_first_server_is_back() {
    let first = nowhere();
    let backup = TestBroker::start(&[]);
    let all =
        format!("servers = [\"tcp://{first}\", \"tcp://{}\"]\nreturn_s = 1\n", backup.address);
    let (mut near, _) = edge("bridge-backup", &(all + BOTH), &[]);
    let line = near.program.wait_for("godwit::bridge connected");
    assert!(line.contains(&backup.address.to_string()), "{line}");
    let back = TestBroker::start(&["--listen", &format!("tcp://{first}")]);
    near.program.wait_for("goes back to its first server");
    let line = near.program.wait_for("godwit::bridge connected");
    assert!(line.contains(&first.to_string()), "{line}");
    drop(back);
    let line = near.program.wait_for("godwit::bridge connected");
    assert!(line.contains(&backup.address.to_string()), "{line}");
}

#[test]
fn a_line_that_died_is_noticed_and_nothing_on_it_is_lost() {
    let far = TestBroker::start(&[]);
    let line = FreezableProxy::to(far.address);
    let times = "
keep_alive_s = 1
answer_timeout_s = 1
connect_timeout_s = 1
status_topic = \"site/status\"
";
    let (mut near, _) = edge("bridge-dead", &(servers(line.address) + times + BOTH), &[]);
    near.program.wait_for("godwit::bridge connected");
    let sub = subscriber(&far, &["-t", "site/up/#", "-q", "2", "-C", "20", "-W", "15"]);
    let since = Instant::now();
    line.freeze();
    publish(&near.port(), &["-t", "up/x", "-m", "1", "-q", "1", "--repeat", "10"]);
    publish(&near.port(), &["-t", "up/x", "-m", "2", "-q", "2", "--repeat", "10"]);
    near.program.wait_for("no longer answers");
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    line.thaw();
    let (code, printed) = sub.finish();
    assert_eq!((code, printed.matches('2').count()), (Some(0), 10));
    let port = far.port();
    let (_, status, _) = run(&["sub", "-p", &port, "-t", "site/status", "-C", "1", "-W", "5"]);
    assert_eq!(status, "1\n");
    near.program.signal("TERM");
    assert_eq!(near.program.exit_code(), Some(0));
    let (_, status, _) = run(&["sub", "-p", &port, "-t", "site/status", "-C", "1", "-W", "5"]);
    assert_eq!(status, "0\n");
}

/// The kernel accepts much data at once, so a PINGREQ waits behind it on a slow connection. The
/// bridge must wait for PINGRESP as long as the data makes progress.
#[test]
fn a_question_that_stands_behind_much_is_waited_for_while_that_gets_on() {
    let addresses = [nowhere(), nowhere()];
    let listen = format!("tcp://{}", addresses[0]);
    let far =
        TestBroker::start(&["--listen", &listen, "--listen", &format!("ws://{}", addresses[1])]);
    for (scheme, address) in ["tcp", "ws"].into_iter().zip(addresses) {
        let line = FreezableProxy::slow(address, 200_000);
        let bridge = format!("servers = [\"{scheme}://{}\"]\n", line.address);
        let times = "keep_alive_s = 1\nanswer_timeout_s = 2\n";
        let name = format!("bridge-behind-{scheme}");
        let (mut near, _) = edge(&name, &(bridge + times + BOTH), &[]);
        near.program.wait_for("godwit::bridge connected");
        let sub = subscriber(&far, &["-t", "site/up/#", "-F", "%l", "-C", "100", "-W", "15"]);
        let words = "x".repeat(12_000);
        publish(&near.port(), &["-t", "up/x", "-m", &words, "--repeat", "100"]);
        let since = Instant::now();
        assert_eq!(sub.finish(), (Some(0), "12000\n".repeat(100)), "{scheme}");
        // Longer than a question is waited for that stands behind nothing.
        assert!(since.elapsed() > Duration::from_secs(4), "{:?}", since.elapsed());
        assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
    }
}

#[test]
fn every_carrier_leads_to_the_other_broker() {
    let folder = scratch("bridge-carriers-tls");
    certs::make(&folder).expect("certificates can be made");
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let schemes = ["tls", "ws", "wss", "quic"];
    let addresses = schemes.map(|_| nowhere());
    let mut arguments = vec![
        "--set".to_string(),
        format!("tls.certificate={certificate}"),
        "--set".to_string(),
        format!("tls.key={key}"),
    ];
    for (scheme, address) in schemes.iter().zip(addresses) {
        arguments.extend(["--listen".to_string(), format!("{scheme}://{address}")]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let far = TestBroker::start(&arguments);
    for (scheme, address) in schemes.iter().zip(addresses) {
        let port = address.port();
        let server = format!("servers = [\"{scheme}://localhost:{port}\"]\nkeep_alive_s = 1\n");
        let tls = if *scheme == "ws" { String::new() } else { format!("tls.ca = \"{ca}\"\n") };
        let (mut near, _) = edge("bridge-carriers", &(server + &tls + BOTH), &[]);
        near.program.wait_for("godwit::bridge connected");
        let form = ["-q", "2", "-C", "2", "-W", "20", "-F", "%p"];
        let up = subscriber(&far, &[&["-t", "site/up/#"], &form[..]].concat());
        let down = subscriber(&near, &[&["-t", "down/+"], &form[..]].concat());
        // The second has had time for a question whether anybody is there.
        for number in ["1", "2"] {
            publish(&near.port(), &["-t", "up/a", "-m", number, "-q", "2"]);
            publish(&far.port(), &["-t", "site/down/x", "-m", number, "-q", "1"]);
            thread::sleep(Duration::from_millis(1500));
        }
        assert_eq!(up.finish(), (Some(0), "1\n2\n".to_string()), "{scheme}");
        assert_eq!(down.finish(), (Some(0), "1\n2\n".to_string()), "{scheme}");
        if *scheme != "ws" {
            // It is not trusted without its CA.
            let server = format!("servers = [\"{scheme}://localhost:{port}\"]\n");
            let other = format!("tls.ca = \"{}\"\n", file("stranger.pem"));
            let (mut near, _) = edge("bridge-carriers-ca", &(server + &other + BOTH), &[]);
            let line = near.program.wait_for("not connected");
            assert!(line.contains("certificate"), "{line}");
        }
    }
}

#[test]
fn mosquitto_is_bridged_in_both_versions_without_echoes() {
    let Some(port) = mosquitto("bridge-mosquitto") else { return };
    for version in ["5.0", "3.1.1"] {
        let address: SocketAddr = ([127, 0, 0, 1], port.1).into();
        let rules = "[[bridge.out]]\nfilter = \"both/#\"\n[[bridge.in]]\nfilter = \"both/#\"\n";
        let bridge = format!("{}version = \"{version}\"\n{rules}", servers(address));
        let (mut near, _) = edge("bridge-mosquitto-near", &bridge, &[]);
        near.program.wait_for("godwit::bridge connected");
        let sub = subscriber(&near, &["-t", "both/#", "-q", "2", "-W", "2", "-F", "%p %q"]);
        for qos in ["0", "1", "2"] {
            publish(&near.port(), &["-t", "both/a", "-m", "out", "-q", qos]);
            publish(&port.1.to_string(), &["-t", "both/a", "-m", "in", "-q", qos]);
        }
        let (_, printed) = sub.finish();
        let mut lines: Vec<&str> = printed.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["in 0", "in 1", "in 2", "out 0", "out 1", "out 2"], "{version}");
    }
}

/// mosquitto's bridge publishes its notifications below `$SYS/` by default.
#[test]
fn mosquitto_bridges_to_us_in_both_versions() {
    for version in ["mqttv311", "mqttv50"] {
        let far = TestBroker::start(&[]);
        let more = format!(
            "connection {version}\naddress {}\nbridge_protocol_version {version}\n\
             topic up/# out 2\ntopic down/# in 2\nrestart_timeout 1\n",
            far.address
        );
        let Some((_mosquitto, port)) = mosquitto_with(&format!("bridge-{version}"), &more) else {
            return;
        };
        let port = port.to_string();
        let far_port = far.port();
        let state =
            ["sub", "-p", &far_port, "-t", "$SYS/broker/connection/#", "-C", "1", "-W", "20"];
        let (code, state, _) = run(&state);
        assert_eq!((code, state.as_str()), (Some(0), "1\n"), "{version}");
        let here = subscriber(&far, &["-t", "up/#", "-q", "2", "-C", "1", "-W", "20"]);
        publish(&port, &["-t", "up/x", "-m", version, "-q", "2"]);
        assert_eq!(here.finish(), (Some(0), format!("{version}\n")));
        let mut sub = TestProgram::start(godwit(&[
            "sub", "-p", &port, "-t", "down/#", "-q", "2", "-C", "1", "-W", "20", "-d",
        ]));
        sub.wait_for("SUBACK");
        publish(&far.port(), &["-t", "down/x", "-m", version, "-q", "2"]);
        assert_eq!(sub.finish(), (Some(0), format!("{version}\n")));
    }
}

/// In MQTT 3.1.1 a session with Clean Session 1 ends with its connection: to begin a new session,
/// the bridge connects twice.
#[test]
fn what_waits_at_a_broker_of_3_1_1_comes_after_the_first_kill_too() {
    let Some(port) = mosquitto("bridge-first") else { return };
    let address: SocketAddr = ([127, 0, 0, 1], port.1).into();
    let bridge = servers(address) + "version = \"3.1.1\"\nclient_id = \"first\"\n" + BOTH;
    let data = scratch("bridge-first-data").display().to_string();
    let (near, _) = edge("bridge-first-near", &bridge, &["--data", &data]);
    wait_for_value(&near, "state", |value| value == "1");
    let session = ["-V", "5", "-i", "s", "-c", "-x", "-1", "-q", "1", "-t", "down/#"];
    let near_port = near.port();
    run(&[&["sub", "-p", &near_port, "-E"], &session[..]].concat());
    near.program.signal("KILL");
    drop(near);
    publish(&port.1.to_string(), &["-t", "site/down/x", "-m", "waited", "-q", "1"]);
    let (near, _) = edge("bridge-first-near", &bridge, &["--data", &data]);
    let near_port = near.port();
    let wants = ["sub", "-p", &near_port, "-C", "1", "-W", "20"];
    let (code, came, _) = run(&[&wants[..], &session].concat());
    assert_eq!((code, came.as_str()), (Some(0), "waited\n"));
}

/// mosquitto disconnects a client after 1.5 times the keep-alive.
#[test]
fn a_quiet_bridge_stays_connected() {
    let Some(port) = mosquitto("bridge-quiet") else { return };
    let address: SocketAddr = ([127, 0, 0, 1], port.1).into();
    let bridge = servers(address) + "keep_alive_s = 2\nanswer_timeout_s = 10\n" + BOTH;
    let (near, _) = edge("bridge-quiet-near", &bridge, &[]);
    wait_for_value(&near, "state", |value| value == "1");
    thread::sleep(Duration::from_secs(7));
    assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
}

#[test]
fn our_own_broker_knows_the_mark_of_a_bridge() {
    let far = TestBroker::start(&[]);
    let rules = "[[bridge.out]]\nfilter = \"both/#\"\n[[bridge.in]]\nfilter = \"both/#\"\n";
    let bridge = format!("{}version = \"3.1.1\"\n{rules}", servers(far.address));
    let (near, _) = edge("bridge-mark", &bridge, &[]);
    wait_for_value(&near, "state", |value| value == "1");
    let sub = subscriber(&near, &["-t", "both/#", "-q", "1", "-W", "2", "-F", "%p"]);
    publish(&near.port(), &["-t", "both/a", "-m", "out", "-q", "1"]);
    publish(&far.port(), &["-t", "both/a", "-m", "in", "-q", "1"]);
    let (_, printed) = sub.finish();
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["in", "out"]);
}

#[test]
fn nobody_else_has_a_links_name() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    let wants = ["sub", "-p", &port, "-V", "5", "-i", "$link/bridge/b", "-t", "t", "-W", "2"];
    let (code, _, stderr) = run(&wants);
    assert_eq!(code, Some(0x85), "{stderr}");
}

/// Starts mosquitto on a free port. Returns `None` if mosquitto is not installed.
pub(crate) fn mosquitto(name: &str) -> Option<(TestProgram, u16)> {
    mosquitto_with(name, "")
}

pub(crate) fn mosquitto_with(name: &str, more: &str) -> Option<(TestProgram, u16)> {
    let program = installed("mosquitto", "mosquitto")?;
    let port = nowhere().port();
    let file = scratch(name).join("mosquitto.conf");
    std::fs::write(&file, format!("listener {port} 127.0.0.1\nallow_anonymous true\n{more}"))
        .expect("this host has room for it");
    let mut command = Command::new(program);
    command.args(["-c", &file.display().to_string()]);
    let started = TestProgram::start(command);
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "mosquitto does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    Some((started, port))
}
