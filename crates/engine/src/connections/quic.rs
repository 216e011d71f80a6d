//! QUIC connections, whose streams are sockets without a descriptor: the events of a connection do
//! for them what the poller does for other sockets.

use super::ShardConnections;
use crate::connection_limiter::ConnectionLimiter;
use crate::listener::ListenerTransport;
use crate::quic::{
    IncomingScreen, QuicConnection, QuicConnectionKey, QuicEvent, QuicInput, QuicMessage,
    QuicShard, StreamReadOutcome, canonical_address,
};
use crate::ring::RingItem;
use crate::shard_turn::ShardTurn;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::tls;
use crate::transport_stack::{PendingHandshake, TransportError, TransportStack};
use broker::connection::admission::Admission;
use broker::{ConnId, ListenerId, MonotonicMs, PeerInfo, ShardId, ShardInput, limits};
use quinn_proto::{ConnectionError, ConnectionEvent, EndpointEvent, Incoming};
use std::io;
use std::time::{Duration, Instant};

/// Time in milliseconds for a connection closed by the broker to deliver its last bytes.
const LINGER_MS: u64 = 2_000;
/// Measured memory of an idle connection in bytes: see docs/benchmarks.md, QUIC.
const STATE_BYTES: u32 = 20 * 1024;
/// Reads of the UDP socket in one turn.
const CALLS_PER_TURN: usize = 8;

impl ShardConnections {
    fn quic_connection(&mut self, at: u32) -> Option<&mut QuicConnection> {
        self.quic.as_mut()?.connection(at)
    }

    /// Sets the time of this turn for quinn-proto.
    pub(crate) fn set_quic_time(&mut self, now: Instant) {
        if let Some(quic) = &mut self.quic {
            quic.set_time(now);
        }
    }

    pub(crate) fn quic_timeout(&self, now: Instant) -> Option<Duration> {
        self.quic.as_ref()?.timeout(now)
    }

    /// Gives the QUIC listeners their new configuration.
    pub(crate) fn reload_quic(&mut self, transports: &[ListenerTransport]) {
        if let Some(quic) = &mut self.quic {
            quic.reload_config(|listener| transports.get(usize::from(listener.0))?.quic.clone());
        }
    }

    /// Refuses new QUIC connections from now on.
    pub(crate) fn close_quic_listeners(&mut self) {
        if let Some(quic) = &mut self.quic {
            quic.start_draining();
        }
    }

    /// Drives connections with new events.
    pub(crate) fn drive_quic(&mut self, turn: &mut ShardTurn) {
        let Some(quic) = &mut self.quic else { return };
        for at in quic.take_to_drive() {
            self.drive_quic_connection(turn, at);
        }
    }

    /// Handles all pending events of a connection.
    fn drive_quic_connection(&mut self, turn: &mut ShardTurn, at: u32) {
        while let Some(event) = self.quic.as_mut().and_then(|quic| quic.poll_event(at)) {
            match event {
                QuicEvent::Connected => self.open_quic_connection(turn, at),
                QuicEvent::Lost(reason) => self.end_quic_connection(turn, at, reason),
                QuicEvent::StreamsOpened => self.take_quic_streams(turn, at),
                QuicEvent::Readable { index } => self.read_socket(turn, index),
                QuicEvent::Writable { index } => self.resend_unsent(turn, index),
                QuicEvent::Finished { index } => self.end_quic_stream(turn, index),
            }
        }
        self.check_peer_address(turn, at);
    }

    /// Reports the connection to the broker after its handshake.
    fn open_quic_connection(&mut self, turn: &mut ShardTurn, at: u32) {
        let Some(quic) = &mut self.quic else { return };
        let Some((index, chain)) = quic.finish_handshake(at) else { return };
        let opening = self.table.get_mut(index).and_then(Socket::take_handshake);
        let Some(opening) = opening else { return };
        let (mut peer, since) = opening.into_opened();
        if let Some(certificate) = chain.and_then(|chain| tls::peer_certificate(&chain)) {
            peer.set_certificate(certificate);
        }
        peer.transport_bytes += STATE_BYTES;
        self.count_socket_bytes(turn, index);
        turn.handle(ShardInput::Opened { conn: ConnId(index), peer, since, moved: false });
    }

    /// Reads the control stream once the client has opened streams.
    fn take_quic_streams(&mut self, turn: &mut ShardTurn, at: u32) {
        let Some(connection) = self.quic_connection(at) else { return };
        let Some(index) = connection.control_socket() else { return };
        // Before the end of the handshake only early data gets here, which the listener has to
        // permit.
        if connection.is_handshaking() {
            self.open_quic_connection(turn, at);
        }
        self.read_socket(turn, index);
    }

    /// Opens streams which the client started before its CONNACK: the client may use data streams
    /// from the CONNACK on.
    fn open_data_streams(&mut self, turn: &mut ShardTurn, at: u32) {
        let connection = self.quic_connection(at).filter(|own| own.has_pending_streams());
        let Some(control) = connection.and_then(|own| own.control_socket()) else { return };
        if !turn.shard().is_connacked(ConnId(control)) {
            return;
        }
        let Some(quic) = &mut self.quic else { return };
        for id in quic.take_pending_streams(at) {
            let layers = TransportStack::for_data_stream();
            let stream = SocketStream::Quic { connection: at };
            let socket = Socket::new(stream, Some(layers), None);
            let Some(index) = self.register_socket(turn, socket) else { continue };
            if let Some(connection) = self.quic_connection(at) {
                connection.add_data_stream(id, index);
            }
            turn.handle(ShardInput::StreamOpened { conn: ConnId(index), of: ConnId(control) });
            // No event reports bytes that have already arrived on the stream.
            self.table.list(index);
        }
    }

    fn end_quic_connection(&mut self, turn: &mut ShardTurn, at: u32, reason: ConnectionError) {
        let Some(connection) = self.quic_connection(at) else { return };
        let Some(index) = connection.control_socket() else { return };
        if self.is_handshaking(index) {
            return self.fail_handshake(turn, index, &TransportError::Quic(reason));
        }
        let Some(socket) = self.table.get_mut(index) else { return };
        if socket.is_lingering() || socket.is_out_of_memory() {
            return self.drop_socket(turn, index);
        }
        socket.drop_unsent();
        self.count_socket_bytes(turn, index);
        self.read_socket(turn, index);
    }

    fn end_quic_stream(&mut self, turn: &mut ShardTurn, index: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        if socket.is_lingering() {
            self.drop_socket(turn, index);
        } else {
            self.drop_lost_connection(turn, index);
        }
    }

    /// Reads a stream once, and delivers the bytes. A stream with more to read is listed.
    pub(super) fn read_quic_stream(&mut self, turn: &mut ShardTurn, index: u32, connection: u32) {
        let Some(socket) = self.table.get_mut(index) else { return };
        if socket.is_handshaking() {
            return;
        }
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.connection(connection) else { return };
        let (mut plain, grows) = self.buffers.take_plain(socket);
        let before = plain.len();
        let found = own.read_stream(index, &mut plain, limits::READ_BYTES_PER_TICK);
        let (lost, control) = (own.is_lost(), own.control_socket());
        quic.queue_send(connection);
        let came = plain.len() > before;
        // Bytes on any stream keep the client alive.
        if let Some(control) = control.filter(|own| came && *own != index) {
            turn.handle(ShardInput::Bytes { conn: ConnId(control), bytes: &[] });
        }
        self.deliver_plain(turn, index, plain, grows, came);
        match found {
            StreamReadOutcome::Full => self.table.list(index),
            // Bytes before the end are handled first, and may have to wait.
            StreamReadOutcome::Ended | StreamReadOutcome::Blocked
                if came && (lost || found == StreamReadOutcome::Ended) =>
            {
                self.table.list(index);
            }
            StreamReadOutcome::Ended => self.drop_lost_connection(turn, index),
            StreamReadOutcome::Blocked if lost => self.drop_lost_connection(turn, index),
            StreamReadOutcome::Blocked => {}
        }
    }

    /// Continues writing the unsent bytes of a TCP, unix or QUIC socket. Returns true once all are
    /// written.
    pub(super) fn resend_socket(&mut self, index: u32) -> io::Result<bool> {
        let Some(socket) = self.table.get_mut(index) else { return Ok(true) };
        match socket.quic_connection() {
            None => socket.resend(),
            Some(connection) => self.write_quic_stream(index, connection),
        }
    }

    /// Whether unsent bytes of a QUIC socket could all be written to its connection; false for
    /// every non-QUIC socket.
    pub(super) fn flushes_to_quic(&mut self, index: u32) -> bool {
        let connection = self.table.get(index).and_then(Socket::quic_connection);
        connection
            .is_some_and(|connection| matches!(self.write_quic_stream(index, connection), Ok(true)))
    }

    fn write_quic_stream(&mut self, index: u32, connection: u32) -> io::Result<bool> {
        let Some(socket) = self.table.get_mut(index) else { return Ok(true) };
        let Some(quic) = &mut self.quic else { return Ok(true) };
        let Some(own) = quic.connection(connection) else { return Ok(true) };
        let sent = own.write_stream(index, socket);
        quic.queue_send(connection);
        sent
    }

    /// Ends the server's side of a stream. For the control stream the connection ends too, once the
    /// peer has acknowledged all bytes or after [`LINGER_MS`].
    pub(super) fn close_quic_stream(&mut self, turn: &mut ShardTurn, index: u32, connection: u32) {
        let sent = self.write_quic_stream(index, connection);
        let own = self.quic_connection(connection);
        let is_finished = own.is_some_and(|own| own.finish_control_stream(index));
        if let Some(quic) = &mut self.quic {
            quic.end_data_streams(connection);
        }
        self.count_socket_bytes(turn, index);
        if !matches!(sent, Ok(true)) || !is_finished {
            return self.drop_socket(turn, index);
        }
        self.table.linger(index, MonotonicMs(turn.now().0 + LINGER_MS));
    }

    /// Ends the stream of a dropped socket; the control stream ends the connection as well.
    pub(super) fn release_quic_stream(&mut self, index: u32, connection: u32) {
        if let Some(quic) = &mut self.quic {
            quic.release_stream(connection, index);
        }
    }

    /// Removes the connection to move it to the shard `home`.
    pub(super) fn take_quic_connection(
        &mut self,
        at: u32,
        home: ShardId,
    ) -> Option<Box<QuicConnection>> {
        self.quic.as_mut()?.take_connection(at, home)
    }

    pub(super) fn set_control_socket(&mut self, index: u32, connection: u32) {
        if let Some(own) = self.quic_connection(connection) {
            own.set_control_socket(index);
        }
    }

    /// Closes the connection of a peer whose address has changed to a banned address.
    fn check_peer_address(&mut self, turn: &mut ShardTurn, at: u32) {
        let Some(quic) = &mut self.quic else { return };
        let Some((address, control)) = quic.take_new_address(at) else { return };
        if turn.refuse_banned_address(canonical_address(address))
            && let Some(index) = control
        {
            self.end_quic_stream(turn, index);
        }
    }

    /// Fires due timers, and drives connections with events since sockets were read.
    pub(crate) fn tick_quic(&mut self, turn: &mut ShardTurn) {
        self.drive_quic(turn);
        while let Some(at) = self.quic.as_mut().and_then(|quic| quic.fire_timer()) {
            self.drive_quic_connection(turn, at);
        }
    }

    /// Closes all QUIC connections of a shard which ends, so that a peer which lost the last
    /// packets still receives a close. Answers of the peer may be lost, since the endpoint's shard
    /// may have ended before.
    pub(crate) fn drop_quic_connections(&mut self, turn: &mut ShardTurn) {
        let sockets = self.quic.as_ref().map(|quic| quic.control_sockets());
        sockets.into_iter().flatten().for_each(|index| self.drop_socket(turn, index));
    }

    /// Sends the datagrams of all connections, after all other work of the turn.
    pub(crate) fn flush_quic(&mut self, turn: &mut ShardTurn) {
        let Some(quic) = &mut self.quic else { return };
        quic.retry_stalled();
        for index in quic.take_ended_streams() {
            self.drop_lost_connection(turn, index);
        }
        let Some(quic) = &mut self.quic else { return };
        for at in quic.take_to_send() {
            self.open_data_streams(turn, at);
            self.flush_quic_connection(turn, at);
        }
    }

    fn flush_quic_connection(&mut self, turn: &mut ShardTurn, at: u32) {
        while let Some((key, event)) = self.quic.as_mut().and_then(|q| q.poll_endpoint_event(at)) {
            if event.is_drained() {
                if let Some(quic) = &mut self.quic {
                    quic.remove_connection(at);
                }
                self.deliver_endpoint_event(turn, key, event);
                return;
            }
            let answer = self.deliver_endpoint_event(turn, key, event);
            if let (Some(quic), Some(answer)) = (&mut self.quic, answer) {
                quic.answer_connection(at, answer);
            }
        }
        if let Some(quic) = &mut self.quic {
            quic.send_datagrams(at);
        }
    }
}

/// Messages between the shards of an endpoint and of its connections.
impl ShardConnections {
    /// Applies an item of a ring.
    pub(super) fn apply_quic_message(&mut self, turn: &mut ShardTurn, message: QuicMessage) {
        let quic = self.quic.get_or_insert_with(|| Box::new(QuicShard::new(Instant::now())));
        match message {
            QuicMessage::ConnectionEvent { name, event } => {
                // The connection may have gone meanwhile.
                let Some(at) = quic.slot_of(name) else { return };
                quic.apply_connection_event(at, event);
            }
            QuicMessage::EndpointEvent { name, event } => {
                if let Some(event) = self.deliver_endpoint_event(turn, name, event) {
                    self.deliver_connection_event(turn, name, event);
                }
            }
            QuicMessage::MoveConnection { connection, socket, peer } => {
                let at = quic.add_connection(connection);
                quic.queue_drive(at);
                self.open_connection(turn, socket.into_quic_stream(at), peer, true);
                let own = self.quic_connection(at);
                if let Some(index) = own.and_then(|own| own.control_socket()) {
                    self.table.list(index);
                }
            }
        }
    }

    fn deliver_connection_event(
        &mut self,
        turn: &mut ShardTurn,
        key: QuicConnectionKey,
        event: ConnectionEvent,
    ) {
        let Some(quic) = &mut self.quic else { return };
        if let Some(at) = quic.slot_of(key) {
            let is_handshaking = quic.connection(at).is_some_and(|own| own.is_handshaking());
            let began = is_handshaking.then(Instant::now);
            quic.apply_connection_event(at, event);
            self.handshakes.count_since(began);
        } else if let Some(shard) = quic.moved_to(key) {
            let message = QuicMessage::ConnectionEvent { name: key, event };
            send_quic_message(turn, shard, message);
        }
    }

    /// Passes an event to the endpoint, on this shard or over the ring. Returns the endpoint's
    /// response, if the endpoint is on this shard.
    fn deliver_endpoint_event(
        &mut self,
        turn: &mut ShardTurn,
        key: QuicConnectionKey,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        self.quic.as_mut()?.apply_endpoint_event(key, event).unwrap_or_else(|event| {
            let message = QuicMessage::EndpointEvent { name: key, event };
            send_quic_message(turn, ShardId(0), message);
            None
        })
    }
}

fn send_quic_message(turn: &mut ShardTurn, shard: ShardId, message: QuicMessage) {
    turn.rings_mut().send_item(usize::from(shard.0), RingItem::Quic(Box::new(message)));
}

/// The listeners of QUIC. Handshakes are bounded per turn, as they are for TLS.
impl ShardConnections {
    /// Marks a QUIC listener as readable. Returns false for a listener without QUIC.
    pub(crate) fn mark_quic_readable(&mut self, listener: ListenerId) -> bool {
        self.quic.as_mut().is_some_and(|quic| quic.mark_readable(listener))
    }

    /// Reads datagrams up to the bound of a turn, and drives their connections.
    #[inline]
    pub(crate) fn read_datagrams(&mut self, turn: &mut ShardTurn, limiter: &ConnectionLimiter) {
        if self.quic.as_ref().is_some_and(|quic| quic.has_busy_endpoint()) {
            self.read_quic_endpoints(turn, limiter);
        }
    }

    /// Reads datagrams of the endpoints. The function is kept out of line, because
    /// [`ShardConnections::read_datagrams`] runs in every turn, also of brokers without QUIC.
    #[cold]
    #[inline(never)]
    fn read_quic_endpoints(&mut self, turn: &mut ShardTurn, limiter: &ConnectionLimiter) {
        let listeners = self.quic.as_ref().map(|quic| quic.listeners());
        for listener in listeners.into_iter().flatten() {
            self.read_quic_endpoint(turn, listener, limiter);
            self.accept_waiting(turn, listener, limiter);
        }
        self.drive_quic(turn);
    }

    fn read_quic_endpoint(
        &mut self,
        turn: &mut ShardTurn,
        listener: ListenerId,
        limiter: &ConnectionLimiter,
    ) {
        for _ in 0..CALLS_PER_TURN {
            // Reading stops while items wait for a ring, and in a turn whose time for handshakes is
            // spent.
            if turn.rings().has_pending_items() || self.handshakes.is_overspent() {
                return;
            }
            if !self.quic.as_mut().is_some_and(|quic| quic.receive_datagrams(listener)) {
                return;
            }
            while let Some(input) = self.quic.as_mut().and_then(|quic| quic.next_input(listener)) {
                match input {
                    QuicInput::ConnectionEvent(key, event) => {
                        self.deliver_connection_event(turn, key, event)
                    }
                    QuicInput::Incoming(incoming) => {
                        self.screen_incoming(turn, listener, incoming, limiter)
                    }
                }
            }
        }
    }

    fn screen_incoming(
        &mut self,
        turn: &mut ShardTurn,
        listener: ListenerId,
        incoming: Incoming,
        limiter: &ConnectionLimiter,
    ) {
        let is_banned = turn.refuse_banned_address(canonical_address(incoming.remote_address()));
        let options = turn.options();
        let must_wait = limiter.accepts_again_at(turn.now(), listener, options).is_some();
        let is_counted = options.limits_connections(listener);
        if let Some(quic) = &mut self.quic {
            let screen = IncomingScreen::new(is_banned || must_wait, is_counted);
            quic.screen_incoming(listener, incoming, screen);
        }
    }

    fn accept_waiting(
        &mut self,
        turn: &mut ShardTurn,
        listener: ListenerId,
        limiter: &ConnectionLimiter,
    ) {
        while !self.handshakes.is_spent() {
            let incoming = self.quic.as_mut().and_then(|quic| quic.next_waiting(listener));
            let Some(incoming) = incoming else { return };
            let began = Instant::now();
            self.accept_quic_connection(turn, listener, incoming, limiter);
            self.handshakes.count_start(began);
        }
    }

    /// Starts the handshake of a connection within the limits; refuses a connection above the
    /// limits.
    fn accept_quic_connection(
        &mut self,
        turn: &mut ShardTurn,
        listener: ListenerId,
        incoming: Incoming,
        limiter: &ConnectionLimiter,
    ) {
        let Some(quic) = &mut self.quic else { return };
        let (now, address) = (turn.now(), canonical_address(incoming.remote_address()));
        let mut slot = None;
        if turn.options().limits_connections(listener) {
            let (entry, own) =
                limiter.admit_connection(now, listener, Some(address), turn.options());
            if let Admission::ClosedAtOnce(refusal) | Admission::RefusedAfterConnect(refusal) =
                entry
            {
                turn.note_refused_connection(address, refusal);
                return quic.refuse_incoming(listener, incoming);
            }
            slot = own;
        }
        let connection = match quic.accept_incoming(listener, incoming) {
            Some(Ok(connection)) => connection,
            Some(Err(cause)) => {
                return turn.handle(ShardInput::NotOpened { peer: address, why: &cause });
            }
            None => return,
        };
        let until = self.handshakes.deadline(now);
        let opening = PendingHandshake::new(PeerInfo::new(address, listener), now, until);
        let layers = TransportStack::for_quic(opening);
        let socket = Socket::new(SocketStream::Quic { connection }, Some(layers), slot);
        self.await_handshake(turn, socket);
    }
}
