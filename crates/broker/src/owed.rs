//! Answers that wait until what they promise is on the disk: here, and on the shards that were
//! asked to keep something.
//!
//! Those to clients wait by tick, and ticks are released in their order: so a connection hears its
//! answers in the order in which it asked [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4]. Those to
//! shards wait for nothing but what was done for their question: if they waited for each other, or
//! for clients' answers, two shards could wait for each other for ever.

use crate::conn::State;
use crate::input::{ConnId, Cross, Now, SessionId, ShardId};
use crate::outbox::{Effect, Outbox};
use crate::shard::Shard;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use mqtt::{PacketId, PacketType, Reason};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Owed {
    ticks: VecDeque<Tick>,
    /// Whether the last of them is the present one.
    is_open: bool,
    to_shards: Vec<ToShard>,
    /// The last ticket for each shard.
    tickets: Vec<u64>,
    /// What other shards were asked since somebody last looked.
    pub(crate) asked: Vec<Await>,
    durable: u64,
    /// The last number that the store gave for something that an answer waits for.
    last: u64,
    /// What goes to the store next has such a thing.
    pub(crate) urgent: bool,
    /// What is awaited goes on in this tick.
    goes_on: bool,
    forgotten: Forgotten,
}

/// Clients, hashed, whose sessions ended, while the disk does not know.
#[derive(Debug, Default)]
struct Forgotten {
    /// In order, with the store's number; none in the present tick.
    ends: VecDeque<(u64, Option<u64>)>,
    /// How often each stands there.
    times: HashMap<u64, u32, FixedState>,
}

impl Forgotten {
    fn push(&mut self, client: u64) {
        self.ends.push_back((client, None));
        *self.times.entry(client).or_default() += 1;
    }

    fn number(&mut self, seq: u64) {
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
pub(crate) struct Await {
    shard: ShardId,
    first: u64,
    last: u64,
    missing: u64,
}

/// What one tick promised to clients.
#[derive(Debug, Default)]
struct Tick {
    /// The store's number for what had been written when the tick ended.
    seq: u64,
    awaits: Vec<Await>,
    answers: Vec<Answer>,
}

/// What a shard that asked is to hear.
#[derive(Debug)]
struct ToShard {
    to: ShardId,
    first: u64,
    last: u64,
    /// As for a tick; none in the present one.
    seq: Option<u64>,
    awaits: Vec<Await>,
}

/// Notes one more answer that is awaited.
fn expect(awaits: &mut Vec<Await>, shard: ShardId, ticket: u64) {
    match awaits.iter_mut().find(|known| known.shard == shard && known.last + 1 == ticket) {
        Some(known) => (known.last, known.missing) = (ticket, known.missing + 1),
        None => awaits.push(Await { shard, first: ticket, last: ticket, missing: 1 }),
    }
}

/// Notes the answers that came.
fn hear(awaits: &mut Vec<Await>, by: ShardId, first: u64, last: u64) {
    for known in awaits.iter_mut().filter(|known| known.shard == by) {
        let from = known.first.max(first);
        let upto = known.last.min(last);
        known.missing -= (upto + 1).saturating_sub(from);
    }
    awaits.retain(|known| known.missing > 0);
}

#[derive(Debug)]
pub(crate) enum Answer {
    Ack {
        conn: ConnId,
        kind: PacketType,
        packet_id: PacketId,
        reason: Reason,
    },
    /// Already encoded.
    Bytes {
        conn: ConnId,
        bytes: Box<[u8]>,
    },
    /// The disk has forgotten the client's last session: CONNACK, and what the client says next.
    Welcome {
        conn: ConnId,
        bytes: Box<[u8]>,
    },
    /// What an earlier connection of the session did is kept: the flight goes on.
    Resumed {
        conn: ConnId,
    },
    /// QoS 2 messages below this position of a session's queue may be sent.
    Settled {
        session: SessionId,
        generation: u32,
        position: u64,
    },
}

impl Shard {
    /// While more waits for the disk than the store likes, whoever would add to it is not read.
    pub fn set_store_crowded(&mut self, now: Now, is_crowded: bool, out: &mut Outbox) {
        self.store_is_crowded = is_crowded;
        if is_crowded || self.crowd.is_empty() {
            return;
        }
        for conn in std::mem::take(&mut self.crowd) {
            // Another connection may be there by now.
            if let Some(known) = self.conn_mut(conn)
                && let State::Crowded { session } = known.state
            {
                known.state = State::Live { session };
                // Until now it was we who did not listen.
                known.heard = now;
                out.effects.push(Effect::Resume { conn });
            }
        }
    }

    /// Whether earlier answers to this connection still wait.
    #[inline]
    pub(crate) fn owes(&self, conn: ConnId) -> bool {
        !self.owed.ticks.is_empty() && self.conn(conn).is_some_and(|known| known.owed > 0)
    }

    /// Holds an answer back until everything of this tick is kept.
    pub(crate) fn owe(&mut self, answer: Answer) {
        if let Answer::Ack { conn, .. }
        | Answer::Bytes { conn, .. }
        | Answer::Welcome { conn, .. }
        | Answer::Resumed { conn } = answer
            && let Some(known) = self.conn_mut(conn)
        {
            known.owed += 1;
        }
        self.tick_of_now().answers.push(answer);
    }

    fn tick_of_now(&mut self) -> &mut Tick {
        let owed = &mut self.owed;
        if !owed.is_open {
            owed.is_open = true;
            owed.ticks.push_back(Tick::default());
        }
        owed.ticks.back_mut().expect("it was just pushed")
    }

    /// The number under which a shard is asked to say when it has kept what it is sent.
    pub(crate) fn ask(&mut self, shard: ShardId) -> u64 {
        let place = usize::from(shard.0);
        if self.owed.tickets.is_empty() {
            self.owed.tickets = vec![0; self.shards];
        }
        self.owed.tickets[place] += 1;
        let ticket = self.owed.tickets[place];
        expect(&mut self.owed.asked, shard, ticket);
        ticket
    }

    /// The present tick's answers to clients wait for whatever was asked meanwhile.
    pub(crate) fn await_asked(&mut self) -> bool {
        let asked = std::mem::take(&mut self.owed.asked);
        let any = !asked.is_empty();
        if any {
            self.tick_of_now().awaits.extend(asked);
        }
        any
    }

    /// What the shards began with is in the store under this number: what they promise from here
    /// on waits for it too.
    pub fn began_with(&mut self, seq: u64) {
        self.owed.last = self.owed.last.max(seq);
    }

    /// Something that another shard sent has been handled: it hears when that is kept, and what
    /// was asked for it.
    pub(crate) fn answer_ticket(&mut self, to: ShardId, ticket: u64) {
        let awaits = std::mem::take(&mut self.owed.asked);
        if ticket == 0 {
            return;
        }
        if awaits.is_empty()
            && let Some(last) = self.owed.to_shards.last_mut()
            && last.seq.is_none()
            && last.awaits.is_empty()
            && last.to == to
            && last.last + 1 == ticket
        {
            last.last = ticket;
            return;
        }
        let answer = ToShard { to, first: ticket, last: ticket, seq: None, awaits };
        self.owed.to_shards.push(answer);
    }

    /// A message that a shard could not keep came back and is kept in this tick, or asked for
    /// again: whoever waits for that shard's answer waits for this too.
    pub(crate) fn await_again(&mut self) {
        let asked = std::mem::take(&mut self.owed.asked);
        for tick in &mut self.owed.ticks {
            tick.awaits.extend(&asked);
        }
        for answer in &mut self.owed.to_shards {
            answer.awaits.extend(&asked);
        }
        self.owed.goes_on = true;
    }

    /// A shard has kept what it was asked for under these tickets.
    pub(crate) fn kept(&mut self, by: ShardId, (first, last): (u64, u64), out: &mut Outbox) {
        for tick in &mut self.owed.ticks {
            hear(&mut tick.awaits, by, first, last);
        }
        for answer in &mut self.owed.to_shards {
            hear(&mut answer.awaits, by, first, last);
        }
        self.pay(out);
    }

    /// Whether the tick has something for the store, or answers that wait for it.
    pub fn has_records(&self) -> bool {
        self.owed.is_open
            || self.owed.to_shards.last().is_some_and(|answer| answer.seq.is_none())
            || self.owed.goes_on
            || !self.sessions.journal.is_empty()
            || self.sessions.messages.has_dead_bodies()
            || !self.sessions.dirty.is_empty()
            || !self.sessions.unsettled.is_empty()
    }

    /// Whether anybody waits for the disk.
    pub fn waits_for_disk(&self) -> bool {
        !self.owed.ticks.is_empty() || !self.owed.to_shards.is_empty()
    }

    /// How far the disk was when the shard last heard of it.
    pub fn durable_seen(&self) -> u64 {
        self.owed.durable
    }

    /// The tick is over and the store has taken what it wrote.
    pub(crate) fn committed(&mut self, seq: u64, durable: u64, out: &mut Outbox) {
        self.owed.durable = self.owed.durable.max(durable);
        self.sessions.messages.end_moves();
        // What nobody waits for would hold up by a second what needs none of it.
        if std::mem::take(&mut self.owed.urgent) {
            self.owed.last = self.owed.last.max(seq);
        }
        let last = self.owed.last;
        self.owed.forgotten.number(last);
        for answer in self.owed.to_shards.iter_mut().rev().take_while(|new| new.seq.is_none()) {
            answer.seq = Some(last);
        }
        if std::mem::take(&mut self.owed.goes_on) {
            self.owed.ticks.iter_mut().for_each(|tick| tick.seq = last);
            self.owed.to_shards.iter_mut().for_each(|answer| answer.seq = Some(last));
        }
        if self.owed.is_open {
            self.tick_of_now().seq = last;
            self.owed.is_open = false;
        }
        self.pay(out);
    }

    /// Everything up to this number is on the disk.
    pub(crate) fn durable(&mut self, seq: u64, out: &mut Outbox) {
        self.owed.durable = self.owed.durable.max(seq);
        self.pay(out);
    }

    fn pay(&mut self, out: &mut Outbox) {
        // What came back for somebody who waits stands in no batch yet.
        if self.owed.goes_on {
            return;
        }
        let durable = self.owed.durable;
        self.owed.forgotten.pop_upto(durable);
        self.owed.to_shards.retain(|answer| {
            let ready = answer.seq.is_some_and(|seq| seq <= durable) && answer.awaits.is_empty();
            if ready {
                let &ToShard { to, first, last, .. } = answer;
                out.lanes[usize::from(to.0)].push_back(Cross::Kept { first, last });
            }
            !ready
        });
        loop {
            let past = self.owed.ticks.len() - usize::from(self.owed.is_open);
            let first = self.owed.ticks.front().filter(|_| past > 0);
            let ready = first.is_some_and(|tick| tick.seq <= durable && tick.awaits.is_empty());
            if !ready {
                return;
            }
            let Some(tick) = self.owed.ticks.pop_front() else { return };
            for answer in tick.answers {
                self.answer_now(answer, out);
            }
        }
    }

    fn answer_now(&mut self, answer: Answer, out: &mut Outbox) {
        match answer {
            Answer::Ack { conn, kind, packet_id, reason } => {
                if let Some(id) = self.paid(conn) {
                    self.sessions.acknowledge(id, kind, packet_id, reason, out);
                }
            }
            Answer::Bytes { conn, bytes } => {
                if let Some(id) = self.paid(conn) {
                    self.sessions.reply(id, &bytes, out);
                }
            }
            Answer::Welcome { conn, bytes } => {
                if let Some(id) = self.paid(conn) {
                    self.sessions.reply(id, &bytes, out);
                    if let Some(known) = self.conn_mut(conn) {
                        known.state = State::Live { session: id };
                    }
                    self.subscribe_for(id, out);
                    out.effects.push(Effect::Resume { conn });
                }
            }
            Answer::Resumed { conn } => {
                if let Some(id) = self.paid(conn) {
                    self.sessions.set_suspended(id, false);
                    self.sessions.flow(id, out);
                }
            }
            Answer::Settled { session, generation, position } => {
                if self.sessions.current(session, generation) {
                    self.sessions.settle_position(session, position);
                    self.sessions.flow(session, out);
                }
            }
        }
    }

    /// One answer less for a connection; its session.
    fn paid(&mut self, conn: ConnId) -> Option<SessionId> {
        let known = self.conn_mut(conn)?;
        known.owed -= 1;
        known.session()
    }

    /// A connection that goes hears nothing of what it is owed; what was kept stays kept.
    pub(crate) fn owe_no_more(&mut self, conn: ConnId) {
        if !self.owes(conn) {
            return;
        }
        for tick in &mut self.owed.ticks {
            tick.answers.retain(|answer| match answer {
                Answer::Ack { conn: to, .. }
                | Answer::Bytes { conn: to, .. }
                | Answer::Welcome { conn: to, .. }
                | Answer::Resumed { conn: to } => *to != conn,
                Answer::Settled { .. } => true,
            });
        }
    }

    /// One of the four acknowledgements, now or when this tick is kept.
    pub(crate) fn acknowledge_when_kept(
        &mut self,
        conn: ConnId,
        (kind, packet_id, reason): (PacketType, PacketId, Reason),
        waits: bool,
        out: &mut Outbox,
    ) {
        if waits || self.owes(conn) {
            return self.owe(Answer::Ack { conn, kind, packet_id, reason });
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            self.sessions.acknowledge(id, kind, packet_id, reason, out);
        }
    }

    /// The client of a session is back. What it repeats is not answered, and PUBREL not sent again,
    /// before the disk has what its last connection did: an answer promises the same each time.
    pub(crate) fn resume_when_kept(&mut self, conn: ConnId, id: SessionId) {
        let lasts = self.sessions.get(id).lasting.is_some();
        let waits = lasts && !self.owed.ticks.is_empty();
        self.sessions.set_suspended(id, waits);
        if let Some(lasting) = &mut self.sessions.get_mut(id).lasting {
            lasting.is_unreadable = false;
        }
        if waits {
            self.owe(Answer::Resumed { conn });
        }
    }

    pub(crate) fn note_forgotten(&mut self, id: SessionId) {
        let client = self.client_hash(&self.sessions.get(id).client_id);
        self.owed.forgotten.push(client);
    }

    /// Whether a session of the client ended, and may be there again after a power cut.
    pub(crate) fn has_forgotten(&self, client_id: &str) -> bool {
        let client = self.client_hash(client_id);
        self.owed.forgotten.times.contains_key(&client)
    }

    /// The client is not told that it has no session before that is so for good. Nor is it read,
    /// so that nothing comes before its CONNACK.
    pub(crate) fn welcome_when_kept(
        &mut self,
        conn: ConnId,
        session: SessionId,
        bytes: Vec<u8>,
        out: &mut Outbox,
    ) {
        if let Some(known) = self.conn_mut(conn) {
            known.state = State::Unwelcomed { session };
        }
        out.effects.push(Effect::Hold { conn });
        self.owe(Answer::Welcome { conn, bytes: bytes.into() });
    }

    /// One of the others, encoded already.
    pub(crate) fn answer(&mut self, conn: ConnId, bytes: &[u8], waits: bool, out: &mut Outbox) {
        if waits || self.owes(conn) {
            return self.owe(Answer::Bytes { conn, bytes: bytes.into() });
        }
        if let Some(id) = self.conn(conn).and_then(|known| known.session()) {
            self.sessions.reply(id, bytes, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interest, Memory, Now, Options};
    use std::sync::Arc;

    #[test]
    fn what_a_start_wrote_is_waited_for_by_whoever_writes_nothing_more() {
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        let mut out = Outbox::new(1);
        shard.began_with(5);
        shard.owe(Answer::Settled { session: SessionId(0), generation: 0, position: 1 });
        shard.committed(0, 4, &mut out);
        assert!(shard.waits_for_disk());
        shard.durable(5, &mut out);
        assert!(!shard.waits_for_disk());
    }

    #[test]
    fn what_came_back_is_in_a_batch_before_anybody_who_waits_for_it_is_answered() {
        let (interest, memory) = (Arc::new(Interest::new(1, 2)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 2, options, interest, memory, 1, 1, Now(0));
        let mut out = Outbox::new(2);
        let other = ShardId(1);
        let ticket = shard.ask(other);
        shard.owe(Answer::Settled { session: SessionId(0), generation: 0, position: 1 });
        shard.await_asked();
        shard.committed(0, 0, &mut out);
        // A message of a group returns, and the answer to the ticket comes right behind it.
        shard.await_again();
        shard.kept(other, (ticket, ticket), &mut out);
        assert!(shard.waits_for_disk() && shard.has_records());
        shard.owed.urgent = true;
        shard.committed(1, 0, &mut out);
        assert!(shard.waits_for_disk(), "it is in a batch that the disk does not have");
        shard.durable(1, &mut out);
        assert!(!shard.waits_for_disk() && !shard.has_records());
    }
}
