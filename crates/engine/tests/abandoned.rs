//! Pending authentication of a client that disconnects before the decision.

mod client;

use broker::{AuthDecision, BrokerOptions};
use client::serve_asking;
use engine::{AuthTask, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01a";
const CONNACK: &[u8] = b"\x20\x02\0\0";
/// PUBLISH with QoS 1 to the topic `t`, packet id 1.
const PUBLISH: &[u8] = b"\x32\x05\0\x01t\0\x01";
const PUBACK: &[u8] = b"\x40\x02\0\x01";
const DISCONNECT: &[u8] = b"\xe0\0";
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server. The test receives each authentication task, and answers it or not.
fn serve(verdict_timeout_ms: u32) -> (Server, SocketAddr, Receiver<AuthTask>) {
    let (sender, questions) = channel();
    let judge = move |question| _ = sender.send(question);
    let options =
        BrokerOptions { authenticates: true, verdict_timeout_ms, ..BrokerOptions::default() };
    let (server, address) = serve_asking(1, options, Arc::new(judge));
    (server, address, questions)
}

fn say(address: SocketAddr, packets: &[&[u8]]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(&packets.concat()).expect("it reads");
    stream
}

fn closes_in_time(question: &AuthTask) -> bool {
    let until = Instant::now() + PATIENCE;
    while question.liveness.is_open() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    !question.liveness.is_open()
}

#[test]
fn a_client_that_leaves_needs_no_verdict() {
    let (server, address, questions) = serve(60_000);
    for packets in [&[CONNECT][..], &[CONNECT, DISCONNECT]] {
        let stream = say(address, packets);
        let question = questions.recv_timeout(PATIENCE).expect("a question");
        drop(stream);
        assert!(closes_in_time(&question));
        question.responder.respond(AuthDecision::Allow(Box::default()));
    }
    // Everything at once, before the question was even asked.
    for _ in 0..20 {
        drop(say(address, &[CONNECT]));
        let question = questions.recv_timeout(PATIENCE).expect("a question");
        assert!(closes_in_time(&question));
    }
    server.stop().expect("it stops");
}

#[test]
fn a_client_that_waits_or_published_is_still_wanted() {
    let (server, address, questions) = serve(60_000);
    let waits = say(address, &[CONNECT]);
    let waiting = questions.recv_timeout(PATIENCE).expect("a question");
    let mut published = say(address, &[&CONNECT.replace_id(b'b'), PUBLISH]);
    published.shutdown(Shutdown::Write).expect("a socket");
    let question = questions.recv_timeout(PATIENCE).expect("a question");
    // A client that has left meanwhile is noticed, and these two are not.
    let gone = say(address, &[&CONNECT.replace_id(b'c')]);
    let third = questions.recv_timeout(PATIENCE).expect("a question");
    drop(gone);
    assert!(closes_in_time(&third));
    assert!(waiting.liveness.is_open() && question.liveness.is_open());
    question.responder.respond(AuthDecision::Allow(Box::default()));
    let mut came = vec![0; CONNACK.len() + PUBACK.len()];
    published.read_exact(&mut came).expect("both are acknowledged");
    assert_eq!(came, [CONNACK, PUBACK].concat());
    drop(waits);
    server.stop().expect("it stops");
}

#[test]
fn a_deadline_that_has_answered_needs_no_verdict() {
    let (server, address, questions) = serve(100);
    let mut stream = say(address, &[CONNECT]);
    let question = questions.recv_timeout(PATIENCE).expect("a question");
    let mut came = vec![0; CONNACK.len()];
    stream.read_exact(&mut came).expect("a refusal");
    assert_eq!(came, b"\x20\x02\0\x03");
    assert!(closes_in_time(&question));
    server.stop().expect("it stops");
}

trait ReplaceId {
    fn replace_id(&self, id: u8) -> Vec<u8>;
}

impl ReplaceId for [u8] {
    fn replace_id(&self, id: u8) -> Vec<u8> {
        let (_, rest) = self.split_last().expect("an id of one letter");
        [rest, &[id]].concat()
    }
}
