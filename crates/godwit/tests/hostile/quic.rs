//! Attacks on QUIC: invalid datagrams, unfinished handshakes, and peers that do not read. The
//! healthy client uses plain MQTT on the same shards.

use crate::SEED;
use crate::broker::HostileTestBroker;
use crate::handshakes::{folder, start_with};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, StreamEvent, StreamId,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c";
const CONNACK: &[u8] = b"\x20\x02\0\0";
/// Smallest size of a datagram with an Initial packet, in bytes [RFC 9000, 14.1].
const INITIAL_BYTES_MIN: usize = 1200;

fn start(more: &[&str]) -> (HostileTestBroker, SocketAddr) {
    start_with("quic", more)
}

fn config() -> ClientConfig {
    let ca = CertificateDer::from_pem_file(folder().join("ca.pem")).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(ca).expect("a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"mqtt".to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("QUIC's suites")))
}

/// A QUIC client whose every step the test triggers.
struct QuicTestClient {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    conn: Connection,
    stream: Option<StreamId>,
    came: Vec<u8>,
    lost: bool,
}

impl QuicTestClient {
    fn new(config: &ClientConfig, address: SocketAddr) -> QuicTestClient {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
        socket.connect(address).expect("an address");
        let endpoint = EndpointConfig::default().into();
        let mut endpoint = Endpoint::new(endpoint, None, true, None);
        let connected = endpoint.connect(Instant::now(), config.clone(), address, "localhost");
        let (handle, conn) = connected.expect("a connection");
        QuicTestClient {
            socket,
            endpoint,
            handle,
            conn,
            stream: None,
            came: Vec::new(),
            lost: false,
        }
    }

    /// Returns the pending datagrams of the client.
    fn datagrams(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.conn.poll_transmit(Instant::now(), 1, &mut buffer) {
            all.push(buffer[..transmit.size].to_vec());
            buffer.clear();
        }
        all
    }

    /// Sends the pending datagrams, and handles the datagrams that arrive within some milliseconds.
    fn turn(&mut self) {
        for datagram in self.datagrams() {
            let _ = self.socket.send(&datagram);
        }
        let mut buffer = [0; 2048];
        let address = self.socket.peer_addr().expect("it is connected");
        while let Ok(len) = self.socket.recv(&mut buffer) {
            let mut answer = Vec::new();
            let (now, bytes) = (Instant::now(), buffer[..len].into());
            let event = self.endpoint.handle(now, address, None, None, bytes, &mut answer);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.conn.handle_event(event);
            }
            for datagram in self.datagrams() {
                let _ = self.socket.send(&datagram);
            }
        }
        let now = Instant::now();
        if self.conn.poll_timeout().is_some_and(|at| at <= now) {
            self.conn.handle_timeout(now);
        }
        while let Some(event) = self.conn.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.conn.handle_event(event);
            }
        }
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(event) = self.conn.poll() {
            match event {
                Event::Connected => self.stream = self.conn.streams().open(Dir::Bi),
                Event::ConnectionLost { .. } => self.lost = true,
                Event::Stream(StreamEvent::Readable { id }) => {
                    let mut stream = self.conn.recv_stream(id);
                    let Ok(mut chunks) = stream.read(true) else { continue };
                    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                        self.came.extend_from_slice(&chunk.bytes);
                    }
                    let _ = chunks.finalize();
                }
                _ => {}
            }
        }
    }

    fn until(&mut self, done: impl Fn(&QuicTestClient) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < Duration::from_secs(20), "it takes too long");
            self.turn();
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let stream = self.stream.expect("it is connected");
        let written = self.conn.send_stream(stream).write(bytes);
        assert_eq!(written.ok(), Some(bytes.len()), "there is room");
    }

    fn welcome(&mut self) {
        self.until(|client| client.stream.is_some());
        self.write(CONNECT);
        self.until(|client| client.came.len() >= CONNACK.len());
        assert_eq!(self.came, CONNACK);
        self.came.clear();
    }
}

/// Returns the first datagram of each of `many` clients. The server would answer each with a
/// handshake.
fn initials(address: SocketAddr, many: usize) -> Vec<Vec<u8>> {
    let config = config();
    (0..many).map(|_| QuicTestClient::new(&config, address).datagrams().swap_remove(0)).collect()
}

/// Returns the datagrams that arrive within a time.
fn heard(socket: &UdpSocket, within: Duration) -> Vec<Vec<u8>> {
    let until = Instant::now() + within;
    let (mut all, mut buffer) = (Vec::new(), [0; 65_536]);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).expect("a socket");
        if let Ok(len) = socket.recv(&mut buffer) {
            all.push(buffer[..len].to_vec());
        }
    }
    all
}

fn socket_to(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(address).expect("an address");
    socket
}

#[test]
fn datagrams_of_every_kind_that_are_no_quic_cost_nothing() {
    let (broker, address) = start(&[]);
    let whole = initials(address, 8);
    broker.withstand("datagrams", |_| {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let socket = socket_to(address);
        for round in 0..20_000 {
            let mut bytes = whole[round % whole.len()].clone();
            let len = bytes.len();
            match round % 6 {
                // Noise with a long header, and with a short one.
                0 | 1 => {
                    bytes = (0..rng.usize(..1500)).map(|_| rng.usize(..256) as u8).collect();
                    let kind = if round % 6 == 0 { 0xc0 } else { 0x40 };
                    bytes.first_mut().into_iter().for_each(|first| *first |= kind);
                }
                // A bit wrong, cut, twice the same, and as long as a datagram can be.
                2 => bytes[rng.usize(..len)] ^= 1 << rng.usize(..8),
                3 => bytes.truncate(rng.usize(..len)),
                4 => bytes.extend(bytes.clone()),
                _ => bytes.resize(if round % 60 == 5 { 65_000 } else { 9000 }, 0xff),
            }
            let _ = socket.send(&bytes);
            if round % 64 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    QuicTestClient::new(&config(), address).welcome();
}

#[test]
fn a_flood_of_first_datagrams_keeps_nobody_out() {
    let (broker, address) = start(&["connect.timeout_ms=2000"]);
    let all = initials(address, 3000);
    broker.withstand("initials", |_| {
        let sockets: Vec<UdpSocket> = (0..50).map(|_| socket_to(address)).collect();
        let began = Instant::now();
        for (at, initial) in all.iter().enumerate() {
            let _ = sockets[at % sockets.len()].send(initial);
            if at == 2000 {
                // Who shows that it is where it says comes in through all of it.
                QuicTestClient::new(&config(), address).welcome();
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
    QuicTestClient::new(&config(), address).welcome();
}

#[test]
fn what_an_address_may_is_not_used_up_by_who_only_says_it_is_there() {
    let (_broker, address) = start(&["limits.address_connections_max=4"]);
    let all = initials(address, 50);
    let sockets: Vec<UdpSocket> = all.iter().map(|_| socket_to(address)).collect();
    for (socket, initial) in sockets.iter().zip(&all) {
        socket.send(initial).expect("it listens");
    }
    // Each has its answer, which nobody reads who is somewhere else.
    for socket in &sockets {
        assert!(!heard(socket, Duration::from_millis(20)).is_empty());
    }
    QuicTestClient::new(&config(), address).welcome();
}

#[test]
fn handshakes_that_nobody_finishes_end_in_time() {
    let (broker, address) = start(&["connect.timeout_ms=1500"]);
    broker.withstand("half open", |_| {
        let config = config();
        let mut clients: Vec<QuicTestClient> =
            (0..300).map(|_| QuicTestClient::new(&config, address)).collect();
        for client in &mut clients {
            // The answer to a Retry, and nothing more: its Finished is never sent.
            for datagram in client.datagrams() {
                let _ = client.socket.send(&datagram);
            }
        }
        for client in &mut clients {
            let mut buffer = [0; 2048];
            let Ok(len) = client.socket.recv(&mut buffer) else { continue };
            let mut answer = Vec::new();
            let (now, bytes) = (Instant::now(), buffer[..len].into());
            let event = client.endpoint.handle(now, address, None, None, bytes, &mut answer);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                client.conn.handle_event(event);
            }
            if let Some(datagram) = client.datagrams().first() {
                let _ = client.socket.send(datagram);
            }
        }
        std::thread::sleep(Duration::from_millis(2500));
    });
    QuicTestClient::new(&config(), address).welcome();
}

#[test]
fn nobody_is_sent_more_than_three_times_what_came() {
    let (_broker, address) = start(&[]);
    for initial in initials(address, 5) {
        let socket = socket_to(address);
        socket.send(&initial).expect("it listens");
        // Long enough for everything that is said again.
        let all = heard(&socket, Duration::from_secs(2));
        let bytes: usize = all.iter().map(Vec::len).sum();
        assert!(bytes > 0 && bytes <= 3 * initial.len(), "{bytes} for {}", initial.len());
    }
    // What is shorter than a first datagram has to be gets nothing.
    let socket = socket_to(address);
    for initial in initials(address, 5) {
        socket.send(&initial[..INITIAL_BYTES_MIN - 1]).expect("it listens");
    }
    assert_eq!(heard(&socket, Duration::from_millis(300)).len(), 0);
}

#[test]
fn another_version_is_told_which_there_are() {
    let (_broker, address) = start(&[]);
    let socket = socket_to(address);
    let mut bytes = initials(address, 1).swap_remove(0);
    bytes[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    socket.send(&bytes).expect("it listens");
    let all = heard(&socket, Duration::from_millis(300));
    let [answer] = &all[..] else { panic!("{} answers", all.len()) };
    assert!(answer.len() < bytes.len(), "an answer is shorter than its question");
    assert_eq!((answer[0] & 0x80, &answer[1..5]), (0x80, &[0, 0, 0, 0][..]));
    assert!(answer.windows(4).any(|window| window == [0, 0, 0, 1]), "version 1 is spoken");
    // Version negotiation is never answered, nor is an unknown version in a short datagram.
    socket.send(answer).expect("it listens");
    socket.send(&bytes[..600]).expect("it listens");
    assert_eq!(heard(&socket, Duration::from_millis(300)).len(), 0);
}

#[test]
fn peers_that_do_not_read_hold_nobody_up() {
    let (broker, address) = start(&["connection.write_bytes_max=64KiB", "queue.bytes_max=2MiB"]);
    broker.withstand("deaf peers", |_| {
        let config = config();
        let mut deaf = Vec::new();
        for at in 0..30_u8 {
            let mut client = QuicTestClient::new(&config, address);
            client.until(|client| client.stream.is_some());
            let mut connect = CONNECT.to_vec();
            *connect.last_mut().expect("a client id") = at;
            connect[CONNECT.len() - 1] = b'A' + at;
            client.write(&connect);
            client.write(b"\x82\x06\0\x01\0\x01d\0");
            client.until(|client| client.came.len() >= CONNACK.len() + 5);
            deaf.push(client);
        }
        let mut talker = QuicTestClient::new(&config, address);
        talker.welcome();
        let mut packet = b"\x30\x83\x20\0\x01d".to_vec();
        packet.resize(packet.len() + 4096, b'x');
        let all = packet.repeat(500);
        let mut left = &all[..];
        while !left.is_empty() {
            let stream = talker.stream.expect("it is there");
            let written = talker.conn.send_stream(stream).write(left);
            left = &left[written.unwrap_or(0)..];
            talker.turn();
        }
    });
}
