//! Memory that a burst made large and that nobody needs any more: rings, what waits for them, and
//! the buffers of a turn. A shard that has done little for a while gives it back.

use crate::shard_driver::ShardDriver;
use broker::MonotonicMs;

/// Since when a shard may have something to give back.
#[derive(Debug, Default)]
pub(crate) struct BurstRelease {
    /// When it is looked at; none while everything is small.
    pub(crate) at: Option<MonotonicMs>,
    /// Turns and deliveries since the last look.
    pub(crate) work: usize,
}

/// Window over which a shard's use is watched before memory is given back.
pub(crate) const RELEASE_MS: u64 = 5_000;
/// A shard that did more in this time goes on as it is.
const WORK_MAX: usize = 2_000;
/// A lane with room for no more than this stays.
pub(crate) const LANE_KEPT: usize = 64;
/// Buffers up to this size stay.
const BUFFER_KEPT: usize = 64 * 1024;

impl ShardDriver {
    /// After a turn, whose buffers are empty.
    pub(crate) fn release_burst_memory(&mut self) {
        let Some(at) = self.release.at else {
            if self.out.arena.capacity() > BUFFER_KEPT || self.gathered.capacity() > BUFFER_KEPT {
                self.release.at = Some(MonotonicMs(self.now.0 + RELEASE_MS));
            }
            return;
        };
        if self.now < at {
            return;
        }
        let is_busy = std::mem::take(&mut self.release.work) > WORK_MAX;
        if !is_busy {
            self.rings.shrink();
            self.out.free_buffers(LANE_KEPT);
            self.gathered = Vec::new();
            self.plain = Vec::new();
        }
        // A ring that was needed since the last look is looked at once more.
        let is_large = is_busy || self.rings.are_grown() || self.out.is_large(LANE_KEPT);
        self.release.at = is_large.then_some(MonotonicMs(self.now.0 + RELEASE_MS));
        self.has_memory_to_trim |= !is_large;
    }
}
