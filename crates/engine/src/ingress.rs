//! Input of a shard from the network: new connections, and their bytes as far as the shard takes
//! them.

use crate::poll_token::{LISTENER_FIRST, socket_token, split_token};
use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use broker::{BrokerEvent, ConnId, Effect, MonotonicMs, PeerInfo, ShardInput, limits};
use mio::Interest;
use std::io;

const PUBLISHERS_AT_ONCE: usize = 64;
/// Rounds over all listeners in one call of `accept_connections`.
const ACCEPTS_PER_TICK: usize = 256;
/// Pause in milliseconds after accepting failed, for instance for lack of descriptors or memory.
const ACCEPT_PAUSE_MS: u64 = 1_000;
/// Number of sockets of a shard above which the heap is trimmed after the last one has ended.
const MANY_CONNECTIONS: usize = 1_000;
/// Shortest interval in milliseconds between two trims of the heap.
const TRIM_INTERVAL_MS: u64 = 10_000;
/// Tail length up to which the tail is copied in front of the next read; a longer tail is read
/// into.
pub(crate) const TAIL_COPIED_MAX: usize = 16 * 1024;

impl ShardDriver {
    pub(crate) fn accept_connections(&mut self) {
        // Connections that move to other shards wait for room in the rings like every other item.
        if self.now < self.accept_pause.until || !self.pending_items.is_empty() {
            return;
        }
        if !self.admit_waiting() {
            return;
        }
        for _ in 0..ACCEPTS_PER_TICK {
            let mut any = false;
            self.accept_pause.rate_until = None;
            for at in 0..self.listeners.len() {
                if let Some(until) = self.accepts_again_at(at) {
                    let again = &mut self.accept_pause.rate_until;
                    *again = Some(again.map_or(until, |first| first.min(until)));
                    continue;
                }
                match self.listeners[at].accept() {
                    Ok((stream, address)) => {
                        any = true;
                        if !self.admit_below_ceiling(at, stream, address) {
                            return;
                        }
                    }
                    Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
                    // The peer gave up while it waited: try the next connection.
                    Err(fault) if fault.kind() == io::ErrorKind::ConnectionAborted => any = true,
                    Err(fault) => {
                        self.accept_pause.until = MonotonicMs(self.now.0 + ACCEPT_PAUSE_MS);
                        return (self.log)(&BrokerEvent::AcceptFailed {
                            fault: fault.to_string().into(),
                        });
                    }
                }
            }
            if !any {
                return self.finish_accepting();
            }
        }
    }

    /// Registers the socket, and reports the connection and the bytes already read to the broker.
    pub(crate) fn open_connection(&mut self, socket: Socket, peer: PeerInfo, moved: bool) {
        let has_tail = !socket.tail.is_empty();
        let Some(index) = self.register_socket(socket) else { return };
        let (conn, since) = (ConnId(index), self.now);
        self.shard.handle(self.now, ShardInput::Opened { conn, peer, since, moved }, &mut self.out);
        if has_tail {
            self.consume_tail(index);
        }
    }

    /// Stores the socket in a free slot and registers it with the poller. Returns `None` if the
    /// poller refuses.
    pub(crate) fn register_socket(&mut self, mut socket: Socket) -> Option<u32> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() as u32 - 1
        });
        let token = socket_token(self.id, index as usize);
        if self.registry.register(&mut socket.stream, token, Interest::READABLE).is_err() {
            self.free.push(index);
            return None;
        }
        if let Some(connection) = socket.stream.quic_connection() {
            self.set_control_socket(index, connection);
        }
        let waits = socket.unsent_len() > 0;
        self.sockets[index as usize] = Some(socket);
        if waits {
            self.wait_for_room(index);
        }
        Some(index)
    }

    pub(crate) fn dispatch_event(&mut self, event: &mio::event::Event) {
        let (shard, index) = split_token(event.token());
        if shard != usize::from(self.id.0) {
            return;
        }
        if index >= LISTENER_FIRST {
            if self.quic.as_mut().is_some_and(|quic| quic.mark_readable(index - LISTENER_FIRST)) {
                return self.read_datagrams();
            }
            self.has_accepts = true;
            return self.accept_connections();
        }
        let index = index as u32;
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.peer_closed |= event.is_read_closed() || event.is_error();
        let publishes = socket.is_publisher;
        if event.is_writable() && socket.unsent_len() > 0 {
            self.resend_unsent(index);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if publishes {
                self.publishers.push_back(index);
            } else {
                self.read_socket(index);
            }
        }
    }

    /// Reads publishers after all other sockets, so messages published meanwhile leave in the same
    /// turn. Reads at most [`PUBLISHERS_AT_ONCE`] per call: messages to other shards leave while
    /// the cache has them.
    pub(crate) fn read_publishers(&mut self) {
        for _ in 0..PUBLISHERS_AT_ONCE {
            let Some(index) = self.publishers.pop_front() else { break };
            self.read_socket(index);
        }
    }

    /// Reads once and delivers the bytes, unless the socket is held, congested or out of memory.
    pub(crate) fn read_socket(&mut self, index: u32) {
        let blocked = self.blocked;
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_lingering() {
            return self.discard_input(index);
        }
        // A peer that does not read our answers is not read either; it is listed again once all is
        // sent. Its pings are read for longer than messages are sent to it.
        if socket.held
            || socket.out_of_memory
            || socket.congested.is_some_and(|max| socket.unsent_len() > max.get() as usize)
        {
            if socket.held && socket.peer_closed {
                self.end_abandoned(index);
            }
            return;
        }
        if blocked || self.out.is_full() {
            return self.list_socket(index);
        }
        if socket.has_unread_tail {
            socket.has_unread_tail = false;
            self.list_socket(index);
            return self.consume_tail(index);
        }
        if socket.stack.is_some() {
            return self.read_through_stack(index);
        }
        let tail_len = socket.tail.len();
        if tail_len > TAIL_COPIED_MAX {
            return self.read_into_tail(index);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let tail = std::mem::take(&mut socket.tail);
        buffer[..tail_len].copy_from_slice(&tail);
        let room = tail_len + limits::READ_BYTES_PER_TICK;
        match socket.receive(&mut buffer[tail_len..room]) {
            Ok(Some(0)) | Err(_) => self.drop_lost_connection(index),
            Ok(None) if socket.peer_closed => self.drop_lost_connection(index),
            Ok(None) => socket.tail = tail,
            Ok(Some(read)) => {
                let len = tail_len + read;
                let ends = socket.peer_closed;
                self.deliver_bytes(index, &buffer[..len]);
                if len == room || ends {
                    self.list_socket(index);
                }
            }
        }
        self.buffer = buffer;
    }

    /// Reads into the tail of a large packet. The buffer at most doubles per read, so its size
    /// follows the bytes received and not the announced length.
    fn read_into_tail(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let have = socket.tail.len();
        let mut tail = std::mem::take(&mut socket.tail);
        let missing = mqtt::expected_len(&tail).map_or(0, |len| len.saturating_sub(have));
        let more = missing.clamp(1, have.max(limits::READ_BYTES_PER_TICK));
        tail.resize(have + more, 0);
        match socket.receive(&mut tail[have..]) {
            Ok(Some(0)) | Err(_) => self.drop_lost_connection(index),
            Ok(None) if socket.peer_closed => self.drop_lost_connection(index),
            Ok(None) => {
                tail.truncate(have);
                socket.tail = tail;
            }
            Ok(Some(read)) => {
                tail.truncate(have + read);
                if read < missing {
                    self.keep_partial_packet(index, tail);
                } else {
                    self.deliver_bytes(index, &tail);
                }
                self.list_socket(index);
            }
        }
    }

    /// Keeps a partial packet. The shard also gets the bytes: it consumes none of them, but counts
    /// the sender as alive [MQTT-3.1.2-22].
    pub(crate) fn keep_partial_packet(&mut self, index: u32, part: Vec<u8>) {
        let input = ShardInput::Bytes { conn: ConnId(index), bytes: &part };
        self.shard.handle(self.now, input, &mut self.out);
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            socket.tail = part;
            self.count_socket_bytes(index);
        }
    }

    fn consume_tail(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let tail = std::mem::take(&mut socket.tail);
        self.deliver_bytes(index, &tail);
    }

    pub(crate) fn deliver_bytes(&mut self, index: u32, bytes: &[u8]) {
        if self.rings.has_input() {
            self.take_ring_items();
        }
        let conn = ConnId(index);
        let before = self.out.deliveries;
        let decided = self.out.effects.len();
        self.shard.handle(self.now, ShardInput::Bytes { conn, bytes }, &mut self.out);
        let publishes = self.out.deliveries > before;
        let left = &bytes[self.out.consumed..];
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        // The shard no longer knows the connection, and would take bytes of a second read for those
        // of an ended connection. The owner shard reads on.
        if matches!(self.out.effects.get(decided), Some(Effect::Move { .. })) {
            socket.held = true;
        }
        self.work += self.out.consumed as u64;
        if self.out.consumed > 0 {
            socket.stuck_since = self.now;
        }
        socket.is_publisher = publishes;
        socket.tail = left.to_vec();
        self.count_socket_bytes(index);
        if left.is_empty() {
            return;
        }
        if self.out.is_full() {
            self.resume_later(index);
        }
    }

    /// Marks the tail as possibly holding whole packets, which are consumed before new bytes are
    /// read.
    pub(crate) fn resume_later(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            socket.has_unread_tail = true;
            self.list_socket(index);
        }
    }

    /// Handles a failed write: the peer has gone, but unread bytes, such as a DISCONNECT, are still
    /// read.
    pub(crate) fn end_writes(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.held || socket.out_of_memory || socket.stream.quic_connection().is_some() {
            return self.drop_lost_connection(index);
        }
        socket.drop_unsent();
        socket.peer_closed = true;
        self.list_socket(index);
    }

    /// Reports the end of a connection to the shard and drops the socket.
    pub(crate) fn drop_lost_connection(&mut self, index: u32) {
        self.shard.handle(self.now, ShardInput::Closed { conn: ConnId(index) }, &mut self.out);
        self.drop_socket(index);
    }

    pub(crate) fn drop_socket(&mut self, index: u32) {
        self.pending_auth.cancel(index);
        if let Some(place) = self.sockets.get_mut(index as usize)
            && let Some(mut socket) = place.take()
        {
            let _ = self.registry.deregister(&mut socket.stream);
            self.freed.push(index);
            self.uncount_socket_bytes(&socket);
            if let Some(connection) = socket.stream.quic_connection() {
                self.release_quic_stream(index, connection);
            }
            self.give_back_relay(socket);
        }
    }

    /// Frees the slots of connections ended in this turn. After the last connection all tables are
    /// freed.
    pub(crate) fn free_slots(&mut self) {
        self.free.append(&mut self.freed);
        if self.free.len() < self.sockets.len() {
            return;
        }
        let was_crowd = self.sockets.len() > MANY_CONNECTIONS;
        self.sockets = Vec::new();
        self.free = Vec::new();
        if was_crowd {
            self.has_memory_to_trim = true;
            self.trim_memory();
        }
    }

    /// Trims the heap after a burst of connections. The allocator's locks are held for milliseconds
    /// and other shards may wait for the locks, so [`TRIM_INTERVAL_MS`] has to pass between two
    /// calls.
    pub(crate) fn trim_memory(&mut self) {
        if self.has_memory_to_trim && self.now >= self.trim_after {
            self.has_memory_to_trim = false;
            self.trim_after = MonotonicMs(self.now.0 + TRIM_INTERVAL_MS);
            crate::heap::trim_heap();
        }
    }

    /// Discards bytes which the peer sends after the close, and drops the socket at the end of the
    /// stream.
    pub(crate) fn discard_input(&mut self, index: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut done = true;
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            for _ in 0..16 {
                match socket.receive(&mut buffer) {
                    Ok(Some(0)) | Err(_) => break,
                    Ok(None) => {
                        done = false;
                        break;
                    }
                    Ok(Some(_)) => {}
                }
            }
        }
        self.buffer = buffer;
        if done {
            self.drop_socket(index);
        }
    }
}
