//! Streams and acceptors of the kinds of sockets that a shard serves, behind one interface.

use broker::PeerAddress;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use transport::QuicUdpSocket;

#[derive(Debug)]
pub(crate) enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A QUIC stream: no descriptor, since its connection carries the bytes.
    Quic {
        connection: u32,
    },
}

#[derive(Debug)]
pub(crate) enum SocketAcceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// A UDP socket, whose datagrams are read by `QuicEndpoint`; never accepts a stream.
    Quic(Arc<QuicUdpSocket>),
}

impl SocketAcceptor {
    pub(crate) fn accept(&self) -> io::Result<(SocketStream, PeerAddress)> {
        match self {
            SocketAcceptor::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                // Without TCP_NODELAY a small packet would wait for the acknowledgement of the last
                // one.
                let _ = stream.set_nodelay(true);
                // A listener on [::] reports an IPv4 client with an IPv4-mapped IPv6 address.
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                Ok((SocketStream::Tcp(stream), PeerAddress::Network(from)))
            }
            SocketAcceptor::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                // Without credentials the peer has gone again.
                let gone = |_| io::Error::from(io::ErrorKind::ConnectionAborted);
                let process = rustix::net::sockopt::socket_peercred(&stream).map_err(gone)?;
                let (user, process) = (process.uid.as_raw(), process.pid.as_raw_pid() as u32);
                Ok((SocketStream::Unix(stream), PeerAddress::Unix { user, process }))
            }
            SocketAcceptor::Quic(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl SocketStream {
    /// Returns the same socket with another descriptor.
    pub(crate) fn with_descriptor(&self, descriptor: OwnedFd) -> SocketStream {
        match self {
            SocketStream::Tcp(_) => {
                SocketStream::Tcp(TcpStream::from_std(std::net::TcpStream::from(descriptor)))
            }
            SocketStream::Unix(_) => SocketStream::Unix(UnixStream::from_std(
                std::os::unix::net::UnixStream::from(descriptor),
            )),
            SocketStream::Quic { connection } => SocketStream::Quic { connection: *connection },
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            SocketStream::Tcp(stream) => stream.shutdown(how),
            SocketStream::Unix(stream) => stream.shutdown(how),
            SocketStream::Quic { .. } => Ok(()),
        }
    }

    fn source(&mut self) -> Option<&mut dyn Source> {
        match self {
            SocketStream::Tcp(stream) => Some(stream),
            SocketStream::Unix(stream) => Some(stream),
            SocketStream::Quic { .. } => None,
        }
    }

    pub(crate) fn into_tcp(self) -> Option<std::net::TcpStream> {
        match self {
            SocketStream::Tcp(stream) => Some(stream.into()),
            SocketStream::Unix(_) | SocketStream::Quic { .. } => None,
        }
    }

    /// Returns the slot of the QUIC connection, if this is a QUIC stream.
    pub(crate) fn quic_connection(&self) -> Option<u32> {
        match self {
            SocketStream::Quic { connection } => Some(*connection),
            SocketStream::Tcp(_) | SocketStream::Unix(_) => None,
        }
    }
}

// rustix makes the system calls without the cancellation points of the C library: in a process of
// several threads those cost two percent of all time in a delivery to many subscribers.
impl SocketStream {
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.descriptor()?, bytes, SendFlags::NOSIGNAL)?)
    }

    pub(crate) fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => stream.write_vectored(slices),
            SocketStream::Unix(stream) => stream.write_vectored(slices),
            SocketStream::Quic { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    #[inline]
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.descriptor()?, into, RecvFlags::empty())?.0)
    }

    /// Returns the descriptor. A QUIC stream has none, so reads and writes fail with `WouldBlock`.
    #[inline]
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            SocketStream::Tcp(stream) => Ok(stream.as_fd()),
            SocketStream::Unix(stream) => Ok(stream.as_fd()),
            SocketStream::Quic { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Source for SocketStream {
    fn register(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.source().map_or(Ok(()), |source| source.register(at, token, interest))
    }

    fn reregister(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.source().map_or(Ok(()), |source| source.reregister(at, token, interest))
    }

    fn deregister(&mut self, at: &Registry) -> io::Result<()> {
        self.source().map_or(Ok(()), |source| source.deregister(at))
    }
}

impl SocketAcceptor {
    /// Calls `call` with the event source; a UDP socket is shared with all its senders, so only its
    /// descriptor is used.
    fn on_source<T>(&mut self, call: impl FnOnce(&mut dyn Source) -> T) -> T {
        match self {
            SocketAcceptor::Tcp(listener) => call(listener),
            SocketAcceptor::Unix(listener) => call(listener),
            SocketAcceptor::Quic(udp) => call(&mut SourceFd(&udp.descriptor())),
        }
    }
}

impl Source for SocketAcceptor {
    fn register(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.on_source(|source| source.register(at, token, interest))
    }

    fn reregister(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.on_source(|source| source.reregister(at, token, interest))
    }

    fn deregister(&mut self, at: &Registry) -> io::Result<()> {
        self.on_source(|source| source.deregister(at))
    }
}
