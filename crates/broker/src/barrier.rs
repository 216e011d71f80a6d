//! Positions jump at a start of the process, and packet ids with them: a message of this process
//! may have the id of one that an earlier process sent. It waits until the disk knows which of
//! those are done; the ids of the others are passed over.

use crate::input::SessionId;
use crate::journal::BLOCK;
use crate::lasting::Lasting;
use crate::session::Sessions;

impl Lasting {
    /// Whether its id is free of the messages of earlier processes.
    pub(crate) fn is_open(&self, position: u64) -> bool {
        self.barrier.is_none_or(|barrier| position < barrier)
    }

    pub(crate) fn has_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    /// The next messages to go begin at this position.
    pub(crate) fn set_barrier_after(&mut self, position: Option<u64>) {
        let old = position.filter(|position| *position < self.begins);
        self.barrier = old.map(|position| {
            let later = (self.begins - 1 - position) / BLOCK;
            self.begins - later * BLOCK
        });
        self.lifting = false;
    }
}

impl Sessions {
    /// 0 says that the disk knows what is done of the old messages.
    pub(crate) fn settle_position(&mut self, id: SessionId, position: u64) {
        let session = self.get_mut(id);
        let Some(lasting) = &mut session.lasting else { return };
        lasting.settled = lasting.settled.max(position);
        if position == 0 {
            let front = session.flight.as_ref().and_then(|flight| flight.front());
            let front = front.map(|slot| lasting.positions.whole(slot.position));
            lasting.set_barrier_after(front.or(lasting.unread));
        }
    }

    /// Lifts the barrier once the disk knows what was done so far, if all that is old was sent.
    /// Nothing else waits for what of it stays unacknowledged.
    pub(crate) fn lift_barrier(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        let (window, is_here) = (session.window, session.conn().is_some());
        let Some(lasting) = &mut session.lasting else { return };
        let Some(barrier) = lasting.barrier.filter(|_| !lasting.lifting) else { return };
        let flight = session.flight.as_deref_mut();
        let front = flight.as_ref().and_then(|flight| flight.front());
        let is_sent = match front {
            Some(slot) => lasting.positions.whole(slot.position) >= barrier,
            None => lasting.unread.is_none(),
        };
        if !is_sent {
            return;
        }
        if let Some(flight) = flight.filter(|flight| !flight.has_none_in_window()) {
            let waits = flight.front().is_some() && flight.has_room(window);
            if !waits || !is_here || lasting.suspended {
                return;
            }
            flight.set_all_overdue();
        }
        self.lift_when_kept(id);
    }

    /// The barrier lifts when the disk has what was written so far.
    pub(crate) fn lift_when_kept(&mut self, id: SessionId) {
        let Some(lasting) = &mut self.get_mut(id).lasting else { return };
        lasting.lifting = true;
        self.unsettled.push((id, 0));
        // The client waits, and without a record in this tick the disk would not be asked.
        self.make_dirty(id);
        self.journal.hurry();
    }
}
