//! WebSocket and QUIC to a remote broker: a separate thread drives the transport, as for the client
//! commands, and the bridge has one end of a socket pair.

use super::remote_session::{scheme, set_user_timeout};
use super::send_progress::SendProgress;
use net::endpoint::{AsyncStream, ServerEndpoint};
use net::server_url::ServerUrl;
use net::tunnel::{TransportTunnel, TunnelTransport};
use rustls::ClientConfig;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixStream, lookup_host};
use tokio::sync::oneshot;
use transport::{QuicClientEndpoint, QuicClientOptions, TcpTransport as Carried, TransportLayers};

/// Longest interval between two QUIC pings.
const PINGS_EVERY: Duration = Duration::from_secs(10);

/// Transport to the remote broker, with the time after which a silent connection is lost.
enum RemoteTransport {
    Stream(TransportLayers, Duration),
    Quic(QuicClientOptions, Duration),
}

pub(super) async fn open_tunnel(
    endpoint: &ServerEndpoint,
    name: &str,
    server: &ServerUrl,
    tls: Option<&Arc<ClientConfig>>,
    within: Duration,
    patience: Duration,
) -> Result<(Box<dyn AsyncStream>, SendProgress), String> {
    let found = lookup_host((endpoint.host.as_str(), endpoint.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| format!("{endpoint}: {error}"))?.collect();
    let road = match (scheme(server).is_quic, tls) {
        (true, Some(tls)) => RemoteTransport::Quic(
            QuicClientOptions::new(tls)?.with_idle_timeout(patience)?,
            patience,
        ),
        (true, None) => return Err(format!("{endpoint}: QUIC is always encrypted")),
        (false, tls) => {
            let path = if server.path.is_empty() { "/mqtt" } else { &server.path };
            let layers = TransportLayers { tls: tls.cloned(), websocket: Some(path.into()) };
            RemoteTransport::Stream(layers, patience)
        }
    };
    let (done, opened) = oneshot::channel();
    let (name, deadline) = (name.to_string(), Instant::now() + within);
    let opener = thread::Builder::new().name("opener".into()).spawn(move || {
        let _ = done.send(connect_first_address(&found, &name, &road, deadline));
    });
    opener.map_err(|error| format!("no thread to connect by: {error}"))?;
    let tunnel = opened.await.map_err(|_| format!("{endpoint}: nobody connects"))?;
    let said = |error| format!("{endpoint}: {error}");
    let (TransportTunnel { local, failure: fate }, under_way) = tunnel.map_err(said)?;
    let under_way = under_way.with_socket(&local).map_err(said)?;
    let stream = local.set_nonblocking(true).and_then(|()| UnixStream::from_std(local));
    let stream = stream.map_err(said)?;
    Ok((Box::new(TunnelEnd { stream, fate }), under_way))
}

/// Connects to the first address which answers before `deadline`. Returns the error of the last
/// address otherwise.
fn connect_first_address(
    all: &[SocketAddr],
    name: &str,
    road: &RemoteTransport,
    deadline: Instant,
) -> io::Result<(TransportTunnel, SendProgress)> {
    let mut why = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for to in all {
        let opened = road.connect(*to, name).and_then(|(transport, under_way)| {
            TransportTunnel::open(transport, deadline).map(|tunnel| (tunnel, under_way))
        });
        match opened {
            Err(error) => why = error,
            opened => return opened,
        }
    }
    Err(why)
}

impl RemoteTransport {
    /// Begins to connect. Also returns the socket whose unsent bytes [`SendProgress`] watches; QUIC
    /// has none to watch.
    fn connect(&self, to: SocketAddr, name: &str) -> io::Result<(TunnelTransport, SendProgress)> {
        match self {
            RemoteTransport::Stream(layers, patience) => {
                let wire = Carried::connect(to, None, name, layers)?;
                set_user_timeout(&wire, *patience);
                let under_way = SendProgress::default().with_socket(&wire)?;
                Ok((TunnelTransport::Stream(wire), under_way))
            }
            RemoteTransport::Quic(manner, patience) => {
                // With a quarter of the timeout, two lost pings are tolerated.
                let mut outlet = QuicClientEndpoint::new(to, None, PINGS_EVERY.min(*patience / 4))?;
                let connection = outlet.connect(manner, name, 0)?;
                Ok((TunnelTransport::Quic(Box::new(outlet), connection), SendProgress::default()))
            }
        }
    }
}

/// The bridge's end of a tunnel. A read after the end returns the failure of the transport.
struct TunnelEnd {
    stream: UnixStream,
    fate: Arc<OnceLock<String>>,
}

impl AsyncRead for TunnelEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let is_over = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        match self.fate.get().filter(|_| is_over) {
            Some(why) => Poll::Ready(Err(io::Error::other(why.clone()))),
            None => read,
        }
    }
}

impl AsyncWrite for TunnelEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
