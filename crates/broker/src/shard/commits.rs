//! Reports of the store, and the acknowledgements that a commit releases.

use crate::connection::conn::ConnState;
use crate::durability::pending_acks::PendingAck;
use crate::ids::{MonotonicMs, ShardId};
use crate::interface::outbox::{Effect, Outbox};
use crate::interface::store_access::RecordChange;
use crate::shard::Shard;

impl Shard {
    /// Sets whether the store refuses writes. Requests which need a new record get 0x97 while it
    /// does.
    pub fn set_store_full(&mut self, is_full: bool) {
        self.sessions.durability.store_is_full = is_full;
    }

    /// Gives the shard a store. `boot` counts the starts of that store.
    pub fn open_store(&mut self, boot: u32) {
        self.sessions.write_batch =
            crate::durability::write_batch::WriteBatch::open(boot, self.sessions.context.id.0);
    }

    /// Returns the records of this tick for the store, and whether a client waits for any record.
    /// `on_committed` follows once the store has accepted the batch.
    pub fn take_records(&mut self) -> (Vec<RecordChange>, bool) {
        for (session, position) in std::mem::take(&mut self.sessions.unsettled) {
            if self.sessions.contains(session) {
                let generation = self.sessions.get(session).generation;
                self.connections.defer_ack(
                    PendingAck::PositionsCommitted { session, generation, position },
                    &mut self.sessions,
                );
            }
        }
        let is_urgent = self.sessions.write_batch.is_urgent();
        self.sessions.durability.pending_acks.set_urgency(is_urgent);
        (self.sessions.take_changes(), is_urgent)
    }

    /// Records whether the store has a backlog. At the end of a backlog, reading resumes from the
    /// connections in `ConnState::StoreBacklogged`.
    pub fn set_store_backlogged(&mut self, now: MonotonicMs, is_crowded: bool, out: &mut Outbox) {
        self.sessions.durability.store_is_backlogged = is_crowded;
        if is_crowded || self.connections.store_waiters.is_empty() {
            return;
        }
        for conn in std::mem::take(&mut self.connections.store_waiters) {
            // The id may belong to another connection by now.
            if let Some(known) = self.connections.conn_mut(conn)
                && let ConnState::StoreBacklogged { session } = known.state
            {
                known.state = ConnState::Live { session };
                // The broker did not read until now, so the silence does not count for keep-alive.
                known.last_activity = now;
                out.effects.push(Effect::Resume { conn });
            }
        }
    }

    /// Sets the number of the first batch of the process, which contains the changes returned by
    /// the restore. Every later acknowledgement waits for that batch too.
    pub fn set_initial_commit(&mut self, seq: u64) {
        self.sessions.durability.pending_acks.set_initial_commit(seq);
    }

    /// Handles [`ShardMessage::TokensCommitted`](crate::ShardMessage::TokensCommitted): a shard has
    /// committed the requests of these tokens.
    pub(crate) fn on_tokens_committed(
        &mut self,
        by: ShardId,
        first: u64,
        last: u64,
        out: &mut Outbox,
    ) {
        self.sessions.durability.pending_acks.complete(by, first, last);
        self.release_acks(out);
    }

    /// Whether the tick has records for the store, or answers that wait for a commit.
    pub fn has_records(&self) -> bool {
        let sessions = &self.sessions;
        sessions.durability.pending_acks.waits_for_this_tick()
            || !sessions.write_batch.is_empty()
            || sessions.messages.has_dead_bodies()
            || !sessions.dirty.is_empty()
            || !sessions.unsettled.is_empty()
    }

    /// Whether any answer waits for a commit.
    pub fn waits_for_disk(&self) -> bool {
        self.sessions.durability.pending_acks.is_waiting()
    }

    /// Returns the last batch that the shard knows as durable, from `on_committed` or `on_durable`.
    pub fn durable_seen(&self) -> u64 {
        self.sessions.durability.pending_acks.durable()
    }

    /// Handles the end of a tick: the store has accepted the records as batch `seq`.
    pub(crate) fn on_committed(&mut self, seq: u64, durable: u64, out: &mut Outbox) {
        self.sessions.messages.end_moves();
        self.sessions.durability.pending_acks.note_committed(seq, durable);
        self.release_acks(out);
    }

    /// Handles the report that all batches up to this number are durable.
    pub(crate) fn on_durable(&mut self, seq: u64, out: &mut Outbox) {
        self.sessions.durability.pending_acks.note_durable(seq);
        self.release_acks(out);
    }

    fn release_acks(&mut self, out: &mut Outbox) {
        self.sessions.durability.pending_acks.send_confirmations(out);
        while let Some(answers) = self.sessions.durability.pending_acks.take_released() {
            for answer in answers {
                self.send_ack(answer, out);
            }
        }
    }

    fn send_ack(&mut self, answer: PendingAck, out: &mut Outbox) {
        match answer {
            PendingAck::Ack { conn, ack } => {
                if let Some(id) = self.connections.take_pending_ack(conn) {
                    self.sessions.acknowledge(id, ack, out);
                }
            }
            PendingAck::Bytes { conn, bytes } => {
                if let Some(id) = self.connections.take_pending_ack(conn) {
                    self.sessions.send_packet(id, &bytes, out);
                }
            }
            PendingAck::ConnAck { conn, bytes } => {
                if let Some(id) = self.connections.take_pending_ack(conn) {
                    self.sessions.send_packet(id, &bytes, out);
                    if let Some(known) = self.connections.conn_mut(conn) {
                        known.state = ConnState::Live { session: id };
                    }
                    self.auto_subscribe(id, out);
                    out.effects.push(Effect::Resume { conn });
                }
            }
            PendingAck::ResumeFlight { conn } => {
                if let Some(id) = self.connections.take_pending_ack(conn) {
                    self.sessions.set_suspended(id, false);
                    self.sessions.drain_queue(id, out);
                }
            }
            PendingAck::PositionsCommitted { session, generation, position } => {
                if self.sessions.is_current(session, generation) {
                    self.sessions.settle_position(session, position);
                    self.sessions.drain_queue(session, out);
                }
            }
        }
    }
}
