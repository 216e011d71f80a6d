//! What a socket behind TLS took: what it read, and not what a layer keeps for it.

use super::crowd::{Crowd, Parcel};
use super::peer::{Peer, Shared, parcel};
use super::settings::GatewaySettings;
use super::tests::gateway;
use crate::identity::remote::dial::Wire;
use crate::links::LinkKind;
use crate::links::tally::Tally;
use mqtt::PacketId;
use patterns::{Carrier, Message, Speech};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

const PATIENCE: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(300);
/// More than the pipe takes, and less than TLS keeps.
const BODY: usize = 20_000;
/// Its length, and its payload.
const ON_THE_WIRE: usize = 8 + BODY;
/// A PULL socket of nanomsg.
const HELLO: &[u8] = b"\0SP\0\0\x51\0\0";

/// Both ends of a pipe that takes little, which is what a socket is that reads slowly.
async fn pipe() -> (server::TlsStream<DuplexStream>, client::TlsStream<DuplexStream>) {
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
    let (ours, theirs) = duplex(1024);
    let accepted = TlsAcceptor::from(Arc::new(serves)).accept(ours);
    let name = "localhost".try_into().unwrap();
    let connected = TlsConnector::from(Arc::new(dials)).connect(name, theirs);
    let (ours, theirs) = tokio::join!(accepted, connected);
    (ours.unwrap(), theirs.unwrap())
}

async fn reads(theirs: &mut client::TlsStream<DuplexStream>, len: usize) {
    let read = timeout(PATIENCE, theirs.read_exact(&mut vec![0; len])).await;
    read.expect("it comes in time").expect("all of it comes");
}

/// A socket at a gateway, and its end of the pipe.
struct Attended {
    crowd: Arc<Crowd>,
    settings: Arc<GatewaySettings>,
    theirs: client::TlsStream<DuplexStream>,
    task: JoinHandle<Result<(), String>>,
}

impl Attended {
    async fn new() -> Attended {
        let own = [("protocol", "sp"), ("pattern", "push"), ("listen", "tcp://127.0.0.1:1")];
        let settings = Arc::new(gateway(&own, &[&[("filter", "out/#")]], &[]).unwrap());
        let (crowd, tally) = (Arc::new(Crowd::default()), Arc::new(Tally::of(LinkKind::Gateway)));
        let shared = Shared { settings: settings.clone(), crowd: crowd.clone(), tally };
        let (ours, mut theirs) = pipe().await;
        theirs.write_all(HELLO).await.unwrap();
        theirs.flush().await.unwrap();
        let ours: Box<dyn Wire> = Box::new(ours);
        let speech = Speech::sp(settings.pattern, Carrier::Stream, settings.peer_limits());
        let meeting = Peer::meet(shared, ours, Vec::new(), speech);
        let (met, ()) = tokio::join!(meeting, reads(&mut theirs, HELLO.len()));
        Attended { crowd, settings, theirs, task: tokio::spawn(met.unwrap().attend()) }
    }

    fn give(&self, id: u16) -> Weak<Parcel> {
        let message = Message { envelope: Vec::new(), frames: vec![vec![b'x'; BODY]] };
        let parcel = parcel(message, PacketId::new(id).map(|id| (1, id)));
        let given = Arc::downgrade(&parcel);
        self.crowd.give(parcel, &self.settings);
        given
    }

    async fn reads_one(&mut self) {
        reads(&mut self.theirs, ON_THE_WIRE).await;
    }
}

async fn gives_what_is_taken() {
    let mut peer = Attended::new().await;
    peer.give(1);
    sleep(A_WHILE).await;
    assert_eq!(peer.crowd.take_receipts(), [], "it read nothing");
    peer.reads_one().await;
    sleep(A_WHILE).await;
    assert_eq!(peer.crowd.take_receipts(), [(1, PacketId::MIN)]);
    peer.give(2);
    sleep(A_WHILE).await;
    peer.crowd.close();
    sleep(A_WHILE).await;
    peer.reads_one().await;
    assert!(matches!(timeout(PATIENCE, peer.task).await, Ok(Ok(Ok(())))));
    assert_eq!(peer.crowd.take_receipts().len(), 1);
}

/// Much waits at any time, so TLS never has nothing.
async fn keeps_little_of_what_went() {
    const BEHIND: usize = 20;
    let mut peer = Attended::new().await;
    let mut given: Vec<Weak<Parcel>> = (0..BEHIND).map(|_| peer.give(0)).collect();
    for _ in 0..200 {
        given.push(peer.give(0));
        peer.reads_one().await;
    }
    let kept = given.iter().filter(|parcel| parcel.strong_count() > 0).count();
    assert!(kept < 2 * BEHIND, "{kept}");
}

#[test]
fn what_tls_keeps_for_a_slow_socket_is_acknowledged_when_it_went_and_goes_when_all_ends() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(gives_what_is_taken());
}

#[test]
fn a_slow_socket_behind_tls_costs_no_more_than_what_waits_for_it() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(keeps_little_of_what_went());
}
