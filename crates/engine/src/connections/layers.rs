//! Connections with layers below MQTT: their handshakes, reading through the layers, and relays of
//! links.
//!
//! The broker learns of a connection when all layers are open. Until then the engine keeps the
//! deadline, counted from the accept; later the deadline of the broker counts, from the same
//! moment. The sockets that a turn did not reach within its bounds come first in the next turn.

use super::ShardConnections;
use crate::relay::{RelayLayer, RelaySlot};
use crate::shard_turn::ShardTurn;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::transport_stack::{PendingHandshake, TransportError};
use broker::connection::admission::Admission;
use broker::peer::authentication::Principal;
use broker::{ConnId, MonotonicMs, PeerAddress, PeerInfo, ShardInput};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::time::Instant;

impl ShardConnections {
    /// Opens a connection of this process to itself, without layers and outside all connection
    /// limits.
    pub(crate) fn open_internal(
        &mut self,
        turn: &mut ShardTurn,
        stream: UnixStream,
        principal: Principal,
    ) {
        let user = rustix::process::getuid().as_raw();
        let peer =
            PeerInfo::internal(PeerAddress::Unix { user, process: std::process::id() }, principal);
        let stream = SocketStream::Unix(mio::net::UnixStream::from_std(stream));
        self.open_connection(turn, Socket::new(stream, None, None), peer, false);
    }

    /// Deadline of a handshake that starts now.
    pub(crate) fn handshake_deadline(&self, now: MonotonicMs) -> MonotonicMs {
        self.handshakes.deadline(now)
    }

    /// Registers a socket whose layers do their handshake on this shard.
    pub(crate) fn await_handshake(&mut self, turn: &mut ShardTurn, socket: Socket) {
        let Some(until) = socket.handshake_deadline() else { return };
        if let Some(index) = self.register_socket(turn, socket) {
            self.handshakes.push(until, index);
        }
    }

    pub(super) fn is_handshaking(&self, index: u32) -> bool {
        self.table.get(index).is_some_and(Socket::is_handshaking)
    }

    /// Closes connections whose handshake exceeded `connect.timeout_ms`. Entries of connections
    /// opened meanwhile leave the list without a wake-up.
    pub(crate) fn time_out_handshakes(&mut self, turn: &mut ShardTurn) {
        while let Some((until, index)) = self.handshakes.first() {
            let waits = self.waits_until(index, until);
            let pause = turn.shard().last_pause();
            if waits && self.handshakes.extend(until, pause) > turn.now() {
                return;
            }
            self.handshakes.pop();
            if waits {
                self.fail_handshake(turn, index, &TransportError::TimedOut);
            }
        }
    }

    /// Whether the socket is in a handshake with exactly this deadline: its slot may have another
    /// socket by now.
    fn waits_until(&self, index: u32, until: MonotonicMs) -> bool {
        self.table.get(index).and_then(Socket::handshake_deadline) == Some(until)
    }

    /// Drops all connections in a handshake when the process ends.
    pub(crate) fn end_handshakes(&mut self, turn: &mut ShardTurn) {
        self.is_shutting_down = true;
        for (until, index) in self.handshakes.take_all() {
            if self.waits_until(index, until) {
                self.drop_socket(turn, index);
            }
        }
    }

    /// Ends the bounds of a turn on handshakes and layers.
    pub(crate) fn end_turn(&mut self) {
        self.handshakes.end_turn();
    }

    /// Reads once, decodes through the layers, and delivers the plain bytes. A socket with more to
    /// read is listed again.
    pub(super) fn read_through_stack(&mut self, turn: &mut ShardTurn, index: u32) {
        let spent = self.handshakes.is_spent();
        let Some(socket) = self.table.get_mut(index) else { return };
        if let Some(connection) = socket.quic_connection() {
            return self.read_quic_stream(turn, index, connection);
        }
        if self.handshakes.has_layer_excess() || (spent && socket.is_handshaking()) {
            return self.table.list(index);
        }
        let mut buffer = self.buffers.take_input();
        if socket.relay().is_some() {
            let is_over = self.read_by_relay(turn, index, &mut buffer);
            self.buffers.return_input(buffer);
            if is_over {
                self.drop_lost_connection(turn, index);
            }
            return;
        }
        let kept = socket.copy_pending(&mut buffer);
        let ended = match socket.receive(&mut buffer[kept..]) {
            Ok(None) => Ok(socket.has_peer_closed()),
            Ok(Some(0)) | Err(_) => Ok(true),
            Ok(Some(read)) => {
                let len = kept + read;
                if len == buffer.len() || socket.has_peer_closed() {
                    self.table.list(index);
                }
                self.decode_through_stack(turn, index, &mut buffer[..len])
            }
        };
        // Closing needs the buffer too, so it goes back first.
        self.buffers.return_input(buffer);
        match ended {
            Ok(false) => {}
            Ok(true) => self.end_peer_stream(turn, index),
            Err(broken) => self.fail_transport(turn, index, &broken),
        }
    }

    /// Decodes received bytes through the layers and delivers the plain bytes. Returns whether the
    /// peer has ended the connection.
    fn decode_through_stack(
        &mut self,
        turn: &mut ShardTurn,
        index: u32,
        raw: &mut [u8],
    ) -> Result<bool, TransportError> {
        let Some(socket) = self.table.get_mut(index) else { return Ok(false) };
        if !socket.has_layers() {
            return Ok(false);
        }
        let (mut plain, grows) = self.buffers.take_plain(socket);
        let before = plain.len();
        let began = socket.is_handshaking().then(Instant::now);
        let taken = self.buffers.decode(socket, raw, &mut plain);
        self.handshakes.count_since(began);
        self.buffers.send_answers(socket);
        let waits = socket.unsent_len() > 0;
        let understood = raw.len() - socket.pending_len();
        self.handshakes.count_layer_bytes(understood.saturating_sub(plain.len() - before));
        let opened = socket.finish_decoding();
        self.count_socket_bytes(turn, index);
        let congests = waits && self.wait_for_room(turn, index);
        if let Some(opened) = opened {
            self.open_decoded(turn, index, opened);
        }
        // A peer can make the layers answer without end: count unsent answers as congestion.
        if congests && !self.is_handshaking(index) {
            turn.handle(ShardInput::Congested { conn: ConnId(index) });
        }
        let came = plain.len() > before;
        self.deliver_plain(turn, index, plain, grows, came);
        taken
    }

    /// Reports a connection to the broker after its handshake. A proxy may have named the client:
    /// above the limit for its address the broker refuses the CONNECT.
    fn open_decoded(&mut self, turn: &mut ShardTurn, index: u32, opened: PendingHandshake) {
        let (mut peer, since) = opened.into_opened();
        if let Some(socket) = self.table.get_mut(index)
            && let Some(entry) =
                socket.admit_named_address(turn.now(), peer.address, turn.options())
        {
            match entry {
                Admission::Admitted(_) => {}
                Admission::ClosedAtOnce(refusal) | Admission::RefusedAfterConnect(refusal) => {
                    peer.refuse(refusal)
                }
            }
        }
        turn.handle(ShardInput::Opened { conn: ConnId(index), peer, since, moved: false });
    }

    /// Delivers decoded bytes if any `came`, and returns their buffer. With `grows` they belong to
    /// a large packet, and are kept until the packet is whole.
    pub(super) fn deliver_plain(
        &mut self,
        turn: &mut ShardTurn,
        index: u32,
        plain: Vec<u8>,
        grows: bool,
        came: bool,
    ) {
        if !grows {
            if came {
                self.deliver_bytes(turn, index, &plain);
            }
            return self.buffers.return_plain(plain);
        }
        if came && mqtt::expected_len(&plain).is_none_or(|len| len <= plain.len()) {
            return self.deliver_bytes(turn, index, &plain);
        }
        self.keep_partial_packet(turn, index, plain);
    }

    /// Handles the end of the stream: of an open connection, or of a handshake.
    fn end_peer_stream(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        if !socket.is_handshaking() {
            self.drop_lost_connection(turn, index);
        } else if socket.has_handshake_bytes() {
            self.fail_handshake(turn, index, &TransportError::PeerLeft);
        } else {
            // A peer that connected and sent nothing, as port scanners do, is not worth a log line.
            self.drop_socket(turn, index);
        }
    }

    /// Handles an error of a layer: fails the handshake, or closes an open connection.
    fn fail_transport(&mut self, turn: &mut ShardTurn, index: u32, broken: &TransportError) {
        if self.is_handshaking(index) {
            return self.fail_handshake(turn, index, broken);
        }
        turn.handle(ShardInput::Closed { conn: ConnId(index) });
        self.close_failed(turn, index);
    }

    pub(super) fn fail_handshake(
        &mut self,
        turn: &mut ShardTurn,
        index: u32,
        why: &TransportError,
    ) {
        let Some(socket) = self.table.get_mut(index) else { return };
        if let Some(opening) = socket.drop_layers() {
            turn.handle(ShardInput::NotOpened { peer: opening.peer_address(), why });
        }
        self.close_failed(turn, index);
    }

    /// Closes a failed connection without output of its layers: an alert, if any, has been sent.
    fn close_failed(&mut self, turn: &mut ShardTurn, index: u32) {
        if let Some(socket) = self.table.get_mut(index) {
            socket.drop_layers();
        }
        self.close_connection(turn, index);
    }
}

/// Relays of links.
impl ShardConnections {
    /// Takes the relay if its session is connected here. Otherwise the [`RelaySlot`] keeps the loan
    /// for the next shard, and the last drop gives the relay back.
    pub(crate) fn host_relay(&mut self, turn: &mut ShardTurn, slot: &RelaySlot) {
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = slot.as_ref().and_then(|loan| turn.shard().connection_of(loan.client_id()));
        let Some(ConnId(index)) = conn else { return };
        if !self.table.get(index).is_some_and(Socket::can_host_relay) {
            return;
        }
        let Some(loan) = slot.take() else { return };
        self.table.deregister(index);
        if let Some(socket) = self.table.get_mut(index) {
            socket.start_relay(loan);
        }
        if self.begin_stream(turn, index) {
            self.say_by(turn, index, &[]);
        }
    }

    /// Registers the new stream of a socket with the poller and resumes the socket. Returns false,
    /// after dropping the connection, if the poller refuses.
    fn begin_stream(&mut self, turn: &mut ShardTurn, index: u32) -> bool {
        if !self.table.register_again(index) {
            self.drop_lost_connection(turn, index);
            return false;
        }
        if self.table.get_mut(index).is_some_and(Socket::end_congestion) {
            turn.handle(ShardInput::Writable { conn: ConnId(index) });
        }
        self.count_socket_bytes(turn, index);
        self.resume_later(index);
        true
    }

    /// Returns the relay to its link, and puts the session back on the socket pair.
    pub(crate) fn recall_relay(&mut self, turn: &mut ShardTurn, client_id: &str) {
        let Some(index) = self.relay_of(turn, client_id) else { return };
        self.table.deregister(index);
        let ended = self.table.get_mut(index).and_then(Socket::recall_relay);
        let Some(ended) = ended else { return };
        self.begin_stream(turn, index);
        ended.give_back();
    }

    /// Sends `bytes` of the link to the peer broker, behind the output of the relay.
    pub(crate) fn say_by_relay(&mut self, turn: &mut ShardTurn, client_id: &str, bytes: &[u8]) {
        if let Some(index) = self.relay_of(turn, client_id) {
            self.say_by(turn, index, bytes);
        }
    }

    /// Sends the pending output of the relay to the peer broker, followed by `bytes`.
    fn say_by(&mut self, turn: &mut ShardTurn, index: u32, bytes: &[u8]) {
        let Some(socket) = self.table.get_mut(index) else { return };
        if !self.buffers.send_by_relay(socket, bytes) {
            return;
        }
        if socket.unsent_len() > 0 && self.wait_for_room(turn, index) {
            turn.handle(ShardInput::Congested { conn: ConnId(index) });
        }
    }

    fn relay_of(&mut self, turn: &ShardTurn, client_id: &str) -> Option<u32> {
        let ConnId(index) = turn.shard().connection_of(client_id)?;
        self.hosts_relay(index).then_some(index)
    }

    /// Lists the socket after a write if `has_words`: output for the local session has no event.
    #[inline]
    pub(super) fn list_relay(&mut self, index: u32) {
        let relay = self.table.get_mut(index).and_then(Socket::relay);
        if relay.is_some_and(RelayLayer::has_words) {
            self.table.list(index);
        }
    }

    /// Reads once from the socket to the peer broker. Returns whether the connection is over.
    fn read_by_relay(&mut self, turn: &mut ShardTurn, index: u32, buffer: &mut [u8]) -> bool {
        let Some(socket) = self.table.get_mut(index) else { return false };
        let (read, fault) = match socket.receive(buffer) {
            Ok(Some(read @ 1..)) => (read, None),
            Ok(None) if !socket.has_peer_closed() => (0, None),
            Ok(_) => (0, Some(io::ErrorKind::UnexpectedEof.into())),
            Err(fault) => (0, Some(fault)),
        };
        let has_more = read == buffer.len() || (read > 0 && socket.has_peer_closed());
        let is_ended = fault.is_some();
        if let Some(fault) = fault {
            socket.note_fault(fault);
        }
        if has_more {
            self.table.list(index);
        }
        let decoded = self.decode_through_stack(turn, index, &mut buffer[..read]);
        let is_over = decoded.unwrap_or(true) || is_ended;
        // The last packets of the other broker are handled first; the end is found again by the
        // next read.
        let is_behind = self.table.get(index).is_some_and(Socket::has_unread_tail);
        is_over && !is_behind
    }

    pub(super) fn hosts_relay(&mut self, index: u32) -> bool {
        self.table.get_mut(index).is_some_and(|socket| socket.relay().is_some())
    }
}
