//! Caches: the last messages of the topics in a `[[cache]]` section, with or without RETAIN, for
//! clients which request them by `$cache/` (see `request`).
//!
//! One shard, by the hash of the cache's name, owns the whole cache, as with a shared group. So the
//! messages have one order, the bounds are exact, and a read involves one shard. Other shards send
//! their messages over the ring, from `Shard::retain_and_route`, which all messages of clients and
//! rules pass.

pub(crate) mod message_cache;
pub(crate) mod request;

use crate::interface::cache_message::{CacheRequest, CacheResponse, CacheShardMessage};
use crate::options::cache_config::CacheConfig;
pub use crate::options::cache_metrics::{CACHE_METRIC_ROWS, CacheMetricRow, CacheMetrics};
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;

use crate::ids::MonotonicMs;
use crate::interface::cache_message::CacheMatches;
use crate::interface::outbox::Outbox;
use crate::limits::{CACHE_STEPS_PER_READ, CURSOR_STEPS_PER_TURN};
use crate::message::{IncomingPublish, Message};
use crate::timer::ShardTimer;
use message_cache::MessageCache;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// The caches of a shard, and its requests to caches.
#[derive(Debug, Default)]
pub(crate) struct ShardCaches {
    /// Caches owned by this shard.
    caches: Vec<MessageCache>,
    /// Requests to this shard's caches which are not complete.
    reads: VecDeque<(Box<CacheRequest>, CacheMatches)>,
    /// Number of requests by clients of this shard without a response, bounded by
    /// `CACHE_READS_MAX`.
    pub(crate) unanswered: usize,
    timer_at: Option<MonotonicMs>,
}

/// Interval in which `expire_cached` removes old messages.
const AGED_EVERY_MS: u64 = 1000;
/// Topics which `expire_cached` removes per cache and interval.
const AGED_MAX: usize = 4096;

impl ShardCaches {
    /// Bytes of all caches of this shard.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.caches.iter().map(|kept| kept.bytes).sum()
    }

    /// Whether a request to this shard's caches is not complete, so that `next_tick` is due at
    /// once.
    pub(crate) fn has_requests(&self) -> bool {
        !self.reads.is_empty()
    }

    fn find_mut(&mut self, name: &str) -> Option<&mut MessageCache> {
        self.caches.iter_mut().find(|kept| *kept.cache.name == *name)
    }
}

impl ShardCaches {
    /// Applies new options. A cache with the same name keeps its messages, within the new filters
    /// and bounds.
    pub(crate) fn reload_caches(&mut self, sessions: &mut SessionTable) {
        let options = sessions.context.options.clone();
        let here =
            |cache: &&CacheConfig| sessions.context.owner_of(&cache.name) == sessions.context.id;
        let here: Vec<&CacheConfig> = options.caches.iter().filter(here).collect();
        let now = sessions.context.now;
        let caches = &mut *self;
        caches.caches.retain(|kept| here.iter().any(|cache| cache.name == kept.cache.name));
        for cache in here {
            match caches.find_mut(&cache.name) {
                Some(kept) if kept.cache == *cache => {}
                Some(kept) => kept.reconfigure(cache, now),
                None => caches.caches.push(MessageCache::new(cache.clone())),
            }
        }
        self.set_cache_timer(sessions);
    }

    /// Adds a routed message to each cache with a matching filter, here or at the cache's owner.
    #[cold]
    pub(crate) fn store_in_caches(
        &mut self,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let options = sessions.context.options.clone();
        for cache in options.caches.iter().filter(|cache| cache.matches_topic(draft.topic)) {
            let home = sessions.context.owner_of(&cache.name);
            let message = draft.message().clone();
            if home == sessions.context.id {
                self.insert_cached(&cache.name, message, sessions);
            } else if sessions.is_pressure_critical() {
                // A message in transit takes memory too.
                cache.metrics.missed.fetch_add(1, Relaxed);
            } else {
                let word = CacheShardMessage::Insert { cache: cache.name.clone(), message };
                sessions.send_cache_message(home, word, out);
            }
        }
    }

    pub(crate) fn on_cache_message(
        &mut self,
        word: CacheShardMessage,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        sessions.ledger.crossing -= word.bytes();
        match word {
            CacheShardMessage::Insert { cache, message } => {
                self.insert_cached(&cache, message, sessions)
            }
            CacheShardMessage::Response(found) => {
                self.send_cache_replies(found, routing, sessions, out)
            }
            CacheShardMessage::Request(read) => {
                self.queue_cache_request(read, routing, sessions, out)
            }
        }
    }

    /// Adds a message at the owner of the cache. Messages for a removed cache are ignored.
    fn insert_cached(&mut self, name: &str, message: Message, sessions: &mut SessionTable) {
        let (now, may_grow) = (sessions.context.now, !sessions.is_pressure_elevated());
        if let Some(kept) = self.find_mut(name) {
            kept.put(message, now, may_grow);
            self.set_cache_timer(sessions);
        }
    }

    fn set_cache_timer(&mut self, sessions: &mut SessionTable) {
        let caches = &mut *self;
        if caches.timer_at.is_none() && caches.caches.iter().any(MessageCache::expires_messages) {
            let at = MonotonicMs(sessions.context.now.0 + AGED_EVERY_MS);
            caches.timer_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::Caches);
        }
    }

    /// Removes old messages from all caches of this shard.
    pub(crate) fn expire_cached(&mut self, sessions: &mut SessionTable) {
        self.timer_at = None;
        let now = sessions.context.now;
        for kept in self.caches.iter_mut().filter(|kept| kept.expires_messages()) {
            kept.drop_aged(now, AGED_MAX);
        }
        self.set_cache_timer(sessions);
    }

    /// Queues a request for a cache of this shard.
    pub(crate) fn queue_cache_request(
        &mut self,
        read: Box<CacheRequest>,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        self.reads.push_back((read, CacheMatches::default()));
        self.continue_cache_requests(routing, sessions, out);
    }

    /// Continues the requests in turn, `CACHE_STEPS_PER_READ` steps each, within the steps of this
    /// turn.
    pub(crate) fn continue_cache_requests(
        &mut self,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        while out.cursor_steps < CURSOR_STEPS_PER_TURN
            && !out.is_full()
            && let Some((read, mut gathered)) = self.reads.pop_front()
        {
            let now = sessions.context.now;
            let most = CACHE_STEPS_PER_READ.min(CURSOR_STEPS_PER_TURN - out.cursor_steps);
            let mut left = most;
            let kept = self.find_mut(&read.cache);
            let is_there = kept.is_some();
            let is_done = kept.is_none_or(|kept| {
                kept.collect_matches(&read.wanted, &mut gathered, now, &mut left)
            });
            // Starting the search is work too.
            out.cursor_steps += most - left + 1;
            if !is_done {
                self.reads.push_back((read, gathered));
                continue;
            }
            if let Some(kept) = self.find_mut(&read.cache) {
                kept.cache.metrics.reads.fetch_add(1, Relaxed);
            }
            self.answer_cache_request(
                CacheResponse { read, gathered, is_there },
                routing,
                sessions,
                out,
            );
        }
    }

    fn answer_cache_request(
        &mut self,
        found: CacheResponse,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let home = found.read.asker.shard;
        if home == sessions.context.id {
            return self.send_cache_replies(found, routing, sessions, out);
        }
        sessions.send_cache_message(home, CacheShardMessage::Response(found), out);
    }
}

impl CacheMetrics {
    /// Returns the size of the cache as `bytes_max` counts it.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Topics below `$SYS/broker/cache/{name}/` and their values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CACHE_METRIC_ROWS.iter().map(|row| (row.topic, (row.value)(self)))
    }
}
