//! Memory that a burst made large and that is no longer needed: rings, lanes and the buffers of a
//! turn. A shard that has done little work for `RELEASE_MS` gives it back.

use crate::shard_driver::ShardDriver;
use broker::MonotonicMs;

/// State of [`ShardDriver::release_burst_memory`]: when to look, and how busy the shard was since.
#[derive(Debug, Default)]
pub(crate) struct BurstRelease {
    /// Time of the next look; `None` while every buffer is small.
    pub(crate) at: Option<MonotonicMs>,
    /// Turns and deliveries since the last look, compared with `WORK_MAX`.
    pub(crate) work: usize,
}

/// Window in milliseconds over which the work of a shard is watched before memory is given back.
pub(crate) const RELEASE_MS: u64 = 5_000;
/// Turns and deliveries in [`RELEASE_MS`] above which a shard counts as busy and keeps its memory.
const WORK_MAX: usize = 2_000;
/// Capacity of an outbox lane, in messages, up to which the lane keeps its memory.
pub(crate) const LANE_KEPT: usize = 64;
/// Capacity in bytes up to which the buffers of a turn stay allocated.
const BUFFER_KEPT: usize = 64 * 1024;

impl ShardDriver {
    /// Runs after a turn, when the buffers are empty. Frees large buffers if the last
    /// [`RELEASE_MS`] had little work, and otherwise sets the time of the next look.
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
        // A ring that was needed since the last look stays, and is looked at once more.
        let is_large = is_busy || self.rings.are_grown() || self.out.is_large(LANE_KEPT);
        self.release.at = is_large.then_some(MonotonicMs(self.now.0 + RELEASE_MS));
        self.has_memory_to_trim |= !is_large;
    }
}
