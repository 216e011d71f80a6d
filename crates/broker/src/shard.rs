//! One core's whole world. Whatever happens to it enters by `handle`.

use crate::bans::Watch;
use crate::caches::Caches;
use crate::conn::{Conn, End, State};
use crate::delayed::Delayed;
use crate::doubts::Doubts;
use crate::exclusive::Exclusives;
use crate::flapping::Flapping;
use crate::gate::Gate;
use crate::home::Homes;
use crate::input::{Command, ConnId, Cross, Input, Member, Now, SessionId, ShardId, Stamp};
use crate::interest::{Interest, Wants};
use crate::journal::Number;
use crate::leftovers::Search;
use crate::limits::CONNECT_BYTES_MAX;
use crate::memory::{Ledger, Memory};
use crate::note::{Few, PeerLog};
use crate::options::Options;
use crate::outbox::Outbox;
use crate::owed::Owed;
use crate::pause::ProcessPause;
use crate::peer::Peer;
use crate::refusal::Refusal;
use crate::retained::Retained;
use crate::rules::windows::Windows;
use crate::rules::{Ear, Ruling};
use crate::session::Sessions;
use crate::shared::{Given, Groups};
use crate::stalls::StallSearch;
use crate::sys::Tree;
use crate::timer::{Timer, Wheel};
use crate::topics::{FilterId, Topics};
use crate::trace::Tracer;
use crate::unread::Reading;
use crate::{Effect, deliver::Hit};
use foldhash::fast::FixedState;
use mqtt::{Reason, Version};
use std::hash::BuildHasher;
use std::sync::Arc;

#[derive(Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) shards: usize,
    pub(crate) now: Now,
    pub(crate) options: Arc<Options>,
    pub(crate) conns: Vec<Option<Conn>>,
    conn_generation: u32,
    pub(crate) sessions: Sessions,
    pub(crate) topics: Topics,
    pub(crate) ruling: Ruling,
    pub(crate) ear: Ear,
    pub(crate) windows: Windows,
    pub(crate) caches: Caches,
    pub(crate) groups: Groups,
    pub(crate) retained: Retained,
    pub(crate) interest: Arc<Interest>,
    pub(crate) wants: Wants,
    pub(crate) ledger: Ledger,
    pub(crate) timers: Wheel,
    pub(crate) tree: Tree,
    pub(crate) homes: Homes,
    pub(crate) doubts: Doubts,
    pub(crate) delayed: Delayed,
    pub(crate) exclusives: Exclusives,
    pub(crate) rights_generation: u32,
    pub(crate) watch: Watch,
    /// Notes of connections that we ended.
    pub(crate) ended_noted: Few,
    /// Notes of rules.
    pub(crate) rules_noted: Few,
    pub(crate) flapping: Flapping,
    /// What clients are told apart by where a mistake does no harm.
    clients: FixedState,
    pub(crate) random: u64,
    /// The highest stamp given or seen: what is published here later gets a higher one.
    pub(crate) stamp: Stamp,
    pub(crate) draining: bool,
    pub(crate) owed: Owed,
    pub(crate) lasting_sessions: i64,
    /// What sessions that ended left in the store, still to be removed.
    pub(crate) graves: Vec<Number>,
    pub(crate) search: Option<Box<Search>>,
    /// The store refuses to take more.
    pub(crate) store_is_full: bool,
    /// More waits for its disk than it likes, ...
    pub(crate) store_is_crowded: bool,
    /// Whether somebody is asked about what no rule says anything of, ...
    pub(crate) asks: bool,
    /// ... and how often somebody was.
    pub(crate) slips: u32,
    /// Who waits for a store that is crowded.
    pub(crate) crowd: Vec<ConnId>,
    /// What `Now` was at the start.
    pub(crate) started: Now,
    sweep_at: Option<Now>,
    /// The last pause of the process.
    pub(crate) pause: ProcessPause,
    /// What the time of day is beside `now`.
    pub(crate) time_of_day_offset_ms: i64,
    /// When the next `$SYS` round is due.
    pub(crate) sys_at: Now,
    pub(crate) not_opened: PeerLog,
    pub(crate) stalls: StallSearch,
    /// Clients whose windows do not move.
    pub(crate) stalls_noted: Few,
    /// When what was withheld is told of.
    pub(crate) notes_at: Option<Now>,
    /// How the violation was seen that ends a connection next.
    pub(crate) violation_detail: Box<str>,
    pub(crate) scratch: Scratch,
    pub(crate) tracer: Tracer,
}

/// The first `$SYS` round after a start or a change of options.
const SYS_FIRST_MS: u64 = 1000;

/// A crowd that comes together is looked at together; the list of it need not stay.
pub(crate) const TIMERS_KEPT: usize = 1024;

/// Buffers that live from publish to publish only to keep their allocation.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) filters: Vec<FilterId>,
    pub(crate) hits: Vec<(Hit, u32)>,
    pub(crate) levels: Vec<u64>,
    pub(crate) properties: Vec<u8>,
    /// The whole name of what a client in a namespace publishes.
    pub(crate) name: String,
    timers: Vec<Timer>,
}

impl Shard {
    /// `seed` is the same for all shards of a process; `chance` is not.
    #[expect(clippy::too_many_arguments, reason = "what a shard is told once, at its birth")]
    pub fn new(
        id: ShardId,
        shards: usize,
        options: Arc<Options>,
        interest: Arc<Interest>,
        memory: Arc<Memory>,
        seed: u64,
        chance: u64,
        now: Now,
    ) -> Shard {
        let mut shard = Shard {
            id,
            shards,
            now,
            conns: Vec::new(),
            conn_generation: 0,
            sessions: Sessions::new(seed, options.clone(), now),
            topics: Topics::new(seed),
            ruling: Ruling::new(seed, options.rules.clone()),
            ear: Ear::default(),
            windows: Windows::new(seed),
            caches: Caches::default(),
            groups: Groups::new(seed),
            retained: Retained::new(),
            interest,
            wants: Wants::default(),
            ledger: Ledger::new(memory),
            timers: Wheel::new(now),
            tree: Tree::default(),
            homes: Homes { key: seed.rotate_left(17), shards: shards as u8 },
            doubts: Doubts::default(),
            delayed: Delayed::default(),
            exclusives: Exclusives::default(),
            rights_generation: 0,
            watch: Watch::starting(now),
            ended_noted: Few::default(),
            rules_noted: Few::default(),
            flapping: Flapping::default(),
            clients: FixedState::with_seed(seed.rotate_left(17)),
            random: chance | 1,
            stamp: Stamp::default(),
            draining: false,
            owed: Owed::default(),
            lasting_sessions: 0,
            graves: Vec::new(),
            search: None,
            store_is_full: false,
            store_is_crowded: false,
            asks: options.asks_anywhere(),
            slips: 0,
            crowd: Vec::new(),
            started: now,
            sweep_at: None,
            pause: ProcessPause::default(),
            time_of_day_offset_ms: 0,
            sys_at: now,
            not_opened: PeerLog::default(),
            stalls: StallSearch::default(),
            stalls_noted: Few::default(),
            notes_at: None,
            violation_detail: Box::default(),
            scratch: Scratch::default(),
            tracer: Tracer::default(),
            options,
        };
        shard.heed_anew();
        shard.cache_anew();
        shard.plan_sys(SYS_FIRST_MS);
        shard
    }

    pub(crate) fn plan_sys(&mut self, after_ms: u64) {
        if self.options.sys_interval_s > 0 {
            self.sys_at = Now(self.now.0 + after_ms);
            self.timers.set(self.sys_at, Timer::Sys);
        }
    }

    pub fn handle(&mut self, now: Now, input: Input<'_>, out: &mut Outbox) {
        self.now = now;
        self.sessions.now = now;
        self.ear.noted = out.notes.len();
        self.weigh();
        match input {
            Input::Bytes { conn, bytes } => self.bytes(conn, bytes, out),
            Input::Opened { conn, peer, since, moved } => self.opened(conn, peer, since, moved),
            Input::Branched { conn, of } => self.branched(conn, of),
            Input::NotOpened { peer, why } => self.not_opened(peer, why, out),
            Input::Closed { conn } => self.closed(conn, out),
            Input::Congested { conn } => self.set_congested(conn, true, out),
            Input::Writable { conn } => self.set_congested(conn, false, out),
            Input::Starved { conn } => self.end(conn, End::Refusal(Refusal::QuotaExceeded), out),
            Input::Cross { from, cross } => self.cross(from, cross, out),
            Input::Committed { seq, durable } => self.committed(seq, durable, out),
            Input::Durable { seq } => self.durable(seq, out),
            Input::Stored { reading, stored } => self.read(reading, stored, out),
            Input::Answered { slip, answer } => self.answered(slip, answer, out),
            Input::Verdict { conn, case, verdict } => self.judged(conn, case, verdict, out),
            Input::Tick => self.tick(out),
            Input::Command(command) => self.command(command, out),
        }
        self.settle(out);
        if self.sessions.heard.heeds.any {
            self.hear(out);
        }
    }

    /// What a tick left over: overflowing queues under the policy `Disconnect`, messages that go
    /// back to their shared groups, members whose room changed.
    pub(crate) fn settle(&mut self, out: &mut Outbox) {
        for Number(number) in self.graves.drain(..) {
            out.effects.push(Effect::Read { reading: Reading::Grave { number } });
        }
        while !self.sessions.hungry.is_empty() {
            for id in std::mem::take(&mut self.sessions.hungry) {
                if self.sessions.contains(id) {
                    self.feed_cursors(id, out);
                }
            }
        }
        self.time_ahead();
        self.time_ages();
        while let Some(id) = self.sessions.overruns.pop() {
            // It may have left meanwhile, session and all.
            let conn = if self.sessions.contains(id) { self.sessions.get(id).conn() } else { None };
            if let Some(conn) = conn {
                self.end(conn, End::Refusal(Refusal::QueueFull), out);
            }
        }
        out.notes.append(&mut self.sessions.late_notes);
        if !self.sessions.withholding.is_empty() {
            self.plan_notes();
        }
        self.report_released(out);
        while !self.sessions.orphans.is_empty() || !self.sessions.rooms.is_empty() {
            self.return_orphans(out);
            self.report_rooms(out);
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// While the store has no room, what it would have to keep is refused with 0x97.
    pub fn set_store_full(&mut self, is_full: bool) {
        self.store_is_full = is_full;
    }

    /// Nodes that matching has looked at so far: what a publish costs, whatever the host.
    pub fn nodes_visited(&self) -> u64 {
        self.topics.visited()
    }

    /// When `Input::Tick` is next needed; at once where something is unfinished.
    pub fn next_tick(&self) -> Option<Now> {
        let looks = self.doubts.is_due(self.now) || self.is_watching();
        let looks = looks || self.delayed.is_due(self.now) || self.caches.is_reading();
        let looks = looks || self.windows.is_behind() || self.stalls.is_running();
        if !self.sessions.unfinished.is_empty() || looks {
            return Some(self.now);
        }
        self.timers.next()
    }

    fn opened(&mut self, conn: ConnId, peer: Peer, since: Now, moved: bool) {
        let options = self.options.of(peer.listener);
        let packet_bytes_max = options.packet_bytes_max.min(CONNECT_BYTES_MAX);
        let timer_at = Now(since.0 + u64::from(self.options.connect_timeout_ms));
        let heard = self.now;
        let generation = self.add_conn(conn, |generation| Conn {
            state: State::Greeting,
            peer,
            version: Version::V311,
            is_bridge: false,
            moved,
            generation,
            silence_ms_max: 0,
            heard,
            timer_at,
            topic_alias_max: 0,
            receive_maximum: u16::MAX,
            packet_bytes_max,
            aliases: Vec::new(),
            alias_bytes: 0,
            meter: None,
            exchange: None,
            owed: 0,
        });
        self.timers.set(timer_at, Timer::Conn { index: conn.0, generation });
    }

    /// Puts a connection into its place, and says of which generation it is.
    pub(crate) fn add_conn(&mut self, conn: ConnId, make: impl FnOnce(u32) -> Conn) -> u32 {
        self.conn_generation = self.conn_generation.wrapping_add(1);
        let made = make(self.conn_generation);
        self.ledger.conns += 1;
        self.ledger.transports += u64::from(made.peer.transport_bytes);
        let index = conn.0 as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        self.conns[index] = Some(made);
        self.conn_generation
    }

    #[inline]
    pub(crate) fn conn(&self, conn: ConnId) -> Option<&Conn> {
        self.conns.get(conn.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn conn_mut(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(conn.0 as usize)?.as_mut()
    }

    pub(crate) fn take_conn(&mut self, conn: ConnId) -> Option<Conn> {
        self.owe_no_more(conn);
        self.release_conn(conn);
        let known = self.conns.get_mut(conn.0 as usize)?.take();
        if self.ledger.conns == 0 {
            self.conns = Vec::new();
        }
        known
    }

    fn set_congested(&mut self, conn: ConnId, congested: bool, out: &mut Outbox) {
        let Some(id) = self.conn(conn).and_then(Conn::session) else { return };
        let session = self.sessions.get_mut(id);
        session.gate.set(Gate::CONGESTED, congested);
        if session.is_member {
            self.sessions.rooms.push(id);
        }
        if !congested {
            self.sessions.flow(id, out);
        }
    }

    fn tick(&mut self, out: &mut Outbox) {
        self.interest.keep_up(self.id.0, &mut self.wants, self.topics.texts());
        let mut timers = std::mem::take(&mut self.scratch.timers);
        self.timers.fire(self.now, &mut timers);
        for timer in timers.drain(..) {
            match timer {
                Timer::Conn { index, generation } => self.check_conn(index, generation, out),
                Timer::Session { index, generation } => {
                    let id = SessionId(index);
                    if self.sessions.current(id, generation) {
                        self.check_away(id, out);
                    }
                }
                Timer::Age { index, generation } => {
                    self.sessions.drop_aged(SessionId(index), generation, out);
                }
                Timer::Asked { index, generation } => self.check_inquiry(index, generation, out),
                Timer::Caches => self.age_caches(),
                // Whatever is due is published below.
                Timer::Delayed => {}
                Timer::Doubts => self.check_doubts(out),
                Timer::Leftovers => self.search(out),
                Timer::Flow { index, generation } => {
                    self.sessions.flow_again(SessionId(index), generation, out);
                }
                Timer::Pace { index, generation } => self.read_paced(index, generation, out),
                Timer::Notes => self.flush_notes(out),
                Timer::Sys => self.sys_round(out),
                Timer::Windows => self.windows_are_due(),
                Timer::Sweep => {
                    self.sweep_at = None;
                    for topic in self.retained.sweep(self.now) {
                        self.erase_retained(&topic);
                    }
                }
            }
        }
        if timers.capacity() <= TIMERS_KEPT {
            self.scratch.timers = timers;
        }
        if self.windows.is_behind() {
            self.check_windows(out);
        }
        self.plan_sweep();
        self.prune_timers();
        self.publish_due(out);
        self.read_on(out);
        self.doubt_on(out);
        self.watch_on(out);
        self.look_for_stalls(out);
        let mut unfinished = std::mem::take(&mut self.sessions.unfinished);
        // Another one is first each time: what one may do in a tick is bounded for all together.
        if !unfinished.is_empty() {
            unfinished.rotate_left(1);
        }
        for id in unfinished {
            if out.is_full() {
                self.sessions.unfinished.push(id);
                continue;
            }
            if self.sessions.contains(id) {
                self.sessions.get_mut(id).unfinished = false;
                self.sessions.flow(id, out);
            }
        }
    }

    fn plan_sweep(&mut self) {
        if self.sweep_at.is_none()
            && let Some(at) = self.retained.next_sweep()
        {
            self.sweep_at = Some(at);
            self.timers.set(at, Timer::Sweep);
        }
    }

    fn command(&mut self, command: Command, out: &mut Outbox) {
        match command {
            Command::Reload(options) => {
                let changes = self.options.permissions != options.permissions
                    || self.options.access != options.access
                    || self.options.asks_anywhere()
                    || options.asks_anywhere();
                self.asks = options.asks_anywhere();
                self.sessions.options = options.clone();
                self.options = options;
                self.choose_strategies();
                self.rule_anew();
                self.cache_anew();
                self.make_presets();
                self.classify();
                self.trace_anew();
                self.plan_sys(SYS_FIRST_MS);
                self.watch_anew();
                self.forgive();
                if changes {
                    self.look_at_rights_again();
                }
            }
            Command::Say { topic, value } => self.say(&topic, &value, out),
            Command::Told(told) => self.told(told),
            Command::Drain => {
                self.draining = true;
                let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
                for id in ids {
                    if !self.waits_with_will(id) {
                        self.publish_will(id, out);
                    }
                }
            }
            Command::CloseAll => {
                self.write_windows();
                for index in 0..self.conns.len() {
                    let conn = ConnId(index as u32);
                    let Some(known) = self.take_conn(conn) else { continue };
                    if let Some(id) = known.welcomed() {
                        self.sessions.say_disconnect(id, Reason::ServerShuttingDown, None, out);
                    }
                    if let Some(id) = known.session() {
                        match self.sessions.get(id).lasting.is_some() {
                            true => self.go_away(id, out),
                            false => self.sessions.get_mut(id).conn = crate::limits::NONE,
                        }
                    }
                    out.effects.push(Effect::Close { conn });
                }
                self.flush_notes(out);
            }
        }
    }

    fn cross(&mut self, from: ShardId, cross: Cross, out: &mut Outbox) {
        self.owed.asked.clear();
        match cross {
            Cross::Publish { message, ticket, origin } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.route_from_elsewhere(&message, origin, out);
                self.answer_ticket(from, ticket);
            }
            Cross::Kept { first, last } => self.kept(from, (first, last), out),
            Cross::Retain { message, stamp, ticket, origin } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.set_retained(&message, stamp, true);
                self.route_from_elsewhere(&message, origin, out);
                self.plan_sweep();
                self.answer_ticket(from, ticket);
            }
            Cross::Join { group, member, client_id, options, subscription_id, lasts } => {
                self.join(&group, member, &client_id, options, subscription_id, lasts);
                out.lanes[from.0 as usize].push_back(Cross::Joined { group, member });
            }
            Cross::Joined { group, member } => self.joined(&group, member, out),
            Cross::Leave { group, member } => self.leave(&group, member),
            Cross::Claim { filter, member } => self.claimed_by(filter, member, out),
            Cross::Claimed { filter, member, is_granted } => {
                self.claim_answered(&filter, member, is_granted, out);
            }
            Cross::Unclaim { filter, member } => self.unclaimed_by(&filter, member),
            Cross::Room { group, member, online, more } => {
                self.set_room(&group, member, online, more, out);
            }
            Cross::Dispatch {
                group,
                member,
                message,
                options,
                subscription_id,
                origin,
                ticket,
            } => {
                self.ledger.crossing -= message.bytes() as i64;
                let given = Given { member, options, id: subscription_id };
                self.dispatched(from, &group, given, &message, origin, out);
                self.answer_ticket(from, ticket);
            }
            Cross::Return { group, message, origin } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.dispatch(&group, &message, origin, out);
                self.await_again();
            }
            Cross::Flapped { client, until } => self.keep_out(client, until),
            Cross::Row(row) => self.row_from_elsewhere(*row, out),
            Cross::Cache(word) => self.hear_of_cache(*word, out),
            Cross::Counters(counters) => {
                let at = from.0 as usize;
                if let Some(place) = self.tree.shards.get_mut(at) {
                    *place = *counters;
                }
            }
        }
    }

    pub(crate) fn home_of(&self, name: &str) -> ShardId {
        self.homes.of(name)
    }

    pub(crate) fn member(&self, id: SessionId) -> Member {
        let generation = self.sessions.get(id).generation;
        Member { shard: self.id, session: id, generation }
    }

    pub(crate) fn publisher_hash(&self, id: SessionId) -> u32 {
        self.client_hash(&self.sessions.get(id).client_id) as u32
    }

    pub(crate) fn client_hash(&self, client_id: &str) -> u64 {
        self.clients.hash_one(client_id)
    }

    /// xorshift64*: good enough to choose among equals, and repeatable from a seed.
    pub(crate) fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Draft;

    fn say(shard: &mut Shard, now: u64, packet: &[u8]) {
        let (conn, mut out) = (ConnId(0), Outbox::new(1));
        let peer = Peer::at(([127, 0, 0, 1], 1).into());
        let opened = Input::Opened { conn, peer, since: Now(now), moved: false };
        shard.handle(Now(now), opened, &mut out);
        shard.handle(Now(now), Input::Bytes { conn, bytes: packet }, &mut out);
        shard.handle(Now(now), Input::Closed { conn }, &mut out);
        shard.handle(Now(now), Input::Tick, &mut out);
    }

    #[test]
    fn what_is_retained_is_counted_for_as_long_as_it_is_on_its_way() {
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let (interest, memory) = (Arc::new(Interest::new(1, 2)), Arc::new(Memory::default()));
        let mut shards = [0, 1].map(|at| {
            let (options, interest) = (options.clone(), interest.clone());
            Shard::new(ShardId(at), 2, options, interest, memory.clone(), 1, 1, Now(0))
        });
        let mut out = Outbox::new(2);
        shards[0].retain(&mut Draft::new("t", b"x", Now(0)), &mut out);
        assert!(shards[0].ledger.crossing > 0);
        let cross = out.lanes[1].pop_front().expect("it goes to every shard");
        shards[1].handle(Now(0), Input::Cross { from: ShardId(0), cross }, &mut out);
        assert_eq!(shards[0].ledger.crossing + shards[1].ledger.crossing, 0);
    }

    #[test]
    fn a_session_that_comes_and_goes_leaves_no_timers_behind() {
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        // Session Expiry Interval: a year.
        let connect = b"\x10\x13\0\x04MQTT\x05\0\0\0\x05\x11\x01\xe1\x33\x80\0\x01a";
        for at in 0..10_000 {
            say(&mut shard, at, connect);
        }
        assert_eq!(shard.sessions.len(), 1);
        assert!(shard.timers.len() < 2 * TIMERS_KEPT, "{}", shard.timers.len());
        let year = 31_536_000_000;
        let mut out = Outbox::new(1);
        shard.handle(Now(year - 1), Input::Tick, &mut out);
        assert_eq!(shard.sessions.len(), 1);
        shard.handle(Now(year + 20_000), Input::Tick, &mut out);
        assert_eq!(shard.sessions.len(), 0, "the last timer is still there");
    }
}
