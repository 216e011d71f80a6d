//! The memory which the process holds for its clients, and its bound `memory_bytes_max`.
//!
//! A shard counts its own bytes in plain integers. When they have changed by `STEP` the shard adds
//! the difference to one atomic number of the process: no lock, and no write to a shared cache line
//! while memory is steady. A quarter of the option is for the sockets of the engine, counted apart.
//! An eighth is for uncounted memory: the allocator's overhead and buffers of a tick. The rest:
//!
//! | from | pressure | effect |
//! |--:|---|---|
//! | 8/16 | elevated | every queue counts as full, and no message is newly retained |
//! | 9/16 | high | 0x97 for new sessions, subscriptions, aliases, wills, large QoS > 0 messages |
//! | 10/16 | critical | all QoS 1 and 2 messages are refused with 0x97 |
//!
//! Each level has room beyond the one before, in the order of what hurts least: QoS 0 messages to
//! connected readers always continue, and small QoS 1 and 2 messages continue up to a small window
//! until the pressure is critical. So clients which fill the memory lose service, and light clients
//! do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Accounted memory of the process. Each shard adds the changes of its own memory.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    held: AtomicI64,
    /// The engine's part for sockets: partial packets and unsent output.
    sockets: AtomicI64,
    /// Number of delayed messages of all shards. Exact, unlike `held`, which moves in steps.
    delayed: AtomicU64,
    delayed_bytes: AtomicU64,
}

impl ProcessMemory {
    /// Counts a delayed message. Returns whether both bounds still hold, the message included.
    fn add_delayed(&self, bytes: u64, messages_max: u64, bytes_max: u64) -> bool {
        let messages = self.delayed.fetch_add(1, Relaxed) + 1;
        let bytes = self.delayed_bytes.fetch_add(bytes, Relaxed) + bytes;
        messages <= messages_max && bytes <= bytes_max
    }

    fn remove_delayed(&self, bytes: u64) {
        self.delayed.fetch_sub(1, Relaxed);
        self.delayed_bytes.fetch_sub(bytes, Relaxed);
    }
}

/// A shard's share of the accounted memory.
#[derive(Debug)]
pub(crate) struct MemoryLedger {
    process: Arc<ProcessMemory>,
    reported: i64,
    /// Bytes that the engine holds for this shard's sockets.
    pub(crate) sockets: i64,
    sockets_reported: i64,
    /// Bytes of messages sent to other shards minus bytes received: negative where more came in.
    pub(crate) crossing: i64,
    pub(crate) conns: u64,
    /// Bytes of writes which wait because the store refused them.
    pub(crate) parked: u64,
    /// Bytes that transports (TLS, WebSocket, QUIC) need in the engine.
    pub(crate) transports: u64,
    /// Bytes of the topics which clients have set an alias for.
    pub(crate) aliases: u64,
    /// Bytes of delayed messages, with their `cost::DELAYED`.
    pub(crate) delayed: u64,
}

/// Change in bytes after which a shard updates the process' number.
const STEP: i64 = 64 * 1024;

/// Memory of objects in addition to the bytes that clients sent, measured with `cargo bench -p
/// broker`: an entry in a slab which grows by doubling, indexes, and the allocator's overhead.
pub(crate) mod cost {

    pub(crate) const SESSION: u64 = 320;
    pub(crate) const SUBSCRIPTION: u64 = 48;
    pub(crate) const FILTER: u64 = 128;
    /// An exclusive subscription, in addition to its filter.
    pub(crate) const EXCLUSIVE: u64 = 160;
    pub(crate) const FILTER_NODE: u64 = 80;
    pub(crate) const RETAINED_NODE: u64 = 192;
    /// A retained topic with topics below it, in addition to `RETAINED_NODE`.
    pub(crate) const RETAINED_PARENT: u64 = 288;
    pub(crate) const MEMBER: u64 = 512;
    pub(crate) const KEPT: u64 = 64;
    pub(crate) const SLOT: u64 = 48;
    pub(crate) const DELAYED: u64 = 128;
    /// A message in a cache, in addition to its bytes.
    pub(crate) const CACHED: u64 = 64;
    pub(crate) const CACHED_TOPIC: u64 = 192;
}

/// Unacknowledged messages of a client while the pressure is elevated. Large messages (see
/// `SMALL_BYTES_MAX`) are limited in addition once the pressure is high.
pub(crate) const CROWDED_WINDOW: u16 = 16;
/// Bytes that a client may use even under memory pressure: a message in flight, aliases, a will.
pub(crate) const SMALL_BYTES_MAX: usize = 4 * 1024;

impl MemoryLedger {
    pub(crate) fn new(process: Arc<ProcessMemory>) -> MemoryLedger {
        MemoryLedger {
            process,
            reported: 0,
            sockets: 0,
            sockets_reported: 0,
            crossing: 0,
            parked: 0,
            conns: 0,
            transports: 0,
            aliases: 0,
            delayed: 0,
        }
    }

    /// Counts a delayed message. Returns `false`, and counts nothing, if it exceeds the bounds.
    pub(crate) fn add_delayed(&mut self, bytes: u64, most: (u64, u64)) -> bool {
        let has_room = self.process.add_delayed(bytes, most.0, most.1);
        match has_room {
            true => self.delayed += bytes,
            false => self.process.remove_delayed(bytes),
        }
        has_room
    }

    pub(crate) fn remove_delayed(&mut self, bytes: u64) {
        self.process.remove_delayed(bytes);
        self.delayed -= bytes;
    }

    /// Publishes the bytes of this shard's sockets and returns those of all shards.
    pub(crate) fn socket_bytes(&mut self) -> u64 {
        let held = add_moved(&self.process.sockets, &mut self.sockets_reported, self.sockets);
        held.max(0) as u64
    }

    /// Publishes this shard's memory and returns the sum of all shards.
    pub(crate) fn report_bytes(&mut self, own: i64) -> u64 {
        let held = add_moved(&self.process.held, &mut self.reported, own);
        held.max(0) as u64
    }
}

/// Adds a change of at least `STEP` to the process' number. Returns this number with the caller's
/// own part exact.
fn add_moved(process: &AtomicI64, told: &mut i64, own: i64) -> i64 {
    let moved = own - *told;
    if moved.abs() < STEP {
        return process.load(Relaxed) + moved;
    }
    *told = own;
    process.fetch_add(moved, Relaxed) + moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_tell_the_process_in_steps_and_take_back_what_they_told() {
        let process = Arc::new(ProcessMemory::default());
        let (mut one, mut two) =
            (MemoryLedger::new(process.clone()), MemoryLedger::new(process.clone()));
        assert_eq!(one.report_bytes(STEP - 1), STEP as u64 - 1);
        assert_eq!(two.report_bytes(0), 0, "less than a step is not told");
        assert_eq!(one.report_bytes(10 * STEP), 10 * STEP as u64);
        assert_eq!(two.report_bytes(STEP), 11 * STEP as u64);
        assert_eq!(one.report_bytes(0), STEP as u64);
        assert_eq!(two.report_bytes(0), 0);
        // Sent by one shard, received by the other.
        one.report_bytes(5 * STEP);
        assert_eq!(two.report_bytes(-5 * STEP), 0);
    }
}
