//! Attacks on TLS handshakes and PROXY headers. The healthy client uses plain MQTT on the same
//! shards.

use crate::SEED;
use crate::broker::HostileTestBroker;
use crate::certs;
use crate::peer::{all_are_ended, end, open};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn folder() -> PathBuf {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let make = || {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hostile-certs");
        std::fs::create_dir_all(&folder).expect("a folder");
        certs::make(&folder).expect("certificates can be made");
        folder
    };
    FOLDER.get_or_init(make).clone()
}

fn start(more: &[&str]) -> (HostileTestBroker, SocketAddr) {
    start_with("tls", more)
}

/// Starts a broker with a certificate and a listener of this scheme. Returns the broker and the
/// listener's address.
pub(crate) fn start_with(scheme: &str, more: &[&str]) -> (HostileTestBroker, SocketAddr) {
    let folder = folder();
    let certificate = format!("tls.certificate={}", folder.join("server.pem").display());
    let key = format!("tls.key={}", folder.join("server.key").display());
    let listen = [&format!("listen={scheme}://127.0.0.1:0"), &*certificate, &key];
    let broker = HostileTestBroker::start(&[&listen[..], more].concat());
    let address = broker.address_of(&format!("{scheme}://"));
    (broker, address)
}

pub(crate) fn client() -> ClientConnection {
    let ca = CertificateDer::from_pem_file(folder().join("ca.pem")).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(ca).expect("a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// Returns a valid ClientHello, which costs the server a key exchange.
fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    client().write_tls(&mut bytes).expect("memory");
    bytes
}

#[test]
fn what_is_no_handshake_ends_its_connection_and_nothing_else() {
    let (broker, address) = start(&[]);
    let whole = hello();
    broker.withstand("no handshakes", |_| {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut draw = |below: usize| rng.usize(..below);
        for round in 0..2000 {
            let mut stream = open(address);
            let mut bytes = whole.clone();
            match round % 5 {
                // Plain MQTT, and HTTP.
                0 => bytes = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c".to_vec(),
                1 => bytes = b"GET / HTTP/1.1\r\n\r\n".to_vec(),
                // A bit wrong, cut, and noise.
                2 => bytes[draw(whole.len())] ^= 1 << draw(8),
                3 => bytes.truncate(draw(whole.len())),
                _ => bytes = (0..draw(3000)).map(|_| draw(256) as u8).collect(),
            }
            let _ = stream.write_all(&bytes);
            let _ = end(stream);
        }
    });
}

#[test]
fn half_open_handshakes_end_in_time_and_within_the_memory() {
    let (broker, address) = start(&["connect.timeout_ms=2000"]);
    let whole = hello();
    broker.withstand("half open", |_| {
        let began = Instant::now();
        let mut streams = Vec::new();
        for at in 0..3000 {
            let mut stream = open(address);
            // Silent from the start, in the middle of the first message, and after its answer.
            let until = [0, whole.len() / 2, whole.len()][at % 3];
            let _ = stream.write_all(&whole[..until]);
            streams.push(stream);
        }
        all_are_ended(streams, began);
    });
}

#[test]
fn handshakes_that_announce_much_get_no_room_for_it() {
    let (broker, address) = start(&["connect.timeout_ms=3000"]);
    broker.withstand("long handshakes", |_| {
        let mut streams = Vec::new();
        for _ in 0..500 {
            let mut stream = open(address);
            // A ClientHello of 16 MB less one, in records of the largest size.
            let record = [&[22, 3, 1, 0x40, 0], &[0_u8; 16384][..]].concat();
            let mut first = record.clone();
            first[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
            if stream.write_all(&first).is_ok() {
                let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
                let _ = (0..8).try_for_each(|_| stream.write_all(&record));
            }
            streams.push(stream);
        }
        streams.into_iter().for_each(|stream| _ = end(stream));
    });
}

#[test]
fn a_thousand_handshakes_at_once_keep_nobody_waiting() {
    let (broker, address) = start(&[]);
    let whole = hello();
    broker.withstand("a thousand at once", |_| {
        let mut streams: Vec<TcpStream> = (0..1000).map(|_| open(address)).collect();
        for stream in &mut streams {
            let _ = stream.write_all(&whole);
        }
        for stream in &mut streams {
            // Each is answered with the server's part of the handshake.
            assert!(stream.read(&mut [0; 1]).is_ok_and(|read| read == 1));
        }
    });
}

#[test]
fn a_live_connection_may_not_play_with_its_records() {
    let (broker, address) = start(&[]);
    broker.withstand("records", |_| {
        for round in 0..200 {
            let (mut stream, mut conn) = (open(address), client());
            while conn.is_handshaking() {
                conn.complete_io(&mut stream).expect("it is a good handshake");
            }
            conn.writer().write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c").expect("memory");
            conn.complete_io(&mut stream).expect("it reads");
            let mut sealed = Vec::new();
            conn.writer().write_all(b"\xc0\0").expect("memory");
            conn.write_tls(&mut sealed).expect("memory");
            match round % 4 {
                // One bit of a record; one twice; many that say nothing; one that is never whole.
                0 => sealed[7] ^= 1,
                1 => sealed.extend(sealed.clone()),
                2 => sealed = [23, 3, 3, 0, 0].repeat(1000),
                _ => sealed = vec![23, 3, 3, 0x3f, 0xff, 0],
            }
            let _ = stream.write_all(&sealed);
            let _ = end(stream);
        }
    });
}

#[test]
fn proxy_headers_of_every_kind_end_in_time() {
    let folder = folder();
    let file = folder.join("proxy.toml");
    let text = "[[listener]]\nurl = \"tcp://[::1]:0\"\nproxy.protocol = \"auto\"\n";
    std::fs::write(&file, text).expect("it can be written");
    let broker = HostileTestBroker::start_from(&file, &["connect.timeout_ms=1000"]);
    let address = broker.address_of("tcp://[::1]");
    broker.withstand("proxy headers", |_| {
        let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
        let mut waiting = Vec::new();
        for round in 0..2000 {
            let mut stream = open(address);
            let bytes = match round % 5 {
                0 => b"PROXY TCP4 192.0.2.1 ".to_vec(),
                1 => [&b"PROXY "[..], &[b'9'; 5000]].concat(),
                2 => v2.to_vec(),
                3 => [&v2[..14], &[0x10, 0]].concat(),
                _ => b"\r\n\r\n".to_vec(),
            };
            let _ = stream.write_all(&bytes);
            waiting.push(stream);
        }
        waiting.into_iter().for_each(|stream| _ = end(stream));
    });
}
