//! Dropped messages: counters, and log events of which repetitions are withheld.

use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::session::session_table::SessionTable;

impl SessionTable {
    /// Reports the withheld events of a session. Returns whether there were any.
    pub(crate) fn flush_session_events(&mut self, id: SessionId, out: &mut Outbox) -> bool {
        let before = out.events.len();
        let now = self.context.now;
        let session = self.get_mut(id);
        let client_id = &session.client_id;
        if let Some(extras) = &mut session.extras
            && let Some(drops) = extras.withheld_drops.take()
        {
            out.events.extend(drops.events(client_id));
            // Keep the counter for the next second.
            extras.withheld_drops = (out.events.len() > before).then(Box::default);
        }
        if let Some(rights) = &mut session.permissions {
            out.events.extend(rights.withheld_denials(client_id, now));
        }
        session.free_empty_extras();
        out.events.len() > before
    }
}
