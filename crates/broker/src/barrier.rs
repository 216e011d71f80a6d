//! Positions jump at a start of the process, and packet ids with them: a message of this process
//! may have the id of one that an earlier process sent. It waits until the disk knows that all of
//! those are done.

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
    /// 0 says that all old messages are done.
    pub(crate) fn settle_position(&mut self, id: SessionId, position: u64) {
        let session = self.get_mut(id);
        let Some(lasting) = &mut session.lasting else { return };
        lasting.settled = lasting.settled.max(position);
        if position == 0 {
            let front = session.flight.as_ref().and_then(|flight| flight.front());
            let front = front.map(|slot| lasting.positions.whole(slot.position));
            lasting.set_barrier_after(front);
        }
    }

    /// Lifts the barrier once the disk knows what was done so far, if that was all.
    pub(crate) fn lift_barrier(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        let Some(lasting) = &mut session.lasting else { return };
        let Some(barrier) = lasting.barrier.filter(|_| !lasting.lifting) else { return };
        let flight = session.flight.as_ref();
        let front = flight.and_then(|flight| flight.front());
        let sends = flight.is_some_and(|flight| !flight.has_none_sent());
        let done = match front {
            Some(slot) => lasting.positions.whole(slot.position) >= barrier,
            None => lasting.unread.is_none(),
        };
        if done && !sends {
            lasting.lifting = true;
            self.unsettled.push((id, 0));
            // The client waits, and without a record in this tick the disk would not be asked.
            self.make_dirty(id);
            self.journal.hurry();
        }
    }
}
