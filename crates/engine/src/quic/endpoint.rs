//! QUIC listeners: a UDP socket, and quinn-proto's endpoint, which assigns datagrams to connections
//! by their connection ids and accepts new connections.
//!
//! A datagram does not prove the address of its sender. Until a peer has validated its address it
//! gets at most three times the bytes it sent [RFC 9000, 8.1]. With many handshakes under way, or
//! where connections are counted, the peer has to validate its address first (Retry), before any
//! state exists for it. Handshakes are bounded per turn, as they are for TLS; connections beyond
//! the bound wait in a short queue, and beyond the queue the peer retransmits.

use super::connection::QuicConnection;
use super::{QuicConfig, QuicConnectionKey, QuicShard};
use crate::handshake::HANDSHAKES_PER_TURN;
use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::transport_stack::{PendingHandshake, TransportStack};
use broker::connection::admission::Admission;
use broker::{ListenerId, MonotonicMs, PeerAddress, PeerInfo, ShardId, ShardInput};
use quinn_proto::{AcceptError, ConnectionHandle, DatagramEvent, Endpoint, Incoming, Transmit};
use quinn_udp::RecvMeta;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::{QuicUdpSocket, SLOT_BYTES, SLOTS, ecn_of};

pub(crate) struct QuicEndpoint {
    pub(super) listener: ListenerId,
    udp: Arc<QuicUdpSocket>,
    pub(super) endpoint: Endpoint,
    /// Connections living on another shard, by their handle.
    pub(super) moved_connections: HashMap<ConnectionHandle, ShardId>,
    /// Connections whose handshakes wait for a later turn, at most [`WAITING_MAX`].
    waiting: VecDeque<Incoming>,
    /// The UDP socket may have more datagrams to read.
    readable: bool,
}

/// Length of [`QuicEndpoint::waiting`]; further attempts are ignored, and the peers retransmit.
pub(super) const WAITING_MAX: usize = 1024;
/// Number of handshakes under way from which a new peer has to validate its address (Retry).
const RETRY_FROM: usize = 64;
/// Reads of the UDP socket in one turn.
const CALLS_PER_TURN: usize = 8;

impl QuicEndpoint {
    pub(super) fn new(
        listener: ListenerId,
        udp: Arc<QuicUdpSocket>,
        terms: &QuicConfig,
    ) -> QuicEndpoint {
        let config = Arc::new(terms.endpoint_config());
        let endpoint = Endpoint::new(config, Some(terms.config.clone()), true, None);
        let (away, waiting) = (HashMap::new(), VecDeque::new());
        QuicEndpoint { listener, udp, endpoint, moved_connections: away, waiting, readable: false }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.readable || !self.waiting.is_empty()
    }

    fn send_datagram(&self, transmit: &Transmit, bytes: &[u8]) {
        // No datagram sent here is worth waiting for: the peer retransmits.
        let _ = self.udp.send(transmit, bytes);
    }
}

impl QuicShard {
    /// Marks the QUIC endpoint of a listener as readable. Returns false for a listener without
    /// QUIC.
    pub(crate) fn mark_readable(&mut self, listener: usize) -> bool {
        let endpoint =
            self.endpoints.iter_mut().find(|own| usize::from(own.listener.0) == listener);
        if let Some(endpoint) = endpoint {
            endpoint.readable = true;
            return true;
        }
        false
    }

    /// Gives the endpoints their new configuration. Open connections keep the old one.
    pub(super) fn reload_config(&mut self, transports: &[crate::listener::ListenerTransport]) {
        for endpoint in &mut self.endpoints {
            let transport = transports.get(usize::from(endpoint.listener.0));
            if let Some(terms) = transport.and_then(|transport| transport.quic.as_ref()) {
                endpoint.endpoint.set_server_config(Some(terms.config.clone()));
            }
        }
    }
}

impl ShardDriver {
    /// Reads datagrams up to the bound of a turn, and drives their connections.
    #[inline]
    pub(crate) fn read_datagrams(&mut self) {
        if self.quic.as_ref().is_some_and(|quic| quic.endpoints.iter().any(QuicEndpoint::is_busy)) {
            self.read_quic_endpoints();
        }
    }

    /// Reads datagrams of the endpoints. The function is kept out of line, because
    /// [`ShardDriver::read_datagrams`] runs in every turn, also of brokers without QUIC.
    #[cold]
    #[inline(never)]
    fn read_quic_endpoints(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        let mut buffer = std::mem::take(&mut quic.received);
        buffer.resize(SLOTS * SLOT_BYTES, 0);
        let listeners: Vec<ListenerId> = quic.endpoints.iter().map(|own| own.listener).collect();
        for listener in listeners {
            self.read_quic_endpoint(listener, &mut buffer);
            self.accept_waiting(listener);
        }
        if let Some(quic) = &mut self.quic {
            quic.received = buffer;
        }
        self.drive_quic();
    }

    fn read_quic_endpoint(&mut self, listener: ListenerId, buffer: &mut [u8]) {
        let mut metas = [RecvMeta::default(); SLOTS];
        for _ in 0..CALLS_PER_TURN {
            // Reading stops while items wait for a ring, and in a turn whose time for handshakes is
            // spent.
            if !self.pending_items.is_empty() || self.handshake_time >= 2 * HANDSHAKES_PER_TURN {
                return;
            }
            let Some(endpoint) = self.quic.as_mut().and_then(|quic| quic.endpoint(listener)) else {
                return;
            };
            if !endpoint.readable {
                return;
            }
            let came = match endpoint.udp.receive(buffer, &mut metas) {
                Ok(came) => came,
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                    endpoint.readable = false;
                    return;
                }
                // An error of an earlier datagram that we sent: its connection detects the loss
                // itself.
                Err(_) => continue,
            };
            for (meta, slot) in metas[..came].iter().zip(buffer.chunks_exact(SLOT_BYTES)) {
                for datagram in slot[..meta.len].chunks(meta.stride.max(1)) {
                    self.receive_datagram(listener, meta, datagram);
                }
            }
        }
    }

    fn receive_datagram(&mut self, listener: ListenerId, meta: &RecvMeta, bytes: &[u8]) {
        let Some(quic) = &mut self.quic else { return };
        let (now, mut answer) = (quic.now, std::mem::take(&mut quic.sent));
        answer.clear();
        let Some(quic_endpoint) = quic.endpoint(listener) else { return };
        let endpoint = &mut quic_endpoint.endpoint;
        let ecn = ecn_of(meta);
        let event = endpoint.handle(now, meta.addr, meta.dst_ip, ecn, bytes.into(), &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::Response(transmit)) => {
                quic_endpoint.send_datagram(&transmit, &answer)
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                self.deliver_connection_event(QuicConnectionKey { listener, handle }, event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.screen_incoming(listener, incoming, &mut answer);
            }
        }
        if let Some(quic) = &mut self.quic {
            quic.sent = answer;
        }
    }

    /// Decides on a connection attempt: ignore, wait, request an address validation (Retry), or
    /// refuse while draining.
    fn screen_incoming(&mut self, listener: ListenerId, incoming: Incoming, answer: &mut Vec<u8>) {
        let address = address_of(&incoming);
        let is_banned = self.shard.refuse_banned_address(self.now, address, &mut self.out);
        let must_wait = self.accepts_again_at(usize::from(listener.0)).is_some();
        // Otherwise a sender with a forged address could use up the limit of that address.
        let is_counted = self.shard.options().limits_connections(listener);
        let Some(quic) = &mut self.quic else { return };
        let (draining, opening) = (quic.draining, quic.handshakes);
        let Some(endpoint) = quic.endpoint(listener) else { return };
        let waiting = endpoint.waiting.len();
        // The peer retransmits: a listener above its rate needs no queue here.
        if is_banned || must_wait || waiting >= WAITING_MAX {
            return endpoint.endpoint.ignore(incoming);
        }
        let is_doubtful = is_counted || opening + waiting >= RETRY_FROM;
        let is_doubtful = is_doubtful && incoming.may_retry();
        if draining || (is_doubtful && !incoming.remote_address_validated()) {
            let transmit = match draining {
                true => endpoint.endpoint.refuse(incoming, answer),
                false => match endpoint.endpoint.retry(incoming, answer) {
                    Ok(transmit) => transmit,
                    Err(error) => return endpoint.endpoint.ignore(error.into_incoming()),
                },
            };
            return endpoint.send_datagram(&transmit, answer);
        }
        endpoint.waiting.push_back(incoming);
    }

    fn accept_waiting(&mut self, listener: ListenerId) {
        while self.handshake_time < HANDSHAKES_PER_TURN {
            let Some(quic) = &mut self.quic else { return };
            let Some(endpoint) = quic.endpoint(listener) else { return };
            let Some(incoming) = endpoint.waiting.pop_front() else { return };
            let began = Instant::now();
            self.accept_quic_connection(listener, incoming);
            self.handshake_time += began.elapsed().max(Duration::from_micros(1));
        }
    }

    /// Starts the handshake of a connection within the limits; refuses a connection above the
    /// limits.
    fn accept_quic_connection(&mut self, listener: ListenerId, incoming: Incoming) {
        let address = address_of(&incoming);
        let (mut answer, options) = (Vec::new(), self.shard.options());
        let mut seat = None;
        if options.limits_connections(listener) {
            let (entry, own) =
                self.limiter.admit_connection(self.now, listener, Some(address), options);
            if let Admission::ClosedAtOnce(refusal) | Admission::RefusedAfterConnect(refusal) =
                entry
            {
                self.shard.note_refused_connection(self.now, address, refusal, &mut self.out);
                let Some(quic) = &mut self.quic else { return };
                let Some(endpoint) = quic.endpoint(listener) else { return };
                let transmit = endpoint.endpoint.refuse(incoming, &mut answer);
                return endpoint.send_datagram(&transmit, &answer);
            }
            seat = own;
        }
        let Some(quic) = &mut self.quic else { return };
        let now = quic.now;
        let Some(endpoint) = quic.endpoint(listener) else { return };
        let udp = endpoint.udp.clone();
        let (handle, conn) = match endpoint.endpoint.accept(incoming, now, &mut answer, None) {
            Ok(accepted) => accepted,
            Err(AcceptError { cause, response }) => {
                if let Some(transmit) = response {
                    endpoint.send_datagram(&transmit, &answer);
                }
                let input = ShardInput::NotOpened { peer: address, why: &cause };
                return self.shard.handle(self.now, input, &mut self.out);
            }
        };
        let name = QuicConnectionKey { listener, handle };
        let connection = quic.add_connection(Box::new(QuicConnection::new(name, conn, udp)));
        quic.handshakes += 1;
        quic.queue_drive(connection);
        let until = MonotonicMs(self.now.0 + u64::from(self.connect_timeout_ms));
        let (peer, since) = (PeerInfo::new(address, listener), self.now);
        let mut socket = Socket::new(SocketStream::Quic { connection }, Vec::new());
        socket.slot = seat;
        socket.stack =
            Some(Box::new(TransportStack::for_quic(PendingHandshake { peer, since, until })));
        self.await_handshake(socket);
    }
}

/// Returns the address of the client. A socket on `[::]` reports an IPv4 client with an IPv4-mapped
/// IPv6 address.
fn address_of(incoming: &Incoming) -> PeerAddress {
    canonical_address(incoming.remote_address())
}

pub(super) fn canonical_address(address: SocketAddr) -> PeerAddress {
    PeerAddress::Network(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
