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

pub(crate) use connection::QuicConnection;
pub(crate) use endpoint::QuicEndpoint;

use crate::listener::ListenerTransport;
use crate::ring::RingItem;
use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use crate::stream::SocketAcceptor;
use broker::{ListenerId, PeerInfo, ShardId};
use quinn_proto::{ConnectionEvent, ConnectionHandle, EndpointEvent};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// QUIC state of a shard; created with the first QUIC listener or connection.
pub(crate) struct QuicShard {
    endpoints: Vec<QuicEndpoint>,
    connections: Vec<Option<Box<QuicConnection>>>,
    free: Vec<u32>,
    slots_by_key: HashMap<QuicConnectionKey, u32>,
    /// Connections with new events, for `drive_quic_connection`.
    to_drive: Vec<u32>,
    /// Connections which may have datagrams to send at the end of the turn.
    to_send: Vec<u32>,
    /// Sockets of data streams whose connection has ended.
    ended_streams: Vec<u32>,
    /// Connections with a datagram refused by the UDP socket for lack of room.
    stalled: Vec<u32>,
    timers: BTreeSet<(Instant, u32)>,
    now: Instant,
    /// Buffers for sending and receiving datagrams.
    sent: Vec<u8>,
    received: Vec<u8>,
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

/// QUIC items carried by a [`RingItem`].
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
            received: Vec::new(),
            handshakes: 0,
            draining: false,
        }
    }

    /// Creates the state with the endpoints of all QUIC listeners; `None` without such a listener.
    pub(crate) fn for_listeners(
        listeners: &[SocketAcceptor],
        transports: &[ListenerTransport],
    ) -> Option<Box<QuicShard>> {
        if transports.iter().all(|transport| transport.quic.is_none()) {
            return None;
        }
        let mut quic = Box::new(QuicShard::new(Instant::now()));
        for (at, (listener, transport)) in listeners.iter().zip(transports).enumerate() {
            if let (SocketAcceptor::Quic(udp), Some(terms)) = (listener, &transport.quic) {
                let listener = ListenerId(at as u8);
                quic.endpoints.push(QuicEndpoint::new(listener, udp.clone(), terms));
            }
        }
        (!quic.endpoints.is_empty()).then_some(quic)
    }

    pub(crate) fn timeout(&self, now: Instant) -> Option<Duration> {
        let busy = !self.to_drive.is_empty() || self.endpoints.iter().any(QuicEndpoint::is_busy);
        if busy {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.first().map(|(at, _)| at.saturating_duration_since(now));
        let stalled = (!self.stalled.is_empty()).then_some(STALLED_RETRY);
        timer.into_iter().chain(stalled).min()
    }

    fn connection(&mut self, at: u32) -> Option<&mut QuicConnection> {
        Some(self.connections.get_mut(at as usize)?.as_mut()?)
    }

    fn endpoint(&mut self, listener: ListenerId) -> Option<&mut QuicEndpoint> {
        self.endpoints.iter_mut().find(|own| own.listener == listener)
    }

    fn add_connection(&mut self, mut connection: Box<QuicConnection>) -> u32 {
        let name = connection.key;
        (connection.is_to_send, connection.is_to_drive, connection.timer) = (false, false, None);
        let at = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        self.connections[at as usize] = Some(connection);
        self.slots_by_key.insert(name, at);
        at
    }

    fn remove_connection(&mut self, at: u32) -> Option<Box<QuicConnection>> {
        let connection = self.connections.get_mut(at as usize)?.take()?;
        if let Some(timer) = connection.timer {
            self.timers.remove(&(timer, at));
        }
        self.slots_by_key.remove(&connection.key);
        self.free.push(at);
        if self.slots_by_key.is_empty() {
            (self.connections, self.free, self.slots_by_key) = Default::default();
        }
        Some(connection)
    }

    /// Schedules a connection with new events, to be driven before the turn ends.
    fn queue_drive(&mut self, at: u32) {
        if let Some(connection) = self.connection(at)
            && !connection.is_to_drive
        {
            connection.is_to_drive = true;
            self.to_drive.push(at);
        }
        self.queue_send(at);
    }

    /// Schedules a connection which may have datagrams to send when the turn ends.
    fn queue_send(&mut self, at: u32) {
        if let Some(connection) = self.connection(at)
            && !connection.is_to_send
        {
            connection.is_to_send = true;
            self.to_send.push(at);
        }
    }
}

impl ShardDriver {
    pub(crate) fn change_transports(&mut self, transports: Arc<[ListenerTransport]>) {
        if let Some(quic) = &mut self.quic {
            quic.reload_config(&transports);
        }
        self.transports = transports;
    }

    /// Sets the time of this turn for quinn-proto.
    pub(crate) fn set_quic_time(&mut self, now: Instant) {
        if let Some(quic) = &mut self.quic {
            quic.now = now;
        }
    }

    pub(crate) fn close_listeners(&mut self) {
        self.listeners.clear();
        self.drop_waiting_connection();
        if let Some(quic) = &mut self.quic {
            quic.draining = true;
        }
    }

    /// Applies an item of a ring. Connections are not driven here, since rings are also read in the
    /// middle of reading a socket.
    pub(crate) fn apply_quic_message(&mut self, word: QuicMessage) {
        let quic = self.quic.get_or_insert_with(|| Box::new(QuicShard::new(Instant::now())));
        match word {
            QuicMessage::ConnectionEvent { name, event } => {
                // The connection may have gone meanwhile.
                let Some(&at) = quic.slots_by_key.get(&name) else { return };
                let Some(connection) = quic.connection(at) else { return };
                connection.conn.handle_event(event);
                quic.queue_drive(at);
            }
            QuicMessage::EndpointEvent { name, event } => {
                if let Some(event) = self.deliver_endpoint_event(name, event) {
                    self.deliver_connection_event(name, event);
                }
            }
            QuicMessage::MoveConnection { connection, mut socket, peer } => {
                let at = quic.add_connection(connection);
                quic.queue_drive(at);
                socket.stream = crate::stream::SocketStream::Quic { connection: at };
                self.open_connection(*socket, peer, true);
                let index = self.quic.as_mut().and_then(|quic| quic.connection(at)?.control_socket);
                if let Some(index) = index {
                    self.list_socket(index);
                }
            }
        }
    }

    fn deliver_connection_event(&mut self, name: QuicConnectionKey, event: ConnectionEvent) {
        let Some(quic) = &mut self.quic else { return };
        if let Some(&at) = quic.slots_by_key.get(&name) {
            let Some(connection) = quic.connection(at) else { return };
            let began = connection.is_handshaking.then(Instant::now);
            connection.conn.handle_event(event);
            quic.queue_drive(at);
            self.handshake_time += began.map_or(Duration::ZERO, |began| began.elapsed());
            return;
        }
        let away = quic
            .endpoint(name.listener)
            .and_then(|own| own.moved_connections.get(&name.handle).copied());
        if let Some(shard) = away {
            self.send_quic_message(shard, QuicMessage::ConnectionEvent { name, event });
        }
    }

    /// Passes an event to the endpoint, on this shard or over the ring. Returns the endpoint's
    /// response, if the endpoint is on this shard.
    fn deliver_endpoint_event(
        &mut self,
        name: QuicConnectionKey,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        let Some(endpoint) = self.quic.as_mut()?.endpoint(name.listener) else {
            self.send_quic_message(ShardId(0), QuicMessage::EndpointEvent { name, event });
            return None;
        };
        if event.is_drained() {
            endpoint.moved_connections.remove(&name.handle);
        }
        endpoint.endpoint.handle_event(name.handle, event)
    }

    fn send_quic_message(&mut self, shard: ShardId, word: QuicMessage) {
        let to = usize::from(shard.0);
        let mut item = RingItem::Quic(Box::new(word));
        // Items already waiting for a ring go first, to keep the order.
        if self.pending_items.is_empty()
            && let Some(ring) = &mut self.rings.outbound[to]
        {
            match ring.push(item) {
                Ok(()) => return self.rings.wakers[to].wake(),
                Err(back) => item = back,
            }
        }
        self.pending_items.push_back((to, item));
    }

    /// Drives connections with new events.
    pub(crate) fn drive_quic(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        for at in std::mem::take(&mut quic.to_drive) {
            self.drive_quic_connection(at);
        }
    }

    /// Fires due timers, and drives connections with events since sockets were read.
    pub(crate) fn tick_quic(&mut self) {
        self.drive_quic();
        loop {
            let Some(quic) = &mut self.quic else { return };
            let now = quic.now;
            let Some(&(due, at)) = quic.timers.first().filter(|(due, _)| *due <= now) else {
                return self.drop_quic_connections();
            };
            quic.timers.remove(&(due, at));
            if let Some(connection) = quic.connection(at) {
                connection.timer = None;
                connection.conn.handle_timeout(now);
                quic.queue_send(at);
                self.drive_quic_connection(at);
            }
        }
    }

    /// Closes all QUIC connections of a shard which ends, so that a peer which lost the last
    /// packets still receives a close. Answers of the peer may be lost, since the endpoint's shard
    /// may have ended before.
    fn drop_quic_connections(&mut self) {
        if !self.has_ended() {
            return;
        }
        let Some(quic) = &self.quic else { return };
        let connections = quic.connections.iter().flatten();
        let sockets: Vec<u32> =
            connections.filter_map(|connection| connection.control_socket).collect();
        sockets.into_iter().for_each(|index| self.drop_socket(index));
    }

    /// Sends the datagrams of all connections, after all other work of the turn.
    pub(crate) fn flush_quic(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        for at in std::mem::take(&mut quic.stalled) {
            quic.queue_send(at);
        }
        for index in std::mem::take(&mut quic.ended_streams) {
            self.drop_lost_connection(index);
        }
        let Some(quic) = &mut self.quic else { return };
        for at in std::mem::take(&mut quic.to_send) {
            self.open_data_streams(at);
            self.flush_quic_connection(at);
        }
    }

    fn flush_quic_connection(&mut self, at: u32) {
        loop {
            let Some(connection) = self.quic.as_mut().and_then(|quic| quic.connection(at)) else {
                return;
            };
            connection.is_to_send = false;
            let Some(event) = connection.conn.poll_endpoint_events() else { break };
            let name = connection.key;
            if event.is_drained() {
                if let Some(quic) = &mut self.quic {
                    quic.remove_connection(at);
                }
                self.deliver_endpoint_event(name, event);
                return;
            }
            let answer = self.deliver_endpoint_event(name, event);
            let connection = self.quic.as_mut().and_then(|quic| quic.connection(at));
            if let (Some(connection), Some(event)) = (connection, answer) {
                connection.conn.handle_event(event);
            }
        }
        if let Some(quic) = &mut self.quic {
            quic.send_datagrams(at);
        }
    }
}
