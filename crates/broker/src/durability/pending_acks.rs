//! Answers that wait until what they promise is on the disk: here, and on the shards that were
//! asked to keep something.
//!
//! Those to clients wait by tick, and ticks are released in their order: so a connection hears its
//! answers in the order in which it asked [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4]. Those to
//! shards wait for nothing but what was done for their question: if they waited for each other, or
//! for clients' answers, two shards could wait for each other for ever.

use crate::connection::conn::ConnState;
use crate::input::{ConnId, MonotonicMs, SessionId, ShardId, ShardMessage};
use crate::outbox::{Effect, Outbox};
use crate::shard::Shard;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use mqtt::{PacketId, PacketType, ReasonCode};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct PendingAcks {
    ticks: VecDeque<TickAcks>,
    /// Whether the last of them is the present one.
    is_open: bool,
    confirmations: Vec<ShardConfirmation>,
    /// The last ticket for each shard.
    last_tokens: Vec<u64>,
    /// Tokens of requests to other shards since the last call that took them.
    pub(crate) requested: Vec<TokenRange>,
    durable: u64,
    /// The last number that the store gave for something that an answer waits for.
    last: u64,
    /// Whether the next batch for the store contains an acknowledgement that a client waits for.
    pub(crate) urgent: bool,
    /// Whether a commit that was waited for continues in this tick.
    has_returned: bool,
    session_ends: UncommittedSessionEnds,
}

/// Clients, hashed, whose sessions ended, while the disk does not know.
#[derive(Debug, Default)]
struct UncommittedSessionEnds {
    /// In order, with the store's number; none in the present tick.
    ends: VecDeque<(u64, Option<u64>)>,
    /// Number of occurrences of each entry.
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

/// Tickets of one shard in a row, and how many of them are not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenRange {
    shard: ShardId,
    first: u64,
    last: u64,
    missing: u64,
}

/// The acknowledgements that one tick promised to clients.
#[derive(Debug, Default)]
struct TickAcks {
    /// The store's number for what had been written when the tick ended.
    seq: u64,
    awaits: Vec<TokenRange>,
    answers: Vec<PendingAck>,
}

/// A confirmation for the shard that made a request.
#[derive(Debug)]
struct ShardConfirmation {
    to: ShardId,
    first: u64,
    last: u64,
    /// As for a tick; none in the present one.
    seq: Option<u64>,
    awaits: Vec<TokenRange>,
}

/// Notes one more answer that is awaited.
fn await_token(awaits: &mut Vec<TokenRange>, shard: ShardId, ticket: u64) {
    match awaits.iter_mut().find(|known| known.shard == shard && known.last + 1 == ticket) {
        Some(known) => (known.last, known.missing) = (ticket, known.missing + 1),
        None => awaits.push(TokenRange { shard, first: ticket, last: ticket, missing: 1 }),
    }
}

/// Notes the answers that came.
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
    /// Already encoded.
    Bytes {
        conn: ConnId,
        bytes: Box<[u8]>,
    },
    /// The disk has forgotten the client's last session: CONNACK, and what the client says next.
    ConnAck {
        conn: ConnId,
        bytes: Box<[u8]>,
    },
    /// The changes of an earlier connection of the session are on the disk: the flight continues.
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
    /// While more waits for the disk than the store likes, whoever would add to it is not read.
    pub fn set_store_backlogged(&mut self, now: MonotonicMs, is_crowded: bool, out: &mut Outbox) {
        self.store_is_backlogged = is_crowded;
        if is_crowded || self.store_waiters.is_empty() {
            return;
        }
        for conn in std::mem::take(&mut self.store_waiters) {
            // Another connection may be there by now.
            if let Some(known) = self.conn_mut(conn)
                && let ConnState::StoreBacklogged { session } = known.state
            {
                known.state = ConnState::Live { session };
                // Until now it was we who did not listen.
                known.last_activity = now;
                out.effects.push(Effect::Resume { conn });
            }
        }
    }

    /// Whether earlier answers to this connection still wait.
    #[inline]
    pub(crate) fn has_pending_acks(&self, conn: ConnId) -> bool {
        !self.pending_acks.ticks.is_empty()
            && self.conn(conn).is_some_and(|known| known.pending_acks > 0)
    }

    /// Holds an answer back until everything of this tick is kept.
    pub(crate) fn defer_ack(&mut self, answer: PendingAck) {
        if let PendingAck::Ack { conn, .. }
        | PendingAck::Bytes { conn, .. }
        | PendingAck::ConnAck { conn, .. }
        | PendingAck::ResumeFlight { conn } = answer
            && let Some(known) = self.conn_mut(conn)
        {
            known.pending_acks += 1;
        }
        self.current_tick_acks().answers.push(answer);
    }

    fn current_tick_acks(&mut self) -> &mut TickAcks {
        let owed = &mut self.pending_acks;
        if !owed.is_open {
            owed.is_open = true;
            owed.ticks.push_back(TickAcks::default());
        }
        owed.ticks.back_mut().expect("it was just pushed")
    }

    /// The number under which a shard is asked to say when it has kept what it is sent.
    pub(crate) fn next_commit_token(&mut self, shard: ShardId) -> u64 {
        let place = usize::from(shard.0);
        if self.pending_acks.last_tokens.is_empty() {
            self.pending_acks.last_tokens = vec![0; self.shards];
        }
        self.pending_acks.last_tokens[place] += 1;
        let ticket = self.pending_acks.last_tokens[place];
        await_token(&mut self.pending_acks.requested, shard, ticket);
        ticket
    }

    /// The present tick's answers to clients wait for whatever was asked meanwhile.
    pub(crate) fn await_requested_commits(&mut self) -> bool {
        let asked = std::mem::take(&mut self.pending_acks.requested);
        let any = !asked.is_empty();
        if any {
            self.current_tick_acks().awaits.extend(asked);
        }
        any
    }

    /// Sets the batch number of the start's changes. Everything that the shards promise from now on
    /// waits for that batch too.
    pub fn set_initial_commit(&mut self, seq: u64) {
        self.pending_acks.last = self.pending_acks.last.max(seq);
    }

    /// Something that another shard sent has been handled: it hears when that is kept, and what
    /// was asked for it.
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

    /// A message that a shard could not keep came back and is kept in this tick, or asked for
    /// again: whoever waits for that shard's answer waits for this too.
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

    /// A shard has kept what it was asked for under these tickets.
    pub(crate) fn on_tokens_committed(
        &mut self,
        by: ShardId,
        first: u64,
        last: u64,
        out: &mut Outbox,
    ) {
        for tick in &mut self.pending_acks.ticks {
            complete_tokens(&mut tick.awaits, by, first, last);
        }
        for answer in &mut self.pending_acks.confirmations {
            complete_tokens(&mut answer.awaits, by, first, last);
        }
        self.release_acks(out);
    }

    /// Whether the tick has something for the store, or answers that wait for it.
    pub fn has_records(&self) -> bool {
        self.pending_acks.is_open
            || self.pending_acks.confirmations.last().is_some_and(|answer| answer.seq.is_none())
            || self.pending_acks.has_returned
            || !self.sessions.write_batch.is_empty()
            || self.sessions.messages.has_dead_bodies()
            || !self.sessions.dirty.is_empty()
            || !self.sessions.unsettled.is_empty()
    }

    /// Whether anybody waits for the disk.
    pub fn waits_for_disk(&self) -> bool {
        !self.pending_acks.ticks.is_empty() || !self.pending_acks.confirmations.is_empty()
    }

    /// Returns the last durable batch that the shard has learned of.
    pub fn durable_seen(&self) -> u64 {
        self.pending_acks.durable
    }

    /// The tick is over and the store has taken what it wrote.
    pub(crate) fn on_committed(&mut self, seq: u64, durable: u64, out: &mut Outbox) {
        self.pending_acks.durable = self.pending_acks.durable.max(durable);
        self.sessions.messages.end_moves();
        // What nobody waits for would hold up by a second what needs none of it.
        if std::mem::take(&mut self.pending_acks.urgent) {
            self.pending_acks.last = self.pending_acks.last.max(seq);
        }
        let last = self.pending_acks.last;
        self.pending_acks.session_ends.set_seq(last);
        for answer in
            self.pending_acks.confirmations.iter_mut().rev().take_while(|new| new.seq.is_none())
        {
            answer.seq = Some(last);
        }
        if std::mem::take(&mut self.pending_acks.has_returned) {
            self.pending_acks.ticks.iter_mut().for_each(|tick| tick.seq = last);
            self.pending_acks.confirmations.iter_mut().for_each(|answer| answer.seq = Some(last));
        }
        if self.pending_acks.is_open {
            self.current_tick_acks().seq = last;
            self.pending_acks.is_open = false;
        }
        self.release_acks(out);
    }

    /// Handles the report that all batches up to this number are on the disk.
    pub(crate) fn on_durable(&mut self, seq: u64, out: &mut Outbox) {
        self.pending_acks.durable = self.pending_acks.durable.max(seq);
        self.release_acks(out);
    }

    fn release_acks(&mut self, out: &mut Outbox) {
        // What came back for somebody who waits stands in no batch yet.
        if self.pending_acks.has_returned {
            return;
        }
        let durable = self.pending_acks.durable;
        self.pending_acks.session_ends.pop_upto(durable);
        self.pending_acks.confirmations.retain(|answer| {
            let ready = answer.seq.is_some_and(|seq| seq <= durable) && answer.awaits.is_empty();
            if ready {
                let &ShardConfirmation { to, first, last, .. } = answer;
                out.lanes[usize::from(to.0)]
                    .push_back(ShardMessage::TokensCommitted { first, last });
            }
            !ready
        });
        loop {
            let past = self.pending_acks.ticks.len() - usize::from(self.pending_acks.is_open);
            let first = self.pending_acks.ticks.front().filter(|_| past > 0);
            let ready = first.is_some_and(|tick| tick.seq <= durable && tick.awaits.is_empty());
            if !ready {
                return;
            }
            let Some(tick) = self.pending_acks.ticks.pop_front() else { return };
            for answer in tick.answers {
                self.send_ack(answer, out);
            }
        }
    }

    fn send_ack(&mut self, answer: PendingAck, out: &mut Outbox) {
        match answer {
            PendingAck::Ack { conn, kind, packet_id, reason } => {
                if let Some(id) = self.take_pending_ack(conn) {
                    self.sessions.acknowledge(id, kind, packet_id, reason, out);
                }
            }
            PendingAck::Bytes { conn, bytes } => {
                if let Some(id) = self.take_pending_ack(conn) {
                    self.sessions.send_packet(id, &bytes, out);
                }
            }
            PendingAck::ConnAck { conn, bytes } => {
                if let Some(id) = self.take_pending_ack(conn) {
                    self.sessions.send_packet(id, &bytes, out);
                    if let Some(known) = self.conn_mut(conn) {
                        known.state = ConnState::Live { session: id };
                    }
                    self.auto_subscribe(id, out);
                    out.effects.push(Effect::Resume { conn });
                }
            }
            PendingAck::ResumeFlight { conn } => {
                if let Some(id) = self.take_pending_ack(conn) {
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

    /// Takes away one pending acknowledgement of a connection, and returns its session.
    fn take_pending_ack(&mut self, conn: ConnId) -> Option<SessionId> {
        let known = self.conn_mut(conn)?;
        known.pending_acks -= 1;
        known.session()
    }

    /// A connection that goes hears nothing of what it is owed; what was kept stays kept.
    pub(crate) fn drop_pending_acks(&mut self, conn: ConnId) {
        if !self.has_pending_acks(conn) {
            return;
        }
        for tick in &mut self.pending_acks.ticks {
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
        out: &mut Outbox,
    ) {
        if waits || self.has_pending_acks(conn) {
            return self.defer_ack(PendingAck::Ack { conn, kind, packet_id, reason });
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            self.sessions.acknowledge(id, kind, packet_id, reason, out);
        }
    }

    /// The client of a session is back. What it repeats is not answered, and PUBREL not sent again,
    /// before the disk has what its last connection did: an answer promises the same each time.
    pub(crate) fn resume_when_durable(&mut self, conn: ConnId, id: SessionId) {
        let lasts = self.sessions.get(id).persistent.is_some();
        let waits = lasts && !self.pending_acks.ticks.is_empty();
        self.sessions.set_suspended(id, waits);
        if let Some(persistent) = &mut self.sessions.get_mut(id).persistent {
            persistent.is_unreadable = false;
        }
        if waits {
            self.defer_ack(PendingAck::ResumeFlight { conn });
        }
    }

    pub(crate) fn note_session_end(&mut self, id: SessionId) {
        let client = self.client_hash(&self.sessions.get(id).client_id);
        self.pending_acks.session_ends.push(client);
    }

    /// Whether a session of the client ended, and may be there again after a power cut.
    pub(crate) fn has_uncommitted_end(&self, client_id: &str) -> bool {
        let client = self.client_hash(client_id);
        self.pending_acks.session_ends.times.contains_key(&client)
    }

    /// The client is not told that it has no session before that is so for good. Nor is it read,
    /// so that nothing comes before its CONNACK.
    pub(crate) fn accept_when_durable(
        &mut self,
        conn: ConnId,
        session: SessionId,
        bytes: Vec<u8>,
        out: &mut Outbox,
    ) {
        if let Some(known) = self.conn_mut(conn) {
            known.state = ConnState::AwaitingCommit { session };
        }
        out.effects.push(Effect::Hold { conn });
        self.defer_ack(PendingAck::ConnAck { conn, bytes: bytes.into() });
    }

    /// Sends another packet, already encoded, when the records of this tick are durable.
    pub(crate) fn send_when_durable(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        waits: bool,
        out: &mut Outbox,
    ) {
        if waits || self.has_pending_acks(conn) {
            return self.defer_ack(PendingAck::Bytes { conn, bytes: bytes.into() });
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            self.sessions.send_packet(id, bytes, out);
        }
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
        shard.defer_ack(PendingAck::PositionsCommitted {
            session: SessionId(0),
            generation: 0,
            position: 1,
        });
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
        let ticket = shard.next_commit_token(other);
        shard.defer_ack(PendingAck::PositionsCommitted {
            session: SessionId(0),
            generation: 0,
            position: 1,
        });
        shard.await_requested_commits();
        shard.on_committed(0, 0, &mut out);
        // A message of a group returns, and the answer to the ticket comes right behind it.
        shard.await_returned();
        shard.on_tokens_committed(other, ticket, ticket, &mut out);
        assert!(shard.waits_for_disk() && shard.has_records());
        shard.pending_acks.urgent = true;
        shard.on_committed(1, 0, &mut out);
        assert!(shard.waits_for_disk(), "it is in a batch that the disk does not have");
        shard.on_durable(1, &mut out);
        assert!(!shard.waits_for_disk() && !shard.has_records());
    }
}
