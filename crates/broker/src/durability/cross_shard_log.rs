//! Cross-shard logs: messages on the way to another shard that must arrive exactly once, even
//! across power cuts.
//!
//! The sender writes the message to the log, a queue of its own in the store, in the batch that
//! accepts the message; the receiver removes the record in the batch that stores the result. The
//! store keeps the order of batches, and a message leaves a shard after the batch with the record,
//! so after a power cut the message is in exactly one of the two places. At the next start, the
//! entries left in a log are delivered to the same sessions and groups, on the shards that own them
//! then.

use crate::durability::persistent_session::QueueRecordId;
use crate::durability::records::{self, CrossShardRoute, QueueRecord, RecordBody};
use crate::durability::write_batch::{RecordNumber, RecordSpace, StoreReadError, StoreReader};
use crate::input::{MonotonicMs, RetainStamp, ShardId, ShardMessage};
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::message::{IncomingPublish, Message};
use crate::routing::owner_shard::ShardHasher;
use crate::routing::topics::FilterSubscriber;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::sys::DropReason;
use std::sync::Arc;

/// An entry of a cross-shard log, read by [`restore_cross_shard_logs`] at a start.
struct CrossShardEntry {
    way: CrossShardRoute,
    group: Option<Arc<str>>,
    message: Message,
}

impl SessionTable {
    /// Prepares a request to another shard to store a message. Returns a token to be confirmed, or
    /// for `exactly_once` the key of a record in the cross-shard log, which the other shard
    /// removes; neither without `asks`.
    pub(crate) fn request_commit(
        &mut self,
        to: ShardId,
        asks: bool,
        draft: &mut IncomingPublish<'_>,
        stamp: RetainStamp,
    ) -> (u64, Option<QueueRecordId>) {
        match asks {
            false => (0, None),
            true if draft.exactly_once => {
                let message = draft.message().clone();
                let origin =
                    self.write_cross_shard_record(CrossShardRoute { to, stamp }, None, &message);
                (0, Some(origin))
            }
            true => (self.next_commit_token(to), None),
        }
    }

    /// Returns a message from a group's member to the shard that owns the group, by `send_return`,
    /// with a record in the cross-shard log if the message had a queue record.
    pub(crate) fn return_to_group(
        &mut self,
        group: Arc<str>,
        message: Message,
        origin: Option<QueueRecordId>,
        out: &mut Outbox,
    ) {
        let to = self.context.owner_of(&group);
        // The old record would be lost with the session of the member, so the log takes over.
        let origin = origin.map(|before| {
            self.write_batch.remove_queue_record(before);
            self.write_cross_shard_record(
                CrossShardRoute { to, stamp: RetainStamp::default() },
                Some(&group),
                &message,
            )
        });
        self.send_return(to, group, message, origin, out);
    }

    /// Sends `ShardMessage::ReturnToGroup` to the owner of a group, for a message that a member did
    /// not receive.
    pub(crate) fn send_return(
        &mut self,
        owner: ShardId,
        group: Arc<str>,
        message: Message,
        origin: Option<QueueRecordId>,
        out: &mut Outbox,
    ) {
        self.ledger.crossing += message.bytes() as i64;
        out.lanes[usize::from(owner.0)].push_back(ShardMessage::ReturnToGroup {
            group,
            message,
            origin,
        });
    }

    fn write_cross_shard_record(
        &mut self,
        way: CrossShardRoute,
        group: Option<&Arc<str>>,
        message: &Message,
    ) -> QueueRecordId {
        let draft = message.view().draft();
        let entry = QueueRecord {
            route: Some(way),
            group: group.cloned(),
            ..QueueRecord::new(draft.qos, draft.retain)
        };
        let value = records::queue_value(&entry, RecordBody::Inline(message.view().as_bytes()));
        let origin = self.write_batch.allocate_cross_shard_id();
        let key = records::queue_key(origin.number, origin.position);
        self.write_batch.push_change(RecordSpace::Queues, key, Some(value));
        origin
    }
}

impl ShardRouting {
    /// Routes a message of another shard to the subscribers here, and removes the record in the
    /// cross-shard log.
    pub(crate) fn route_remote_message(
        &mut self,
        message: &Message,
        origin: Option<QueueRecordId>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut draft = message.draft();
        draft.exactly_once = origin.is_some();
        self.route_here(None, &mut draft, sessions, out);
        sessions.remove_moved_record(origin);
    }

    /// Delivers a restored message to sessions and groups here that were owned by the message's
    /// destination, as `was_there` tells for a client id.
    fn reroute_restored(
        &mut self,
        message: &Message,
        was_there: impl Fn(&str) -> bool,
        sessions: &mut SessionTable,
    ) {
        let (mut draft, mut filters) = (message.draft(), Vec::new());
        // No client is connected yet, so the outbox stays empty.
        let out = &mut Outbox::new(sessions.context.shards);
        self.topics.matching(draft.topic, &mut filters);
        let takes = |sessions: &SessionTable, one: &FilterSubscriber| {
            was_there(&sessions.get(one.session).client_id)
        };
        self.deliver_overlapping(&filters, takes, &mut draft, sessions, out);
        self.redispatch_to_groups(&filters, was_there, &mut draft, sessions, out);
    }
}

/// Restores the messages that were on the way between the shards of the last process. All changes
/// are in one batch with the new number of the start: a power cut before that batch leaves the logs
/// unchanged.
pub(crate) fn restore_cross_shard_logs(
    shards: &mut [Shard],
    stored: &dyn StoreReader,
    boot: u32,
    homes: ShardHasher,
    now: MonotonicMs,
) -> Result<(), StoreReadError> {
    let mut found = Vec::new();
    for source in 0..homes.shards {
        let number = RecordNumber::of_cross_shard_log(boot, source);
        let prefix = records::number_key(number);
        stored.scan(RecordSpace::Queues, &prefix, &prefix, &mut |key, value| {
            found.extend(read_cross_shard_entry(value));
            shards[0].sessions.write_batch.push_change(RecordSpace::Queues, key.to_vec(), None);
            true
        })?;
    }
    for left in &found {
        resume_entry(shards, left, homes, now);
    }
    // The order of retained messages is by stamps, not by sending shard.
    found.retain(|left| left.group.is_none() && left.message.view().draft().retain);
    found.sort_by_key(|left| left.way.stamp);
    for CrossShardEntry { way: CrossShardRoute { to, stamp }, message, .. } in &found {
        // Only the record to the topic's owner counts; records to other shards are for subscribers.
        // An expired message counts too, so that the replaced message does not come back.
        if homes.owner_of(message.topic()) == *to {
            shards.iter_mut().for_each(|shard| {
                shard.routing.set_retained(message, *stamp, false, &mut shard.sessions)
            });
        }
    }
    Ok(())
}

fn read_cross_shard_entry(value: &[u8]) -> Option<CrossShardEntry> {
    let (entry, body) = records::read_queue(value)?;
    let RecordBody::Inline(bytes) = body else { return None };
    Some(CrossShardEntry { way: entry.route?, group: entry.group, message: Message::read(bytes)? })
}

fn resume_entry(
    shards: &mut [Shard],
    left: &CrossShardEntry,
    homes: ShardHasher,
    now: MonotonicMs,
) {
    let CrossShardEntry { way: CrossShardRoute { to, .. }, group, message } = left;
    if message.is_expired(now) {
        shards[0].sessions.counters.drops[DropReason::Expired as usize] += 1;
        return;
    }
    if let Some(group) = group {
        let owner = usize::from(shards[0].sessions.context.owner_of(group).0);
        let out = &mut Outbox::new(shards.len());
        return shards[owner].routing.dispatch_to_group(
            group,
            message,
            None,
            &mut shards[owner].sessions,
            out,
        );
    }
    for shard in shards {
        shard.routing.reroute_restored(
            message,
            |name| homes.owner_of(name) == *to,
            &mut shard.sessions,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::records::kind;
    use crate::options::Durability;
    use crate::{BrokerOptions, Interest, ProcessMemory, restore};
    use std::collections::BTreeMap;

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
        Message::new(&IncomingPublish {
            retain: true,
            expiry_s,
            durability: Durability::Sync,
            ..plain
        })
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
                records::queue_key(RecordNumber(number), 1),
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
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
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
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
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
}
