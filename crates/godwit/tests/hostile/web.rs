//! Attacks on WebSocket: endless requests, frames that are invalid for a client, and floods of
//! valid frames. The healthy client uses plain MQTT on the same shards.

use crate::SEED;
use crate::broker::HostileTestBroker;
use crate::peer::{all_are_ended, end, open};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn start(more: &[&str]) -> (HostileTestBroker, SocketAddr) {
    let broker = HostileTestBroker::start(&[&["listen=ws://127.0.0.1:0"], more].concat());
    let address = broker.address_of("ws://");
    (broker, address)
}

pub(crate) const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
/// A CONNECT of MQTT 3.1.1 with an empty client id, in a frame with the masking key 0.
pub(crate) const CONNECT: &[u8] = b"\x82\x8e\0\0\0\0\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0";
/// Length of the response to `UPGRADE`, together with the frame of CONNACK.
const WELCOME_BYTES: usize = 129 + 32 + 6;

/// Opens a WebSocket, sends CONNECT and reads CONNACK.
fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = open(address);
    stream.write_all(&[UPGRADE, CONNECT].concat()).expect("it reads");
    let mut welcome = Vec::new();
    while !welcome.ends_with(b"\x82\x04\x20\x02\0\0") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a welcome");
        welcome.push(byte[0]);
        assert!(welcome.len() <= 2 * WELCOME_BYTES, "{}", String::from_utf8_lossy(&welcome));
    }
    stream
}

/// Writes the bytes `times` times. Returns false if the peer stops reading before.
fn push(mut stream: &TcpStream, bytes: &[u8], times: usize) -> bool {
    (0..times).all(|_| stream.write_all(bytes).is_ok())
}

#[test]
fn requests_without_an_end_are_cut_off() {
    let (broker, address) = start(&["connect.timeout_ms=2000"]);
    broker.withstand("endless headers", |_| {
        let lines = [&b"GET / HTTP/1.1\r\n"[..], b"X: y\r\n", b"GET", b"\r\n", b"X", b"a b\n\n"];
        for round in 0..1200 {
            let stream = open(address);
            push(&stream, lines[0], 1);
            push(&stream, &lines[round % 6].repeat(1000), 20);
            let said = end(stream);
            assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 4"), "{said:x?}");
        }
    });
}

#[test]
fn half_open_sockets_end_in_time_and_within_the_memory() {
    let (broker, address) = start(&["connect.timeout_ms=2000"]);
    broker.withstand("half open", |_| {
        let began = Instant::now();
        let mut streams = Vec::new();
        let head = [b"GET / HTTP/1.1\r\nX: ", &[b'y'; 8000][..]].concat();
        for at in 0..3000 {
            let mut stream = open(address);
            // Silent, in a long request, upgraded, and in the middle of CONNECT's frame.
            let _ = match at % 4 {
                0 => Ok(()),
                1 => stream.write_all(&head),
                2 => stream.write_all(UPGRADE),
                _ => stream.write_all(&[UPGRADE, &CONNECT[..10]].concat()),
            };
            streams.push(stream);
        }
        all_are_ended(streams, began);
    });
}

#[test]
fn fragments_without_an_end_cost_nothing_but_their_bytes() {
    let (broker, address) = start(&[]);
    broker.withstand("fragment bombs", |_| {
        let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
        for stream in &mut streams {
            // A PUBLISH of 1 MB begins, in frames of one byte, of none, and pings between.
            stream.write_all(b"\x02\x84\0\0\0\0\x30\xc0\x84\x3d").expect("it reads");
        }
        let nothing = b"\0\x80\0\0\0\0".repeat(10_000);
        let single = b"\0\x81\0\0\0\0x".repeat(10_000);
        let mixed = b"\0\x81\0\0\0\0x\x89\x80\0\0\0\0".repeat(5_000);
        for round in 0..20 {
            for stream in &streams {
                assert!(push(stream, [&nothing, &single, &mixed][round % 3], 1), "it reads on");
            }
        }
        streams.into_iter().for_each(|stream| _ = end(stream));
    });
}

#[test]
fn long_frames_are_given_no_room() {
    let (broker, address) = start(&[]);
    broker.withstand("long frames", |_| {
        let streams: Vec<TcpStream> = (0..1000).map(|_| connect(address)).collect();
        for mut stream in &streams {
            // A frame and in it a packet, both of 256 MB less a bit; then little of it.
            let head = b"\x82\xff\0\0\0\0\x0f\xff\xff\xff\0\0\0\0\x30\xff\xff\xff\x7f\0\x01t";
            stream.write_all(head).expect("it reads");
            push(stream, &[0x61; 1000], 1);
        }
        streams.into_iter().for_each(|stream| _ = end(stream));
    });
}

#[test]
fn frames_that_no_client_sends_end_their_connection_and_nothing_else() {
    let (broker, address) = start(&[]);
    broker.withstand("wrong frames", |_| {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut draw = |below: usize| rng.usize(..below);
        for round in 0..2000 {
            let mut stream = connect(address);
            let bytes = match round % 6 {
                // Not masked; reserved bits; a length in a form that is too long; text; noise.
                0 => b"\x82\x02\xc0\0".to_vec(),
                1 => vec![0x82 | 0x10 << draw(3), 0x80, 0, 0, 0, 0],
                2 => b"\x82\xff\0\0\0\0\0\0\0\x01\0\0\0\0x".to_vec(),
                3 => b"\x82\xff\x80\0\0\0\0\0\0\x01\0\0\0\0x".to_vec(),
                4 => b"\x81\x81\0\0\0\0x".to_vec(),
                _ => (0..draw(3000)).map(|_| draw(256) as u8).collect(),
            };
            let _ = stream.write_all(&bytes);
            let said = end(stream);
            if round % 6 < 5 {
                assert!(said.starts_with(b"\x88"), "{bytes:x?}: {said:x?}");
            }
        }
    });
}

/// The broker stops reading from a client that sends pings and does not read the pongs. Its
/// messages wait in the bounded queue of its session, as for any client that does not read.
#[test]
fn pings_of_who_does_not_read_end_in_a_bounded_queue() {
    let options = ["connection.write_bytes_max=16KiB", "queue.messages_max=10"];
    let (broker, address) = start(&options);
    broker.withstand("pings", |broker| {
        let domain = socket2::Domain::IPV4;
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        // With less than this a kernel may drop what acknowledges its own bytes: then nothing
        // goes on, and the broker has no part in it.
        socket.set_recv_buffer_size(64 * 1024).expect("a socket");
        socket.connect(&address.into()).expect("it listens");
        let mut stream: TcpStream = socket.into();
        stream.set_nodelay(true).expect("a socket");
        stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a socket");
        let subscribe = b"\x82\x89\0\0\0\0\x82\x07\0\x01\0\x02pp\x01";
        stream.write_all(&[UPGRADE, CONNECT, subscribe].concat()).expect("it reads");
        let ping = [&b"\x89\xfd\0\0\0\0"[..], &[7; 125]].concat();
        let (began, mut pushed, mut idle_s) = (Instant::now(), 0, 0);
        // A busy host may let a second pass, and the broker still reads.
        while idle_s < 4 {
            match stream.write(&ping[pushed % ping.len()..]) {
                Ok(written) => (pushed, idle_s) = (pushed + written, 0),
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => idle_s += 1,
                Err(fault) => panic!("{fault}"),
            }
            assert!(began.elapsed() < Duration::from_secs(60), "pings are read for ever");
        }
        println!("{} pings were taken", pushed / ping.len());
        let publisher = crate::peer::hello("pinged");
        let mut publisher = crate::peer::RawMqttPeer::connect(broker.address, publisher);
        for _ in 0..1000 {
            publisher.publish("pp", &[b'm'; 1000], false);
        }
        let (mut said, mut buffer) = (0, vec![0; 1 << 20]);
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        let mut messages = 0;
        let began = Instant::now();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    said += read;
                    messages += buffer[..read].iter().filter(|byte| **byte == b'm').count();
                }
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => {
                    // A busy host may be slow to send what waits; what is over is over.
                    if messages >= 1000 || began.elapsed() > Duration::from_secs(20) {
                        break;
                    }
                }
                Err(fault) => panic!("{fault}"),
            }
        }
        println!("{said} bytes came, {} of them messages'", messages);
        assert!((1000..=40_000).contains(&messages), "{messages} bytes of messages");
    });
}
