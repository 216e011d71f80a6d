//! Stalled windows: clients that leave a message unacknowledged for `STALL_S` seconds or longer,
//! whether later messages are acknowledged or not. The search follows each `$SYS` round,
//! `SESSIONS_PER_TICK` sessions a tick, so a delivery pays nothing for the detection.

use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::limits::NONE;
use crate::session::session_table::SessionTable;

/// Progress of a shard's search for stalled sessions.
#[derive(Debug, Default)]
pub(crate) struct StallSearch {
    next: Option<u32>,
    /// Stalled sessions found by the running search.
    found: u64,
    /// Stalled sessions found by the last completed search; the figure for `$SYS` topics.
    pub(crate) stalled: u64,
}

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
