//! New connections: shard 0 accepts them for all shards, within the limits of listeners and
//! addresses.

use super::ShardDriver;
use crate::connection_acceptor::AcceptOutcome;
use crate::connection_limiter::ConnectionSlot;
use crate::ring::RingItem;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::transport_stack::PendingHandshake;
use broker::connection::admission::Admission;
use broker::{ListenerId, PeerAddress, PeerInfo};

/// Rounds over all listeners in one call of `accept_connections`.
const ACCEPTS_PER_TICK: usize = 256;

impl ShardDriver {
    pub(super) fn accept_connections(&mut self) {
        // Connections that move to other shards wait for room in the rings like every other item.
        let has_pending_items = self.turn.rings().has_pending_items();
        if self.acceptor.is_paused(self.turn.now()) || has_pending_items || !self.admit_waiting() {
            return;
        }
        for _ in 0..ACCEPTS_PER_TICK {
            let mut any = false;
            self.acceptor.begin_round();
            for at in 0..self.acceptor.listeners_len() {
                match self.acceptor.accept(at, &self.turn) {
                    AcceptOutcome::Accepted(stream, address) => {
                        any = true;
                        let stream =
                            self.acceptor.check_descriptor(at, stream, address, &self.turn);
                        let Some(stream) = stream else { return };
                        self.admit_accepted(at, stream, address);
                    }
                    AcceptOutcome::Aborted => any = true,
                    AcceptOutcome::Empty => {}
                    AcceptOutcome::Paused => return,
                }
            }
            if !any {
                return self.acceptor.finish_accepting(&self.turn);
            }
        }
    }

    /// Retries the connection waiting for a descriptor. Returns whether accepting may go on.
    fn admit_waiting(&mut self) -> bool {
        if !self.acceptor.has_waiting() {
            return true;
        }
        let waiting = self.acceptor.take_waiting(&self.turn);
        let Some((at, stream, address)) = waiting else { return false };
        self.admit_accepted(at, stream, address);
        true
    }

    /// Decides on an accepted connection: starts its handshake, starts a handshake which ends in a
    /// refusal, or drops the stream at once.
    fn admit_accepted(&mut self, at: usize, stream: SocketStream, address: PeerAddress) {
        let listener = ListenerId(at as u8);
        let transport = self.acceptor.transport(listener);
        // The address of a proxy's client is not known yet.
        let known = (!transport.names_client_later()).then_some(address);
        if known.is_some() && self.turn.refuse_banned_address(address) {
            return;
        }
        let mut peer = PeerInfo::new(address, listener);
        let (now, options) = (self.turn.now(), self.turn.options());
        if !options.limits_connections(listener) {
            return self.start_connection(stream, peer, None);
        }
        let limiter = self.acceptor.limiter();
        let (entry, slot) = limiter.admit_connection(now, listener, known, options);
        match entry {
            Admission::Admitted(_) => self.start_connection(stream, peer, slot),
            // A TLS handshake only for a refusal would cost as much as admitting the client.
            Admission::RefusedAfterConnect(refusal) if !transport.has_costly_handshake() => {
                peer.refuse(refusal);
                self.start_connection(stream, peer, None);
            }
            Admission::ClosedAtOnce(refusal) | Admission::RefusedAfterConnect(refusal) => {
                self.turn.note_refused_connection(address, refusal);
            }
        }
    }

    /// Starts an accepted connection. Shards take turns with costly handshakes: the socket may go
    /// to another shard by a [`RingItem::Socket`].
    fn start_connection(
        &mut self,
        stream: SocketStream,
        peer: PeerInfo,
        slot: Option<Box<ConnectionSlot>>,
    ) {
        let (now, listener) = (self.turn.now(), peer.listener);
        let Some(mut layers) = self.acceptor.new_stack(listener) else {
            let socket = Socket::new(stream, None, slot);
            return self.connections.open_connection(&mut self.turn, socket, peer, false);
        };
        let until = self.connections.handshake_deadline(now);
        layers.begin_handshake(PendingHandshake::new(peer, now, until));
        let socket = Socket::new(stream, Some(layers), slot);
        if !self.acceptor.transport(listener).has_costly_handshake() {
            return self.connections.await_handshake(&mut self.turn, socket);
        }
        let shard = self.acceptor.next_handshake_shard(self.turn.rings().shards());
        if shard == usize::from(self.turn.id().0) {
            return self.connections.await_handshake(&mut self.turn, socket);
        }
        let item = RingItem::Socket { socket: Box::new(socket), peer: None };
        self.turn.rings_mut().queue_item(shard, item);
    }
}
