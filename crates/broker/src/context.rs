//! What every part of a shard reads or needs a little of: the shard's number, the time of the input,
//! the options, timers, hashers and random numbers.

use crate::connection::process_pause::ProcessPause;
use crate::input::{MonotonicMs, ShardId};
use crate::options::BrokerOptions;
use crate::routing::owner_shard::ShardHasher;
use crate::timer::TimerWheel;
use foldhash::fast::FixedState;
use std::sync::Arc;

/// Number, time, options, timers and random numbers of a shard.
#[derive(Debug)]
pub(crate) struct ShardContext {
    pub(crate) id: ShardId,
    pub(crate) shards: usize,
    /// Time of the present input.
    pub(crate) now: MonotonicMs,
    pub(crate) options: Arc<BrokerOptions>,
    pub(crate) timers: TimerWheel,
    pub(crate) shard_hasher: ShardHasher,
    /// Hasher of client ids, for uses where a collision is harmless.
    pub(crate) clients: FixedState,
    pub(crate) random: u64,
    /// Difference between the time of day and `now` in milliseconds.
    pub(crate) time_of_day_offset_ms: i64,
    /// The value of `now` at the start, for the uptime.
    pub(crate) started: MonotonicMs,
    /// The last pause of the process (suspend, stopped container), which timeouts disregard.
    pub(crate) pause: ProcessPause,
    /// When withheld log events are reported next.
    pub(crate) event_flush_at: Option<MonotonicMs>,
}

impl ShardContext {
    /// `seed` is the same for all shards of a process; `chance` (random choices) differs.
    pub(crate) fn new(
        id: ShardId,
        shards: usize,
        options: Arc<BrokerOptions>,
        seed: u64,
        chance: u64,
        now: MonotonicMs,
    ) -> ShardContext {
        ShardContext {
            id,
            shards,
            now,
            options,
            timers: TimerWheel::new(now),
            shard_hasher: ShardHasher { key: seed.rotate_left(17), shards: shards as u8 },
            clients: FixedState::with_seed(seed.rotate_left(17)),
            random: chance | 1,
            time_of_day_offset_ms: 0,
            started: now,
            pause: ProcessPause::default(),
            event_flush_at: None,
        }
    }
}
