//! A timer wheel per shard. Timers are not cancelled: the owner of a fired timer checks whether the
//! timer still applies, and sets a new one if it fired too early. `Shard::prune_timers` removes
//! outdated timers only when they outnumber the live ones. Due times are rounded up to a turn
//! (100 ms): a timer never fires early.
//!
//! Four rings of 64 slots: a slot of the lowest ring is one turn, a slot of the next ring 64 turns,
//! and so on. A timer beyond the reach of the highest ring (19 days) waits in the ring's last slot
//! and is placed again from there.

use crate::ids::MonotonicMs;

pub(crate) const TURN_MS: u64 = 100;
const SLOTS: u64 = 64;
const RINGS: usize = 4;

/// Purpose of a timer. `generation` tells the present user of an index from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardTimer {
    /// Messages in a session's queue may have expired or exceeded `queue_age_s_max`.
    QueueAge { index: u32, generation: u32 },
    /// The timeout of an authorization decision about a connection's packet.
    AuthzDeadline { index: u32, generation: u32 },
    /// Messages in caches may have expired.
    Caches,
    /// Keep-alive of a connection, or the timeout of its CONNECT.
    Conn { index: u32, generation: u32 },
    /// A delayed message is due.
    Delayed,
    /// The timeout of authorization decisions about subscriptions, or the time of the next check.
    Reauthorization,
    /// Session expiry or will delay of a session without a connection.
    Session { index: u32, generation: u32 },
    /// A client whose outgoing rate was exhausted may receive messages again.
    QueueDrain { index: u32, generation: u32 },
    /// Withheld log events are reported.
    EventFlush,
    /// The store is scanned for records without a referring record.
    GarbageCollection,
    /// A connection which exceeded its incoming rate is read again.
    ReadRate { index: u32, generation: u32 },
    /// A `$SYS` round.
    Sys,
    /// Expired retained messages and old tombstones are removed.
    RetainedSweep,
    /// A window of a rule ends, or its stored record is outdated.
    Windows,
}

/// A timer with the turn in which it is due.
#[derive(Clone, Copy, Debug)]
struct TimerEntry {
    due: u64,
    timer: ShardTimer,
}

/// The timers of a shard, by turns of `TURN_MS`.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    /// The turn which `fire` handled last.
    turn: u64,
    rings: [[Vec<TimerEntry>; SLOTS as usize]; RINGS],
    len: usize,
}

impl TimerWheel {
    pub(crate) const TIMER_BYTES: usize = size_of::<TimerEntry>();

    pub(crate) fn new(now: MonotonicMs) -> TimerWheel {
        let ring = || std::array::from_fn(|_| Vec::new());
        TimerWheel { turn: now.0 / TURN_MS, rings: std::array::from_fn(|_| ring()), len: 0 }
    }

    pub(crate) fn set(&mut self, at: MonotonicMs, timer: ShardTimer) {
        self.len += 1;
        let due = turn_of(at).max(self.turn + 1);
        self.place(TimerEntry { due, timer });
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Removes timers for which `keep` returns false; `keep` also receives the turn in which the
    /// timer is due. Without this, a client which reconnects often and sets a timer for years each
    /// time would fill the wheel. Timers due in the next turn stay.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(ShardTimer, u64) -> bool) {
        let next = self.turn + 1;
        self.len = 0;
        for slot in self.rings.iter_mut().flatten() {
            slot.retain(|entry| entry.due <= next || keep(entry.timer, entry.due));
            slot.shrink_to_fit();
            self.len += slot.len();
        }
    }

    fn place(&mut self, entry: TimerEntry) {
        let ahead = entry.due - self.turn;
        let mut span = SLOTS;
        for ring in 0..RINGS {
            let unit = span / SLOTS;
            // The slot of the present turn is already empty for this round. An entry within the
            // reach of a lower ring must go there: here it could fall into that slot and wait for a
            // whole round.
            if ahead < span || ring == RINGS - 1 {
                let due = entry.due.min(self.turn + span - 1);
                self.rings[ring][(due / unit % SLOTS) as usize].push(entry);
                return;
            }
            span *= SLOTS;
        }
    }

    /// Moves all due timers to `into`, and entries of higher rings to lower ones as their turn
    /// comes.
    pub(crate) fn fire(&mut self, now: MonotonicMs, into: &mut Vec<ShardTimer>) {
        let until = now.0 / TURN_MS;
        if self.len == 0 {
            self.turn = self.turn.max(until);
            return;
        }
        while self.turn < until {
            self.turn += 1;
            let mut unit = SLOTS;
            for ring in 1..RINGS {
                if !self.turn.is_multiple_of(unit) {
                    break;
                }
                let slot = (self.turn / unit % SLOTS) as usize;
                for entry in std::mem::take(&mut self.rings[ring][slot]) {
                    self.place_or_fire(entry, into);
                }
                unit *= SLOTS;
            }
            let slot = (self.turn % SLOTS) as usize;
            for entry in std::mem::take(&mut self.rings[0][slot]) {
                self.place_or_fire(entry, into);
            }
        }
    }

    fn place_or_fire(&mut self, entry: TimerEntry, into: &mut Vec<ShardTimer>) {
        if entry.due <= self.turn {
            self.len -= 1;
            into.push(entry.timer);
        } else {
            self.place(entry);
        }
    }

    /// Returns the time to call `fire` again: never later than the next timer, at times earlier (at
    /// most 64 turns ahead). `None` without timers.
    pub(crate) fn next(&self) -> Option<MonotonicMs> {
        if self.len == 0 {
            return None;
        }
        for ahead in 1..=SLOTS {
            let turn = self.turn + ahead;
            let higher = turn.is_multiple_of(SLOTS);
            if higher || !self.rings[0][(turn % SLOTS) as usize].is_empty() {
                return Some(MonotonicMs(turn * TURN_MS));
            }
        }
        Some(MonotonicMs((self.turn + SLOTS) * TURN_MS))
    }
}

/// The first turn at or after `at`.
pub(crate) fn turn_of(at: MonotonicMs) -> u64 {
    at.0.div_ceil(TURN_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(wheel: &mut TimerWheel, now: u64) -> usize {
        let mut into = Vec::new();
        wheel.fire(MonotonicMs(now), &mut into);
        into.len()
    }

    #[test]
    fn a_timer_fires_within_a_turn_and_never_early() {
        for after in [1, 99, 100, 101, 6_399, 6_400, 6_500, 409_600, 500_000, 30_000_000] {
            for start in [0, 50, 6_350, 1_000_000] {
                let mut wheel = TimerWheel::new(MonotonicMs(start));
                wheel.set(MonotonicMs(start + after), ShardTimer::Sys);
                let mut now = start;
                while let Some(next) = wheel.next() {
                    assert!(next.0 > now || next.0 <= start + after);
                    now = next.0;
                    if fired(&mut wheel, now) == 1 {
                        break;
                    }
                    assert!(now < start + after + TURN_MS, "{after} from {start} is late at {now}");
                }
                assert!(now >= start + after, "{after} from {start} fired early at {now}");
                assert!(now < start + after + 2 * TURN_MS);
            }
        }
    }

    /// Timers move through the rings from any start turn, and must be on time in each case.
    #[test]
    fn a_timer_is_on_time_wherever_the_rings_stand() {
        let rounds = [1..=300, 4_000..=4_300, 262_140..=262_147];
        for start in [0, 1, 63, 64, 100, 4_032, 4_095] {
            for after in rounds.iter().cloned().flatten() {
                let mut wheel = TimerWheel::new(MonotonicMs(start * TURN_MS));
                wheel.set(MonotonicMs((start + after) * TURN_MS), ShardTimer::Sys);
                assert_eq!(fired(&mut wheel, (start + after - 1) * TURN_MS), 0, "{after} early");
                let late = fired(&mut wheel, (start + after) * TURN_MS) == 0;
                assert!(!late, "{after} turns from turn {start} come late");
            }
        }
    }

    #[test]
    fn a_timer_months_away_still_fires() {
        let mut wheel = TimerWheel::new(MonotonicMs(0));
        let at = 60 * 86_400_000_u64;
        wheel.set(MonotonicMs(at), ShardTimer::Sys);
        assert_eq!(fired(&mut wheel, at - 1), 0);
        assert_eq!(fired(&mut wheel, at + TURN_MS), 1);
        assert_eq!(wheel.next(), None);
    }
}
