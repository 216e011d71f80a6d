//! The flight of one session: messages sent and not acknowledged, messages in the queue, and the
//! packet ids of QoS 2 messages from the client without PUBREL.
//!
//! ```text
//!              send            PUBACK (QoS 1), or a reason of 0x80 or above
//!   waiting ----------> Sent -------------------------------------------> finished
//!                        |  PUBREC                        PUBCOMP          ^
//!                        +----------> Released ----------------------------+
//! ```
//!
//! Packet ids count up with the places in `sent`, so an id gives the place without a search, and
//! the slot at the front of `sent` is unfinished. A message that stays unacknowledged while many
//! later messages are finished moves to `overdue_slots`, and new messages skip the id.

use crate::ids::{IDS, SlotState, SubscriptionFlags, add_to_id};
use crate::limits::FLIGHT_SPAN_MAX;
use crate::message::PooledMessageId;
use crate::session::overdue_slots::{OldestUnacked, OverdueSlots};
use crate::session::sent_slots::SentSlots;
use mqtt::client::PacketIds;
use mqtt::{PacketId, QoS};
use std::collections::VecDeque;

/// A message in flight to one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightSlot {
    pub(crate) message: PooledMessageId,
    /// Subscription Identifiers, packed as in `subscriptions::packed_ids`.
    pub(in crate::session) ids: u32,
    /// Index of the shared group that chose this session, or `NONE`.
    pub(crate) group: u32,
    /// Low half of the position in the queue of a persistent session: see `PersistentSession`.
    pub(crate) position: u32,
    pub(crate) state: SlotState,
    pub(in crate::session) qos: QoS,
    pub(in crate::session) retain: bool,
    pub(crate) marks: SlotMarks,
}

/// Flags of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotMarks(u8);

impl SlotMarks {
    /// The message was released after PUBREC; [`FlightSlot::message`] is invalid.
    pub(crate) const RELEASED: SlotMarks = SlotMarks(1);
    /// The store has a record of the message.
    pub(crate) const STORED: SlotMarks = SlotMarks(2);
    /// The message may be sent only after the store has committed the record.
    pub(crate) const WAITS: SlotMarks = SlotMarks(4);
    /// The message waits; according to the store an earlier process may have sent the message.
    pub(crate) const WAS_SENT: SlotMarks = SlotMarks(8);

    pub(crate) const fn none() -> SlotMarks {
        SlotMarks(0)
    }

    #[inline]
    pub(crate) fn has(self, mark: SlotMarks) -> bool {
        self.0 & mark.0 != 0
    }

    pub(crate) fn set(&mut self, mark: SlotMarks) {
        self.0 |= mark.0;
    }
}

/// The messages in flight to a session. Fields used by each delivery are next to each other.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: SentSlots,
    /// Number of slots at the end of `sent` that the present connection has not received yet. The
    /// Receive Maximum may be smaller than on the previous connection.
    unseen: u32,
    /// Whether overdue messages may have to be sent again first.
    resends_overdue: bool,
    /// Zero-based packet id of the front of `sent`.
    first: u16,
    /// Number of unfinished messages, bounded by Receive Maximum [MQTT-3.3.4-9].
    pub(crate) unacknowledged: u16,
    /// Number of unseen slots that are not finished.
    unseen_open: u16,
    /// Number of slots in `sent` up to which the next packet id is certain to be free, without a
    /// search.
    straight_max: u16,
    pub(crate) waiting: VecDeque<FlightSlot>,
    pub(crate) waiting_bytes: u64,
    pub(in crate::session) waiting_qos0: u32,
    /// Packet ids of received QoS 2 messages without PUBREL.
    pub(crate) received: PacketIds,
    overdue: Option<Box<OverdueSlots>>,
    /// Result of the last check by `StallSearch`.
    pub(in crate::session) oldest: Option<OldestUnacked>,
}

/// Length of `sent` from which a sparse window is split and old slots become overdue.
const SPARSE_FROM: usize = 4096;

impl Flight {
    /// Whether one more QoS 1 or 2 message may be sent [MQTT-4.9.0-1] [MQTT-4.9.0-2].
    #[inline]
    pub(crate) fn has_room(&self, window: u16) -> bool {
        self.unacknowledged < window && self.unseen == 0 && !self.resends_overdue
    }

    /// Whether slots wait to be sent again.
    pub(crate) fn has_unseen(&self) -> bool {
        self.unseen > 0 || self.resends_overdue
    }

    /// Marks all slots as unseen, for a new connection.
    pub(crate) fn forget_seen(&mut self) {
        self.unseen = self.sent.len() as u32;
        self.unseen_open = self.unacknowledged;
        self.oldest = None;
        if let Some(overdue) = &mut self.overdue {
            overdue.forget_seen();
            self.resends_overdue = overdue.may_resend();
        }
    }

    /// Returns the next slot to send again, within the window [MQTT-3.3.4-9].
    pub(crate) fn resend(&mut self, window: u16) -> Option<(PacketId, FlightSlot)> {
        loop {
            let seen = usize::from(self.unacknowledged - self.unseen_open);
            if !self.has_unseen() || seen >= usize::from(window) {
                return None;
            }
            if self.resends_overdue {
                let next = self.overdue.as_mut().and_then(|overdue| overdue.next_unseen());
                self.resends_overdue = self.overdue.as_ref().is_some_and(|it| it.may_resend());
                if let Some((id, slot)) = next {
                    self.unseen_open -= 1;
                    return Some((PacketId::MIN.saturating_add(id), slot));
                }
                continue;
            }
            let place = self.sent.len() - self.unseen as usize;
            self.unseen -= 1;
            if let Some(slot) = self.sent.get(place) {
                self.unseen_open -= 1;
                return Some((self.id_at(place), slot));
            }
        }
    }

    /// Iterates over the sent and unfinished slots, the oldest first.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = FlightSlot> {
        let overdue = self.overdue.iter().flat_map(|overdue| overdue.in_order());
        overdue.map(|(_, slot)| slot).chain(self.sent.iter())
    }

    /// Whether the window has no sent and unfinished slot; overdue slots do not count.
    pub(crate) fn is_window_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Returns the packet id of the oldest unfinished message.
    pub(crate) fn oldest_id(&self) -> Option<PacketId> {
        let overdue = self.overdue.as_ref().and_then(|overdue| overdue.oldest_id());
        let front = (!self.sent.is_empty()).then_some(self.first);
        overdue.or(front).map(|id| PacketId::MIN.saturating_add(id))
    }

    fn has_no_overdue(&self) -> bool {
        self.overdue.as_ref().is_none_or(|overdue| !overdue.has_open())
    }

    #[inline]
    fn id_at(&self, place: usize) -> PacketId {
        PacketId::MIN.saturating_add(self.zero_based(place))
    }

    /// Returns the zero-based id of a place, below [`IDS`].
    #[inline]
    fn zero_based(&self, place: usize) -> u16 {
        let straight = u32::from(self.first) + place as u32;
        (if straight < IDS { straight } else { straight - IDS }) as u16
    }

    /// Adds a slot under the next packet id. The id is unused: ids in use are behind the next id,
    /// or [`find_free_id`](Self::find_free_id) skips them [MQTT-2.2.1-4] [MQTT-4.3.2-1]
    /// [MQTT-4.3.3-1].
    #[inline(always)]
    pub(crate) fn send(&mut self, slot: FlightSlot) -> PacketId {
        if self.sent.len() >= usize::from(self.straight_max) {
            self.find_free_id();
        }
        let id = self.id_at(self.sent.len());
        self.sent.push(slot);
        self.unacknowledged += 1;
        id
    }

    /// Moves the next id to a free one, and bounds the window to `FLIGHT_SPAN_MAX` places so that
    /// ids do not wrap around to the front.
    #[cold]
    #[inline(never)]
    fn find_free_id(&mut self) {
        loop {
            let len = self.sent.len();
            if len >= FLIGHT_SPAN_MAX {
                self.set_overdue(len / 2);
            } else if len >= SPARSE_FROM && len > 4 * usize::from(self.unacknowledged) {
                self.set_overdue(len - SPARSE_FROM / 4);
            }
            let next = self.zero_based(self.sent.len());
            match &mut self.overdue {
                Some(overdue) if overdue.contains(next) => overdue.skip_id(next),
                _ => break,
            }
            self.sent.push_hole();
        }
        if self.overdue.as_ref().is_some_and(|overdue| overdue.is_empty()) {
            self.overdue = None;
        }
        let next = (self.sent.len() * 2).clamp(SPARSE_FROM, FLIGHT_SPAN_MAX);
        self.straight_max = if self.overdue.is_some() { 0 } else { next as u16 };
    }

    /// Removes the slots before a place from the window; unfinished slots become overdue.
    fn set_overdue(&mut self, upto: usize) {
        let seen = self.sent.len() - self.unseen as usize;
        for place in 0..upto {
            if let Some(slot) = self.sent.get(place) {
                let (id, is_unseen) = (self.zero_based(place), place >= seen);
                self.overdue.get_or_insert_default().insert(id, slot, is_unseen);
                self.resends_overdue |= is_unseen;
                self.sent.finish(place);
            }
        }
        self.drop_done();
        self.straight_max = 0;
    }

    /// Moves all sent messages out of the window, so that any free id may be next.
    pub(crate) fn set_all_overdue(&mut self) {
        self.set_overdue(self.sent.len());
    }

    #[inline]
    fn drop_done(&mut self) {
        let dropped = self.sent.drop_done();
        self.unseen = self.unseen.min(self.sent.len() as u32);
        self.first = self.zero_based(dropped);
    }

    /// Whether a message of a persistent session may be sent next under this zero-based id. The id
    /// follows from the queue position, which jumps at a start of the process: the id must not be
    /// in use, nor `FLIGHT_SPAN_MAX` or more after the front of the window.
    pub(crate) fn can_use_id(&self, id: u16) -> bool {
        let free = self.sent.len()..FLIGHT_SPAN_MAX;
        (self.sent.is_empty() || free.contains(&self.place_at(id))) && !self.is_overdue(id)
    }

    fn is_overdue(&self, id: u16) -> bool {
        self.overdue.as_ref().is_some_and(|overdue| overdue.contains(id))
    }

    /// Returns how many ids from this one on belong to overdue messages, and skips them.
    pub(crate) fn skip_overdue_ids(&mut self, id: u16) -> u16 {
        let Some(overdue) = &mut self.overdue else { return 0 };
        let mut passed = 0;
        while overdue.contains(add_to_id(id, passed)) {
            overdue.skip_id(add_to_id(id, passed));
            passed += 1;
        }
        passed
    }

    fn place_at(&self, id: u16) -> usize {
        ((u32::from(id) + IDS - u32::from(self.first)) % IDS) as usize
    }

    /// Sends a slot under an id that [`can_use_id`](Self::can_use_id) allows.
    pub(crate) fn send_at(&mut self, id: u16, slot: FlightSlot) -> PacketId {
        if self.sent.is_empty() {
            self.first = id;
        }
        for _ in self.sent.len()..self.place_at(id) {
            self.sent.push_hole();
        }
        self.send(slot)
    }

    /// Adds a message of the store that was sent on an earlier connection, to be sent again.
    /// Messages already sent on this connection are not repeated [MQTT-4.4.0-1].
    pub(crate) fn resend_stored(&mut self, id: u16, slot: FlightSlot) {
        if self.sent.is_empty() {
            self.first = id;
        }
        let before = self.sent.len();
        for _ in before..self.place_at(id) {
            self.sent.push_hole();
        }
        self.sent.push(slot);
        self.unacknowledged += 1;
        self.unseen += (self.sent.len() - before) as u32;
        self.unseen_open += 1;
    }

    #[inline]
    fn place_of(&self, id: PacketId) -> usize {
        let (zero_based, first) = (id.get() - 1, self.first);
        if zero_based >= first {
            return usize::from(zero_based - first);
        }
        usize::from(zero_based) + IDS as usize - usize::from(first)
    }

    /// Returns the slot of an id; `None` for a finished message.
    #[inline]
    pub(crate) fn find(&self, id: PacketId) -> Option<FlightSlot> {
        self.sent.get(self.place_of(id)).or_else(|| self.overdue.as_ref()?.get(id.get() - 1))
    }

    /// Whether the present connection has received the unfinished message of an id.
    pub(crate) fn has_seen(&self, id: PacketId) -> bool {
        let place = self.place_of(id);
        if self.sent.get(place).is_some() {
            return place + (self.unseen as usize) < self.sent.len();
        }
        self.overdue.as_ref().is_some_and(|overdue| !overdue.is_unseen(id.get() - 1))
    }

    /// Handles PUBREC: marks the slot as released.
    pub(crate) fn release(&mut self, id: PacketId) {
        let place = self.place_of(id);
        match &mut self.overdue {
            Some(overdue) if self.sent.get(place).is_none() => overdue.release(id.get() - 1),
            _ => self.sent.release(place),
        }
    }

    /// Finishes and returns the slot of an id if state and QoS match. The id becomes free once all
    /// earlier slots are finished.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        id: PacketId,
        state: SlotState,
        qos: QoS,
    ) -> Option<FlightSlot> {
        let place = self.place_of(id);
        let Some(slot) = self.sent.get(place) else { return self.finish_overdue(id, state, qos) };
        if slot.state != state || slot.qos != qos {
            return None;
        }
        self.complete_slot(place);
        Some(slot)
    }

    #[cold]
    fn finish_overdue(&mut self, id: PacketId, state: SlotState, qos: QoS) -> Option<FlightSlot> {
        let (overdue, id) = (self.overdue.as_mut()?, id.get() - 1);
        let slot = overdue.get(id).filter(|slot| slot.state == state && slot.qos == qos)?;
        self.unacknowledged -= 1;
        self.unseen_open -= u16::from(overdue.finish(id));
        if overdue.is_empty() {
            (self.overdue, self.resends_overdue) = (None, false);
        }
        Some(slot)
    }

    /// Finishes the unfinished slot at a place.
    #[inline]
    fn complete_slot(&mut self, place: usize) {
        self.sent.finish(place);
        self.unacknowledged -= 1;
        if place + self.unseen as usize >= self.sent.len() {
            self.unseen_open -= 1;
        }
        self.drop_done();
    }

    /// Finishes the oldest slot and returns the message, if `id` is the oldest id and the slot has
    /// no extra fields: the fast path for a subscriber that acknowledges in order.
    #[inline]
    pub(crate) fn finish_oldest(&mut self, id: PacketId) -> Option<PooledMessageId> {
        if self.place_of(id) != 0 || self.unseen != 0 {
            return None;
        }
        let message = self.sent.pop_plain()?;
        self.unacknowledged -= 1;
        let dropped = 1 + self.sent.drop_done();
        self.first = self.zero_based(dropped);
        Some(message)
    }

    /// Handles PUBREC: releases the unreleased QoS 2 slot of `id`, if any, and returns its message.
    #[inline]
    pub(crate) fn release_sent(&mut self, id: PacketId) -> Option<PooledMessageId> {
        self.sent.release_plain(self.place_of(id))
    }

    /// Handles PUBCOMP for the oldest slot. Returns `false` if `id` or the state does not match.
    #[inline]
    pub(crate) fn finish_oldest_released(&mut self, id: PacketId) -> bool {
        if self.place_of(id) != 0 || self.unseen != 0 || !self.sent.pop_released() {
            return false;
        }
        self.unacknowledged -= 1;
        let dropped = 1 + self.sent.drop_done();
        self.first = self.zero_based(dropped);
        true
    }

    /// Returns the first QoS 1 or 2 message in the queue.
    pub(crate) fn first_waiting(&self) -> Option<&FlightSlot> {
        self.waiting.iter().find(|slot| slot.qos != QoS::AtMostOnce)
    }

    /// Whether no QoS 1 or 2 message is sent and unfinished, or in the queue.
    pub(crate) fn has_no_inflight(&self) -> bool {
        self.sent.is_empty() && self.has_no_overdue() && self.first_waiting().is_none()
    }

    /// Whether the flight holds no message and no received id. Only `first_id` would be lost.
    pub(crate) fn is_idle(&self) -> bool {
        let is_done = self.sent.is_empty() && self.overdue.is_none();
        is_done && self.waiting.is_empty() && self.received.is_empty()
    }

    /// Returns the zero-based id at which an idle flight goes on.
    pub(crate) fn first_id(&self) -> u16 {
        self.first
    }

    /// Returns the zero-based id of the next message to be sent.
    pub(crate) fn next_id(&self) -> u16 {
        self.zero_based(self.sent.len())
    }

    pub(crate) fn starting_at(first: u16) -> Flight {
        Flight { first, straight_max: SPARSE_FROM as u16, ..Flight::default() }
    }
}

impl FlightSlot {
    pub(crate) fn new(
        message: PooledMessageId,
        qos: QoS,
        retain: bool,
        ids: u32,
        group: u32,
    ) -> FlightSlot {
        let (state, marks) = (SlotState::Sent, SlotMarks::default());
        FlightSlot { message, ids, group, position: 0, state, qos, retain, marks }
    }

    /// Whether the slot may be dropped from the queue. The client may hold the id of a QoS 2
    /// message that may have been sent, and would take a later message under the id for a duplicate
    /// [MQTT-4.3.3-10].
    pub(crate) fn may_be_dropped(&self) -> bool {
        self.may_move(false) && !self.marks.has(SlotMarks::RELEASED)
    }

    /// Whether the message may go to another session. A QoS 2 message that may have been sent must
    /// stay [MQTT-4.8.2-5].
    pub(crate) fn may_move(&self, was_sent: bool) -> bool {
        self.qos != QoS::ExactlyOnce || !(was_sent || self.marks.has(SlotMarks::WAS_SENT))
    }
}

/// Returns the QoS for a subscriber, the lower of the published and the granted QoS [MQTT-3.8.4-8].
#[inline]
pub(crate) fn granted_qos(published: QoS, options: SubscriptionFlags) -> QoS {
    published.min(options.qos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SlotState;

    fn slot() -> FlightSlot {
        FlightSlot::new(PooledMessageId(0), QoS::AtLeastOnce, false, 0, crate::limits::NONE)
    }

    fn acknowledge(flight: &mut Flight, id: PacketId) {
        let slot = flight.finish(id, SlotState::Sent, QoS::AtLeastOnce);
        assert!(slot.is_some());
    }

    #[test]
    fn ids_run_from_1_to_65535_and_round_again() {
        let mut flight = Flight::default();
        for expected in (1..=65_535).chain(1..=10) {
            let id = flight.send(slot());
            assert_eq!(id.get(), expected);
            acknowledge(&mut flight, id);
        }
    }

    #[test]
    fn an_acknowledgement_out_of_order_keeps_its_id_until_the_older_one_is_done() {
        let mut flight = Flight::default();
        let (one, two) = (flight.send(slot()), flight.send(slot()));
        acknowledge(&mut flight, two);
        assert_eq!((flight.unacknowledged, flight.sent.len()), (1, 2));
        assert!(flight.find(two).is_none());
        acknowledge(&mut flight, one);
        assert_eq!((flight.unacknowledged, flight.sent.len()), (0, 0));
        assert_eq!(flight.send(slot()).get(), 3);
    }

    #[test]
    fn a_queue_that_is_read_in_pieces_is_sent_again_once() {
        let mut flight = Flight::default();
        let mut sent_again = Vec::new();
        // Position 2 has no message.
        for piece in [&[0, 1][..], &[3, 4]] {
            piece.iter().for_each(|id| flight.resend_stored(*id, slot()));
            sent_again.extend(std::iter::from_fn(|| flight.resend(10)).map(|(id, _)| id.get()));
        }
        assert_eq!(sent_again, [1, 2, 4, 5]);
        assert!(!flight.has_unseen());
    }

    #[test]
    fn ids_in_use_are_passed_over_for_as_long_as_they_are() {
        let mut flight = Flight::default();
        let mut stuck: Vec<u16> = Vec::new();
        for turn in 0..400_000_u32 {
            let id = flight.send(slot());
            assert!(!stuck.contains(&id.get()), "{id} is in use");
            match turn {
                0 | 1 | 70_000 | 70_003 => stuck.push(id.get()),
                _ => acknowledge(&mut flight, id),
            }
            assert!(flight.sent.len() <= SPARSE_FROM + 4);
        }
        assert_eq!(usize::from(flight.unacknowledged), stuck.len());
        for id in stuck {
            let id = PacketId::new(id).expect("not zero");
            assert!(flight.find(id).is_some());
            acknowledge(&mut flight, id);
            assert!(flight.find(id).is_none());
        }
        assert!(flight.is_idle());
    }

    #[test]
    fn overdue_messages_are_sent_again_before_the_window_and_in_their_order() {
        let mut flight = Flight::default();
        let stuck = [flight.send(slot()), flight.send(slot())];
        for _ in 0..SPARSE_FROM {
            let id = flight.send(slot());
            acknowledge(&mut flight, id);
        }
        let last = flight.send(slot());
        assert!(flight.overdue.is_some());
        flight.forget_seen();
        assert!(!flight.has_room(100) && !flight.has_seen(stuck[0]));
        let first = flight.resend(1).map(|(id, _)| id);
        assert_eq!((first, flight.resend(1)), (Some(stuck[0]), None));
        acknowledge(&mut flight, stuck[0]);
        let rest: Vec<_> = std::iter::from_fn(|| flight.resend(9)).map(|(id, _)| id).collect();
        assert_eq!(rest, [stuck[1], last]);
        assert!(flight.has_room(3) && !flight.has_room(2) && flight.has_seen(stuck[1]));
    }

    #[test]
    fn the_id_of_a_stored_message_is_given_again_only_after_a_round() {
        let mut flight = Flight::default();
        let mut stored = slot();
        stored.marks.set(SlotMarks::STORED);
        let stuck = flight.send(stored);
        flight.set_all_overdue();
        acknowledge(&mut flight, stuck);
        assert!(!flight.can_use_id(stuck.get() - 1) && !flight.is_idle());
        assert_eq!(flight.skip_overdue_ids(stuck.get() - 1), 1);
        assert!(flight.can_use_id(stuck.get() - 1));
    }

    #[test]
    fn an_id_that_was_never_sent_is_not_found() {
        let mut flight = Flight::default();
        flight.send(slot());
        for id in [2, 3, 40_000, 65_535] {
            assert!(flight.find(PacketId::new(id).expect("not zero")).is_none());
        }
    }
}
