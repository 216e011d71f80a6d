//! Listeners and outgoing connections of a gateway.

use super::address::SocketAddress;
use super::peer::{GatewayPeer, GatewayShared};
use super::unacked_bytes::{MeteredSocket, UnackedBytes};
use super::upgrade;
use crate::{ClientTlsCell, ServerTlsCell, backoff, lock};
use net::endpoint::{AsyncStream, ServerEndpoint};
use net::pause_aware_timeout::timeout;
use net::unix_socket::{SocketFile, bind_path};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};
use transport::tls_errors::describe_client_io_error;
use zmtp_sp::{ProtocolFamily, SocketProtocol, SpTransport};

/// TLS configurations of a gateway for outgoing (`dials`) and incoming (`serves`) connections.
#[derive(Clone)]
pub(super) struct GatewayTls {
    pub(super) dials: ClientTlsCell,
    pub(super) serves: ServerTlsCell,
}

enum GatewayListener {
    Net(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "it goes with the socket")] SocketFile),
}

/// Place of one connected peer in the bound `peers_max` of a listener. Dropping the permit frees
/// the place.
struct PeerPermit(Arc<AtomicU32>);

impl Drop for PeerPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Pause after a failed accept: file descriptors may become free.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// A connection of this length resets the count of failures.
const STEADY: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(60);

/// A connection with the count of written bytes without an acknowledgement by the peer's host.
struct ConnectedSocket {
    stream: Box<dyn AsyncStream>,
    unacked: Arc<UnackedBytes>,
}

/// Accepts peers at `place` until the gateway stops. Retries to bind the address until it succeeds.
pub(super) async fn listen(shared: GatewayShared, place: SocketAddress, trusted: GatewayTls) {
    let settings = shared.settings.clone();
    let mut failures = 0;
    let door = loop {
        match open_listener(&place, settings.ipc_mode).await {
            Ok(door) => break door,
            Err(why) => shared.metrics.record_failure(&settings.name, format!("{place}: {why}")),
        }
        failures += 1;
        sleep(retry_delay(&shared, failures)).await;
    };
    info!(target: "godwit::gateway", gateway = &*settings.name, %place, "listens");
    shared.metrics.is_up.store(true, Relaxed);
    let (mut guests, present) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    loop {
        // New peers wait while file descriptors are short: the store needs some.
        if !engine::descriptors::has_room() {
            let what = "peers wait for a file descriptor: raise LimitNOFILE";
            shared.metrics.set_error(format!("{place}: {what}"));
            sleep(ACCEPT_RETRY).await;
            continue;
        }
        let wire = tokio::select! {
            wire = door.accept() => wire,
            Some(_) = guests.join_next(), if !guests.is_empty() => continue,
        };
        let reached = match wire {
            Ok(reached) => reached,
            Err(error) => {
                shared.metrics.set_error(format!("{place}: {error}"));
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if present.load(Relaxed) >= settings.peers_max {
            shared.metrics.set_error(format!("{place}: there are peers_max peers"));
            continue;
        }
        present.fetch_add(1, Relaxed);
        let ticket = PeerPermit(present.clone());
        let (shared, place, trusted) = (shared.clone(), place.clone(), trusted.clone());
        guests.spawn(async move {
            let _ticket = ticket;
            let name = shared.settings.name.clone();
            if let Err(why) = serve_connection(shared.clone(), &place, &trusted, reached).await {
                debug!(target: "godwit::gateway", gateway = &*name, %place, "a peer: {why}");
                shared.metrics.set_error(format!("{place}: a peer: {why}"));
            }
        });
    }
}

async fn serve_connection(
    shared: GatewayShared,
    place: &SocketAddress,
    trusted: &GatewayTls,
    socket: ConnectedSocket,
) -> Result<(), String> {
    let within = shared.settings.connect_timeout();
    let secured = timeout(within, wrap_transport(&shared, place, trusted, socket.stream)).await;
    let (stream, read) = secured.map_err(|_| "no handshake in time".to_string())??;
    let speech = protocol_engine(&shared, place, true);
    GatewayPeer::establish(shared, stream, socket.unacked, read, speech).await?.run().await
}

/// Accepts TLS and WebSocket on a new connection. Returns the stream and the bytes received after
/// the upgrade.
async fn wrap_transport(
    shared: &GatewayShared,
    place: &SocketAddress,
    trusted: &GatewayTls,
    wire: Box<dyn AsyncStream>,
) -> Result<(Box<dyn AsyncStream>, Vec<u8>), String> {
    let served = lock(&trusted.serves).clone().filter(|_| place.is_tls());
    let mut wire: Box<dyn AsyncStream> = match served {
        Some(config) => {
            let secured = TlsAcceptor::from(config).accept(wire).await;
            Box::new(secured.map_err(|error| describe_client_io_error(&error))?)
        }
        None if place.is_tls() => return Err("it has no certificate".to_string()),
        None => wire,
    };
    let read = upgrade::accept_peer_upgrade(&shared.settings, place, &mut wire).await?;
    Ok((wire, read))
}

/// Connects to `place` again and again, with pauses of [`retry_delay`], until the gateway stops.
pub(super) async fn dial(shared: GatewayShared, place: SocketAddress, trusted: GatewayTls) {
    let (name, metrics) = (shared.settings.name.clone(), shared.metrics.clone());
    let mut failures = 0;
    loop {
        let within = shared.settings.connect_timeout();
        let met = async {
            let reached = timeout(within, connect(&shared, &place, &trusted)).await;
            let (reached, read) =
                reached.map_err(|_| format!("no answer within {} s", within.as_secs()))??;
            let speech = protocol_engine(&shared, &place, false);
            GatewayPeer::establish(shared.clone(), reached.stream, reached.unacked, read, speech)
                .await
        };
        let why = match met.await {
            Ok(peer) => {
                info!(target: "godwit::gateway", gateway = &*name, %place, "connected");
                metrics.connects.fetch_add(1, Relaxed);
                metrics.is_up.store(true, Relaxed);
                let since = Instant::now();
                let ended = peer.run().await;
                if since.elapsed() >= STEADY {
                    failures = 0;
                }
                if shared.settings.listen.is_empty() && shared.peers.len() == 0 {
                    metrics.is_up.store(false, Relaxed);
                }
                match ended {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            Err(why) => why,
        };
        metrics.record_failure(&name, format!("{place}: not connected: {why}"));
        failures += 1;
        sleep(retry_delay(&shared, failures)).await;
    }
}

async fn connect(
    shared: &GatewayShared,
    place: &SocketAddress,
    trusted: &GatewayTls,
) -> Result<(ConnectedSocket, Vec<u8>), String> {
    let (host, port) = match place {
        SocketAddress::Ipc(path) => {
            let stream = UnixStream::connect(path).await.and_then(meter_socket);
            return Ok((stream.map_err(|error| error.to_string())?, Vec::new()));
        }
        SocketAddress::Net { host, port, .. } => (host.clone(), *port),
    };
    let endpoint = ServerEndpoint { host, port, tls: None };
    let stream = endpoint.connect_tcp().await?;
    keep_alive(&stream);
    let (stream, unacked) = MeteredSocket::new(stream).map_err(|error| error.to_string())?;
    let tls = lock(&trusted.dials).clone().filter(|_| place.is_tls());
    let mut stream: Box<dyn AsyncStream> = match tls {
        Some(tls) => {
            let own = &shared.settings.tls.server_name;
            let name = if own.is_empty() { &endpoint.host } else { own };
            endpoint.start_tls_as(name, stream, tls).await?
        }
        None => Box::new(stream),
    };
    let read = upgrade::request_upgrade(&shared.settings, place, &mut stream).await?;
    Ok((ConnectedSocket { stream, unacked }, read))
}

fn meter_socket(socket: impl AsyncStream + AsFd + 'static) -> io::Result<ConnectedSocket> {
    let (stream, unacked) = MeteredSocket::new(socket)?;
    Ok(ConnectedSocket { stream: Box::new(stream), unacked })
}

/// Enables TCP keepalive, which detects a peer whose host disappeared while no data flows: probes
/// begin after 60 s of silence, and three unanswered probes, 10 s apart, end the connection.
fn keep_alive(socket: &TcpStream) {
    let asks = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 6).with_retries(3);
    // Without keepalive a dead connection stays until the gateway sends.
    let _ = SockRef::from(socket).set_tcp_keepalive(&asks);
}

fn protocol_engine(shared: &GatewayShared, place: &SocketAddress, listens: bool) -> SocketProtocol {
    let settings = &shared.settings;
    let limits = settings.peer_limits();
    match (settings.family, place) {
        (ProtocolFamily::Zmq, _) => {
            SocketProtocol::zmtp(settings.pattern, settings.plain(), listens, limits)
        }
        (ProtocolFamily::Sp, SocketAddress::Ipc(_)) => {
            SocketProtocol::sp(settings.pattern, SpTransport::Ipc, limits)
        }
        (ProtocolFamily::Sp, _) if place.web_path().is_some() => {
            SocketProtocol::sp(settings.pattern, SpTransport::WebSocket { masks: !listens }, limits)
        }
        (ProtocolFamily::Sp, _) => {
            SocketProtocol::sp(settings.pattern, SpTransport::Stream, limits)
        }
    }
}

fn retry_delay(shared: &GatewayShared, failures: u32) -> Duration {
    let first = Duration::from_millis(u64::from(shared.settings.retry_min_ms));
    let longest = Duration::from_secs(u64::from(shared.settings.retry_max_s));
    backoff::retry_delay(failures, first, longest)
}

async fn open_listener(place: &SocketAddress, mode: u32) -> Result<GatewayListener, String> {
    match place {
        SocketAddress::Ipc(path) => {
            let (listener, file) = bind_path(path, mode)?;
            let listener =
                listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
            Ok(GatewayListener::Unix(listener.map_err(|error| error.to_string())?, file))
        }
        SocketAddress::Net { host, port, .. } => {
            let listener = TcpListener::bind((host.as_str(), *port)).await;
            Ok(GatewayListener::Net(listener.map_err(|error| error.to_string())?))
        }
    }
}

impl GatewayListener {
    async fn accept(&self) -> io::Result<ConnectedSocket> {
        match self {
            GatewayListener::Net(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream);
                meter_socket(stream)
            }
            GatewayListener::Unix(listener, _) => meter_socket(listener.accept().await?.0),
        }
    }
}
