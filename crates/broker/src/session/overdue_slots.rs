//! Overdue slots: sent messages without an acknowledgement that the window has moved past. The
//! slots are kept apart, by packet id, and new messages skip these ids.
//!
//! A finished message with a record in the store leaves the id reserved until ids have passed it
//! once: after a power cut the store may still have the record, so a later message must not have
//! used the id.

use crate::ids::{MonotonicMs, SlotState};
use crate::limits::NONE;
use crate::message::PooledMessageId;
use crate::session::flight::{Flight, FlightSlot, SlotMarks};
use mqtt::PacketId;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct OverdueSlots {
    /// Slots by zero-based packet id.
    by_id: BTreeMap<u16, OverdueSlot>,
    /// Number of unfinished messages in the list.
    open: usize,
    next_order: u64,
    /// Packet ids to be sent again to the present connection, the oldest first.
    unseen: VecDeque<u16>,
}

#[derive(Debug)]
struct OverdueSlot {
    /// Sequence number of the slot in sending order.
    order: u64,
    /// The unfinished slot; `None` after the acknowledgement, while the id stays reserved.
    slot: Option<FlightSlot>,
    /// Whether the present connection has not received the message yet.
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

    /// Whether the id is reserved, for an unfinished message or a record in the store.
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

    /// Handles PUBREC: marks the slot as released.
    pub(crate) fn release(&mut self, id: u16) {
        if let Some(slot) = self.by_id.get_mut(&id).and_then(|known| known.slot.as_mut()) {
            slot.state = SlotState::Released;
            slot.message = PooledMessageId(NONE);
            slot.marks.set(SlotMarks::RELEASED);
        }
    }

    /// Finishes a message. Returns whether the present connection had not received the message yet.
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

    /// Passes over an id. The reservation ends if the message is finished, so the id is free on the
    /// next round.
    pub(crate) fn skip_id(&mut self, id: u16) {
        if self.by_id.get(&id).is_some_and(|known| known.slot.is_none()) {
            self.by_id.remove(&id);
        }
    }

    /// Marks all unfinished messages as unseen, for a new connection.
    pub(crate) fn forget_seen(&mut self) {
        self.unseen = self.in_order().map(|(id, _)| id).collect();
        for known in self.by_id.values_mut() {
            known.is_unseen = known.slot.is_some();
        }
    }

    /// Whether [`next_unseen`](Self::next_unseen) may return a slot.
    pub(crate) fn may_resend(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Returns the next slot to send again, and marks the slot as seen.
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

    /// Returns the unfinished messages with zero-based packet ids, the oldest first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u16, FlightSlot)> + use<> {
        let open =
            self.by_id.iter().filter_map(|(id, known)| Some((known.order, *id, known.slot?)));
        let mut open: Vec<_> = open.collect();
        open.sort_unstable_by_key(|(order, ..)| *order);
        open.into_iter().map(|(_, id, slot)| (id, slot))
    }
}

/// The oldest unacknowledged message of the present connection, and the time at which the search of
/// [`StallSearch`] first saw the message in that position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldestUnacked {
    id: PacketId,
    since: MonotonicMs,
    /// Age in milliseconds at which the next `WindowStalled` event is due.
    tell_at_ms: u64,
}

/// Age in seconds from which an unacknowledged message counts as stalled.
pub(crate) const STALL_S: u64 = 30;

impl Flight {
    /// Returns the oldest unacknowledged message, the age in seconds, and whether a report is due;
    /// `None` below `STALL_S`. Each report doubles the age for the next report.
    pub(crate) fn look_at_oldest(&mut self, now: MonotonicMs) -> Option<(PacketId, u64, bool)> {
        let Some(id) = self.oldest_id() else {
            self.oldest = None;
            return None;
        };
        let new = OldestUnacked { id, since: now, tell_at_ms: STALL_S * 1000 };
        let oldest = self.oldest.get_or_insert(new);
        if oldest.id != id {
            *oldest = new;
        }
        let age_ms = now.0.saturating_sub(oldest.since.0);
        let tells = age_ms >= oldest.tell_at_ms;
        if tells {
            oldest.tell_at_ms = age_ms * 2;
        }
        (age_ms >= STALL_S * 1000).then_some((id, age_ms / 1000, tells))
    }
}
