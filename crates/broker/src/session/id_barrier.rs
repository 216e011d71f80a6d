//! Packet ids of a persistent session that the store has to know first.

use crate::ids::SessionId;
use crate::session::session_table::SessionTable;

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

impl SessionTable {
    /// Gives the first waiting message another packet id, if the id of its queue position is in use
    /// or too far ahead of the window. The message is sent after the store has committed the shift.
    #[cold]
    pub(crate) fn free_front_id(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        let (Some(persistent), Some(flight)) = (&mut session.persistent, &mut session.flight)
        else {
            return;
        };
        let Some(front) = flight.first_waiting() else { return };
        let position = persistent.positions.full_position(front.position);
        let is_held = persistent.suspended
            || persistent.is_lifting_barrier
            || !persistent.is_before_barrier(position);
        if is_held || flight.has_unseen() || flight.can_use_id(persistent.shifts.id_of(position)) {
            return;
        }
        for _ in 0..2 {
            let passed = flight.skip_overdue_ids(persistent.shifts.id_of(position));
            if passed > 0 {
                persistent.shifts.shift(position, passed);
            }
            if flight.can_use_id(persistent.shifts.id_of(position)) {
                break;
            }
            flight.set_all_overdue();
        }
        if persistent.shifts.may_have_unused() {
            let positions = persistent.positions;
            let unfinished = flight.unfinished().map(|slot| positions.full_position(slot.position));
            persistent.shifts.forget_unused(unfinished, position);
        }
        persistent.barrier = Some(position);
        self.lift_barrier_when_durable(id);
    }
}
