//! Where connections come in: a listener, and what stands behind it before MQTT.

use crate::layers::Layers;
use crate::proxy::Versions;
use crate::quic::{Terms, Udp};
use crate::stream::Acceptor;
use crate::tls::Credentials;
use crate::web::Site;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

/// Bound already: an address that is taken is the caller's to explain.
#[derive(Debug)]
pub struct Listener {
    pub socket: ListenerSocket,
    pub door: Door,
}

#[derive(Debug)]
pub enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// For QUIC, whose door has `quic`.
    Udp(UdpSocket),
}

/// What a connection passes on its way in. None of it is plain MQTT over the socket.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// A proxy stands before it, and says who its client is.
    pub proxy: Option<Versions>,
    pub tls: Option<Credentials>,
    /// MQTT comes over WebSocket.
    pub web: Option<Arc<Site>>,
    /// MQTT comes over QUIC, which has a TLS of its own.
    pub quic: Option<Terms>,
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Listener {
        Listener { socket: ListenerSocket::Tcp(socket), door: Door::default() }
    }
}

impl ListenerSocket {
    pub(crate) fn into_acceptor(self) -> io::Result<Acceptor> {
        match self {
            ListenerSocket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Acceptor::Tcp(mio::net::TcpListener::from_std(listener)))
            }
            ListenerSocket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Acceptor::Unix(mio::net::UnixListener::from_std(listener)))
            }
            ListenerSocket::Udp(socket) => Ok(Acceptor::Quic(Udp::new(socket)?.into())),
        }
    }
}

impl Door {
    /// The layers of a new connection; none where there is nothing to pass.
    pub(crate) fn layers(&self) -> Option<Layers> {
        let config = self.tls.as_ref().map(|credentials| credentials.config.clone());
        let any = self.proxy.is_some() || config.is_some() || self.web.is_some();
        any.then(|| Layers::new(self.proxy, config, self.web.clone()))
    }

    /// Whether the greeting is work, which shards share.
    pub(crate) fn is_work(&self) -> bool {
        self.tls.is_some() || self.quic.is_some()
    }
}
