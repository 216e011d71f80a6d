//! The `$SYS/broker` tree, which shard 0 publishes from the counters of all shards.

use crate::counters::{LOAD_ROWS, SYS_ROWS, ShardCounters, SysRow};
use crate::ids::{MonotonicMs, ShardId};
use crate::options::cache_config::CacheConfig;
use crate::options::rule::Rule;
use crate::session::session_table::SessionTable;
use crate::statistics::ShardStatistics;
use crate::timer::ShardTimer;

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
    pub(crate) fn values_by_shard(&self) -> impl Iterator<Item = (String, String)> {
        self.shards.iter().enumerate().flat_map(|(at, counters)| {
            let value = move |row: &SysRow| {
                let topic = format!("$SYS/broker/shards/{at}/{}", row.topic);
                (topic, (row.value)(counters).to_string())
            };
            SYS_ROWS.iter().map(value)
        })
    }

    /// Returns the topics of rules or caches that were removed, to be cleared.
    fn removed_values(&self, of: &str, is_not: impl Fn(&str) -> bool) -> Vec<(String, String)> {
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
pub(crate) const RETAINED_SHARDS_MAX: usize = 16;

const VERSION: &str = concat!("godwit version ", env!("CARGO_PKG_VERSION"));

impl ShardStatistics {
    pub(crate) fn plan_sys(&mut self, after_ms: u64, sessions: &mut SessionTable) {
        if sessions.context.options.sys_interval_s > 0 {
            self.sys_at = MonotonicMs(sessions.context.now.0 + after_ms);
            sessions.context.timers.set(self.sys_at, ShardTimer::Sys);
        }
    }

    pub(crate) fn set_shard_counters(&mut self, from: ShardId, counters: ShardCounters) {
        if let Some(place) = self.sys_tree.shards.get_mut(usize::from(from.0)) {
            *place = counters;
        }
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
