//! Messages that wait for a bridge: limits, loss, and survival of restarts and reloads.

use crate::bridge_peers::publish_lines;
use crate::bridges::{BOTH, edge, mosquitto, servers, wait_for_value, wait_until_done, write};
use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::clients::{self, nowhere};
use crate::line::FreezableProxy;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const OUT: &str = "[[bridge.out]]\nfilter = \"up/#\"\n";

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

/// The remote session is still subscribed to a filter that was removed from the file while the
/// process was down. Messages of that filter are counted as dropped.
#[test]
fn what_a_filter_brings_that_left_while_nobody_ran_is_let_go_and_counted() {
    let far = TestBroker::start(&[]);
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
    let hears = |near: &TestBroker| clients::subscriber(&near.port(), &["-t", "#", "-C", "1"]);
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

/// mosquitto accepts 20 unfinished QoS 2 messages, cannot announce the limit in MQTT 3.1.1, and
/// closes the connection above the limit.
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
        let mut sub = TestProgram::start(godwit(&wants));
        sub.wait_for("SUBACK");
        let burst = ["-t", "up/x", "-m", "%", "-q", "2", "-M", "500", "--repeat", "900"];
        clients::publish(&near.port(), &burst);
        let (code, printed) = sub.finish();
        assert_eq!((code, printed.lines().count()), (Some(0), 900), "{version}");
        wait_until_done(&near);
        assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "1", "{version}");
    }
}

/// The number of messages counted as dropped is the number of messages that do not arrive.
#[test]
fn a_queue_that_is_full_of_bytes_keeps_what_its_policy_says() {
    let far = TestBroker::start(&[]);
    let all: Vec<String> = (0..20).map(|n| format!("{n:02}{}", "x".repeat(8000))).collect();
    let packet = ["--set", "connection.packet_bytes_max=64KiB"];
    for (policy, is_kept) in [
        ("drop_oldest", (|n, kept| n >= 20 - kept) as fn(usize, usize) -> bool),
        ("drop_newest", |n, kept| n < kept),
    ] {
        let more = format!("queue.bytes_max = \"64KiB\"\nqueue.policy = \"{policy}\"\n{OUT}");
        let (mut near, file) = edge("bridge-full", &(servers(nowhere()) + &more), &packet);
        near.program.wait_for("not connected");
        publish_lines(&near.port(), "up/x", "1", &all);
        // Eight have room.
        let is_right = |value: &str| ["12", "13"].contains(&value);
        let dropped = wait_for_value(&near, "dropped/queue_full", is_right);
        let kept = 20 - dropped.parse::<usize>().expect("it is a number");
        wait_for_value(&near, "queue/messages", |value| value == kept.to_string());
        wait_for_value(&near, "queue/bytes", |value| {
            value.parse().is_ok_and(|bytes: u32| (56_000..=65_536).contains(&bytes))
        });
        let count = kept.to_string();
        let sub = clients::subscriber(&far.port(), &["-t", "up/#", "-q", "1", "-C", &count]);
        write(&file, &(servers(far.address) + &more));
        near.program.signal("HUP");
        let (code, came) = sub.finish();
        let wanted: Vec<&String> = (0..20).filter(|n| is_kept(*n, kept)).map(|n| &all[n]).collect();
        assert!(code == Some(0) && came.lines().eq(wanted), "{policy}: {}", came.len());
        wait_for_value(&near, "out/messages", |value| value == count);
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

/// QoS 2 messages in progress with the only server that has ever been reachable must not be
/// attributed to another server of the bridge after a kill.
#[test]
fn qos_2_from_one_of_several_servers_comes_once_through_a_kill() {
    let far = TestBroker::start(&["--set", "queue.messages_max=100000"]);
    let line = FreezableProxy::to(far.address);
    let data = scratch("bridge-half-data").display().to_string();
    let servers = format!("servers = [\"tcp://{}\", \"tcp://{}\"]\n", line.address, nowhere());
    let more = ["--data", &data, "--set", "queue.messages_max=100000"];
    let run_near = || edge("bridge-half", &(servers.clone() + BOTH), &more).0;
    let near = run_near();
    wait_for_value(&near, "state", |value| value == "1");
    let session = ["-V", "5", "-i", "s", "-c", "-x", "-1", "-q", "2", "-t", "down/#"];
    run(&[&["sub", "-p", &near.port(), "-E"], &session[..]].concat());
    // What is taken here from now on the other broker does not hear of.
    line.mute();
    let burst = ["-t", "site/down/x", "-m", "x", "-q", "2", "-M", "500", "--repeat", "5000"];
    clients::publish(&far.port(), &burst);
    wait_for_value(&near, "in/messages", |value| value.parse().is_ok_and(|count: u32| count > 0));
    near.program.signal("KILL");
    drop(near);
    line.thaw();
    let near = run_near();
    let (_, came, _) = run(&[&["sub", "-p", &near.port(), "-W", "5"], &session[..]].concat());
    assert_eq!(came.lines().count(), 5000);
}

/// A new local session must not use a remote session that an earlier local session began, whatever
/// the number of restarts before the bridge reaches that server: the packet ids of QoS 2 messages
/// would refer to other messages.
#[test]
fn each_of_several_servers_is_begun_anew_by_a_new_session_through_a_restart() {
    let (first, second) = (TestBroker::start(&[]), TestBroker::start(&[]));
    let data = scratch("bridge-unmet-data").display().to_string();
    let run_near = |all: &[SocketAddr]| {
        let all: Vec<_> = all.iter().map(|one| format!("\"tcp://{one}\"")).collect();
        let servers = format!("servers = [{}]\n", all.join(", "));
        edge("bridge-unmet", &(servers + BOTH), &["--data", &data]).0
    };
    let end = |mut near: TestBroker| {
        near.program.wait_for("godwit::bridge connected");
        near.program.signal("TERM");
        near.program.exit_code();
    };
    end(run_near(&[second.address]));
    let publish = |payload: &str| {
        clients::publish(&second.port(), &["-t", "site/down/x", "-m", payload, "-q", "1"]);
    };
    publish("old");
    std::fs::remove_dir_all(&data).expect("it is this test's own");
    let both = [first.address, second.address];
    let near = run_near(&both);
    let session = ["-V", "5", "-i", "s", "-c", "-x", "-1", "-q", "2", "-t", "down/#"];
    run(&[&["sub", "-p", &near.port(), "-E"], &session[..]].concat());
    end(near);
    drop(first);
    let near = run_near(&both);
    wait_for_value(&near, "state", |value| value == "1");
    publish("new");
    let wants = ["sub", "-p", &near.port(), "-C", "1", "-W", "20"];
    let (code, came, _) = run(&[&wants[..], &session].concat());
    assert_eq!((code, came.as_str()), (Some(0), "new\n"));
    // And no more than once.
    end(near);
    publish("waited");
    let near = run_near(&both);
    let wants = ["sub", "-p", &near.port(), "-C", "1", "-W", "20"];
    let (code, came, _) = run(&[&wants[..], &session].concat());
    assert_eq!((code, came.as_str()), (Some(0), "waited\n"));
}

/// Queued messages survive a change of the server, and an additional rule, for which the bridge has
/// to subscribe again.
#[test]
fn what_waits_stays_when_rules_change() {
    let bridge = |rules: &str| servers(nowhere()) + "queue.qos0 = true\n" + OUT + rules;
    let (mut near, file) = edge("bridge-waits", &bridge(""), &[]);
    near.program.wait_for("not connected");
    for qos in ["0", "1", "2"] {
        let messages = ["-t", "up/x", "-m", "x", "-q", qos, "--repeat", "3"];
        clients::publish(&near.port(), &messages);
    }
    wait_for_value(&near, "queue/messages", |value| value == "9");
    let change = |near: &mut TestBroker, rules: &str| {
        write(&file, &bridge(rules));
        near.program.signal("HUP");
        near.program.wait_for("options read again");
        near.program.wait_for("not connected");
        thread::sleep(Duration::from_millis(1500));
    };
    change(&mut near, "");
    wait_for_value(&near, "queue/messages", |value| value == "9");
    change(&mut near, "[[bridge.out]]\nfilter = \"more/#\"\n");
    wait_for_value(&near, "queue/messages", |value| value == "9");
}

#[test]
fn a_filter_that_left_while_nobody_ran_brings_nothing_to_its_session_any_more() {
    let far = TestBroker::start(&[]);
    let data = scratch("bridge-out-left-data").display().to_string();
    let run_near = |rules: &str| {
        let bridge = servers(far.address) + OUT + rules;
        let (near, _) = edge("bridge-out-left", &bridge, &["--data", &data]);
        wait_for_value(&near, "state", |value| value == "1");
        near
    };
    let heard = || clients::subscriber(&far.port(), &["-t", "#", "-C", "1", "-F", "%t"]);
    let publish = |near: &TestBroker, topic: &str| {
        clients::publish(&near.port(), &["-t", topic, "-m", "x", "-q", "1"]);
    };
    let mut near = run_near("[[bridge.out]]\nfilter = \"more/#\"\n");
    let sub = heard();
    publish(&near, "more/x");
    assert_eq!(sub.finish(), (Some(0), "more/x\n".to_string()));
    near.program.signal("TERM");
    near.program.exit_code();
    let near = run_near("");
    let sub = heard();
    publish(&near, "more/x");
    publish(&near, "up/x");
    assert_eq!(sub.finish(), (Some(0), "up/x\n".to_string()));
    wait_for_value(&near, "out/messages", |value| value == "1");
    wait_for_value(&near, "dropped/no_rule", |value| value == "0" || value.is_empty());
}

/// The kernel of the stopped broker still accepts data, so writes of the bridge succeed although
/// the broker does not answer.
#[test]
fn a_broker_that_hangs_is_noticed_while_something_is_said_to_it() {
    let far = TestBroker::start(&[]);
    let times = "keep_alive_s = 1\nanswer_timeout_s = 1\nconnect_timeout_s = 1\n";
    let (mut near, _) = edge("bridge-hangs", &(servers(far.address) + times + OUT), &[]);
    near.program.wait_for("godwit::bridge connected");
    far.program.signal("STOP");
    let said = ["-t", "up/x", "-m", "x", "--repeat", "150", "--repeat-delay", "0.2"];
    let _says = TestProgram::start(godwit(&[&["pub", "-p", &near.port()], &said[..]].concat()));
    let since = Instant::now();
    near.program.wait_for("no longer answers");
    assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
    far.program.signal("CONT");
}

/// A retained message of QoS 0 is in no queue, so the bridge requests the retained messages of a
/// new rule once the remote broker is reachable, also after a kill that came before.
#[test]
fn what_is_retained_reaches_a_new_rule_however_late_its_broker_comes() {
    for is_disk in [false, true] {
        let data = scratch("bridge-fresh-data").display().to_string();
        let more: &[&str] = if is_disk { &["--data", &data] } else { &[] };
        let address = nowhere();
        let options = |rules: &str| servers(address) + OUT + rules;
        let (mut near, file) = edge("bridge-fresh", &options(""), more);
        for qos in ["0", "1", "2"] {
            let topic = format!("keep/{qos}");
            clients::publish(&near.port(), &["-t", &topic, "-m", "x", "-q", qos, "-r"]);
        }
        let rules = options("[[bridge.out]]\nfilter = \"keep/#\"\n");
        write(&file, &rules);
        near.program.signal("HUP");
        near.program.wait_for("options read again");
        near.program.wait_for("not connected");
        let again = |mut near: TestBroker, signal: &str| {
            near.program.signal(signal);
            near.program.exit_code();
            edge("bridge-fresh", &rules, more).0
        };
        if is_disk {
            near = again(near, "KILL");
            near.program.wait_for("not connected");
        } else {
            // What changes meanwhile comes as what it was published as, and not once more.
            thread::sleep(Duration::from_millis(200));
            clients::publish(&near.port(), &["-t", "keep/2", "-m", "y", "-q", "2", "-r"]);
        }
        let far = TestBroker::start(&["--listen", &format!("tcp://{address}")]);
        let at = address.port().to_string();
        let wants = ["sub", "-p", &at, "-t", "#", "-q", "2", "-F", "%t %q", "-W"];
        let (_, came, _) = run(&[&wants[..], &["10", "-C", "3"]].concat());
        let mut came: Vec<&str> = came.lines().collect();
        came.sort_unstable();
        assert_eq!(came, ["keep/0 0", "keep/1 1", "keep/2 2"], "disk: {is_disk}");
        wait_for_value(&near, "out/messages", |value| value == "3");
        wait_until_done(&near);
        // Once: the next connection does not bring it again, nor does the next process.
        drop(far);
        if is_disk {
            near = again(near, "TERM");
        }
        near.program.wait_for("not connected");
        let _far = TestBroker::start(&["--listen", &format!("tcp://{address}")]);
        clients::publish(&near.port(), &["-t", "up/x", "-m", "x", "-q", "1", "-r"]);
        wait_for_value(&near, "state", |value| value == "1");
        let (_, came, _) = run(&[&wants[..], &["2"]].concat());
        assert_eq!(came, "up/x 1\n", "disk: {is_disk}");
    }
}
