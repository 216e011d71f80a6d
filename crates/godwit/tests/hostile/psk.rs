//! Attacks on PSK handshakes, written byte by byte: OpenSSL implements them, so its memory and its
//! timeouts are tested. Only in a build with the feature `psk`.

use crate::SEED;
use crate::broker::HostileTestBroker;
use crate::peer::{all_are_ended, end, open};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

/// Returns a file of keys, written only once, because a running broker may read the file.
fn keys() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let write = || {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hostile-keys");
        std::fs::write(&file, "sensor-7:0badc0ffee0badc0ffee0badc0ffee01\n").expect("a folder");
        file
    };
    FILE.get_or_init(write).clone()
}

fn start(more: &[&str]) -> (HostileTestBroker, SocketAddr) {
    let keys = format!("tls.psk_file={}", keys().display());
    let broker =
        HostileTestBroker::start(&[&["listen=tls://127.0.0.1:0", &*keys][..], more].concat());
    let address = broker.address_of("tls://");
    (broker, address)
}

/// Encodes a record of TLS 1.2.
fn record(kind: u8, words: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3, (words.len() >> 8) as u8, words.len() as u8][..], words].concat()
}

/// Encodes a handshake message in its own record.
fn message(kind: u8, words: &[u8]) -> Vec<u8> {
    let len = (words.len() as u32).to_be_bytes();
    record(22, &[&[kind], &len[1..], words].concat())
}

/// Returns a ClientHello with the suites PSK_WITH_AES_128_GCM_SHA256, which has no key exchange,
/// and TLS_EMPTY_RENEGOTIATION_INFO_SCSV.
fn hello() -> Vec<u8> {
    message(1, &[&[3, 3][..], &[7; 32], &[0, 0, 4, 0, 0xa8, 0, 0xff, 1, 0]].concat())
}

/// Returns the records that follow the server's part of the handshake, from a client without the
/// key.
fn answer(identity: &[u8]) -> Vec<u8> {
    let len = (identity.len() as u16).to_be_bytes();
    let exchange = message(16, &[&len[..], identity].concat());
    [exchange, record(20, &[1]), record(22, &[7; 40])].concat()
}

/// Reads the server's part of the handshake: ServerHello and ServerHelloDone.
fn hear(stream: &mut TcpStream) {
    let mut heard = Vec::new();
    while !heard.ends_with(&[14, 0, 0, 0]) {
        let mut part = [0; 512];
        let read = stream.read(&mut part).expect("it answers");
        assert_ne!(read, 0, "it ends after {heard:?}");
        heard.extend_from_slice(&part[..read]);
    }
}

fn what_follows(address: SocketAddr, words: &[u8]) -> Vec<u8> {
    let mut stream = open(address);
    stream.write_all(&hello()).expect("it reads");
    hear(&mut stream);
    let _ = stream.write_all(words);
    end(stream)
}

#[test]
fn identities_of_every_kind_get_one_answer_and_too_long_ones_another() {
    let (broker, address) = start(&[]);
    broker.withstand("identities", |_| {
        let known = what_follows(address, &answer(b"sensor-7"));
        assert_eq!(known, record(21, &[2, 20]), "bad_record_mac");
        let strange: [&[u8]; 6] =
            [b"sensor-8", b"", b"\0", b"sensor-7\0x", b"\xff\xfe\r\n", &[b'i'; 256]];
        for identity in strange {
            assert_eq!(what_follows(address, &answer(identity)), known, "{identity:?}");
        }
        for len in [257, 1000, 2100, 16_000] {
            let said = what_follows(address, &answer(&vec![b'i'; len]));
            assert!(said.starts_with(&[21, 3, 3, 0, 2, 2]), "{len}: {said:?}");
        }
        // One that is longer than what it stands in.
        let said = what_follows(address, &message(16, &[0xff, 0xff, b'i']));
        assert!(said.starts_with(&[21, 3, 3, 0, 2, 2]), "{said:?}");
    });
}

#[test]
fn what_is_no_handshake_by_keys_ends_its_connection_and_nothing_else() {
    let (broker, address) = start(&[]);
    let whole = [hello(), answer(b"sensor-7")].concat();
    broker.withstand("no handshakes by keys", |_| {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut draw = |below: usize| rng.usize(..below);
        for round in 0..2000 {
            let mut stream = open(address);
            let mut bytes = whole.clone();
            match round % 5 {
                0 => bytes = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c".to_vec(),
                // As SSL 2 began.
                1 => bytes = [&b"\x80\x2e\x01\x03\x03"[..], &[0; 43]].concat(),
                2 => bytes[draw(whole.len())] ^= 1 << draw(8),
                3 => bytes.truncate(draw(whole.len())),
                _ => bytes = (0..draw(3000)).map(|_| draw(256) as u8).collect(),
            }
            let _ = stream.write_all(&bytes);
            let _ = end(stream);
        }
    });
}

#[test]
fn half_open_handshakes_by_keys_end_in_time_and_within_the_memory() {
    let (broker, address) = start(&["connect.timeout_ms=2000"]);
    let (hello, answer) = (hello(), answer(b"sensor-7"));
    broker.withstand("half open by keys", |_| {
        let began = Instant::now();
        let mut streams = Vec::new();
        for at in 0..3000 {
            let mut stream = open(address);
            // Silent from the start, in the middle of the first message, after its answer, and
            // within the next message.
            let whole = [&hello[..], &answer[..20]].concat();
            let until = [0, hello.len() / 2, hello.len(), whole.len()][at % 4];
            let _ = stream.write_all(&whole[..until]);
            streams.push(stream);
        }
        all_are_ended(streams, began);
    });
}

#[test]
fn hellos_that_announce_much_get_no_room_for_it() {
    let (broker, address) = start(&["connect.timeout_ms=3000"]);
    broker.withstand("long hellos", |_| {
        let mut streams = Vec::new();
        for at in 0..1000 {
            let mut stream = open(address);
            // 16 MiB less one, the most that OpenSSL would take, and as much as is taken here.
            let announced = [[0xff, 0xff, 0xff], [2, 0, 0], [0, 0x40, 0]][at % 3];
            let first = record(22, &[&[1][..], &announced, &[3; 12_000]].concat());
            stream.write_all(&first).expect("it reads");
            streams.push((stream, announced));
        }
        for (stream, announced) in streams {
            let said = end(stream);
            assert!(announced[0] == 0 || said == record(21, &[2, 10]), "{announced:?} {said:?}");
        }
    });
}

#[test]
fn a_thousand_handshakes_by_keys_at_once_keep_nobody_waiting() {
    // So many at once are more than a quarter of 64 MiB.
    let (broker, address) = start(&["memory.bytes_max=1GiB"]);
    broker.withstand_latency("a thousand keys at once", |_| {
        let mut streams: Vec<TcpStream> = (0..1000).map(|_| open(address)).collect();
        for stream in &mut streams {
            let _ = stream.write_all(&hello());
        }
        streams.iter_mut().for_each(hear);
    });
    println!("{} KB resident", broker.peak() / 1024);
}

#[test]
fn a_handshake_may_not_play_with_its_records() {
    let (broker, address) = start(&["connect.timeout_ms=3000"]);
    broker.withstand("records by keys", |_| {
        for round in 0..200 {
            let mut stream = open(address);
            let _ = stream.write_all(&hello());
            let bytes = match round % 4 {
                // Empty ones; warnings; hellos again and again; a change of keys before its time.
                0 => record(22, b"").repeat(1000),
                1 => record(21, &[1, 90]).repeat(1000),
                2 => hello().repeat(100),
                _ => [record(20, &[1]), record(22, &[7; 40])].concat(),
            };
            let _ = stream.write_all(&bytes);
            assert!(!end(stream).is_empty());
        }
    });
}
