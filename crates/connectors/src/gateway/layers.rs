//! Tests of acknowledgements to the local session: a message counts as delivered when the peer's
//! host has received the bytes, and not while TLS or the kernel of this host holds them.

use super::peer::{GatewayPeer, GatewayShared};
use super::peer_message::{PeerId, PeerMessage, SessionReceipt, parcel};
use super::peer_set::{PeerCutReason, PeerSet};
use super::sessions::run;
use super::settings::GatewaySettings;
use super::tests::gateway;
use super::unacked_bytes::{MeteredSocket, UnackedBytes};
use crate::LinkKind;
use crate::metrics::LinkMetrics;
use mqtt::PacketId;
use net::endpoint::AsyncStream;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::iter;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use zmtp_sp::{MultipartMessage, SocketProtocol, SpTransport};

const PATIENCE: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(300);
/// Length of a payload in bytes: larger than the buffer of the pipe, and smaller than the buffer of
/// TLS.
const BODY: usize = 20_000;
/// Bytes of a message in the stream: a length field of 8 bytes, and the payload.
const ON_THE_WIRE: usize = 8 + BODY;
/// Greeting of a PULL socket of nanomsg.
const HELLO: &[u8] = b"\0SP\0\0\x51\0\0";

/// Opens TLS over a pair of streams. Returns both ends.
async fn secured<A, B>(ours: A, theirs: B) -> (server::TlsStream<A>, client::TlsStream<B>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let own = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let (shown, key) = (own.cert.der().clone(), own.signing_key.serialize_der());
    let provider = Arc::new(default_provider());
    let serves = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![shown.clone()], PrivateKeyDer::Pkcs8(key.into()))
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(shown).unwrap();
    let dials = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let accepted = TlsAcceptor::from(Arc::new(serves)).accept(ours);
    let name = "localhost".try_into().unwrap();
    let connected = TlsConnector::from(Arc::new(dials)).connect(name, theirs);
    let (ours, theirs) = tokio::join!(accepted, connected);
    (ours.unwrap(), theirs.unwrap())
}

async fn reads(theirs: &mut (impl AsyncRead + Unpin), len: usize) {
    let read = timeout(PATIENCE, theirs.read_exact(&mut vec![0; len])).await;
    read.expect("it comes in time").expect("all of it comes");
}

/// A peer of a gateway in a test, with the test's end `theirs` of the connection.
struct AttendedSocket<S> {
    peers: Arc<PeerSet>,
    settings: Arc<GatewaySettings>,
    theirs: S,
    task: JoinHandle<Result<(), String>>,
}

impl AttendedSocket<client::TlsStream<DuplexStream>> {
    /// Connects over a pipe with a small buffer, which acts as a slow reader.
    async fn new() -> Self {
        let (ours, theirs) = duplex(1024);
        let (ours, theirs) = secured(ours, theirs).await;
        AttendedSocket::at((Box::new(ours), Arc::default()), theirs).await
    }
}

/// Returns a TCP connection whose remote end has a small receive buffer.
async fn small() -> ((MeteredSocket<TcpStream>, Arc<UnackedBytes>), TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let theirs = TcpSocket::new_v4().unwrap();
    theirs.set_recv_buffer_size(32 * 1024).unwrap();
    let theirs = theirs.connect(listener.local_addr().unwrap()).await.unwrap();
    (MeteredSocket::new(listener.accept().await.unwrap().0).unwrap(), theirs)
}

impl AttendedSocket<TcpStream> {
    async fn small() -> Self {
        let ((ours, gauge), theirs) = small().await;
        AttendedSocket::at((Box::new(ours), gauge), theirs).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AttendedSocket<S> {
    async fn at(ours: (Box<dyn AsyncStream>, Arc<UnackedBytes>), theirs: S) -> Self {
        AttendedSocket::with(push(1024), ours, theirs).await
    }

    async fn with(
        settings: GatewaySettings,
        ours: (Box<dyn AsyncStream>, Arc<UnackedBytes>),
        mut theirs: S,
    ) -> Self {
        let settings = Arc::new(settings);
        let (peers, metrics) =
            (Arc::new(PeerSet::default()), Arc::new(LinkMetrics::for_kind(LinkKind::Gateway)));
        let shared = GatewayShared { settings: settings.clone(), peers: peers.clone(), metrics };
        theirs.write_all(HELLO).await.unwrap();
        theirs.flush().await.unwrap();
        let speech =
            SocketProtocol::sp(settings.pattern, SpTransport::Stream, settings.peer_limits());
        let meeting = GatewayPeer::establish(shared, ours.0, ours.1, Vec::new(), speech);
        let (met, ()) = tokio::join!(meeting, reads(&mut theirs, HELLO.len()));
        let (gives, own) = (peers.clone(), settings.clone());
        // The session task of a gateway does the same.
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(1)).await;
                gives.redistribute(&own);
            }
        });
        AttendedSocket { peers, settings, theirs, task: tokio::spawn(met.unwrap().run()) }
    }

    fn give(&self, id: u16) -> Weak<PeerMessage> {
        let message = of(BODY, id);
        let given = Arc::downgrade(&message);
        self.peers.assign(message, &self.settings);
        given
    }

    async fn reads_one(&mut self) {
        reads(&mut self.theirs, ON_THE_WIRE).await;
    }
}

async fn gives_what_is_taken() {
    let mut peer = AttendedSocket::new().await;
    peer.give(1);
    sleep(A_WHILE).await;
    assert_eq!(peer.peers.take_receipts(), [], "it read nothing");
    peer.reads_one().await;
    sleep(A_WHILE).await;
    assert_eq!(peer.peers.take_receipts(), [(1, PacketId::MIN)]);
    peer.give(2);
    sleep(A_WHILE).await;
    peer.peers.close();
    sleep(A_WHILE).await;
    peer.reads_one().await;
    assert!(matches!(timeout(PATIENCE, peer.task).await, Ok(Ok(Ok(())))));
    assert_eq!(peer.peers.take_receipts().len(), 1);
}

/// Checks under a steady flow, in which TLS always holds bytes, that written messages do not pile
/// up in `begun`.
async fn keeps_little_of_what_went() {
    const BEHIND: usize = 20;
    let mut peer = AttendedSocket::new().await;
    let mut given: Vec<Weak<PeerMessage>> = (0..BEHIND).map(|_| peer.give(0)).collect();
    for _ in 0..200 {
        given.push(peer.give(0));
        peer.reads_one().await;
    }
    let kept = given.iter().filter(|message| message.strong_count() > 0).count();
    assert!(kept < 2 * BEHIND, "{kept}");
}

/// Number of messages which by far exceeds all buffers in between, which hold megabytes.
const MANY: u16 = 300;
/// Number of messages which exceeds the receive buffer of [`small`].
const FEW: u16 = 20;

fn receipts(ids: std::ops::RangeInclusive<u16>) -> Vec<SessionReceipt> {
    ids.filter_map(PacketId::new).map(|id| (1, id)).collect()
}

async fn is_told_what_arrived() {
    let mut peer = AttendedSocket::small().await;
    (1..=MANY).for_each(|id| _ = peer.give(id));
    sleep(A_WHILE).await;
    let told = peer.peers.take_receipts();
    assert!(told.len() < 10, "it has no room for {}", told.len());
    for _ in 0..MANY {
        peer.reads_one().await;
    }
    sleep(A_WHILE).await;
    let told = [told, peer.peers.take_receipts()].concat();
    assert_eq!(told, receipts(1..=MANY));
}

async fn taken(peers: &PeerSet, id: PeerId, settings: &GatewaySettings) -> Arc<PeerMessage> {
    let taking = async {
        loop {
            match peers.next_for_peer(id, settings) {
                Some(message) => break message,
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    };
    let message = timeout(PATIENCE, taking).await.expect("there is one more");
    peers.record_arrival(id, None);
    message
}

async fn goes_to_another() {
    let peer = AttendedSocket::small().await;
    (1..=MANY).for_each(|id| _ = peer.give(id));
    sleep(A_WHILE).await;
    // Closing a socket with unread bytes resets the connection, and buffered bytes are lost.
    let AttendedSocket { peers, settings, theirs, task } = peer;
    drop(theirs);
    assert!(matches!(timeout(PATIENCE, task).await, Ok(Ok(Err(_)))));
    let told = peers.take_receipts();
    let id = peers.add_peer(&settings, Arc::default()).unwrap();
    for left in told.len() as u16 + 1..=MANY {
        let message = taken(&peers, id, &settings).await;
        assert_eq!(message.receipt, receipts(left..=left).pop(), "in their order");
    }
}

async fn ends_with_who_talks() {
    let mut peer = AttendedSocket::small().await;
    (1..=FEW).for_each(|id| _ = peer.give(id));
    sleep(A_WHILE).await;
    peer.peers.stop_reading();
    let says = [0, 0, 0, 0, 0, 0, 0, 1, b'x'];
    peer.theirs.write_all(&says).await.unwrap();
    peer.peers.close();
    for _ in 0..FEW {
        peer.reads_one().await;
    }
    peer.theirs.write_all(&says).await.unwrap();
    assert!(matches!(timeout(PATIENCE, peer.task).await, Ok(Ok(Ok(())))));
    assert_eq!(peer.peers.take_receipts(), receipts(1..=FEW));
}

#[test]
fn a_message_is_acknowledged_once_the_system_of_its_socket_has_it() {
    run(is_told_what_arrived());
}

#[test]
fn what_did_not_arrive_at_a_socket_that_goes_is_anothers() {
    run(goes_to_another());
}

#[test]
fn what_waits_for_a_socket_arrives_at_the_end_though_it_talks() {
    run(ends_with_who_talks());
}

/// TLS always holds bytes to write, so `is_flushed` stays false; arrivals are counted below TLS.
#[test]
fn what_arrived_of_what_went_through_tls_is_known_while_more_waits() {
    run(async {
        let ((ours, gauge), theirs) = small().await;
        let (ours, theirs) = secured(ours, theirs).await;
        let peer = AttendedSocket::at((Box::new(ours), gauge.clone()), theirs).await;
        (1..=MANY).for_each(|id| _ = peer.give(id));
        // Waits until the peer's receive buffer is full and the kernel has reported this.
        for _ in 0..20 {
            sleep(A_WHILE).await;
            if !gauge.is_in_flight() {
                break;
            }
        }
        assert!(gauge.written() > gauge.arrived());
        assert!(!gauge.is_in_flight());
    });
}

#[test]
fn who_takes_nothing_keeps_nobody_waiting() {
    run(async {
        let stuck = AttendedSocket::small().await;
        let (peers, settings) = (stuck.peers.clone(), stuck.settings.clone());
        (1..=3 * MANY).for_each(|id| _ = stuck.give(id));
        sleep(A_WHILE).await;
        let told = peers.take_receipts().len();
        let hungry = peers.add_peer(&settings, Arc::default()).unwrap();
        // The stuck peer keeps the bytes in the kernel's buffers, at most half of all messages.
        for _ in told..usize::from(MANY) {
            taken(&peers, hungry, &settings).await;
        }
    });
}

/// Returns settings of a push gateway with the given Receive Maximum.
fn push(inflight_max: u16) -> GatewaySettings {
    let own = [("protocol", "sp"), ("pattern", "push"), ("listen", "tcp://127.0.0.1:1")];
    let mut settings = gateway(&own, &[&[("filter", "out/#")]], &[]).unwrap();
    let limits = Arc::get_mut(&mut settings.limits).expect("nobody else has them");
    limits.inflight_max = inflight_max;
    settings
}

fn short(id: u16) -> Arc<PeerMessage> {
    of(1, id)
}

/// Returns a message of `len` bytes, with a receipt unless the packet id is 0.
fn of(len: usize, id: u16) -> Arc<PeerMessage> {
    let message = MultipartMessage { envelope: Vec::new(), frames: vec![vec![b'x'; len]] };
    parcel(message, PacketId::new(id).map(|id| (1, id)))
}

/// Time alone must move messages from a stuck peer: no event arrives.
#[test]
fn what_waits_for_who_takes_nothing_moves_though_all_is_quiet() {
    run(async {
        let (peers, settings) = (PeerSet::default(), push(4));
        let [stuck, reads] = [0, 1].map(|_| peers.add_peer(&settings, Arc::default()).unwrap());
        let mut given = 0;
        let mut give = || {
            given += 1;
            peers.assign(short(given), &settings)
        };
        while give() != Some(stuck) || peers.next_for_peer(stuck, &settings).is_some() {
            _ = peers
                .next_for_peer(reads, &settings)
                .map(|own| peers.record_arrival(reads, own.receipt));
        }
        // The session task sleeps until it hears of a stuck peer; the peer has to be stuck for
        // `STUCK` then.
        while timeout(A_WHILE, peers.changed.notified()).await.is_ok() {
            peers.redistribute(&settings);
        }
        sleep(A_WHILE).await;
        peers.redistribute(&settings);
        assert!(peers.next_for_peer(reads, &settings).is_some());
    });
}

/// A peer leaves as much of the receive window to other peers as it has in flight itself.
#[test]
fn who_takes_nothing_has_half_at_most() {
    for (window, half) in [(1, 1), (2, 1), (3, 1), (10, 5), (1024, 512)] {
        let (peers, settings) = (PeerSet::default(), push(window));
        let id = peers.add_peer(&settings, Arc::default()).unwrap();
        (1..=window).for_each(|id| _ = peers.assign(short(id), &settings));
        assert_eq!(iter::from_fn(|| peers.next_for_peer(id, &settings)).count(), half, "{window}");
    }
}

#[test]
fn who_takes_again_has_its_turn_again() {
    run(async {
        let (peers, settings) = (PeerSet::default(), push(1024));
        let [late, reads] = [0, 1].map(|_| peers.add_peer(&settings, Arc::default()).unwrap());
        let give = |count: u16| (0..count).for_each(|_| _ = peers.assign(short(0), &settings));
        let takes = |id: PeerId| iter::from_fn(|| peers.next_for_peer(id, &settings)).count();
        give(10);
        peers.mark_stuck(late, &settings);
        assert_eq!(takes(reads), 5);
        sleep(A_WHILE).await;
        peers.redistribute(&settings);
        assert_eq!((takes(reads), takes(late)), (5, 0));
        give(10);
        assert_eq!((takes(reads), takes(late)), (5, 5));
    });
}

#[test]
fn who_took_all_and_nothing_of_it_for_long_goes_where_others_have_nothing() {
    run(async {
        let (peers, settings) = (PeerSet::default(), push(2));
        let all = [0; 3].map(|_| peers.add_peer(&settings, Arc::default()).unwrap());
        (1..=2).for_each(|id| _ = peers.assign(short(id), &settings));
        let [first, second, reads] = all;
        assert!(peers.next_for_peer(first, &settings).is_some());
        sleep(A_WHILE).await;
        assert_eq!(peers.next_relief_at(&settings), None, "there is one more for the others");
        assert!(peers.next_for_peer(second, &settings).is_some());
        let due = peers.next_relief_at(&settings).expect("nothing is left");
        sleep_until(due - A_WHILE).await;
        peers.redistribute(&settings);
        let cut = |id: PeerId| peers.charge_bytes(id, 0, &settings).err();
        assert_eq!(all.map(cut), [None; 3]);
        sleep(A_WHILE).await;
        peers.redistribute(&settings);
        // The second peer has stalled for a shorter time, and one disconnection is enough.
        assert_eq!(all.map(cut), [Some(PeerCutReason::TookNothing), None, None]);
        assert_eq!(peers.next_relief_at(&settings), None);
        peers.remove_peer(first, iter::once(short(1)), true);
        peers.redistribute(&settings);
        let next = peers.next_for_peer(reads, &settings).and_then(|own| own.receipt);
        assert_eq!(next, receipts(1..=1).pop());
    });
}

#[test]
fn who_takes_a_part_of_one_message_takes_something() {
    run(async {
        let (ours, theirs) = small().await;
        let ours: (Box<dyn AsyncStream>, _) = (Box::new(ours.0), ours.1);
        let AttendedSocket { peers, settings, mut theirs, .. } =
            AttendedSocket::with(push(1), ours, theirs).await;
        peers.assign(of(1 << 20, 1), &settings);
        peers.add_peer(&settings, Arc::default()).unwrap();
        let due = async || {
            sleep(A_WHILE).await;
            peers.next_relief_at(&settings).expect("nothing is left for the other")
        };
        let first = due().await;
        assert_eq!(due().await, first, "it takes nothing");
        theirs.read_exact(&mut [0; 1 << 16]).await.unwrap();
        assert!(due().await > first);
    });
}

/// A message reassigned to another peer must not arrive at the first peer as well.
#[test]
fn who_is_sent_away_has_what_had_arrived_and_no_more() {
    run(async {
        let (ours, theirs) = small().await;
        let gauge = ours.1.clone();
        let peer = AttendedSocket::with(push(1), (Box::new(ours.0), ours.1), theirs).await;
        peer.peers.assign(of(1 << 20, 1), &peer.settings);
        let other = peer.peers.add_peer(&peer.settings, Arc::default()).unwrap();
        let AttendedSocket { peers, settings, mut theirs, task } = peer;
        let Ok(Ok(Err(why))) = timeout(2 * PATIENCE, task).await else { panic!("it stays") };
        assert!(why.starts_with("it took nothing"), "{why}");
        sleep(A_WHILE).await;
        assert!(peers.next_for_peer(other, &settings).is_some());
        let (arrived, written) = (gauge.arrived() as usize, gauge.written() as usize);
        drop(gauge);
        let mut read = Vec::new();
        assert!(timeout(PATIENCE, theirs.read_to_end(&mut read)).await.unwrap().is_err());
        assert_eq!(HELLO.len() + read.len(), arrived);
        assert!(arrived < written, "{arrived} of {written}");
    });
}

#[test]
fn who_has_room_again_has_what_waits_for_others_though_all_is_quiet() {
    run(async {
        let (peers, settings) = (PeerSet::default(), push(1024));
        let [late, reads] = [0, 1].map(|_| peers.add_peer(&settings, Arc::default()).unwrap());
        let quiet = async || while timeout(A_WHILE, peers.changed.notified()).await.is_ok() {};
        (0..2).for_each(|_| _ = peers.assign(short(0), &settings));
        peers.mark_stuck(late, &settings);
        assert!(peers.next_for_peer(reads, &settings).is_some());
        sleep(A_WHILE).await;
        peers.redistribute(&settings);
        peers.mark_stuck(reads, &settings);
        quiet().await;
        assert!(peers.next_relief_at(&settings).is_none(), "there is nobody else");
        assert!(peers.next_for_peer(late, &settings).is_none());
        let told = timeout(A_WHILE, peers.changed.notified()).await;
        assert!(told.is_ok());
        sleep(A_WHILE).await;
        peers.redistribute(&settings);
        assert!(peers.next_for_peer(late, &settings).is_some());
    });
}

/// Broadcasts and responses are never reassigned to another peer.
#[test]
fn what_goes_to_all_or_to_who_asked_stays_theirs_however_late_they_take_it() {
    const COUNT: usize = 3;
    run(async {
        for pattern in ["pub", "rep"] {
            let own = [("protocol", "sp"), ("pattern", pattern), ("listen", "tcp://127.0.0.1:1")];
            let settings = match pattern {
                "pub" => gateway(&own, &[&[("filter", "out/#")]], &[]),
                _ => gateway(&own, &[], &[&[("topic", "questions")]]),
            }
            .unwrap();
            let peers = PeerSet::default();
            let all = [0, 1].map(|_| peers.add_peer(&settings, Arc::default()).unwrap());
            for _ in 0..COUNT {
                all.iter().for_each(|id| peers.send_to(*id, short(0), &settings).unwrap());
            }
            let takes = |id: PeerId| iter::from_fn(|| peers.next_for_peer(id, &settings)).count();
            let [late, reads] = all;
            peers.mark_stuck(late, &settings);
            assert_eq!(takes(reads), COUNT);
            sleep(A_WHILE).await;
            assert!(peers.next_relief_at(&settings).is_none(), "{pattern}");
            peers.redistribute(&settings);
            assert_eq!((takes(reads), takes(late)), (0, COUNT), "{pattern}");
        }
    });
}

#[test]
fn what_tls_keeps_for_a_slow_socket_is_acknowledged_when_it_went_and_goes_when_all_ends() {
    run(gives_what_is_taken());
}

#[test]
fn a_slow_socket_behind_tls_costs_no_more_than_what_waits_for_it() {
    run(keeps_little_of_what_went());
}
