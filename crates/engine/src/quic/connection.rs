//! A QUIC connection with its streams, each of which has a socket: events of quinn-proto become the
//! events that the poller reports for other sockets.

use super::{QuicConnectionKey, QuicEvent};
use crate::socket::Socket;
use quinn_proto::{
    Connection, ConnectionEvent, Dir, EndpointEvent, Event, ReadError, StreamEvent, StreamId,
    Transmit, VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use transport::QuicUdpSocket;

pub(crate) struct QuicConnection {
    key: QuicConnectionKey,
    conn: Connection,
    udp: Arc<QuicUdpSocket>,
    /// The current address of the peer; a change is checked against the bans.
    address: SocketAddr,
    /// The socket of the control stream; `None` once the broker has dropped the connection.
    control_socket: Option<u32>,
    /// The first stream opened by the client, with CONNECT.
    control_stream: Option<StreamId>,
    /// Further streams of the client, with their sockets.
    data_streams: Vec<(StreamId, u32)>,
    /// Streams that wait for CONNACK.
    pending_streams: Vec<StreamId>,
    is_handshaking: bool,
    /// The connection has ended; bytes received before may still be read.
    lost: bool,
    is_to_drive: bool,
    is_to_send: bool,
    /// The key of this connection in `QuicShard::timers`.
    timer: Option<Instant>,
    /// A datagram refused by the UDP socket for lack of room.
    unsent_datagram: Option<Box<(Transmit, Vec<u8>)>>,
}

/// Error code of a normal close, as EMQX sends.
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// Progress of [`QuicConnection::poll_step`].
pub(super) enum ConnectionStep {
    Event(QuicEvent),
    /// An event of quinn-proto that concerns no socket.
    Nothing,
}

/// Result of [`QuicConnection::read_stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamReadOutcome {
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

    /// Reads at most `most` bytes of the stream of a socket.
    pub(crate) fn read_stream(
        &mut self,
        index: u32,
        into: &mut Vec<u8>,
        most: usize,
    ) -> StreamReadOutcome {
        let Some(stream) = self.stream_of(index) else { return StreamReadOutcome::Blocked };
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

    /// Closes a data stream: bytes already written still arrive, and no more are read.
    pub(super) fn close_data_stream(&mut self, index: u32) {
        let Some(at) = self.data_streams.iter().position(|(_, own)| *own == index) else { return };
        let (id, _) = self.data_streams.swap_remove(at);
        // Either side may have ended the stream already, so errors are ignored.
        let _ = self.conn.send_stream(id).finish();
        let _ = self.conn.recv_stream(id).stop(NO_ERROR);
    }

    /// Writes the unsent bytes of a socket to its stream, as far as the flow-control windows of
    /// both sides allow. Returns whether all were written.
    pub(crate) fn write_stream(&mut self, index: u32, socket: &mut Socket) -> io::Result<bool> {
        let Some(stream) = self.stream_of(index) else { return Ok(false) };
        let mut stream = self.conn.send_stream(stream);
        socket.resend_with(|bytes| {
            stream.write(bytes).map_err(|error| match error {
                WriteError::Blocked => io::ErrorKind::WouldBlock.into(),
                WriteError::Stopped(_) | WriteError::ClosedStream => {
                    io::ErrorKind::BrokenPipe.into()
                }
            })
        })
    }

    /// Ends the server's side of the control stream, if `index` is its socket. Returns whether the
    /// peer will acknowledge the end.
    pub(crate) fn finish_control_stream(&mut self, index: u32) -> bool {
        let stream = self.stream_of(index);
        let stream = stream.filter(|_| !self.lost && self.control_socket == Some(index));
        stream.is_some_and(|stream| self.conn.send_stream(stream).finish().is_ok())
    }

    /// Whether the connection has ended; bytes received before may still be read.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    pub(crate) fn control_socket(&self) -> Option<u32> {
        self.control_socket
    }

    /// Sets the socket of the control stream, which is the connection's first socket.
    pub(crate) fn set_control_socket(&mut self, index: u32) {
        self.control_socket.get_or_insert(index);
    }

    /// Whether streams wait for CONNACK, which the client may use from the CONNACK on.
    pub(crate) fn has_pending_streams(&self) -> bool {
        !self.pending_streams.is_empty()
    }

    pub(crate) fn add_data_stream(&mut self, id: StreamId, index: u32) {
        self.data_streams.push((id, index));
    }

    pub(super) fn key(&self) -> QuicConnectionKey {
        self.key
    }

    pub(super) fn timer(&self) -> Option<Instant> {
        self.timer
    }

    pub(super) fn take_pending_streams(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.pending_streams)
    }

    /// Ends the data streams with their control stream, and returns their sockets.
    pub(super) fn end_data_streams(&mut self) -> Vec<u32> {
        if self.control_socket.is_none() {
            return Vec::new();
        }
        self.pending_streams.clear();
        self.data_streams.iter().map(|(_, index)| *index).collect()
    }

    /// Closes the connection of a control stream whose socket is gone.
    pub(super) fn close(&mut self, now: Instant) {
        self.leave_socket();
        if !self.conn.is_closed() {
            self.conn.close(now, NO_ERROR, bytes::Bytes::new());
        }
    }

    /// Forgets the socket of the control stream.
    pub(super) fn leave_socket(&mut self) {
        self.control_socket = None;
    }

    /// Ends the handshake. Returns whether the handshake was still under way.
    pub(super) fn end_handshake(&mut self) -> bool {
        std::mem::take(&mut self.is_handshaking)
    }

    pub(super) fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let identity = self.conn.crypto_session().peer_identity()?;
        Some(*identity.downcast().ok()?)
    }

    /// Returns the address of the peer if it has changed since the last call.
    pub(super) fn take_new_address(&mut self) -> Option<SocketAddr> {
        let address = self.conn.remote_address();
        let is_new = address != std::mem::replace(&mut self.address, address);
        is_new.then_some(address)
    }

    pub(super) fn apply_event(&mut self, event: ConnectionEvent) {
        self.conn.handle_event(event);
    }

    /// Returns the next event for the endpoint, while the connection is sent.
    pub(super) fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.is_to_send = false;
        self.conn.poll_endpoint_events()
    }

    pub(super) fn fire_timer(&mut self, now: Instant) {
        self.timer = None;
        self.conn.handle_timeout(now);
    }

    /// Returns the former and the new time of the timer, if they differ.
    pub(super) fn renew_timer(&mut self) -> Option<(Option<Instant>, Option<Instant>)> {
        let next = self.conn.poll_timeout();
        let old = std::mem::replace(&mut self.timer, next);
        (old != next).then_some((old, next))
    }

    /// Plans to drive the connection. Returns whether that was not planned yet.
    pub(super) fn plan_drive(&mut self) -> bool {
        !std::mem::replace(&mut self.is_to_drive, true)
    }

    /// Plans to send the connection. Returns whether that was not planned yet.
    pub(super) fn plan_send(&mut self) -> bool {
        !std::mem::replace(&mut self.is_to_send, true)
    }

    /// Forgets the plans and the timer of another shard.
    pub(super) fn forget_plans(&mut self) {
        (self.is_to_send, self.is_to_drive, self.timer) = (false, false, None);
    }

    /// Handles one event of quinn-proto; `None` when there are no more.
    pub(super) fn poll_step(&mut self) -> Option<ConnectionStep> {
        self.is_to_drive = false;
        let event = match self.conn.poll()? {
            Event::Connected => Some(QuicEvent::Connected),
            Event::ConnectionLost { reason } => {
                self.lost = true;
                Some(QuicEvent::Lost(reason))
            }
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                self.accept_streams();
                Some(QuicEvent::StreamsOpened)
            }
            Event::Stream(StreamEvent::Readable { id }) => {
                self.socket_of(id).map(|index| QuicEvent::Readable { index })
            }
            Event::Stream(StreamEvent::Writable { id }) => {
                self.socket_of(id).map(|index| QuicEvent::Writable { index })
            }
            Event::Stream(StreamEvent::Finished { id } | StreamEvent::Stopped { id, .. }) => {
                self.socket_of(id).map(|index| QuicEvent::Finished { index })
            }
            Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. })
            | Event::DatagramReceived
            | Event::DatagramsUnblocked
            | Event::HandshakeDataReady => None,
        };
        Some(event.map_or(ConnectionStep::Nothing, ConnectionStep::Event))
    }

    fn accept_streams(&mut self) {
        while let Some(id) = self.conn.streams().accept(Dir::Bi) {
            match self.control_stream {
                None => self.control_stream = Some(id),
                Some(_) => self.pending_streams.push(id),
            }
        }
    }

    /// Returns the socket of a stream; `None` if the stream is unknown.
    fn socket_of(&self, id: StreamId) -> Option<u32> {
        let control = self.control_socket.filter(|_| self.control_stream == Some(id));
        let branch = || self.data_streams.iter().find(|(own, _)| *own == id);
        control.or_else(|| branch().map(|(_, index)| *index))
    }

    /// Sends the datagram again which the UDP socket has refused. Returns false if the socket still
    /// has no room.
    pub(super) fn resend_datagram(&mut self) -> bool {
        if let Some(stuck) = &self.unsent_datagram
            && is_full(&self.udp.send(&stuck.0, &stuck.1))
        {
            return false;
        }
        self.unsent_datagram = None;
        true
    }

    /// Sends the datagrams of the connection through `buffer`. Returns false if the UDP socket has
    /// no room: the refused datagram is kept.
    pub(super) fn send_datagrams(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        let train = self.udp.train_len_max();
        loop {
            buffer.clear();
            let Some(transmit) = self.conn.poll_transmit(now, train, buffer) else { return true };
            // Any other error counts as a lost datagram.
            if is_full(&self.udp.send(&transmit, buffer)) {
                self.unsent_datagram = Some(Box::new((transmit, buffer.clone())));
                return false;
            }
        }
    }
}

fn is_full(sent: &io::Result<()>) -> bool {
    sent.as_ref().is_err_and(|fault| fault.kind() == io::ErrorKind::WouldBlock)
}
