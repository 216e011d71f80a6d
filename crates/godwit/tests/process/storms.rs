//! Many clients that reconnect at the same time: the cost in CPU time of the broker.

use crate::broker::{TestBroker, TestProgram, run, scratch};
use crate::doors::{CONNACK, ListenerBroker};
use crate::web::{frame, upgrade};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Creates a user file with the user ann and the password "secret", hashed with `--strong`.
fn users(name: &str) -> PathBuf {
    let file = scratch(name).join("users");
    let path = file.to_str().expect("a path in UTF-8");
    assert_eq!(run(&["passwd", "--strong", "-b", path, "ann", "secret"]).0, Some(0));
    file
}

fn start(file: &Path, more: &[&str]) -> TestBroker {
    let users = format!("auth.users={}", file.display());
    let mut set = vec!["--set", &users, "--set", "auth.failures_max=off", "--shards", "2"];
    more.iter().for_each(|option| set.extend(["--set", option]));
    TestBroker::start(&set)
}

/// Encodes a CONNECT of MQTT 3.1.1 with the client id `c{id}` and the user name ann.
fn connect(id: usize, password: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let body = [
        &text("MQTT")[..],
        &[4, 0xC2, 0, 60],
        &text(&format!("c{id}")),
        &text("ann"),
        &text(password),
    ];
    let body = body.concat();
    [&[0x10, body.len() as u8], &body[..]].concat()
}

/// Connects and sends CONNECT, without reading the response.
fn begin(address: SocketAddr, id: usize, password: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the kernel takes it");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    stream.write_all(&connect(id, password)).expect("it is open");
    stream
}

fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut came = vec![0; CONNACK.len()];
    stream.read_exact(&mut came).expect("an answer");
    came
}

/// Returns the CPU time of the process so far, in clock ticks.
fn cpu_ticks(program: &TestProgram) -> u64 {
    let path = format!("/proc/{}/stat", program.id());
    let stat = std::fs::read_to_string(path).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in brackets");
    let fields = fields.split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// Waits until the process is idle. Returns its CPU time, in clock ticks.
fn ticks_at_rest(program: &TestProgram) -> u64 {
    let mut before = cpu_ticks(program);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(300));
        let now = cpu_ticks(program);
        if now <= before + 1 {
            break;
        }
        before = now;
    }
    cpu_ticks(program)
}

/// Returns the CPU time, in clock ticks, of logins with wrong passwords: each costs one hash.
fn ticks_of_hashing(program: &TestProgram, address: SocketAddr, logins: usize) -> u64 {
    let before = cpu_ticks(program);
    for id in 0..logins {
        assert_eq!(answer(&mut begin(address, id, "wrong")), b"\x20\x02\0\x04");
    }
    cpu_ticks(program) - before
}

#[cfg(target_os = "linux")]
#[test]
fn clients_that_have_gone_cost_no_hashes() {
    let broker = start(&users("storms-gone"), &["auth.threads=1", "auth.password_cache_s=off"]);
    let hundred = ticks_of_hashing(&broker.program, broker.address, 100);
    let before = cpu_ticks(&broker.program);
    for id in 0..400 {
        drop(begin(broker.address, id, "secret"));
    }
    assert_eq!(answer(&mut begin(broker.address, 1000, "secret")), CONNACK);
    // Another one behind it: the queue is empty now.
    assert_eq!(answer(&mut begin(broker.address, 1001, "secret")), CONNACK);
    let spent = ticks_at_rest(&broker.program) - before;
    assert!(spent < 2 * hundred, "{spent} ticks for 400 that have gone, {hundred} for 100 hashes");
}

/// The broker must notice behind a WebSocket, too, that a client has closed the connection while
/// its password waits to be hashed.
#[cfg(target_os = "linux")]
#[test]
fn clients_over_websocket_that_have_gone_cost_no_hashes() {
    let users = format!("auth.users={}", users("storms-web").display());
    let listen = ["--listen", "tcp://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"];
    let set = ["auth.threads=1", "auth.password_cache_s=off", "auth.failures_max=off", &users];
    let set: Vec<&str> = set.iter().flat_map(|option| ["--set", option]).collect();
    let broker = ListenerBroker::start(&[&listen[..], &set].concat());
    let address = format!("127.0.0.1:{}", broker.port(0)).parse().expect("an address");
    let port = broker.port(1);
    let hundred = ticks_of_hashing(&broker.program, address, 100);
    let before = cpu_ticks(&broker.program);
    for id in 0..400 {
        let mut client = upgrade(&port);
        client.write_all(&frame(0x82, &connect(id, "secret"))).expect("it is open");
        if id % 2 == 0 {
            // With a goodbye of the layer as well.
            client.write_all(&frame(0x88, &1000_u16.to_be_bytes())).expect("it is open");
        }
        drop(client);
    }
    assert_eq!(answer(&mut begin(address, 1000, "secret")), CONNACK);
    assert_eq!(answer(&mut begin(address, 1001, "secret")), CONNACK);
    let spent = ticks_at_rest(&broker.program) - before;
    assert!(spent < 2 * hundred, "{spent} ticks for 400 that have gone, {hundred} for 100 hashes");
}

#[cfg(target_os = "linux")]
#[test]
fn a_fleet_with_one_password_is_hashed_once() {
    let broker = start(&users("storms-same"), &[]);
    let hundred = ticks_of_hashing(&broker.program, broker.address, 100);
    let before = cpu_ticks(&broker.program);
    let mut fleet: Vec<_> = (0..500).map(|id| begin(broker.address, id, "secret")).collect();
    assert!(fleet.iter_mut().all(|stream| answer(stream) == CONNACK));
    let spent = cpu_ticks(&broker.program) - before;
    assert!(spent < 2 * hundred, "{spent} ticks for 500 logins, {hundred} for 100 hashes");
    // A wrong password is not helped by a right one.
    let again = ticks_of_hashing(&broker.program, broker.address, 20);
    assert!(again >= hundred / 20, "{again} ticks for 20 hashes, {hundred} for 100");
}

#[test]
fn a_password_that_was_changed_is_not_remembered() {
    let file = users("storms-changed");
    let path = file.to_str().expect("a path in UTF-8");
    let mut broker = start(&file, &[]);
    assert_eq!(answer(&mut begin(broker.address, 1, "secret")), CONNACK);
    assert_eq!(answer(&mut begin(broker.address, 2, "secret")), CONNACK);
    assert_eq!(run(&["passwd", "-b", path, "ann", "other"]).0, Some(0));
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    assert_eq!(answer(&mut begin(broker.address, 3, "secret")), b"\x20\x02\0\x04");
    assert_eq!(answer(&mut begin(broker.address, 4, "other")), CONNACK);
}
