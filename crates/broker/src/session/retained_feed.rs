//! Retained messages for new subscriptions: one cursor per subscription, continued as the window,
//! the socket and the tick have room. A stopped cursor goes on after an acknowledgement, with the
//! socket or in the next tick.

use crate::input::{RetainStamp, SessionId};
use crate::limits::{CURSOR_STEPS_PER_TURN, NONE};
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::retained::RetainedMatch;
use crate::routing::topics::{FilterId, SubscriptionFlags};
use crate::session::delivery::Delivery;
use crate::session::flight::granted_qos;
use crate::session::session_table::SessionTable;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::QoS;
use std::collections::BTreeMap;

/// State of a search for retained messages: the filter, the options of the subscription, and the
/// last topic in `after`.
#[derive(Debug)]
pub(crate) struct RetainedCursor {
    pub(crate) filter: FilterId,
    pub(crate) after: Option<Box<str>>,
    /// Newest change of the retained messages when a connection began to wait (`SendGate::QUIET`).
    /// Later messages arrive by the subscription, in the queue.
    pub(crate) waits_since: Option<RetainStamp>,
    pub(crate) options: SubscriptionFlags,
    pub(crate) id: u32,
}

/// The cursors of one session in the order of the subscriptions, at most one per filter.
#[derive(Debug, Default)]
pub(crate) struct RetainedCursors {
    by_turn: BTreeMap<u64, RetainedCursor>,
    turns: HashMap<u32, u64, FixedState>,
}

impl RetainedCursors {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// Adds a search. A search for the same filter starts again, so that each message is sent once.
    pub(crate) fn push(&mut self, cursor: RetainedCursor) {
        self.remove(cursor.filter);
        let turn = self.by_turn.last_key_value().map_or(0, |(turn, _)| turn + 1);
        self.turns.insert(cursor.filter.0, turn);
        self.by_turn.insert(turn, cursor);
    }

    pub(crate) fn remove(&mut self, filter: FilterId) {
        if let Some(turn) = self.turns.remove(&filter.0) {
            self.by_turn.remove(&turn);
        }
        if self.by_turn.is_empty() {
            self.turns = HashMap::default();
        }
    }

    fn first(&mut self) -> Option<&mut RetainedCursor> {
        self.by_turn.values_mut().next()
    }
}

impl ShardRouting {
    /// Sends retained messages to new subscriptions within the window, the outbox and
    /// [`CURSOR_STEPS_PER_TURN`].
    pub(crate) fn feed_cursors(
        &mut self,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_one_cursor_and_the_last_place() {
        let mut cursors = RetainedCursors::default();
        let cursor = |filter, id| RetainedCursor {
            filter: FilterId(filter),
            after: None,
            waits_since: None,
            options: SubscriptionFlags::default(),
            id,
        };
        for (filter, id) in [(7, 1), (5, 2), (7, 3)] {
            cursors.push(cursor(filter, id));
        }
        assert_eq!(cursors.first().map(|cursor| cursor.id), Some(2));
        cursors.remove(FilterId(5));
        assert_eq!(cursors.first().map(|cursor| cursor.id), Some(3));
        cursors.remove(FilterId(7));
        assert!(cursors.is_empty() && cursors.turns.is_empty());
    }
}
