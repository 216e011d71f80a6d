//! Clients with many requests, each of which is valid.

use crate::broker::HostileTestBroker;
use crate::peer::{RawMqttPeer, hello, message};
use mqtt::{Connect, PropertiesBuf, Property, Publish, QoS, ReasonCode, Will};
use std::time::Duration;

const QUOTA_EXCEEDED: u8 = 0x97;

/// Subscribes to `many` filters that no other client has, a thousand per SUBSCRIBE. Returns the
/// reason codes.
fn subscribe_many(peer: &mut RawMqttPeer, many: usize) -> Vec<u8> {
    let mut codes = Vec::new();
    for first in (0..many).step_by(1000) {
        let all: Vec<String> = (first..many.min(first + 1000))
            .map(|at| match at % 3 {
                0 => format!("flood/{at}/exact"),
                1 => format!("flood/+/{at}"),
                _ => format!("flood/{at}/#"),
            })
            .collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        codes.extend(peer.subscribe(&all, QoS::AtMostOnce));
    }
    codes
}

#[test]
fn a_hundred_thousand_subscriptions_are_taken_and_no_more() {
    let broker = HostileTestBroker::start(&["memory.bytes_max=256MiB"]);
    // Beside the healthy one it is the time that counts here, and the limit's code.
    let mut peer = RawMqttPeer::connect(broker.address, hello("flood"));
    let codes = subscribe_many(&mut peer, 100_001);
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 100_000);
    assert_eq!(codes[100_000], QUOTA_EXCEEDED);
}

#[test]
fn floods_of_subscriptions_end_at_the_memory() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("subscriptions", |broker| {
        let (mut refused, mut peers) = (0, Vec::new());
        for id in ["one", "two", "three", "four", "five"] {
            let mut peer = RawMqttPeer::open(broker.address);
            if peer.greet(hello(id)) == ReasonCode::Success {
                let codes = subscribe_many(&mut peer, 100_000);
                refused += codes.iter().filter(|code| **code == QUOTA_EXCEEDED).count();
            }
            peers.push(peer);
        }
        assert!(refused > 0, "half a million subscriptions in the memory");
    });
}

#[test]
fn groups_with_long_names_end_at_the_memory() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("groups' names", |broker| {
        let (mut refused, mut peers) = (0, Vec::new());
        for id in ["one", "two", "three"] {
            let mut peer = RawMqttPeer::open(broker.address);
            let is_in = peer.greet(hello(id)) == ReasonCode::Success;
            for first in (0..1_000).step_by(10).filter(|_| is_in) {
                let name = |at: i32| format!("$share/{id}{at}{}/x", "n".repeat(60_000));
                let all: Vec<String> = (first..first + 10).map(name).collect();
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                let codes = peer.subscribe(&all, QoS::AtMostOnce);
                refused += codes.iter().filter(|code| **code == QUOTA_EXCEEDED).count();
            }
            peers.push(peer);
        }
        assert!(refused > 0, "180 MB of names in the memory");
    });
}

#[test]
fn retained_messages_end_at_their_limits() {
    let broker = HostileTestBroker::start(&["retain.messages_max=1000", "retain.bytes_max=1MiB"]);
    broker.withstand("retained limits", |broker| {
        let mut peer = RawMqttPeer::connect(broker.address, hello("retain"));
        let refused = |peer: &mut RawMqttPeer, payload: &[u8]| {
            let reasons = (0..2000).map(|at| peer.publish(&format!("r/{at}"), payload, true));
            reasons.filter(|reason| *reason == ReasonCode::QuotaExceeded).count()
        };
        // The shard's own $SYS topics are retained as well.
        assert!((1000..1200).contains(&refused(&mut peer, b"x")));
        assert_eq!(refused(&mut peer, b""), 0, "clearing is always possible");
        assert!(refused(&mut peer, &[b'x'; 4096]) > 1700);
    });
}

#[test]
fn retained_messages_end_at_the_memory() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("retained", |broker| {
        let mut peer = RawMqttPeer::connect(broker.address, hello("retain"));
        let levels = "/a".repeat(60);
        let (mut wide, mut deep) = (0, 0);
        let payload = [b'x'; 2000];
        for at in 0..20_000 {
            wide += usize::from(peer.publish(&format!("w/{at}"), &payload, true).is_error());
            deep += usize::from(peer.publish(&format!("d/{at}{levels}"), b"x", true).is_error());
        }
        assert!(wide > 0 && deep > 0, "{wide} and {deep} refused");
    });
}

#[test]
fn a_wildcard_over_a_wide_tree_does_not_stall_its_shard() {
    let broker = HostileTestBroker::start(&["memory.bytes_max=512MiB", "retain.bytes_max=256MiB"]);
    let mut publisher = RawMqttPeer::connect(broker.address, hello("wide"));
    for first in (0..300_000).step_by(1000) {
        let mut bytes = Vec::new();
        for at in first..first + 1000 {
            let topic = format!("{at}/y");
            let publish = Publish { retain: true, ..message(&topic, QoS::AtMostOnce) };
            bytes.extend(publisher.encode_publish(publish));
        }
        assert!(publisher.push(&bytes));
    }
    assert_eq!(publisher.publish("end", b"x", false), ReasonCode::NoMatchingSubscribers);
    broker.withstand_latency("+/x over 300,000 topics", |broker| {
        let mut peers: Vec<RawMqttPeer> = (0..20)
            .map(|at| RawMqttPeer::connect(broker.address, hello(&format!("scan{at}"))))
            .collect();
        for _ in 0..5 {
            for peer in &mut peers {
                for filter in ["+/x", "+/+/z", "+/y/+"] {
                    assert_eq!(peer.subscribe(&[filter], QoS::AtMostOnce), [0]);
                }
            }
        }
        // All of the scans run on beside each other.
        std::thread::sleep(Duration::from_secs(1));
    });
}

#[test]
fn sessions_with_full_queues_end_at_the_memory() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("full queues", |broker| {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::SessionExpiryInterval(1000));
        for at in 0..300 {
            let id = format!("away{at}");
            let properties = properties.as_properties();
            let mut peer =
                RawMqttPeer::connect(broker.address, Connect { properties, ..hello(&id) });
            peer.subscribe(&["all/#", &format!("own/{at}")], QoS::AtLeastOnce);
        }
        let mut peer = RawMqttPeer::connect(broker.address, hello("publisher"));
        let payload = [b'x'; 4000];
        for round in 0..100 {
            for at in 0..300 {
                let reason = peer.publish(&format!("own/{at}"), &payload, false);
                assert!(!reason.is_error(), "{reason}: the oldest go, not the publisher");
            }
            // Small messages, which fill a slot in every queue.
            for _ in 0..50 {
                assert_eq!(peer.publish(&format!("all/{round}"), b"x", false), ReasonCode::Success);
            }
        }
    });
}

#[test]
fn wills_end_at_the_memory() {
    let broker = HostileTestBroker::start(&[]);
    broker.withstand("wills", |broker| {
        let payload = vec![b'x'; 60_000];
        let mut properties = PropertiesBuf::default();
        properties.push(Property::SessionExpiryInterval(1000));
        let (mut refused, mut peers) = (0, Vec::new());
        for at in 0..2000 {
            let (id, properties) = (format!("will{at}"), properties.as_properties());
            let will = Some(Will {
                qos: QoS::AtLeastOnce,
                retain: true,
                topic: &id,
                payload: &payload,
                properties: mqtt::Properties::default(),
            });
            let mut peer = RawMqttPeer::open(broker.address);
            let reason = peer.greet(Connect { will, properties, ..hello(&id) });
            refused += usize::from(reason == ReasonCode::QuotaExceeded);
            peers.push(peer);
        }
        assert!(refused > 0, "120 MB of wills in the memory");
    });
}
