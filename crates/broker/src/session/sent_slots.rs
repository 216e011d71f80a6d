//! The slots of the messages sent to one session, packed for the cache: a busy shard writes and
//! frees millions of slots a second, in turn for hundreds of sessions. A slot with only a message
//! and QoS 1 or 2, the usual case, is one 32-bit word.
//!
//! ```text
//!   31    30 ............ 0
//!  QoS 2 | message, RELEASED or DONE
//! ```

use crate::ids::SlotState;
use crate::limits::{INDEX_MAX, NONE};
use crate::message::PooledMessageId;
use crate::session::flight::{FlightSlot, SlotMarks};
use crate::session::subscriptions::packed_ids;
use mqtt::QoS;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct SentSlots {
    words: VecDeque<u32>,
    /// Extra fields of the slots: one entry for each slot, once any slot needs one.
    #[expect(
        clippy::box_collection,
        reason = "a word here, so that the flight's numbers share the line"
    )]
    rests: Option<Box<VecDeque<SlotExtras>>>,
}

const QOS_2: u32 = 1 << 31;
/// After PUBREC: the message is released, the packet id and the QoS are left.
const RELEASED: u32 = QOS_2 - 2;
const DONE: u32 = QOS_2 - 1;

const _: () = assert!(INDEX_MAX <= RELEASED);

/// Fields that few slots use, with `NOTHING` as the usual value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotExtras {
    ids: u32,
    group: u32,
    position: u32,
    retain: bool,
    marks: SlotMarks,
}

impl SlotExtras {
    const NOTHING: SlotExtras = SlotExtras {
        ids: packed_ids::NONE,
        group: NONE,
        position: 0,
        retain: false,
        marks: SlotMarks::none(),
    };

    #[inline]
    pub(crate) fn of(slot: &FlightSlot) -> SlotExtras {
        let &FlightSlot { ids, group, position, retain, marks, .. } = slot;
        SlotExtras { ids, group, position, retain, marks }
    }
}

impl SentSlots {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, slot: FlightSlot) {
        let rest = SlotExtras::of(&slot);
        if rest != SlotExtras::NOTHING || self.rests.is_some() {
            self.push_beside_rests(rest);
        }
        let what = match slot.state {
            SlotState::Sent => slot.message.0,
            SlotState::Released => RELEASED,
        };
        let qos = if slot.qos == QoS::ExactlyOnce { QOS_2 } else { 0 };
        self.words.push_back(what | qos);
    }

    /// Adds a finished slot for a packet id without a message.
    pub(crate) fn push_hole(&mut self) {
        if self.rests.is_some() {
            self.push_rest(SlotExtras::NOTHING);
        }
        self.words.push_back(DONE);
    }

    #[inline(never)]
    fn push_beside_rests(&mut self, rest: SlotExtras) {
        // The next slots probably have no extra fields either.
        if rest == SlotExtras::NOTHING && self.words.is_empty() {
            self.rests = None;
        } else {
            self.push_rest(rest);
        }
    }

    fn push_rest(&mut self, rest: SlotExtras) {
        let len = self.words.len();
        let rests = self.rests.get_or_insert_default();
        rests.resize(len, SlotExtras::NOTHING);
        rests.push_back(rest);
    }

    /// Returns the slot at a place; `None` beyond the end and for a finished slot.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<FlightSlot> {
        let word = *self.words.get(place)?;
        let (message, state) = match word & !QOS_2 {
            DONE => return None,
            RELEASED => (NONE, SlotState::Released),
            message => (message, SlotState::Sent),
        };
        let qos = if word & QOS_2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        let rest = self.rests.as_ref().and_then(|rests| rests.get(place));
        let SlotExtras { ids, group, position, retain, mut marks } =
            *rest.unwrap_or(&SlotExtras::NOTHING);
        if state == SlotState::Released {
            marks.set(SlotMarks::RELEASED);
        }
        Some(FlightSlot {
            message: PooledMessageId(message),
            ids,
            group,
            position,
            state,
            qos,
            retain,
            marks,
        })
    }

    pub(crate) fn release(&mut self, place: usize) {
        if let Some(word) = self.words.get_mut(place) {
            *word = QOS_2 | RELEASED;
        }
    }

    /// Finishes a slot after the caller has taken the contents.
    #[inline]
    pub(crate) fn finish(&mut self, place: usize) {
        if let Some(word) = self.words.get_mut(place) {
            *word = DONE;
        }
    }

    /// Removes the oldest slot and returns the message, if the slot is an unreleased QoS 1 message
    /// and no slot has extra fields.
    #[inline]
    pub(crate) fn pop_plain(&mut self) -> Option<PooledMessageId> {
        let word = *self.words.front()?;
        if word >= RELEASED || self.rests.is_some() {
            return None;
        }
        self.words.pop_front();
        Some(PooledMessageId(word))
    }

    /// Marks the slot at a place as released and returns the message, if the slot is an unreleased
    /// QoS 2 message.
    #[inline]
    pub(crate) fn release_plain(&mut self, place: usize) -> Option<PooledMessageId> {
        let word = self.words.get_mut(place)?;
        if *word < QOS_2 || *word >= QOS_2 | RELEASED {
            return None;
        }
        Some(PooledMessageId(std::mem::replace(word, QOS_2 | RELEASED) & !QOS_2))
    }

    /// Removes the oldest slot if the slot is released and no slot has extra fields.
    #[inline]
    pub(crate) fn pop_released(&mut self) -> bool {
        let is_plain = self.words.front() == Some(&(QOS_2 | RELEASED)) && self.rests.is_none();
        if is_plain {
            self.words.pop_front();
        }
        is_plain
    }

    /// Removes the finished slots at the front. Returns the number of removed slots.
    #[inline(always)]
    pub(crate) fn drop_done(&mut self) -> usize {
        match self.words.front() {
            Some(word) if word & !QOS_2 != DONE => 0,
            _ => self.drop_all_done(),
        }
    }

    #[inline(never)]
    fn drop_all_done(&mut self) -> usize {
        let mut dropped = 0;
        while self.words.front().is_some_and(|word| word & !QOS_2 == DONE) {
            self.words.pop_front();
            dropped += 1;
        }
        if let Some(rests) = &mut self.rests {
            rests.drain(..dropped);
        }
        if self.words.is_empty() {
            // The next slot starts at the first place again, which is still in the cache.
            self.words.clear();
            if self.words.capacity() > SLOTS_KEPT {
                self.words.shrink_to(SLOTS_KEPT);
            }
            if self.rests.as_ref().is_some_and(|rests| rests.capacity() > SLOTS_KEPT) {
                self.rests = None;
            }
        }
        dropped
    }

    /// Iterates over the unfinished slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FlightSlot> {
        (0..self.len()).filter_map(|place| self.get(place))
    }
}

const SLOTS_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(message: u32) -> FlightSlot {
        FlightSlot::new(PooledMessageId(message), QoS::AtLeastOnce, false, packed_ids::NONE, NONE)
    }

    #[test]
    fn a_slot_comes_back_as_it_was() {
        let mut special =
            FlightSlot::new(PooledMessageId(INDEX_MAX - 1), QoS::ExactlyOnce, true, 7, 3);
        special.position = 70_000;
        special.marks.set(SlotMarks::STORED);
        let mut sent = SentSlots::default();
        for slot in [plain(0), special, plain(2)] {
            sent.push(slot);
        }
        let back: Vec<_> = sent.iter().collect();
        assert_eq!(back, [plain(0), special, plain(2)]);
    }

    #[test]
    fn only_slots_that_say_more_take_more() {
        let mut sent = SentSlots::default();
        sent.push(plain(1));
        assert!(sent.rests.is_none());
        assert_eq!(size_of_val(&sent.words[0]), 4);
    }

    #[test]
    fn what_one_slot_said_more_is_forgotten_when_all_are_done() {
        let mut sent = SentSlots::default();
        sent.push(FlightSlot::new(
            PooledMessageId(1),
            QoS::AtLeastOnce,
            true,
            packed_ids::NONE,
            NONE,
        ));
        sent.finish(0);
        sent.drop_done();
        sent.push(plain(2));
        assert!(sent.rests.is_none());
        assert_eq!(sent.pop_plain(), Some(PooledMessageId(2)));
    }

    #[test]
    fn places_stay_in_step_when_done_ones_go() {
        let mut sent = SentSlots::default();
        sent.push(plain(1));
        sent.push(FlightSlot::new(PooledMessageId(2), QoS::AtLeastOnce, true, 9, NONE));
        sent.finish(0);
        assert_eq!(sent.drop_done(), 1);
        assert_eq!(sent.get(0).map(|slot| (slot.message, slot.ids)), Some((PooledMessageId(2), 9)));
        sent.push(plain(3));
        assert_eq!(sent.get(1), Some(plain(3)));
    }

    #[test]
    fn only_a_message_of_qos_2_is_released_and_only_once() {
        let two = |message| FlightSlot { qos: QoS::ExactlyOnce, ..plain(message) };
        let mut sent = SentSlots::default();
        for slot in [two(INDEX_MAX - 1), plain(3), two(0)] {
            sent.push(slot);
        }
        assert!(!sent.pop_released());
        assert_eq!(sent.release_plain(0), Some(PooledMessageId(INDEX_MAX - 1)));
        assert_eq!(
            [sent.release_plain(0), sent.release_plain(1), sent.release_plain(3)],
            [None; 3]
        );
        assert_eq!(sent.release_plain(2), Some(PooledMessageId(0)));
        assert!(sent.pop_released() && !sent.pop_released());
        sent.finish(1);
        assert_eq!(sent.release_plain(1), None);
    }

    #[test]
    fn a_released_slot_is_qos_2_without_a_message() {
        let mut sent = SentSlots::default();
        sent.push(FlightSlot::new(
            PooledMessageId(5),
            QoS::ExactlyOnce,
            false,
            packed_ids::NONE,
            NONE,
        ));
        sent.release(0);
        let slot = sent.get(0).expect("it is not done");
        assert_eq!((slot.state, slot.qos), (SlotState::Released, QoS::ExactlyOnce));
        assert!(slot.marks.has(SlotMarks::RELEASED));
    }
}
