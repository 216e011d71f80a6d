//! How long a start takes, until a client is welcome, with as much to come back for as there may
//! be.

use crate::broker::Broker;
use crate::patient::Patient;
use mqtt::Reason;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Batch, Disk, Handle, Options, Space, Store};

#[test]
fn a_hundred_thousand_sessions_with_queues_are_back_within_a_second() {
    let mut broker = Broker::new("start", Vec::new());
    broker.start(1);
    let address = broker.address;
    Patient::connect(address, &client_id(0), u32::MAX).subscribe(&topic(0));
    let mut publisher = Patient::connect(address, "publisher", 0);
    for n in 0..QUEUED {
        assert_eq!(publisher.publish(&topic(0), &[n; 64]), Reason::Success);
    }
    broker.kill();
    multiply(&broker.store());
    // Others share the processor, so the quickest start says what one takes.
    let mut quickest = Duration::MAX;
    for (at, shards) in [1, 2, 1].into_iter().enumerate() {
        let began = Instant::now();
        broker.start(shards);
        Patient::connect(address, "first", 0);
        quickest = quickest.min(began.elapsed());
        // What one has taken is gone at the next start.
        for session in [1, SESSIONS / 2, SESSIONS - 3].map(|first| first + at as u64) {
            let mut back = Patient::come_back(address, &client_id(session));
            assert_eq!(back.take(), [0; 64], "{}", client_id(session));
        }
        broker.kill();
        println!("{SESSIONS} sessions with {QUEUED} messages each: the start took {quickest:?}");
    }
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
}

/// What docs/store-format.md says of one session, for all the others.
fn multiply(folder: &Path) {
    let (store, _) = Disk::open(folder, Options::default(), Box::new(|_| {})).expect("it opens");
    let mut handle = store.handle();
    let key = [b"s", client_id(0).as_bytes()].concat();
    let session = handle.get(Space::Sessions, &key).expect("it can be read").expect("it is kept");
    let number = u64::from_le_bytes(session[..8].try_into().expect("eight bytes"));
    let filter = [b"f", &number.to_be_bytes()[..], topic(0).as_bytes()].concat();
    let filter = handle.get(Space::Sessions, &filter).expect("it can be read").expect("it is kept");
    let mut queue = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        queue.push((key[8..].to_vec(), value.to_vec()));
        true
    };
    let prefix = number.to_be_bytes();
    handle.scan(Space::Queues, &prefix, b"", &mut visit).expect("it can be read");
    assert_eq!(queue.len(), usize::from(QUEUED));
    for n in 1..SESSIONS {
        // Above all that this process has counted.
        let number = number + (1 << 30) + n;
        let mut batch = Batch::default();
        let value = [&number.to_le_bytes(), &session[8..]].concat();
        batch.put(Space::Sessions, [b"s", client_id(n).as_bytes()].concat(), value);
        let key = [b"f", &number.to_be_bytes()[..], topic(n).as_bytes()].concat();
        batch.put(Space::Sessions, key, filter.clone());
        for (position, value) in &queue {
            batch.put(
                Space::Queues,
                [&number.to_be_bytes(), &position[..]].concat(),
                value.clone(),
            );
        }
        batch.lazy();
        commit(&mut handle, batch);
    }
    store.close();
}

fn commit(handle: &mut Handle, batch: Batch) {
    while handle.crowded() {
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
/// Messages in each session's queue.
const QUEUED: u8 = 3;
