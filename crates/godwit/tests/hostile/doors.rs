//! Attacks on combined transports (WebSocket over TLS, unix sockets), on passwords, and on access
//! rules. The healthy client uses plain MQTT on the same shards.

use crate::SEED;
use crate::broker::HostileTestBroker;
use crate::handshakes::{client, start_with};
use crate::peer::{RawMqttPeer, hello, open};
use crate::web::{CONNECT, UPGRADE};
use mqtt::{QoS, ReasonCode};
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

type TlsTestStream = StreamOwned<ClientConnection, TcpStream>;

/// Opens a TLS connection and completes the handshake.
fn sealed(address: SocketAddr) -> TlsTestStream {
    let (mut stream, mut conn) = (open(address), client());
    while conn.is_handshaking() {
        conn.complete_io(&mut stream).expect("it is a good handshake");
    }
    StreamOwned::new(conn, stream)
}

fn end(mut stream: TlsTestStream) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = stream.sock.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn requests_and_frames_inside_tls_end_in_time_and_within_the_memory() {
    let (broker, address) = start_with("wss", &["connect.timeout_ms=2000"]);
    broker.withstand("wss", |_| {
        let began = Instant::now();
        let lines = [&b"X: y\r\n"[..], b"GET", b"\r\n", b"X", b"a b\n\n"];
        for round in 0..100 {
            let mut stream = sealed(address);
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
            let endless = lines[round % 5].repeat(1000);
            let _ = (0..20).try_for_each(|_| stream.write_all(&endless));
            let said = end(stream);
            assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 4"), "{said:x?}");
        }
        // Silent behind the handshake, in a request, upgraded, and in the middle of a frame.
        let head = [b"GET / HTTP/1.1\r\nX: ", &[b'y'; 8000][..]].concat();
        let parts = [&b""[..], &head, UPGRADE, &[UPGRADE, &CONNECT[..10]].concat()];
        let mut streams: Vec<TlsTestStream> = (0..200).map(|_| sealed(address)).collect();
        for (at, stream) in streams.iter_mut().enumerate() {
            let _ = stream.write_all(parts[at % 4]);
        }
        for mut stream in streams {
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    });
}

#[test]
fn fragments_inside_tls_cost_nothing_but_their_bytes() {
    let (broker, address) = start_with("wss", &[]);
    broker.withstand("fragments in wss", |_| {
        let mut streams: Vec<TlsTestStream> = (0..10).map(|_| sealed(address)).collect();
        for stream in &mut streams {
            stream.write_all(&[UPGRADE, CONNECT].concat()).expect("it reads");
            // A PUBLISH of 1 MB begins, in frames of one byte, of none, and pings between.
            stream.write_all(b"\x02\x84\0\0\0\0\x30\xc0\x84\x3d").expect("it reads");
        }
        let mixed = b"\0\x80\0\0\0\0\0\x81\0\0\0\0x\x89\x80\0\0\0\0".repeat(2_000);
        for _ in 0..10 {
            for stream in &mut streams {
                stream.write_all(&mixed).expect("it reads on");
            }
        }
        streams.into_iter().for_each(|stream| _ = end(stream));
    });
}

#[test]
fn garbage_and_silence_on_a_unix_socket_end_in_time() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hostile.sock");
    let listen = format!("listen=unix://{}", path.display());
    let broker = HostileTestBroker::start(&[&listen, "connect.timeout_ms=2000"]);
    broker.withstand("unix", |_| {
        let open = || {
            let stream = UnixStream::connect(&path).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
            stream
        };
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut draw = |below: usize| rng.usize(..below);
        let connect = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c";
        for round in 0..2000 {
            let mut stream = open();
            let mut bytes: Vec<u8> = (0..draw(3000)).map(|_| draw(256) as u8).collect();
            if round % 2 == 0 {
                bytes = [&connect[..], &bytes].concat();
            }
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let began = Instant::now();
        let mut silent: Vec<UnixStream> = (0..2000).map(|_| open()).collect();
        for (at, stream) in silent.iter_mut().enumerate() {
            let _ = stream.write_all(&connect[..at % connect.len()]);
        }
        for mut stream in silent {
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    });
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Creates a user file with one user, whose password no attack guesses.
fn users(name: &str) -> String {
    let file = scratch(name);
    let _ = std::fs::remove_file(&file);
    let mut passwd = Command::new(env!("CARGO_BIN_EXE_godwit"));
    passwd.args(["passwd", "-b"]).arg(&file).args(["ann", "secret"]);
    assert!(passwd.status().expect("it runs").success());
    format!("auth.users={}", file.display())
}

/// Sends CONNECT with a wrong password on `many` connections at a time. Returns the reason codes of
/// the responses.
fn guess(address: SocketAddr, many: usize) -> Vec<ReasonCode> {
    let mut peers: Vec<RawMqttPeer> = (0..many).map(|_| RawMqttPeer::open(address)).collect();
    for (at, peer) in peers.iter_mut().enumerate() {
        let (client_id, password) = (format!("guess{at}"), format!("secret{at}"));
        let (user_name, password) = (Some("ann"), Some(password.as_bytes()));
        let connect = mqtt::Connect { user_name, password, ..hello(&client_id) };
        peer.send(mqtt::Packet::Connect(connect));
    }
    peers.iter_mut().map(|peer| peer.welcome()).collect()
}

#[test]
fn guessing_passwords_costs_whoever_guesses() {
    let broker = HostileTestBroker::start(&[
        &users("hostile-users"),
        "allow_anonymous=true",
        "auth.failures_max=0",
        "auth.queue_max=20",
        "auth.timeout_ms=20000",
    ]);
    // Argon2id takes 19 MiB for each that is being looked at, beside what the options allow.
    broker.withstand_latency("guesses", |broker| {
        let mut wrong = 0;
        for _ in 0..20 {
            for reason in guess(broker.address, 50) {
                // Whoever is one too many is not looked at.
                let known = [ReasonCode::BadUserNameOrPassword, ReasonCode::ServerBusy];
                assert!(known.contains(&reason), "{reason:?}");
                wrong += usize::from(reason == ReasonCode::BadUserNameOrPassword);
            }
        }
        assert!(wrong >= 100, "{wrong} were looked at");
    });
}

#[test]
fn who_guesses_too_often_is_not_heard_any_more() {
    let options = ["allow_anonymous=true", "auth.failures_max=5", "auth.timeout_ms=20000"];
    let users = users("hostile-users-barred");
    let broker = HostileTestBroker::start(&[&[&*users][..], &options].concat());
    broker.withstand_latency("barred guesses", |broker| {
        let mut looked_at = 0;
        for _ in 0..40 {
            let said = guess(broker.address, 50);
            looked_at +=
                said.iter().filter(|one| **one == ReasonCode::BadUserNameOrPassword).count();
        }
        // Those who were looked at together when the last one failed, and what time gave back.
        assert!((5..20).contains(&looked_at), "{looked_at} of 2,000");
    });
}

#[test]
fn filters_without_number_under_a_thousand_rules_stall_no_shard() {
    let file = scratch("hostile-acl.toml");
    let mut rules = String::new();
    for at in 0..1000 {
        rules += &format!("[[rule]]\ndeny = \"all\"\ntopic = \"+/secret/{at}/#\"\n");
    }
    rules += "[[rule]]\nallow = \"all\"\n";
    std::fs::write(&file, rules).expect("it can be written");
    let acl = format!("acl.file={}", file.display());
    let broker = HostileTestBroker::start(&[
        &acl,
        "memory.bytes_max=512MiB",
        "connection.packet_bytes_max=2MiB",
    ]);
    broker.withstand_latency("filters under rules", |broker| {
        for round in 0..10 {
            let mut peer = RawMqttPeer::connect(broker.address, hello(&format!("wide{round}")));
            let filters: Vec<String> = (0..10_000).map(|at| format!("+/{at}")).collect();
            let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
            let codes = peer.subscribe(&filters, QoS::AtMostOnce);
            let granted = codes.iter().filter(|code| **code == 0).count();
            assert!((500..=600).contains(&granted), "{granted}");
            let refused = codes.iter().filter(|code| **code == 0x97).count();
            assert_eq!(granted + refused, filters.len());
        }
    });
}
