//! Packet ids of a persistent session. An id follows from the position in the queue, so after a
//! crash a message has the same id without a write per id. Where the id of a position belongs to an
//! unfinished message, the ids of all later positions shift; the store records the shift, and no
//! message is sent under a shifted id before the commit.

use crate::ids::{IDS, add_to_id};

/// A shift: from position `from` on, packet ids are `by` higher than the position alone gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdShift {
    pub(in crate::durability) from: u64,
    pub(in crate::durability) by: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdShifts(Vec<IdShift>);

/// Length of [`IdShifts`] from which unneeded shifts are removed, at each power of two. The list
/// has fewer than twice as many entries as messages in flight, or fewer than `SHIFTS_KEPT`.
const SHIFTS_KEPT: usize = 16;

impl IdShifts {
    pub(crate) fn from_vec(shifts: Vec<IdShift>) -> IdShifts {
        IdShifts(shifts)
    }

    pub(crate) fn as_slice(&self) -> &[IdShift] {
        &self.0
    }

    /// Returns the zero-based packet id of a position.
    #[inline]
    pub(crate) fn id_of(&self, position: u64) -> u16 {
        let plain = (position % u64::from(IDS)) as u16;
        if self.0.is_empty() { plain } else { add_to_id(plain, self.shift_at(position)) }
    }

    /// Returns the index of the last shift that starts at or before a position; `None` if no shift
    /// does.
    fn place_of(&self, position: u64) -> Option<usize> {
        self.0.partition_point(|shift| shift.from <= position).checked_sub(1)
    }

    fn shift_at(&self, position: u64) -> u16 {
        self.place_of(position).map_or(0, |at| self.0[at].by)
    }

    /// Shifts the ids of all positions from `from` on by `by`. No message from there on was sent.
    pub(crate) fn shift(&mut self, from: u64, by: u16) {
        let by = add_to_id(self.shift_at(from), by);
        self.0.truncate(self.0.partition_point(|shift| shift.from < from));
        self.0.push(IdShift { from, by });
    }

    pub(crate) fn may_have_unused(&self) -> bool {
        self.0.len() >= SHIFTS_KEPT && self.0.len().is_power_of_two()
    }

    /// Removes the shifts that neither `positions` nor any position from `next` on need.
    pub(crate) fn forget_unused(&mut self, positions: impl Iterator<Item = u64>, next: u64) {
        let mut is_used = vec![false; self.0.len()];
        let used = positions.chain([next]).filter_map(|position| self.place_of(position));
        used.for_each(|at| is_used[at] = true);
        let mut at = 0;
        self.0.retain(|shift| {
            at += 1;
            is_used[at - 1] || shift.from >= next
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn ids_shift_from_a_position_on_and_not_before() {
        let mut shifts = IdShifts::default();
        assert_eq!([0, 65_534, 65_535].map(|at| shifts.id_of(at)), [0, 65_534, 0]);
        shifts.shift(65_535, 1);
        shifts.shift(131_069, 2);
        assert_eq!([0, 65_534, 65_535, 131_068].map(|at| shifts.id_of(at)), [0, 65_534, 1, 65_534]);
        assert_eq!([131_069, 131_070].map(|at| shifts.id_of(at)), [2, 3]);
    }

    #[test]
    fn shifts_that_no_message_needs_are_forgotten_and_the_ids_of_the_others_stay() {
        let mut shifts = IdShifts::default();
        for turn in 1..=20_u64 {
            shifts.shift(turn * 1000, 1);
        }
        let outstanding = [5, 3_500, 3_999, 17_000, 19_999, 20_000, 20_001];
        let before = outstanding.map(|at| shifts.id_of(at));
        shifts.forget_unused([5, 3_500, 3_999, 17_000, 19_999].into_iter(), 20_000);
        assert_eq!(outstanding.map(|at| shifts.id_of(at)), before);
        assert_eq!(shifts.as_slice().len(), 4);
    }

    /// Every second message is never acknowledged and ids wrap around, so each further message
    /// skips one id, and the messages in flight change all the time.
    #[test]
    fn there_are_less_than_twice_as_many_shifts_as_messages_in_flight() {
        let in_flight_max = usize::from(u16::MAX / 2);
        let mut shifts = IdShifts::default();
        let mut in_flight = VecDeque::new();
        for position in 0..4 * u64::from(IDS) {
            in_flight.push_back((position, shifts.id_of(position)));
            if in_flight.len() > in_flight_max {
                in_flight.pop_front();
            }
            if position > u64::from(IDS) {
                shifts.shift(position + 1, 1);
            }
            if shifts.may_have_unused() {
                let unfinished = in_flight.iter().map(|(position, _)| *position);
                shifts.forget_unused(unfinished, position + 1);
            }
            assert!(shifts.as_slice().len() < 2 * (in_flight.len() + 1).max(SHIFTS_KEPT));
        }
        let kept = |(position, id): &(u64, u16)| shifts.id_of(*position) == *id;
        assert!(in_flight.iter().all(kept));
    }
}
