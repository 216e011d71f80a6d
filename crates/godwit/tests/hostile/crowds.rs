//! Many clients at once: connection storms, and clients that do not read.

use crate::broker::HostileTestBroker;
use crate::peer::{RawMqttPeer, hello, message};
use mqtt::{PacketId, Publish, QoS};
use std::time::{Duration, Instant};

#[test]
fn readers_that_do_not_read_pay_themselves() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("slow readers", |broker| {
        let mut peers = Vec::new();
        for at in 0..200 {
            let mut peer = RawMqttPeer::connect(broker.address, hello(&format!("slow{at}")));
            // Half of what each gets is its own, half is shared with all.
            peer.subscribe(&["all", &format!("own/{at}")], QoS::from_bits(at % 2).expect("0, 1"));
            peers.push(peer);
        }
        let mut publisher = RawMqttPeer::connect(broker.address, hello("publisher"));
        let payload = vec![b'x'; 50_000];
        for _ in 0..50 {
            for at in 0..200 {
                publisher.publish(&format!("own/{at}"), &payload, false);
            }
            publisher.publish("all", &payload, false);
        }
    });
}

#[test]
fn a_client_that_acknowledges_nothing_has_a_window_and_no_more() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("no acknowledgements", |broker| {
        let mut readers = Vec::new();
        for at in 0..50 {
            let mut peer = RawMqttPeer::connect(broker.address, hello(&format!("hoarder{at}")));
            peer.subscribe(&[&format!("own/{at}")], QoS::AtLeastOnce);
            let mut stream = peer.stream.try_clone().expect("a socket");
            // Reads all and says nothing.
            readers.push(std::thread::spawn(move || {
                std::io::copy(&mut stream, &mut std::io::sink()).ok();
            }));
            std::mem::forget(peer);
        }
        let mut publisher = RawMqttPeer::connect(broker.address, hello("publisher"));
        let payload = vec![b'x'; 20_000];
        for round in 0..200_u16 {
            for at in 0..50 {
                let topic = format!("own/{at}");
                let packet_id = PacketId::new(round + 1);
                let publish =
                    Publish { packet_id, payload: &payload, ..message(&topic, QoS::AtLeastOnce) };
                let bytes = publisher.encode_publish(publish);
                assert!(publisher.push(&bytes));
                publisher.next(|_| ()).expect("PUBACK, whatever it says");
            }
        }
    });
}

#[test]
fn a_storm_of_connections_passes() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("storm", |broker| {
        let began = Instant::now();
        let mut at = 0;
        while began.elapsed() < Duration::from_secs(2) {
            at += 1;
            // Politely, without a word, in the middle of a packet, and as one who was here before.
            let id = format!("storm{}", at % 500);
            let mut peer = RawMqttPeer::open(broker.address);
            match at % 4 {
                0 => drop(peer),
                1 => _ = peer.push(&[0x10, 0x20, 0, 4]),
                2 => _ = peer.greet(hello(&id)),
                _ => {
                    peer.greet(hello(&id));
                    peer.push(&[0xe0, 0]);
                }
            }
        }
        println!("storm: {at} connections");
    });
}

#[test]
fn memory_comes_back_when_everybody_has_left() {
    // Again and again, at once: timers of one crowd lie among what the next one leaves.
    come_and_go(&MEMORY_KEPT, crowd);
}

#[test]
fn memory_comes_back_when_all_subscribers_have_left() {
    come_and_go(&MEMORY_KEPT, |broker, many| {
        let mut peers = crowd(broker, many);
        for (at, peer) in peers.iter_mut().enumerate() {
            peer.subscribe(&[&format!("crowd/{at}/#")], QoS::AtLeastOnce);
        }
        peers
    });
}

/// Connects and disconnects a crowd for each entry of `kept_max`: the number of bytes that may
/// remain allocated compared with the memory before the first crowd.
fn come_and_go(kept_max: &[u64], crowd: impl Fn(&HostileTestBroker, usize) -> Vec<RawMqttPeer>) {
    let broker = HostileTestBroker::start(&["memory.bytes_max=512MiB"]);
    // Some clients first, so that buffers that stay are there already.
    drop(crowd(&broker, 100));
    std::thread::sleep(Duration::from_millis(500));
    let before = broker.resident();
    let many = descriptors().saturating_sub(200).min(15_000);
    if many < 15_000 {
        println!("only {many} clients: no more descriptors are allowed here");
    }
    for kept_max in kept_max {
        let peers = crowd(&broker, many);
        let during = broker.resident();
        drop(peers);
        let began = Instant::now();
        let mut after = broker.resident();
        while after > before + kept_max && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(100));
            after = broker.resident();
        }
        println!("{many} clients: {before} bytes before, {during} with them, {after} after");
        assert!(after <= before + kept_max, "{after} bytes are left of {during}");
    }
}

/// Permitted growth of the memory after a crowd, in bytes; the used rings between shards are a good
/// part of it.
const MEMORY_KEPT: [u64; 2] = [7 << 20; 2];

fn crowd(broker: &HostileTestBroker, many: usize) -> Vec<RawMqttPeer> {
    let client = |at| RawMqttPeer::connect(broker.address, hello(&format!("crowd{at}")));
    (0..many).map(client).collect()
}

/// Raises the limit of descriptors of this process to the maximum. Returns the limit.
fn descriptors() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize)
}
