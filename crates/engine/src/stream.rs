//! The kinds of sockets that a shard serves, alike in everything that it does with them.

use broker::Address;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
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
        }
    }
}

impl Stream {
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }
}

// The system's calls without the C library's points of cancellation around them: in a process of
// several threads those cost a delivery to many two hundredths of all its time.
impl Stream {
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, bytes, SendFlags::NOSIGNAL)?)
    }

    pub(crate) fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(slices),
            Stream::Unix(stream) => stream.write_vectored(slices),
        }
    }

    #[inline]
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, into, RecvFlags::empty())?.0)
    }
}

impl AsFd for Stream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.source().register(at, token, interest)
    }

    fn reregister(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.source().reregister(at, token, interest)
    }

    fn deregister(&mut self, at: &Registry) -> io::Result<()> {
        self.source().deregister(at)
    }
}

impl Acceptor {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Acceptor::Tcp(listener) => listener,
            Acceptor::Unix(listener) => listener,
        }
    }
}

impl Source for Acceptor {
    fn register(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.source().register(at, token, interest)
    }

    fn reregister(&mut self, at: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.source().reregister(at, token, interest)
    }

    fn deregister(&mut self, at: &Registry) -> io::Result<()> {
        self.source().deregister(at)
    }
}
