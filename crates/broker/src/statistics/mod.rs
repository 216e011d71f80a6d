//! Statistics: counters, `$SYS` topics, events for the log and traces of clients.

pub(crate) mod sys_tree;
pub(crate) mod trace;

use crate::ids::MonotonicMs;
use crate::statistics::sys_tree::SysTree;
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
