//! Pending acknowledgements: answers that wait for a commit of this shard, and of shards that were
//! requested to store a message.
//!
//! Answers to clients wait per tick, and ticks are released in order, so a connection receives
//! answers in the order of the requests [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4]. Confirmations
//! to shards wait for the records of their request only: if they waited for each other or for
//! answers to clients, two shards could wait for each other forever.

use crate::durability::ShardDurability;
use crate::ids::{ConnId, SessionId, ShardId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use mqtt::{PacketId, PacketType, ReasonCode};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct PendingAcks {
    pub(crate) ticks: VecDeque<TickAcks>,
    /// Whether the last of `ticks` is the present tick.
    pub(crate) is_open: bool,
    pub(crate) confirmations: Vec<ShardConfirmation>,
    /// The last token returned by `next_commit_token`, for each shard.
    pub(crate) last_tokens: Vec<u64>,
    /// Tokens of requests to other shards, until [`ShardConfirmation`] or [`TickAcks`] awaits them.
    pub(crate) requested: Vec<TokenRange>,
    pub(crate) durable: u64,
    /// Number of the last batch that an answer waits for.
    pub(crate) last: u64,
    /// Whether the next batch has a record that a client waits for, by `WriteBatch::is_urgent`.
    pub(crate) urgent: bool,
    /// Whether `await_returned` was called in this tick: the returned message is not in a batch
    /// yet.
    pub(crate) has_returned: bool,
    pub(crate) session_ends: UncommittedSessionEnds,
}

/// Clients, by hash of the client id, whose session has ended without a commit yet.
#[derive(Debug, Default)]
pub(crate) struct UncommittedSessionEnds {
    /// Hashes in order, with the number of the batch; `None` in the present tick.
    ends: VecDeque<(u64, Option<u64>)>,
    /// Number of occurrences of each hash in `ends`.
    pub(crate) times: HashMap<u64, u32, FixedState>,
}

impl UncommittedSessionEnds {
    pub(crate) fn push(&mut self, client: u64) {
        self.ends.push_back((client, None));
        *self.times.entry(client).or_default() += 1;
    }

    pub(crate) fn set_seq(&mut self, seq: u64) {
        for (_, end) in self.ends.iter_mut().rev().take_while(|(_, end)| end.is_none()) {
            *end = Some(seq);
        }
    }

    pub(crate) fn pop_upto(&mut self, durable: u64) {
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
pub(crate) struct TickAcks {
    /// Number of the batch with the records written up to the end of the tick.
    pub(crate) seq: u64,
    pub(crate) awaits: Vec<TokenRange>,
    pub(crate) answers: Vec<PendingAck>,
}

/// A [`ShardMessage::TokensCommitted`] for the shard that made the requests `first` to `last`.
#[derive(Debug)]
pub(crate) struct ShardConfirmation {
    pub(crate) to: ShardId,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Number of the batch as in [`TickAcks`]; `None` in the present tick.
    pub(crate) seq: Option<u64>,
    pub(crate) awaits: Vec<TokenRange>,
}

/// Adds a token to the awaited confirmations.
pub(crate) fn await_token(awaits: &mut Vec<TokenRange>, shard: ShardId, ticket: u64) {
    match awaits.iter_mut().find(|known| known.shard == shard && known.last + 1 == ticket) {
        Some(known) => (known.last, known.missing) = (ticket, known.missing + 1),
        None => awaits.push(TokenRange { shard, first: ticket, last: ticket, missing: 1 }),
    }
}

/// Removes the confirmed tokens `first` to `last`.
pub(crate) fn complete_tokens(awaits: &mut Vec<TokenRange>, by: ShardId, first: u64, last: u64) {
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

impl ShardDurability {
    pub(crate) fn current_tick_acks(&mut self) -> &mut TickAcks {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MonotonicMs;
    use crate::interface::outbox::Outbox;
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
