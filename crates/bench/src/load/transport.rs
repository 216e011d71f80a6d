//! Byte stream of a client: a socket, or a QUIC connection on an endpoint that the clients of a
//! thread share.

use crate::plan::{BrokerTarget, TargetTransport};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use transport::{QuicClientEndpoint, QuicConnectionHandle};

#[derive(Debug)]
pub(crate) enum ClientTransport {
    Tcp(transport::TcpTransport),
    Quic(u16, QuicConnectionHandle),
}

/// QUIC endpoints of a thread: one for each pair of target and local address.
#[derive(Debug, Default)]
pub(crate) struct QuicEndpoints(Vec<EndpointSlot>);

#[derive(Debug)]
struct EndpointSlot {
    to: SocketAddr,
    from: Option<IpAddr>,
    endpoint: QuicClientEndpoint,
    /// Whether there may be more to read without a further event.
    is_busy: bool,
}

impl ClientTransport {
    /// Starts a connection to `target`; an event follows when the connection is open or has failed.
    pub(crate) fn connect(
        target: &BrokerTarget,
        from: Option<IpAddr>,
        owner: u32,
        outlets: &mut QuicEndpoints,
        registry: &Registry,
    ) -> io::Result<ClientTransport> {
        match &target.transport {
            TargetTransport::Tcp(layers) => {
                let wire =
                    transport::TcpTransport::connect(target.address, from, &target.host, layers)?;
                let both = Interest::READABLE | Interest::WRITABLE;
                let descriptor = wire.as_fd().as_raw_fd();
                registry.register(&mut SourceFd(&descriptor), Token(owner as usize), both)?;
                Ok(ClientTransport::Tcp(wire))
            }
            TargetTransport::Quic(manner) => {
                let at = outlets.endpoint_for(target.address, from, registry)?;
                let connection =
                    outlets.0[usize::from(at)].endpoint.connect(manner, &target.host, owner)?;
                Ok(ClientTransport::Quic(at, connection))
            }
        }
    }

    /// Whether MQTT may begin. To be called with every event until true.
    pub(crate) fn poll_open(&mut self, outlets: &mut QuicEndpoints) -> io::Result<bool> {
        match self {
            ClientTransport::Tcp(wire) => wire.poll_open(),
            ClientTransport::Quic(at, connection) => {
                outlets.0[usize::from(*at)].endpoint.poll_open(*connection)
            }
        }
    }

    /// Reads bytes: `None` if nothing is readable now; `Some(0)` is the end of the stream.
    #[inline]
    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        outlets: &mut QuicEndpoints,
    ) -> io::Result<Option<usize>> {
        match self {
            ClientTransport::Tcp(wire) => wire.read(into),
            ClientTransport::Quic(at, connection) => {
                outlets.0[usize::from(*at)].endpoint.read(*connection, into)
            }
        }
    }

    /// Writes bytes: `None` if nothing can be written now.
    #[inline]
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        outlets: &mut QuicEndpoints,
    ) -> io::Result<Option<usize>> {
        match self {
            ClientTransport::Tcp(wire) => wire.write(bytes),
            ClientTransport::Quic(at, connection) => {
                outlets.0[usize::from(*at)].endpoint.write(*connection, bytes)
            }
        }
    }

    /// Writes bytes that TLS or WebSocket layers have buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            ClientTransport::Tcp(wire) if wire.has_layers() => wire.flush(),
            _ => Ok(()),
        }
    }

    pub(crate) fn close(self, outlets: &mut QuicEndpoints) {
        if let ClientTransport::Quic(at, connection) = self {
            outlets.0[usize::from(at)].endpoint.close(connection);
        }
    }

    /// Whether a read that did not fill its buffer has emptied the socket, so that the poller
    /// reports new bytes (epoll(7), question 9). Not so with layers or QUIC, which buffer bytes.
    #[inline]
    pub(crate) fn short_read_is_all(&self) -> bool {
        matches!(self, ClientTransport::Tcp(wire) if !wire.has_layers())
    }
}

impl QuicEndpoints {
    fn endpoint_for(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        registry: &Registry,
    ) -> io::Result<u16> {
        let known = self.0.iter().position(|one| (one.to, one.from) == (to, from));
        let at = match known {
            Some(at) => at,
            None => {
                let at = self.0.len();
                let outlet = QuicClientEndpoint::new(to, from, PINGS_EVERY)?;
                let both = Interest::READABLE | Interest::WRITABLE;
                let descriptor = outlet.as_fd().as_raw_fd();
                registry.register(&mut SourceFd(&descriptor), Token(FIRST_TOKEN.0 - at), both)?;
                self.0.push(EndpointSlot { to, from, endpoint: outlet, is_busy: false });
                at
            }
        };
        u16::try_from(at).map_err(io::Error::other)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the index of the QUIC endpoint with `token`; `None` for tokens of clients.
    pub(crate) fn index_of_token(&self, token: Token) -> Option<usize> {
        FIRST_TOKEN.0.checked_sub(token.0).filter(|at| *at < self.0.len())
    }

    pub(crate) fn set_busy(&mut self, at: usize, is_busy: bool) {
        self.0[at].is_busy = is_busy;
    }

    /// Returns the next QUIC endpoint, from index `from`, with a due timer or more input.
    pub(crate) fn next_due(&self, from: usize, now: Instant) -> Option<usize> {
        let is_due = |one: &EndpointSlot| one.is_busy || one.endpoint.next_poll_at() <= now;
        let due = self.0.iter().skip(from).position(is_due);
        due.map(|nth| from + nth)
    }

    /// Returns the time until a QUIC endpoint has a due timer; zero if an endpoint has more input.
    pub(crate) fn idle_time(&self) -> Duration {
        let now = Instant::now();
        let rest = |one: &EndpointSlot| match one.is_busy {
            true => Duration::ZERO,
            false => one.endpoint.next_poll_at().saturating_duration_since(now),
        };
        self.0.iter().map(rest).min().unwrap_or(Duration::MAX)
    }

    /// Reads datagrams of an endpoint and adds the clients concerned to `woken`. Returns whether
    /// more datagrams may wait.
    pub(crate) fn poll(&mut self, at: usize, woken: &mut Vec<u32>) -> io::Result<bool> {
        self.0[at].endpoint.poll(woken)
    }

    /// Sends the pending datagrams of all endpoints.
    #[inline]
    pub(crate) fn send_pending(&mut self) {
        for one in &mut self.0 {
            one.endpoint.send_pending();
        }
    }

    /// Number of QUIC connections that are not closed.
    pub(crate) fn connection_count(&self) -> usize {
        self.0.iter().map(|one| one.endpoint.connection_count()).sum()
    }
}

/// Token of the first endpoint. Tokens of endpoints count down from here; tokens of clients count
/// up.
const FIRST_TOKEN: Token = Token(usize::MAX - 2);
/// Interval of QUIC pings, by which a vanished broker is noticed.
const PINGS_EVERY: Duration = Duration::from_secs(1);
