//! Pending acknowledgements: answers that wait for a commit of this shard, and of shards that were
//! requested to store a message.
//!
//! Answers to clients wait per tick, and ticks are released in order, so a connection receives
//! answers in the order of the requests [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4]. Confirmations
//! to shards wait for the records of their request only: if they waited for each other or for
//! answers to clients, two shards could wait for each other forever.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::durability::ShardDurability;
use crate::input::{ConnId, MonotonicMs, SessionId, ShardId, ShardMessage};
use crate::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use mqtt::{PacketId, PacketType, ReasonCode};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct PendingAcks {
    ticks: VecDeque<TickAcks>,
    /// Whether the last of `ticks` is the present tick.
    is_open: bool,
    confirmations: Vec<ShardConfirmation>,
    /// The last token returned by `next_commit_token`, for each shard.
    last_tokens: Vec<u64>,
    /// Tokens of requests to other shards, until [`ShardConfirmation`] or [`TickAcks`] awaits them.
    pub(crate) requested: Vec<TokenRange>,
    durable: u64,
    /// Number of the last batch that an answer waits for.
    last: u64,
    /// Whether the next batch has a record that a client waits for, by `WriteBatch::is_urgent`.
    pub(crate) urgent: bool,
    /// Whether `await_returned` was called in this tick: the returned message is not in a batch
    /// yet.
    has_returned: bool,
    session_ends: UncommittedSessionEnds,
}

/// Clients, by hash of the client id, whose session has ended without a commit yet.
#[derive(Debug, Default)]
struct UncommittedSessionEnds {
    /// Hashes in order, with the number of the batch; `None` in the present tick.
    ends: VecDeque<(u64, Option<u64>)>,
    /// Number of occurrences of each hash in `ends`.
    times: HashMap<u64, u32, FixedState>,
}

impl UncommittedSessionEnds {
    fn push(&mut self, client: u64) {
        self.ends.push_back((client, None));
        *self.times.entry(client).or_default() += 1;
    }

    fn set_seq(&mut self, seq: u64) {
        for (_, end) in self.ends.iter_mut().rev().take_while(|(_, end)| end.is_none()) {
            *end = Some(seq);
        }
    }

    fn pop_upto(&mut self, durable: u64) {
        while let Some(&(client, Some(seq))) = self.ends.front()
            && seq <= durable
        {
            self.ends.pop_front();
            if let Entry::Occupied(mut times) = self.times.entry(client) {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                }
            }
        }
    }
}

/// Consecutive tokens of one shard, and the number of missing confirmations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenRange {
    shard: ShardId,
    first: u64,
    last: u64,
    missing: u64,
}

/// The answers to clients of one tick, sent once batch `seq` is durable and `awaits` is empty.
#[derive(Debug, Default)]
struct TickAcks {
    /// Number of the batch with the records written up to the end of the tick.
    seq: u64,
    awaits: Vec<TokenRange>,
    answers: Vec<PendingAck>,
}

/// A [`ShardMessage::TokensCommitted`] for the shard that made the requests `first` to `last`.
#[derive(Debug)]
struct ShardConfirmation {
    to: ShardId,
    first: u64,
    last: u64,
    /// Number of the batch as in [`TickAcks`]; `None` in the present tick.
    seq: Option<u64>,
    awaits: Vec<TokenRange>,
}

/// Adds a token to the awaited confirmations.
fn await_token(awaits: &mut Vec<TokenRange>, shard: ShardId, ticket: u64) {
    match awaits.iter_mut().find(|known| known.shard == shard && known.last + 1 == ticket) {
        Some(known) => (known.last, known.missing) = (ticket, known.missing + 1),
        None => awaits.push(TokenRange { shard, first: ticket, last: ticket, missing: 1 }),
    }
}

/// Removes the confirmed tokens `first` to `last`.
fn complete_tokens(awaits: &mut Vec<TokenRange>, by: ShardId, first: u64, last: u64) {
    for known in awaits.iter_mut().filter(|known| known.shard == by) {
        let from = known.first.max(first);
        let upto = known.last.min(last);
        known.missing -= (upto + 1).saturating_sub(from);
    }
    awaits.retain(|known| known.missing > 0);
}

#[derive(Debug)]
pub(crate) enum PendingAck {
    Ack {
        conn: ConnId,
        kind: PacketType,
        packet_id: PacketId,
        reason: ReasonCode,
    },
    /// An encoded packet.
    Bytes {
        conn: ConnId,
        bytes: Box<[u8]>,
    },
    /// CONNACK after the commit that erases the client's previous session; reading then resumes.
    ConnAck {
        conn: ConnId,
        bytes: Box<[u8]>,
    },
    /// The changes of the session's previous connection are committed: `resend` may begin.
    ResumeFlight {
        conn: ConnId,
    },
    /// QoS 2 messages below this position of a session's queue may be sent.
    PositionsCommitted {
        session: SessionId,
        generation: u32,
        position: u64,
    },
}

impl Shard {
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
        self.sessions.durability.pending_acks.last =
            self.sessions.durability.pending_acks.last.max(seq);
    }

    /// Handles [`ShardMessage::TokensCommitted`]: a shard has committed the requests of these
    /// tokens.
    pub(crate) fn on_tokens_committed(
        &mut self,
        by: ShardId,
        first: u64,
        last: u64,
        out: &mut Outbox,
    ) {
        for tick in &mut self.sessions.durability.pending_acks.ticks {
            complete_tokens(&mut tick.awaits, by, first, last);
        }
        for answer in &mut self.sessions.durability.pending_acks.confirmations {
            complete_tokens(&mut answer.awaits, by, first, last);
        }
        self.release_acks(out);
    }

    /// Whether the tick has records for the store, or answers that wait for a commit.
    pub fn has_records(&self) -> bool {
        self.sessions.durability.pending_acks.is_open
            || self
                .sessions
                .durability
                .pending_acks
                .confirmations
                .last()
                .is_some_and(|answer| answer.seq.is_none())
            || self.sessions.durability.pending_acks.has_returned
            || !self.sessions.write_batch.is_empty()
            || self.sessions.messages.has_dead_bodies()
            || !self.sessions.dirty.is_empty()
            || !self.sessions.unsettled.is_empty()
    }

    /// Whether any answer waits for a commit.
    pub fn waits_for_disk(&self) -> bool {
        !self.sessions.durability.pending_acks.ticks.is_empty()
            || !self.sessions.durability.pending_acks.confirmations.is_empty()
    }

    /// Returns the last batch that the shard knows as durable, from `on_committed` or `on_durable`.
    pub fn durable_seen(&self) -> u64 {
        self.sessions.durability.pending_acks.durable
    }

    /// Handles the end of a tick: the store has accepted the records as batch `seq`.
    pub(crate) fn on_committed(&mut self, seq: u64, durable: u64, out: &mut Outbox) {
        self.sessions.durability.pending_acks.durable =
            self.sessions.durability.pending_acks.durable.max(durable);
        self.sessions.messages.end_moves();
        // A batch without a waiting client is synced up to a second later, so later answers do not
        // wait for that batch.
        if std::mem::take(&mut self.sessions.durability.pending_acks.urgent) {
            self.sessions.durability.pending_acks.last =
                self.sessions.durability.pending_acks.last.max(seq);
        }
        let last = self.sessions.durability.pending_acks.last;
        self.sessions.durability.pending_acks.session_ends.set_seq(last);
        for answer in self
            .sessions
            .durability
            .pending_acks
            .confirmations
            .iter_mut()
            .rev()
            .take_while(|new| new.seq.is_none())
        {
            answer.seq = Some(last);
        }
        if std::mem::take(&mut self.sessions.durability.pending_acks.has_returned) {
            self.sessions.durability.pending_acks.ticks.iter_mut().for_each(|tick| tick.seq = last);
            self.sessions
                .durability
                .pending_acks
                .confirmations
                .iter_mut()
                .for_each(|answer| answer.seq = Some(last));
        }
        if self.sessions.durability.pending_acks.is_open {
            self.sessions.durability.current_tick_acks().seq = last;
            self.sessions.durability.pending_acks.is_open = false;
        }
        self.release_acks(out);
    }

    /// Handles the report that all batches up to this number are durable.
    pub(crate) fn on_durable(&mut self, seq: u64, out: &mut Outbox) {
        self.sessions.durability.pending_acks.durable =
            self.sessions.durability.pending_acks.durable.max(seq);
        self.release_acks(out);
    }

    fn release_acks(&mut self, out: &mut Outbox) {
        // A returned message that an answer waits for is not in a batch yet.
        if self.sessions.durability.pending_acks.has_returned {
            return;
        }
        let durable = self.sessions.durability.pending_acks.durable;
        self.sessions.durability.pending_acks.session_ends.pop_upto(durable);
        self.sessions.durability.pending_acks.confirmations.retain(|answer| {
            let ready = answer.seq.is_some_and(|seq| seq <= durable) && answer.awaits.is_empty();
            if ready {
                let &ShardConfirmation { to, first, last, .. } = answer;
                out.lanes[usize::from(to.0)]
                    .push_back(ShardMessage::TokensCommitted { first, last });
            }
            !ready
        });
        loop {
            let past = self.sessions.durability.pending_acks.ticks.len()
                - usize::from(self.sessions.durability.pending_acks.is_open);
            let first = self.sessions.durability.pending_acks.ticks.front().filter(|_| past > 0);
            let ready = first.is_some_and(|tick| tick.seq <= durable && tick.awaits.is_empty());
            if !ready {
                return;
            }
            let Some(tick) = self.sessions.durability.pending_acks.ticks.pop_front() else {
                return;
            };
            for answer in tick.answers {
                self.send_ack(answer, out);
            }
        }
    }

    fn send_ack(&mut self, answer: PendingAck, out: &mut Outbox) {
        match answer {
            PendingAck::Ack { conn, kind, packet_id, reason } => {
                if let Some(id) = self.connections.take_pending_ack(conn) {
                    self.sessions.acknowledge(id, kind, packet_id, reason, out);
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

impl ConnectionTable {
    /// Whether earlier answers to this connection still wait.
    #[inline]
    pub(crate) fn has_pending_acks(&self, conn: ConnId, sessions: &SessionTable) -> bool {
        !sessions.durability.pending_acks.ticks.is_empty()
            && self.conn(conn).is_some_and(|known| known.pending_acks > 0)
    }

    /// Defers an answer until the commit of all records of this tick, in [`TickAcks`].
    pub(crate) fn defer_ack(&mut self, answer: PendingAck, sessions: &mut SessionTable) {
        if let PendingAck::Ack { conn, .. }
        | PendingAck::Bytes { conn, .. }
        | PendingAck::ConnAck { conn, .. }
        | PendingAck::ResumeFlight { conn } = answer
            && let Some(known) = self.conn_mut(conn)
        {
            known.pending_acks += 1;
        }
        sessions.durability.current_tick_acks().answers.push(answer);
    }

    /// Removes one pending acknowledgement from a connection's count, and returns its session;
    /// `None` if the connection has ended.
    fn take_pending_ack(&mut self, conn: ConnId) -> Option<SessionId> {
        let known = self.conn_mut(conn)?;
        known.pending_acks -= 1;
        known.session()
    }

    /// Drops the pending answers of a connection that ends, but not `PositionsCommitted`. The
    /// records stay.
    pub(crate) fn drop_pending_acks(&mut self, conn: ConnId, sessions: &mut SessionTable) {
        if !self.has_pending_acks(conn, sessions) {
            return;
        }
        for tick in &mut sessions.durability.pending_acks.ticks {
            tick.answers.retain(|answer| match answer {
                PendingAck::Ack { conn: to, .. }
                | PendingAck::Bytes { conn: to, .. }
                | PendingAck::ConnAck { conn: to, .. }
                | PendingAck::ResumeFlight { conn: to } => *to != conn,
                PendingAck::PositionsCommitted { .. } => true,
            });
        }
    }

    /// Sends one of the four acknowledgements, at once or when the records of this tick are
    /// durable.
    pub(crate) fn acknowledge_when_durable(
        &mut self,
        conn: ConnId,
        kind: PacketType,
        packet_id: PacketId,
        reason: ReasonCode,
        waits: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if waits || self.has_pending_acks(conn, sessions) {
            return self.defer_ack(PendingAck::Ack { conn, kind, packet_id, reason }, sessions);
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            sessions.acknowledge(id, kind, packet_id, reason, out);
        }
    }

    /// Defers [`PendingAck::ResumeFlight`] on a new connection of a persistent session until the
    /// changes of the previous connection are committed: a repeated packet must get the same answer
    /// after a power cut.
    pub(crate) fn resume_when_durable(
        &mut self,
        conn: ConnId,
        id: SessionId,
        sessions: &mut SessionTable,
    ) {
        let lasts = sessions.get(id).persistent.is_some();
        let waits = lasts && !sessions.durability.pending_acks.ticks.is_empty();
        sessions.set_suspended(id, waits);
        if let Some(persistent) = &mut sessions.get_mut(id).persistent {
            persistent.is_unreadable = false;
        }
        if waits {
            self.defer_ack(PendingAck::ResumeFlight { conn }, sessions);
        }
    }

    /// Defers CONNACK in `ConnState::AwaitingCommit` until the end of the client's previous session
    /// is committed, since CONNACK reports that no session is present. Reading stops meanwhile.
    pub(crate) fn accept_when_durable(
        &mut self,
        conn: ConnId,
        session: SessionId,
        bytes: Vec<u8>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if let Some(known) = self.conn_mut(conn) {
            known.state = ConnState::AwaitingCommit { session };
        }
        out.effects.push(Effect::Hold { conn });
        self.defer_ack(PendingAck::ConnAck { conn, bytes: bytes.into() }, sessions);
    }

    /// Sends an encoded packet, at once or when the records of this tick are durable.
    pub(crate) fn send_when_durable(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        waits: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if waits || self.has_pending_acks(conn, sessions) {
            return self.defer_ack(PendingAck::Bytes { conn, bytes: bytes.into() }, sessions);
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            sessions.send_packet(id, bytes, out);
        }
    }
}

impl ShardDurability {
    fn current_tick_acks(&mut self) -> &mut TickAcks {
        let owed = &mut self.pending_acks;
        if !owed.is_open {
            owed.is_open = true;
            owed.ticks.push_back(TickAcks::default());
        }
        owed.ticks.back_mut().expect("it was just pushed")
    }

    /// Makes the present tick's answers wait for the tokens in `PendingAcks::requested`. Returns
    /// whether there are any.
    pub(crate) fn await_requested_commits(&mut self) -> bool {
        let asked = std::mem::take(&mut self.pending_acks.requested);
        let any = !asked.is_empty();
        if any {
            self.current_tick_acks().awaits.extend(asked);
        }
        any
    }

    /// Confirms a token to a shard after the request is handled: once the records of this tick are
    /// committed, and requests to further shards confirmed. Token 0 needs no confirmation.
    pub(crate) fn confirm_token(&mut self, to: ShardId, ticket: u64) {
        let awaits = std::mem::take(&mut self.pending_acks.requested);
        if ticket == 0 {
            return;
        }
        if awaits.is_empty()
            && let Some(last) = self.pending_acks.confirmations.last_mut()
            && last.seq.is_none()
            && last.awaits.is_empty()
            && last.to == to
            && last.last + 1 == ticket
        {
            last.last = ticket;
            return;
        }
        let answer = ShardConfirmation { to, first: ticket, last: ticket, seq: None, awaits };
        self.pending_acks.confirmations.push(answer);
    }

    /// Extends all pending answers to a message that a shard could not store: the message came back
    /// and is stored in this tick, or `PendingAcks::requested` has new tokens.
    pub(crate) fn await_returned(&mut self) {
        let asked = std::mem::take(&mut self.pending_acks.requested);
        for tick in &mut self.pending_acks.ticks {
            tick.awaits.extend(&asked);
        }
        for answer in &mut self.pending_acks.confirmations {
            answer.awaits.extend(&asked);
        }
        self.pending_acks.has_returned = true;
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BrokerOptions, Interest, MonotonicMs, ProcessMemory};
    use std::sync::Arc;

    #[test]
    fn what_a_start_wrote_is_waited_for_by_whoever_writes_nothing_more() {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        let mut out = Outbox::new(1);
        shard.set_initial_commit(5);
        shard.connections.defer_ack(
            PendingAck::PositionsCommitted { session: SessionId(0), generation: 0, position: 1 },
            &mut shard.sessions,
        );
        shard.on_committed(0, 4, &mut out);
        assert!(shard.waits_for_disk());
        shard.on_durable(5, &mut out);
        assert!(!shard.waits_for_disk());
    }

    #[test]
    fn what_came_back_is_in_a_batch_before_anybody_who_waits_for_it_is_answered() {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 2)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let mut shard = Shard::new(ShardId(0), 2, options, interest, memory, 1, 1, MonotonicMs(0));
        let mut out = Outbox::new(2);
        let other = ShardId(1);
        let ticket = shard.sessions.next_commit_token(other);
        shard.connections.defer_ack(
            PendingAck::PositionsCommitted { session: SessionId(0), generation: 0, position: 1 },
            &mut shard.sessions,
        );
        shard.sessions.durability.await_requested_commits();
        shard.on_committed(0, 0, &mut out);
        // A message of a group returns, and the confirmation of the token follows directly.
        shard.sessions.durability.await_returned();
        shard.on_tokens_committed(other, ticket, ticket, &mut out);
        assert!(shard.waits_for_disk() && shard.has_records());
        shard.sessions.durability.pending_acks.urgent = true;
        shard.on_committed(1, 0, &mut out);
        assert!(shard.waits_for_disk(), "it is in a batch that the disk does not have");
        shard.on_durable(1, &mut out);
        assert!(!shard.waits_for_disk() && !shard.has_records());
    }
}
