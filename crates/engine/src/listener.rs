//! Listeners: the socket that accepts connections, and the transport layers between it and MQTT.

use crate::proxy::ProxyVersions;
use crate::quic::QuicConfig;
use crate::stream::SocketAcceptor;
#[cfg(feature = "psk")]
use crate::tls::psk::{PskKeys, PskLayer};
use crate::tls::{TlsCredentials, TlsLayer};
use crate::transport_stack::TransportStack;
use crate::websocket::WebSocketSite;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use transport::QuicUdpSocket;

/// A socket bound by the caller, who reports bind errors, with the layers of its connections.
#[derive(Debug)]
pub struct Listener {
    pub socket: ListenerSocket,
    pub transport: ListenerTransport,
}

#[derive(Debug)]
pub enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// Socket of a QUIC listener, whose options are in [`ListenerTransport::quic`].
    Udp(UdpSocket),
}

/// The layers of a listener's connections below MQTT. All are absent for plain MQTT over TCP.
#[derive(Clone, Debug, Default)]
pub struct ListenerTransport {
    /// Versions of the PROXY header which a connection must begin with to name its client.
    pub proxy: Option<ProxyVersions>,
    pub tls: Option<TlsCredentials>,
    /// Pre-shared keys of TLS clients. With these, `tls` and its certificates are not used.
    #[cfg(feature = "psk")]
    pub psk: Option<PskKeys>,
    /// MQTT over WebSocket, with the paths and headers of the site.
    pub websocket: Option<Arc<WebSocketSite>>,
    /// MQTT over QUIC, whose TLS is part of [`QuicConfig`].
    pub quic: Option<QuicConfig>,
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Listener {
        Listener { socket: ListenerSocket::Tcp(socket), transport: ListenerTransport::default() }
    }
}

impl ListenerSocket {
    pub(crate) fn into_acceptor(self) -> io::Result<SocketAcceptor> {
        match self {
            ListenerSocket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(SocketAcceptor::Tcp(mio::net::TcpListener::from_std(listener)))
            }
            ListenerSocket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(SocketAcceptor::Unix(mio::net::UnixListener::from_std(listener)))
            }
            ListenerSocket::Udp(socket) => {
                Ok(SocketAcceptor::Quic(QuicUdpSocket::new(socket)?.into()))
            }
        }
    }
}

impl ListenerTransport {
    /// Creates the layers of a new connection; `None` for plain MQTT and for QUIC.
    pub(crate) fn new_stack(&self) -> Option<TransportStack> {
        let tls = self.tls.as_ref().map(|credentials| TlsLayer::Silent(credentials.config()));
        #[cfg(feature = "psk")]
        let tls =
            self.psk.as_ref().map(|keys| TlsLayer::Psk(PskLayer::Silent(keys.clone()))).or(tls);
        let any = self.proxy.is_some() || tls.is_some() || self.websocket.is_some();
        any.then(|| TransportStack::new(self.proxy, tls, self.websocket.clone()))
    }

    /// Whether the address of the client is only known after a PROXY or WebSocket header.
    pub(crate) fn names_client_later(&self) -> bool {
        let web = self.websocket.as_ref();
        self.proxy.is_some() || web.is_some_and(|site| site.address_header.is_some())
    }

    /// Whether the handshake computes keys, so shards take turns with new connections.
    pub(crate) fn has_costly_handshake(&self) -> bool {
        #[cfg(feature = "psk")]
        if self.psk.is_some() {
            return true;
        }
        self.tls.is_some() || self.quic.is_some()
    }
}
