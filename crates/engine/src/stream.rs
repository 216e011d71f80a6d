//! The kinds of sockets that a shard serves, alike in everything that it does with them.

use crate::quic::Udp;
use broker::Address;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A stream of QUIC: it has no descriptor, and its bytes come and go by its trunk.
    Quic {
        trunk: u32,
    },
}

#[derive(Debug)]
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// Its datagrams come in by its entrance.
    Quic(Arc<Udp>),
}

impl Acceptor {
    pub(crate) fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                // Without it a small packet would wait for the last one's ACK.
                let _ = stream.set_nodelay(true);
                // On [::] an IPv4 client comes in the clothes of an IPv6 one.
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                Ok((Stream::Tcp(stream), Address::Network(from)))
            }
            Acceptor::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                // Without one it has gone again.
                let gone = |_| io::Error::from(io::ErrorKind::ConnectionAborted);
                let process = rustix::net::sockopt::socket_peercred(&stream).map_err(gone)?;
                let (user, process) = (process.uid.as_raw(), process.pid.as_raw_pid() as u32);
                Ok((Stream::Unix(stream), Address::Unix { user, process }))
            }
            Acceptor::Quic(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Stream {
    /// The same socket by another descriptor.
    pub(crate) fn with_descriptor(&self, descriptor: OwnedFd) -> Stream {
        match self {
            Stream::Tcp(_) => {
                Stream::Tcp(TcpStream::from_std(std::net::TcpStream::from(descriptor)))
            }
            Stream::Unix(_) => {
                Stream::Unix(UnixStream::from_std(std::os::unix::net::UnixStream::from(descriptor)))
            }
            Stream::Quic { trunk } => Stream::Quic { trunk: *trunk },
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
            Stream::Quic { .. } => Ok(()),
        }
    }

    fn source(&mut self) -> Option<&mut dyn Source> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(stream) => Some(stream),
            Stream::Quic { .. } => None,
        }
    }

    pub(crate) fn into_tcp(self) -> Option<std::net::TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream.into()),
            Stream::Unix(_) | Stream::Quic { .. } => None,
        }
    }

    /// Where it is a stream of QUIC.
    pub(crate) fn trunk(&self) -> Option<u32> {
        match self {
            Stream::Quic { trunk } => Some(*trunk),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }
}

// The system's calls without the C library's points of cancellation around them: in a process of
// several threads those cost a delivery to many two hundredths of all its time.
impl Stream {
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.descriptor()?, bytes, SendFlags::NOSIGNAL)?)
    }

    pub(crate) fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(slices),
            Stream::Unix(stream) => stream.write_vectored(slices),
            Stream::Quic { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    #[inline]
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.descriptor()?, into, RecvFlags::empty())?.0)
    }

    /// What has none takes and gives nothing by itself.
    #[inline]
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Stream::Tcp(stream) => Ok(stream.as_fd()),
            Stream::Unix(stream) => Ok(stream.as_fd()),
            Stream::Quic { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Source for Stream {
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

impl Acceptor {
    /// A UDP socket is shared by all that send from it.
    fn on_source<T>(&mut self, call: impl FnOnce(&mut dyn Source) -> T) -> T {
        match self {
            Acceptor::Tcp(listener) => call(listener),
            Acceptor::Unix(listener) => call(listener),
            Acceptor::Quic(udp) => call(&mut SourceFd(&udp.descriptor())),
        }
    }
}

impl Source for Acceptor {
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
