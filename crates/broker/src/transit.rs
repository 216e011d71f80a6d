//! What is on its way to another shard and must come there once, through any power cut.
//!
//! A message stands in the sender's transit, a queue of its own in the store, from the batch in
//! which the sender took it; the receiver strikes it there in the batch that says what came of it.
//! The disk keeps batches in their order, and a word leaves a shard after the batch that was
//! written with it: so a cut leaves the message in one of the two places and never in both. What is
//! left in transits when a process ends goes on at the next start, to the same sessions and groups,
//! wherever they are then.

use crate::home::Homes;
use crate::input::{Cross, Now, ShardId, Stamp};
use crate::journal::{Number, Space, Stored, Unreadable};
use crate::lasting::Origin;
use crate::message::{Draft, Message};
use crate::outbox::Outbox;
use crate::records::{self, Body, Entry, Way};
use crate::session::Sessions;
use crate::shard::Shard;
use crate::sys::Drop;
use crate::topics::Subscriber;
use std::sync::Arc;

/// What a start finds in a transit.
struct Left {
    way: Way,
    group: Option<Arc<str>>,
    message: Message,
}

impl Shard {
    /// How a shard that is asked to keep a message is held to it: by its answer to a ticket, or by
    /// what stands in the transit until it has it.
    pub(crate) fn entrust(
        &mut self,
        to: ShardId,
        asks: bool,
        draft: &mut Draft<'_>,
        stamp: Stamp,
    ) -> (u64, Option<Origin>) {
        match asks {
            false => (0, None),
            true if draft.once => {
                let message = draft.message().clone();
                let origin = self.hand_over(Way { to, stamp }, None, &message);
                (0, Some(origin))
            }
            true => (self.ask(to), None),
        }
    }

    /// What a member gives back to a group of another shard.
    pub(crate) fn give_back(
        &mut self,
        group: Arc<str>,
        message: Message,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) {
        let to = self.home_of(&group);
        // Where it stood nobody would look for it, once its session is over.
        let origin = origin.map(|before| {
            self.sessions.journal.strike(before);
            self.hand_over(Way { to, stamp: Stamp::default() }, Some(&group), &message)
        });
        self.return_to(to, group, message, origin, out);
    }

    /// Tells the shard that owns a group that a member did not have the message.
    pub(crate) fn return_to(
        &mut self,
        owner: ShardId,
        group: Arc<str>,
        message: Message,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) {
        self.ledger.crossing += message.bytes() as i64;
        out.lanes[usize::from(owner.0)].push_back(Cross::Return { group, message, origin });
    }

    fn hand_over(&mut self, way: Way, group: Option<&Arc<str>>, message: &Message) -> Origin {
        let draft = message.view().draft();
        let entry =
            Entry { way: Some(way), group: group.cloned(), ..Entry::new(draft.qos, draft.retain) };
        let value = records::queue_value(&entry, Body::Here(message.view().as_bytes()));
        let origin = self.sessions.journal.transit();
        let key = records::queue_key(origin.number, origin.position);
        self.sessions.journal.change(Space::Queues, key, Some(value));
        origin
    }

    /// A message of another shard to whoever wants it here.
    pub(crate) fn route_from_elsewhere(
        &mut self,
        message: &Message,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) {
        let mut draft = message.draft();
        draft.once = origin.is_some();
        self.route_here(None, &mut draft, out);
        self.strike(origin);
    }

    /// To the sessions and groups here that were at home where it was going.
    fn route_again(&mut self, message: &Message, was_there: impl Fn(&str) -> bool) {
        let (mut draft, mut filters) = (message.draft(), Vec::new());
        // Nobody is connected yet, so nothing leaves.
        let out = &mut Outbox::new(self.shards);
        self.topics.matching(draft.topic, &mut filters);
        let takes =
            |sessions: &Sessions, one: &Subscriber| was_there(&sessions.get(one.session).client_id);
        self.deliver_overlapping(&filters, takes, &mut draft, out);
        self.dispatch_again(&filters, was_there, &mut draft, out);
    }
}

/// What was on its way between the shards of the last process goes on. All of it is in one batch
/// with the start's own number: a cut before that leaves it as it was.
pub(crate) fn restore_transits(
    shards: &mut [Shard],
    stored: &dyn Stored,
    (boot, homes): (u32, Homes),
    now: Now,
) -> Result<(), Unreadable> {
    let mut found = Vec::new();
    for source in 0..homes.shards {
        let number = Number::of_transit(boot, source);
        let prefix = records::number_key(number);
        stored.scan(Space::Queues, &prefix, &prefix, &mut |key, value| {
            found.extend(read(value));
            shards[0].sessions.journal.change(Space::Queues, key.to_vec(), None);
            true
        })?;
    }
    for left in &found {
        go_on(shards, left, homes, now);
    }
    // What shards retained at the same time was ordered by stamps and not by who said it.
    found.retain(|left| left.group.is_none() && left.message.view().draft().retain);
    found.sort_by_key(|left| left.way.stamp);
    for Left { way: Way { to, stamp }, message, .. } in &found {
        // Only the topic's home has it to come: to the others it goes for their subscribers. What
        // has expired counts too, since what it replaced is not to come back.
        if homes.of(message.topic()) == *to {
            shards.iter_mut().for_each(|shard| shard.set_retained(message, *stamp, false));
        }
    }
    Ok(())
}

fn read(value: &[u8]) -> Option<Left> {
    let (entry, body) = records::read_queue(value)?;
    let Body::Here(bytes) = body else { return None };
    Some(Left { way: entry.way?, group: entry.group, message: Message::read(bytes)? })
}

fn go_on(shards: &mut [Shard], left: &Left, homes: Homes, now: Now) {
    let Left { way: Way { to, .. }, group, message } = left;
    if message.is_expired(now) {
        shards[0].sessions.counters.drops[Drop::Expired as usize] += 1;
        return;
    }
    if let Some(group) = group {
        let owner = usize::from(shards[0].home_of(group).0);
        let out = &mut Outbox::new(shards.len());
        return shards[owner].dispatch(group, message, None, out);
    }
    for shard in shards {
        shard.route_again(message, |name| homes.of(name) == *to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Durability;
    use crate::records::kind;
    use crate::{Interest, Memory, Options, restore};
    use std::collections::BTreeMap;

    #[derive(Debug, Default)]
    struct Pairs(BTreeMap<(Space, Vec<u8>), Vec<u8>>);

    impl Stored for Pairs {
        fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
            Ok(self.0.get(&(space, key.to_vec())).cloned())
        }

        fn scan(
            &self,
            space: Space,
            prefix: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), Unreadable> {
            for ((of, key), value) in &self.0 {
                if *of == space && key.starts_with(prefix) && !visit(key, value) {
                    break;
                }
            }
            Ok(())
        }
    }

    fn retained(payload: &'static [u8], expiry_s: u32) -> Message {
        let plain = Draft::new("t", payload, Now(0));
        Message::new(&Draft { retain: true, expiry_s, durability: Durability::Sync, ..plain })
    }

    /// What a start makes of a topic that the store has at time 5, and a transit at another.
    fn start(in_transit: &Message, at: u64) -> (Option<Vec<u8>>, bool) {
        start_with(&retained(b"stored", u32::MAX), in_transit, at)
    }

    fn start_with(stored: &Message, in_transit: &Message, at: u64) -> (Option<Vec<u8>>, bool) {
        let homes = Homes { key: 0, shards: 1 };
        let stamp = |at| Stamp { at, ..Stamp::default() };
        let to = ShardId(0);
        let way = Some(Way { to, stamp: stamp(at) });
        let entry = Entry { way, ..Entry::new(mqtt::QoS::ExactlyOnce, true) };
        let Number(number) = Number::of_transit(1, 0);
        let pairs = [
            (Space::Sessions, vec![kind::BOOT], records::boot_value(1, homes)),
            (
                Space::Queues,
                records::queue_key(Number(number), 1),
                records::queue_value(&entry, Body::Here(in_transit.view().as_bytes())),
            ),
            (
                Space::Retained,
                b"t".to_vec(),
                records::retained_value(stamp(5), stored.view().as_bytes()),
            ),
        ];
        let pairs = Pairs(pairs.into_iter().map(|(of, key, value)| ((of, key), value)).collect());
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let now = Now(60_000);
        let mut shards = [Shard::new(to, 1, options, interest, memory, 1, 1, now)];
        let (_, changes) = restore(&mut shards, &pairs, now).expect("it can be read");
        let writes = changes.iter().any(|change| change.space == Space::Retained);
        let found = shards[0].retained.get("t").filter(|message| !message.is_expired(now));
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
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        shard.keep(1);
        shard
    }

    const EARLY: Stamp = Stamp { at: 4, counter: 0, shard: 1 };
    const LATE: Stamp = Stamp { at: 5, counter: 0, shard: 2 };

    #[test]
    fn who_waits_for_a_retained_message_waits_for_what_took_its_place() {
        let mut shard = shard_with_a_store();
        shard.set_retained(&retained(b"later", u32::MAX), LATE, true);
        let (_, is_urgent) = shard.take_records();
        assert!(!is_urgent, "nobody waits for a message of QoS 0");
        let draft = retained(b"earlier", u32::MAX);
        let waits = Draft { qos: mqtt::QoS::AtLeastOnce, ..draft.view().draft() };
        shard.set_retained(&Message::new(&waits), EARLY, true);
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
        let is_retained = |shard: &Shard, message: &Message, stamp: Stamp| {
            let word = Cross::Retain { message: message.clone(), stamp, ticket: 0, origin: None };
            matches!(shard.say_late(word), Cross::Retain { .. })
        };
        shard.set_retained(&message, EARLY, true);
        assert!(is_retained(&shard, &message, EARLY));
        let clear = retained(b"", u32::MAX);
        shard.set_retained(&clear, LATE, true);
        assert!(!is_retained(&shard, &message, EARLY));
        shard.retained.sweep(Now(3_600_000));
        assert!(!is_retained(&shard, &message, EARLY), "the tombstone is gone");
        assert!(is_retained(&shard, &clear, LATE), "what clears brings nothing back");
    }
}
