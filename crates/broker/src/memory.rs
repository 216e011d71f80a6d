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

use crate::connection::connection_table::ConnectionTable;
use crate::input::ConnId;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
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
    sockets: i64,
    sockets_reported: i64,
    /// Bytes of messages sent to other shards minus bytes received: negative where more came in.
    pub(crate) crossing: i64,
    pub(crate) conns: u64,
    /// Bytes of writes which wait because the store refused them.
    parked: u64,
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
    use crate::connection::conn::Conn;
    use crate::limits;
    use crate::timer::TimerWheel;

    /// A connection with its timer and the engine's socket.
    pub(crate) const CONN: u64 =
        (size_of::<Option<Conn>>() + TimerWheel::TIMER_BYTES + limits::SOCKET_BYTES) as u64;
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

    /// Publishes this shard's memory and returns the sum of all shards.
    fn report_bytes(&mut self, own: i64) -> u64 {
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

impl Shard {
    /// Returns the memory of this shard without its sockets, from counters which are kept up to
    /// date.
    fn memory_bytes(&self) -> i64 {
        let (sessions, ledger) = (&self.sessions, &self.sessions.ledger);
        let retained = self.routing.retained.bytes / self.sessions.context.shards as u64
            + self.routing.retained.index_bytes();
        let held = sessions.messages.memory_bytes()
            + sessions.memory_bytes()
            + self.routing.topics.memory_bytes()
            + self.routing.groups.memory_bytes()
            + self.routing.exclusives.memory_bytes()
            + self.rule_engine.windows.memory_bytes()
            + self.caches.memory_bytes()
            + retained
            + ledger.conns * cost::CONN
            + ledger.parked
            + ledger.transports
            + ledger.aliases
            + ledger.delayed;
        held as i64 + ledger.crossing
    }

    /// Compares the memory of the process with its bound and sets the three pressure levels.
    #[inline]
    pub(crate) fn update_memory_pressure(&mut self) {
        let own = self.memory_bytes();
        let held = self.sessions.ledger.report_bytes(own);
        let max = self.sessions.context.options.memory_bytes_max;
        let messages = self.sessions.messages.memory_bytes();
        // As bytes of messages, since only messages grow within one publish.
        let at = |sixteenths: u64| (messages + max / 16 * sixteenths).saturating_sub(held);
        self.sessions.elevated_at = at(8);
        self.sessions.high_at = at(9);
        self.sessions.critical_at = at(10);
    }

    /// Sets the memory that the engine holds for this shard's sockets.
    pub fn set_socket_bytes(&mut self, bytes: usize) {
        self.sessions.ledger.sockets = bytes as i64;
    }

    /// Sets the bytes of writes which the store refused and the engine keeps.
    pub fn set_store_backlog_bytes(&mut self, bytes: usize) {
        self.sessions.ledger.parked = bytes as u64;
    }

    /// Whether the sockets hold more than their quarter of the bound. Output then waits in the
    /// session's queue, not in a socket.
    pub fn are_sockets_over_budget(&mut self) -> bool {
        self.sessions.socket_bytes() >= self.sessions.context.options.memory_bytes_max / 4
    }

    /// Returns how many socket bytes this shard must free to bring all sockets down to 7/8 of their
    /// bound. A shard whose sockets hold less than its share frees none.
    pub fn socket_bytes_excess(&mut self) -> usize {
        let bound = self.sessions.context.options.memory_bytes_max / 4;
        let (all, own) = (self.sessions.socket_bytes(), self.sessions.ledger.sockets.max(0) as u64);
        if all < bound {
            return 0;
        }
        (all - bound / 8 * 7).min(own.saturating_sub(bound / self.sessions.context.shards as u64))
            as usize
    }
}

impl SessionTable {
    fn socket_bytes(&mut self) -> u64 {
        let ledger = &mut self.ledger;
        let held = add_moved(&ledger.process.sockets, &mut ledger.sockets_reported, ledger.sockets);
        held.max(0) as u64
    }
}

impl ConnectionTable {
    /// Subtracts a closed connection and all its memory.
    pub(crate) fn uncount_conn(&mut self, conn: ConnId, sessions: &mut SessionTable) {
        if let Some(known) = self.conn(conn) {
            let transport_bytes = known.peer.transport_bytes;
            sessions.ledger.aliases -= u64::from(known.alias_bytes);
            sessions.ledger.transports -= u64::from(transport_bytes);
            sessions.ledger.conns -= 1;
        }
    }
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
