//! The sockets of a shard by their index, which is the number of the connection: where they are
//! registered, which of them are read next, and how much memory they hold.

use crate::socket::Socket;
use crate::socket_registry::SocketRegistry;
use broker::MonotonicMs;
use std::collections::VecDeque;

pub(crate) struct SocketTable {
    /// The poller where the sockets are registered now.
    registry: SocketRegistry,
    sockets: Vec<Option<Socket>>,
    free: Vec<u32>,
    /// Slots free once the outbox of this turn is performed: until then an effect may still name
    /// them.
    freed: Vec<u32>,
    /// Sockets to read in the next turn, independent of the poller.
    listed: Vec<u32>,
    /// Publishing sockets, whose events are handled last in a turn.
    publishers: VecDeque<u32>,
    /// Closed sockets whose peers have not finished, with the time of the forced drop. The entry of
    /// a socket dropped earlier stays until then.
    lingering: VecDeque<(MonotonicMs, u32)>,
    /// Sum of [`Socket::counted_bytes`].
    held_bytes: usize,
}

/// Number of sockets above which a worker thread keeps its shard: moving more would stop both
/// threads for milliseconds.
const MOVED_BACK_MAX: usize = 8 * 1024;
/// Number of sockets of a shard above which the heap is trimmed after the last one has ended.
const MANY_CONNECTIONS: usize = 1_000;

impl SocketTable {
    pub(super) fn new(registry: SocketRegistry) -> SocketTable {
        SocketTable {
            registry,
            sockets: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            listed: Vec::new(),
            publishers: VecDeque::new(),
            lingering: VecDeque::new(),
            held_bytes: 0,
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Socket> {
        self.sockets.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn registry(&self) -> &SocketRegistry {
        &self.registry
    }

    /// Stores the socket in a free slot and registers it with the poller. Returns `None` if the
    /// poller refuses.
    pub(super) fn insert(&mut self, mut socket: Socket) -> Option<u32> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() as u32 - 1
        });
        if self.registry.register(&mut socket, index).is_err() {
            self.free.push(index);
            return None;
        }
        self.sockets[index as usize] = Some(socket);
        Some(index)
    }

    /// Takes a socket out of the table and of its poller. The slot is free at the end of the turn.
    pub(super) fn remove(&mut self, index: u32) -> Option<Socket> {
        let mut socket = self.sockets.get_mut(index as usize)?.take()?;
        self.registry.deregister(&mut socket);
        self.freed.push(index);
        self.held_bytes -= socket.counted_bytes() as usize;
        Some(socket)
    }

    /// Takes the socket out of its poller, to replace its stream.
    pub(super) fn deregister(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            self.registry.deregister(socket);
        }
    }

    /// Registers the new stream of a socket. Returns whether the poller has accepted it.
    pub(super) fn register_again(&mut self, index: u32) -> bool {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return false };
        self.registry.register(socket, index).is_ok()
    }

    /// Watches a socket for writability, if not watched yet.
    pub(super) fn watch_writable(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize)
            && socket.start_watching()
        {
            self.registry.watch_writable(socket, index);
        }
    }

    /// Moves all sockets from their poller to another. The new poller reports ready sockets again.
    /// Returns the sockets which the new poller refuses.
    pub(super) fn move_to_poller(&mut self, registry: SocketRegistry) -> Vec<u32> {
        let from = std::mem::replace(&mut self.registry, registry);
        let mut broken = Vec::new();
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let Some(socket) = socket else { continue };
            from.deregister(socket);
            if self.registry.register(socket, index as u32).is_err() {
                broken.push(index as u32);
            }
        }
        broken
    }

    /// Whether no socket is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.sockets.len() == self.free.len() + self.freed.len()
    }

    /// Whether a move to another poller would take long: every socket costs two calls.
    pub(super) fn has_many_sockets(&self) -> bool {
        self.sockets.len() - self.free.len() > MOVED_BACK_MAX
    }

    /// Frees the slots of connections ended in this turn. After the last connection all tables are
    /// freed. Returns whether a crowd of connections has ended.
    pub(super) fn free_slots(&mut self) -> bool {
        self.free.append(&mut self.freed);
        if self.free.len() < self.sockets.len() {
            return false;
        }
        let was_crowd = self.sockets.len() > MANY_CONNECTIONS;
        self.sockets = Vec::new();
        self.free = Vec::new();
        was_crowd
    }

    /// Lists a socket, to be read in the next turn.
    #[inline]
    pub(super) fn list(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize)
            && socket.start_listing()
        {
            self.listed.push(index);
        }
    }

    pub(super) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    pub(super) fn take_listed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.listed)
    }

    /// Queues a publishing socket, to be read after all other sockets of the turn.
    #[inline]
    pub(super) fn queue_publisher(&mut self, index: u32) {
        self.publishers.push_back(index);
    }

    #[inline]
    pub(super) fn next_publisher(&mut self) -> Option<u32> {
        self.publishers.pop_front()
    }

    pub(super) fn has_publishers(&self) -> bool {
        !self.publishers.is_empty()
    }

    /// Lets a closed socket linger until `at`, in the order of the calls.
    pub(super) fn linger(&mut self, index: u32, at: MonotonicMs) {
        if let Some(socket) = self.get_mut(index) {
            socket.linger_until(at);
            self.lingering.push_back((at, index));
        }
    }

    /// Time of the next forced drop.
    pub(super) fn next_linger_end(&self) -> Option<MonotonicMs> {
        self.lingering.front().map(|(at, _)| *at)
    }

    /// Returns the next lingering socket whose time has passed.
    pub(super) fn next_lingered(&mut self, now: MonotonicMs) -> Option<u32> {
        while let Some(&(at, index)) = self.lingering.front()
            && at <= now
        {
            self.lingering.pop_front();
            if self.get(index).is_some_and(|socket| socket.lingers_until(at)) {
                return Some(index);
            }
        }
        None
    }

    /// Memory held by the sockets: partial packets, and output that peers do not read.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Updates the counted bytes of a socket after a change. Returns whether they have grown, or
    /// `None` if they are the same.
    #[inline]
    pub(super) fn count_bytes(&mut self, index: u32, now: MonotonicMs) -> Option<bool> {
        let (before, held) = self.get_mut(index)?.recount_bytes(now)?;
        self.held_bytes = self.held_bytes + held as usize - before as usize;
        Some(held > before)
    }

    /// Returns the sockets which hold bytes because of their peers, those stuck longest first.
    pub(super) fn stuck_sockets(&self) -> Vec<u32> {
        let sockets = self.sockets.iter().enumerate();
        let stuck = sockets.filter_map(|(at, socket)| Some((socket.as_ref()?.stuck_since()?, at)));
        let mut stuck: Vec<_> = stuck.collect();
        stuck.sort_unstable();
        stuck.into_iter().map(|(_, at)| at as u32).collect()
    }
}
