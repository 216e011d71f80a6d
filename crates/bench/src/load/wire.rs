//! One connection's bytes, whatever carries them: TCP, TLS over it, and WebSocket over either.

use super::websocket::WebSocket;
use crate::plan::Target;
use mio::net::TcpStream;
use rustls::ClientConnection;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::IpAddr;

#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    /// Neither costs a plain connection more than the room for a pointer.
    tls: Option<Box<ClientConnection>>,
    websocket: Option<Box<WebSocket>>,
}

impl Wire {
    /// Begins to connect; the socket becomes writable when that is done.
    pub(crate) fn open(target: &Target, from: Option<IpAddr>) -> io::Result<Wire> {
        let to = target.address;
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(from) = from {
            socket.bind(&std::net::SocketAddr::new(from, 0).into())?;
        }
        match socket.connect(&to.into()) {
            Err(error) if !is_under_way(&error) => return Err(error),
            _ => {}
        }
        let carrier = &target.carrier;
        let tls = match &carrier.tls {
            Some(config) => {
                let name = target.host.clone().try_into().map_err(io::Error::other)?;
                let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Some(Box::new(tls))
            }
            None => None,
        };
        let websocket = carrier.is_websocket.then(|| Box::new(WebSocket::new(&target.host)));
        Ok(Wire { stream: TcpStream::from_std(socket.into()), tls, websocket })
    }

    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether MQTT may begin. Asked again with every event until it is so.
    pub(crate) fn is_open(&mut self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        if let Some(tls) = &mut self.tls {
            while tls.is_handshaking() {
                match tls.complete_io(&mut self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        let Wire { stream, tls, websocket } = self;
        match websocket {
            Some(websocket) => websocket.upgrade(&mut Layer { stream, tls }),
            None => Ok(true),
        }
    }

    /// `None` where there is nothing to read now; zero is the end.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Wire { stream, tls, websocket } = self;
        let read = match (websocket, &tls) {
            (None, None) => stream.read(into),
            (None, Some(_)) => Layer { stream, tls }.read(into),
            (Some(websocket), _) => websocket.read(&mut Layer { stream, tls }, into),
        };
        ready(read)
    }

    /// `None` where nothing can be written now.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Wire { stream, tls, websocket } = self;
        let written = match (websocket, &tls) {
            (None, None) => stream.write(bytes),
            (None, Some(_)) => Layer { stream, tls }.write(bytes),
            (Some(websocket), _) => websocket.write(&mut Layer { stream, tls }, bytes),
        };
        // A full layer takes nothing until the socket is writable again.
        ready(written).map(|written| written.filter(|written| *written > 0))
    }

    /// Writes what a layer has taken and not yet passed on.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        let Wire { stream, tls, websocket } = self;
        let mut layer = Layer { stream, tls };
        let pushed = match websocket {
            Some(websocket) => websocket.push(&mut layer),
            None => layer.flush(),
        };
        match pushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn has_layers(&self) -> bool {
        self.tls.is_some() || self.websocket.is_some()
    }

    /// Whether a read that did not fill its buffer took everything: then the poller tells of more
    /// (epoll(7), question 9).
    #[inline]
    pub(crate) fn short_read_is_all(&self) -> bool {
        !self.has_layers()
    }
}

/// What lies below WebSocket: the socket, or TLS on it.
pub(super) struct Layer<'a> {
    stream: &'a mut TcpStream,
    tls: &'a mut Option<Box<ClientConnection>>,
}

impl Read for Layer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, self.stream).read(into),
            None => self.stream.read(into),
        }
    }
}

impl Write for Layer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, self.stream).write(bytes),
            None => self.stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, self.stream).flush(),
            None => Ok(()),
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
