//! The barrier against equal packet ids. Queue positions jump at a start of the process, and packet
//! ids with them, so a new message may get the id of a message sent by an earlier process. The new
//! message waits until the store knows which old messages are finished; the ids of the rest are
//! skipped.

use crate::durability::persistent_session::PersistentSession;
use crate::durability::write_batch::POSITIONS_PER_BLOCK;
use crate::input::SessionId;
use crate::session::session_table::SessionTable;

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

impl SessionTable {
    /// Handles the commit of a position in `SessionTable::unsettled`. Position 0 reports that the
    /// store knows the finished old messages, and moves the barrier.
    pub(crate) fn settle_position(&mut self, id: SessionId, position: u64) {
        let session = self.get_mut(id);
        let Some(persistent) = &mut session.persistent else { return };
        persistent.settled = persistent.settled.max(position);
        if position == 0 {
            let front = session.flight.as_ref().and_then(|flight| flight.first_waiting());
            let front = front.map(|slot| persistent.positions.full_position(slot.position));
            persistent.set_barrier_after(front.or(persistent.stored_from));
        }
    }

    /// Lifts the barrier with the next commit, once all messages before the barrier were sent.
    /// Messages still unacknowledged become overdue, so that later messages do not wait.
    pub(crate) fn lift_barrier(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        let (window, is_here) = (session.window, session.conn().is_some());
        let Some(persistent) = &mut session.persistent else { return };
        let Some(barrier) = persistent.barrier.filter(|_| !persistent.is_lifting_barrier) else {
            return;
        };
        let flight = session.flight.as_deref_mut();
        let front = flight.as_ref().and_then(|flight| flight.first_waiting());
        let is_sent = match front {
            Some(slot) => persistent.positions.full_position(slot.position) >= barrier,
            None => persistent.stored_from.is_none(),
        };
        if !is_sent {
            return;
        }
        if let Some(flight) = flight.filter(|flight| !flight.is_window_empty()) {
            let waits = flight.first_waiting().is_some() && flight.has_room(window);
            if !waits || !is_here || persistent.suspended {
                return;
            }
            flight.set_all_overdue();
        }
        self.lift_barrier_when_durable(id);
    }

    /// Lifts the barrier with the commit of this tick's records.
    pub(crate) fn lift_barrier_when_durable(&mut self, id: SessionId) {
        let Some(persistent) = &mut self.get_mut(id).persistent else { return };
        persistent.is_lifting_barrier = true;
        self.unsettled.push((id, 0));
        // The client waits, and without a record in this tick no commit would follow.
        self.make_dirty(id);
        self.write_batch.mark_urgent();
    }
}
