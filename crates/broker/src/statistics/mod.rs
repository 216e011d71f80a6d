//! Statistics: counters, `$SYS` topics, events for the log and traces of clients.

pub mod broker_event;
pub mod log_rate_limiter;
pub mod sys;
pub(crate) mod trace;

use crate::input::MonotonicMs;
use sys::SysTree;
use trace::PacketTracer;

/// The `$SYS` tree and the traces of clients.
#[derive(Debug)]
pub(crate) struct ShardStatistics {
    pub(crate) sys_tree: SysTree,
    /// When the next `$SYS` round is due.
    pub(crate) sys_at: MonotonicMs,
    pub(crate) tracer: PacketTracer,
}

impl ShardStatistics {
    pub(crate) fn new(now: MonotonicMs) -> ShardStatistics {
        ShardStatistics {
            sys_tree: SysTree::default(),
            sys_at: now,
            tracer: PacketTracer::default(),
        }
    }
}
