//! Accepts connections at the listeners of shard 0, and pauses where descriptors are missing or a
//! listener is above its rate.

use crate::connection_limiter::ConnectionLimiter;
use crate::descriptors::DescriptorBudget;
use crate::listener::ListenerTransport;
use crate::quic::QuicConfig;
use crate::shard_turn::ShardTurn;
use crate::socket_registry::SocketRegistry;
use crate::stream::{SocketAcceptor, SocketStream};
use crate::transport_stack::TransportStack;
use broker::{BrokerEvent, ListenerId, MonotonicMs, PeerAddress};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use transport::QuicUdpSocket;

/// The listeners of a shard; only shard 0 has any.
pub(crate) struct ConnectionAcceptor {
    listeners: Vec<SocketAcceptor>,
    /// Transport layers of all listeners of the process.
    transports: Arc<[ListenerTransport]>,
    /// Counts connections against the limits of listeners and addresses.
    limiter: ConnectionLimiter,
    /// Whether the listeners are registered with the poller.
    is_open: bool,
    /// Whether a listener may have more connections to accept.
    has_accepts: bool,
    pause: AcceptPause,
    /// The shard which got the last connection with a costly handshake.
    handshake_shard: usize,
}

/// Reasons for which a shard pauses accepting.
#[derive(Debug)]
struct AcceptPause {
    /// End of the pause after a failed accept, or for lack of a descriptor below the ceiling.
    until: MonotonicMs,
    /// Earliest time at which a listener above its rate may accept again.
    rate_until: Option<MonotonicMs>,
    budget: DescriptorBudget,
    /// An accepted connection with a descriptor above the ceiling, and its listener. Accepting
    /// waits until a lower descriptor is free.
    waiting: Option<(usize, SocketStream, PeerAddress)>,
    warned_at: Option<MonotonicMs>,
    is_warned: bool,
}

impl Default for AcceptPause {
    fn default() -> AcceptPause {
        AcceptPause {
            until: MonotonicMs::default(),
            rate_until: None,
            budget: DescriptorBudget::UNLIMITED,
            waiting: None,
            warned_at: None,
            is_warned: false,
        }
    }
}

/// Outcome of one attempt to accept a connection.
pub(crate) enum AcceptOutcome {
    Accepted(SocketStream, PeerAddress),
    /// The peer gave up while it waited: the next connection may be tried.
    Aborted,
    /// No connection waits at the listener, or the listener is above its rate.
    Empty,
    /// Accepting pauses at all listeners.
    Paused,
}

/// Pause in milliseconds after accepting failed, for instance for lack of descriptors or memory.
const ACCEPT_PAUSE_MS: u64 = 1_000;
/// Interval in milliseconds of the search for a descriptor below the ceiling.
const LOOK_EVERY_MS: u64 = 100;
/// Interval in milliseconds between two log lines about paused accepting.
const WARN_EVERY_MS: u64 = 60_000;

impl ConnectionAcceptor {
    pub(crate) fn new(
        listeners: Vec<SocketAcceptor>,
        transports: Arc<[ListenerTransport]>,
        limiter: ConnectionLimiter,
    ) -> ConnectionAcceptor {
        ConnectionAcceptor {
            listeners,
            transports,
            limiter,
            is_open: false,
            has_accepts: false,
            pause: AcceptPause::default(),
            handshake_shard: 0,
        }
    }

    pub(crate) fn listeners_len(&self) -> usize {
        self.listeners.len()
    }

    /// The QUIC listeners, with their sockets and configurations.
    pub(crate) fn quic_listeners(
        &self,
    ) -> impl Iterator<Item = (ListenerId, &Arc<QuicUdpSocket>, &QuicConfig)> {
        let all = self.listeners.iter().zip(self.transports.iter()).enumerate();
        all.filter_map(|(at, (listener, transport))| match (listener, &transport.quic) {
            (SocketAcceptor::Quic(udp), Some(terms)) => Some((ListenerId(at as u8), udp, terms)),
            _ => None,
        })
    }

    pub(crate) fn limiter(&self) -> &ConnectionLimiter {
        &self.limiter
    }

    pub(crate) fn transport(&self, listener: ListenerId) -> &ListenerTransport {
        &self.transports[usize::from(listener.0)]
    }

    /// Replaces the layers of new connections.
    pub(crate) fn change_transports(&mut self, transports: Arc<[ListenerTransport]>) {
        self.transports = transports;
    }

    /// Starts to accept, with `descriptors_reserved` descriptors kept from clients.
    pub(crate) fn open(
        &mut self,
        registry: &SocketRegistry,
        descriptors_reserved: usize,
    ) -> io::Result<()> {
        self.pause.budget = DescriptorBudget::measure(descriptors_reserved);
        self.is_open = true;
        self.register(registry)
    }

    fn register(&mut self, registry: &SocketRegistry) -> io::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        for (at, listener) in self.listeners.iter_mut().enumerate() {
            registry.register_listener(listener, at)?;
        }
        Ok(())
    }

    /// Moves the listeners to another poller.
    pub(crate) fn move_listeners(
        &mut self,
        from: &SocketRegistry,
        to: &SocketRegistry,
    ) -> io::Result<()> {
        for listener in self.listeners.iter_mut().filter(|_| self.is_open) {
            from.deregister_listener(listener)?;
        }
        self.register(to)
    }

    /// Closes the listeners, and drops the connection which waits for a descriptor.
    pub(crate) fn close(&mut self) {
        self.listeners.clear();
        self.pause.waiting = None;
    }

    /// Records that a listener is ready.
    pub(crate) fn note_ready(&mut self) {
        self.has_accepts = true;
    }

    /// Whether a listener may have connections to accept now.
    #[inline]
    pub(crate) fn is_due(&self, now: MonotonicMs) -> bool {
        self.has_accepts || self.pause.rate_until.is_some_and(|at| at <= now)
    }

    /// Earliest time at which accepting goes on after a pause.
    pub(crate) fn next_accept(&self) -> Option<MonotonicMs> {
        let accepts = self.has_accepts.then_some(self.pause.until);
        let again = self.pause.rate_until.map(|at| at.max(self.pause.until));
        accepts.into_iter().chain(again).min()
    }

    pub(crate) fn is_paused(&self, now: MonotonicMs) -> bool {
        now < self.pause.until
    }

    /// Starts a round over all listeners.
    pub(crate) fn begin_round(&mut self) {
        self.pause.rate_until = None;
    }

    /// Accepts one connection of a listener, if its rate allows.
    pub(crate) fn accept(&mut self, at: usize, turn: &ShardTurn) -> AcceptOutcome {
        let (now, listener) = (turn.now(), ListenerId(at as u8));
        if let Some(until) = self.limiter.accepts_again_at(now, listener, turn.options()) {
            let again = &mut self.pause.rate_until;
            *again = Some(again.map_or(until, |first| first.min(until)));
            return AcceptOutcome::Empty;
        }
        match self.listeners[at].accept() {
            Ok((stream, address)) => AcceptOutcome::Accepted(stream, address),
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => AcceptOutcome::Empty,
            Err(fault) if fault.kind() == io::ErrorKind::ConnectionAborted => {
                AcceptOutcome::Aborted
            }
            Err(fault) => {
                self.pause.until = MonotonicMs(now.0 + ACCEPT_PAUSE_MS);
                turn.log(&BrokerEvent::AcceptFailed { fault: fault.to_string().into() });
                AcceptOutcome::Paused
            }
        }
    }

    /// Returns an accepted stream if its descriptor is below the ceiling; otherwise the connection
    /// waits, and accepting pauses.
    pub(crate) fn check_descriptor(
        &mut self,
        at: usize,
        stream: SocketStream,
        address: PeerAddress,
        turn: &ShardTurn,
    ) -> Option<SocketStream> {
        let budget = self.pause.budget;
        if stream.descriptor().is_ok_and(|own| budget.allows(own.as_raw_fd())) {
            return Some(stream);
        }
        self.pause.waiting = Some((at, stream, address));
        self.wait_for_descriptor(turn);
        None
    }

    /// Whether a connection waits for a descriptor below the ceiling.
    pub(crate) fn has_waiting(&self) -> bool {
        self.pause.waiting.is_some()
    }

    /// Retries the connection that waits for a descriptor. `None` if it waits on.
    pub(crate) fn take_waiting(
        &mut self,
        turn: &ShardTurn,
    ) -> Option<(usize, SocketStream, PeerAddress)> {
        let (at, stream, address) = self.pause.waiting.take()?;
        let budget = self.pause.budget;
        let moved = stream.descriptor().ok().and_then(|own| budget.duplicate_below_ceiling(own));
        match moved.map(|moved| stream.with_descriptor(moved)) {
            Some(stream) => Some((at, stream, address)),
            None => {
                self.pause.waiting = Some((at, stream, address));
                self.wait_for_descriptor(turn);
                None
            }
        }
    }

    fn wait_for_descriptor(&mut self, turn: &ShardTurn) {
        let (now, pause) = (turn.now(), &mut self.pause);
        pause.until = MonotonicMs(now.0 + LOOK_EVERY_MS);
        if pause.warned_at.is_some_and(|at| now.0 < at.0 + WARN_EVERY_MS) {
            return;
        }
        pause.warned_at = Some(now);
        pause.is_warned = true;
        turn.log(&pause.budget.paused_event());
    }

    /// Marks the accept queues as empty, and logs the end of a logged pause.
    pub(crate) fn finish_accepting(&mut self, turn: &ShardTurn) {
        self.has_accepts = false;
        if std::mem::take(&mut self.pause.is_warned) {
            turn.log(&BrokerEvent::AcceptResumed);
        }
    }

    /// Creates the layers of a new connection; `None` for plain MQTT and for QUIC.
    pub(crate) fn new_stack(&self, listener: ListenerId) -> Option<TransportStack> {
        self.transport(listener).new_stack()
    }

    /// Returns the shard, of `shards`, whose turn it is to do a costly handshake.
    pub(crate) fn next_handshake_shard(&mut self, shards: usize) -> usize {
        self.handshake_shard = (self.handshake_shard + 1) % shards;
        self.handshake_shard
    }
}
