//! QUIC on the shard's own loop: quinn-proto implements the protocol, and this module supplies
//! datagrams and time.
//!
//! ```text
//! UDP socket -> QuicEndpoint (shard 0) -> QuicConnection (any shard) -> stream as Socket -> MQTT
//!                    ^  ids, resets       |
//!                    +--------------------+-> datagrams out, by the same UDP socket
//! ```
//!
//! Shard 0 reads the UDP socket. Its endpoint finds the connection of a datagram by the connection
//! id, so that a client may change its address. A QUIC connection lives on the shard that owns its
//! client and all its work is done there; the connection moves to that shard once, as a TCP socket
//! does, and later datagrams follow over the ring. Messages between endpoint and connection go the
//! same way.

mod config;
mod connection;
mod endpoint;

pub use config::{QuicConfig, QuicOptions};

pub(crate) use connection::{QuicConnection, StreamReadOutcome};
pub(crate) use endpoint::{IncomingScreen, QuicInput, canonical_address};

use crate::socket::Socket;
use broker::{ListenerId, PeerInfo, ShardId};
use connection::ConnectionStep;
use endpoint::{QuicEndpoint, ReceivedDatagrams};
use quinn_proto::{
    ConnectionError, ConnectionEvent, ConnectionHandle, EndpointEvent, Incoming, StreamId,
};
use rustls::pki_types::CertificateDer;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::QuicUdpSocket;

/// QUIC state of a shard; created with the first QUIC listener or connection.
pub(crate) struct QuicShard {
    endpoints: Vec<QuicEndpoint>,
    connections: Vec<Option<Box<QuicConnection>>>,
    free: Vec<u32>,
    slots_by_key: HashMap<QuicConnectionKey, u32>,
    /// Connections with new events, for [`QuicShard::poll_event`].
    to_drive: Vec<u32>,
    /// Connections which may have datagrams to send at the end of the turn.
    to_send: Vec<u32>,
    /// Sockets of data streams whose connection has ended.
    ended_streams: Vec<u32>,
    /// Connections with a datagram refused by the UDP socket for lack of room.
    stalled: Vec<u32>,
    timers: BTreeSet<(Instant, u32)>,
    now: Instant,
    /// Buffer for sending datagrams.
    sent: Vec<u8>,
    received: ReceivedDatagrams,
    /// Number of connections whose handshake is not done.
    handshakes: usize,
    /// No new connections are accepted, since the listeners are closed.
    draining: bool,
}

/// Identifies a QUIC connection on any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuicConnectionKey {
    listener: ListenerId,
    handle: ConnectionHandle,
}

/// QUIC items that shards send each other.
pub(crate) enum QuicMessage {
    /// An event for a QUIC connection on another shard: a datagram, or an answer of its endpoint.
    ConnectionEvent { name: QuicConnectionKey, event: ConnectionEvent },
    /// An event for the endpoint on shard 0, from a connection on another shard.
    EndpointEvent { name: QuicConnectionKey, event: EndpointEvent },
    /// A QUIC connection on its way to the shard of its client, with the socket of the control
    /// stream.
    MoveConnection { connection: Box<QuicConnection>, socket: Box<Socket>, peer: PeerInfo },
}

impl fmt::Debug for QuicMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuicMessage::ConnectionEvent { name, .. } => f.debug_tuple("Came").field(name).finish(),
            QuicMessage::EndpointEvent { name, .. } => f.debug_tuple("Asks").field(name).finish(),
            QuicMessage::MoveConnection { peer, .. } => f.debug_tuple("Moves").field(peer).finish(),
        }
    }
}

/// Interval of attempts while a UDP socket takes no datagram.
const STALLED_RETRY: Duration = Duration::from_millis(1);

impl QuicShard {
    pub(crate) fn new(now: Instant) -> QuicShard {
        QuicShard {
            endpoints: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            slots_by_key: HashMap::new(),
            to_drive: Vec::new(),
            to_send: Vec::new(),
            ended_streams: Vec::new(),
            stalled: Vec::new(),
            timers: BTreeSet::new(),
            now,
            sent: Vec::new(),
            received: ReceivedDatagrams::default(),
            handshakes: 0,
            draining: false,
        }
    }

    /// Creates the state with the endpoints of QUIC listeners; `None` without such a listener.
    pub(crate) fn for_listeners<'a>(
        listeners: impl Iterator<Item = (ListenerId, &'a Arc<QuicUdpSocket>, &'a QuicConfig)>,
    ) -> Option<Box<QuicShard>> {
        let mut quic = Box::new(QuicShard::new(Instant::now()));
        let endpoints =
            listeners.map(|(listener, udp, terms)| QuicEndpoint::new(listener, udp.clone(), terms));
        quic.endpoints = endpoints.collect();
        (!quic.endpoints.is_empty()).then_some(quic)
    }

    /// Sets the time of this turn for quinn-proto.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Refuses new connections from now on: the listeners are closed.
    pub(crate) fn start_draining(&mut self) {
        self.draining = true;
    }

    pub(crate) fn timeout(&self, now: Instant) -> Option<Duration> {
        let busy = !self.to_drive.is_empty() || self.has_busy_endpoint();
        if busy {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.first().map(|(at, _)| at.saturating_duration_since(now));
        let stalled = (!self.stalled.is_empty()).then_some(STALLED_RETRY);
        timer.into_iter().chain(stalled).min()
    }

    pub(crate) fn connection(&mut self, at: u32) -> Option<&mut QuicConnection> {
        Some(self.connections.get_mut(at as usize)?.as_mut()?)
    }

    fn endpoint(&mut self, listener: ListenerId) -> Option<&mut QuicEndpoint> {
        self.endpoints.iter_mut().find(|own| own.listener() == listener)
    }

    /// Stores a connection in a free slot.
    pub(crate) fn add_connection(&mut self, mut connection: Box<QuicConnection>) -> u32 {
        let key = connection.key();
        connection.forget_plans();
        let at = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        self.connections[at as usize] = Some(connection);
        self.slots_by_key.insert(key, at);
        at
    }

    pub(crate) fn remove_connection(&mut self, at: u32) -> Option<Box<QuicConnection>> {
        let connection = self.connections.get_mut(at as usize)?.take()?;
        if let Some(timer) = connection.timer() {
            self.timers.remove(&(timer, at));
        }
        self.slots_by_key.remove(&connection.key());
        self.free.push(at);
        if self.slots_by_key.is_empty() {
            (self.connections, self.free, self.slots_by_key) = Default::default();
        }
        Some(connection)
    }

    /// Schedules a connection with new events, to be driven before the turn ends.
    pub(crate) fn queue_drive(&mut self, at: u32) {
        if self.connection(at).is_some_and(QuicConnection::plan_drive) {
            self.to_drive.push(at);
        }
        self.queue_send(at);
    }

    /// Schedules a connection which may have datagrams to send when the turn ends.
    pub(crate) fn queue_send(&mut self, at: u32) {
        if self.connection(at).is_some_and(QuicConnection::plan_send) {
            self.to_send.push(at);
        }
    }
}

/// An event of a connection, for the sockets of its streams.
pub(crate) enum QuicEvent {
    /// The handshake is done.
    Connected,
    Lost(ConnectionError),
    /// The client has opened streams.
    StreamsOpened,
    Readable {
        index: u32,
    },
    Writable {
        index: u32,
    },
    /// The peer has acknowledged our last bytes, or does not want them.
    Finished {
        index: u32,
    },
}

/// Connections, as the sockets of their streams meet them.
impl QuicShard {
    pub(crate) fn take_to_drive(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.to_drive)
    }

    /// Returns the next event of a connection, or `None` when all are handled.
    pub(crate) fn poll_event(&mut self, at: u32) -> Option<QuicEvent> {
        let connection = self.connection(at)?;
        loop {
            match connection.poll_step()? {
                ConnectionStep::Event(event) => return Some(event),
                ConnectionStep::Nothing => {}
            }
        }
    }

    /// Ends the handshake of a connection. Returns the socket of its control stream with the
    /// certificates of the peer.
    pub(crate) fn finish_handshake(
        &mut self,
        at: u32,
    ) -> Option<(u32, Option<Vec<CertificateDer<'static>>>)> {
        let connection = self.connection(at)?;
        let index = connection.control_socket()?;
        let chain = connection.peer_certificates();
        if connection.end_handshake() {
            self.handshakes -= 1;
        }
        Some((index, chain))
    }

    /// Returns the streams which wait for CONNACK, once the control stream has its socket.
    pub(crate) fn take_pending_streams(&mut self, at: u32) -> Vec<StreamId> {
        self.connection(at).map(QuicConnection::take_pending_streams).unwrap_or_default()
    }

    /// Ends all data streams with their control stream: see [`QuicShard::take_ended_streams`].
    pub(crate) fn end_data_streams(&mut self, at: u32) {
        let Some(own) = self.connection(at) else { return };
        let branches = own.end_data_streams();
        self.ended_streams.extend(branches);
    }

    /// Returns the sockets of data streams whose control stream has ended. The broker learns of the
    /// ends when the turn ends, since its effects are performed before.
    pub(crate) fn take_ended_streams(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended_streams)
    }

    /// Ends the stream of a dropped socket; the control stream ends the connection as well.
    pub(crate) fn release_stream(&mut self, at: u32, index: u32) {
        let now = self.now;
        let Some(own) = self.connection(at) else { return };
        own.close_data_stream(index);
        if own.control_socket() != Some(index) {
            return self.queue_send(at);
        }
        self.end_data_streams(at);
        let Some(own) = self.connection(at) else { return };
        own.close(now);
        if own.end_handshake() {
            self.handshakes -= 1;
        }
        self.queue_send(at);
    }

    /// Removes the connection to move it to the shard `home`. Later datagrams follow over the ring.
    pub(crate) fn take_connection(
        &mut self,
        at: u32,
        home: ShardId,
    ) -> Option<Box<QuicConnection>> {
        let mut connection = self.remove_connection(at)?;
        connection.leave_socket();
        let key = connection.key();
        if let Some(endpoint) = self.endpoint(key.listener) {
            endpoint.note_moved(key.handle, home);
        }
        Some(connection)
    }

    /// Returns the new address of a peer whose address has changed, with the control socket.
    pub(crate) fn take_new_address(&mut self, at: u32) -> Option<(SocketAddr, Option<u32>)> {
        let connection = self.connection(at)?;
        Some((connection.take_new_address()?, connection.control_socket()))
    }

    /// Control sockets of all connections.
    pub(crate) fn control_sockets(&self) -> Vec<u32> {
        let connections = self.connections.iter().flatten();
        connections.filter_map(|connection| connection.control_socket()).collect()
    }

    /// Fires the next due timer, and returns its connection.
    pub(crate) fn fire_timer(&mut self) -> Option<u32> {
        let now = self.now;
        loop {
            let &(due, at) = self.timers.first().filter(|(due, _)| *due <= now)?;
            self.timers.remove(&(due, at));
            if let Some(connection) = self.connection(at) {
                connection.fire_timer(now);
                self.queue_send(at);
                return Some(at);
            }
        }
    }

    /// Schedules the connections which had a datagram refused, to be sent again.
    pub(crate) fn retry_stalled(&mut self) {
        for at in std::mem::take(&mut self.stalled) {
            self.queue_send(at);
        }
    }

    pub(crate) fn take_to_send(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.to_send)
    }

    /// Sends the datagrams of a connection, as many as the UDP socket takes.
    pub(crate) fn send_datagrams(&mut self, at: u32) {
        let Some(connection) = self.connections.get_mut(at as usize).and_then(Option::as_mut)
        else {
            return;
        };
        if !connection.resend_datagram() {
            return self.stalled.push(at);
        }
        if !connection.send_datagrams(self.now, &mut self.sent) {
            self.stalled.push(at);
        }
        let Some((old, new)) = connection.renew_timer() else { return };
        if let Some(timer) = old {
            self.timers.remove(&(timer, at));
        }
        self.timers.extend(new.map(|timer| (timer, at)));
    }
}

/// Events between connections and endpoints, which may live on different shards.
impl QuicShard {
    /// Slot of a connection that lives on this shard.
    pub(crate) fn slot_of(&self, key: QuicConnectionKey) -> Option<u32> {
        self.slots_by_key.get(&key).copied()
    }

    /// Shard of a connection whose endpoint is here and which has moved.
    pub(crate) fn moved_to(&mut self, key: QuicConnectionKey) -> Option<ShardId> {
        self.endpoint(key.listener)?.moved_to(key.handle)
    }

    /// Passes an event to a connection of this shard. The connection is driven later, since rings
    /// are also read in the middle of reading a socket.
    pub(crate) fn apply_connection_event(&mut self, at: u32, event: ConnectionEvent) {
        if let Some(connection) = self.connection(at) {
            connection.apply_event(event);
            self.queue_drive(at);
        }
    }

    /// Passes an event to the endpoint of a connection and returns the answer; gives the event back
    /// if the endpoint is not on this shard.
    pub(crate) fn apply_endpoint_event(
        &mut self,
        key: QuicConnectionKey,
        event: EndpointEvent,
    ) -> Result<Option<ConnectionEvent>, EndpointEvent> {
        match self.endpoint(key.listener) {
            Some(endpoint) => Ok(endpoint.apply_event(key.handle, event)),
            None => Err(event),
        }
    }

    /// Returns the next event of a connection for its endpoint.
    pub(crate) fn poll_endpoint_event(
        &mut self,
        at: u32,
    ) -> Option<(QuicConnectionKey, EndpointEvent)> {
        let connection = self.connection(at)?;
        Some((connection.key(), connection.poll_endpoint_event()?))
    }

    /// Passes the answer of an endpoint to a connection which is being sent.
    pub(crate) fn answer_connection(&mut self, at: u32, answer: ConnectionEvent) {
        if let Some(connection) = self.connection(at) {
            connection.apply_event(answer);
        }
    }
}

/// The endpoints of QUIC listeners.
impl QuicShard {
    /// Marks the QUIC endpoint of a listener as readable. Returns false for a listener without
    /// QUIC.
    pub(crate) fn mark_readable(&mut self, listener: ListenerId) -> bool {
        let endpoint = self.endpoint(listener);
        endpoint.map(QuicEndpoint::mark_readable).is_some()
    }

    /// Gives the endpoint of a listener its new configuration. Open connections keep the old one.
    pub(crate) fn reload_config(&mut self, config_of: impl Fn(ListenerId) -> Option<QuicConfig>) {
        for endpoint in &mut self.endpoints {
            if let Some(terms) = config_of(endpoint.listener()) {
                endpoint.reload_config(&terms);
            }
        }
    }

    /// Whether an endpoint has datagrams to read or connections that wait.
    #[inline]
    pub(crate) fn has_busy_endpoint(&self) -> bool {
        self.endpoints.iter().any(QuicEndpoint::is_busy)
    }

    pub(crate) fn listeners(&self) -> Vec<ListenerId> {
        self.endpoints.iter().map(QuicEndpoint::listener).collect()
    }

    /// Reads datagrams of an endpoint once. Returns false if there were none to read.
    pub(crate) fn receive_datagrams(&mut self, listener: ListenerId) -> bool {
        let endpoint = self.endpoints.iter_mut().find(|own| own.listener() == listener);
        endpoint.is_some_and(|endpoint| endpoint.receive(&mut self.received))
    }

    /// Handles the datagrams read last up to one that concerns a connection, and returns what the
    /// datagram brings; `None` after all of them.
    pub(crate) fn next_input(&mut self, listener: ListenerId) -> Option<QuicInput> {
        let now = self.now;
        let endpoint = self.endpoints.iter_mut().find(|own| own.listener() == listener)?;
        while let Some((meta, bytes)) = self.received.next_datagram() {
            if let Some(input) = endpoint.route_datagram(now, meta, bytes, &mut self.sent) {
                return Some(input);
            }
        }
        None
    }

    /// Decides on a connection attempt: ignore, wait, request an address validation (Retry), or
    /// refuse while draining.
    pub(crate) fn screen_incoming(
        &mut self,
        listener: ListenerId,
        incoming: Incoming,
        screen: IncomingScreen,
    ) {
        let screen = screen.with_load(self.draining, self.handshakes);
        let endpoint = self.endpoints.iter_mut().find(|own| own.listener() == listener);
        if let Some(endpoint) = endpoint {
            endpoint.screen_incoming(incoming, screen, &mut self.sent);
        }
    }

    /// Takes the connection that waits longest for its handshake.
    pub(crate) fn next_waiting(&mut self, listener: ListenerId) -> Option<Incoming> {
        self.endpoint(listener)?.next_waiting()
    }

    pub(crate) fn refuse_incoming(&mut self, listener: ListenerId, incoming: Incoming) {
        if let Some(endpoint) = self.endpoint(listener) {
            endpoint.refuse(incoming);
        }
    }

    /// Starts the handshake of a connection, and returns its slot.
    pub(crate) fn accept_incoming(
        &mut self,
        listener: ListenerId,
        incoming: Incoming,
    ) -> Option<Result<u32, ConnectionError>> {
        let now = self.now;
        let connection = match self.endpoint(listener)?.accept(incoming, now) {
            Ok(connection) => connection,
            Err(cause) => return Some(Err(cause)),
        };
        let at = self.add_connection(Box::new(connection));
        self.handshakes += 1;
        self.queue_drive(at);
        Some(Ok(at))
    }
}
