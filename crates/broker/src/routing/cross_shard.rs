//! Messages from other shards, and those that a power cut left on the way.

use crate::ids::QueueRecordId;
use crate::interface::outbox::Outbox;
use crate::message::Message;
use crate::routing::ShardRouting;
use crate::routing::topics::FilterSubscriber;
use crate::session::session_table::SessionTable;

impl ShardRouting {
    /// Routes a message of another shard to the subscribers here, and removes the record in the
    /// cross-shard log.
    pub(crate) fn route_remote_message(
        &mut self,
        message: &Message,
        origin: Option<QueueRecordId>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut draft = message.draft();
        draft.exactly_once = origin.is_some();
        self.route_here(None, &mut draft, sessions, out);
        sessions.remove_moved_record(origin);
    }

    /// Delivers a restored message to sessions and groups here that were owned by the message's
    /// destination, as `was_there` tells for a client id.
    pub(crate) fn reroute_restored(
        &mut self,
        message: &Message,
        was_there: impl Fn(&str) -> bool,
        sessions: &mut SessionTable,
    ) {
        let (mut draft, mut filters) = (message.draft(), Vec::new());
        // No client is connected yet, so the outbox stays empty.
        let out = &mut Outbox::new(sessions.context.shards);
        self.topics.matching(draft.topic, &mut filters);
        let takes = |sessions: &SessionTable, one: &FilterSubscriber| {
            was_there(&sessions.get(one.session).client_id)
        };
        self.deliver_overlapping(&filters, takes, &mut draft, sessions, out);
        self.redispatch_to_groups(&filters, was_there, &mut draft, sessions, out);
    }
}
