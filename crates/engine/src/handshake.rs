//! Connections with transport layers: their handshakes, and reading through the layers.
//!
//! The broker learns of a connection when all layers are open. Until then the engine keeps the
//! deadline, counted from the accept; later the deadline of the broker counts, from the same
//! moment. A handshake costs a thousand times as much as the bytes it reads, so each turn spends at
//! most `HANDSHAKES_PER_TURN` on handshakes, and the sockets it did not reach come first in the
//! next turn.

use crate::connection_limiter::ConnectionSlot;
use crate::ingress::TAIL_COPIED_MAX;
use crate::ring::RingItem;
use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::transport_stack::{PendingHandshake, TransportError};
use broker::peer::authentication::Principal;
use broker::{ConnId, MonotonicMs, PeerAddress, PeerInfo, ShardInput, limits};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Time for handshakes in one turn; ready sockets beyond the bound are listed for the next turn.
pub(crate) const HANDSHAKES_PER_TURN: Duration = Duration::from_millis(1);
/// Bytes that layers may decode in one turn without yielding MQTT before all sockets with layers
/// have to wait. Frames of no or few bytes cost work without filling a tick with MQTT.
const LAYER_BYTES_PER_TURN: usize = 64 * 1024;

impl ShardDriver {
    /// Starts an accepted connection. Shards take turns with costly handshakes: the socket may go
    /// to another shard by a [`RingItem::Socket`].
    pub(crate) fn start_connection(
        &mut self,
        stream: SocketStream,
        peer: PeerInfo,
        seat: Option<Box<ConnectionSlot>>,
    ) {
        let transport = &self.transports[usize::from(peer.listener.0)];
        let mut socket = Socket::new(stream, Vec::new());
        socket.slot = seat;
        let Some(mut layers) = transport.new_stack() else {
            return self.open_connection(socket, peer, false);
        };
        let until = MonotonicMs(self.now.0 + u64::from(self.connect_timeout_ms));
        layers.handshake = Some(Box::new(PendingHandshake { peer, since: self.now, until }));
        socket.stack = Some(Box::new(layers));
        if !transport.has_costly_handshake() {
            return self.await_handshake(socket);
        }
        self.handshake_shard = (self.handshake_shard + 1) % self.rings.wakers.len();
        match self.handshake_shard == usize::from(self.id.0) {
            true => self.await_handshake(socket),
            false => {
                let socket = Box::new(socket);
                self.pending_items
                    .push_back((self.handshake_shard, RingItem::Socket { socket, peer: None }));
            }
        }
    }

    /// Opens a connection of this process to itself, without layers and outside all connection
    /// limits.
    pub(crate) fn open_internal(&mut self, stream: UnixStream, principal: Principal) {
        let user = rustix::process::getuid().as_raw();
        let peer =
            PeerInfo::internal(PeerAddress::Unix { user, process: std::process::id() }, principal);
        let stream = SocketStream::Unix(mio::net::UnixStream::from_std(stream));
        self.open_connection(Socket::new(stream, Vec::new()), peer, false);
    }

    /// Registers a socket received over a ring: with `peer` for the shard owning the client, or
    /// without for a handshake on this shard.
    pub(crate) fn receive_socket(&mut self, socket: Socket, peer: Option<PeerInfo>) {
        match peer {
            Some(peer) => self.open_connection(socket, peer, true),
            None => self.await_handshake(socket),
        }
    }

    pub(crate) fn await_handshake(&mut self, socket: Socket) {
        let opening = socket.stack.as_ref().and_then(|layers| layers.handshake.as_ref());
        let Some(until) = opening.map(|opening| opening.until) else { return };
        if let Some(index) = self.register_socket(socket) {
            self.handshaking.push_back((until, index));
        }
    }

    fn handshake_deadline(&self, index: u32) -> Option<MonotonicMs> {
        let socket = self.sockets.get(index as usize)?.as_ref()?;
        Some(socket.stack.as_ref()?.handshake.as_ref()?.until)
    }

    pub(crate) fn is_handshaking(&self, index: u32) -> bool {
        self.handshake_deadline(index).is_some()
    }

    /// Closes connections whose handshake exceeded `connect.timeout_ms`. Entries of connections
    /// opened meanwhile leave the list without a wake-up.
    pub(crate) fn time_out_handshakes(&mut self) {
        while let Some(&(until, index)) = self.handshaking.front() {
            let waits = self.handshake_deadline(index) == Some(until);
            if waits && self.extend_handshake(until) > self.now {
                return;
            }
            self.handshaking.pop_front();
            if waits {
                self.fail_handshake(index, &TransportError::TimedOut);
            }
        }
    }

    /// Drops all connections in a handshake when the process ends.
    pub(crate) fn end_handshakes(&mut self) {
        self.is_shutting_down = true;
        for (until, index) in std::mem::take(&mut self.handshaking) {
            if self.handshake_deadline(index) == Some(until) {
                self.drop_socket(index);
            }
        }
    }

    /// Reads once, decodes through the layers, and delivers the plain bytes. A socket with more to
    /// read is listed again.
    pub(crate) fn read_through_stack(&mut self, index: u32) {
        let spent = self.handshake_time >= HANDSHAKES_PER_TURN;
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if let Some(connection) = socket.stream.quic_connection() {
            return self.read_quic_stream(index, connection);
        }
        let Some(layers) = &socket.stack else { return };
        if self.layer_bytes >= LAYER_BYTES_PER_TURN || (spent && layers.handshake.is_some()) {
            return self.list_socket(index);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        if layers.relay.is_some() {
            let is_over = self.read_by_relay(index, &mut buffer);
            self.buffer = buffer;
            if is_over {
                self.drop_lost_connection(index);
            }
            return;
        }
        let kept = layers.copy_pending(&mut buffer);
        let ended = match socket.receive(&mut buffer[kept..]) {
            Ok(None) => Ok(socket.peer_closed),
            Ok(Some(0)) | Err(_) => Ok(true),
            Ok(Some(read)) => {
                let len = kept + read;
                if len == buffer.len() || socket.peer_closed {
                    self.list_socket(index);
                }
                self.decode_through_stack(index, &mut buffer[..len])
            }
        };
        // Closing needs the buffer too, so it goes back first.
        self.buffer = buffer;
        match ended {
            Ok(false) => {}
            Ok(true) => self.end_peer_stream(index),
            Err(broken) => self.fail_transport(index, &broken),
        }
    }

    /// Decodes received bytes through the layers and delivers the plain bytes. Returns whether the
    /// peer has ended the connection.
    pub(crate) fn decode_through_stack(
        &mut self,
        index: u32,
        raw: &mut [u8],
    ) -> Result<bool, TransportError> {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return Ok(false) };
        let Some(mut layers) = socket.stack.take() else { return Ok(false) };
        let (mut plain, grows) = take_plain_buffer(&mut socket.tail, &mut self.plain);
        let before = plain.len();
        let began = layers.handshake.is_some().then(Instant::now);
        self.sealed.clear();
        let taken = layers.decode(raw, &mut plain, &mut self.sealed);
        self.handshake_time += began.map_or(Duration::ZERO, |began| began.elapsed());
        // The next read finds out whether the socket is broken.
        let _ = socket.send_sealed(self.sealed.bytes());
        let waits = socket.unsent_len() > 0;
        let understood = raw.len() - layers.pending_len();
        self.layer_bytes += understood.saturating_sub(plain.len() - before);
        let opened = layers.take_completed_handshake();
        socket.stack = Some(layers).filter(|layers| layers.is_needed());
        self.count_socket_bytes(index);
        let congests = waits && self.wait_for_room(index);
        let conn = ConnId(index);
        if let Some(PendingHandshake { mut peer, since, .. }) = opened {
            self.admit_proxied(index, &mut peer);
            let input = ShardInput::Opened { conn, peer, since, moved: false };
            self.shard.handle(self.now, input, &mut self.out);
        }
        // A peer can make the layers answer without end: count unsent answers as congestion.
        if congests && !self.is_handshaking(index) {
            self.shard.handle(self.now, ShardInput::Congested { conn }, &mut self.out);
        }
        let came = plain.len() > before;
        self.deliver_plain(index, plain, grows, came);
        taken
    }

    pub(crate) fn deliver_plain(&mut self, index: u32, plain: Vec<u8>, grows: bool, came: bool) {
        if !grows {
            if came {
                self.deliver_bytes(index, &plain);
            }
            if plain.capacity() <= 2 * limits::READ_BYTES_PER_TICK {
                self.plain = plain;
            }
            return;
        }
        if came && mqtt::expected_len(&plain).is_none_or(|len| len <= plain.len()) {
            return self.deliver_bytes(index, &plain);
        }
        self.keep_partial_packet(index, plain);
    }

    /// Handles the end of the stream: of an open connection, or of a handshake.
    fn end_peer_stream(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let layers = socket.stack.as_ref().filter(|layers| layers.handshake.is_some());
        match layers {
            None => self.drop_lost_connection(index),
            // A peer that connected and sent nothing, as port scanners do, is not worth a log line.
            Some(layers) if !layers.has_received() => self.drop_socket(index),
            Some(_) => self.fail_handshake(index, &TransportError::PeerLeft),
        }
    }

    /// Handles an error of a layer: fails the handshake, or closes an open connection.
    fn fail_transport(&mut self, index: u32, broken: &TransportError) {
        if self.is_handshaking(index) {
            return self.fail_handshake(index, broken);
        }
        self.shard.handle(self.now, ShardInput::Closed { conn: ConnId(index) }, &mut self.out);
        self.close_failed(index);
    }

    pub(crate) fn fail_handshake(&mut self, index: u32, why: &TransportError) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let opening = socket.stack.take().and_then(|layers| layers.handshake);
        if let Some(opening) = opening {
            let peer = opening.peer.address;
            self.shard.handle(self.now, ShardInput::NotOpened { peer, why }, &mut self.out);
        }
        self.close_failed(index);
    }

    /// Closes a failed connection without output of its layers: an alert, if any, has been sent.
    fn close_failed(&mut self, index: u32) {
        if let Some(Some(socket)) = self.sockets.get_mut(index as usize) {
            socket.stack = None;
        }
        self.close_connection(index);
    }

    /// Sends the closing records of the layers, before the server's side of the stream is shut
    /// down.
    pub(crate) fn close_stack(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if let Some(mut layers) = socket.stack.take() {
            self.sealed.clear();
            layers.close(self.is_shutting_down, &mut self.sealed);
            let _ = socket.send_sealed(self.sealed.bytes());
        }
    }
}

/// Returns the buffer for decoded bytes, starting with the received part of a packet. A part above
/// `TAIL_COPIED_MAX` is moved and grows in place, reported by `true`; a smaller part is copied into
/// `spare`.
pub(crate) fn take_plain_buffer(tail: &mut Vec<u8>, spare: &mut Vec<u8>) -> (Vec<u8>, bool) {
    if tail.len() > TAIL_COPIED_MAX {
        return (std::mem::take(tail), true);
    }
    let mut plain = std::mem::take(spare);
    plain.clear();
    plain.extend_from_slice(tail);
    (plain, false)
}
