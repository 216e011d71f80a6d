//! The searches for retained messages that a session has not finished, one cursor for each new
//! subscription. `routing::retained_feed` continues them.

use crate::ids::{FilterId, RetainStamp, SubscriptionFlags};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
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

    pub(crate) fn first(&mut self) -> Option<&mut RetainedCursor> {
        self.by_turn.values_mut().next()
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
