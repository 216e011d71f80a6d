//! Reported state of a bridge: queue in messages, bytes and age, throughput, the last error, and
//! the pauses between attempts to connect.

use crate::bridges::{BOTH, edge, servers, wait_for_value};
use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::clients::{nowhere, publish};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

fn number(broker: &TestBroker, value: &str, is_right: impl Fn(u64) -> bool) -> u64 {
    let found = wait_for_value(broker, value, |found| found.parse().is_ok_and(&is_right));
    found.parse().expect("it was one")
}

/// After a restart, messages that exist only in the store count like the messages in memory.
#[test]
fn what_waits_is_told_in_messages_bytes_and_time_through_a_kill_too() {
    let data = scratch("state-waits-data").display().to_string();
    let run_near = || {
        let bridge = servers(nowhere()) + BOTH;
        let (mut near, _) = edge("state-waits", &bridge, &["--data", &data]);
        near.program.wait_for("not connected");
        near
    };
    let near = run_near();
    let payload = "x".repeat(1000);
    publish(&near.port(), &["-t", "up/x", "-m", &payload, "-q", "1", "--repeat", "5"]);
    let since = Instant::now();
    number(&near, "queue/messages", |count| count == 5);
    let bytes = number(&near, "queue/bytes", |bytes| bytes > 0);
    assert!((5 * 1000..5 * 1100).contains(&bytes), "{bytes}");
    let oldest = number(&near, "queue/oldest_ms", |age| age >= 2000);
    assert!(oldest <= since.elapsed().as_millis() as u64 + 2000, "{oldest}");
    near.program.signal("KILL");
    drop(near);
    let near = run_near();
    let age = since.elapsed().as_millis() as u64;
    // One of them was under way when its session was looked at.
    number(&near, "queue/messages", |count| count == 4 || count == 5);
    let bytes = number(&near, "queue/bytes", |bytes| bytes > 0);
    assert!((4 * 1000..5 * 1100).contains(&bytes), "{bytes}");
    let oldest = number(&near, "queue/oldest_ms", |age| age > 0);
    assert!((age - 1000..age + 10_000).contains(&oldest), "{oldest} after {age}");
}

#[test]
fn rates_are_told_while_messages_flow_and_go_down_to_nothing() {
    let far = TestBroker::start(&[]);
    let (mut near, _) = edge("state-rates", &(servers(far.address) + BOTH), &[]);
    near.program.wait_for("godwit::bridge connected");
    let flow = |port: &str, topic: &str| {
        let message = ["pub", "-p", port, "-t", topic, "-m", "x"];
        let pace = ["--repeat", "1000", "--repeat-delay", "0.05"];
        TestProgram::start(godwit(&[&message[..], &pace].concat()))
    };
    let is_about = |value: &str| value.parse().is_ok_and(|rate: f64| (4.0..40.0).contains(&rate));
    let out = flow(&near.port(), "up/x");
    wait_for_value(&near, "out/messages_per_s", is_about);
    assert_eq!(wait_for_value(&near, "in/messages_per_s", |value| !value.is_empty()), "0.0");
    drop(out);
    let _inward = flow(&far.port(), "site/down/x");
    wait_for_value(&near, "in/messages_per_s", is_about);
    wait_for_value(&near, "out/messages_per_s", |value| value == "0.0");
}

#[test]
fn why_a_server_refuses_is_the_last_error() {
    let users = scratch("state-refused-users").join("users").display().to_string();
    assert_eq!(run(&["passwd", "-b", &users, "bob", "bobsecret"]).0, Some(0));
    let far = TestBroker::start(&["--set", &format!("auth.users={users}")]);
    let who = "user_name = \"ann\"\npassword = \"annsecret\"\n";
    let (mut near, _) = edge("state-refused", &(servers(far.address) + who + BOTH), &[]);
    let line = near.program.wait_for("not connected");
    let said = wait_for_value(&near, "last_error", |value| !value.is_empty());
    assert!(said.contains(&far.address.to_string()), "{said}");
    let why = said.rsplit(": ").next().expect("it has an end");
    assert!(
        why.to_lowercase().contains("bad user name or password") && line.contains(why),
        "{said}, {line}"
    );
    assert!(!said.contains("annsecret") && !line.contains("annsecret"), "{line}");
    assert_eq!(wait_for_value(&near, "connects", |value| !value.is_empty()), "0");
}

/// The pause starts at `retry_min_ms`, doubles with each attempt up to `retry_max_s`, and is
/// shortened at random by up to one half.
#[test]
fn a_bridge_that_is_refused_waits_longer_and_longer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("this host has room for it");
    let address = listener.local_addr().expect("it is bound");
    let (came, attempts) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            if came.send(Instant::now()).is_err() {
                return;
            }
            drop(stream);
        }
    });
    let (_near, _) = edge("state-waits-longer", &(servers(address) + BOTH), &[]);
    let next = || attempts.recv_timeout(Duration::from_secs(10)).expect("it tries again");
    let times: Vec<Instant> = (0..8).map(|_| next()).collect();
    let gaps: Vec<u128> = times.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
    for (gap, whole) in gaps.iter().zip([50, 100, 200, 400, 800, 1000, 1000]) {
        // A busy host may take some time for an attempt, and be late with the one before.
        let least = u128::saturating_sub(whole / 2, 100);
        assert!((least..whole + 1000).contains(gap), "{gaps:?}");
    }
}

/// Over plain TCP the shard itself relays the messages, so the thread with the task of the bridge
/// must not wake.
#[test]
fn no_thread_but_the_shards_wakes_for_messages_over_plain_tcp() {
    const COUNT: u64 = 1000;
    let far = TestBroker::start(&[]);
    let (near, _) = edge("state-hosted", &(servers(far.address) + BOTH), &[]);
    wait_for_value(&near, "state", |state| state == "1");
    let count = COUNT.to_string();
    let slow = ["--repeat", &count, "--repeat-delay", "0.002"];
    publish(&near.port(), &["-t", "up/x", "-m", "first", "-q", "1"]);
    number(&near, "out/messages", |out| out >= 1);
    let before = wake_ups(near.program.id(), "control");
    publish(&near.port(), &[&["-t", "up/x", "-m", "next", "-q", "1"][..], &slow].concat());
    number(&near, "out/messages", |out| out > COUNT);
    let more = wake_ups(near.program.id(), "control") - before;
    assert!(more < COUNT / 4, "{more} wake-ups for {COUNT} messages");
}

/// Returns the number of voluntary context switches of all threads with this name.
fn wake_ups(process: u32, name: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let of_thread = |thread: std::path::PathBuf| {
        let comm = std::fs::read_to_string(thread.join("comm")).ok()?;
        let status = std::fs::read_to_string(thread.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        (comm.trim() == name).then(|| line.trim().parse::<u64>().ok())?
    };
    threads.flatten().filter_map(|thread| of_thread(thread.path())).sum()
}
