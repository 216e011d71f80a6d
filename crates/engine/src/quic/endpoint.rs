//! QUIC listeners: a UDP socket, and quinn-proto's endpoint, which assigns datagrams to connections
//! by their connection ids and accepts new connections.
//!
//! A datagram does not prove the address of its sender. Until a peer has validated its address it
//! gets at most three times the bytes it sent [RFC 9000, 8.1]. With many handshakes under way, or
//! where connections are counted, the peer has to validate its address first (Retry), before any
//! state exists for it. Handshakes are bounded per turn, as they are for TLS; connections beyond
//! the bound wait in a short queue, and beyond the queue the peer retransmits.

use super::connection::QuicConnection;
use super::{QuicConfig, QuicConnectionKey};
use broker::{ListenerId, PeerAddress, ShardId};
use quinn_proto::{
    AcceptError, ConnectionError, ConnectionEvent, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointEvent, Incoming, Transmit,
};
use quinn_udp::RecvMeta;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use transport::{QuicUdpSocket, SLOT_BYTES, SLOTS, ecn_of};

pub(crate) struct QuicEndpoint {
    listener: ListenerId,
    udp: Arc<QuicUdpSocket>,
    endpoint: Endpoint,
    /// Connections living on another shard, by their handle.
    moved_connections: HashMap<ConnectionHandle, ShardId>,
    /// Connections whose handshakes wait for a later turn, at most [`WAITING_MAX`].
    waiting: VecDeque<Incoming>,
    /// The UDP socket may have more datagrams to read.
    readable: bool,
}

/// Length of [`QuicEndpoint::waiting`]; further attempts are ignored, and the peers retransmit.
pub(super) const WAITING_MAX: usize = 1024;
/// Number of handshakes under way from which a new peer has to validate its address (Retry).
const RETRY_FROM: usize = 64;

/// Part of a datagram that concerns the connections of the shard.
pub(crate) enum QuicInput {
    ConnectionEvent(QuicConnectionKey, ConnectionEvent),
    /// A connection attempt, to be screened by [`IncomingScreen`].
    Incoming(Incoming),
}

/// Facts about a connection attempt, before any state exists for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IncomingScreen {
    is_unwelcome: bool,
    is_counted: bool,
    is_draining: bool,
    handshakes: usize,
}

impl IncomingScreen {
    /// `is_unwelcome` for a banned address and for a listener above its rate: the peer retransmits.
    /// `is_counted` where connections are counted: a sender with a forged address could otherwise
    /// use up the limit of that address.
    pub(crate) fn new(is_unwelcome: bool, is_counted: bool) -> IncomingScreen {
        IncomingScreen { is_unwelcome, is_counted, ..IncomingScreen::default() }
    }

    pub(super) fn with_load(self, is_draining: bool, handshakes: usize) -> IncomingScreen {
        IncomingScreen { is_draining, handshakes, ..self }
    }
}

/// The datagrams of one read of a UDP socket, handed out one by one.
#[derive(Default)]
pub(super) struct ReceivedDatagrams {
    buffer: Vec<u8>,
    metas: [RecvMeta; SLOTS],
    /// Number of slots filled by the last read.
    came: usize,
    /// Slot and offset of the next datagram.
    slot: usize,
    offset: usize,
}

impl ReceivedDatagrams {
    fn receive(&mut self, udp: &QuicUdpSocket) -> io::Result<()> {
        self.buffer.resize(SLOTS * SLOT_BYTES, 0);
        (self.came, self.slot, self.offset) = (0, 0, 0);
        self.came = udp.receive(&mut self.buffer, &mut self.metas)?;
        Ok(())
    }

    /// Returns the next datagram with the description of its slot, which may hold several.
    pub(super) fn next_datagram(&mut self) -> Option<(&RecvMeta, &[u8])> {
        while self.slot < self.came && self.offset >= self.metas[self.slot].len {
            (self.slot, self.offset) = (self.slot + 1, 0);
        }
        let meta = self.metas[..self.came].get(self.slot)?;
        let from = self.offset;
        self.offset = meta.len.min(from + meta.stride.max(1));
        let slot = &self.buffer[self.slot * SLOT_BYTES..];
        Some((meta, &slot[from..self.offset]))
    }
}

impl QuicEndpoint {
    pub(super) fn new(
        listener: ListenerId,
        udp: Arc<QuicUdpSocket>,
        terms: &QuicConfig,
    ) -> QuicEndpoint {
        let config = Arc::new(terms.endpoint_config());
        let endpoint = Endpoint::new(config, Some(terms.server_config()), true, None);
        let (moved_connections, waiting) = (HashMap::new(), VecDeque::new());
        QuicEndpoint { listener, udp, endpoint, moved_connections, waiting, readable: false }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.readable || !self.waiting.is_empty()
    }

    pub(super) fn listener(&self) -> ListenerId {
        self.listener
    }

    pub(super) fn mark_readable(&mut self) {
        self.readable = true;
    }

    pub(super) fn reload_config(&mut self, terms: &QuicConfig) {
        self.endpoint.set_server_config(Some(terms.server_config()));
    }

    /// Records that a connection lives on another shard now.
    pub(super) fn note_moved(&mut self, handle: ConnectionHandle, home: ShardId) {
        self.moved_connections.insert(handle, home);
    }

    pub(super) fn moved_to(&self, handle: ConnectionHandle) -> Option<ShardId> {
        self.moved_connections.get(&handle).copied()
    }

    /// Passes an event of a connection to the endpoint and returns the answer.
    pub(super) fn apply_event(
        &mut self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        if event.is_drained() {
            self.moved_connections.remove(&handle);
        }
        self.endpoint.handle_event(handle, event)
    }

    /// Reads the UDP socket once. Returns false if there is nothing to read.
    pub(super) fn receive(&mut self, received: &mut ReceivedDatagrams) -> bool {
        if !self.readable {
            return false;
        }
        match received.receive(&self.udp) {
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                false
            }
            // An error of an earlier datagram that we sent: its connection detects the loss itself.
            Ok(()) | Err(_) => true,
        }
    }

    /// Passes a datagram to the endpoint; `None` if it concerns no connection. `answer` is a buffer
    /// for datagrams of the endpoint itself.
    pub(super) fn route_datagram(
        &mut self,
        now: Instant,
        meta: &RecvMeta,
        bytes: &[u8],
        answer: &mut Vec<u8>,
    ) -> Option<QuicInput> {
        answer.clear();
        let ecn = ecn_of(meta);
        match self.endpoint.handle(now, meta.addr, meta.dst_ip, ecn, bytes.into(), answer)? {
            DatagramEvent::Response(transmit) => {
                self.send_datagram(&transmit, answer);
                None
            }
            DatagramEvent::ConnectionEvent(handle, event) => {
                let key = QuicConnectionKey { listener: self.listener, handle };
                Some(QuicInput::ConnectionEvent(key, event))
            }
            DatagramEvent::NewConnection(incoming) => Some(QuicInput::Incoming(incoming)),
        }
    }

    /// Decides on a connection attempt: see `QuicShard::screen_incoming`.
    pub(super) fn screen_incoming(
        &mut self,
        incoming: Incoming,
        screen: IncomingScreen,
        answer: &mut Vec<u8>,
    ) {
        let waiting = self.waiting.len();
        if screen.is_unwelcome || waiting >= WAITING_MAX {
            return self.endpoint.ignore(incoming);
        }
        let is_doubtful = screen.is_counted || screen.handshakes + waiting >= RETRY_FROM;
        let is_doubtful = is_doubtful && incoming.may_retry();
        let must_validate = is_doubtful && !incoming.remote_address_validated();
        if !screen.is_draining && !must_validate {
            return self.waiting.push_back(incoming);
        }
        let transmit = match screen.is_draining {
            true => self.endpoint.refuse(incoming, answer),
            false => match self.endpoint.retry(incoming, answer) {
                Ok(transmit) => transmit,
                Err(error) => return self.endpoint.ignore(error.into_incoming()),
            },
        };
        self.send_datagram(&transmit, answer);
    }

    pub(super) fn next_waiting(&mut self) -> Option<Incoming> {
        self.waiting.pop_front()
    }

    pub(super) fn refuse(&mut self, incoming: Incoming) {
        let mut answer = Vec::new();
        let transmit = self.endpoint.refuse(incoming, &mut answer);
        self.send_datagram(&transmit, &answer);
    }

    pub(super) fn accept(
        &mut self,
        incoming: Incoming,
        now: Instant,
    ) -> Result<QuicConnection, ConnectionError> {
        let mut answer = Vec::new();
        match self.endpoint.accept(incoming, now, &mut answer, None) {
            Ok((handle, conn)) => {
                let key = QuicConnectionKey { listener: self.listener, handle };
                Ok(QuicConnection::new(key, conn, self.udp.clone()))
            }
            Err(AcceptError { cause, response }) => {
                if let Some(transmit) = response {
                    self.send_datagram(&transmit, &answer);
                }
                Err(cause)
            }
        }
    }

    fn send_datagram(&self, transmit: &Transmit, bytes: &[u8]) {
        // No datagram sent here is worth waiting for: the peer retransmits.
        let _ = self.udp.send(transmit, bytes);
    }
}

/// Returns the address of a client. A socket on `[::]` reports an IPv4 client with an IPv4-mapped
/// IPv6 address.
pub(crate) fn canonical_address(address: SocketAddr) -> PeerAddress {
    PeerAddress::Network(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
