//! Where connections come in: a listener, and what stands behind it before MQTT.

use crate::layers::Layers;
use crate::proxy::Versions;
use crate::quic::{Terms, Udp};
use crate::stream::Acceptor;
#[cfg(feature = "psk")]
use crate::tls::psk::{Keyed, Keys};
use crate::tls::{Credentials, Tls};
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
    /// TLS by keys that its clients have. Where there are some, certificates have no part in it.
    #[cfg(feature = "psk")]
    pub keys: Option<Keys>,
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
        let tls = self.tls.as_ref().map(|credentials| Tls::Silent(credentials.config.clone()));
        #[cfg(feature = "psk")]
        let tls = self.keys.as_ref().map(|keys| Tls::Keyed(Keyed::Silent(keys.clone()))).or(tls);
        let any = self.proxy.is_some() || tls.is_some() || self.web.is_some();
        any.then(|| Layers::new(self.proxy, tls, self.web.clone()))
    }

    /// Whether the greeting is work, which shards share.
    pub(crate) fn is_work(&self) -> bool {
        #[cfg(feature = "psk")]
        if self.keys.is_some() {
            return true;
        }
        self.tls.is_some() || self.quic.is_some()
    }
}
