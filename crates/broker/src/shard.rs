//! The state of one CPU core's share of the broker. All inputs enter by [`Shard::handle`].

mod commits;
mod connect;
mod messages;
mod packets;
mod publish;
mod reports;
pub(crate) mod restore;
mod rule_outputs;
mod session_end;
mod subscribe;
mod tick;

use crate::authorization::ShardAuthorization;
use crate::caches::ShardCaches;
use crate::connection::connection_table::ConnectionTable;
use crate::context::ShardContext;
use crate::ids::{ConnId, MonotonicMs, RecordNumber, SessionId, ShardId};
use crate::interface::input::{ShardCommand, ShardInput};
use crate::interface::outbox::{Effect, Outbox};
use crate::interface::store_access::StoreReadRequest;
use crate::memory::ProcessMemory;
use crate::options::BrokerOptions;
use crate::refusal::{CloseReason, Refusal};
use crate::routing::ShardRouting;
use crate::routing::interest::Interest;
use crate::rules::rule_engine::RuleEngine;
use crate::session::session_table::SessionTable;
use crate::statistics::ShardStatistics;
use crate::timer::ShardTimer;
use mqtt::ReasonCode;
use std::sync::Arc;

/// A CPU core's share of the broker. Sessions are assigned to shards by `owner_of` their client id.
/// The parts own the state; `Shard` has the control flow of an input.
#[derive(Debug)]
pub struct Shard {
    pub(crate) connections: ConnectionTable,
    pub(in crate::shard) authorization: ShardAuthorization,
    pub(crate) rule_engine: RuleEngine,
    pub(in crate::shard) caches: ShardCaches,
    pub(crate) routing: ShardRouting,
    pub(crate) sessions: SessionTable,
    pub(in crate::shard) statistics: ShardStatistics,
    /// The list of fired timers, which stays allocated from tick to tick.
    fired_timers: Vec<ShardTimer>,
}

/// Delay of the first `$SYS` round after a start or a change of options.
const SYS_FIRST_MS: u64 = 1000;

/// Capacity up to which the list of fired timers is kept; a larger one, left by a burst, is freed.
pub(crate) const TIMERS_KEPT: usize = 1024;

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
        let context = ShardContext::new(id, shards, options.clone(), seed, chance, now);
        let mut shard = Shard {
            connections: ConnectionTable::default(),
            authorization: ShardAuthorization::new(&options, now),
            rule_engine: RuleEngine::new(seed, options.rules.clone()),
            caches: ShardCaches::default(),
            routing: ShardRouting::new(seed, interest),
            sessions: SessionTable::new(seed, context, memory),
            statistics: ShardStatistics::new(now),
            fired_timers: Vec::new(),
        };
        shard.rule_engine.reload_event_filter(&mut shard.sessions);
        shard.caches.reload_caches(&mut shard.sessions);
        shard.statistics.plan_sys(SYS_FIRST_MS, &mut shard.sessions);
        shard
    }

    pub fn handle(&mut self, now: MonotonicMs, input: ShardInput<'_>, out: &mut Outbox) {
        self.sessions.context.now = now;
        self.rule_engine.event_collector.events_seen = out.events.len();
        self.update_memory_pressure();
        match input {
            ShardInput::Bytes { conn, bytes } => self.read_packets(conn, bytes, out),
            ShardInput::Opened { conn, peer, since, moved } => {
                self.connections.on_opened(conn, peer, since, moved, &mut self.sessions)
            }
            ShardInput::StreamOpened { conn, of } => {
                self.connections.open_data_stream(conn, of, &mut self.sessions)
            }
            ShardInput::NotOpened { peer, why } => {
                self.connections.note_not_opened(peer, why, &mut self.sessions, out)
            }
            ShardInput::Closed { conn } => self.on_closed(conn, out),
            ShardInput::Congested { conn } => {
                self.connections.set_congested(conn, true, &mut self.sessions, out)
            }
            ShardInput::Writable { conn } => {
                self.connections.set_congested(conn, false, &mut self.sessions, out)
            }
            ShardInput::OutOfMemory { conn } => {
                self.end_connection(conn, CloseReason::Refusal(Refusal::QuotaExceeded), out)
            }
            ShardInput::ShardMessage { from, cross } => self.on_shard_message(from, cross, out),
            ShardInput::Committed { seq, durable } => self.on_committed(seq, durable, out),
            ShardInput::Durable { seq } => self.on_durable(seq, out),
            ShardInput::StoreReady { reading, stored } => {
                self.routing.on_store_ready(reading, stored, &mut self.sessions, out)
            }
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
        for RecordNumber(number) in self.sessions.durability.tombstones.drain(..) {
            out.effects.push(Effect::ReadStore { reading: StoreReadRequest::Tombstone { number } });
        }
        while !self.sessions.cursors_ready.is_empty() {
            for id in std::mem::take(&mut self.sessions.cursors_ready) {
                if self.sessions.contains(id) {
                    self.routing.feed_cursors(id, &mut self.sessions, out);
                }
            }
        }
        self.sessions.set_rate_timers();
        self.sessions.set_age_timers();
        while let Some(id) = self.sessions.overruns.pop() {
            // The session may have ended meanwhile.
            let conn = if self.sessions.contains(id) { self.sessions.get(id).conn() } else { None };
            if let Some(conn) = conn {
                self.end_connection(conn, CloseReason::Refusal(Refusal::QueueFull), out);
            }
        }
        out.events.append(&mut self.sessions.late_notes);
        if !self.sessions.withholding.is_empty() {
            self.sessions.context.plan_event_flush();
        }
        self.routing.report_released(&self.sessions, out);
        while !self.sessions.orphans.is_empty() || !self.sessions.room_changes.is_empty() {
            self.routing.return_orphans(&mut self.sessions, out);
            self.routing.report_rooms(&mut self.sessions, out);
        }
    }

    pub fn options(&self) -> &BrokerOptions {
        &self.sessions.context.options
    }

    /// Nodes of the filter trie visited so far: a measure of matching which is the same on every
    /// machine.
    pub fn nodes_visited(&self) -> u64 {
        self.routing.topics.visited()
    }

    /// Returns when `ShardInput::Tick` is next needed: immediately if bounded work is unfinished.
    pub fn next_tick(&self) -> Option<MonotonicMs> {
        let Shard { connections, authorization, rule_engine, caches, routing, sessions, .. } = self;
        let now = sessions.context.now;
        let is_unfinished = authorization.reauthorization.is_due(now)
            || authorization.is_comparing_bans()
            || routing.delayed.is_due(now)
            || caches.has_requests()
            || rule_engine.windows.is_behind()
            || connections.stalls.is_running()
            || !sessions.unfinished.is_empty();
        if is_unfinished {
            return Some(now);
        }
        sessions.context.timers.next()
    }

    fn on_command(&mut self, command: ShardCommand, out: &mut Outbox) {
        match command {
            ShardCommand::Reload(options) => {
                let changes = self.sessions.context.options.permissions != options.permissions
                    || self.sessions.context.options.access != options.access
                    || self.sessions.context.options.uses_authz_anywhere()
                    || options.uses_authz_anywhere();
                self.authorization.uses_authz = options.uses_authz_anywhere();
                self.sessions.context.options = options;
                self.routing.choose_strategies(&self.sessions);
                self.rule_engine.reload_rules(&mut self.sessions);
                self.caches.reload_caches(&mut self.sessions);
                self.make_presets();
                self.sessions.reassign_client_groups();
                self.statistics.reload_trace(&self.connections, &self.sessions);
                self.statistics.plan_sys(SYS_FIRST_MS, &mut self.sessions);
                self.authorization.restart_ban_watch(&self.sessions);
                self.connections.clear_flapping_bans(&self.sessions);
                if changes {
                    self.authorization.reauthorize_all(&self.connections, &mut self.sessions);
                }
            }
            ShardCommand::PublishSys { topic, value } => {
                self.routing.publish_sys_value(&topic, &value, &mut self.sessions, out)
            }
            ShardCommand::LinkEvent(told) => {
                self.rule_engine.on_link_event(told, &mut self.sessions)
            }
            ShardCommand::Drain => {
                self.connections.draining = true;
                let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
                for id in ids {
                    if !self.sessions.has_delayed_will(id) {
                        self.publish_will(id, out);
                    }
                }
            }
            ShardCommand::CloseAll => {
                self.rule_engine.write_windows(&mut self.sessions);
                for index in 0..self.connections.conns.len() {
                    let conn = ConnId(index as u32);
                    let Some(known) = self.connections.take_conn(conn, &mut self.sessions) else {
                        continue;
                    };
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::IncomingPublish;
    use crate::peer::PeerInfo;

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
        shards[0].routing.retain_message(
            &mut IncomingPublish::new("t", b"x", MonotonicMs(0)),
            &mut shards[0].sessions,
            &mut out,
        );
        assert!(shards[0].sessions.ledger.crossing > 0);
        let cross = out.lanes[1].pop_front().expect("it goes to every shard");
        shards[1].handle(
            MonotonicMs(0),
            ShardInput::ShardMessage { from: ShardId(0), cross },
            &mut out,
        );
        assert_eq!(shards[0].sessions.ledger.crossing + shards[1].sessions.ledger.crossing, 0);
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
        assert!(
            shard.sessions.context.timers.len() < 2 * TIMERS_KEPT,
            "{}",
            shard.sessions.context.timers.len()
        );
        let year = 31_536_000_000;
        let mut out = Outbox::new(1);
        shard.handle(MonotonicMs(year - 1), ShardInput::Tick, &mut out);
        assert_eq!(shard.sessions.len(), 1);
        shard.handle(MonotonicMs(year + 20_000), ShardInput::Tick, &mut out);
        assert_eq!(shard.sessions.len(), 0, "the last timer is still there");
    }
}
