//! Invalid packets, packets without an end, and packets with excessive contents.

use crate::broker::HostileTestBroker;
use crate::peer::{RawMqttPeer, hello, message};
use mqtt::{PropertiesBuf, Property, Publish, QoS, ReasonCode};
use std::io::Read;
use std::time::{Duration, Instant};

#[test]
fn whoever_sends_no_connect_is_dropped_in_time() {
    let broker = HostileTestBroker::start(&["connect.timeout_ms=1000"]);
    broker.withstand("slow loris", |broker| {
        let mut peers: Vec<RawMqttPeer> =
            (0..3000).map(|_| RawMqttPeer::open(broker.address)).collect();
        let connect = [0x10, 0x7f, 0, 4, b'M', b'Q', b'T', b'T'];
        let began = Instant::now();
        // A byte a second from every second one.
        for byte in &connect[..3] {
            for peer in peers.iter_mut().step_by(2) {
                peer.push(&[*byte]);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        for peer in &mut peers {
            assert_eq!(peer.last_words(), None);
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    });
}

#[test]
fn a_packet_too_large_is_refused_by_its_header() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("256 MB announced", |broker| {
        for at in 0..500 {
            let mut peer = RawMqttPeer::connect(broker.address, hello(&format!("large{at}")));
            peer.push(&[0x30, 0xff, 0xff, 0xff, 0x7f, 0, 1, b't']);
            assert_eq!(peer.last_words(), Some(ReasonCode::PacketTooLarge));
        }
    });
    assert!(broker.peak() < 16 << 20, "{} bytes for what was only announced", broker.peak());
}

#[test]
fn partial_packets_have_a_part_of_the_memory() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("partial packets", |broker| {
        let payload = vec![0; 2_000_000];
        let whole = Publish { payload: &payload, ..message("t", QoS::AtMostOnce) };
        let mut peers = Vec::new();
        for at in 0..2000 {
            let mut peer = RawMqttPeer::connect(broker.address, hello(&format!("partial{at}")));
            let bytes = peer.encode_publish(whole);
            // Whoever is chosen to go may be this one already: then it cannot write any more.
            peer.push(&bytes[..bytes.len() - 1]);
            peers.push(peer);
        }
        // The first ones waited longest.
        assert_eq!(peers[0].last_words(), Some(ReasonCode::QuotaExceeded));
    });
}

#[test]
fn garbage_ends_its_connection_and_nothing_else() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("garbage", |broker| {
        let mut rng = fastrand::Rng::with_seed(crate::SEED);
        let mut random = |len: usize| -> Vec<u8> { (0..len).map(|_| rng.u8(..)).collect() };
        for round in 0..2000 {
            let mut peer = match round % 2 {
                0 => RawMqttPeer::open(broker.address),
                _ => RawMqttPeer::connect(broker.address, hello(&format!("garbage{round}"))),
            };
            let len = 1 + round * 7 % 3000;
            peer.push(&random(len));
            peer.stream.shutdown(std::net::Shutdown::Write).ok();
            // To the end, whatever it says: an end must come.
            let mut rest = Vec::new();
            let _ = peer.stream.read_to_end(&mut rest);
        }
    });
}

#[test]
fn floods_of_properties_and_levels_are_refused_or_pass() {
    let broker = HostileTestBroker::start(&["topic.levels_max=32"]);
    broker.withstand("properties and levels", |broker| {
        let mut properties = PropertiesBuf::default();
        for at in 0..100_000 {
            let name = format!("{at}");
            properties.push(Property::UserProperty(&name, "value"));
        }
        let mut peer = RawMqttPeer::connect(broker.address, hello("properties"));
        let many =
            Publish { properties: properties.as_properties(), ..message("t", QoS::AtMostOnce) };
        for _ in 0..10 {
            let bytes = peer.encode_publish(many);
            assert!(peer.push(&bytes));
        }
        let deep = vec!["a"; 30_000].join("/");
        let wide = vec!["+"; 30_000].join("/");
        for _ in 0..100 {
            assert_eq!(peer.publish(&deep, b"x", true), ReasonCode::TopicNameInvalid);
            assert_eq!(peer.subscribe(&[&wide], QoS::AtMostOnce), [0x8f]);
        }
    });
}

#[test]
fn aliases_out_of_bounds_end_the_connection_and_large_ones_count() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("aliases", |broker| {
        let alias = |alias| {
            let mut properties = PropertiesBuf::default();
            properties.push(Property::TopicAlias(alias));
            properties
        };
        for (number, topic, reason) in [
            (0, "t", ReasonCode::TopicAliasInvalid),
            (65, "t", ReasonCode::TopicAliasInvalid),
            (7, "", ReasonCode::ProtocolError),
        ] {
            let mut peer = RawMqttPeer::connect(broker.address, hello(&format!("alias{number}")));
            let properties = alias(number);
            let properties = properties.as_properties();
            let bytes =
                peer.encode_publish(Publish { properties, ..message(topic, QoS::AtMostOnce) });
            peer.push(&bytes);
            let said = peer.last_words();
            assert!(
                said == Some(reason) || said == Some(ReasonCode::TopicAliasInvalid),
                "{said:?}"
            );
        }
        // 64 topics of 60 KB each from each of 100 clients would be 384 MB.
        let mut refused = 0;
        let mut peers = Vec::new();
        for at in 0..100 {
            let mut peer = RawMqttPeer::open(broker.address);
            let id = format!("aliases{at}");
            if peer.greet(hello(&id)) != ReasonCode::Success {
                refused += 1;
                continue;
            }
            for number in 1..=64 {
                let topic = format!("{at}/{number}/{}", "x".repeat(60_000));
                let properties = alias(number);
                let properties = properties.as_properties();
                let publish = Publish { properties, ..message(&topic, QoS::AtMostOnce) };
                let bytes = peer.encode_publish(publish);
                if !peer.push(&bytes) {
                    refused += 1;
                    break;
                }
            }
            peers.push(peer);
        }
        assert!(refused > 0, "384 MB of aliases went into the memory");
    });
}
