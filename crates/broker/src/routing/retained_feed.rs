//! Retained messages for new subscriptions, within the window and the bounds of a turn.

use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::limits::{CURSOR_STEPS_PER_TURN, NONE};
use crate::routing::ShardRouting;
use crate::routing::retained::RetainedMatch;
use crate::session::deliver::Delivery;
use crate::session::flight::granted_qos;
use crate::session::session_table::SessionTable;
use mqtt::QoS;

impl ShardRouting {
    /// Sends retained messages to new subscriptions within the window, the outbox and
    /// [`CURSOR_STEPS_PER_TURN`].
    pub(crate) fn feed_cursors(
        &self,
        id: SessionId,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let (keeps_qos0, now) = (sessions.keeps_qos0(id), sessions.context.now);
        loop {
            let session = sessions.get_mut(id);
            let (online, room) = (session.can_send_now(), session.has_room());
            let Some(extras) = &mut session.extras else { return };
            let Some(cursor) = extras.cursors.first() else { return session.free_empty_extras() };
            if !online {
                return;
            }
            if out.is_full() || out.cursor_steps >= CURSOR_STEPS_PER_TURN {
                return sessions.postpone(id);
            }
            let filter = cursor.filter;
            let text = &self.topics.filter(filter).text;
            let before = CURSOR_STEPS_PER_TURN - out.cursor_steps;
            let mut left = before;
            let found = self.retained.next(text, cursor.after.as_deref(), now, &mut left);
            // The search counts as a step too; a filter without matches would otherwise cost
            // nothing.
            out.cursor_steps += before - left + 1;
            let message = match found {
                RetainedMatch::Message(message) => message.clone(),
                RetainedMatch::Pause(topic) => {
                    cursor.after = Some(topic);
                    continue;
                }
                RetainedMatch::End => {
                    extras.cursors.remove(filter);
                    continue;
                }
            };
            let is_kept = granted_qos(message.qos(), cursor.options) != QoS::AtMostOnce;
            let is_later = |since| self.retained.is_later(message.topic(), since);
            if (is_kept || keeps_qos0) && cursor.waits_since.is_some_and(is_later) {
                cursor.after = Some(message.topic().into());
                continue;
            }
            if is_kept && !room {
                return;
            }
            let hit = Delivery {
                session: id,
                options: cursor.options,
                ids: cursor.id,
                group: NONE,
                from_retained: true,
                alone: true,
            };
            cursor.after = Some(message.topic().into());
            sessions.deliver_with_events(hit, &mut message.draft(), out);
        }
    }
}
