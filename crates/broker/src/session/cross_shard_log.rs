//! Cross-shard logs: messages on the way to another shard that must arrive exactly once, even
//! across power cuts.
//!
//! The sender writes the message to the log, a queue of its own in the store, in the batch that
//! accepts the message; the receiver removes the record in the batch that stores the result. The
//! store keeps the order of batches, and a message leaves a shard after the batch with the record,
//! so after a power cut the message is in exactly one of the two places. At the next start, the
//! entries left in a log are delivered to the same sessions and groups, on the shards that own them
//! then.

use crate::durability::records;
use crate::durability::records::{CrossShardRoute, QueueRecord, RecordBody};
use crate::ids::{QueueRecordId, RetainStamp, ShardId};
use crate::interface::cache_message::CacheShardMessage;
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::interface::store_access::{RecordSpace, queue_key};
use crate::message::{IncomingPublish, Message};
use crate::session::session_table::SessionTable;
use std::sync::Arc;

impl SessionTable {
    /// Prepares a request to another shard to store a message. Returns a token to be confirmed, or
    /// for `exactly_once` the key of a record in the cross-shard log, which the other shard
    /// removes; neither without `asks`.
    pub(crate) fn request_commit(
        &mut self,
        to: ShardId,
        asks: bool,
        draft: &mut IncomingPublish<'_>,
        stamp: RetainStamp,
    ) -> (u64, Option<QueueRecordId>) {
        match asks {
            false => (0, None),
            true if draft.exactly_once => {
                let message = draft.message().clone();
                let origin =
                    self.write_cross_shard_record(CrossShardRoute { to, stamp }, None, &message);
                (0, Some(origin))
            }
            true => (self.next_commit_token(to), None),
        }
    }

    /// Returns a message from a group's member to the shard that owns the group, by `send_return`,
    /// with a record in the cross-shard log if the message had a queue record.
    pub(crate) fn return_to_group(
        &mut self,
        group: Arc<str>,
        message: Message,
        origin: Option<QueueRecordId>,
        out: &mut Outbox,
    ) {
        let to = self.context.owner_of(&group);
        // The old record would be lost with the session of the member, so the log takes over.
        let origin = origin.map(|before| {
            self.write_batch.remove_queue_record(before);
            self.write_cross_shard_record(
                CrossShardRoute { to, stamp: RetainStamp::default() },
                Some(&group),
                &message,
            )
        });
        self.send_return(to, group, message, origin, out);
    }

    /// Sends `ShardMessage::ReturnToGroup` to the owner of a group, for a message that a member did
    /// not receive.
    pub(crate) fn send_return(
        &mut self,
        owner: ShardId,
        group: Arc<str>,
        message: Message,
        origin: Option<QueueRecordId>,
        out: &mut Outbox,
    ) {
        self.ledger.crossing += message.bytes() as i64;
        out.lanes[usize::from(owner.0)].push_back(ShardMessage::ReturnToGroup {
            group,
            message,
            origin,
        });
    }

    fn write_cross_shard_record(
        &mut self,
        way: CrossShardRoute,
        group: Option<&Arc<str>>,
        message: &Message,
    ) -> QueueRecordId {
        let draft = message.view().draft();
        let entry = QueueRecord {
            route: Some(way),
            group: group.cloned(),
            ..QueueRecord::new(draft.qos, draft.retain)
        };
        let value = records::queue_value(&entry, RecordBody::Inline(message.view().as_bytes()));
        let origin = self.write_batch.allocate_cross_shard_id();
        let key = queue_key(origin.number, origin.position);
        self.write_batch.push_change(RecordSpace::Queues, key, Some(value));
        origin
    }

    pub(crate) fn send_cache_message(
        &mut self,
        to: ShardId,
        word: CacheShardMessage,
        out: &mut Outbox,
    ) {
        self.ledger.crossing += word.bytes();
        out.lanes[usize::from(to.0)].push_back(ShardMessage::Cache(Box::new(word)));
    }
}
