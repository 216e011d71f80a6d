//! What one session has not finished: messages sent and not acknowledged, messages that wait for
//! their turn, and the QoS 2 ids that a client has sent and not released.
//!
//! ```text
//!              send            PUBACK (QoS 1), or a reason from 0x80 on
//!   waiting ----------> Sent -------------------------------------------> gone
//!                        |  PUBREC                        PUBCOMP          ^
//!                        +----------> Released ----------------------------+
//! ```
//!
//! Packet ids count up with the places of `sent`: an id names its slot without a search, and the
//! front of `sent` is always the oldest that is not done.

use crate::ids::PacketIds;
use crate::limits::FLIGHT_SPAN_MAX;
use crate::message::KeptId;
use crate::sent::Sent;
use crate::topics::Packed;
use mqtt::{PacketId, QoS};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// PUBLISH sent, unanswered.
    Sent,
    /// PUBREC came, PUBREL sent.
    Released,
}

/// One message on its way to one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) message: KeptId,
    /// Subscription Identifiers, packed as `session::ids` says.
    pub(crate) ids: u32,
    /// The shared group that chose this session, or `NONE`.
    pub(crate) group: u32,
    /// The low half of its place in the queue of a session that lasts: see `Lasting`.
    pub(crate) position: u32,
    pub(crate) state: State,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) marks: Marks,
}

/// What else is true of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    /// The message's bytes were released already (after PUBREC).
    pub(crate) const RELEASED: Marks = Marks(1);
    /// The store has it.
    pub(crate) const STORED: Marks = Marks(2);
    /// It is not sent before the disk has it.
    pub(crate) const WAITS: Marks = Marks(4);
    /// It waits, and for all that the store knows it was sent before the process began.
    pub(crate) const WAS_SENT: Marks = Marks(8);

    pub(crate) const fn none() -> Marks {
        Marks(0)
    }

    #[inline]
    pub(crate) fn has(self, mark: Marks) -> bool {
        self.0 & mark.0 != 0
    }

    pub(crate) fn set(&mut self, mark: Marks) {
        self.0 |= mark.0;
    }
}

/// What a delivery touches stands together.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: Sent,
    /// How many of the last slots of `sent` the present connection has not seen yet: it may take
    /// fewer at a time than the one before.
    unseen: usize,
    /// Zero-based id of the front of `sent`.
    first: u16,
    /// Slots of `sent` that are not done: what Receive Maximum bounds [MQTT-3.3.4-9].
    pub(crate) unacknowledged: u16,
    /// How many of the unseen ones are not done.
    unseen_open: u16,
    pub(crate) waiting: VecDeque<Slot>,
    pub(crate) waiting_bytes: u64,
    pub(crate) waiting_qos0: u32,
    /// Packet ids of QoS 2 messages that we took and the client has not released.
    pub(crate) received: PacketIds,
}

const IDS: u32 = u16::MAX as u32;

impl Flight {
    /// Whether one more QoS 1 or 2 message may be sent [MQTT-4.9.0-1] [MQTT-4.9.0-2].
    #[inline]
    pub(crate) fn has_room(&self, window: u16) -> bool {
        self.unacknowledged < window && self.unseen == 0 && self.sent.len() < FLIGHT_SPAN_MAX
    }

    /// Whether slots wait to be sent again.
    pub(crate) fn has_unseen(&self) -> bool {
        self.unseen > 0
    }

    /// A new connection has seen nothing yet.
    pub(crate) fn forget_seen(&mut self) {
        self.unseen = self.sent.len();
        self.unseen_open = self.unacknowledged;
    }

    /// The next slot to send again, as far as the window goes [MQTT-3.3.4-9].
    pub(crate) fn resend(&mut self, window: u16) -> Option<(PacketId, Slot)> {
        loop {
            let seen = usize::from(self.unacknowledged - self.unseen_open);
            if self.unseen == 0 || seen >= usize::from(window) {
                return None;
            }
            let place = self.sent.len() - self.unseen;
            self.unseen -= 1;
            if let Some(slot) = self.sent.get(place) {
                self.unseen_open -= 1;
                return Some((self.id_at(place), slot));
            }
        }
    }

    /// Slots that were sent and are not done, the oldest first.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = Slot> {
        self.sent.iter()
    }

    /// Whether nothing is sent and not done.
    pub(crate) fn has_none_sent(&self) -> bool {
        self.sent.is_empty()
    }

    #[inline]
    fn id_at(&self, place: usize) -> PacketId {
        PacketId::MIN.saturating_add(self.zero_based(place))
    }

    /// The zero-based id of a place, which is below `IDS`.
    #[inline]
    fn zero_based(&self, place: usize) -> u16 {
        let straight = u32::from(self.first) + place as u32;
        (if straight < IDS { straight } else { straight - IDS }) as u16
    }

    /// The next id is unused, since all those in use lie behind it [MQTT-2.2.1-4] [MQTT-4.3.2-1]
    /// [MQTT-4.3.3-1].
    #[inline(always)]
    pub(crate) fn send(&mut self, slot: Slot) -> PacketId {
        let id = self.id_at(self.sent.len());
        self.sent.push(slot);
        self.unacknowledged += 1;
        id
    }

    /// Whether the message at this position of a lasting session's queue may be the next to be
    /// sent: its id follows from the position, which jumps at a start of the process, and must be
    /// neither among those in use nor so far from the oldest of them that it comes round to it.
    pub(crate) fn reaches(&self, position: u64) -> bool {
        let free = self.sent.len()..FLIGHT_SPAN_MAX;
        self.sent.is_empty() || free.contains(&self.place_at(position))
    }

    fn place_at(&self, position: u64) -> usize {
        let zero_based = (position % u64::from(IDS)) as u32;
        ((zero_based + IDS - u32::from(self.first)) % IDS) as usize
    }

    /// The same as `send`, under the id of a position that `reaches`.
    pub(crate) fn send_at(&mut self, position: u64, slot: Slot) -> PacketId {
        if self.sent.is_empty() {
            self.first = (position % u64::from(IDS)) as u16;
        }
        for _ in self.sent.len()..self.place_at(position) {
            self.sent.push_hole();
        }
        self.send(slot)
    }

    /// The same for one that was sent before, and that only the store knew until now: it is to be
    /// sent again, and what this connection has had is not [MQTT-4.4.0-1].
    pub(crate) fn send_back(&mut self, position: u64, slot: Slot) {
        let before = self.sent.len();
        self.send_at(position, slot);
        self.unseen += self.sent.len() - before;
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

    /// The slot of an id, unless it is done.
    #[inline]
    pub(crate) fn find(&self, id: PacketId) -> Option<Slot> {
        self.sent.get(self.place_of(id))
    }

    /// PUBREC came for it: its message is the client's.
    pub(crate) fn release(&mut self, id: PacketId) {
        self.sent.release(self.place_of(id));
    }

    /// The slot is done if it is in the given state: its id is free once everything before it is.
    #[inline]
    pub(crate) fn finish(&mut self, id: PacketId, state: State, qos: QoS) -> Option<Slot> {
        let place = self.place_of(id);
        let slot = self.sent.get(place)?;
        if slot.state != state || slot.qos != qos {
            return None;
        }
        self.settle(place);
        Some(slot)
    }

    /// The slot at a place, which is not done yet, is.
    #[inline]
    fn settle(&mut self, place: usize) {
        self.sent.finish(place);
        self.unacknowledged -= 1;
        if place + self.unseen >= self.sent.len() {
            self.unseen_open -= 1;
        }
        let dropped = self.sent.drop_done();
        self.unseen = self.unseen.min(self.sent.len());
        self.first = self.zero_based(dropped);
    }

    /// The message of the oldest slot, which is done, if this is its id and there is nothing else
    /// about it: what a subscriber that keeps up acknowledges.
    #[inline]
    pub(crate) fn finish_oldest(&mut self, id: PacketId) -> Option<KeptId> {
        if self.place_of(id) != 0 || self.unseen != 0 {
            return None;
        }
        let message = self.sent.pop_plain()?;
        self.unacknowledged -= 1;
        let dropped = 1 + self.sent.drop_done();
        self.first = self.zero_based(dropped);
        Some(message)
    }

    /// PUBREC came for it: its message, if it was not released before.
    #[inline]
    pub(crate) fn release_sent(&mut self, id: PacketId) -> Option<KeptId> {
        self.sent.release_plain(self.place_of(id))
    }

    /// The same as `finish_oldest` of one that was released. Says whether it was such a one.
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

    /// The first QoS 1 or 2 message that waits.
    pub(crate) fn front(&self) -> Option<&Slot> {
        self.waiting.iter().find(|slot| slot.qos != QoS::AtMostOnce)
    }

    /// Whether no QoS 1 or 2 message is on its way.
    pub(crate) fn has_none(&self) -> bool {
        self.sent.is_empty() && self.front().is_none()
    }

    /// Whether forgetting it loses nothing but the place where ids go on.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.waiting.is_empty() && self.received.is_empty()
    }

    /// Where ids go on once it is idle.
    pub(crate) fn first_id(&self) -> u16 {
        self.first
    }

    /// The zero-based id of the next to be sent.
    pub(crate) fn next_id(&self) -> u16 {
        self.zero_based(self.sent.len())
    }

    pub(crate) fn starting_at(first: u16) -> Flight {
        Flight { first, ..Flight::default() }
    }
}

impl Slot {
    pub(crate) fn new(message: KeptId, qos: QoS, retain: bool, ids: u32, group: u32) -> Slot {
        let (state, marks) = (State::Sent, Marks::default());
        Slot { message, ids, group, position: 0, state, qos, retain, marks }
    }

    /// Whether it may be forgotten while it waits. Of a QoS 2 message that may have been sent the
    /// client may hold the id, and would take the next one under it for this [MQTT-4.3.3-10].
    pub(crate) fn may_be_dropped(&self) -> bool {
        self.may_move(false) && !self.marks.has(Marks::RELEASED)
    }

    /// Whether it may go to another session in this one's stead. What may have been sent at QoS 2
    /// may not [MQTT-4.8.2-5].
    pub(crate) fn may_move(&self, was_sent: bool) -> bool {
        self.qos != QoS::ExactlyOnce || !(was_sent || self.marks.has(Marks::WAS_SENT))
    }
}

/// The QoS a subscriber gets: the lower of the two [MQTT-3.8.4-8].
#[inline]
pub(crate) fn granted(published: QoS, options: Packed) -> QoS {
    published.min(options.qos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot::new(KeptId(0), QoS::AtLeastOnce, false, 0, crate::limits::NONE)
    }

    fn acknowledge(flight: &mut Flight, id: PacketId) {
        let slot = flight.finish(id, State::Sent, QoS::AtLeastOnce);
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
        // Position 2 is a hole.
        for piece in [&[0, 1][..], &[3, 4]] {
            piece.iter().for_each(|position| flight.send_back(*position, slot()));
            sent_again.extend(std::iter::from_fn(|| flight.resend(10)).map(|(id, _)| id.get()));
        }
        assert_eq!(sent_again, [1, 2, 4, 5]);
        assert!(!flight.has_unseen());
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
