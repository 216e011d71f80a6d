//! Sent messages whose acknowledgement is overdue: the window has gone on past them, so they stand
//! apart from it under their packet ids. An id that stands here is passed over when ids are given.
//!
//! A message that the store has leaves its id behind when it is done, until ids have gone past it
//! once: after a power cut the store may still have that message, and a later one must not have
//! had its id.

use crate::limits::NONE;
use crate::routing::message::PooledMessageId;
use crate::session::flight::{FlightSlot, SlotMarks, SlotState};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct OverdueSlots {
    /// By zero-based packet id.
    by_id: BTreeMap<u16, OverdueSlot>,
    /// Number of unfinished messages in the list.
    open: usize,
    next_order: u64,
    /// Ids of those that are to be sent again to the present connection, the oldest first.
    unseen: VecDeque<u16>,
}

#[derive(Debug)]
struct OverdueSlot {
    /// The messages were sent in this order.
    order: u64,
    /// None once it is done.
    slot: Option<FlightSlot>,
    /// The present connection has not been sent it yet.
    is_unseen: bool,
}

impl OverdueSlots {
    pub(crate) fn insert(&mut self, id: u16, slot: FlightSlot, is_unseen: bool) {
        self.next_order += 1;
        let order = self.next_order;
        self.by_id.insert(id, OverdueSlot { order, slot: Some(slot), is_unseen });
        self.open += 1;
        if is_unseen {
            self.unseen.push_back(id);
        }
    }

    /// Whether the id may not be given.
    pub(crate) fn contains(&self, id: u16) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn has_open(&self) -> bool {
        self.open > 0
    }

    pub(crate) fn get(&self, id: u16) -> Option<FlightSlot> {
        self.by_id.get(&id)?.slot
    }

    pub(crate) fn is_unseen(&self, id: u16) -> bool {
        self.by_id.get(&id).is_some_and(|known| known.is_unseen)
    }

    /// PUBREC came for it.
    pub(crate) fn release(&mut self, id: u16) {
        if let Some(slot) = self.by_id.get_mut(&id).and_then(|known| known.slot.as_mut()) {
            slot.state = SlotState::Released;
            slot.message = PooledMessageId(NONE);
            slot.marks.set(SlotMarks::RELEASED);
        }
    }

    /// The message is done. Says whether the present connection had not seen it yet.
    pub(crate) fn finish(&mut self, id: u16) -> bool {
        let Some(known) = self.by_id.get_mut(&id) else { return false };
        let was_unseen = std::mem::take(&mut known.is_unseen);
        if let Some(slot) = known.slot.take() {
            self.open -= 1;
            if !slot.marks.has(SlotMarks::STORED) {
                self.by_id.remove(&id);
            }
        }
        was_unseen
    }

    /// Ids go past this one. It may be given the next time if its message is done.
    pub(crate) fn skip_id(&mut self, id: u16) {
        if self.by_id.get(&id).is_some_and(|known| known.slot.is_none()) {
            self.by_id.remove(&id);
        }
    }

    /// A new connection has seen none of them.
    pub(crate) fn forget_seen(&mut self) {
        self.unseen = self.in_order().map(|(id, _)| id).collect();
        for known in self.by_id.values_mut() {
            known.is_unseen = known.slot.is_some();
        }
    }

    /// Whether `next_unseen` has to be asked.
    pub(crate) fn may_resend(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// The next one to be sent again.
    pub(crate) fn next_unseen(&mut self) -> Option<(u16, FlightSlot)> {
        loop {
            let id = self.unseen.pop_front()?;
            if let Some(known) = self.by_id.get_mut(&id)
                && std::mem::take(&mut known.is_unseen)
                && let Some(slot) = known.slot
            {
                return Some((id, slot));
            }
        }
    }

    pub(crate) fn oldest_id(&self) -> Option<u16> {
        let open = self.by_id.iter().filter(|(_, known)| known.slot.is_some());
        open.min_by_key(|(_, known)| known.order).map(|(id, _)| *id)
    }

    /// The messages with their ids, the oldest first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u16, FlightSlot)> + use<> {
        let open =
            self.by_id.iter().filter_map(|(id, known)| Some((known.order, *id, known.slot?)));
        let mut open: Vec<_> = open.collect();
        open.sort_unstable_by_key(|(order, ..)| *order);
        open.into_iter().map(|(_, id, slot)| (id, slot))
    }
}
