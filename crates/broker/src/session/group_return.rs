//! Messages of shared groups that a session gives back when its client leaves.

use crate::ids::SessionId;
use crate::limits::NONE;
use crate::session::flight::SlotMarks;
use crate::session::session_table::SessionTable;
use mqtt::QoS;

/// Session Expiry Interval of a session that never expires (MQTT 5.0, 3.1.2.11.2).
pub(crate) const EXPIRY_NEVER: u32 = u32::MAX;

impl SessionTable {
    /// Returns queued messages of shared groups to the group when a member goes offline, for
    /// another member. Messages that were sent stay with the member [MQTT-4.8.2-4].
    pub(crate) fn return_group_messages(&mut self, id: SessionId) {
        let Some(flight) = &mut self.get_mut(id).flight else { return };
        if flight.waiting.iter().all(|slot| slot.group == NONE) {
            return;
        }
        let waiting = std::mem::take(&mut flight.waiting);
        flight.waiting_bytes = 0;
        flight.waiting_qos0 = 0;
        let persistent = self.get_mut(id).persistent.take();
        for slot in waiting {
            if slot.group != NONE && slot.may_move(false) {
                self.abandon_slot(persistent.as_deref(), slot, true);
                continue;
            }
            let released = slot.marks.has(SlotMarks::RELEASED);
            let bytes = if released { 0 } else { self.messages.get(slot.message).bytes() as u64 };
            let flight = self.get_mut(id).flight();
            flight.waiting_bytes += bytes;
            flight.waiting_qos0 += u32::from(slot.qos == QoS::AtMostOnce);
            flight.waiting.push_back(slot);
        }
        self.get_mut(id).persistent = persistent;
    }
}
