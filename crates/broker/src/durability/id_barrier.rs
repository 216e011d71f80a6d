//! Positions jump at a start of the process, and packet ids with them: a message of this process
//! may have the id of one that an earlier process sent. It waits until the disk knows which of
//! those are done; the ids of the others are passed over.

use crate::durability::persistent_session::PersistentSession;
use crate::durability::write_batch::POSITIONS_PER_BLOCK;
use crate::input::SessionId;
use crate::session::session_table::SessionTable;

impl PersistentSession {
    /// Whether its id is free of the messages of earlier processes.
    pub(crate) fn is_before_barrier(&self, position: u64) -> bool {
        self.barrier.is_none_or(|barrier| position < barrier)
    }

    pub(crate) fn has_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    /// The next messages to go begin at this position.
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
    /// 0 says that the disk knows what is done of the old messages.
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

    /// Lifts the barrier once the disk knows what was done so far, if all that is old was sent.
    /// Nothing else waits for what of it stays unacknowledged.
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

    /// The barrier lifts when the disk has what was written so far.
    pub(crate) fn lift_barrier_when_durable(&mut self, id: SessionId) {
        let Some(persistent) = &mut self.get_mut(id).persistent else { return };
        persistent.is_lifting_barrier = true;
        self.unsettled.push((id, 0));
        // The client waits, and without a record in this tick the disk would not be asked.
        self.make_dirty(id);
        self.write_batch.mark_urgent();
    }
}
