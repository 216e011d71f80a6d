//! Commits that other shards confirm, as sessions need them.

use crate::ids::{SessionId, ShardId};
use crate::session::session_table::SessionTable;

impl SessionTable {
    /// Returns a new token, under which a shard confirms a commit by
    /// [`ShardMessage::TokensCommitted`].
    pub(crate) fn next_commit_token(&mut self, shard: ShardId) -> u64 {
        self.durability.pending_acks.next_token(shard, self.context.shards)
    }

    pub(crate) fn note_session_end(&mut self, id: SessionId) {
        let client = self.context.client_hash(&self.get(id).client_id);
        self.durability.pending_acks.note_session_end(client);
    }

    /// Whether a session of the client has ended without a commit, so that a power cut would
    /// restore the session.
    pub(crate) fn has_uncommitted_end(&self, client_id: &str) -> bool {
        let client = self.context.client_hash(client_id);
        self.durability.pending_acks.has_uncommitted_end(client)
    }
}
