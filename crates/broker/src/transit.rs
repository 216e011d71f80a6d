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

    fn retain_again(&mut self, message: &Message, stamp: Stamp) {
        self.stamp = self.stamp.max(stamp);
        if !message.is_expired(self.now) {
            self.set_retained(message, stamp, false);
        }
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
        // Only the topic's home knows that nothing later has come.
        if homes.of(message.topic()) == *to {
            shards.iter_mut().for_each(|shard| shard.retain_again(message, *stamp));
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
