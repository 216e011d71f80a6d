//! The state of one CPU core's share of the broker. All inputs enter by [`Shard::handle`].

mod tick;

mod messages;

use crate::authorization::bans::BanWatch;
use crate::authorization::reauthorization::ReauthorizationQueue;
use crate::caches::ShardCaches;
use crate::connection::conn::{CloseReason, Conn, ConnState};
use crate::connection::flapping::FlappingDetector;
use crate::connection::peer::PeerInfo;
use crate::connection::process_pause::ProcessPause;
use crate::connection::refusal::Refusal;
use crate::connection::send_gate::SendGate;
use crate::connection::stalls::StallSearch;
use crate::durability::garbage_collector::GarbageCollector;
use crate::durability::pending_acks::PendingAcks;
use crate::durability::stored_queue::StoreReadRequest;
use crate::durability::write_batch::RecordNumber;
use crate::input::{
    ConnId, MonotonicMs, RetainStamp, SessionId, SessionRef, ShardCommand, ShardId, ShardInput,
};
use crate::limits::CONNECT_BYTES_MAX;
use crate::memory::{MemoryLedger, ProcessMemory};
use crate::options::BrokerOptions;
use crate::outbox::Effect;
use crate::outbox::Outbox;
use crate::routing::delayed::DelayedMessages;
use crate::routing::exclusive::ExclusiveFilters;
use crate::routing::interest::{Interest, ShardInterest};
use crate::routing::owner_shard::ShardHasher;
use crate::routing::retained::Retained;
use crate::routing::shared::SharedGroups;
use crate::routing::topics::{FilterId, FilterIndex};
use crate::rules::windows::RuleWindows;
use crate::rules::{EventCollector, RuleIndex};
use crate::session::delivery::Delivery;
use crate::session::session_table::SessionTable;
use crate::statistics::broker_event::{BURST_LINES_PER_S, PeerLog};
use crate::statistics::log_rate_limiter::LogRateLimiter;
use crate::statistics::sys::SysTree;
use crate::statistics::trace::PacketTracer;
use crate::timer::{ShardTimer, TimerWheel};
use foldhash::fast::FixedState;
use mqtt::{ProtocolVersion, ReasonCode};
use std::hash::BuildHasher;
use std::sync::Arc;

/// A CPU core's share of the broker. Sessions are assigned to shards by `owner_of` their client id.
#[derive(Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) shards: usize,
    pub(crate) now: MonotonicMs,
    pub(crate) options: Arc<BrokerOptions>,
    pub(crate) conns: Vec<Option<Conn>>,
    conn_generation: u32,
    pub(crate) sessions: SessionTable,
    pub(crate) topics: FilterIndex,
    pub(crate) rule_index: RuleIndex,
    pub(crate) event_collector: EventCollector,
    pub(crate) windows: RuleWindows,
    pub(crate) caches: ShardCaches,
    pub(crate) groups: SharedGroups,
    pub(crate) retained: Retained,
    pub(crate) interest: Arc<Interest>,
    pub(crate) shard_interest: ShardInterest,
    pub(crate) ledger: MemoryLedger,
    pub(crate) timers: TimerWheel,
    pub(crate) sys_tree: SysTree,
    pub(crate) shard_hasher: ShardHasher,
    pub(crate) reauthorization: ReauthorizationQueue,
    pub(crate) delayed: DelayedMessages,
    pub(crate) exclusives: ExclusiveFilters,
    pub(crate) rights_generation: u32,
    pub(crate) ban_watch: BanWatch,
    /// Limits log events of connections which the broker closed.
    pub(crate) end_log_limiter: LogRateLimiter,
    /// Limits log events of rules.
    pub(crate) rule_log_limiter: LogRateLimiter,
    pub(crate) flapping: FlappingDetector,
    /// Hasher of client ids, for uses where a collision is harmless.
    clients: FixedState,
    pub(crate) random: u64,
    /// The highest stamp given or received. Later retained messages of this shard get a higher one.
    pub(crate) retain_stamp: RetainStamp,
    pub(crate) draining: bool,
    pub(crate) pending_acks: PendingAcks,
    pub(crate) lasting_sessions: i64,
    /// Records of ended sessions that are still to be removed from the store, by
    /// `StoreReadRequest::Tombstone`.
    pub(crate) tombstones: Vec<RecordNumber>,
    pub(crate) garbage_collector: Option<Box<GarbageCollector>>,
    /// Whether the store refuses writes: see `set_store_full`.
    pub(crate) store_is_full: bool,
    /// Whether so many writes wait for the disk that connections with stored messages are held.
    pub(crate) store_is_backlogged: bool,
    /// Whether any listener has an authorization backend.
    pub(crate) uses_authz: bool,
    /// Number of the last authorization request, used as its `RequestId`.
    pub(crate) authz_requests: u32,
    /// Connections which are held while `store_is_backlogged`.
    pub(crate) store_waiters: Vec<ConnId>,
    /// The value of `now` at the start, for the uptime.
    pub(crate) started: MonotonicMs,
    sweep_at: Option<MonotonicMs>,
    /// The last pause of the process (suspend, stopped container), which timeouts disregard.
    pub(crate) pause: ProcessPause,
    /// Difference between the time of day and `now` in milliseconds.
    pub(crate) time_of_day_offset_ms: i64,
    /// When the next `$SYS` round is due.
    pub(crate) sys_at: MonotonicMs,
    pub(crate) not_opened: PeerLog,
    pub(crate) stalls: StallSearch,
    /// Limits log events of clients whose windows are stalled.
    pub(crate) stall_log_limiter: LogRateLimiter,
    /// When withheld log events are reported next.
    pub(crate) event_flush_at: Option<MonotonicMs>,
    /// Details of the violation that ends a connection next.
    pub(crate) violation_detail: Box<str>,
    pub(crate) scratch: ScratchBuffers,
    pub(crate) tracer: PacketTracer,
}

/// Delay of the first `$SYS` round after a start or a change of options.
const SYS_FIRST_MS: u64 = 1000;

/// Capacity up to which the list of fired timers is kept; a larger one, left by a burst, is freed.
pub(crate) const TIMERS_KEPT: usize = 1024;

/// Buffers which stay allocated from publish to publish.
#[derive(Debug, Default)]
pub(crate) struct ScratchBuffers {
    pub(crate) filters: Vec<FilterId>,
    pub(crate) hits: Vec<(Delivery, u32)>,
    pub(crate) levels: Vec<u64>,
    pub(crate) properties: Vec<u8>,
    /// The full topic of a message from a client in a namespace.
    pub(crate) name: String,
    timers: Vec<ShardTimer>,
}

impl Shard {
    /// Creates a shard without connections. `seed` (hashers, owners of groups) is the same for all
    /// shards of a process; `chance` (random choices) differs.
    #[expect(clippy::too_many_arguments, reason = "what a shard is told once, at its birth")]
    pub fn new(
        id: ShardId,
        shards: usize,
        options: Arc<BrokerOptions>,
        interest: Arc<Interest>,
        memory: Arc<ProcessMemory>,
        seed: u64,
        chance: u64,
        now: MonotonicMs,
    ) -> Shard {
        let mut shard = Shard {
            id,
            shards,
            now,
            conns: Vec::new(),
            conn_generation: 0,
            sessions: SessionTable::new(seed, options.clone(), now),
            topics: FilterIndex::new(seed),
            rule_index: RuleIndex::new(seed, options.rules.clone()),
            event_collector: EventCollector::default(),
            windows: RuleWindows::new(seed),
            caches: ShardCaches::default(),
            groups: SharedGroups::new(seed),
            retained: Retained::new(),
            interest,
            shard_interest: ShardInterest::default(),
            ledger: MemoryLedger::new(memory),
            timers: TimerWheel::new(now),
            sys_tree: SysTree::default(),
            shard_hasher: ShardHasher { key: seed.rotate_left(17), shards: shards as u8 },
            reauthorization: ReauthorizationQueue::default(),
            delayed: DelayedMessages::default(),
            exclusives: ExclusiveFilters::default(),
            rights_generation: 0,
            ban_watch: BanWatch::starting_at(now),
            end_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            rule_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            flapping: FlappingDetector::default(),
            clients: FixedState::with_seed(seed.rotate_left(17)),
            random: chance | 1,
            retain_stamp: RetainStamp::default(),
            draining: false,
            pending_acks: PendingAcks::default(),
            lasting_sessions: 0,
            tombstones: Vec::new(),
            garbage_collector: None,
            store_is_full: false,
            store_is_backlogged: false,
            uses_authz: options.uses_authz_anywhere(),
            authz_requests: 0,
            store_waiters: Vec::new(),
            started: now,
            sweep_at: None,
            pause: ProcessPause::default(),
            time_of_day_offset_ms: 0,
            sys_at: now,
            not_opened: PeerLog::default(),
            stalls: StallSearch::default(),
            stall_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
            event_flush_at: None,
            violation_detail: Box::default(),
            scratch: ScratchBuffers::default(),
            tracer: PacketTracer::default(),
            options,
        };
        shard.reload_event_filter();
        shard.reload_caches();
        shard.plan_sys(SYS_FIRST_MS);
        shard
    }

    pub(crate) fn plan_sys(&mut self, after_ms: u64) {
        if self.options.sys_interval_s > 0 {
            self.sys_at = MonotonicMs(self.now.0 + after_ms);
            self.timers.set(self.sys_at, ShardTimer::Sys);
        }
    }

    pub fn handle(&mut self, now: MonotonicMs, input: ShardInput<'_>, out: &mut Outbox) {
        self.now = now;
        self.sessions.now = now;
        self.event_collector.events_seen = out.events.len();
        self.update_memory_pressure();
        match input {
            ShardInput::Bytes { conn, bytes } => self.read_packets(conn, bytes, out),
            ShardInput::Opened { conn, peer, since, moved } => {
                self.on_opened(conn, peer, since, moved)
            }
            ShardInput::StreamOpened { conn, of } => self.open_data_stream(conn, of),
            ShardInput::NotOpened { peer, why } => self.note_not_opened(peer, why, out),
            ShardInput::Closed { conn } => self.on_closed(conn, out),
            ShardInput::Congested { conn } => self.set_congested(conn, true, out),
            ShardInput::Writable { conn } => self.set_congested(conn, false, out),
            ShardInput::OutOfMemory { conn } => {
                self.end_connection(conn, CloseReason::Refusal(Refusal::QuotaExceeded), out)
            }
            ShardInput::ShardMessage { from, cross } => self.on_shard_message(from, cross, out),
            ShardInput::Committed { seq, durable } => self.on_committed(seq, durable, out),
            ShardInput::Durable { seq } => self.on_durable(seq, out),
            ShardInput::StoreReady { reading, stored } => self.on_store_ready(reading, stored, out),
            ShardInput::AuthzAnswered { request_id, answer } => {
                self.on_authz_decision(request_id, answer, out)
            }
            ShardInput::AuthDecided { conn, case, verdict } => {
                self.on_auth_decision(conn, case, verdict, out)
            }
            ShardInput::Tick => self.on_tick(out),
            ShardInput::Command(command) => self.on_command(command, out),
        }
        self.finish_input(out);
        if self.sessions.event_queue.filter.any {
            self.emit_events(out);
        }
    }

    /// Does the work that follows every input: tombstones, retained cursors, timers, connections to
    /// end under `QueuePolicy::Disconnect`, messages to return to shared groups, and changes of
    /// members' room.
    pub(crate) fn finish_input(&mut self, out: &mut Outbox) {
        for RecordNumber(number) in self.tombstones.drain(..) {
            out.effects.push(Effect::ReadStore { reading: StoreReadRequest::Tombstone { number } });
        }
        while !self.sessions.cursors_ready.is_empty() {
            for id in std::mem::take(&mut self.sessions.cursors_ready) {
                if self.sessions.contains(id) {
                    self.feed_cursors(id, out);
                }
            }
        }
        self.set_rate_timers();
        self.set_age_timers();
        while let Some(id) = self.sessions.overruns.pop() {
            // The session may have ended meanwhile.
            let conn = if self.sessions.contains(id) { self.sessions.get(id).conn() } else { None };
            if let Some(conn) = conn {
                self.end_connection(conn, CloseReason::Refusal(Refusal::QueueFull), out);
            }
        }
        out.events.append(&mut self.sessions.late_notes);
        if !self.sessions.withholding.is_empty() {
            self.plan_event_flush();
        }
        self.report_released(out);
        while !self.sessions.orphans.is_empty() || !self.sessions.room_changes.is_empty() {
            self.return_orphans(out);
            self.report_rooms(out);
        }
    }

    pub fn options(&self) -> &BrokerOptions {
        &self.options
    }

    /// Sets whether the store refuses writes. Requests which need a new record get 0x97 while it
    /// does.
    pub fn set_store_full(&mut self, is_full: bool) {
        self.store_is_full = is_full;
    }

    /// Nodes of the filter trie visited so far: a measure of matching which is the same on every
    /// machine.
    pub fn nodes_visited(&self) -> u64 {
        self.topics.visited()
    }

    /// Returns when `ShardInput::Tick` is next needed: immediately if bounded work is unfinished.
    pub fn next_tick(&self) -> Option<MonotonicMs> {
        let looks = self.reauthorization.is_due(self.now) || self.is_comparing_bans();
        let looks = looks || self.delayed.is_due(self.now) || self.caches.has_requests();
        let looks = looks || self.windows.is_behind() || self.stalls.is_running();
        if !self.sessions.unfinished.is_empty() || looks {
            return Some(self.now);
        }
        self.timers.next()
    }

    fn on_opened(&mut self, conn: ConnId, peer: PeerInfo, since: MonotonicMs, moved: bool) {
        let options = self.options.options_of_listener(peer.listener);
        let packet_bytes_max = options.packet_bytes_max.min(CONNECT_BYTES_MAX);
        let timer_at = MonotonicMs(since.0 + u64::from(self.options.connect_timeout_ms));
        let heard = self.now;
        let generation = self.add_conn(conn, |generation| Conn {
            state: ConnState::AwaitingConnect,
            peer,
            version: ProtocolVersion::V311,
            is_bridge: false,
            moved,
            generation,
            silence_ms_max: 0,
            last_activity: heard,
            timer_at,
            topic_alias_max: 0,
            receive_maximum: u16::MAX,
            packet_bytes_max,
            aliases: Vec::new(),
            alias_bytes: 0,
            meter: None,
            exchange: None,
            pending_acks: 0,
        });
        self.timers.set(timer_at, ShardTimer::Conn { index: conn.0, generation });
    }

    /// Stores a connection at its index, counts its memory, and returns its generation.
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
        self.drop_pending_acks(conn);
        self.uncount_conn(conn);
        let known = self.conns.get_mut(conn.0 as usize)?.take();
        if self.ledger.conns == 0 {
            self.conns = Vec::new();
        }
        known
    }

    fn set_congested(&mut self, conn: ConnId, congested: bool, out: &mut Outbox) {
        let Some(id) = self.conn(conn).and_then(Conn::session) else { return };
        let session = self.sessions.get_mut(id);
        session.gate.set(SendGate::CONGESTED, congested);
        if session.is_member {
            self.sessions.room_changes.push(id);
        }
        if !congested {
            self.sessions.drain_queue(id, out);
        }
    }

    fn on_command(&mut self, command: ShardCommand, out: &mut Outbox) {
        match command {
            ShardCommand::Reload(options) => {
                let changes = self.options.permissions != options.permissions
                    || self.options.access != options.access
                    || self.options.uses_authz_anywhere()
                    || options.uses_authz_anywhere();
                self.uses_authz = options.uses_authz_anywhere();
                self.sessions.options = options.clone();
                self.options = options;
                self.choose_strategies();
                self.reload_rules();
                self.reload_caches();
                self.make_presets();
                self.reassign_client_groups();
                self.reload_trace();
                self.plan_sys(SYS_FIRST_MS);
                self.restart_ban_watch();
                self.clear_flapping_bans();
                if changes {
                    self.reauthorize_all();
                }
            }
            ShardCommand::PublishSys { topic, value } => {
                self.publish_sys_value(&topic, &value, out)
            }
            ShardCommand::LinkEvent(told) => self.on_link_event(told),
            ShardCommand::Drain => {
                self.draining = true;
                let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
                for id in ids {
                    if !self.has_delayed_will(id) {
                        self.publish_will(id, out);
                    }
                }
            }
            ShardCommand::CloseAll => {
                self.write_windows();
                for index in 0..self.conns.len() {
                    let conn = ConnId(index as u32);
                    let Some(known) = self.take_conn(conn) else { continue };
                    if let Some(id) = known.connacked_session() {
                        self.sessions.send_disconnect(
                            id,
                            ReasonCode::ServerShuttingDown,
                            None,
                            out,
                        );
                    }
                    if let Some(id) = known.session() {
                        match self.sessions.get(id).persistent.is_some() {
                            true => self.detach_session(id, out),
                            false => self.sessions.get_mut(id).conn = crate::limits::NONE,
                        }
                    }
                    out.effects.push(Effect::Close { conn });
                }
                self.flush_withheld_events(out);
            }
        }
    }

    pub(crate) fn owner_of(&self, name: &str) -> ShardId {
        self.shard_hasher.owner_of(name)
    }

    pub(crate) fn session_ref(&self, id: SessionId) -> SessionRef {
        let generation = self.sessions.get(id).generation;
        SessionRef { shard: self.id, session: id, generation }
    }

    pub(crate) fn publisher_hash(&self, id: SessionId) -> u32 {
        self.client_hash(&self.sessions.get(id).client_id) as u32
    }

    pub(crate) fn client_hash(&self, client_id: &str) -> u64 {
        self.clients.hash_one(client_id)
    }

    /// Returns a random number (xorshift64*): sufficient for a choice between equal members, and
    /// repeatable from a seed.
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::message::IncomingPublish;

    fn say(shard: &mut Shard, now: u64, packet: &[u8]) {
        let (conn, mut out) = (ConnId(0), Outbox::new(1));
        let peer = PeerInfo::from_address(([127, 0, 0, 1], 1).into());
        let opened = ShardInput::Opened { conn, peer, since: MonotonicMs(now), moved: false };
        shard.handle(MonotonicMs(now), opened, &mut out);
        shard.handle(MonotonicMs(now), ShardInput::Bytes { conn, bytes: packet }, &mut out);
        shard.handle(MonotonicMs(now), ShardInput::Closed { conn }, &mut out);
        shard.handle(MonotonicMs(now), ShardInput::Tick, &mut out);
    }

    #[test]
    fn what_is_retained_is_counted_for_as_long_as_it_is_on_its_way() {
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let (interest, memory) =
            (Arc::new(Interest::new(1, 2)), Arc::new(ProcessMemory::default()));
        let mut shards = [0, 1].map(|at| {
            let (options, interest) = (options.clone(), interest.clone());
            Shard::new(ShardId(at), 2, options, interest, memory.clone(), 1, 1, MonotonicMs(0))
        });
        let mut out = Outbox::new(2);
        shards[0].retain_message(&mut IncomingPublish::new("t", b"x", MonotonicMs(0)), &mut out);
        assert!(shards[0].ledger.crossing > 0);
        let cross = out.lanes[1].pop_front().expect("it goes to every shard");
        shards[1].handle(
            MonotonicMs(0),
            ShardInput::ShardMessage { from: ShardId(0), cross },
            &mut out,
        );
        assert_eq!(shards[0].ledger.crossing + shards[1].ledger.crossing, 0);
    }

    #[test]
    fn a_session_that_comes_and_goes_leaves_no_timers_behind() {
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        // Session Expiry Interval: a year.
        let connect = b"\x10\x13\0\x04MQTT\x05\0\0\0\x05\x11\x01\xe1\x33\x80\0\x01a";
        for at in 0..10_000 {
            say(&mut shard, at, connect);
        }
        assert_eq!(shard.sessions.len(), 1);
        assert!(shard.timers.len() < 2 * TIMERS_KEPT, "{}", shard.timers.len());
        let year = 31_536_000_000;
        let mut out = Outbox::new(1);
        shard.handle(MonotonicMs(year - 1), ShardInput::Tick, &mut out);
        assert_eq!(shard.sessions.len(), 1);
        shard.handle(MonotonicMs(year + 20_000), ShardInput::Tick, &mut out);
        assert_eq!(shard.sessions.len(), 0, "the last timer is still there");
    }
}
