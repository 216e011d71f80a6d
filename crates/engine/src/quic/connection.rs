//! A QUIC connection, with its streams as sockets: events of quinn-proto become the reads, writes
//! and closes that the poller causes for other sockets.

use super::endpoint::canonical_address;
use super::{QuicConnectionKey, QuicShard};
use crate::handshake::take_plain_buffer;
use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::tls;
use crate::transport_stack::{PendingHandshake, TransportError, TransportStack};
use broker::{ConnId, MonotonicMs, ShardInput, limits};
use quinn_proto::{
    Connection, ConnectionError, Dir, Event, ReadError, StreamEvent, StreamId, Transmit, VarInt,
    WriteError,
};
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use transport::QuicUdpSocket;

pub(crate) struct QuicConnection {
    pub(super) key: QuicConnectionKey,
    pub(super) conn: Connection,
    udp: Arc<QuicUdpSocket>,
    /// The current address of the peer; a change is checked against the bans.
    address: SocketAddr,
    /// The socket of the control stream; `None` once the broker has dropped the connection.
    pub(super) control_socket: Option<u32>,
    /// The first stream opened by the client, with CONNECT.
    control_stream: Option<StreamId>,
    /// Further streams of the client, with their sockets.
    data_streams: Vec<(StreamId, u32)>,
    /// Streams that wait for CONNACK; `open_data_streams` then opens them.
    pending_streams: Vec<StreamId>,
    pub(super) is_handshaking: bool,
    /// The connection has ended; bytes received before may still be read.
    lost: bool,
    pub(super) is_to_drive: bool,
    pub(super) is_to_send: bool,
    /// The key of this connection in `QuicShard::timers`.
    pub(super) timer: Option<Instant>,
    /// A datagram refused by the UDP socket for lack of room.
    unsent_datagram: Option<Box<(Transmit, Vec<u8>)>>,
}

/// Time in milliseconds for a connection closed by the broker to deliver its last bytes.
const LINGER_MS: u64 = 2_000;
/// Measured memory of an idle connection in bytes: see docs/benchmarks.md, QUIC.
pub(super) const STATE_BYTES: u32 = 20 * 1024;
/// Error code of a normal close, as EMQX sends.
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// Result of [`QuicConnection::read_stream`].
enum StreamReadOutcome {
    /// The stream has no more bytes for now.
    Blocked,
    Ended,
    /// The read limit of the turn is reached.
    Full,
}

impl QuicConnection {
    pub(super) fn new(
        name: QuicConnectionKey,
        conn: Connection,
        udp: Arc<QuicUdpSocket>,
    ) -> QuicConnection {
        QuicConnection {
            key: name,
            address: conn.remote_address(),
            conn,
            udp,
            control_socket: None,
            control_stream: None,
            data_streams: Vec::new(),
            pending_streams: Vec::new(),
            is_handshaking: true,
            lost: false,
            is_to_drive: false,
            is_to_send: false,
            timer: None,
            unsent_datagram: None,
        }
    }

    /// Returns the stream of a socket, or `None` before the client has opened a control stream.
    fn stream_of(&self, index: u32) -> Option<StreamId> {
        if self.control_socket == Some(index) {
            return self.control_stream;
        }
        self.data_streams.iter().find(|(_, own)| *own == index).map(|(id, _)| *id)
    }

    fn read_stream(
        &mut self,
        stream: StreamId,
        into: &mut Vec<u8>,
        most: usize,
    ) -> StreamReadOutcome {
        let mut stream = self.conn.recv_stream(stream);
        // `read` fails for a stream that was read to its end.
        let Ok(mut chunks) = stream.read(true) else { return StreamReadOutcome::Ended };
        let mut left = most;
        let found = loop {
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    left -= chunk.bytes.len();
                    into.extend_from_slice(&chunk.bytes);
                    if left == 0 {
                        break StreamReadOutcome::Full;
                    }
                }
                Ok(None) | Err(ReadError::Reset(_)) => break StreamReadOutcome::Ended,
                Err(ReadError::Blocked) => break StreamReadOutcome::Blocked,
            }
        };
        // A window update leaves with the datagrams at the end of the turn.
        let _ = chunks.finalize();
        found
    }
}

impl QuicConnection {
    /// Closes a data stream: bytes already written still arrive, and no more are read.
    fn close_data_stream(&mut self, index: u32) {
        let Some(at) = self.data_streams.iter().position(|(_, own)| *own == index) else { return };
        let (id, _) = self.data_streams.swap_remove(at);
        // Either side may have ended the stream already, so errors are ignored.
        let _ = self.conn.send_stream(id).finish();
        let _ = self.conn.recv_stream(id).stop(NO_ERROR);
    }
}

impl QuicShard {
    pub(super) fn send_datagrams(&mut self, at: u32) {
        let Some(connection) = self.connections.get_mut(at as usize).and_then(Option::as_mut)
        else {
            return;
        };
        let is_full = |sent: &io::Result<()>| {
            sent.as_ref().is_err_and(|fault| fault.kind() == io::ErrorKind::WouldBlock)
        };
        if let Some(stuck) = &connection.unsent_datagram
            && is_full(&connection.udp.send(&stuck.0, &stuck.1))
        {
            return self.stalled.push(at);
        }
        connection.unsent_datagram = None;
        let train = connection.udp.train_len_max();
        loop {
            self.sent.clear();
            let Some(transmit) = connection.conn.poll_transmit(self.now, train, &mut self.sent)
            else {
                break;
            };
            // Any other error counts as a lost datagram.
            if is_full(&connection.udp.send(&transmit, &self.sent)) {
                connection.unsent_datagram = Some(Box::new((transmit, self.sent.clone())));
                self.stalled.push(at);
                break;
            }
        }
        let next = connection.conn.poll_timeout();
        if next != connection.timer {
            if let Some(timer) = connection.timer {
                self.timers.remove(&(timer, at));
            }
            connection.timer = next;
            self.timers.extend(next.map(|timer| (timer, at)));
        }
    }
}

impl ShardDriver {
    fn quic_connection(&mut self, at: u32) -> Option<&mut QuicConnection> {
        self.quic.as_mut()?.connection(at)
    }

    /// Handles all pending events of quinn-proto for a connection.
    pub(super) fn drive_quic_connection(&mut self, at: u32) {
        while let Some(connection) = self.quic_connection(at) {
            connection.is_to_drive = false;
            let Some(event) = connection.conn.poll() else { break };
            match event {
                Event::Connected => self.open_quic_connection(at),
                Event::ConnectionLost { reason } => self.end_quic_connection(at, reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.accept_streams(at),
                Event::Stream(StreamEvent::Readable { id }) => {
                    if let Some(index) = self.stream_socket(at, id) {
                        self.read_socket(index);
                    }
                }
                Event::Stream(StreamEvent::Writable { id }) => {
                    if let Some(index) = self.stream_socket(at, id) {
                        self.resend_unsent(index);
                    }
                }
                // The peer has acknowledged our last bytes, or does not want them.
                Event::Stream(StreamEvent::Finished { id } | StreamEvent::Stopped { id, .. }) => {
                    if let Some(index) = self.stream_socket(at, id) {
                        self.end_quic_stream(index);
                    }
                }
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. })
                | Event::DatagramReceived
                | Event::DatagramsUnblocked
                | Event::HandshakeDataReady => {}
            }
        }
        self.check_peer_address(at);
    }

    /// Returns the socket of a stream, as a slot of `ShardDriver::sockets`; `None` if the
    /// connection or the stream is unknown.
    fn stream_socket(&mut self, at: u32, id: StreamId) -> Option<u32> {
        let connection = self.quic_connection(at)?;
        let control = connection.control_socket.filter(|_| connection.control_stream == Some(id));
        let branch = || connection.data_streams.iter().find(|(own, _)| *own == id);
        control.or_else(|| branch().map(|(_, index)| *index))
    }

    /// Reports the connection to the broker after its handshake.
    fn open_quic_connection(&mut self, at: u32) {
        let Some(connection) = self.quic_connection(at) else { return };
        let Some(index) = connection.control_socket else { return };
        let chain = connection.conn.crypto_session().peer_identity();
        let chain = chain.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        if std::mem::take(&mut connection.is_handshaking)
            && let Some(quic) = &mut self.quic
        {
            quic.handshakes -= 1;
        }
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let Some(opening) = socket.stack.as_mut().and_then(|layers| layers.handshake.take()) else {
            return;
        };
        let PendingHandshake { mut peer, since, .. } = *opening;
        if let Some(certificate) = chain.and_then(|chain| tls::peer_certificate(&chain)) {
            peer.set_certificate(certificate);
        }
        peer.transport_bytes += STATE_BYTES;
        self.count_socket_bytes(index);
        let input = ShardInput::Opened { conn: ConnId(index), peer, since, moved: false };
        self.shard.handle(self.now, input, &mut self.out);
    }

    fn accept_streams(&mut self, at: u32) {
        let Some(connection) = self.quic_connection(at) else { return };
        while let Some(id) = connection.conn.streams().accept(Dir::Bi) {
            match connection.control_stream {
                None => connection.control_stream = Some(id),
                Some(_) => connection.pending_streams.push(id),
            }
        }
        let Some(index) = connection.control_socket else { return };
        // Before the end of the handshake only early data gets here, which the listener has to
        // permit.
        if connection.is_handshaking {
            self.open_quic_connection(at);
        }
        self.read_socket(index);
    }

    /// Opens streams which the client started before its CONNACK: the client may use data streams
    /// from the CONNACK on.
    pub(super) fn open_data_streams(&mut self, at: u32) {
        let Some(connection) =
            self.quic_connection(at).filter(|connection| !connection.pending_streams.is_empty())
        else {
            return;
        };
        let Some(control) = connection.control_socket else { return };
        if !self.shard.is_connacked(ConnId(control)) {
            return;
        }
        let Some(connection) = self.quic_connection(at) else { return };
        for id in std::mem::take(&mut connection.pending_streams) {
            let mut socket = Socket::new(SocketStream::Quic { connection: at }, Vec::new());
            socket.stack = Some(Box::new(TransportStack::for_data_stream()));
            let Some(index) = self.register_socket(socket) else { continue };
            if let Some(connection) = self.quic_connection(at) {
                connection.data_streams.push((id, index));
            }
            let input = ShardInput::StreamOpened { conn: ConnId(index), of: ConnId(control) };
            self.shard.handle(self.now, input, &mut self.out);
            // No event reports bytes that have already arrived on the stream.
            self.list_socket(index);
        }
    }

    fn end_quic_connection(&mut self, at: u32, reason: ConnectionError) {
        let Some(connection) = self.quic_connection(at) else { return };
        connection.lost = true;
        let Some(index) = connection.control_socket else { return };
        if self.is_handshaking(index) {
            return self.fail_handshake(index, &TransportError::Quic(reason));
        }
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_lingering() || socket.out_of_memory {
            return self.drop_socket(index);
        }
        socket.drop_unsent();
        self.count_socket_bytes(index);
        self.read_socket(index);
    }

    fn end_quic_stream(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_lingering() {
            self.drop_socket(index);
        } else {
            self.drop_lost_connection(index);
        }
    }

    /// Reads a stream once, and delivers the bytes. A stream with more to read is listed.
    pub(crate) fn read_quic_stream(&mut self, index: u32, connection: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if socket.stack.as_ref().is_some_and(|layers| layers.handshake.is_some()) {
            return;
        }
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.connection(connection) else { return };
        let (mut plain, grows) = take_plain_buffer(&mut socket.tail, &mut self.plain);
        let before = plain.len();
        let found = match own.stream_of(index) {
            Some(stream) => own.read_stream(stream, &mut plain, limits::READ_BYTES_PER_TICK),
            None => StreamReadOutcome::Blocked,
        };
        let (lost, control) = (own.lost, own.control_socket);
        quic.queue_send(connection);
        let came = plain.len() > before;
        // Bytes on any stream keep the client alive.
        if let Some(control) = control.filter(|own| came && *own != index) {
            let input = ShardInput::Bytes { conn: ConnId(control), bytes: &[] };
            self.shard.handle(self.now, input, &mut self.out);
        }
        self.deliver_plain(index, plain, grows, came);
        match found {
            StreamReadOutcome::Full => self.list_socket(index),
            // Bytes before the end are handled first, and may have to wait.
            StreamReadOutcome::Ended | StreamReadOutcome::Blocked
                if came && (lost || matches!(found, StreamReadOutcome::Ended)) =>
            {
                self.list_socket(index);
            }
            StreamReadOutcome::Ended => self.drop_lost_connection(index),
            StreamReadOutcome::Blocked if lost => self.drop_lost_connection(index),
            StreamReadOutcome::Blocked => {}
        }
    }

    /// Continues writing the unsent bytes of a TCP, unix or QUIC socket. Returns true once all are
    /// written.
    pub(crate) fn resend_socket(&mut self, index: u32) -> io::Result<bool> {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return Ok(true) };
        match socket.stream.quic_connection() {
            None => socket.resend(),
            Some(connection) => self.write_quic_stream(index, connection),
        }
    }

    /// Whether unsent bytes of a QUIC socket could all be written to its connection; false for
    /// every non-QUIC socket.
    pub(crate) fn flushes_to_quic(&mut self, index: u32) -> bool {
        let socket = self.sockets.get(index as usize).and_then(Option::as_ref);
        let connection = socket.and_then(|socket| socket.stream.quic_connection());
        connection
            .is_some_and(|connection| matches!(self.write_quic_stream(index, connection), Ok(true)))
    }

    /// Writes the unsent bytes of a socket to its stream, as far as the flow-control windows of
    /// both sides allow. Returns whether all were written.
    pub(crate) fn write_quic_stream(&mut self, index: u32, connection: u32) -> io::Result<bool> {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return Ok(true) };
        let Some(quic) = &mut self.quic else { return Ok(true) };
        let Some(own) = quic.connection(connection) else { return Ok(true) };
        let Some(stream) = own.stream_of(index) else { return Ok(false) };
        let mut stream = own.conn.send_stream(stream);
        let sent = socket.resend_with(|bytes| {
            stream.write(bytes).map_err(|error| match error {
                WriteError::Blocked => io::ErrorKind::WouldBlock.into(),
                WriteError::Stopped(_) | WriteError::ClosedStream => {
                    io::ErrorKind::BrokenPipe.into()
                }
            })
        });
        quic.queue_send(connection);
        sent
    }

    /// Ends the server's side of a stream. For the control stream the connection ends too, once the
    /// peer has acknowledged all bytes or after [`LINGER_MS`].
    pub(crate) fn close_quic_stream(&mut self, index: u32, connection: u32) {
        let sent = self.write_quic_stream(index, connection);
        let finished = self.quic_connection(connection).and_then(|own| {
            let stream =
                own.stream_of(index).filter(|_| !own.lost && own.control_socket == Some(index))?;
            own.conn.send_stream(stream).finish().ok()
        });
        self.end_data_streams(connection);
        self.count_socket_bytes(index);
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        if !matches!(sent, Ok(true)) || finished.is_none() {
            return self.drop_socket(index);
        }
        let at = MonotonicMs(self.now.0 + LINGER_MS);
        socket.lingers_until = at;
        self.lingering.push_back((at, index));
    }

    /// Ends all data streams with their control stream. The broker learns of the ends when the turn
    /// ends, since its effects are being performed now.
    fn end_data_streams(&mut self, connection: u32) {
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.connection(connection).filter(|own| own.control_socket.is_some())
        else {
            return;
        };
        let branches: Vec<u32> = own.data_streams.iter().map(|(_, index)| *index).collect();
        own.pending_streams.clear();
        quic.ended_streams.extend(branches);
    }

    /// Ends the stream of a dropped socket; the control stream ends the connection as well.
    pub(crate) fn release_quic_stream(&mut self, index: u32, connection: u32) {
        let Some(quic) = &mut self.quic else { return };
        let now = quic.now;
        let Some(own) = quic.connection(connection) else { return };
        own.close_data_stream(index);
        if own.control_socket != Some(index) {
            return quic.queue_send(connection);
        }
        self.end_data_streams(connection);
        let Some(quic) = &mut self.quic else { return };
        let Some(own) = quic.connection(connection) else { return };
        own.control_socket = None;
        if !own.conn.is_closed() {
            own.conn.close(now, NO_ERROR, bytes::Bytes::new());
        }
        if std::mem::take(&mut own.is_handshaking) {
            quic.handshakes -= 1;
        }
        quic.queue_send(connection);
    }

    /// Removes the connection to move it to the shard `home`. Later datagrams follow over the ring.
    pub(crate) fn take_quic_connection(
        &mut self,
        at: u32,
        home: broker::ShardId,
    ) -> Option<Box<QuicConnection>> {
        let quic = self.quic.as_mut()?;
        let mut connection = quic.remove_connection(at)?;
        connection.control_socket = None;
        if let Some(endpoint) = quic.endpoint(connection.key.listener) {
            endpoint.moved_connections.insert(connection.key.handle, home);
        }
        Some(connection)
    }

    /// Sets the socket of the control stream, which is the connection's first socket.
    pub(crate) fn set_control_socket(&mut self, index: u32, connection: u32) {
        if let Some(own) = self.quic_connection(connection) {
            own.control_socket.get_or_insert(index);
        }
    }

    /// Closes the connection of a peer whose address has changed to a banned address.
    fn check_peer_address(&mut self, at: u32) {
        let now = self.now;
        let Some(connection) = self.quic_connection(at) else { return };
        let address = connection.conn.remote_address();
        if address == std::mem::replace(&mut connection.address, address) {
            return;
        }
        let control = connection.control_socket;
        if self.shard.refuse_banned_address(now, canonical_address(address), &mut self.out)
            && let Some(index) = control
        {
            self.end_quic_stream(index);
        }
    }
}
