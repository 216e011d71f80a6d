//! How sockets are reached: who connects to a gateway, and whom it connects to.

use super::gauge::{Gauge, Gauged};
use super::peer::{Peer, Shared};
use super::place::Place;
use super::upgrade;
use crate::identity::remote::dial::{Endpoint, Wire};
use crate::links::{Credentials, Served, backoff, lock};
use crate::listen::{SocketFile, bind_path};
use crate::patience::timeout;
use carrier::tls_errors::describe_client_io_error;
use patterns::{Carrier, Family, Speech};
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

/// What it takes to shake hands as TLS wants it.
#[derive(Clone)]
pub(super) struct Trusted {
    pub(super) dials: Credentials,
    pub(super) serves: Served,
}

enum Door {
    Net(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "it goes with the socket")] SocketFile),
}

/// One of the peers that may be there at once.
struct Ticket(Arc<AtomicU32>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Descriptors may come back.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// A peer that was there for so long was one.
const STEADY: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(60);

/// A socket, and how far it is.
type Reached = (Box<dyn Wire>, Arc<Gauge>);

/// Who comes in here is a peer, until the gateway stops.
pub(super) async fn listen(shared: Shared, place: Place, trusted: Trusted) {
    let settings = shared.settings.clone();
    let mut failures = 0;
    let door = loop {
        match open(&place, settings.ipc_mode).await {
            Ok(door) => break door,
            Err(why) => shared.tally.fail(&settings.name, format!("{place}: {why}")),
        }
        failures += 1;
        sleep(pause(&shared, failures)).await;
    };
    info!(target: "godwit::gateway", gateway = &*settings.name, %place, "listens");
    shared.tally.is_up.store(true, Relaxed);
    let (mut guests, present) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    loop {
        // Peers wait as clients do, and leave the store what it needs.
        if !engine::descriptors::has_room() {
            let what = "peers wait for a file descriptor: raise LimitNOFILE";
            shared.tally.set_error(format!("{place}: {what}"));
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
                shared.tally.set_error(format!("{place}: {error}"));
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if present.load(Relaxed) >= settings.peers_max {
            shared.tally.set_error(format!("{place}: there are peers_max peers"));
            continue;
        }
        present.fetch_add(1, Relaxed);
        let ticket = Ticket(present.clone());
        let (shared, place, trusted) = (shared.clone(), place.clone(), trusted.clone());
        guests.spawn(async move {
            let _ticket = ticket;
            let name = shared.settings.name.clone();
            if let Err(why) = guest(shared.clone(), &place, &trusted, reached).await {
                debug!(target: "godwit::gateway", gateway = &*name, %place, "a peer: {why}");
                shared.tally.set_error(format!("{place}: a peer: {why}"));
            }
        });
    }
}

async fn guest(
    shared: Shared,
    place: &Place,
    trusted: &Trusted,
    (wire, gauge): Reached,
) -> Result<(), String> {
    let within = shared.settings.connect_timeout();
    let secured = timeout(within, admit(&shared, place, trusted, wire)).await;
    let (wire, read) = secured.map_err(|_| "no handshake in time".to_string())??;
    let speech = speech(&shared, place, true);
    Peer::meet(shared, (wire, gauge), read, speech).await?.attend().await
}

/// What lies between its bytes and the socket's.
async fn admit(
    shared: &Shared,
    place: &Place,
    trusted: &Trusted,
    wire: Box<dyn Wire>,
) -> Result<(Box<dyn Wire>, Vec<u8>), String> {
    let served = lock(&trusted.serves).clone().filter(|_| place.is_tls());
    let mut wire: Box<dyn Wire> = match served {
        Some(config) => {
            let secured = TlsAcceptor::from(config).accept(wire).await;
            Box::new(secured.map_err(|error| describe_client_io_error(&error))?)
        }
        None if place.is_tls() => return Err("there is no certificate for it".to_string()),
        None => wire,
    };
    let read = upgrade::answer(&shared.settings, place, &mut wire).await?;
    Ok((wire, read))
}

/// Connects there, again and again, until the gateway stops.
pub(super) async fn dial(shared: Shared, place: Place, trusted: Trusted) {
    let (name, tally) = (shared.settings.name.clone(), shared.tally.clone());
    let mut failures = 0;
    loop {
        let within = shared.settings.connect_timeout();
        let met = async {
            let reached = timeout(within, reach(&shared, &place, &trusted)).await;
            let (reached, read) =
                reached.map_err(|_| format!("no answer within {} s", within.as_secs()))??;
            let speech = speech(&shared, &place, false);
            Peer::meet(shared.clone(), reached, read, speech).await
        };
        let why = match met.await {
            Ok(peer) => {
                info!(target: "godwit::gateway", gateway = &*name, %place, "connected");
                tally.connects.fetch_add(1, Relaxed);
                tally.is_up.store(true, Relaxed);
                let since = Instant::now();
                let ended = peer.attend().await;
                if since.elapsed() >= STEADY {
                    failures = 0;
                }
                if shared.settings.listen.is_empty() && shared.crowd.len() == 0 {
                    tally.is_up.store(false, Relaxed);
                }
                match ended {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            Err(why) => why,
        };
        tally.fail(&name, format!("{place}: not connected: {why}"));
        failures += 1;
        sleep(pause(&shared, failures)).await;
    }
}

async fn reach(
    shared: &Shared,
    place: &Place,
    trusted: &Trusted,
) -> Result<(Reached, Vec<u8>), String> {
    let (host, port) = match place {
        Place::Ipc(path) => {
            let stream = UnixStream::connect(path).await.and_then(gauged);
            return Ok((stream.map_err(|error| error.to_string())?, Vec::new()));
        }
        Place::Net { host, port, .. } => (host.clone(), *port),
    };
    let endpoint = Endpoint { host, port, tls: None };
    let stream = endpoint.dial().await?;
    keep_alive(&stream);
    let (stream, gauge) = Gauged::new(stream).map_err(|error| error.to_string())?;
    let tls = lock(&trusted.dials).clone().filter(|_| place.is_tls());
    let mut wire: Box<dyn Wire> = match tls {
        Some(tls) => {
            let own = &shared.settings.tls.server_name;
            let name = if own.is_empty() { &endpoint.host } else { own };
            endpoint.secure_as(name, stream, tls).await?
        }
        None => Box::new(stream),
    };
    let read = upgrade::ask(&shared.settings, place, &mut wire).await?;
    Ok(((wire, gauge), read))
}

fn gauged(socket: impl Wire + AsFd + 'static) -> io::Result<Reached> {
    let (wire, gauge) = Gauged::new(socket)?;
    Ok((Box::new(wire), gauge))
}

/// A host that is gone without a word keeps no place, where nothing is said either: it is asked
/// after a minute of silence, three times ten seconds apart.
fn keep_alive(socket: &TcpStream) {
    let asks = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 6).with_retries(3);
    // Where a system knows none of it such a place is kept.
    let _ = SockRef::from(socket).set_tcp_keepalive(&asks);
}

fn speech(shared: &Shared, place: &Place, listens: bool) -> Speech {
    let settings = &shared.settings;
    let limits = settings.peer_limits();
    match (settings.family, place) {
        (Family::Zmq, _) => Speech::zmtp(settings.pattern, settings.plain(), listens, limits),
        (Family::Sp, Place::Ipc(_)) => Speech::sp(settings.pattern, Carrier::Ipc, limits),
        (Family::Sp, _) if place.web_path().is_some() => {
            Speech::sp(settings.pattern, Carrier::Web { masks: !listens }, limits)
        }
        (Family::Sp, _) => Speech::sp(settings.pattern, Carrier::Stream, limits),
    }
}

fn pause(shared: &Shared, failures: u32) -> Duration {
    let first = Duration::from_millis(u64::from(shared.settings.retry_min_ms));
    let longest = Duration::from_secs(u64::from(shared.settings.retry_max_s));
    backoff::pause(failures, first, longest)
}

async fn open(place: &Place, mode: u32) -> Result<Door, String> {
    match place {
        Place::Ipc(path) => {
            let (listener, file) = bind_path(path, mode)?;
            let listener =
                listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
            Ok(Door::Unix(listener.map_err(|error| error.to_string())?, file))
        }
        Place::Net { host, port, .. } => {
            let listener = TcpListener::bind((host.as_str(), *port)).await;
            Ok(Door::Net(listener.map_err(|error| error.to_string())?))
        }
    }
}

impl Door {
    async fn accept(&self) -> io::Result<Reached> {
        match self {
            Door::Net(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream);
                gauged(stream)
            }
            Door::Unix(listener, _) => gauged(listener.accept().await?.0),
        }
    }
}
