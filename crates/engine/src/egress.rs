//! Output of a shard other than ordinary writes: closed connections, connections that move to
//! another shard, and messages to other shards.

use crate::burst_release::{LANE_KEPT, RELEASE_MS};
use crate::quic::QuicMessage;
use crate::ring::RingItem;
use crate::shard_driver::ShardDriver;
use broker::{MonotonicMs, PeerInfo, ShardId};

/// Time in milliseconds for the peer of a closed connection to finish, before a reset.
const LINGER_MS: u64 = 2_000;

impl ShardDriver {
    /// Moves the messages for other shards from `Outbox::lanes` into the rings, as many as fit, and
    /// wakes the receivers.
    pub(crate) fn push_lanes(&mut self) {
        if self.out.lanes.iter().all(|lane| lane.is_empty()) {
            return self.out.note_lane_lengths();
        }
        // A receiving shard may delete a record that this shard has not committed: commit first.
        self.commit_records();
        for (to, lane) in self.out.lanes.iter_mut().enumerate() {
            if lane.is_empty() {
                continue;
            }
            let Some(ring) = &mut self.rings.outbound[to] else { continue };
            let slots = ring.room_for(lane.len()).min(lane.len());
            for cross in lane.drain(..slots) {
                ring.put(RingItem::Message(cross));
            }
            if ring.is_grown() || lane.capacity() > LANE_KEPT {
                let at = MonotonicMs(self.now.0 + RELEASE_MS);
                self.release.at.get_or_insert(at);
            }
            match &self.rings.wakers[to] {
                _ if slots == 0 => {}
                waker if self.on_worker => waker.wake(),
                waker => waker.wake_from_scheduler(),
            }
        }
        self.out.note_lane_lengths();
    }

    /// Closes the server's side of a connection. The peer can read the last packets, and older
    /// unsent bytes, before a reset: the socket lingers for `LINGER_MS`.
    pub(crate) fn close_connection(&mut self, index: u32) {
        if self.hosts_relay(index) {
            return self.drop_socket(index);
        }
        self.pending_auth.cancel(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        socket.tail = Vec::new();
        if let Some(connection) = socket.stream.quic_connection() {
            return self.close_quic_stream(index, connection);
        }
        if socket.stack.is_some() {
            self.close_stack(index);
        }
        self.count_socket_bytes(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        // Released bytes are missing in the stream: nothing may be written after them.
        if socket.out_of_memory && socket.unsent_len() > 0 {
            return self.drop_socket(index);
        }
        let at = MonotonicMs(self.now.0 + LINGER_MS);
        socket.lingers_until = at;
        self.lingering.push_back((at, index));
        if socket.unsent_len() == 0 {
            self.shut_down_write(index);
        }
    }

    /// Shuts down the write direction of a closed connection once all bytes are written, and then
    /// discards input until the peer has closed too.
    pub(crate) fn shut_down_write(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        match socket.stream.shutdown(std::net::Shutdown::Write) {
            Ok(()) => self.discard_input(index),
            Err(_) => self.drop_socket(index),
        }
    }

    pub(crate) fn move_to_owner_shard(&mut self, index: u32, home: ShardId, peer: PeerInfo) {
        let Some(place) = self.sockets.get_mut(index as usize) else { return };
        let Some(mut socket) = place.take() else { return };
        self.uncount_socket_bytes(&socket);
        self.freed.push(index);
        let _ = self.registry.deregister(&mut socket.stream);
        let (connection, socket) = (socket.stream.quic_connection(), Box::new(socket.into_moved()));
        let item = match connection.map(|connection| self.take_quic_connection(connection, home)) {
            None => RingItem::Socket { socket, peer: Some(peer) },
            Some(Some(connection)) => {
                RingItem::Quic(Box::new(QuicMessage::MoveConnection { connection, socket, peer }))
            }
            Some(None) => return,
        };
        self.pending_items.push_back((usize::from(home.0), item));
    }

    pub(crate) fn push_pending_items(&mut self) {
        while let Some((home, item)) = self.pending_items.pop_front() {
            let Some(ring) = &mut self.rings.outbound[home] else { continue };
            let pushed = ring.push(item);
            if ring.is_grown() {
                self.release.at.get_or_insert(MonotonicMs(self.now.0 + RELEASE_MS));
            }
            self.rings.wakers[home].wake();
            if let Err(item) = pushed {
                return self.pending_items.push_front((home, item));
            }
        }
    }
}
