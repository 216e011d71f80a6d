//! What waits for a bridge, and how long.

use crate::bridges::{BOTH, edge, mosquitto, servers, wait_for_value};
use crate::broker::{Broker, Program, godwit, scratch};
use crate::clients;
use std::net::SocketAddr;

const OUT: &str = "[[bridge.out]]\nfilter = \"up/#\"\n";

fn nowhere() -> SocketAddr {
    let port = clients::unused_port().parse().expect("a port");
    ([127, 0, 0, 1], port).into()
}

#[test]
fn what_has_waited_too_long_goes_though_nobody_publishes() {
    let bridge = servers(nowhere()) + "queue.age_s_max = 2\n" + OUT;
    let (mut near, _) = edge("bridge-age", &bridge, &[]);
    near.program.wait_for("not connected");
    clients::publish(&near.port(), &["-t", "up/x", "-m", "%", "-q", "1", "--repeat", "5"]);
    wait_for_value(&near, "queue/messages", |value| value == "5");
    wait_for_value(&near, "dropped/expired", |value| value == "5");
    assert_eq!(wait_for_value(&near, "queue/oldest_ms", |value| !value.is_empty()), "0");
}

/// The other broker's session is subscribed still, and nobody here remembers to what.
#[test]
fn what_a_filter_brings_that_left_while_nobody_ran_is_let_go_and_counted() {
    let far = Broker::start(&[]);
    let data = scratch("bridge-left-data").display().to_string();
    let left = "[[bridge.in]]\nfilter = \"site/old/+\"\ntopic = \"old/${1}\"\n";
    let run = |rules: &str| {
        let (mut near, _) =
            edge("bridge-left", &(servers(far.address) + rules), &["--data", &data]);
        near.program.wait_for("godwit::bridge connected");
        // What goes out waits until the other broker has answered what was asked of it.
        clients::publish(&near.port(), &["-t", "up/ready", "-m", "x", "-q", "1"]);
        wait_for_value(&near, "out/messages", |value| value == "1");
        near
    };
    let publish = |topic: &str, qos: &str| {
        clients::publish(&far.port(), &["-t", topic, "-m", "x", "-q", qos]);
    };
    let mut near = run(&(BOTH.to_string() + left));
    let hears = |near: &Broker| clients::subscriber(&near.port(), &["-t", "#", "-C", "1"]);
    let sub = hears(&near);
    publish("site/old/x", "1");
    assert_eq!(sub.finish(), (Some(0), "x\n".to_string()), "it is subscribed");
    near.program.signal("TERM");
    near.program.exit_code();
    // They wait there, and what comes later comes too.
    ["1", "2"].iter().for_each(|qos| publish("site/old/x", qos));
    let mut near = run(BOTH);
    wait_for_value(&near, "dropped/no_rule", |value| value == "2");
    let form = ["-t", "#", "-C", "1", "-F", "%t"];
    let sub = clients::subscriber(&near.port(), &form);
    publish("site/old/y", "2");
    publish("site/down/y", "2");
    assert_eq!(sub.finish(), (Some(0), "down/y\n".to_string()));
    wait_for_value(&near, "dropped/no_rule", |value| value == "3");
    // The other broker is done with all of them: nothing comes again.
    near.program.signal("TERM");
    near.program.exit_code();
    let near = run(BOTH);
    let sub = clients::subscriber(&near.port(), &form);
    publish("site/down/z", "1");
    assert_eq!(sub.finish(), (Some(0), "down/z\n".to_string()));
    wait_for_value(&near, "in/messages", |value| value == "1");
    wait_for_value(&near, "dropped/no_rule", |value| value == "0" || value.is_empty());
}

/// It takes 20 unfinished messages of QoS 2, which it cannot say in 3.1.1, and hangs up above.
#[test]
fn a_burst_to_mosquitto_gets_through_in_both_versions() {
    for version in ["3.1.1", "5.0"] {
        let Some((_mosquitto, port)) = mosquitto(&format!("bridge-burst-{version}")) else {
            return;
        };
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        let bridge = servers(address) + &format!("version = \"{version}\"\n") + OUT;
        let (near, _) = edge("bridge-burst", &bridge, &[]);
        wait_for_value(&near, "state", |value| value == "1");
        let port = port.to_string();
        let wants = ["sub", "-p", &port, "-t", "up/#", "-q", "2", "-C", "900", "-W", "20", "-d"];
        let mut sub = Program::start(godwit(&wants));
        sub.wait_for("SUBACK");
        let burst = ["-t", "up/x", "-m", "%", "-q", "2", "-M", "500", "--repeat", "900"];
        clients::publish(&near.port(), &burst);
        let (code, printed) = sub.finish();
        assert_eq!((code, printed.lines().count()), (Some(0), 900), "{version}");
        wait_for_value(&near, "queue/in_flight", |value| value == "0");
        assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1", "{version}");
    }
}

#[test]
fn what_a_queue_kept_is_counted_after_a_start_too() {
    let data = scratch("bridge-kept-data").display().to_string();
    let bridge = servers(nowhere()) + OUT;
    for kept in [30, 60] {
        let (mut near, _) = edge("bridge-kept", &bridge, &["--data", &data]);
        near.program.wait_for("not connected");
        clients::publish(&near.port(), &["-t", "up/x", "-m", "x", "-q", "1", "--repeat", "30"]);
        // Where its session was connected to once more, one of them is under way.
        let is_right = |value: &str| value.parse().is_ok_and(|count: u32| count + 1 >= kept);
        wait_for_value(&near, "queue/messages", is_right);
        near.program.signal("KILL");
    }
}
