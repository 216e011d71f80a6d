//! Pending acknowledgements: answers that wait for a commit of this shard, and of shards that were
//! requested to store a message.
//!
//! Answers to clients wait per tick, and ticks are released in order, so a connection receives
//! answers in the order of the requests [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4]. Confirmations
//! to shards wait for the records of their request only: if they waited for each other or for
//! answers to clients, two shards could wait for each other forever.

use crate::ids::{ConnId, SessionId, ShardId};
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use mqtt::{PacketId, PacketType, ReasonCode};
use std::collections::VecDeque;

/// The answers of a shard that wait for commits.
#[derive(Debug, Default)]
pub(crate) struct PendingAcks {
    ticks: VecDeque<TickAcks>,
    /// Whether the last of `ticks` is the present tick.
    is_open: bool,
    confirmations: Vec<ShardConfirmation>,
    /// The last token returned by `next_commit_token`, for each shard.
    last_tokens: Vec<u64>,
    /// Tokens of requests to other shards, until [`ShardConfirmation`] or [`TickAcks`] awaits them.
    requested: Vec<TokenRange>,
    /// The last batch that is known to be durable.
    durable: u64,
    /// Number of the last batch that an answer waits for.
    last: u64,
    /// Whether the next batch has a record that a client waits for, by `WriteBatch::is_urgent`.
    urgent: bool,
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
struct TokenRange {
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
        ack: AckPacket,
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

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPacket {
    pub(crate) kind: PacketType,
    pub(crate) packet_id: PacketId,
    pub(crate) reason: ReasonCode,
}

impl AckPacket {
    pub(crate) fn new(kind: PacketType, packet_id: PacketId, reason: ReasonCode) -> AckPacket {
        AckPacket { kind, packet_id, reason }
    }
}

impl PendingAcks {
    /// Adds an answer that is sent when all records of this tick are committed.
    pub(crate) fn defer(&mut self, answer: PendingAck) {
        self.current_tick().answers.push(answer);
    }

    fn current_tick(&mut self) -> &mut TickAcks {
        if !self.is_open {
            self.is_open = true;
            self.ticks.push_back(TickAcks::default());
        }
        self.ticks.back_mut().expect("it was just pushed")
    }

    /// Whether answers to clients wait.
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.ticks.is_empty()
    }

    /// Whether any answer waits for a commit, of a client or of a shard.
    pub(crate) fn is_waiting(&self) -> bool {
        self.has_answers() || !self.confirmations.is_empty()
    }

    /// Whether answers wait for the batch of this tick.
    pub(crate) fn waits_for_this_tick(&self) -> bool {
        self.is_open
            || self.confirmations.last().is_some_and(|answer| answer.seq.is_none())
            || self.has_returned
    }

    /// Removes the answers to a connection that ends, but not `PositionsCommitted`.
    pub(crate) fn drop_answers_to(&mut self, conn: ConnId) {
        for tick in &mut self.ticks {
            tick.answers.retain(|answer| answer.conn() != Some(conn));
        }
    }

    /// Returns the last batch that is known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Sets the number of the first batch of the process. Every later answer waits for it too.
    pub(crate) fn set_initial_commit(&mut self, seq: u64) {
        self.last = self.last.max(seq);
    }

    /// Notes whether the next batch has a record that a client waits for.
    pub(crate) fn set_urgency(&mut self, is_urgent: bool) {
        self.urgent |= is_urgent;
    }

    /// Forgets the tokens of requests that no answer awaits.
    #[inline]
    pub(crate) fn clear_requests(&mut self) {
        self.requested.clear();
    }

    /// Returns a new token for a request to one of `shards` shards, under which that shard confirms
    /// a commit by `ShardMessage::TokensCommitted`.
    pub(crate) fn next_token(&mut self, shard: ShardId, shards: usize) -> u64 {
        if self.last_tokens.is_empty() {
            self.last_tokens = vec![0; shards];
        }
        let ticket = &mut self.last_tokens[usize::from(shard.0)];
        *ticket += 1;
        await_token(&mut self.requested, shard, *ticket);
        *ticket
    }

    /// Notes that a session has ended, by the hash of its client id.
    pub(crate) fn note_session_end(&mut self, client: u64) {
        self.session_ends.push(client);
    }

    /// Whether a session of the client has ended without a commit, so that a power cut would
    /// restore the session.
    pub(crate) fn has_uncommitted_end(&self, client: u64) -> bool {
        self.session_ends.times.contains_key(&client)
    }

    /// Makes the present tick's answers wait for the tokens in `PendingAcks::requested`. Returns
    /// whether there are any.
    pub(crate) fn await_requested_commits(&mut self) -> bool {
        let asked = std::mem::take(&mut self.requested);
        let any = !asked.is_empty();
        if any {
            self.current_tick().awaits.extend(asked);
        }
        any
    }

    /// Confirms a token to a shard after the request is handled: once the records of this tick are
    /// committed, and requests to further shards confirmed. Token 0 needs no confirmation.
    pub(crate) fn confirm_token(&mut self, to: ShardId, ticket: u64) {
        let awaits = std::mem::take(&mut self.requested);
        if ticket == 0 {
            return;
        }
        if awaits.is_empty()
            && let Some(last) = self.confirmations.last_mut()
            && last.seq.is_none()
            && last.awaits.is_empty()
            && last.to == to
            && last.last + 1 == ticket
        {
            last.last = ticket;
            return;
        }
        let answer = ShardConfirmation { to, first: ticket, last: ticket, seq: None, awaits };
        self.confirmations.push(answer);
    }

    /// Extends all pending answers to a message that a shard could not store: the message came back
    /// and is stored in this tick, or `PendingAcks::requested` has new tokens.
    pub(crate) fn await_returned(&mut self) {
        let asked = std::mem::take(&mut self.requested);
        for tick in &mut self.ticks {
            tick.awaits.extend(&asked);
        }
        for answer in &mut self.confirmations {
            answer.awaits.extend(&asked);
        }
        self.has_returned = true;
    }

    /// Removes the tokens `first` to `last` of a shard that has committed their requests.
    pub(crate) fn complete(&mut self, by: ShardId, first: u64, last: u64) {
        for tick in &mut self.ticks {
            complete_tokens(&mut tick.awaits, by, first, last);
        }
        for answer in &mut self.confirmations {
            complete_tokens(&mut answer.awaits, by, first, last);
        }
    }

    /// Notes the end of a tick: the store has accepted its records as batch `seq`, and all batches
    /// up to `durable` are on the disk.
    pub(crate) fn note_committed(&mut self, seq: u64, durable: u64) {
        self.note_durable(durable);
        // A batch without a waiting client is synced up to a second later, so later answers do not
        // wait for that batch.
        if std::mem::take(&mut self.urgent) {
            self.last = self.last.max(seq);
        }
        let last = self.last;
        self.session_ends.set_seq(last);
        for answer in self.confirmations.iter_mut().rev().take_while(|new| new.seq.is_none()) {
            answer.seq = Some(last);
        }
        if std::mem::take(&mut self.has_returned) {
            self.ticks.iter_mut().for_each(|tick| tick.seq = last);
            self.confirmations.iter_mut().for_each(|answer| answer.seq = Some(last));
        }
        if self.is_open {
            self.current_tick().seq = last;
            self.is_open = false;
        }
    }

    /// Notes that all batches up to this number are on the disk.
    pub(crate) fn note_durable(&mut self, seq: u64) {
        self.durable = self.durable.max(seq);
    }

    /// Sends the confirmations to shards whose records are durable.
    pub(crate) fn send_confirmations(&mut self, out: &mut Outbox) {
        // A returned message that an answer waits for is not in a batch yet.
        if self.has_returned {
            return;
        }
        let durable = self.durable;
        self.session_ends.pop_upto(durable);
        self.confirmations.retain(|answer| {
            let ready = answer.seq.is_some_and(|seq| seq <= durable) && answer.awaits.is_empty();
            if ready {
                let &ShardConfirmation { to, first, last, .. } = answer;
                out.lanes[usize::from(to.0)]
                    .push_back(ShardMessage::TokensCommitted { first, last });
            }
            !ready
        });
    }

    /// Takes the answers of the first tick whose records are durable. Ticks are released in order.
    pub(crate) fn take_released(&mut self) -> Option<Vec<PendingAck>> {
        let past = self.ticks.len() - usize::from(self.is_open);
        let first = self.ticks.front().filter(|_| past > 0 && !self.has_returned)?;
        let is_ready = first.seq <= self.durable && first.awaits.is_empty();
        is_ready.then(|| self.ticks.pop_front())?.map(|tick| tick.answers)
    }
}

impl PendingAck {
    /// Returns the connection that waits for the answer; `None` for `PositionsCommitted`, which
    /// belongs to the session.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match *self {
            PendingAck::Ack { conn, .. }
            | PendingAck::Bytes { conn, .. }
            | PendingAck::ConnAck { conn, .. }
            | PendingAck::ResumeFlight { conn } => Some(conn),
            PendingAck::PositionsCommitted { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MonotonicMs;
    use crate::shard::Shard;
    use crate::{BrokerOptions, Interest, ProcessMemory};
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
        shard.sessions.durability.pending_acks.await_requested_commits();
        shard.on_committed(0, 0, &mut out);
        // A message of a group returns, and the confirmation of the token follows directly.
        shard.sessions.durability.pending_acks.await_returned();
        shard.on_tokens_committed(other, ticket, ticket, &mut out);
        assert!(shard.waits_for_disk() && shard.has_records());
        shard.sessions.durability.pending_acks.urgent = true;
        shard.on_committed(1, 0, &mut out);
        assert!(shard.waits_for_disk(), "it is in a batch that the disk does not have");
        shard.on_durable(1, &mut out);
        assert!(!shard.waits_for_disk() && !shard.has_records());
    }
}
