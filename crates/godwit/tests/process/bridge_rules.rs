//! QoS, RETAIN and properties of messages that pass the rules of a bridge.

use crate::bridges::{BOTH, edge, servers, wait_for_value, wait_until_done};
use crate::broker::{TestBroker, run};
use crate::clients::{nowhere, publish, subscriber};
use std::thread;
use std::time::Duration;

#[test]
fn a_rule_says_how_much_qos_a_message_may_have_on_the_other_side() {
    let far = TestBroker::start(&[]);
    let mut rules = servers(far.address);
    for qos in ["0", "1", "2"] {
        rules += &format!(
            "[[bridge.out]]\nfilter = \"up{qos}\"\nqos = {qos}\n\
             [[bridge.in]]\nfilter = \"down{qos}\"\nqos = {qos}\n"
        );
    }
    let (mut near, _) = edge("rules-qos", &rules, &[]);
    near.program.wait_for("godwit::bridge connected");
    for (way, from, to) in [("up", &near, &far), ("down", &far, &near)] {
        for most in ["0", "1", "2"] {
            let topic = format!("{way}{most}");
            for qos in ["0", "1", "2"] {
                let wants = ["-t", &topic, "-q", "2", "-C", "1", "-W", "20", "-F", "%t %q"];
                let sub = subscriber(&to.port(), &wants);
                publish(&from.port(), &["-t", &topic, "-m", "x", "-q", qos]);
                let expected = format!("{topic} {}\n", most.min(qos));
                assert_eq!(sub.finish(), (Some(0), expected), "QoS {qos}");
            }
        }
    }
    wait_for_value(&near, "out/messages", |value| value == "9");
    wait_for_value(&near, "in/messages", |value| value == "9");
    wait_until_done(&near);
}

#[test]
fn what_comes_in_stays_retained_unless_the_rule_clears_that() {
    let far = TestBroker::start(&[]);
    let rules = "[[bridge.in]]\nfilter = \"keep/#\"\n\
                 [[bridge.in]]\nfilter = \"flag/#\"\nretain = \"clear\"\n";
    let (mut near, _) = edge("rules-clear", &(servers(far.address) + rules), &[]);
    near.program.wait_for("godwit::bridge connected");
    let form = ["-t", "keep/#", "-t", "flag/#", "-F", "%t %p %r"];
    let sub = subscriber(&near.port(), &[&form[..], &["-C", "2", "-W", "20"]].concat());
    publish(&far.port(), &["-t", "keep/a", "-m", "1", "-r", "-q", "1"]);
    publish(&far.port(), &["-t", "flag/a", "-m", "2", "-r", "-q", "1"]);
    assert_eq!(sub.finish(), (Some(0), "keep/a 1 0\nflag/a 2 0\n".to_string()));
    let (_, found, _) = run(&[&["sub", "-p", &near.port(), "-W", "1"], &form[..]].concat());
    assert_eq!(found, "keep/a 1 1\n");
}

const PROPERTIES: [&str; 11] = [
    "-D",
    "publish",
    "message-expiry-interval",
    "100",
    "-D",
    "publish",
    "user-property",
    "k",
    "v",
    "-V",
    "5",
];

/// Returns the topic and user properties of a retained message, and its remaining expiry in
/// seconds.
fn kept(broker: &TestBroker, topic: &str) -> (String, u32) {
    let wants = ["sub", "-p", &broker.port(), "-V", "5", "-t", topic, "-C", "1", "-W", "20"];
    let (code, found, _) = run(&[&wants[..], &["-F", "%t %P/%E"]].concat());
    assert_eq!(code, Some(0), "{topic} did not come");
    let (said, left) = found.trim().rsplit_once('/').expect("the form has it");
    (said.to_string(), left.parse().expect("a number of seconds"))
}

#[test]
fn expiry_and_user_properties_go_over_both_ways() {
    let far = TestBroker::start(&[]);
    let (mut near, _) = edge("rules-properties", &(servers(far.address) + BOTH), &[]);
    near.program.wait_for("godwit::bridge connected");
    let message = |topic| [&["-t", topic, "-m", "x", "-r", "-q", "1"], &PROPERTIES[..]].concat();
    publish(&near.port(), &message("up/a"));
    publish(&far.port(), &message("site/down/a"));
    for (broker, topic) in [(&far, "site/up/a"), (&near, "down/a")] {
        let (said, left) = kept(broker, topic);
        assert_eq!(said, format!("{topic} k:v"));
        assert!((80..=100).contains(&left), "{left}");
    }
}

/// The Message Expiry Interval at the remote broker is reduced by the time that the message waited.
#[test]
fn what_has_waited_has_so_much_less_time_left() {
    let address = nowhere();
    let (mut near, _) = edge("rules-waited", &(servers(address) + BOTH), &[]);
    near.program.wait_for("not connected");
    publish(&near.port(), &[&["-t", "up/a", "-m", "x", "-r", "-q", "1"], &PROPERTIES[..]].concat());
    thread::sleep(Duration::from_secs(4));
    let far = TestBroker::start(&["--listen", &format!("tcp://{address}")]);
    let far = TestBroker { address, program: far.program };
    wait_for_value(&near, "out/messages", |value| value == "1");
    let (said, left) = kept(&far, "site/up/a");
    assert_eq!(said, "site/up/a k:v");
    assert!((70..=96).contains(&left), "{left}");
}
