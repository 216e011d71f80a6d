//! State that survives a restart of the server, with a real disk.

mod client;

use broker::{BrokerEvent, BrokerOptions};
use client::{EngineTestClient, serve_from, serve_noting};
use engine::StoreLocation;
use mqtt::{Packet, PacketId, QoS, ReasonCode};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use store::KeyValueStore;

fn shelter(name: &str, options: store::StoreOptions) -> StoreLocation {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    StoreLocation { folder, options }
}

fn leave(mut client: EngineTestClient) {
    client.send(Packet::Disconnect(mqtt::Disconnect {
        reason: ReasonCode::Success,
        properties: mqtt::Properties::default(),
    }));
    assert!(!client.read(|_| false), "the broker closes");
}

/// Publishes at QoS 1. Returns the reason code of PUBACK.
fn publish(client: &mut EngineTestClient, payload: &[u8]) -> ReasonCode {
    let mut reason = ReasonCode::Success;
    client.publish("t", payload, Some(PacketId::MIN));
    client.read(|packet| {
        let Packet::PubAck(ack) = packet else { panic!("{packet:?}") };
        reason = ack.reason;
        true
    });
    reason
}

/// Reads and acknowledges `count` messages. Returns their payloads.
fn drain(client: &mut EngineTestClient, count: usize) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    while payloads.len() < count {
        let mut ids = Vec::new();
        client.read(|packet| {
            let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
            payloads.push(publish.payload.to_vec());
            ids.extend(publish.packet_id);
            true
        });
        ids.into_iter().for_each(|id| client.puback(id));
    }
    payloads
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart_with_other_shards() {
    let shelter = shelter("restart", store::StoreOptions::default());
    let (server, address) = serve_from(2, BrokerOptions::default(), Some(shelter.clone()));
    for id in ["a", "b", "c"] {
        let mut subscriber = EngineTestClient::connect_to_stay(address, id);
        subscriber.subscribe("t", QoS::AtLeastOnce);
        leave(subscriber);
    }
    let mut publisher = EngineTestClient::connect(address, "p");
    for number in 0..500_u32 {
        assert_eq!(publish(&mut publisher, &number.to_be_bytes()), ReasonCode::Success);
    }
    server.stop().expect("it stops");
    for shards in [1, 3] {
        let (server, address) = serve_from(shards, BrokerOptions::default(), Some(shelter.clone()));
        let id = if shards == 1 { "a" } else { "b" };
        let mut subscriber = EngineTestClient::connect_to_stay(address, id);
        let expected: Vec<Vec<u8>> = (0..500_u32).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(drain(&mut subscriber, 500), expected);
        server.stop().expect("it stops");
    }
}

#[test]
fn a_full_store_refuses_what_it_would_keep_and_goes_on() {
    let small = store::StoreOptions {
        bytes_max: 2 << 20,
        memory_bytes: 128 << 10,
        inbox_bytes: 64 << 10,
        ..store::StoreOptions::default()
    };
    let said = Arc::new(Mutex::new(Vec::new()));
    let notes = said.clone();
    let event = move |event: &BrokerEvent| {
        if matches!(event, BrokerEvent::StoreFull | BrokerEvent::StoreHasRoom) {
            notes
                .lock()
                .expect("nobody panics with it")
                .push(matches!(event, BrokerEvent::StoreFull));
        }
    };
    let full = Some(shelter("full", small));
    let (server, address) = serve_noting(2, BrokerOptions::default(), full, event);
    let mut subscriber = EngineTestClient::connect_to_stay(address, "s");
    subscriber.subscribe("t", QoS::AtLeastOnce);
    leave(subscriber);
    let mut publisher = EngineTestClient::connect(address, "p");
    let payload = [7; 1000];
    let mut kept = 0;
    while publish(&mut publisher, &payload) == ReasonCode::Success {
        kept += 1;
        assert!(kept < 4_000, "2 MiB hold no more than that");
    }
    assert!(kept > 500, "{kept} are too few");
    // Whatever needs no disk goes on. To another shard that has such sessions it might need it.
    publisher.subscribe("other", QoS::AtLeastOnce);
    publisher.publish("other", b"here", Some(PacketId::MIN));
    let (mut came, mut reason) = (false, None);
    while !came || reason.is_none() {
        publisher.read(|packet| {
            match packet {
                Packet::Publish(publish) => came = publish.payload == b"here",
                Packet::PubAck(ack) => reason = Some(ack.reason),
                other => panic!("{other:?}"),
            }
            true
        });
    }
    assert_eq!(reason, Some(ReasonCode::Success));
    publisher.puback(PacketId::MIN);
    // What was kept is all there, and makes room when it is read.
    let mut subscriber = EngineTestClient::connect_to_stay(address, "s");
    assert_eq!(drain(&mut subscriber, kept).len(), kept);
    let began = std::time::Instant::now();
    while publish(&mut publisher, &payload) != ReasonCode::Success {
        assert!(began.elapsed().as_secs() < 20, "there is room again");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.stop().expect("it stops");
    let said = said.lock().expect("nobody panics with it");
    assert!(said[0], "it was full first");
    assert!(said.windows(2).all(|two| two[0] != two[1]), "said once for all shards: {said:?}");
}

#[test]
fn what_a_start_writes_is_taken_by_a_full_store_too() {
    let shelter = shelter("full-start", store::StoreOptions::default());
    let first_record = || {
        let (folder, options) = (shelter.folder.clone(), store::StoreOptions::default());
        let (disk, _) =
            store::DiskStore::open(&folder, options, Box::new(|_| {})).expect("it opens");
        disk.handle().get(store::KeySpace::Sessions, b"b").expect("it can be read")
    };
    let (server, _) = serve_from(2, BrokerOptions::default(), Some(shelter.clone()));
    server.stop().expect("it stops");
    let before = first_record();
    let full = store::StoreOptions { bytes_max: 1, ..store::StoreOptions::default() };
    let full = StoreLocation { options: full, ..shelter.clone() };
    let (server, _) = serve_from(2, BrokerOptions::default(), Some(full));
    server.stop().expect("it stops");
    assert!(before.is_some());
    assert_ne!(first_record(), before, "every start has its number there");
}

/// At the stop the server stores the time of day. On a host without a hardware clock the next
/// process continues from that time.
#[test]
fn the_clock_is_kept_when_the_server_stops() {
    let shelter = shelter("clock", store::StoreOptions::default());
    let (server, address) = serve_from(2, BrokerOptions::default(), Some(shelter.clone()));
    drop(EngineTestClient::connect(address, "a"));
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    server.stop().expect("it stops");
    let StoreLocation { folder, options } = shelter;
    let (disk, _) =
        store::DiskStore::open(&folder, options, Box::new(|_| {})).expect("it was closed");
    let reading = disk.handle().get(store::KeySpace::Sessions, b"c").expect("it can be read");
    let reading = reading.expect("there is one");
    let time_of_day_ms = u64::from_le_bytes(reading[8..16].try_into().expect("8 bytes"));
    assert!(u128::from(time_of_day_ms) >= today.as_millis(), "{time_of_day_ms} is of the start");
}
