//! Duration of a start, up to the CONNACK of a client, with a large number of persistent sessions
//! to restore.

use crate::broker::CrashBroker;
use crate::patient::PatientClient;
use mqtt::ReasonCode;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{DiskStore, KeySpace, KeyValueStore, StoreBatch, StoreHandle, StoreOptions};

#[test]
fn a_hundred_thousand_sessions_with_queues_are_back_within_a_second() {
    let mut broker = CrashBroker::new("start", Vec::new());
    broker.start(1);
    let address = broker.address;
    PatientClient::connect(address, &client_id(0), u32::MAX).subscribe(&topic(0));
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    for n in 0..QUEUED {
        assert_eq!(publisher.publish(&topic(0), &[n; 64]), ReasonCode::Success);
    }
    broker.kill();
    multiply(&broker.store());
    // Others share the processor, so the quickest start says what one takes.
    let mut quickest = Duration::MAX;
    for (at, shards) in [1, 2, 1].into_iter().enumerate() {
        let began = Instant::now();
        broker.start(shards);
        PatientClient::connect(address, "first", 0);
        quickest = quickest.min(began.elapsed());
        // What one has taken is gone at the next start.
        for session in [1, SESSIONS / 2, SESSIONS - 3].map(|first| first + at as u64) {
            let mut back = PatientClient::come_back(address, &client_id(session));
            assert_eq!(back.take(), [0; 64], "{}", client_id(session));
        }
        broker.kill();
        println!("{SESSIONS} sessions with {QUEUED} messages each: the start took {quickest:?}");
    }
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
}

/// Copies the records of one session, as specified in docs/store-format.md, for all other sessions.
fn multiply(folder: &Path) {
    let (store, _) =
        DiskStore::open(folder, StoreOptions::default(), Box::new(|_| {})).expect("it opens");
    let mut handle = store.handle();
    let key = [b"s", client_id(0).as_bytes()].concat();
    let session =
        handle.get(KeySpace::Sessions, &key).expect("it can be read").expect("it is kept");
    let number = u64::from_le_bytes(session[..8].try_into().expect("eight bytes"));
    let filter = [b"f", &number.to_be_bytes()[..], topic(0).as_bytes()].concat();
    let filter =
        handle.get(KeySpace::Sessions, &filter).expect("it can be read").expect("it is kept");
    let mut queue = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        queue.push((key[8..].to_vec(), value.to_vec()));
        true
    };
    let prefix = number.to_be_bytes();
    handle.scan(KeySpace::Queues, &prefix, b"", &mut visit).expect("it can be read");
    assert_eq!(queue.len(), usize::from(QUEUED));
    for n in 1..SESSIONS {
        // Above all that this process has counted.
        let number = number + (1 << 30) + n;
        let mut batch = StoreBatch::default();
        let value = [&number.to_le_bytes(), &session[8..]].concat();
        batch.put(KeySpace::Sessions, [b"s", client_id(n).as_bytes()].concat(), value);
        let key = [b"f", &number.to_be_bytes()[..], topic(n).as_bytes()].concat();
        batch.put(KeySpace::Sessions, key, filter.clone());
        for (position, value) in &queue {
            batch.put(
                KeySpace::Queues,
                [&number.to_be_bytes(), &position[..]].concat(),
                value.clone(),
            );
        }
        batch.set_lazy();
        commit(&mut handle, batch);
    }
    store.close();
}

fn commit(handle: &mut StoreHandle, batch: StoreBatch) {
    while handle.is_backlogged() {
        std::thread::sleep(Duration::from_millis(1));
    }
    handle.commit(batch).expect("the disk has room");
}

fn client_id(session: u64) -> String {
    format!("start-{session:06}")
}

fn topic(session: u64) -> String {
    format!("start/{session:06}")
}

const SESSIONS: u64 = 100_000;
/// Number of messages in the queue of each session.
const QUEUED: u8 = 3;
