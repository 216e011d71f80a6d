//! The part of a group's queue which is only in the store. It is read in pieces as members make
//! room, so that memory holds only the front of a long queue.

use super::{QueuedMessage, SharedGroup};
use crate::broker_event::BrokerEvent;
use crate::counters::{DROPS, DropReason};
use crate::durability::records::{self, RecordBody};
use crate::durability::stored_body::{LOW_WATER, READ_BYTES, READ_MESSAGES};
use crate::ids::MonotonicMs;
use crate::interface::outbox::{Effect, Outbox};
use crate::interface::store_access::{
    RecordSpace, StoreReadRequest, StoreReader, number_key, queue_key,
};
use crate::limits::{QUEUE_FRONT_BYTES, QUEUE_FRONT_MESSAGES};
use crate::log_rate_limiter::LogRateLimiter;
use crate::memory::cost;
use crate::message::Message;
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;

/// State of the stored part of a queue. `stored_from` is `None` while there is no such part.
#[derive(Debug, Default)]
pub(super) struct StoredTail {
    /// First position of the tail, if there is one. New stored messages are appended to the tail.
    pub(super) stored_from: Option<u64>,
    /// Messages of the tail since the start of the process, and their bytes.
    pub(super) messages: u64,
    bytes: u64,
    /// First position of this process.
    pub(super) process_from: u64,
    is_reading: bool,
    /// Reading the tail failed. The next attempt follows when a member reconnects.
    pub(super) is_unreadable: bool,
}

/// Dropped messages of a group that are not reported yet.
#[derive(Debug)]
pub(super) struct GroupDrops {
    counts: [u64; DROPS],
    limiter: LogRateLimiter,
}

impl Default for GroupDrops {
    fn default() -> GroupDrops {
        GroupDrops { counts: [0; DROPS], limiter: LogRateLimiter::new(1) }
    }
}

impl GroupDrops {
    pub(super) fn count(&mut self, drop: DropReason) {
        self.counts[drop as usize] += 1;
    }

    /// Reports the drops at most once per `LOG_INTERVAL_MS`, with the group's filter as the client
    /// id.
    pub(super) fn log_if_due(&mut self, name: &str, now: MonotonicMs, out: &mut Outbox) {
        if self.counts == [0; DROPS] || self.limiter.count(0, now).is_none() {
            return;
        }
        let counts = std::mem::take(&mut self.counts);
        let told = DropReason::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
        out.events.extend(told.map(|(drop, count)| BrokerEvent::Dropped {
            client_id: name.into(),
            drop,
            count,
        }));
    }
}

impl SharedGroup {
    /// Whether the next stored message goes to the store only: behind a tail, under memory
    /// pressure, or beyond the bounds of the front.
    pub(super) fn continues_in_store(&self, is_crowded: bool) -> bool {
        self.tail.stored_from.is_some()
            || is_crowded
            || self.queue.len() >= QUEUE_FRONT_MESSAGES
            || self.queue_bytes >= QUEUE_FRONT_BYTES
    }

    /// Counts a message that joins the end of the queue in the store alone, not in memory. The
    /// caller writes its record, at the next position of the queue.
    pub(super) fn spool(&mut self, bytes: u64) {
        let next = self.stored_queue.map(|(_, positions)| positions.next());
        let tail = &mut self.tail;
        tail.stored_from = tail.stored_from.or(next);
        tail.messages += 1;
        tail.bytes += bytes;
    }

    /// Messages and bytes that count for the queue's bounds. The tail counts only for stored
    /// messages.
    pub(super) fn queued_totals(&self, is_stored: bool) -> (u64, u64) {
        let tail = if is_stored { (self.tail.messages, self.tail.bytes) } else { (0, 0) };
        (self.queue.len() as u64 + tail.0, self.queue_bytes + tail.1)
    }
}

impl ShardRouting {
    /// Requests a read of the tail if the front is short and a member has room or `is_wanted` is
    /// set.
    pub(crate) fn request_group_tail(&mut self, at: u32, is_wanted: bool, out: &mut Outbox) {
        let group = &mut self.groups.groups[at];
        let has_room = || group.members.iter().any(|joined| joined.online && joined.room > 0);
        let may_read = !group.tail.is_reading && !group.tail.is_unreadable;
        let is_short = group.tail.stored_from.is_some() && group.queue.len() < LOW_WATER;
        if !is_short || !may_read || !(is_wanted || has_room()) {
            return;
        }
        let Some((number, _)) = group.stored_queue else { return };
        group.tail.is_reading = true;
        let reading = StoreReadRequest::Group { group: at, number: number.0 };
        out.effects.push(Effect::ReadStore { reading });
    }

    pub(crate) fn load_group_tail(
        &mut self,
        at: u32,
        number: u64,
        stored: &dyn StoreReader,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(group) = self.groups.groups.get_mut(at) else { return };
        let Some((own, _)) = group.stored_queue.filter(|(own, _)| own.0 == number) else { return };
        group.tail.is_reading = false;
        let Some(from) = group.tail.stored_from else { return };
        let part = if sessions.is_pressure_elevated() { 64 } else { 1 };
        let (messages_max, bytes_max) = (READ_MESSAGES / part, READ_BYTES / part);
        let (mut found, mut since_start) = (0, 0);
        let (mut bytes, mut bytes_since_start, mut next) = (0, 0, from);
        let prefix = number_key(own);
        let first = queue_key(own, from);
        let scanned = stored.scan(RecordSpace::Queues, &prefix, &first, &mut |key, value| {
            let Some(position) = records::position_of(key) else { return true };
            next = position + 1;
            found += 1;
            bytes += value.len();
            if let Some(message) = decode_group_message(value) {
                let message_bytes = message.bytes() as u64;
                if position >= group.tail.process_from {
                    since_start += 1;
                    bytes_since_start += message_bytes;
                }
                group.queue_bytes += message_bytes;
                self.groups.queue_bytes += message_bytes + cost::SLOT;
                group.queue.push_back(QueuedMessage { message, position: Some(position) });
            }
            found < messages_max && bytes < bytes_max
        });
        let tail = &mut group.tail;
        tail.is_unreadable = scanned.is_err();
        // Messages of this turn are not in the store yet.
        let is_behind = since_start < tail.messages && !sessions.write_batch.is_empty();
        let goes_on = found >= messages_max || bytes >= bytes_max || is_behind;
        tail.stored_from = (goes_on || tail.is_unreadable).then_some(next);
        let left = tail.messages.saturating_sub(since_start);
        (tail.messages, tail.bytes) = match tail.stored_from {
            Some(_) if left > 0 => (left, tail.bytes.saturating_sub(bytes_since_start)),
            _ => (0, 0),
        };
        self.drain_group_queue(at, sessions, out);
    }
}

/// Decodes the message of a record in a group's queue.
pub(super) fn decode_group_message(value: &[u8]) -> Option<Message> {
    match records::read_queue(value)? {
        (_, RecordBody::Inline(bytes)) => Message::read(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::DropReason;
    use crate::durability::write_batch::WriteBatch;
    use crate::ids::{MonotonicMs, SessionRef, ShardId};
    use crate::interface::input::GroupJoin;
    use crate::interface::outbox::Outbox;
    use crate::message::{Durability, IncomingPublish, Message};
    use crate::options::QueuePolicy;
    use crate::shard::Shard;
    use crate::{BrokerEvent, BrokerOptions, Interest, ProcessMemory};
    use mqtt::{ProtocolVersion, QoS, SubscribeOptions};
    use std::sync::Arc;

    const NAME: &str = "$share/g/t";

    /// A shard with a store, and a group whose only member is disconnected.
    fn shard(options: BrokerOptions) -> Shard {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..options });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        shard.sessions.write_batch = WriteBatch::open(2, 0);
        let session = shard.sessions.create("a", ProtocolVersion::V5);
        let generation = shard.sessions.get(session).generation;
        let member = SessionRef { shard: ShardId(0), session, generation };
        let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
        shard.routing.join_group(
            &NAME.into(),
            member,
            "a",
            GroupJoin { options, id: 0, lasts: true },
            &mut shard.sessions,
        );
        shard
    }

    fn publish(shard: &mut Shard, durability: Durability, out: &mut Outbox) {
        let payload = [7; 1024];
        let draft = IncomingPublish::new("t", &payload, MonotonicMs(0));
        let qos = match durability {
            Durability::Memory => QoS::AtMostOnce,
            _ => QoS::AtLeastOnce,
        };
        let message = Message::new(&IncomingPublish { qos, durability, ..draft });
        shard.routing.dispatch_to_group(NAME, &message, None, &mut shard.sessions, out);
        shard.take_records();
    }

    #[test]
    fn memory_has_but_the_front_of_a_long_queue_of_a_group() {
        let (mut shard, mut out) = (shard(BrokerOptions::default()), Outbox::new(1));
        (0..20_000).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
        let held = shard.routing.groups.memory_bytes();
        assert!((900_000..1_300_000).contains(&held), "{held} bytes of 20 MB");
        assert_eq!(shard.sessions.counters.drops, [0; crate::counters::DROPS]);
    }

    #[test]
    fn what_a_full_group_drops_is_counted_and_said_once_a_second() {
        for policy in [QueuePolicy::DropOldest, QueuePolicy::DropNewest] {
            let options = BrokerOptions {
                queue_messages_max: 1_500,
                queue_policy: policy,
                ..BrokerOptions::default()
            };
            let (mut shard, mut out) = (shard(options), Outbox::new(1));
            (0..1_600).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
            assert_eq!(shard.sessions.counters.drops[DropReason::QueueFull as usize], 100);
            shard.sessions.context.now = MonotonicMs(1_000);
            publish(&mut shard, Durability::Sync, &mut out);
            let told = out.events.iter().map(|event| match event {
                BrokerEvent::Dropped { client_id, drop: DropReason::QueueFull, count }
                    if &**client_id == NAME =>
                {
                    *count
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(told.collect::<Vec<_>>(), [1, 99], "{policy:?}");
        }
    }

    /// Otherwise a message would be dispatched from memory, and again once the tail is read.
    #[test]
    fn nothing_in_memory_stands_in_the_part_that_only_the_store_has() {
        let options = BrokerOptions { queue_qos0: true, ..BrokerOptions::default() };
        let (mut shard, mut out) = (shard(options), Outbox::new(1));
        (0..1_100).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
        let at = shard.routing.groups.by_name[NAME];
        let member = shard.routing.groups.groups[at].members[0].member;
        shard.routing.join_group(
            &NAME.into(),
            member,
            "a",
            GroupJoin { options: SubscribeOptions::default(), id: 0, lasts: true },
            &mut shard.sessions,
        );
        publish(&mut shard, Durability::Sync, &mut out);
        let group = &shard.routing.groups.groups[at];
        let unread = group.tail.stored_from.expect("the queue is long");
        let positions: Vec<u64> = group.queue.iter().filter_map(|it| it.position).collect();
        assert_eq!((positions.len() + 1, group.tail.messages), (group.queue.len(), 129));
        assert!(positions.iter().all(|position| *position < unread));
    }

    /// Stored messages were acknowledged to their publisher, so others must not replace them.
    #[test]
    fn what_only_memory_has_takes_no_place_of_what_a_group_has_stored() {
        let options =
            BrokerOptions { queue_messages_max: 10, queue_qos0: true, ..BrokerOptions::default() };
        let (mut shard, mut out) = (shard(options), Outbox::new(1));
        (0..10).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
        publish(&mut shard, Durability::Memory, &mut out);
        let at = shard.routing.groups.by_name[NAME];
        let group = &shard.routing.groups.groups[at];
        assert!(group.queue.len() == 10 && group.queue.iter().all(|it| it.position.is_some()));
        assert_eq!(shard.sessions.counters.drops[DropReason::QueueFull as usize], 1);
    }
}
