//! The `$SYS/broker` tree, which shard 0 publishes from the counters of all shards.

use super::{LOAD_ROWS, SYS_ROWS, ShardCounters, SysRow};
use crate::caches::CacheConfig;
use crate::input::{MonotonicMs, SessionId, ShardId, ShardMessage};
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::message::IncomingPublish;
use crate::rules::Rule;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;

/// State of the last round on shard 0, so that a round publishes only changed values.
#[derive(Debug, Default)]
pub(crate) struct SysTree {
    pub(crate) shards: Vec<ShardCounters>,
    published: hashbrown::HashMap<String, String, foldhash::fast::FixedState>,
    clients_maximum: u64,
    loads: Vec<LoadAverage>,
    round: Option<MonotonicMs>,
}

/// Moving averages of one number that counts up, over 1, 5 and 15 minutes, as a rate a minute.
#[derive(Clone, Copy, Debug, Default)]
struct LoadAverage {
    counted: u64,
    rates: [f64; 3],
}

const LOAD_MINUTES: [f64; 3] = [1.0, 5.0, 15.0];

impl LoadAverage {
    fn count(&mut self, counted: u64, minutes: f64) {
        let rate = counted.saturating_sub(self.counted) as f64 / minutes;
        self.counted = counted;
        for (average, span) in self.rates.iter_mut().zip(LOAD_MINUTES) {
            let kept = (-minutes / span).exp();
            *average = rate * (1.0 - kept) + *average * kept;
        }
    }
}

impl SysTree {
    /// Returns the topics and values that changed since the last round. `now` is the uptime.
    pub(crate) fn changes(
        &mut self,
        now: MonotonicMs,
        rules: &[Rule],
        caches: &[CacheConfig],
    ) -> Vec<(String, String)> {
        let mut sum = ShardCounters::default();
        self.shards.iter().for_each(|counters| sum.add(counters));
        self.clients_maximum = self.clients_maximum.max(sum.online);
        let mut all: Vec<(String, String)> = SYS_ROWS
            .iter()
            .map(|row| (format!("$SYS/broker/{}", row.topic), (row.value)(&sum).to_string()))
            .collect();
        all.push(("$SYS/broker/retained messages/count".into(), sum.retained.to_string()));
        all.push(("$SYS/broker/clients/maximum".into(), self.clients_maximum.to_string()));
        all.push(("$SYS/broker/version".into(), VERSION.into()));
        all.push(("$SYS/broker/uptime".into(), format!("{} seconds", now.0 / 1000)));
        for rule in rules {
            let name = &rule.name;
            let topic = |value: &str| format!("$SYS/broker/rule/{name}/{value}");
            all.extend(rule.metrics.values().map(|(of, value)| (topic(&of), value.to_string())));
        }
        for cache in caches {
            let name = &cache.name;
            let topic = |value: &str| format!("$SYS/broker/cache/{name}/{value}");
            all.extend(cache.metrics.values().map(|(of, value)| (topic(of), value.to_string())));
        }
        all.extend(
            self.removed_values("rule", |name| rules.iter().all(|rule| *rule.name != *name)),
        );
        all.extend(
            self.removed_values("cache", |name| caches.iter().all(|cache| *cache.name != *name)),
        );
        if (2..=RETAINED_SHARDS_MAX).contains(&self.shards.len()) {
            all.extend(self.values_by_shard());
        }
        self.count_loads(&sum, now, &mut all);
        all.retain(|(topic, value)| self.published.get(topic) != Some(value));
        for (topic, value) in &all {
            self.published.insert(topic.clone(), value.clone());
        }
        all
    }

    /// Returns the values of each shard separately, below `$SYS/broker/shards/`.
    fn values_by_shard(&self) -> impl Iterator<Item = (String, String)> {
        self.shards.iter().enumerate().flat_map(|(at, counters)| {
            let value = move |row: &SysRow| {
                let topic = format!("$SYS/broker/shards/{at}/{}", row.topic);
                (topic, (row.value)(counters).to_string())
            };
            SYS_ROWS.iter().map(value)
        })
    }

    /// Returns the topics of rules or caches that were removed, to be cleared.
    fn removed_values(&mut self, of: &str, is_not: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let front = format!("$SYS/broker/{of}/");
        let is_gone = |topic: &String| {
            let name = topic.strip_prefix(&front).and_then(|rest| rest.split_once('/'));
            name.is_some_and(|(name, _)| is_not(name))
        };
        let mut topics: Vec<String> =
            self.published.keys().filter(|one| is_gone(one)).cloned().collect();
        topics.sort_unstable();
        topics.into_iter().map(|topic| (topic, String::new())).collect()
    }

    fn count_loads(
        &mut self,
        sum: &ShardCounters,
        now: MonotonicMs,
        all: &mut Vec<(String, String)>,
    ) {
        let passed_ms = now.0 - self.round.unwrap_or_default().0;
        self.round = Some(now);
        if passed_ms == 0 {
            return;
        }
        self.loads.resize_with(LOAD_ROWS.len(), LoadAverage::default);
        for (row, load) in LOAD_ROWS.iter().zip(&mut self.loads) {
            load.count((row.value)(sum), passed_ms as f64 / 60_000.0);
            for (rate, minutes) in load.rates.iter().zip(LOAD_MINUTES) {
                let topic = format!("$SYS/broker/{}/{minutes}min", row.topic);
                all.push((topic, format!("{rate:.2}")));
            }
        }
    }
}

/// Up to this number of shards the values by shard are retained. Their number grows with the square
/// of the shards, since every shard holds every retained message. With more shards they are
/// published in each round without RETAIN.
const RETAINED_SHARDS_MAX: usize = 16;

const VERSION: &str = concat!("godwit version ", env!("CARGO_PKG_VERSION"));

impl Shard {
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
}

impl ShardRouting {
    /// Publishes a value of the tree as a retained message.
    pub(crate) fn publish_sys_value(
        &mut self,
        topic: &str,
        value: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut draft = IncomingPublish::new(topic, value.as_bytes(), sessions.context.now);
        draft.retain = true;
        self.retain_message(&mut draft, sessions, out);
        self.route_message(None, &mut draft, sessions, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_what_every_average_comes_to() {
        let mut load = LoadAverage::default();
        for round in 1..=1000 {
            load.count(round * 100, 1.0 / 6.0);
        }
        assert!(load.rates.iter().all(|rate| (rate - 600.0).abs() < 0.1), "{:?}", load.rates);
    }

    #[test]
    fn only_what_changed_is_published_again() {
        let mut tree = SysTree { shards: vec![ShardCounters::default()], ..SysTree::default() };
        let first = tree.changes(MonotonicMs(1000), &[], &[]);
        assert!(
            first
                .iter()
                .any(|(topic, value)| { topic == "$SYS/broker/clients/connected" && value == "0" })
        );
        tree.shards[0].online = 1;
        let second = tree.changes(MonotonicMs(11_000), &[], &[]);
        let topics: Vec<&str> = second.iter().map(|(topic, _)| &topic[12..]).collect();
        let changed = ["clients/connected", "clients/maximum", "uptime"];
        assert_eq!(topics, changed);
    }
}
