//! Packets that a client sends while its connection moves to its home shard: a client need not wait
//! for CONNACK (MQTT 5.0, 3.1.4).

mod client;

use broker::{AuthDecision, BrokerOptions};
use client::serve_asking;
use engine::AuthTask;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CONNACK: &[u8] = b"\x20\x02\0\0";

fn connect(id: &str) -> Vec<u8> {
    let mut bytes = vec![0x10, 12 + id.len() as u8, 0, 4];
    bytes.extend_from_slice(b"MQTT\x04\x02\0\0\0");
    bytes.push(id.len() as u8);
    bytes.extend_from_slice(id.as_bytes());
    bytes
}

/// Encodes a PUBLISH with QoS 1 to the topic `t`.
fn publish(packet_id: u8) -> [u8; 7] {
    [0x32, 5, 0, 1, b't', 0, packet_id]
}

fn expect(mut stream: &TcpStream, bytes: &[u8]) {
    let mut came = vec![0; bytes.len()];
    let read = stream.read_exact(&mut came);
    assert!(read.is_ok() && came == bytes, "{read:?}, {came:x?} for {bytes:x?}");
}

// The judge is asked between two turns of the shard, so what it does decides what the next one
// finds: the connection that may go on stands in the list of those to be looked at, and has an
// event besides.
#[test]
fn what_comes_between_the_move_and_its_turns_end_is_heard() {
    let streams: Arc<Mutex<Option<(TcpStream, TcpStream)>>> = Arc::default();
    let shown = streams.clone();
    let judge = move |question: AuthTask| {
        if let Some((mover, neighbour)) = &mut *shown.lock().expect("a lock") {
            match &*question.request.client_id {
                "neighbour" => mover.write_all(&publish(2)).expect("it reads"),
                _ => neighbour.write_all(&connect("neighbour")).expect("it reads"),
            }
        }
        question.responder.respond(AuthDecision::Allow(Box::default()));
    };
    let options = BrokerOptions { authenticates: true, ..BrokerOptions::default() };
    let (server, address) = serve_asking(2, options, Arc::new(judge));
    // The ids of some are at home on the shard that accepts, of others elsewhere.
    for id in 0..16 {
        let neighbour = TcpStream::connect(address).expect("it listens");
        let mover = TcpStream::connect(address).expect("it listens");
        for stream in [&neighbour, &mover] {
            stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        }
        let clones = (mover.try_clone().expect("one"), neighbour.try_clone().expect("one"));
        *streams.lock().expect("a lock") = Some(clones);
        let said = [connect(&format!("mover{id}")), publish(1).to_vec()].concat();
        (&mover).write_all(&said).expect("it reads");
        expect(&neighbour, CONNACK);
        expect(&mover, &[CONNACK, b"\x40\x02\0\x01", b"\x40\x02\0\x02"].concat());
    }
    server.stop().expect("it stops");
}
