//! The part of a group's queue that only the store has. It is read a piece at a time, as members
//! make room, so that memory has but the front of a long queue.

use super::{Group, Waiting};
use crate::input::Now;
use crate::journal::{Space, Stored};
use crate::limits::{QUEUE_FRONT_BYTES, QUEUE_FRONT_MESSAGES};
use crate::memory::cost;
use crate::message::Message;
use crate::note::Note;
use crate::outbox::{Effect, Outbox};
use crate::records::{self, Body};
use crate::shard::Shard;
use crate::sys::{DROPS, Drop};
use crate::unread::{LOW_WATER, READ_BYTES, READ_MESSAGES, Reading};

#[derive(Debug, Default)]
pub(super) struct StoredTail {
    /// Where it begins. New messages that are stored then join it.
    pub(super) unread: Option<u64>,
    /// Messages in it that came since the start, and their bytes.
    pub(super) messages: u64,
    bytes: u64,
    /// Where the positions of this process begin.
    pub(super) begins: u64,
    is_reading: bool,
    /// It could not be read: it is tried again when a member comes back.
    pub(super) is_unreadable: bool,
}

/// What a group did not get and nobody was told of yet.
#[derive(Debug, Default)]
pub(super) struct GroupDrops {
    counts: [u64; DROPS],
    told_at: Option<Now>,
}

const TELL_EVERY_MS: u64 = 1_000;

impl GroupDrops {
    pub(super) fn count(&mut self, drop: Drop) {
        self.counts[drop as usize] += 1;
    }

    /// In the log a group stands under its filter, `$share/` and all.
    pub(super) fn tell(&mut self, name: &str, now: Now, out: &mut Outbox) {
        let is_due = self.told_at.is_none_or(|at| now.0 >= at.0 + TELL_EVERY_MS);
        if !is_due || self.counts == [0; DROPS] {
            return;
        }
        self.told_at = Some(now);
        let counts = std::mem::take(&mut self.counts);
        let told = Drop::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
        out.notes.extend(told.map(|(drop, count)| Note::Dropped {
            client_id: name.into(),
            drop,
            count,
        }));
    }
}

impl Group {
    /// Whether what is stored and comes now is better in the store alone.
    pub(super) fn goes_on_in_store(&self, is_crowded: bool) -> bool {
        self.tail.unread.is_some()
            || is_crowded
            || self.queue.len() >= QUEUE_FRONT_MESSAGES
            || self.queue_bytes >= QUEUE_FRONT_BYTES
    }

    /// One more message, at the next position, is in the store alone.
    pub(super) fn spool(&mut self, bytes: u64) {
        let next = self.lasting.map(|(_, positions)| positions.next());
        let tail = &mut self.tail;
        tail.unread = tail.unread.or(next);
        tail.messages += 1;
        tail.bytes += bytes;
    }

    /// Messages and bytes that count for the bounds of what is stored, or is not.
    pub(super) fn waiting(&self, is_stored: bool) -> (u64, u64) {
        let tail = if is_stored { (self.tail.messages, self.tail.bytes) } else { (0, 0) };
        (self.queue.len() as u64 + tail.0, self.queue_bytes + tail.1)
    }
}

impl Shard {
    /// Asks for more of what only the store has, where a member has room or `is_wanted` says so.
    pub(super) fn read_group_on(&mut self, at: u32, is_wanted: bool, out: &mut Outbox) {
        let group = &mut self.groups.groups[at];
        let has_room = || group.members.iter().any(|joined| joined.online && joined.room > 0);
        let may_read = !group.tail.is_reading && !group.tail.is_unreadable;
        let is_short = group.tail.unread.is_some() && group.queue.len() < LOW_WATER;
        if !is_short || !may_read || !(is_wanted || has_room()) {
            return;
        }
        let Some((number, _)) = group.lasting else { return };
        group.tail.is_reading = true;
        let reading = Reading::Group { group: at, number: number.0 };
        out.effects.push(Effect::Read { reading });
    }

    pub(crate) fn read_group(
        &mut self,
        at: u32,
        number: u64,
        stored: &dyn Stored,
        out: &mut Outbox,
    ) {
        let Some(group) = self.groups.groups.get_mut(at) else { return };
        let Some((own, _)) = group.lasting.filter(|(own, _)| own.0 == number) else { return };
        group.tail.is_reading = false;
        let Some(from) = group.tail.unread else { return };
        let part = if self.sessions.is_crowded() { 64 } else { 1 };
        let (messages_max, bytes_max) = (READ_MESSAGES / part, READ_BYTES / part);
        let (mut found, mut since_start) = (0, 0);
        let (mut bytes, mut bytes_since_start, mut next) = (0, 0, from);
        let prefix = records::number_key(own);
        let first = records::queue_key(own, from);
        let scanned = stored.scan(Space::Queues, &prefix, &first, &mut |key, value| {
            let Some(position) = records::position_of(key) else { return true };
            next = position + 1;
            found += 1;
            bytes += value.len();
            if let Some(message) = message_of(value) {
                let message_bytes = message.bytes() as u64;
                if position >= group.tail.begins {
                    since_start += 1;
                    bytes_since_start += message_bytes;
                }
                group.queue_bytes += message_bytes;
                self.groups.queue_bytes += message_bytes + cost::SLOT;
                group.queue.push_back(Waiting { message, position: Some(position) });
            }
            found < messages_max && bytes < bytes_max
        });
        let tail = &mut group.tail;
        tail.is_unreadable = scanned.is_err();
        // What came in this very turn is not in the store yet.
        let is_behind = since_start < tail.messages && !self.sessions.journal.is_empty();
        let goes_on = found >= messages_max || bytes >= bytes_max || is_behind;
        tail.unread = (goes_on || tail.is_unreadable).then_some(next);
        let left = tail.messages.saturating_sub(since_start);
        (tail.messages, tail.bytes) = match tail.unread {
            Some(_) if left > 0 => (left, tail.bytes.saturating_sub(bytes_since_start)),
            _ => (0, 0),
        };
        self.flow_group(at, out);
    }
}

/// The message of a record in a group's queue.
pub(super) fn message_of(value: &[u8]) -> Option<Message> {
    match records::read_queue(value)? {
        (_, Body::Here(bytes)) => Message::read(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::input::Member;
    use crate::journal::Journal;
    use crate::message::{Draft, Message};
    use crate::options::{Durability, QueuePolicy};
    use crate::outbox::Outbox;
    use crate::shard::Shard;
    use crate::sys::Drop;
    use crate::{Interest, Memory, Note, Now, Options, ShardId};
    use mqtt::{QoS, SubscribeOptions, Version};
    use std::sync::Arc;

    const NAME: &str = "$share/g/t";

    /// A shard with a store, and a group whose one member is away.
    fn shard(options: Options) -> Shard {
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..options });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        shard.sessions.journal = Journal::open(2, 0);
        let session = shard.sessions.create("a", Version::V5);
        let generation = shard.sessions.get(session).generation;
        let member = Member { shard: ShardId(0), session, generation };
        let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
        shard.join(&NAME.into(), member, "a", options, 0, true);
        shard
    }

    fn publish(shard: &mut Shard, durability: Durability, out: &mut Outbox) {
        let payload = [7; 1024];
        let draft = Draft::new("t", &payload, Now(0));
        let qos = match durability {
            Durability::Memory => QoS::AtMostOnce,
            _ => QoS::AtLeastOnce,
        };
        let message = Message::new(&Draft { qos, durability, ..draft });
        shard.dispatch(NAME, &message, None, out);
        shard.take_records();
    }

    #[test]
    fn memory_has_but_the_front_of_a_long_queue_of_a_group() {
        let (mut shard, mut out) = (shard(Options::default()), Outbox::new(1));
        (0..20_000).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
        let held = shard.groups.held();
        assert!((900_000..1_300_000).contains(&held), "{held} bytes of 20 MB");
        assert_eq!(shard.sessions.counters.drops, [0; crate::sys::DROPS]);
    }

    #[test]
    fn what_a_full_group_drops_is_counted_and_said_once_a_second() {
        for policy in [QueuePolicy::DropOldest, QueuePolicy::DropNewest] {
            let options =
                Options { queue_messages_max: 1_500, queue_policy: policy, ..Options::default() };
            let (mut shard, mut out) = (shard(options), Outbox::new(1));
            (0..1_600).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
            assert_eq!(shard.sessions.counters.drops[Drop::QueueFull as usize], 100);
            shard.now = Now(1_000);
            publish(&mut shard, Durability::Sync, &mut out);
            let told = out.notes.iter().map(|note| match note {
                Note::Dropped { client_id, drop: Drop::QueueFull, count }
                    if &**client_id == NAME =>
                {
                    *count
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(told.collect::<Vec<_>>(), [1, 99], "{policy:?}");
        }
    }

    /// Else it would be given to a member from memory, and again once the rest is read.
    #[test]
    fn nothing_in_memory_stands_in_the_part_that_only_the_store_has() {
        let options = Options { queue_qos0: true, ..Options::default() };
        let (mut shard, mut out) = (shard(options), Outbox::new(1));
        (0..1_100).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
        let at = shard.groups.by_name[NAME];
        let member = shard.groups.groups[at].members[0].member;
        shard.join(&NAME.into(), member, "a", SubscribeOptions::default(), 0, true);
        publish(&mut shard, Durability::Sync, &mut out);
        let group = &shard.groups.groups[at];
        let unread = group.tail.unread.expect("the queue is long");
        let positions: Vec<u64> = group.queue.iter().filter_map(|it| it.position).collect();
        assert_eq!((positions.len() + 1, group.tail.messages), (group.queue.len(), 129));
        assert!(positions.iter().all(|position| *position < unread));
    }

    /// What the store has was acknowledged to its publisher.
    #[test]
    fn what_only_memory_has_takes_no_place_of_what_a_group_has_stored() {
        let options = Options { queue_messages_max: 10, queue_qos0: true, ..Options::default() };
        let (mut shard, mut out) = (shard(options), Outbox::new(1));
        (0..10).for_each(|_| publish(&mut shard, Durability::Sync, &mut out));
        publish(&mut shard, Durability::Memory, &mut out);
        let at = shard.groups.by_name[NAME];
        let group = &shard.groups.groups[at];
        assert!(group.queue.len() == 10 && group.queue.iter().all(|it| it.position.is_some()));
        assert_eq!(shard.sessions.counters.drops[Drop::QueueFull as usize], 1);
    }
}
