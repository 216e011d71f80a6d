//! QUIC connections to one address: a UDP socket and quinn's endpoint.
//!
//! ```text
//! datagrams in -> poll -> woken connections -> read, write -> send_pending -> datagrams out
//! ```
//!
//! Each connection has one stream, which carries MQTT. Only `send_pending` sends datagrams and only
//! `poll` fires timers; `next_poll_at` bounds the time between two calls of `poll`. The socket is
//! connected, so the kernel reports a port without a listening process; all connections are lost
//! then. One connection pings regularly for all connections, so a closed port is also noticed while
//! no data flows.

use crate::udp::{QuicUdpSocket, SLOT_BYTES, SLOTS, ecn_of};
use bytes::Bytes;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, EndpointEvent, Event, IdleTimeout, ReadError, StreamEvent, StreamId, Transmit,
    TransportConfig, VarInt, WriteError,
};
use quinn_udp::RecvMeta;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of outgoing QUIC connections: the TLS configuration and transport parameters.
#[derive(Clone, Debug)]
pub struct QuicClientOptions(ClientConfig);

/// A QUIC connection of one [`QuicClientEndpoint`], until the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicConnectionHandle(ConnectionHandle);

/// All QUIC connections from one UDP socket to one address. The caller polls the socket; no
/// function blocks.
#[derive(Debug)]
pub struct QuicClientEndpoint {
    to: SocketAddr,
    udp: QuicUdpSocket,
    endpoint: Endpoint,
    connections: HashMap<ConnectionHandle, QuicClientConnection>,
    /// Connections with new events, to be polled by `poll_connection`.
    to_poll: Vec<ConnectionHandle>,
    /// Connections which may have datagrams to send, see `send_pending`.
    to_send: Vec<ConnectionHandle>,
    timers: BTreeSet<(Instant, usize)>,
    pings_every: Duration,
    ping_at: Instant,
    ping_all_at: Instant,
    /// A datagram which the socket did not accept, kept for the next call of `send_pending`.
    unsent: Option<(Transmit, Vec<u8>)>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

#[derive(Debug)]
struct QuicClientConnection {
    conn: Connection,
    /// The owner to wake; `None` after [`QuicClientEndpoint::close`].
    owner: Option<u32>,
    stream: Option<StreamId>,
    timer: Option<Instant>,
    loss: Option<ConnectionLoss>,
    /// The last event of a drained connection. The endpoint receives the event when the owner has
    /// closed the connection.
    drained: Option<EndpointEvent>,
    is_to_poll: bool,
    is_to_send: bool,
}

#[derive(Clone, Debug)]
enum ConnectionLoss {
    /// No process listens on the port: see `mark_all_refused`.
    Refused,
    Failed(ConnectionError),
}

impl QuicClientOptions {
    pub fn new(tls: &rustls::ClientConfig) -> Result<QuicClientOptions, String> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| error.to_string())?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport_config()));
        Ok(QuicClientOptions(config))
    }

    /// Sets the idle timeout: a connection which receives no datagrams for `silence` is lost, even
    /// while sending. The caller has to ping more often than that.
    pub fn with_idle_timeout(mut self, silence: Duration) -> Result<QuicClientOptions, String> {
        let silence = IdleTimeout::try_from(silence).map_err(|error| error.to_string())?;
        let mut transport = transport_config();
        transport.max_idle_timeout(Some(silence));
        self.0.transport_config(Arc::new(transport));
        Ok(self)
    }
}

fn transport_config() -> TransportConfig {
    let mut transport = TransportConfig::default();
    let none = VarInt::from_u32(0);
    transport
        .max_concurrent_bidi_streams(none)
        .max_concurrent_uni_streams(none)
        .datagram_receive_buffer_size(None)
        .send_window(SEND_WINDOW_BYTES)
        // The MQTT keep alive detects dead peers.
        .max_idle_timeout(None);
    transport
}

impl QuicClientEndpoint {
    pub fn new(
        to: SocketAddr,
        from: Option<IpAddr>,
        pings_every: Duration,
    ) -> io::Result<QuicClientEndpoint> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
        let anywhere = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        socket.bind(&SocketAddr::new(from.unwrap_or(anywhere), 0).into())?;
        // Many connections share the socket. A smaller buffer is not an error.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(BUFFER_BYTES);
        socket.connect(&to.into())?;
        let config = Arc::new(EndpointConfig::default());
        Ok(QuicClientEndpoint {
            to,
            udp: QuicUdpSocket::new(socket.into())?,
            endpoint: Endpoint::new(config, None, true, None),
            connections: HashMap::new(),
            to_poll: Vec::new(),
            to_send: Vec::new(),
            timers: BTreeSet::new(),
            pings_every,
            ping_at: Instant::now() + pings_every,
            ping_all_at: Instant::now(),
            unsent: None,
            sent: Vec::new(),
            received: vec![0; SLOTS * SLOT_BYTES],
        })
    }

    /// Begins a handshake to the server name `host`. `poll` reports `owner` when the state of the
    /// connection changes.
    pub fn connect(
        &mut self,
        manner: &QuicClientOptions,
        host: &str,
        owner: u32,
    ) -> io::Result<QuicConnectionHandle> {
        let now = Instant::now();
        let opened = self.endpoint.connect(now, manner.0.clone(), self.to, host);
        let (handle, conn) = opened.map_err(io::Error::other)?;
        let connection = QuicClientConnection {
            conn,
            owner: Some(owner),
            stream: None,
            timer: None,
            loss: None,
            drained: None,
            is_to_poll: false,
            is_to_send: false,
        };
        self.connections.insert(handle, connection);
        self.queue_send(handle);
        Ok(QuicConnectionHandle(handle))
    }

    /// Whether the handshake is done and the stream is open, so MQTT may begin. Returns the error
    /// of a lost connection.
    pub fn poll_open(
        &mut self,
        QuicConnectionHandle(handle): QuicConnectionHandle,
    ) -> io::Result<bool> {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return Err(not_connected());
        };
        match &connection.loss {
            Some(lost) => Err(lost.to_io_error()),
            None => Ok(connection.stream.is_some()),
        }
    }

    /// Reads from the stream: `None` means no data for now, and 0 the end.
    pub fn read(&mut self, id: QuicConnectionHandle, into: &mut [u8]) -> io::Result<Option<usize>> {
        let QuicConnectionHandle(handle) = id;
        let Some(connection) = self.connections.get_mut(&handle) else {
            return Err(not_connected());
        };
        let found = connection.read(into)?;
        self.queue_send(handle);
        Ok(found)
    }

    /// Writes to the stream and returns the accepted bytes; `None` means flow control accepts no
    /// bytes now.
    pub fn write(&mut self, id: QuicConnectionHandle, bytes: &[u8]) -> io::Result<Option<usize>> {
        let QuicConnectionHandle(handle) = id;
        let Some(connection) = self.connections.get_mut(&handle) else {
            return Err(not_connected());
        };
        if let Some(lost) = &connection.loss {
            return Err(lost.to_io_error());
        }
        let Some(stream) = connection.stream else { return Ok(None) };
        let written = match connection.conn.send_stream(stream).write(bytes) {
            Ok(written) => written,
            Err(WriteError::Blocked) => return Ok(None),
            Err(error) => return Err(io::Error::new(io::ErrorKind::BrokenPipe, error)),
        };
        self.queue_send(handle);
        Ok(Some(written))
    }

    /// Ends the sending direction of the stream.
    pub fn finish_stream(&mut self, QuicConnectionHandle(handle): QuicConnectionHandle) {
        if let Some(connection) = self.connections.get_mut(&handle)
            && let Some(stream) = connection.stream
        {
            // The peer may have stopped reading, and finishing fails then.
            let _ = connection.conn.send_stream(stream).finish();
            self.queue_send(handle);
        }
    }

    /// Closes the connection. The endpoint keeps the connection until the closing period of QUIC is
    /// over.
    pub fn close(&mut self, QuicConnectionHandle(handle): QuicConnectionHandle) {
        if let Some(connection) = self.connections.get_mut(&handle) {
            connection.owner = None;
            if !connection.conn.is_closed() {
                connection.conn.close(Instant::now(), NO_ERROR, Bytes::new());
            }
            self.queue_send(handle);
        }
    }

    /// Returns the number of connections with an owner.
    pub fn connection_count(&self) -> usize {
        self.connections.values().filter(|connection| connection.owner.is_some()).count()
    }

    /// Receives the datagrams of one system call and fires timers. Adds the owners of changed
    /// connections to `woken`, and returns whether more datagrams may wait.
    pub fn poll(&mut self, woken: &mut Vec<u32>) -> io::Result<bool> {
        let now = Instant::now();
        let more = self.receive_datagrams(now)?;
        while let Some((due, at)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            let handle = ConnectionHandle(at);
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.timer = None;
                connection.conn.handle_timeout(now);
                self.queue_poll(handle);
            }
        }
        if self.ping_at <= now {
            self.ping_at = now + self.pings_every;
            self.ping(1);
        }
        for handle in std::mem::take(&mut self.to_poll) {
            self.poll_connection(handle, woken);
        }
        Ok(more)
    }

    /// Returns the latest time for the next call of [`QuicClientEndpoint::poll`].
    pub fn next_poll_at(&self) -> Instant {
        let timer = self.timers.first().map(|(at, _)| *at);
        let again = self.unsent.as_ref().map(|_| Instant::now() + SEND_RETRY);
        timer.into_iter().chain(again).fold(self.ping_at, Instant::min)
    }

    /// Sends the datagrams of all connections in `to_send`, until the socket accepts no more.
    pub fn send_pending(&mut self) {
        if let Some((transmit, bytes)) = self.unsent.take() {
            match self.udp.send(&transmit, &bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some((transmit, bytes));
                    return;
                }
                sent => self.note_send_result(&sent),
            }
        }
        while let Some(handle) = self.to_send.pop() {
            if !self.send_connection(handle) {
                self.to_send.push(handle);
                return;
            }
        }
    }

    /// Returns false if the socket accepts no more datagrams; the datagram waits in `unsent`.
    fn send_connection(&mut self, handle: ConnectionHandle) -> bool {
        let (now, train) = (Instant::now(), self.udp.train_len_max());
        loop {
            let Some(connection) = self.connections.get_mut(&handle) else { return true };
            self.sent.clear();
            let Some(transmit) = connection.conn.poll_transmit(now, train, &mut self.sent) else {
                break;
            };
            let sent = self.udp.send(&transmit, &self.sent);
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some((transmit, self.sent.clone()));
                    return false;
                }
                sent => self.note_send_result(&sent),
            }
        }
        let Some(connection) = self.connections.get_mut(&handle) else { return true };
        connection.is_to_send = false;
        let next = connection.conn.poll_timeout();
        if next != connection.timer {
            let old = std::mem::replace(&mut connection.timer, next);
            old.map(|at| self.timers.remove(&(at, handle.0)));
            self.timers.extend(next.map(|at| (at, handle.0)));
        }
        self.forward_endpoint_events(handle);
        true
    }

    /// Handles the error of a port without a listening process. After other errors the datagram is
    /// lost, and QUIC sends its content again.
    fn note_send_result(&mut self, done: &io::Result<()>) {
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            self.mark_all_refused();
        }
    }

    fn receive_datagrams(&mut self, now: Instant) -> io::Result<bool> {
        let mut metas = [RecvMeta::default(); SLOTS];
        let mut buffer = std::mem::take(&mut self.received);
        let came = self.udp.receive(&mut buffer, &mut metas);
        for (meta, slot) in metas.iter().zip(buffer.chunks_exact(SLOT_BYTES)) {
            if came.is_err() || meta.len == 0 {
                break;
            }
            for datagram in slot[..meta.len].chunks(meta.stride.max(1)) {
                self.receive_datagram(now, meta, datagram);
            }
        }
        self.received = buffer;
        match came {
            Ok(came) => Ok(came > 0),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                io::ErrorKind::ConnectionRefused => {
                    self.mark_all_refused();
                    Ok(true)
                }
                // An error of an earlier sent datagram, for example a datagram larger than the
                // path's MTU.
                _ => Ok(true),
            },
        }
    }

    fn receive_datagram(&mut self, now: Instant, meta: &RecvMeta, bytes: &[u8]) {
        let mut answer = std::mem::take(&mut self.sent);
        answer.clear();
        let (ecn, bytes) = (ecn_of(meta), bytes.into());
        let event = self.endpoint.handle(now, meta.addr, meta.dst_ip, ecn, bytes, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle) {
                    connection.conn.handle_event(event);
                    self.queue_poll(handle);
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                let _ = self.udp.send(&transmit, &answer);
            }
            // The endpoint of a client does not accept connections.
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            None => {}
        }
        self.sent = answer;
    }

    /// Marks all connections as refused: the kernel reported a port without a listening process.
    fn mark_all_refused(&mut self) {
        for (handle, connection) in &mut self.connections {
            connection.loss.get_or_insert(ConnectionLoss::Refused);
            if !std::mem::replace(&mut connection.is_to_poll, true) {
                self.to_poll.push(*handle);
            }
        }
    }

    fn ping(&mut self, count: usize) {
        let is_live = |connection: &QuicClientConnection| {
            connection.stream.is_some() && connection.loss.is_none()
        };
        let live = self.connections.iter().filter(|(_, connection)| is_live(connection));
        let some: Vec<ConnectionHandle> = live.map(|(handle, _)| *handle).take(count).collect();
        for handle in some {
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.conn.ping();
            }
            self.queue_send(handle);
        }
    }

    /// Handles the events of a connection: opens the stream, records a loss, and adds the owner to
    /// `woken`.
    fn poll_connection(&mut self, handle: ConnectionHandle, woken: &mut Vec<u32>) {
        let Some(connection) = self.connections.get_mut(&handle) else { return };
        connection.is_to_poll = false;
        let (mut is_news, mut is_reset) = (connection.loss.is_some(), false);
        while let Some(event) = connection.conn.poll() {
            match event {
                Event::Connected => connection.stream = connection.conn.streams().open(Dir::Bi),
                Event::Stream(StreamEvent::Available { dir: Dir::Bi })
                    if connection.stream.is_none() =>
                {
                    connection.stream = connection.conn.streams().open(Dir::Bi);
                }
                Event::ConnectionLost { reason } => {
                    is_reset = matches!(reason, ConnectionError::Reset);
                    connection.loss.get_or_insert(ConnectionLoss::Failed(reason));
                }
                Event::Stream(_) => {}
                _ => continue,
            }
            is_news = true;
        }
        woken.extend(connection.owner.filter(|_| is_news));
        self.queue_send(handle);
        self.forward_endpoint_events(handle);
        let now = Instant::now();
        if is_reset && self.ping_all_at <= now {
            // A stateless reset means the peer may have restarted without any connection. A ping
            // makes the peer reset the rest too. QUIC retransmits a lost ping, so one is enough.
            self.ping_all_at = now + self.pings_every;
            self.ping(usize::MAX);
        }
    }

    /// Passes the events of a connection to the endpoint. A drained connection is removed after its
    /// owner has closed the connection.
    fn forward_endpoint_events(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.connections.get_mut(&handle) else { return };
        while let Some(event) = connection.conn.poll_endpoint_events() {
            if event.is_drained() {
                connection.drained = Some(event);
            } else if let Some(answer) = self.endpoint.handle_event(handle, event) {
                connection.conn.handle_event(answer);
            }
        }
        if connection.owner.is_none()
            && let Some(event) = connection.drained.take()
        {
            self.endpoint.handle_event(handle, event);
            connection.timer.take().map(|at| self.timers.remove(&(at, handle.0)));
            self.connections.remove(&handle);
        }
    }

    fn queue_poll(&mut self, handle: ConnectionHandle) {
        if let Some(connection) = self.connections.get_mut(&handle)
            && !std::mem::replace(&mut connection.is_to_poll, true)
        {
            self.to_poll.push(handle);
        }
    }

    fn queue_send(&mut self, handle: ConnectionHandle) {
        if let Some(connection) = self.connections.get_mut(&handle)
            && !std::mem::replace(&mut connection.is_to_send, true)
        {
            self.to_send.push(handle);
        }
    }
}

impl QuicClientConnection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut read = 0;
        let mut is_end = false;
        if let Some(stream) = self.stream {
            let mut stream = self.conn.recv_stream(stream);
            // quinn returns an error for a stream which was read to the end.
            let Ok(mut chunks) = stream.read(true) else { return Ok(Some(0)) };
            while read < into.len() && !is_end {
                match chunks.next(into.len() - read) {
                    Ok(Some(chunk)) => {
                        into[read..read + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                        read += chunk.bytes.len();
                    }
                    Ok(None) | Err(ReadError::Reset(_)) => is_end = true,
                    Err(ReadError::Blocked) => break,
                }
            }
            // `send_pending` sends the updated flow control window.
            let _ = chunks.finalize();
        }
        match &self.loss {
            _ if read > 0 || is_end => Ok(Some(read)),
            None => Ok(None),
            Some(lost) if lost.is_clean_close() => Ok(Some(0)),
            Some(lost) => Err(lost.to_io_error()),
        }
    }
}

impl ConnectionLoss {
    /// Whether the peer closed the connection with `NO_ERROR`.
    fn is_clean_close(&self) -> bool {
        let ConnectionLoss::Failed(ConnectionError::ApplicationClosed(close)) = self else {
            return false;
        };
        close.error_code == NO_ERROR
    }

    fn to_io_error(&self) -> io::Error {
        match self {
            ConnectionLoss::Refused => io::ErrorKind::ConnectionRefused.into(),
            ConnectionLoss::Failed(_) if self.is_clean_close() => {
                io::ErrorKind::UnexpectedEof.into()
            }
            ConnectionLoss::Failed(ConnectionError::Reset) => io::ErrorKind::ConnectionReset.into(),
            ConnectionLoss::Failed(reason) => io::Error::other(format!("QUIC: {reason}")),
        }
    }
}

impl AsFd for QuicClientEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Returns the error for a handle whose connection was removed.
fn not_connected() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// ALPN name of MQTT over QUIC, the same as in EMQX and NanoMQ.
const ALPN: &[u8] = b"mqtt";
/// Application error code of a normal close, as EMQX sends it.
const NO_ERROR: VarInt = VarInt::from_u32(0);
/// Largest number of bytes in flight on one connection: the counterpart of the send buffer of a TCP
/// socket.
const SEND_WINDOW_BYTES: u64 = 256 * 1024;
const BUFFER_BYTES: usize = 2 * 1024 * 1024;
/// Delay before a datagram which the socket did not accept is sent again.
const SEND_RETRY: Duration = Duration::from_millis(1);
