//! Bridges over an impaired network, which loses, delays and reorders packets, is slow, or is cut
//! without a close. Each test has its own emulated network, and is skipped on a host that cannot
//! have one.

use crate::bridges::{BOTH, edge, mosquitto_with, wait_for_value, wait_until_done};
use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::certs;
use crate::installed::leave_out;
use netem::{IMPAIRED_SERVER_ADDRESS, ImpairedNetwork, NetworkConditions, SERVER_ADDRESS};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Conditions of a bad connection between two continents.
const ROUGH: NetworkConditions = NetworkConditions {
    delay: Duration::from_millis(100),
    loss_percent: 2.0,
    reorder_percent: 3.0,
    reorder_delay: Duration::from_millis(20),
    bytes_per_s: 0,
    is_cut: false,
};
/// Timeouts of the bridge: a connection that is silent for two seconds counts as dead.
const TIMES: &str = "keep_alive_s = 1\nanswer_timeout_s = 1\nconnect_timeout_s = 3\n";
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
/// Tolerance of the time limits on a host that is busy with other tests.
const LEEWAY: Duration = Duration::from_secs(1);
/// Number of messages of each QoS in each direction: so many before the cut, and so many during the
/// cut.
const COUNT: u32 = 150;

fn bad_line(weather: NetworkConditions) -> Option<ImpairedNetwork> {
    if let Some(why) = netem::unavailable_reason() {
        leave_out(&why);
        return None;
    }
    // Each run has other weather, and says which where it fails.
    let seed = u64::from(std::process::id());
    eprintln!("the weather's seed is {seed}");
    Some(ImpairedNetwork::open(weather, seed).expect("nothing is missing"))
}

/// A remote broker behind the impaired network, and the options of a bridge that connects to it.
struct EmulatedRemote {
    /// Port of the remote broker at its own end of the network, for clients that bypass the
    /// impairment.
    port: String,
    bridge: String,
    _broker: Box<dyn std::any::Any>,
}

impl EmulatedRemote {
    fn tcp() -> EmulatedRemote {
        // At both ends of the line.
        let url = "tcp://0.0.0.0:1883";
        let broker = TestBroker::start(&["--listen", url, "--set", "allow_anonymous=true"]);
        EmulatedRemote::of(
            broker,
            format!("servers = [\"tcp://{IMPAIRED_SERVER_ADDRESS}:1883\"]\n"),
        )
    }

    fn quic(name: &str) -> EmulatedRemote {
        let folder = scratch(&format!("{name}-tls"));
        certs::make(&folder).expect("certificates can be made");
        let file = |name: &str| folder.join(name).display().to_string();
        let url = format!("quic://{SERVER_ADDRESS}:14567");
        let certificate = format!("tls.certificate={}", file("server.pem"));
        let key = format!("tls.key={}", file("server.key"));
        let open = "allow_anonymous=true";
        let broker = TestBroker::start(&[
            "--listen",
            &url,
            "--set",
            &certificate,
            "--set",
            &key,
            "--set",
            open,
        ]);
        let bridge = format!(
            "servers = [\"quic://{IMPAIRED_SERVER_ADDRESS}:14567\"]\ntls.ca = \"{}\"\n\
             tls.server_name = \"localhost\"\n",
            file("ca.pem")
        );
        EmulatedRemote::of(broker, bridge)
    }

    fn of(broker: TestBroker, bridge: String) -> EmulatedRemote {
        EmulatedRemote { port: broker.port(), bridge, _broker: Box::new(broker) }
    }

    fn mosquitto(name: &str) -> Option<EmulatedRemote> {
        let (program, port) = mosquitto_with(
            name,
            &format!("listener 1883 {SERVER_ADDRESS}\nmax_inflight_messages 500\n"),
        )?;
        let bridge = format!("servers = [\"tcp://{IMPAIRED_SERVER_ADDRESS}:1883\"]\n");
        Some(EmulatedRemote { port: port.to_string(), bridge, _broker: Box::new(program) })
    }
}

#[test]
fn nothing_is_lost_over_tcp() {
    let Some(line) = bad_line(ROUGH) else { return };
    everything_gets_across("bad-line-tcp", &line, &EmulatedRemote::tcp());
}

#[test]
fn nothing_is_lost_over_quic() {
    let Some(line) = bad_line(ROUGH) else { return };
    everything_gets_across("bad-line-quic", &line, &EmulatedRemote::quic("bad-line-quic"));
}

#[test]
fn nothing_is_lost_on_the_way_to_mosquitto() {
    let Some(line) = bad_line(ROUGH) else { return };
    let Some(far) = EmulatedRemote::mosquitto("bad-line-mosquitto-far") else { return };
    everything_gets_across("bad-line-mosquitto", &line, &far);
}

/// Checks a bridge over a network that is impaired and cut for a while: QoS 1 messages arrive at
/// least once, QoS 2 messages exactly once, both in order, and the bridge notices the cut within
/// its timeout.
fn everything_gets_across(name: &str, line: &ImpairedNetwork, far: &EmulatedRemote) {
    let bridge = format!("{TIMES}{}{BOTH}", far.bridge);
    let (mut near, _) = edge(name, &bridge, &[]);
    near.program.wait_for("godwit::bridge connected");
    let near_port = near.port();
    // It has asked for what comes in, and nobody knows when that gets there.
    let came = || wait_for_value(&near, "in/messages", |value| !value.is_empty());
    while came() == "0" {
        run(&["pub", "-p", &far.port, "-t", "site/down/0", "-m", "x", "-q", "0"]);
    }
    let before: u32 = came().parse().expect("a number");
    // Sessions from the beginning, whose clients come at the end.
    let sessions = [(&far.port, "site/up/+"), (&near_port, "down/+")];
    let collect = |(port, filter): (&str, &str), more: &[&str]| {
        let session = ["sub", "-p", port, "-V", "5", "-i", "s", "-c", "-x", "-1", "-q", "2"];
        run(&[&session[..], &["-t", filter, "-F", "%t %p"], more].concat()).1
    };
    sessions.iter().for_each(|(port, filter)| _ = collect((port, filter), &["-E"]));
    let publishers = |from: u32| {
        let to = [("up/1", &near_port), ("up/2", &near_port), ("site/down/1", &far.port)];
        let to = to.into_iter().chain([("site/down/2", &far.port)]);
        to.map(|(topic, port)| publish(port, topic, from)).collect::<Vec<_>>()
    };
    publishers(0).into_iter().for_each(|one| one.join().expect("it publishes"));
    let second = publishers(COUNT);
    thread::sleep(Duration::from_millis(300));
    line.cut();
    let since = Instant::now();
    near.program.wait_for("not connected");
    assert!(since.elapsed() < NOTICED_WITHIN + LEEWAY, "{:?}", since.elapsed());
    second.into_iter().for_each(|one| one.join().expect("it publishes"));
    line.restore();
    near.program.wait_for("godwit::bridge connected");
    let is_all = |value: &str| value.parse().is_ok_and(|all: u32| all >= before + 4 * COUNT);
    wait_for_value(&near, "in/messages", is_all);
    wait_until_done(&near);
    // What was repeated is counted twice, so the last ones may still be on their way.
    thread::sleep(Duration::from_secs(2));
    for (port, filter) in sessions {
        let came = collect((port, filter), &["-W", "2"]);
        let of = |qos: &str| {
            let lines = came.lines().filter_map(|line| line.split_once(' '));
            let mine = lines.filter(|(topic, _)| topic.ends_with(qos));
            mine.map(|(_, number)| number.parse().expect("a number")).collect::<Vec<u32>>()
        };
        let all: Vec<u32> = (0..2 * COUNT).collect();
        assert_eq!(of("2"), all, "{filter}: QoS 2 comes once and in its order");
        let mut first = Vec::new();
        for number in of("1") {
            if !first.contains(&number) {
                first.push(number);
            }
        }
        assert_eq!(first, all, "{filter}: QoS 1 comes in its order");
    }
    let counts = line.counts();
    assert!(counts.lost.load(Relaxed) > 0 && counts.late.load(Relaxed) > 0, "{counts:?}");
}

/// Publishes the numbers from `from` on, `COUNT` in all, one every ten milliseconds, at the QoS
/// given by the last character of the topic.
fn publish(port: &str, topic: &'static str, from: u32) -> JoinHandle<()> {
    let port = port.to_string();
    thread::spawn(move || {
        let qos = &topic[topic.len() - 1..];
        let arguments = ["pub", "-p", &port, "-V", "5", "-t", topic, "-q", qos, "-l"];
        let mut program = TestProgram::start(godwit(&arguments));
        for number in from..from + COUNT {
            program.write(&format!("{number}\n"));
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(program.finish().0, Some(0), "{topic}");
    })
}

/// Buffers of the network accept QoS 0 messages long after the remote broker has become
/// unreachable, so writes that succeed do not prove that the connection works.
#[test]
fn a_dead_line_is_noticed_though_words_go_into_it() {
    let Some(line) = bad_line(NetworkConditions {
        delay: Duration::from_millis(20),
        ..NetworkConditions::default()
    }) else {
        return;
    };
    let fars = [EmulatedRemote::tcp(), EmulatedRemote::quic("bad-line-into")];
    let nears = fars.iter().enumerate().map(|(at, far)| {
        let bridge = format!("{TIMES}{}{BOTH}", far.bridge);
        let (mut near, _) = edge(&format!("bad-line-into-{at}"), &bridge, &[]);
        near.program.wait_for("godwit::bridge connected");
        let port = near.port();
        let words = "x".repeat(200);
        let mut command = godwit(&["pub", "-p", &port, "-t", "up/x", "-m", &words]);
        command.args(["--repeat", "1000", "--repeat-delay", "0.01"]);
        (near, TestProgram::start(command))
    });
    let nears: Vec<(TestBroker, TestProgram)> = nears.collect();
    thread::sleep(Duration::from_millis(500));
    line.cut();
    let since = Instant::now();
    for (mut near, _publisher) in nears {
        near.program.wait_for("not connected");
        assert!(since.elapsed() < NOTICED_WITHIN + LEEWAY, "{:?}", since.elapsed());
    }
}

/// On a slow network the response to PINGREQ waits behind the messages that were sent before. The
/// bridge must not take the delay for a dead connection.
#[test]
fn a_slow_line_is_not_taken_for_a_dead_one() {
    let weather = NetworkConditions { bytes_per_s: 30_000, ..NetworkConditions::default() };
    let Some(_line) = bad_line(weather) else { return };
    let far = EmulatedRemote::tcp();
    let bridge = format!("keep_alive_s = 1\nanswer_timeout_s = 3\n{}{BOTH}", far.bridge);
    let (mut near, _) = edge("bad-line-slow", &bridge, &[]);
    near.program.wait_for("godwit::bridge connected");
    let session = ["sub", "-p", &far.port, "-t", "site/up/#", "-d", "-F", "%l", "-W", "20"];
    let mut sub = TestProgram::start(godwit(&[&session[..], &["-C", "250"]].concat()));
    sub.wait_for("SUBACK");
    let words = "x".repeat(1000);
    run(&["pub", "-p", &near.port(), "-t", "up/x", "-m", &words, "--repeat", "250"]);
    let came = sub.finish();
    if came != (Some(0), "1000\n".repeat(250)) {
        // Fails with all that it said.
        near.program.wait_for(&format!("{} of 250 came", came.1.lines().count()));
    }
    assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1");
}
