//! Memory, statistics, events for the log, and the questions and reports of the engine.

use crate::broker_event::{BrokerEvent, WithheldKind};
use crate::connection::conn::{CONN_COST, Conn};
use crate::durability::records::kind;
use crate::durability::time_of_day::{ClockReading, STEP_MS};
use crate::ids::{ConnId, MonotonicMs, SessionId, ShardId};
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::interface::store_access::RecordSpace;
use crate::message::IncomingPublish;
use crate::process_pause::ProcessPause;
use crate::session::session_report::{SessionReport, SessionSelector};
use crate::shard::Shard;
use crate::statistics::sys_tree::RETAINED_SHARDS_MAX;

impl Shard {
    /// Whether any client is traced.
    pub fn is_tracing(&self) -> bool {
        self.sessions.context.is_tracing()
    }

    /// Returns the memory of this shard without its sockets, from counters which are kept up to
    /// date.
    fn memory_bytes(&self) -> i64 {
        let (sessions, ledger) = (&self.sessions, &self.sessions.ledger);
        let retained = self.routing.retained.bytes / self.sessions.context.shards as u64
            + self.routing.retained.index_bytes();
        let held = sessions.messages.memory_bytes()
            + sessions.memory_bytes()
            + self.routing.topics.memory_bytes()
            + self.routing.groups.memory_bytes()
            + self.routing.exclusives.memory_bytes()
            + self.rule_engine.windows.memory_bytes()
            + self.caches.memory_bytes()
            + retained
            + ledger.conns * CONN_COST
            + ledger.parked
            + ledger.transports
            + ledger.aliases
            + ledger.delayed;
        held as i64 + ledger.crossing
    }

    /// Compares the memory of the process with its bound and sets the three pressure levels.
    #[inline]
    pub(crate) fn update_memory_pressure(&mut self) {
        let own = self.memory_bytes();
        let held = self.sessions.ledger.report_bytes(own);
        let max = self.sessions.context.options.memory_bytes_max;
        let messages = self.sessions.messages.memory_bytes();
        // As bytes of messages, since only messages grow within one publish.
        let at = |sixteenths: u64| (messages + max / 16 * sixteenths).saturating_sub(held);
        self.sessions.elevated_at = at(8);
        self.sessions.high_at = at(9);
        self.sessions.critical_at = at(10);
    }

    /// Sets the memory that the engine holds for this shard's sockets.
    pub fn set_socket_bytes(&mut self, bytes: usize) {
        self.sessions.ledger.sockets = bytes as i64;
    }

    /// Sets the bytes of writes which the store refused and the engine keeps.
    pub fn set_store_backlog_bytes(&mut self, bytes: usize) {
        self.sessions.ledger.parked = bytes as u64;
    }

    /// Whether the sockets hold more than their quarter of the bound. Output then waits in the
    /// session's queue, not in a socket.
    pub fn are_sockets_over_budget(&mut self) -> bool {
        self.sessions.ledger.socket_bytes() >= self.sessions.context.options.memory_bytes_max / 4
    }

    /// Returns how many socket bytes this shard must free to bring all sockets down to 7/8 of their
    /// bound. A shard whose sockets hold less than its share frees none.
    pub fn socket_bytes_excess(&mut self) -> usize {
        let bound = self.sessions.context.options.memory_bytes_max / 4;
        let (all, own) =
            (self.sessions.ledger.socket_bytes(), self.sessions.ledger.sockets.max(0) as u64);
        if all < bound {
            return 0;
        }
        (all - bound / 8 * 7).min(own.saturating_sub(bound / self.sessions.context.shards as u64))
            as usize
    }

    /// Updates a held message before it is sent to another shard. A `Retain` which is no longer the
    /// newest of its topic becomes a `Publish`: it could arrive after the tombstone of a later
    /// clear.
    pub fn update_late_message(&self, cross: ShardMessage) -> ShardMessage {
        match cross {
            ShardMessage::Retain { message, stamp, ticket, origin }
                if !message.payload().is_empty()
                    && self.routing.retained.newest(message.topic()).map(|(at, _)| at)
                        != Some(stamp) =>
            {
                ShardMessage::Publish { message, ticket, origin }
            }
            cross => cross,
        }
    }

    /// Records the packets which this tick is going to write. The engine calls this function once
    /// per tick, only if `is_tracing`.
    pub fn trace_writes(&mut self, out: &mut Outbox) {
        for at in 0..out.writes().len() {
            let write = &out.writes()[at];
            let Some(traced) = self.statistics.tracer.traced.get_mut(&write.conn.0) else {
                continue;
            };
            let wanted = self
                .sessions
                .context
                .options
                .event_options
                .trace
                .as_ref()
                .and_then(|trace| trace.topic.as_deref());
            let bytes: Vec<u8> =
                write.slices(&out.arena).flat_map(|slice| slice.iter().copied()).collect();
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = mqtt::split_frame(rest, u32::MAX) {
                out.events.extend(traced.packet_event(frame, true, wanted));
                rest = &rest[frame.len..];
            }
        }
        let conns = &self.connections.conns;
        let lives = |conn: &u32| conns.get(*conn as usize).is_some_and(Option::is_some);
        self.statistics.tracer.traced.retain(|conn, _| lives(conn));
    }

    /// Reports all withheld events of the shard and of its sessions.
    pub(crate) fn flush_withheld_events(&mut self, out: &mut Outbox) {
        self.sessions.context.event_flush_at = None;
        let now = self.sessions.context.now;
        for (few, what) in [
            (&mut self.connections.end_log_limiter, WithheldKind::Connections),
            (&mut self.rule_engine.rule_log_limiter, WithheldKind::Rules),
            (&mut self.connections.stall_log_limiter, WithheldKind::Stalls),
        ] {
            out.events.extend(few.flush(now).map(|count| BrokerEvent::Withheld { what, count }));
        }
        let not_opened = self.connections.not_opened.flush(now);
        out.events.extend(not_opened.map(|(peer, why, count)| BrokerEvent::NotOpened {
            peer,
            why,
            count,
        }));
        let turned_away = self.authorization.ban_watch.turned_away.flush(now);
        out.events.extend(turned_away.map(|(peer, why, count)| BrokerEvent::TurnedAway {
            peer,
            why,
            count,
        }));
        let mut goes_on = Vec::new();
        for id in std::mem::take(&mut self.sessions.withholding) {
            if self.sessions.contains(id) && self.sessions.flush_session_events(id, out) {
                goes_on.push(id);
            }
        }
        self.sessions.withholding.append(&mut goes_on);
    }

    pub(crate) fn sys_round(&mut self, out: &mut Outbox) {
        let interval_s = self.sessions.context.options.sys_interval_s;
        // Ignore a timer set before the options changed.
        if interval_s == 0 || self.sessions.context.now < self.statistics.sys_at {
            return;
        }
        self.statistics.plan_sys(u64::from(interval_s) * 1000, &mut self.sessions);
        self.connections.stalls.begin();
        let mut counters = self.sessions.counters.clone();
        counters.sessions = self.sessions.len() as u64 - self.sessions.data_streams;
        counters.online = self.sessions.online;
        counters.subscriptions = self.routing.topics.subscriptions;
        counters.shared_subscriptions = self.routing.groups.members;
        counters.retained = u64::from(self.routing.retained.messages);
        counters.stored_messages = self.sessions.messages.len() as u64;
        counters.stored_bytes = self.sessions.messages.bytes;
        counters.delayed_messages = self.routing.delayed.len() as u64;
        counters.delayed_bytes = self.sessions.ledger.delayed;
        counters.stalled = self.connections.stalls.stalled;
        if self.sessions.context.id != ShardId(0) {
            out.lanes[0].push_back(ShardMessage::Counters(Box::new(counters)));
            return;
        }
        self.statistics.sys_tree.shards.resize_with(self.sessions.context.shards, Default::default);
        self.statistics.sys_tree.shards[0] = counters;
        let uptime = MonotonicMs(self.sessions.context.now.0 - self.sessions.context.started.0);
        let (rules, caches) =
            (&self.sessions.context.options.rules, &self.sessions.context.options.caches);
        for (topic, value) in self.statistics.sys_tree.changes(uptime, rules, caches) {
            self.routing.publish_sys_value(&topic, &value, &mut self.sessions, out);
        }
        if self.sessions.context.shards > RETAINED_SHARDS_MAX {
            let all: Vec<_> = self.statistics.sys_tree.values_by_shard().collect();
            for (topic, value) in all {
                let mut draft =
                    IncomingPublish::new(&topic, value.as_bytes(), self.sessions.context.now);
                self.routing.route_message(None, &mut draft, &mut self.sessions, out);
            }
        }
    }

    /// Publishes `$SYS/broker/client/{client id}/online` or `.../offline`, not retained.
    pub(crate) fn publish_presence(&mut self, id: SessionId, online: bool, out: &mut Outbox) {
        if self.sessions.context.options.sys_interval_s == 0 || self.connections.draining {
            return;
        }
        let session = self.sessions.get(id);
        let mut topic = String::from("$SYS/broker/client/");
        // Characters which a topic name must not contain, or which add levels, are escaped as in a
        // URL.
        for letter in session.client_id.chars() {
            match letter {
                '%' | '/' | '+' | '#' | '\0' => {
                    topic.push_str(&format!("%{:02X}", u32::from(letter)))
                }
                other => topic.push(other),
            }
        }
        topic.push_str(if online { "/online" } else { "/offline" });
        let version = session.version.to_string();
        let mut draft = IncomingPublish::new(&topic, version.as_bytes(), self.sessions.context.now);
        self.routing.route_message(None, &mut draft, &mut self.sessions, out);
    }

    /// Sets the offset of the time of day to `MonotonicMs`. Returns the change if at least
    /// `STEP_MS`, because a person or service has then set the clock.
    pub fn set_time_of_day(&mut self, offset_ms: i64) -> Option<i64> {
        let changed = offset_ms.wrapping_sub(self.sessions.context.time_of_day_offset_ms);
        self.sessions.context.time_of_day_offset_ms = offset_ms;
        (changed.unsigned_abs() >= STEP_MS).then_some(changed)
    }

    /// Writes a reading to the store for `stored_clock` of the next process, if the broker has a
    /// store.
    pub fn keep_clock(&mut self, reading: &ClockReading) {
        if self.sessions.write_batch.has_store {
            let journal = &mut self.sessions.write_batch;
            journal.push_change(RecordSpace::Sessions, vec![kind::CLOCK], Some(reading.encode()));
        }
    }

    /// Returns reports on the selected sessions that this shard owns.
    pub fn report_sessions(&self, which: &SessionSelector) -> Vec<SessionReport> {
        match which {
            SessionSelector::ClientIds(all) => {
                let known = all.iter().filter_map(|id| self.sessions.find(id));
                known
                    .map(|id| self.routing.report_session(self.sessions.get(id), &self.sessions))
                    .collect()
            }
            SessionSelector::ClientIdPrefix(with) => {
                let all = self.sessions.iter().map(|(_, session)| session);
                let meant = all.filter(|session| session.client_id.starts_with(&**with));
                meant.map(|session| self.routing.report_session(session, &self.sessions)).collect()
            }
        }
    }

    /// Returns the connection of a session that this shard owns; `None` for an offline client.
    pub fn connection_of(&self, client_id: &str) -> Option<ConnId> {
        self.sessions.get(self.sessions.find(client_id)?).conn()
    }

    /// Records a pause of the process. Keep-alives, connect timeouts and deadlines of
    /// authentication and authorization are extended by [`ProcessPause::extend`]; lifetimes of
    /// sessions and messages are not.
    pub fn note_pause(&mut self, pause: ProcessPause) {
        self.sessions.context.pause = pause;
    }

    pub fn last_pause(&self) -> ProcessPause {
        self.sessions.context.pause
    }

    /// Whether the connection has received CONNACK; no data stream may be opened before.
    pub fn is_connacked(&self, conn: ConnId) -> bool {
        self.connections.conn(conn).and_then(Conn::connacked_session).is_some()
    }
}
