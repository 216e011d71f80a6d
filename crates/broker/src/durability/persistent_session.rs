//! Persistent sessions: the state in the store, and queues that the store holds in full. Memory has
//! the front of the queue only; after a start nothing, until the client reconnects.

use crate::durability::id_shifts::IdShifts;
use crate::durability::write_batch::PositionAllocator;
use crate::ids::{QueueRecordId, RecordNumber};

/// The state of a session in the store, for [`SessionTable`] and the records of `records`.
#[derive(Debug)]
pub(crate) struct PersistentSession {
    pub(crate) number: RecordNumber,
    pub(crate) positions: PositionAllocator,
    pub(crate) shifts: IdShifts,
    /// Start of the part of the queue that only the store has. New messages are appended to that
    /// part.
    pub(crate) stored_from: Option<u64>,
    /// Whether that part exists by [`continue_in_store`](SessionTable::continue_in_store), because
    /// the queue is long, and not because the client has been offline since the start.
    pub(crate) is_left_unread: bool,
    /// Number and bytes of the messages added to that part since the start.
    pub(crate) spooled: u32,
    pub(crate) spooled_bytes: u64,
    /// Whether a `StoreReadRequest::Queue` is in progress.
    pub(crate) is_reading: bool,
    /// Whether reading that part failed; the next connection of the client tries again.
    pub(crate) is_unreadable: bool,
    /// No message from this position on was ever sent.
    pub(crate) unsent: u64,
    /// In the part that only the store has, no message from this position on was ever sent.
    pub(crate) unsent_unread: u64,
    /// QoS 2 messages from this position on wait for the commit (`PendingAck::PositionsCommitted`).
    pub(crate) settled: u64,
    /// First queue position of this process.
    pub(crate) process_from: u64,
    /// End of the positions of the process whose messages are in flight. Later messages would get
    /// the same packet ids, so a message repeated after a power cut could be mistaken for another.
    /// Later messages therefore wait until the store knows which earlier ones are finished.
    pub(crate) barrier: Option<u64>,
    /// Whether the messages before the barrier are finished or overdue, and a commit of this fact
    /// is due.
    pub(crate) is_lifting_barrier: bool,
    /// Whether unfinished messages are not sent again yet: see `resume_when_durable`.
    pub(crate) suspended: bool,
    /// User that owned the session when the store was read: see `belongs_to_other_user`.
    pub(crate) owner: Option<Box<str>>,
    /// Whether the part of the queue that only the store has may hold messages of revoked
    /// subscriptions.
    pub(crate) may_hold_revoked: bool,
    /// Whether the session is in `SessionTable::dirty`, so the record will be written.
    pub(crate) dirty: bool,
}

impl PersistentSession {
    pub(crate) fn new(number: RecordNumber, mark: u64) -> PersistentSession {
        PersistentSession {
            number,
            positions: PositionAllocator::from_mark(mark),
            shifts: IdShifts::default(),
            stored_from: None,
            is_left_unread: false,
            spooled: 0,
            spooled_bytes: 0,
            is_reading: false,
            is_unreadable: false,
            unsent: u64::MAX,
            unsent_unread: 0,
            settled: mark,
            process_from: mark,
            barrier: None,
            is_lifting_barrier: false,
            suspended: false,
            owner: None,
            may_hold_revoked: false,
            dirty: false,
        }
    }

    /// Creates the state of a restored session, with the whole queue in the store only.
    pub(crate) fn restored(number: RecordNumber, mark: u64, unsent: u64) -> PersistentSession {
        let new = PersistentSession::new(number, mark);
        // No position from the mark on was allocated before.
        PersistentSession {
            stored_from: Some(0),
            unsent,
            unsent_unread: unsent.min(mark),
            // The rules may have changed since the previous process.
            may_hold_revoked: true,
            ..new
        }
    }

    pub(crate) fn queue_record_id(&self, position: u32) -> QueueRecordId {
        QueueRecordId { number: self.number, position: self.positions.full_position(position) }
    }
}
