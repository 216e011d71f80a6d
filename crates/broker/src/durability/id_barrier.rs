//! The barrier against equal packet ids. Queue positions jump at a start of the process, and packet
//! ids with them, so a new message may get the id of a message sent by an earlier process. The new
//! message waits until the store knows which old messages are finished; the ids of the rest are
//! skipped.

use crate::durability::persistent_session::PersistentSession;
use crate::durability::write_batch::POSITIONS_PER_BLOCK;

impl PersistentSession {
    /// Whether the id of a position cannot belong to a message of an earlier process.
    pub(crate) fn is_before_barrier(&self, position: u64) -> bool {
        self.barrier.is_none_or(|barrier| position < barrier)
    }

    pub(crate) fn has_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    /// Sets the barrier for a queue whose next message has this position: after the positions of
    /// the process that allocated `position`, or none for a position from `process_from` on.
    pub(crate) fn set_barrier_after(&mut self, position: Option<u64>) {
        let old = position.filter(|position| *position < self.process_from);
        self.barrier = old.map(|position| {
            let later = (self.process_from - 1 - position) / POSITIONS_PER_BLOCK;
            self.process_from - later * POSITIONS_PER_BLOCK
        });
        self.is_lifting_barrier = false;
    }
}
