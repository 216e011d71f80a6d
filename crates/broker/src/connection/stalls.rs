//! Windows that do not move: clients that have left a message unacknowledged for long, whether the
//! others go on or wait. Looked for after each `$SYS` round, some sessions a tick, so that nothing
//! is counted for a message.

use crate::input::{MonotonicMs, SessionId};
use crate::limits::NONE;
use crate::outbox::Outbox;
use crate::session::flight::Flight;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use mqtt::PacketId;

/// Since when the present connection's oldest message is unacknowledged, as far as was looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldestUnacked {
    id: PacketId,
    since: MonotonicMs,
    /// Age at which the stall is reported.
    tell_at_ms: u64,
}

/// Progress of a shard's search for stalled sessions.
#[derive(Debug, Default)]
pub(crate) struct StallSearch {
    next: Option<u32>,
    /// Found by the search that runs.
    found: u64,
    /// Found by the last one that was whole.
    pub(crate) stalled: u64,
}

/// Time for which a message may be unacknowledged before it is reported, in seconds.
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
    /// Returns the oldest unacknowledged message, its age, and whether it has to be reported. The
    /// next report is due at twice the age.
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

impl Shard {
    pub(crate) fn look_for_stalls(&mut self, out: &mut Outbox) {
        let Some(first) = self.stalls.next else { return };
        let end = self.sessions.index_bound().min(first + SESSIONS_PER_TICK);
        for index in first..end {
            self.look_for_stall(SessionId(index), out);
        }
        let is_done = end == self.sessions.index_bound();
        self.stalls.next = (!is_done).then_some(end);
        if is_done {
            self.stalls.stalled = self.stalls.found;
        }
    }

    fn look_for_stall(&mut self, id: SessionId, out: &mut Outbox) {
        let now = self.now;
        if !self.sessions.contains(id) {
            return;
        }
        let session = self.sessions.get_mut(id);
        let window = session.window;
        let Some(flight) = session.flight.as_mut().filter(|_| session.conn != NONE) else { return };
        let Some((packet_id, age_s, tells)) = flight.look_at_oldest(now) else { return };
        let (unacknowledged, is_full) = (flight.unacknowledged, flight.unacknowledged >= window);
        let client_id = session.client_id.clone();
        self.stalls.found += 1;
        if !tells {
            return;
        }
        match self.stall_log_limiter.count(now) {
            Some(withheld) => out.events.push(BrokerEvent::WindowStalled {
                client_id,
                packet_id: packet_id.get(),
                age_s,
                unacknowledged,
                is_full,
                withheld,
            }),
            None => self.plan_event_flush(),
        }
    }
}
