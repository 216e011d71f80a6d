//! Where connections come in: a listener, and what stands behind it before MQTT.

use crate::proxy::ProxyVersions;
use crate::quic::{QuicConfig, QuicUdpSocket};
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

/// Bound already: an address that is taken is the caller's to explain.
#[derive(Debug)]
pub struct Listener {
    pub socket: ListenerSocket,
    pub transport: ListenerTransport,
}

#[derive(Debug)]
pub enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// For QUIC, whose door has `quic`.
    Udp(UdpSocket),
}

/// The layers of a listener's connections below MQTT. All are off for plain MQTT over TCP.
#[derive(Clone, Debug, Default)]
pub struct ListenerTransport {
    /// A proxy stands before it, and says who its client is.
    pub proxy: Option<ProxyVersions>,
    pub tls: Option<TlsCredentials>,
    /// TLS by keys that its clients have. Where there are some, certificates have no part in it.
    #[cfg(feature = "psk")]
    pub psk: Option<PskKeys>,
    /// MQTT comes over WebSocket.
    pub websocket: Option<Arc<WebSocketSite>>,
    /// MQTT comes over QUIC, which has a TLS of its own.
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
    /// The layers of a new connection; none where there is nothing to pass.
    pub(crate) fn new_stack(&self) -> Option<TransportStack> {
        let tls = self.tls.as_ref().map(|credentials| TlsLayer::Silent(credentials.config.clone()));
        #[cfg(feature = "psk")]
        let tls =
            self.psk.as_ref().map(|keys| TlsLayer::Psk(PskLayer::Silent(keys.clone()))).or(tls);
        let any = self.proxy.is_some() || tls.is_some() || self.websocket.is_some();
        any.then(|| TransportStack::new(self.proxy, tls, self.websocket.clone()))
    }

    /// Whether the address of a connection is known only when a proxy has named its client.
    pub(crate) fn names_client_later(&self) -> bool {
        let web = self.websocket.as_ref();
        self.proxy.is_some() || web.is_some_and(|site| site.address_header.is_some())
    }

    /// Whether the greeting is work, which shards share.
    pub(crate) fn has_costly_handshake(&self) -> bool {
        #[cfg(feature = "psk")]
        if self.psk.is_some() {
            return true;
        }
        self.tls.is_some() || self.quic.is_some()
    }
}
