//! Commits that other shards confirm, as sessions need them.

use crate::durability::pending_acks::await_token;
use crate::ids::{SessionId, ShardId};
use crate::session::session_table::SessionTable;

impl SessionTable {
    /// Returns a new token, under which a shard confirms a commit by
    /// [`ShardMessage::TokensCommitted`].
    pub(crate) fn next_commit_token(&mut self, shard: ShardId) -> u64 {
        let place = usize::from(shard.0);
        if self.durability.pending_acks.last_tokens.is_empty() {
            self.durability.pending_acks.last_tokens = vec![0; self.context.shards];
        }
        self.durability.pending_acks.last_tokens[place] += 1;
        let ticket = self.durability.pending_acks.last_tokens[place];
        await_token(&mut self.durability.pending_acks.requested, shard, ticket);
        ticket
    }

    pub(crate) fn note_session_end(&mut self, id: SessionId) {
        let client = self.context.client_hash(&self.get(id).client_id);
        self.durability.pending_acks.session_ends.push(client);
    }

    /// Whether a session of the client has ended without a commit, so that a power cut would
    /// restore the session.
    pub(crate) fn has_uncommitted_end(&self, client_id: &str) -> bool {
        let client = self.context.client_hash(client_id);
        self.durability.pending_acks.session_ends.times.contains_key(&client)
    }
}
