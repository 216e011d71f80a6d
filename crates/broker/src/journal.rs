//! What must outlive the process, as it changes: a shard writes here, the outbox carries it to the
//! store at the end of the tick. Nothing here waits for a disk; `owed` holds the answers that do.
//!
//! A message that one session wants stands in that session's queue record; one that several want in
//! the same tick stands once, and their records name it.

use crate::lasting::Origin;
use crate::message::{KeptId, Messages};
use crate::records::{self, Body, Entry};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The store's key spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    Messages,
    Queues,
    Retained,
    Sessions,
}

/// One key's new value; `None` removes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub space: Space,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// What the store holds, for a shard to read.
pub trait Stored: std::fmt::Debug {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Unreadable>;

    /// Visits the keys that begin with `prefix` and are not below `from`, in order, until told
    /// false.
    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Unreadable>;
}

/// The store could not read, and has said why to whoever owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Names a session, a group or a message for as long as the store keeps it: the start of the
/// process that made it, the shard, and a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Number(pub(crate) u64);

const BOOT_AT: u32 = 44;
const SHARD_AT: u32 = 38;

impl Number {
    /// Counts begin at 1: before them stands what is on its way from a shard to the others.
    pub(crate) fn of_transit(boot: u32, shard: u8) -> Number {
        Number(first_of(boot) | u64::from(shard) << SHARD_AT)
    }
}

/// The first of the numbers that belong to a start of the process.
pub(crate) fn first_of(boot: u32) -> u64 {
    u64::from(boot) << BOOT_AT
}

/// Positions of one queue, given upwards. A crash must not give one twice, so the store knows a
/// mark above all that were given, and moves it a block at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positions {
    next: u64,
    mark: u64,
}

pub(crate) const BLOCK: u64 = 1 << 16;

impl Positions {
    /// Of a queue that goes on, or that begins at mark 0.
    pub(crate) fn from_mark(mark: u64) -> Positions {
        Positions { next: mark, mark }
    }

    /// The next position, and whether the mark has moved.
    pub(crate) fn give(&mut self) -> (u64, bool) {
        let moves = self.next == self.mark;
        self.mark += if moves { BLOCK } else { 0 };
        self.next += 1;
        (self.next - 1, moves)
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// The position with this low half that was given last.
    pub(crate) fn whole(&self, low: u32) -> u64 {
        self.next - u64::from((self.next as u32).wrapping_sub(low))
    }
}

/// So many queues, or so few bytes, do not share a message that memory does not count.
const COPIES_MAX: u32 = 4;
const COPY_BYTES_MAX: usize = 256;

#[derive(Debug)]
enum Op {
    Change(Change),
    Queue(Joins),
}

/// What a tick's queue records want of one message.
#[derive(Debug, Default)]
struct Wanted {
    times: u32,
    /// Of these, such that take copies.
    copies: u32,
    unread: bool,
    body: Option<Number>,
}

/// A message joins a queue.
#[derive(Debug)]
pub(crate) struct Joins {
    pub(crate) number: Number,
    pub(crate) position: u64,
    pub(crate) entry: Entry,
    pub(crate) message: KeptId,
    /// The part of the queue that only the store has: nobody in memory counts this one.
    pub(crate) is_unread: bool,
    /// The same, of a queue that is long: see `write_queue`.
    pub(crate) takes_copy: bool,
}

/// What a publish has found out about who keeps it.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Whether there is a store at all.
    pub(crate) is_on: bool,
    ops: Vec<Op>,
    /// Somebody waits for one of them.
    urgent: bool,
    /// A session here keeps the message that is being routed.
    pub(crate) keeps: bool,
    next: u64,
    /// The first number of this process, and of this shard.
    process_from: u64,
    own_from: u64,
    /// Messages that stand once for several queues of which memory has not all.
    pub(crate) uncounted: u64,
    /// The next position in the transit.
    transit_next: u64,
}

impl Journal {
    pub(crate) fn open(boot: u32, shard: u8) -> Journal {
        let process_from = first_of(boot);
        let Number(own_from) = Number::of_transit(boot, shard);
        Journal { is_on: true, next: own_from, process_from, own_from, ..Journal::default() }
    }

    /// Whether an earlier process gave this number.
    pub(crate) fn is_old(&self, number: Number) -> bool {
        number.0 < self.process_from
    }

    /// Whether this shard gave it.
    pub(crate) fn is_own(&self, number: Number) -> bool {
        number.0 > self.own_from && number.0 <= self.next
    }

    pub(crate) fn next_number(&self) -> Number {
        Number(self.next + 1)
    }

    pub(crate) fn number(&mut self) -> Number {
        self.next += 1;
        Number(self.next)
    }

    /// A place for what is on its way to another shard.
    pub(crate) fn transit(&mut self) -> Origin {
        self.transit_next += 1;
        Origin { number: Number(self.own_from), position: self.transit_next }
    }

    /// Nobody waits for this.
    pub(crate) fn change(&mut self, space: Space, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.ops.push(Op::Change(Change { space, key, value }));
    }

    /// An answer will wait for what is written in this tick.
    pub(crate) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// The caller's reference to the message is kept until the tick ends.
    pub(crate) fn queue(&mut self, joins: Joins) {
        self.ops.push(Op::Queue(joins));
    }

    /// A place of a queue is free.
    pub(crate) fn strike(&mut self, place: Origin) {
        self.change(Space::Queues, records::queue_key(place.number, place.position), None);
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The tick's changes, in order.
    pub(crate) fn take(&mut self, messages: &mut Messages) -> Vec<Change> {
        self.urgent = false;
        let mut wanted: HashMap<u32, Wanted, FixedState> = HashMap::default();
        for op in &self.ops {
            if let Op::Queue(joins) = op {
                let wanted = wanted.entry(joins.message.0).or_default();
                wanted.times += 1;
                wanted.copies += u32::from(joins.takes_copy);
                wanted.unread |= joins.is_unread;
            }
        }
        let mut changes = Vec::with_capacity(self.ops.len() + wanted.len());
        for op in std::mem::take(&mut self.ops) {
            match op {
                Op::Change(change) => changes.push(change),
                Op::Queue(joins) => {
                    let wanted = wanted.entry(joins.message.0).or_default();
                    self.write_queue(joins, wanted, messages, &mut changes);
                }
            }
        }
        for body in messages.take_dead_bodies() {
            let key = records::number_key(body);
            changes.push(Change { space: Space::Messages, key, value: None });
        }
        changes
    }

    /// A long queue of which only the store has the rest takes copies of messages, unless they are
    /// large and many queues want them: what is shared with it is found to be left over only from
    /// time to time.
    ///
    /// A body that a record names is removed by the last in memory that wants it, unless queues
    /// that only the store has want it too.
    fn write_queue(
        &mut self,
        joins: Joins,
        wanted: &mut Wanted,
        messages: &mut Messages,
        changes: &mut Vec<Change>,
    ) {
        let Joins { number, position, entry, message, takes_copy, .. } = joins;
        let shares_all =
            wanted.times > COPIES_MAX && messages.get(message).bytes() > COPY_BYTES_MAX;
        let sharers = if shares_all { wanted.times } else { wanted.times - wanted.copies };
        let mut body = wanted.body.or(messages.body(message));
        if takes_copy && !shares_all {
            body = None;
        } else if sharers > 1 && body.is_none() {
            let new = self.number();
            match wanted.unread || (shares_all && wanted.copies > 0) {
                true => self.uncounted += 1,
                false => messages.set_body(message, new),
            }
            let value = messages.get(message).as_bytes().to_vec();
            let key = records::number_key(new);
            changes.push(Change { space: Space::Messages, key, value: Some(value) });
            body = Some(new);
        }
        wanted.body = wanted.body.or(body);
        let body = match body {
            Some(body) => Body::Elsewhere(body),
            None => Body::Here(messages.get(message).as_bytes()),
        };
        let value = records::queue_value(&entry, body);
        let key = records::queue_key(number, position);
        changes.push(Change { space: Space::Queues, key, value: Some(value) });
        messages.release(message);
    }
}
