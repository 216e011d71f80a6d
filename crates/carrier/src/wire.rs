//! One connection's bytes, whatever carries them: TCP, TLS over it, and WebSocket over either.

use crate::websocket::WebSocket;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// What lies between TCP and MQTT.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub tls: Option<Arc<ClientConfig>>,
    /// The path that WebSocket asks for, where that is spoken.
    pub websocket: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    /// Neither costs a plain connection more than the room for a pointer.
    tls: Option<Box<ClientConnection>>,
    websocket: Option<Box<WebSocket>>,
}

impl Wire {
    /// Begins to connect; the socket becomes writable when that is done.
    pub fn open(
        to: SocketAddr,
        from: Option<IpAddr>,
        host: &str,
        layers: &Layers,
    ) -> io::Result<Wire> {
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
        Wire::over(socket.into(), host, layers)
    }

    /// By a socket that waits for nothing.
    pub fn over(stream: TcpStream, host: &str, layers: &Layers) -> io::Result<Wire> {
        let tls = match &layers.tls {
            Some(config) => {
                let name = host.to_string().try_into().map_err(io::Error::other)?;
                let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Some(Box::new(tls))
            }
            None => None,
        };
        let path = layers.websocket.as_deref();
        let websocket = path.map(|path| Box::new(WebSocket::new(host, path)));
        Ok(Wire { stream, tls, websocket })
    }

    /// Whether MQTT may begin. Asked again with every event until it is so.
    pub fn is_open(&mut self) -> io::Result<bool> {
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
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Wire { stream, tls, websocket } = self;
        let read = match (websocket, &tls) {
            (None, None) => stream.read(into),
            (None, Some(_)) => Layer { stream, tls }.read(into),
            (Some(websocket), _) => websocket.read(&mut Layer { stream, tls }, into),
        };
        match ready(read) {
            // Without a farewell of TLS it is the end all the same.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(0)),
            read => read,
        }
    }

    /// `None` where nothing can be written now.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
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
    pub fn push(&mut self) -> io::Result<()> {
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

    /// Says that nothing more comes from us.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(websocket) = &mut self.websocket {
            websocket.end();
        }
        self.push()?;
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.push()?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Whether a layer has something that the socket did not take.
    pub fn is_stuck(&self) -> bool {
        self.websocket.as_ref().is_some_and(|websocket| websocket.is_stuck())
            || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    pub fn has_layers(&self) -> bool {
        self.tls.is_some() || self.websocket.is_some()
    }

    /// Whether a read that did not fill its buffer took everything: then the poller tells of more
    /// (epoll(7), question 9).
    #[inline]
    pub fn short_read_is_all(&self) -> bool {
        !self.has_layers()
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What lies below WebSocket: the socket, or TLS on it.
struct Layer<'a> {
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
