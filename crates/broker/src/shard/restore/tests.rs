//! Messages between shards are in exactly one place after a power cut.

use crate::durability::records;
use crate::durability::records::{CrossShardRoute, QueueRecord, RecordBody, kind};
use crate::ids::{MonotonicMs, RecordNumber, RetainStamp, ShardId};
use crate::interface::input::ShardMessage;
use crate::interface::store_access::{RecordSpace, StoreReadError, StoreReader, queue_key};
use crate::message::{Durability, IncomingPublish, Message};
use crate::owner_shard::ShardHasher;
use crate::shard::Shard;
use crate::{BrokerOptions, Interest, ProcessMemory, restore};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default)]
struct MapStoreReader(BTreeMap<(RecordSpace, Vec<u8>), Vec<u8>>);

impl StoreReader for MapStoreReader {
    fn get(&self, space: RecordSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
        Ok(self.0.get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: RecordSpace,
        prefix: &[u8],
        _: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreReadError> {
        for ((of, key), value) in &self.0 {
            if *of == space && key.starts_with(prefix) && !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

fn retained(payload: &'static [u8], expiry_s: u32) -> Message {
    let plain = IncomingPublish::new("t", payload, MonotonicMs(0));
    Message::new(&IncomingPublish { retain: true, expiry_s, durability: Durability::Sync, ..plain })
}

/// Restores a topic with a record at time 5 and an entry of a cross-shard log at another time.
fn start(in_transit: &Message, at: u64) -> (Option<Vec<u8>>, bool) {
    start_with(&retained(b"stored", u32::MAX), in_transit, at)
}

fn start_with(stored: &Message, in_transit: &Message, at: u64) -> (Option<Vec<u8>>, bool) {
    let homes = ShardHasher { key: 0, shards: 1 };
    let stamp = |at| RetainStamp { at, ..RetainStamp::default() };
    let to = ShardId(0);
    let way = Some(CrossShardRoute { to, stamp: stamp(at) });
    let entry = QueueRecord { route: way, ..QueueRecord::new(mqtt::QoS::ExactlyOnce, true) };
    let RecordNumber(number) = RecordNumber::of_cross_shard_log(1, 0);
    let pairs = [
        (RecordSpace::Sessions, vec![kind::BOOT], records::boot_value(1, homes)),
        (
            RecordSpace::Queues,
            queue_key(RecordNumber(number), 1),
            records::queue_value(&entry, RecordBody::Inline(in_transit.view().as_bytes())),
        ),
        (
            RecordSpace::Retained,
            b"t".to_vec(),
            records::retained_value(stamp(5), stored.view().as_bytes()),
        ),
    ];
    let pairs =
        MapStoreReader(pairs.into_iter().map(|(of, key, value)| ((of, key), value)).collect());
    let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
    let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
    let now = MonotonicMs(60_000);
    let mut shards = [Shard::new(to, 1, options, interest, memory, 1, 1, now)];
    let (_, changes) = restore(&mut shards, &pairs, now).expect("it can be read");
    let writes = changes.iter().any(|change| change.space == RecordSpace::Retained);
    let found = shards[0].routing.retained.get("t").filter(|message| !message.is_expired(now));
    (found.map(|message| message.payload().to_vec()), writes)
}

#[test]
fn of_what_is_stored_and_what_was_on_its_way_the_later_one_is_retained() {
    let message = retained(b"in transit", u32::MAX);
    assert_eq!(start(&message, 4), (Some(b"stored".to_vec()), false));
    assert_eq!(start(&message, 6), (Some(b"in transit".to_vec()), true));
}

#[test]
fn what_expired_on_its_way_brings_nothing_back() {
    let message = retained(b"in transit", 1);
    assert_eq!(start(&message, 6), (None, true));
    assert_eq!(start(&message, 4), (Some(b"stored".to_vec()), false));
}

#[test]
fn what_was_cleared_while_it_was_on_its_way_stays_so() {
    let (clear, message) = (retained(b"", u32::MAX), retained(b"in transit", u32::MAX));
    assert_eq!(start_with(&clear, &message, 4), (None, false));
    assert_eq!(start_with(&clear, &message, 6), (Some(b"in transit".to_vec()), true));
}

fn shard_with_a_store() -> Shard {
    let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
    let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
    let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
    shard.open_store(1);
    shard
}

const EARLY: RetainStamp = RetainStamp { at: 4, counter: 0, shard: 1 };
const LATE: RetainStamp = RetainStamp { at: 5, counter: 0, shard: 2 };

#[test]
fn who_waits_for_a_retained_message_waits_for_what_took_its_place() {
    let mut shard = shard_with_a_store();
    shard.routing.set_retained(&retained(b"later", u32::MAX), LATE, true, &mut shard.sessions);
    let (_, is_urgent) = shard.take_records();
    assert!(!is_urgent, "nobody waits for a message of QoS 0");
    let draft = retained(b"earlier", u32::MAX);
    let waits = IncomingPublish { qos: mqtt::QoS::AtLeastOnce, ..draft.view().draft() };
    shard.routing.set_retained(&Message::new(&waits), EARLY, true, &mut shard.sessions);
    let (changes, is_urgent) = shard.take_records();
    let values: Vec<_> = changes.iter().filter_map(|it| it.value.as_deref()).collect();
    let stored = values.iter().find_map(|value| records::read_retained(value));
    let (stamp, message) = stored.expect("the later one, once more");
    assert_eq!((stamp, message.payload(), is_urgent), (LATE, &b"later"[..], true));
}

#[test]
fn what_waited_for_the_store_is_retained_elsewhere_only_if_it_is_the_last_still() {
    let mut shard = shard_with_a_store();
    let message = retained(b"1", u32::MAX);
    let is_retained = |shard: &Shard, message: &Message, stamp: RetainStamp| {
        let word =
            ShardMessage::Retain { message: message.clone(), stamp, ticket: 0, origin: None };
        matches!(shard.update_late_message(word), ShardMessage::Retain { .. })
    };
    shard.routing.set_retained(&message, EARLY, true, &mut shard.sessions);
    assert!(is_retained(&shard, &message, EARLY));
    let clear = retained(b"", u32::MAX);
    shard.routing.set_retained(&clear, LATE, true, &mut shard.sessions);
    assert!(!is_retained(&shard, &message, EARLY));
    shard.routing.retained.sweep(MonotonicMs(3_600_000));
    assert!(!is_retained(&shard, &message, EARLY), "the tombstone is gone");
    assert!(is_retained(&shard, &clear, LATE), "what clears brings nothing back");
}
