//! A report on sessions with their subscriptions.

use crate::counters::DROPS;
use crate::routing::ShardRouting;
use crate::session::flight::SlotMarks;
use crate::session::session_report::SessionReport;
use crate::session::session_table::{Session, SessionTable};

impl ShardRouting {
    pub(crate) fn report_session(
        &self,
        session: &Session,
        sessions: &SessionTable,
    ) -> SessionReport {
        let flight = session.flight.as_deref();
        let spooled = session.persistent.as_deref();
        let spooled = spooled.map_or((0, 0), |one| (one.spooled, one.spooled_bytes));
        let waiting = flight.map_or((0, 0), |one| (one.waiting.len(), one.waiting_bytes));
        let oldest = flight.and_then(|flight| flight.waiting.front());
        let oldest = oldest.filter(|slot| !slot.marks.has(SlotMarks::RELEASED));
        let shares = session.extras.iter().flat_map(|extras| &extras.shares);
        let filters = session.subscriptions.iter().map(|own| self.topics.text(own.filter));
        let filters = filters.chain(shares.map(|share| &*share.group));
        SessionReport {
            client_id: session.client_id.clone(),
            is_online: session.conn().is_some(),
            in_flight: flight.map_or(0, |flight| u32::from(flight.unacknowledged)),
            queued: waiting.0 as u64 + u64::from(spooled.0),
            queued_bytes: waiting.1 + spooled.1,
            oldest_age_ms: oldest.map(|slot| {
                sessions.context.now.0.saturating_sub(sessions.messages.get(slot.message).at().0)
            }),
            drops: session.extras.as_ref().map_or([0; DROPS], |extras| extras.drops),
            received: flight.map_or_else(Vec::new, |flight| flight.received.iter().collect()),
            filters: filters.map(|filter| session.strip_prefix(filter).into()).collect(),
        }
    }
}
