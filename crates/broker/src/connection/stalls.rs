//! Stalled windows: clients that leave a message unacknowledged for `STALL_S` seconds or longer,
//! whether later messages are acknowledged or not. The search follows each `$SYS` round,
//! `SESSIONS_PER_TICK` sessions a tick, so a delivery pays nothing for the detection.

use crate::connection::connection_table::ConnectionTable;
use crate::input::{MonotonicMs, SessionId};
use crate::limits::NONE;
use crate::outbox::Outbox;
use crate::session::flight::Flight;
use crate::session::session_table::SessionTable;
use crate::statistics::broker_event::BrokerEvent;
use mqtt::PacketId;

/// The oldest unacknowledged message of the present connection, and the time at which the search of
/// [`StallSearch`] first saw the message in that position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldestUnacked {
    id: PacketId,
    since: MonotonicMs,
    /// Age in milliseconds at which the next `WindowStalled` event is due.
    tell_at_ms: u64,
}

/// Progress of a shard's search for stalled sessions.
#[derive(Debug, Default)]
pub(crate) struct StallSearch {
    next: Option<u32>,
    /// Stalled sessions found by the running search.
    found: u64,
    /// Stalled sessions found by the last completed search; the figure for `$SYS` topics.
    pub(crate) stalled: u64,
}

/// Age in seconds from which an unacknowledged message counts as stalled.
pub(crate) const STALL_S: u64 = 30;
const SESSIONS_PER_TICK: u32 = 8192;

impl StallSearch {
    pub(crate) fn begin(&mut self) {
        if self.next.is_none() {
            (self.next, self.found) = (Some(0), 0);
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.next.is_some()
    }
}

impl Flight {
    /// Returns the oldest unacknowledged message, the age in seconds, and whether a report is due;
    /// `None` below `STALL_S`. Each report doubles the age for the next report.
    fn look_at_oldest(&mut self, now: MonotonicMs) -> Option<(PacketId, u64, bool)> {
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

impl ConnectionTable {
    pub(crate) fn look_for_stalls(&mut self, sessions: &mut SessionTable, out: &mut Outbox) {
        let Some(first) = self.stalls.next else { return };
        let end = sessions.index_bound().min(first + SESSIONS_PER_TICK);
        for index in first..end {
            self.look_for_stall(SessionId(index), sessions, out);
        }
        let is_done = end == sessions.index_bound();
        self.stalls.next = (!is_done).then_some(end);
        if is_done {
            self.stalls.stalled = self.stalls.found;
        }
    }

    fn look_for_stall(&mut self, id: SessionId, sessions: &mut SessionTable, out: &mut Outbox) {
        let now = sessions.context.now;
        if !sessions.contains(id) {
            return;
        }
        let session = sessions.get_mut(id);
        let window = session.window;
        let Some(flight) = session.flight.as_mut().filter(|_| session.conn != NONE) else { return };
        let Some((packet_id, age_s, tells)) = flight.look_at_oldest(now) else { return };
        let (unacknowledged, is_full) = (flight.unacknowledged, flight.unacknowledged >= window);
        let client_id = session.client_id.clone();
        self.stalls.found += 1;
        if !tells {
            return;
        }
        match self.stall_log_limiter.count(1, now) {
            Some(count) => out.events.push(BrokerEvent::WindowStalled {
                client_id,
                packet_id: packet_id.get(),
                age_s,
                unacknowledged,
                is_full,
                withheld: count - 1,
            }),
            None => sessions.context.plan_event_flush(),
        }
    }
}
