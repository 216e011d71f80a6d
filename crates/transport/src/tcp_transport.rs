//! The byte stream of one connection over TCP, optionally with TLS, and with WebSocket over either.

use crate::websocket::WebSocketClient;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The layers between TCP and MQTT, for [`TcpTransport::connect`].
#[derive(Clone, Debug, Default)]
pub struct TransportLayers {
    pub tls: Option<Arc<ClientConfig>>,
    /// Request path of WebSocket, or `None` without WebSocket.
    pub websocket: Option<Arc<str>>,
}

/// A nonblocking client connection with its layers. After each event the caller polls, reads,
/// writes and flushes.
#[derive(Debug)]
pub struct TcpTransport {
    stream: TcpStream,
    /// TLS of the connection; `None` for plain TCP. Boxed, so a plain connection pays only two
    /// pointers.
    tls: Option<Box<ClientConnection>>,
    websocket: Option<Box<WebSocketClient>>,
}

impl TcpTransport {
    /// Begins to connect, from the address `from` if given. The socket becomes writable when the
    /// connection is established or has failed.
    pub fn connect(
        to: SocketAddr,
        from: Option<IpAddr>,
        host: &str,
        layers: &TransportLayers,
    ) -> io::Result<TcpTransport> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(from) = from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        match socket.connect(&to.into()) {
            Err(error) if !is_in_progress(&error) => return Err(error),
            _ => {}
        }
        TcpTransport::from_stream(socket.into(), host, layers)
    }

    /// Builds the layers on a nonblocking socket. `host` is the server name for TLS and WebSocket.
    pub fn from_stream(
        stream: TcpStream,
        host: &str,
        layers: &TransportLayers,
    ) -> io::Result<TcpTransport> {
        let tls = match &layers.tls {
            Some(config) => {
                let name = host.to_string().try_into().map_err(io::Error::other)?;
                let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Some(Box::new(tls))
            }
            None => None,
        };
        let path = layers.websocket.as_deref();
        let websocket = path.map(|path| Box::new(WebSocketClient::new(host, path)));
        Ok(TcpTransport { stream, tls, websocket })
    }

    /// Whether all layers are open, so MQTT may begin. The caller calls again after each event
    /// until the result is true.
    pub fn poll_open(&mut self) -> io::Result<bool> {
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
        let TcpTransport { stream, tls, websocket } = self;
        match websocket {
            Some(websocket) => websocket.poll_upgrade(&mut LowerStream { stream, tls }),
            None => Ok(true),
        }
    }

    /// Reads from the top layer: `None` means no data for now, and 0 the end.
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let TcpTransport { stream, tls, websocket } = self;
        let read = match (websocket, &tls) {
            (None, None) => stream.read(into),
            (None, Some(_)) => LowerStream { stream, tls }.read(into),
            (Some(websocket), _) => websocket.read(&mut LowerStream { stream, tls }, into),
        };
        match none_if_blocked(read) {
            // A peer which closes TCP without TLS's close_notify ends the stream too.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(0)),
            read => read,
        }
    }

    /// Writes to the top layer; `None` means the socket accepts no bytes for now.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let TcpTransport { stream, tls, websocket } = self;
        let written = match (websocket, &tls) {
            (None, None) => stream.write(bytes),
            (None, Some(_)) => LowerStream { stream, tls }.write(bytes),
            (Some(websocket), _) => websocket.write(&mut LowerStream { stream, tls }, bytes),
        };
        // A full layer accepts no bytes until the socket is writable again.
        none_if_blocked(written).map(|written| written.filter(|written| *written > 0))
    }

    /// Writes the bytes which a layer has accepted and not yet passed on. A blocked socket is not
    /// an error: see [`TcpTransport::has_pending`].
    pub fn flush(&mut self) -> io::Result<()> {
        let TcpTransport { stream, tls, websocket } = self;
        let mut layer = LowerStream { stream, tls };
        let pushed = match websocket {
            Some(websocket) => websocket.write_pending(&mut layer),
            None => layer.flush(),
        };
        match pushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the sending direction: WebSocket close frame, TLS close_notify, then TCP FIN.
    pub fn shut_down(&mut self) -> io::Result<()> {
        if let Some(websocket) = &mut self.websocket {
            websocket.queue_close();
        }
        self.flush()?;
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush()?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Whether a layer has bytes which the socket did not accept.
    pub fn has_pending(&self) -> bool {
        self.websocket.as_ref().is_some_and(|websocket| websocket.has_pending())
            || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    pub fn has_layers(&self) -> bool {
        self.tls.is_some() || self.websocket.is_some()
    }

    /// Whether a read which did not fill its buffer has emptied the socket, so the poller reports
    /// further bytes (epoll(7), question 9). Layers may hold more bytes.
    #[inline]
    pub fn short_read_is_all(&self) -> bool {
        !self.has_layers()
    }
}

impl AsFd for TcpTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The stream below WebSocket: a socket, or TLS on a socket.
struct LowerStream<'a> {
    stream: &'a mut TcpStream,
    tls: &'a mut Option<Box<ClientConnection>>,
}

impl Read for LowerStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, self.stream).read(into),
            None => self.stream.read(into),
        }
    }
}

impl Write for LowerStream<'_> {
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

fn is_in_progress(error: &io::Error) -> bool {
    let in_progress = rustix::io::Errno::INPROGRESS.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(in_progress)
}

/// Maps `WouldBlock` to `None`. `Interrupted` stays an error: another thread handles signals,
/// so no call here is interrupted in practice.
#[inline]
fn none_if_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
