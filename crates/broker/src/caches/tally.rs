//! What is in a cache and what became of the rest, below `$SYS/broker/cache/`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One cache in numbers. Its home keeps them up, and whoever loses a message for it.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) topics: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) reads: AtomicU64,
}

/// One value below `$SYS/broker/cache/{name}/`.
pub struct TallyRow {
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&Tally) -> u64,
}

pub const TALLY_ROWS: &[TallyRow] = &[
    TallyRow {
        topic: "bytes",
        about: "bytes of what it keeps, as `bytes_max` counts them",
        value: |tally| tally.bytes.load(Relaxed),
    },
    TallyRow {
        topic: "evicted",
        about: "messages that went because of `topics_max`, `bytes_max` or a crowded memory",
        value: |tally| tally.evicted.load(Relaxed),
    },
    TallyRow {
        topic: "messages",
        about: "messages that it keeps",
        value: |tally| tally.messages.load(Relaxed),
    },
    TallyRow {
        topic: "missed",
        about: "messages of other shards that it did not get, because the memory was full",
        value: |tally| tally.missed.load(Relaxed),
    },
    TallyRow {
        topic: "reads",
        about: "requests that it has answered",
        value: |tally| tally.reads.load(Relaxed),
    },
    TallyRow {
        topic: "topics",
        about: "topics of which it keeps messages",
        value: |tally| tally.topics.load(Relaxed),
    },
];
