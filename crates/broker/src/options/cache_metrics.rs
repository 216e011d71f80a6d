//! Metrics of caches, published below `$SYS/broker/cache/`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of a cache. The owner shard updates them, and any shard that loses a message for the
/// cache.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    pub(crate) topics: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) reads: AtomicU64,
}

/// A value below `$SYS/broker/cache/{name}/`.
pub struct CacheMetricRow {
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&CacheMetrics) -> u64,
}

pub const CACHE_METRIC_ROWS: &[CacheMetricRow] = &[
    CacheMetricRow {
        topic: "bytes",
        about: "bytes of what it keeps, as `bytes_max` counts them",
        value: |metrics| metrics.bytes.load(Relaxed),
    },
    CacheMetricRow {
        topic: "evicted",
        about: "messages that went because of `topics_max`, `bytes_max` or a crowded memory",
        value: |metrics| metrics.evicted.load(Relaxed),
    },
    CacheMetricRow {
        topic: "messages",
        about: "messages that it keeps",
        value: |metrics| metrics.messages.load(Relaxed),
    },
    CacheMetricRow {
        topic: "missed",
        about: "messages of other shards that it did not get, because the memory was full",
        value: |metrics| metrics.missed.load(Relaxed),
    },
    CacheMetricRow {
        topic: "reads",
        about: "requests that it has answered",
        value: |metrics| metrics.reads.load(Relaxed),
    },
    CacheMetricRow {
        topic: "topics",
        about: "topics of which it keeps messages",
        value: |metrics| metrics.topics.load(Relaxed),
    },
];
