//! The write batch: the records of a tick that must outlive the process. The outbox carries the
//! batch to the store at the end of the tick. No code here waits for the disk; `pending_acks` holds
//! the answers that wait.
//!
//! A message for one session is part of that session's queue record; a message for several sessions
//! in the same tick is one shared body, and the queue records refer to the body.

use crate::durability::records::{self, QueueRecord, RecordBody};
use crate::ids::{QueueRecordId, RecordNumber, first_record_number};
use crate::interface::store_access::{RecordChange, RecordSpace, number_key, queue_key};
use crate::message::{MessagePool, PooledMessageId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Allocates the positions of one queue, upwards. A crash must not lead to a repeated position, so
/// the store has a mark above all allocated positions, moved by [`POSITIONS_PER_BLOCK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PositionAllocator {
    next: u64,
    mark: u64,
}

pub(crate) const POSITIONS_PER_BLOCK: u64 = 1 << 16;

impl PositionAllocator {
    /// Continues the positions of a queue at the stored mark, or begins at mark 0.
    pub(crate) fn from_mark(mark: u64) -> PositionAllocator {
        PositionAllocator { next: mark, mark }
    }

    /// Allocates a position. Returns the position, and whether the mark has moved and must be
    /// stored.
    pub(crate) fn allocate(&mut self) -> (u64, bool) {
        let moves = self.next == self.mark;
        self.mark += if moves { POSITIONS_PER_BLOCK } else { 0 };
        self.next += 1;
        (self.next - 1, moves)
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// Returns the newest allocated position with this low half, as stored in
    /// `FlightSlot::position`.
    pub(crate) fn full_position(&self, low: u32) -> u64 {
        self.next - u64::from((self.next as u32).wrapping_sub(low))
    }
}

/// For a long queue (`takes_copy`), number of queues up to which a message is copied and not
/// shared; a message of at most `COPY_BYTES_MAX` bytes is always copied.
const COPIES_MAX: u32 = 4;
const COPY_BYTES_MAX: usize = 256;

#[derive(Debug)]
enum BatchOp {
    Change(RecordChange),
    InsertInQueue(QueueInsert),
}

/// References of a tick's [`QueueInsert`]s to one message.
#[derive(Debug, Default)]
struct BodyDemand {
    times: u32,
    /// Number of references that take a copy.
    copies: u32,
    unread: bool,
    body: Option<RecordNumber>,
}

/// A message added to a queue.
#[derive(Debug)]
pub(crate) struct QueueInsert {
    pub(crate) number: RecordNumber,
    pub(crate) position: u64,
    pub(crate) entry: QueueRecord,
    pub(crate) message: PooledMessageId,
    /// Whether only the store has this part of the queue, so memory does not count the reference.
    pub(crate) is_unread: bool,
    /// Whether a record takes a copy because its queue is long: see `write_queue`.
    pub(crate) takes_copy: bool,
}

/// Records of this tick, and facts about the message that is being routed.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    /// Whether the broker has a store.
    pub(crate) has_store: bool,
    ops: Vec<BatchOp>,
    /// Whether a client waits for one of the records.
    urgent: bool,
    /// Whether a session on this shard stores the message that is being routed.
    pub(crate) stores_routed: bool,
    next: u64,
    /// The first number of this process, from [`first_record_number`], and of this shard.
    process_from: u64,
    own_from: u64,
    /// Number of shared bodies without a full count of references in memory, for the garbage
    /// collector.
    pub(crate) uncounted: u64,
    /// Last allocated position in the cross-shard log.
    cross_shard_next: u64,
}

impl WriteBatch {
    pub(crate) fn open(boot: u32, shard: u8) -> WriteBatch {
        let process_from = first_record_number(boot);
        let RecordNumber(own_from) = RecordNumber::of_cross_shard_log(boot, shard);
        WriteBatch {
            has_store: true,
            next: own_from,
            process_from,
            own_from,
            ..WriteBatch::default()
        }
    }

    /// Whether an earlier process allocated this number (below `process_from`).
    pub(crate) fn is_old(&self, number: RecordNumber) -> bool {
        number.0 < self.process_from
    }

    /// Whether this shard allocated this number in this process.
    pub(crate) fn is_own(&self, number: RecordNumber) -> bool {
        number.0 > self.own_from && number.0 <= self.next
    }

    pub(crate) fn next_number(&self) -> RecordNumber {
        RecordNumber(self.next + 1)
    }

    pub(crate) fn allocate_number(&mut self) -> RecordNumber {
        self.next += 1;
        RecordNumber(self.next)
    }

    /// Allocates a key in the cross-shard log.
    pub(crate) fn allocate_cross_shard_id(&mut self) -> QueueRecordId {
        self.cross_shard_next += 1;
        QueueRecordId { number: RecordNumber(self.own_from), position: self.cross_shard_next }
    }

    /// Adds a change that no client waits for.
    pub(crate) fn push_change(&mut self, space: RecordSpace, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.ops.push(BatchOp::Change(RecordChange { space, key, value }));
    }

    /// Marks the batch as urgent: an answer waits for the records of this tick.
    pub(crate) fn mark_urgent(&mut self) {
        self.urgent = true;
    }

    /// Adds a message to a queue. The caller's reference to the message is released with the batch.
    pub(crate) fn insert_in_queue(&mut self, joins: QueueInsert) {
        self.ops.push(BatchOp::InsertInQueue(joins));
    }

    /// Removes a queue record.
    pub(crate) fn remove_queue_record(&mut self, place: QueueRecordId) {
        self.push_change(RecordSpace::Queues, queue_key(place.number, place.position), None);
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the tick's changes, in order, and begins a new batch. Each [`QueueInsert`] becomes a
    /// record and releases one reference to the message.
    pub(crate) fn take_changes(&mut self, messages: &mut MessagePool) -> Vec<RecordChange> {
        self.urgent = false;
        let mut wanted: HashMap<u32, BodyDemand, FixedState> = HashMap::default();
        for op in &self.ops {
            if let BatchOp::InsertInQueue(joins) = op {
                let wanted = wanted.entry(joins.message.0).or_default();
                wanted.times += 1;
                wanted.copies += u32::from(joins.takes_copy);
                wanted.unread |= joins.is_unread;
            }
        }
        let mut changes = Vec::with_capacity(self.ops.len() + wanted.len());
        for op in std::mem::take(&mut self.ops) {
            match op {
                BatchOp::Change(change) => changes.push(change),
                BatchOp::InsertInQueue(joins) => {
                    let wanted = wanted.entry(joins.message.0).or_default();
                    self.write_queue(joins, wanted, messages, &mut changes);
                }
            }
        }
        for body in messages.take_dead_bodies() {
            let key = number_key(body);
            changes.push(RecordChange { space: RecordSpace::Messages, key, value: None });
        }
        changes
    }

    /// Writes a queue record, and the shared body if necessary. With `takes_copy` the record gets a
    /// copy, unless the message is large and wanted by more than [`COPIES_MAX`] queues: only the
    /// garbage collector finds bodies left over by long queues. The last reference in memory
    /// removes a shared body, unless counted in `uncounted`.
    fn write_queue(
        &mut self,
        joins: QueueInsert,
        wanted: &mut BodyDemand,
        messages: &mut MessagePool,
        changes: &mut Vec<RecordChange>,
    ) {
        let QueueInsert { number, position, entry, message, takes_copy, .. } = joins;
        let shares_all =
            wanted.times > COPIES_MAX && messages.get(message).bytes() > COPY_BYTES_MAX;
        let sharers = if shares_all { wanted.times } else { wanted.times - wanted.copies };
        let mut body = wanted.body.or(messages.body(message));
        if takes_copy && !shares_all {
            body = None;
        } else if sharers > 1 && body.is_none() {
            let new = self.allocate_number();
            match wanted.unread || (shares_all && wanted.copies > 0) {
                true => self.uncounted += 1,
                false => messages.set_body(message, new),
            }
            let value = messages.get(message).as_bytes().to_vec();
            let key = number_key(new);
            changes.push(RecordChange { space: RecordSpace::Messages, key, value: Some(value) });
            body = Some(new);
        }
        wanted.body = wanted.body.or(body);
        let body = match body {
            Some(body) => RecordBody::Shared(body),
            None => RecordBody::Inline(messages.get(message).as_bytes()),
        };
        let value = records::queue_value(&entry, body);
        let key = queue_key(number, position);
        changes.push(RecordChange { space: RecordSpace::Queues, key, value: Some(value) });
        messages.release(message);
    }
}
