//! The byte stream of one client, over a socket of its own or over a QUIC connection of an endpoint
//! that the clients of a thread share.

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

/// A thread's outlets: one for each address that it connects to and from.
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
    /// Begins to connect; an event tells when that is done.
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

    /// Whether MQTT may begin. Asked again with every event until it is so.
    pub(crate) fn poll_open(&mut self, outlets: &mut QuicEndpoints) -> io::Result<bool> {
        match self {
            ClientTransport::Tcp(wire) => wire.poll_open(),
            ClientTransport::Quic(at, connection) => {
                outlets.0[usize::from(*at)].endpoint.poll_open(*connection)
            }
        }
    }

    /// `None` where there is nothing to read now; zero is the end.
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

    /// `None` where nothing can be written now.
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

    /// Writes what a layer has taken and not yet passed on.
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

    /// Whether a read that did not fill its buffer took everything: then the poller tells of more
    /// (epoll(7), question 9).
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

    /// Returns the QUIC endpoint of a poller's token.
    pub(crate) fn index_of_token(&self, token: Token) -> Option<usize> {
        FIRST_TOKEN.0.checked_sub(token.0).filter(|at| *at < self.0.len())
    }

    pub(crate) fn set_busy(&mut self, at: usize, is_busy: bool) {
        self.0[at].is_busy = is_busy;
    }

    /// Returns the next QUIC endpoint with a due timer.
    pub(crate) fn next_due(&self, from: usize, now: Instant) -> Option<usize> {
        let is_due = |one: &EndpointSlot| one.is_busy || one.endpoint.next_poll_at() <= now;
        let due = self.0.iter().skip(from).position(is_due);
        due.map(|nth| from + nth)
    }

    /// Returns the time until a QUIC endpoint has a due timer.
    pub(crate) fn idle_time(&self) -> Duration {
        let now = Instant::now();
        let rest = |one: &EndpointSlot| match one.is_busy {
            true => Duration::ZERO,
            false => one.endpoint.next_poll_at().saturating_duration_since(now),
        };
        self.0.iter().map(rest).min().unwrap_or(Duration::MAX)
    }

    /// Takes what has come, and names the clients that should look.
    pub(crate) fn poll(&mut self, at: usize, woken: &mut Vec<u32>) -> io::Result<bool> {
        self.0[at].endpoint.poll(woken)
    }

    /// Lets out what connections have to say.
    #[inline]
    pub(crate) fn send_pending(&mut self) {
        for one in &mut self.0 {
            one.endpoint.send_pending();
        }
    }

    /// Connections that are not closed.
    pub(crate) fn connection_count(&self) -> usize {
        self.0.iter().map(|one| one.endpoint.connection_count()).sum()
    }
}

/// The token of the first outlet; those of others go down from it, as those of clients go up.
const FIRST_TOKEN: Token = Token(usize::MAX - 2);
/// Interval of pings by which a broker that vanished is noticed.
const PINGS_EVERY: Duration = Duration::from_secs(1);
