//! Memory that a burst made large and that is no longer needed: rings, lanes, the buffers of a
//! turn, and the heap below them. A shard that has done little work for `RELEASE_MS` gives it back.

use crate::heap;
use broker::MonotonicMs;

/// When to look for memory to give back, and how busy the shard was since the last look.
#[derive(Debug, Default)]
pub(crate) struct BurstRelease {
    /// Time of the next look; `None` while every buffer is small.
    at: Option<MonotonicMs>,
    /// Turns and deliveries since the last look, compared with `WORK_MAX`.
    work: usize,
    /// Whether a burst of connections has ended whose memory is still allocated.
    has_memory_to_trim: bool,
    /// Earliest time of the next trim of the heap.
    trim_after: MonotonicMs,
}

/// Window in milliseconds over which the work of a shard is watched before memory is given back.
const RELEASE_MS: u64 = 5_000;
/// Turns and deliveries in [`RELEASE_MS`] above which a shard counts as busy and keeps its memory.
const WORK_MAX: usize = 2_000;
/// Shortest interval in milliseconds between two trims of the heap.
const TRIM_INTERVAL_MS: u64 = 10_000;

impl BurstRelease {
    /// Earliest time at which the shard has to look or trim.
    pub(crate) fn next_at(&self) -> Option<MonotonicMs> {
        let trim = self.has_memory_to_trim.then_some(self.trim_after);
        self.at.into_iter().chain(trim).min()
    }

    pub(crate) fn count_work(&mut self, work: usize) {
        self.work += work;
    }

    /// Plans a look if a buffer has become large and none is planned.
    pub(crate) fn watch(&mut self, now: MonotonicMs) {
        self.at.get_or_insert(MonotonicMs(now.0 + RELEASE_MS));
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.at.is_some()
    }

    /// Whether the planned look is due.
    pub(crate) fn is_due(&self, now: MonotonicMs) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Whether the shard was busy since the last look, and so keeps its memory.
    pub(crate) fn take_is_busy(&mut self) -> bool {
        std::mem::take(&mut self.work) > WORK_MAX
    }

    /// Ends a look: plans the next one if buffers are still large, and a trim otherwise.
    pub(crate) fn end_look(&mut self, now: MonotonicMs, is_large: bool) {
        self.at = is_large.then_some(MonotonicMs(now.0 + RELEASE_MS));
        self.has_memory_to_trim |= !is_large;
    }

    /// Plans a trim of the heap after a burst of connections.
    pub(crate) fn plan_trim(&mut self) {
        self.has_memory_to_trim = true;
    }

    /// Trims the heap if a trim is planned. The allocator's locks are held for milliseconds and
    /// other shards may wait for the locks, so [`TRIM_INTERVAL_MS`] has to pass between two calls.
    pub(crate) fn trim_memory(&mut self, now: MonotonicMs) {
        if self.has_memory_to_trim && now >= self.trim_after {
            self.has_memory_to_trim = false;
            self.trim_after = MonotonicMs(now.0 + TRIM_INTERVAL_MS);
            heap::trim_heap();
        }
    }
}
