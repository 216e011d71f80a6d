//! Brokers whose bridges form a ring: a looping message is stopped, counted and logged, and every
//! message of a client reaches every broker.

use crate::bridges::{edge, mosquitto_with, servers, wait_for_value};
use crate::broker::{TestBroker, run};
use crate::clients::{nowhere, publish, subscriber};
use std::net::SocketAddr;

const BOTH_WAYS: &str = "[[bridge.out]]\nfilter = \"#\"\n[[bridge.in]]\nfilter = \"#\"\n";

/// Bound of the copies of one message. A message may pass the ring a few times before it is
/// recognized; without loop detection there are thousands of copies per second.
const ROUNDS_MAX: usize = 100;

/// Starts a broker on the address `own` with a bridge to `next`, which forwards in both directions.
fn link(name: &str, own: SocketAddr, next: SocketAddr, version: &str) -> TestBroker {
    link_by_rules(name, own, next, version, BOTH_WAYS)
}

fn link_by_rules(
    name: &str,
    own: SocketAddr,
    next: SocketAddr,
    version: &str,
    rules: &str,
) -> TestBroker {
    let url = format!("tcp://{own}");
    let bridge =
        format!("client_id = \"{name}\"\nversion = \"{version}\"\n{}{rules}", servers(next));
    edge(&format!("ring-{name}"), &bridge, &["--listen", &url]).0
}

/// Starts a ring of brokers, one for each protocol version of its bridge: each is bridged to the
/// next, and the last to the first.
fn ring(name: &str, versions: &[&str]) -> Vec<TestBroker> {
    ring_by_rules(name, &versions.iter().map(|version| (*version, BOTH_WAYS)).collect::<Vec<_>>())
}

/// Starts a ring of brokers with these protocol versions and rules of their bridges.
fn ring_by_rules(name: &str, versions: &[(&str, &str)]) -> Vec<TestBroker> {
    let all: Vec<SocketAddr> = versions.iter().map(|_| nowhere()).collect();
    let next = all.iter().cycle().skip(1);
    let each = all.iter().zip(next).zip(versions).enumerate();
    let brokers: Vec<TestBroker> = each
        .map(|(at, ((own, next), (version, rules)))| {
            link_by_rules(&format!("{name}-{at}"), *own, *next, version, rules)
        })
        .collect();
    brokers.iter().for_each(wait_until_up);
    brokers
}

fn wait_until_up(broker: &TestBroker) {
    wait_for_value(broker, "state", |value| value == "1");
}

/// Returns the messages below `ring/` that a subscriber receives within four seconds, while
/// `publishes` runs.
fn heard(port: &str, qos: &str, publishes: impl Fn()) -> Vec<String> {
    let sub = subscriber(port, &["-t", "ring/#", "-q", qos, "-W", "4"]);
    publishes();
    sub.finish().1.lines().map(str::to_string).collect()
}

fn loops(brokers: &[TestBroker]) -> u64 {
    let value = |broker: &TestBroker| {
        let (port, topic) = (broker.port(), "$SYS/broker/bridge/b/dropped/loop");
        let (_, found, _) = run(&["sub", "-p", &port, "-t", topic, "-C", "1", "-W", "3"]);
        found.trim().parse::<u64>().unwrap_or_default()
    };
    brokers.iter().map(value).sum()
}

fn stops(name: &str, versions: &[&str]) {
    let mut brokers = ring(name, versions);
    let (first, last) = (brokers[0].port(), brokers[brokers.len() - 1].port());
    for qos in ["0", "1", "2"] {
        let word = format!("{name}-{qos}");
        let lines = heard(&first, qos, || {
            publish(&last, &["-t", "ring/t", "-q", qos, "-m", &word]);
        });
        assert!(lines.iter().all(|line| *line == word), "{lines:?}");
        assert!((1..ROUNDS_MAX).contains(&lines.len()), "{word} came {} times", lines.len());
    }
    // What is retained goes round as well.
    let lines = heard(&first, "1", || {
        publish(&last, &["-t", "ring/r", "-q", "1", "-r", "-m", "kept"]);
    });
    assert!((1..ROUNDS_MAX).contains(&lines.len()), "it came {} times", lines.len());
    assert!(loops(&brokers) > 0);
    let is_named = |broker: &mut TestBroker| broker.program.has_said("reason=loop");
    assert!(brokers.iter_mut().any(is_named));
}

#[test]
fn rings_of_5_0_come_to_an_end() {
    for count in [2, 3, 4] {
        stops(&format!("five-{count}"), &vec!["5.0"; count]);
    }
}

#[test]
fn rings_of_3_1_1_come_to_an_end() {
    for count in [2, 3, 4] {
        stops(&format!("three-{count}"), &vec!["3.1.1"; count]);
    }
}

#[test]
fn rings_of_both_versions_come_to_an_end() {
    stops("mixed-2", &["5.0", "3.1.1"]);
    stops("mixed-3", &["5.0", "3.1.1", "5.0"]);
    stops("mixed-4", &["3.1.1", "5.0", "3.1.1", "5.0"]);
}

/// Rules that add a level to the topic: as a prefix, as a suffix, and in the inward direction.
const ADDED: &str = r##"[[bridge.out]]
filter = "#"
topic = "x/${topic}"
[[bridge.in]]
filter = "#"
"##;
const ADDED_BEHIND: &str = r##"[[bridge.out]]
filter = "#"
topic = "${topic}/y"
[[bridge.in]]
filter = "#"
topic = "z/${topic}"
"##;
/// A rule that adds a prefix in the outward direction. The next bridge of the ring removes the
/// prefix.
const ADDED_OUT: &str = "[[bridge.out]]\nfilter = \"#\"\ntopic = \"site/${topic}\"\n";
const TAKEN_OUT: &str = "[[bridge.out]]\nfilter = \"site/#\"\ntopic = \"${1}\"\n";

/// Publishes one message at the last broker, or at the first if the last one only removes a prefix.
/// Returns all messages that a subscriber of `#` at the first broker receives.
fn heard_of_one(name: &str, versions: &[(&str, &str)]) -> (Vec<String>, Vec<TestBroker>) {
    let brokers = ring_by_rules(name, versions);
    let sub = subscriber(&brokers[0].port(), &["-t", "#", "-q", "1", "-v", "-W", "4"]);
    // Nothing comes from the last one where it only takes a prefix away.
    let at = if versions[1].1 == TAKEN_OUT { 0 } else { brokers.len() - 1 };
    publish(&brokers[at].port(), &["-t", "ring/t", "-q", "1", "-m", "hi"]);
    (sub.finish().1.lines().map(str::to_string).collect(), brokers)
}

#[test]
fn rings_that_change_topics_come_to_an_end() {
    let (five, three) = ("5.0", "3.1.1");
    let rings: [(&str, &[(&str, &str)]); 8] = [
        ("added-5", &[(five, ADDED), (five, ADDED)]),
        ("added-3", &[(three, ADDED), (three, ADDED)]),
        ("added-5-3", &[(five, ADDED), (three, BOTH_WAYS)]),
        ("added-3-5", &[(three, ADDED), (five, BOTH_WAYS)]),
        ("behind-5", &[(five, ADDED_BEHIND), (five, BOTH_WAYS), (five, BOTH_WAYS)]),
        ("behind-3", &[(three, ADDED_BEHIND), (three, BOTH_WAYS)]),
        ("back-5", &[(five, ADDED_OUT), (five, TAKEN_OUT)]),
        ("back-3", &[(three, ADDED_OUT), (three, TAKEN_OUT)]),
    ];
    for (name, versions) in rings {
        let (lines, mut brokers) = heard_of_one(name, versions);
        assert!((1..20).contains(&lines.len()), "{name}: {} {lines:?}", lines.len());
        // An end by topic.levels_max would be a message that is refused.
        let is_refused = |broker: &mut TestBroker| broker.program.has_said("Topic Name invalid");
        assert!(!brokers.iter_mut().any(is_refused), "{name}");
        assert!(loops(&brokers) > 0, "{name}");
    }
}

/// Each bridge has only inward rules, so each broker reads from the next. The broker of the
/// publisher must detect the ring.
#[test]
fn rings_of_inward_rules_come_to_an_end() {
    const INWARD: &str = "[[bridge.in]]\nfilter = \"#\"\n";
    let others = "[[bridge.out]]\nfilter = \"other/#\"\n[[bridge.in]]\nfilter = \"ring/#\"\n";
    for (name, version, rules, count) in [
        ("fetched-2", "3.1.1", INWARD, 2),
        ("fetched-3", "3.1.1", INWARD, 3),
        ("fetched-5", "5.0", INWARD, 2),
        ("fetched-others", "3.1.1", others, 2),
    ] {
        let brokers = ring_by_rules(name, &vec![(version, rules); count]);
        let lines = heard(&brokers[0].port(), "2", || {
            for (at, qos) in ["0", "1", "2"].into_iter().enumerate() {
                let publisher = brokers[at % count].port();
                publish(&publisher, &["-t", "ring/t", "-q", qos, "-m", qos]);
            }
        });
        for qos in ["0", "1", "2"] {
            let came = lines.iter().filter(|line| *line == qos).count();
            assert!((1..ROUNDS_MAX).contains(&came), "{name}, QoS {qos}: {came}");
        }
        assert!(loops(&brokers) > 0, "{name}");
    }
}

/// Without a ring, a bridge with only inward rules must not stop equal messages, even if local
/// clients publish to the topics to which the bridge writes.
#[test]
fn a_bridge_that_only_fetches_loses_no_equal_message() {
    let far = TestBroker::start(&[]);
    let rules = "[[bridge.in]]\nfilter = \"ring/#\"\ntopic = \"far/${topic}\"\n";
    let near = link_by_rules("fetch-line", nowhere(), far.address, "3.1.1", rules);
    wait_until_up(&near);
    let sub = subscriber(&near.port(), &["-t", "far/#", "-q", "1", "-W", "4"]);
    publish(&far.port(), &["-t", "ring/t", "-q", "1", "-m", "same", "--repeat", "300"]);
    for _ in 0..3 {
        publish(&near.port(), &["-t", "far/ring/u", "-q", "1", "-m", "here"]);
        publish(&far.port(), &["-t", "ring/u", "-q", "1", "-m", "here", "--repeat", "9"]);
    }
    assert_eq!(sub.finish().1.lines().count(), 300 + 3 * 10);
    for topic in ["dropped/loop", "dropped/no_rule"] {
        let topic = format!("$SYS/broker/bridge/b/{topic}");
        let (_, found, _) = run(&["sub", "-p", &near.port(), "-t", &topic, "-C", "1", "-W", "3"]);
        assert_eq!(found.trim(), "0", "{topic}");
    }
}

/// Two godwit brokers and a mosquitto in a ring: the first is bridged to mosquitto, the second to
/// both.
#[test]
fn rings_through_mosquitto_come_to_an_end() {
    for version in ["5.0", "3.1.1"] {
        let theirs = mosquitto_with(&format!("ring-theirs-{version}"), "max_queued_messages 0\n");
        let Some((_theirs, port)) = theirs else { return };
        let theirs = SocketAddr::from(([127, 0, 0, 1], port));
        let (one, other) = (nowhere(), nowhere());
        let first = link("strangers-1", one, theirs, version);
        let url = format!("tcp://{other}");
        let both = format!(
            "client_id = \"strangers-2\"\nversion = \"{version}\"\n{}{BOTH_WAYS}\
             [[bridge]]\nname = \"c\"\nclient_id = \"strangers-3\"\nversion = \"{version}\"\n\
             {}{BOTH_WAYS}",
            servers(one),
            servers(theirs)
        );
        let second = edge("ring-strangers-2", &both, &["--listen", &url]).0;
        [&first, &second].into_iter().for_each(wait_until_up);
        for from in [one, other, theirs] {
            let word = format!("{version}-{}", from.port());
            let lines = heard(&first.port(), "1", || {
                let port = from.port().to_string();
                publish(&port, &["-t", "ring/t", "-q", "1", "-m", &word]);
            });
            assert!((1..ROUNDS_MAX).contains(&lines.len()), "{word} came {} times", lines.len());
        }
    }
}

/// A sensor may publish the same value many times; each is a message of its own and must not count
/// as a loop.
#[test]
fn equal_messages_of_a_client_all_go_over_whatever_the_ring() {
    const COUNT: usize = 300;
    for version in ["5.0", "3.1.1"] {
        let brokers = ring(&format!("equal-{version}"), &[version; 3]);
        let [first, second, third] = [0, 1, 2].map(|at| brokers[at].port());
        let subs =
            [&first, &second].map(|port| subscriber(port, &["-t", "ring/#", "-q", "1", "-W", "6"]));
        let count = COUNT.to_string();
        let pace = ["--repeat", &count, "--repeat-delay", "0.005"];
        publish(&third, &[&["-t", "ring/t", "-q", "1", "-m", "same"][..], &pace].concat());
        for sub in subs {
            let lines = sub.finish().1.lines().count();
            assert!((COUNT..COUNT * 20).contains(&lines), "{lines} with {version}");
        }
        assert!(loops(&brokers) > 0, "it is a ring");
    }
    // And nothing is taken for a loop where there is none.
    for version in ["5.0", "3.1.1"] {
        let far = TestBroker::start(&[]);
        let near = link(&format!("line-{version}"), nowhere(), far.address, version);
        wait_until_up(&near);
        for (from, to) in [(near.port(), far.port()), (far.port(), near.port())] {
            let sub = subscriber(&to, &["-t", "ring/#", "-q", "1", "-W", "4"]);
            publish(&from, &["-t", "ring/t", "-q", "1", "-m", "same", "--repeat", "300"]);
            assert_eq!(sub.finish().1.lines().count(), COUNT, "{version}");
        }
        assert_eq!(loops(&[near]), 0);
    }
}
