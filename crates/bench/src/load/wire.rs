//! One connection's bytes, whatever carries them.

use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

#[derive(Debug)]
pub(crate) enum Wire {
    Tcp(TcpStream),
}

impl Wire {
    /// Begins to connect; the socket becomes writable when that is done.
    pub(crate) fn open(to: SocketAddr, from: Option<IpAddr>) -> io::Result<Wire> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(from) = from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        match socket.connect(&to.into()) {
            Err(error) if !is_under_way(&error) => return Err(error),
            _ => {}
        }
        Ok(Wire::Tcp(TcpStream::from_std(socket.into())))
    }

    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        match self {
            Wire::Tcp(stream) => stream,
        }
    }

    /// Whether TCP has connected, once the socket became writable.
    pub(crate) fn is_open(&mut self) -> io::Result<bool> {
        let socket = self.socket();
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        match socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `None` where there is nothing to read now; zero is the end.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match self {
            Wire::Tcp(stream) => stream.read(into),
        };
        ready(read)
    }

    /// `None` where nothing can be written now.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let written = match self {
            Wire::Tcp(stream) => stream.write(bytes),
        };
        ready(written)
    }

    /// Whether a read that did not fill its buffer took everything: then the poller tells of more
    /// (epoll(7), question 9).
    #[inline]
    pub(crate) fn short_read_is_all(&self) -> bool {
        match self {
            Wire::Tcp(_) => true,
        }
    }
}

fn is_under_way(error: &io::Error) -> bool {
    let in_progress = rustix::io::Errno::INPROGRESS.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(in_progress)
}

/// Interrupted is tried again with the next event, as if there were nothing now: signals are taken
/// by another thread, so it does not happen in practice.
#[inline]
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
