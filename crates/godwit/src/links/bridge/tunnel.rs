//! WebSocket and QUIC to another broker: a thread of the bridge's own drives them, as for our small
//! clients, and the bridge has one end of a pair of sockets.

use super::far::{heed, scheme};
use super::underway::UnderWay;
use crate::clients::tunnel::{Far, Tunnel};
use crate::identity::remote::dial::{Endpoint, Wire};
use crate::identity::remote::url::Url;
use carrier::{Layers, Manner, Outlet, Wire as Carried};
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

/// Whether somebody there is still there QUIC asks at least so often.
const PINGS_EVERY: Duration = Duration::from_secs(10);

/// How the far end is reached, and how long it may be silent.
enum Road {
    Stream(Layers, Duration),
    Quic(Manner, Duration),
}

pub(super) async fn open(
    endpoint: &Endpoint,
    name: &str,
    server: &Url,
    tls: Option<&Arc<ClientConfig>>,
    (within, patience): (Duration, Duration),
) -> Result<(Box<dyn Wire>, UnderWay), String> {
    let found = lookup_host((endpoint.host.as_str(), endpoint.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| format!("{endpoint}: {error}"))?.collect();
    let road = match (scheme(server).is_quic, tls) {
        (true, Some(tls)) => Road::Quic(Manner::new(tls)?.lost_after(patience)?, patience),
        (true, None) => return Err(format!("{endpoint}: QUIC is always encrypted")),
        (false, tls) => {
            let path = if server.path.is_empty() { "/mqtt" } else { &server.path };
            let layers = Layers { tls: tls.cloned(), websocket: Some(path.into()) };
            Road::Stream(layers, patience)
        }
    };
    let (done, opened) = oneshot::channel();
    let (name, deadline) = (name.to_string(), Instant::now() + within);
    let opener = thread::Builder::new().name("opener".into()).spawn(move || {
        let _ = done.send(first(&found, &name, &road, deadline));
    });
    opener.map_err(|error| format!("no thread to connect by: {error}"))?;
    let tunnel = opened.await.map_err(|_| format!("{endpoint}: nobody connects"))?;
    let said = |error| format!("{endpoint}: {error}");
    let (Tunnel { near, fate }, under_way) = tunnel.map_err(said)?;
    let under_way = under_way.also(&near).map_err(said)?;
    let stream = near.set_nonblocking(true).and_then(|()| UnixStream::from_std(near));
    let stream = stream.map_err(said)?;
    Ok((Box::new(End { stream, fate }), under_way))
}

/// The first of the addresses that answers.
fn first(
    all: &[SocketAddr],
    name: &str,
    road: &Road,
    deadline: Instant,
) -> io::Result<(Tunnel, UnderWay)> {
    let mut why = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for to in all {
        let opened = road.far(*to, name).and_then(|(far, under_way)| {
            Tunnel::open(far, deadline).map(|tunnel| (tunnel, under_way))
        });
        match opened {
            Err(error) => why = error,
            opened => return opened,
        }
    }
    Err(why)
}

impl Road {
    /// With the socket of it that says what is under way; QUIC keeps that for itself.
    fn far(&self, to: SocketAddr, name: &str) -> io::Result<(Far, UnderWay)> {
        match self {
            Road::Stream(layers, patience) => {
                let wire = Carried::open(to, None, name, layers)?;
                heed(&wire, *patience);
                let under_way = UnderWay::default().also(&wire)?;
                Ok((Far::Wire(wire), under_way))
            }
            Road::Quic(manner, patience) => {
                // So that two of them may get lost.
                let mut outlet = Outlet::new(to, None, PINGS_EVERY.min(*patience / 4))?;
                let trunk = outlet.open(manner, name, 0)?;
                Ok((Far::Trunk(Box::new(outlet), trunk), UnderWay::default()))
            }
        }
    }
}

/// Ours of the tunnel: when it ends it says why.
struct End {
    stream: UnixStream,
    fate: Arc<OnceLock<String>>,
}

impl AsyncRead for End {
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

impl AsyncWrite for End {
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
