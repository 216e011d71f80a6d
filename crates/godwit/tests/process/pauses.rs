//! A process that is stopped for a while and continues, as by SIGSTOP, `docker pause` or a
//! debugger: data that arrived in time is read before any timeout expires.

use crate::bridges::{edge, wait_for_value};
use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit};
use crate::clients::{publish, subscriber};
use crate::doors::{CONNACK, CertificateFolder, ListenerBroker, refs};
use crate::stub::{TestWebServer, WebResponse};
use crate::web;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Length of a pause; more than 1.5 times the keep-alive of `connect`.
const PAUSE: Duration = Duration::from_millis(3_200);
const PINGREQ: &[u8] = b"\xc0\0";
const PINGRESP: &[u8] = b"\xd0\0";

trait PauseClient: Read + Write {}
impl<T: Read + Write> PauseClient for T {}

/// Encodes a CONNECT of MQTT 3.1.1 with a keep-alive of two seconds.
fn connect(client_id: &str) -> Vec<u8> {
    let mut packet = vec![0x10, 12 + client_id.len() as u8];
    packet.extend_from_slice(b"\0\x04MQTT\x04\x02\0\x02\0");
    packet.push(client_id.len() as u8);
    packet.extend_from_slice(client_id.as_bytes());
    packet
}

fn expect(client: &mut dyn PauseClient, expected: &[u8], name: &str) {
    let mut read = vec![0; expected.len()];
    client.read_exact(&mut read).unwrap_or_else(|fault| panic!("{name} is dropped: {fault}"));
    assert_eq!(read, expected, "{name}");
}

/// A stream whose MQTT packets are in WebSocket frames, one packet per frame.
struct WebSocketFramed<T>(T);

impl<T: PauseClient> Write for WebSocketFramed<T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(&web::frame(web::FIN | web::BINARY, bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl<T: PauseClient> Read for WebSocketFramed<T> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some((web::BINARY, payload)) = web::next(&mut self.0) else { return Ok(0) };
        into[..payload.len()].copy_from_slice(&payload);
        Ok(payload.len())
    }
}

fn clients(
    broker: &ListenerBroker,
    certs: &CertificateFolder,
) -> Vec<(String, Box<dyn PauseClient>)> {
    let tls = |at: usize| {
        let stream = web::open(&web::port(&broker.urls[at]));
        rustls::StreamOwned::new(web::client(certs), stream)
    };
    let mut all: Vec<(String, Box<dyn PauseClient>)> = Vec::new();
    // More than a poller tells of at once, so that several rounds are needed.
    for at in 0..600 {
        all.push((format!("plain-{at}"), Box::new(web::open(&web::port(&broker.urls[0])))));
    }
    for at in 0..20 {
        all.push((format!("tls-{at}"), Box::new(tls(1))));
        let socket = web::upgrade(&web::port(&broker.urls[2]));
        all.push((format!("ws-{at}"), Box::new(WebSocketFramed(socket))));
        let mut tls = tls(3);
        web::ask(&mut tls);
        all.push((format!("wss-{at}"), Box::new(WebSocketFramed(tls))));
    }
    for (name, client) in &mut all {
        client.write_all(&connect(name)).expect("it reads");
        client.flush().expect("it reads");
        expect(client.as_mut(), CONNACK, name);
    }
    all
}

#[test]
fn who_spoke_in_time_stays_and_who_did_not_goes() {
    let certs = CertificateFolder::new("pauses");
    let listen = ["tcp://127.0.0.1:0", "tls://127.0.0.1:0", "ws://127.0.0.1:0/mqtt"];
    let mut more: Vec<&str> = listen.iter().flat_map(|url| ["--listen", *url]).collect();
    more.extend(["--listen", "wss://127.0.0.1:0/mqtt", "--shards", "2"]);
    let mut broker = ListenerBroker::start(&refs(&certs.serve(&more)));
    let mut all = clients(&broker, &certs);
    let mut silent = web::open(&web::port(&broker.urls[0]));
    silent.write_all(&connect("silent")).expect("it reads");
    expect(&mut silent, CONNACK, "silent");
    for (name, client) in &mut all {
        client.write_all(PINGREQ).expect("it reads");
        expect(client.as_mut(), PINGRESP, name);
    }
    broker.program.signal("STOP");
    for (_, client) in &mut all {
        client.write_all(PINGREQ).expect("the kernel takes it");
        client.flush().expect("the kernel takes it");
    }
    thread::sleep(PAUSE);
    broker.program.signal("CONT");
    for (name, client) in &mut all {
        expect(client.as_mut(), PINGRESP, name);
    }
    // A client that says nothing goes once the keep-alive has passed again, at the latest.
    assert_eq!(silent.read(&mut [0; 8]).expect("it ends"), 0);
    broker.program.wait_for("the process did not run");
}

/// A will with a Will Delay Interval expires during the pause, while a new CONNECT of its client
/// waits in the kernel.
#[test]
fn a_will_stays_unsaid_of_a_client_that_is_back_already() {
    let mut broker = TestBroker::start(&["--shards", "2"]);
    let port = broker.port();
    let mut sub = subscriber(&port, &["-t", "will/#", "-d"]);
    let come = |id: &str| {
        // 5.0, no clean start; a session of 60 s, and a will that is delayed by 2.
        let mut body = b"\0\x04MQTT\x05\x04\0\0\x05\x11\0\0\0\x3c\0\x01".to_vec();
        body.extend_from_slice(id.as_bytes());
        body.extend_from_slice(b"\x05\x18\0\0\0\x02\0\x06will/x\0\x01w");
        let mut stream = TcpStream::connect(broker.address).expect("the kernel takes it");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(&[&[0x10, body.len() as u8][..], &body].concat()).expect("it is open");
        stream
    };
    let mut client = come("a");
    let mut read = [0; 4];
    client.read_exact(&mut read).expect("a CONNACK");
    assert_eq!(read[0], 0x20);
    drop(client);
    broker.program.wait_for("connection lost");
    broker.program.signal("STOP");
    let mut back = come("a");
    thread::sleep(PAUSE);
    broker.program.signal("CONT");
    back.read_exact(&mut read).expect("a CONNACK");
    assert_eq!(read[2..], [1, 0], "its session is there");
    publish(&port, &["-t", "will/marker", "-m", "x"]);
    let first = sub.wait_for("received PUBLISH");
    assert!(first.contains("will/marker"), "{first}");
}

/// The HTTP authentication server answers soon after a pause that is longer than
/// `auth.backend_timeout_ms`.
#[test]
fn a_server_that_is_asked_has_its_time_without_the_pause() {
    let (asked, is_asked) = mpsc::channel();
    let web = TestWebServer::start(0, None, move |_| {
        asked.send(()).expect("the test is there");
        thread::sleep(PAUSE + Duration::from_millis(300));
        WebResponse::Json(200, "{\"result\": \"allow\"}".to_string())
    });
    let url = format!("auth.http_url=http://127.0.0.1:{}/auth", web.port);
    let sets = ["--set", &url, "--set", "auth.backend_timeout_ms=2000"];
    let broker = TestBroker::start(&[&sets[..], &["--set", "auth.http_method=post_json"]].concat());
    let port = broker.port();
    let arguments = ["pub", "-p", &port, "-t", "t", "-m", "x", "-q", "1", "-u", "u", "-P", "p"];
    let mut client = TestProgram::start(godwit(&arguments));
    is_asked.recv_timeout(PATIENCE).expect("the server is asked");
    broker.program.signal("STOP");
    thread::sleep(PAUSE);
    broker.program.signal("CONT");
    assert_eq!(client.exit_code(), Some(0), "{:?}", client.seen());
}

/// Starts a scripted broker for a bridge or a client. PINGREQ is answered only while `answers` is
/// true, and reported to `pinged`.
fn far(answers: Arc<AtomicBool>, pinged: mpsc::Sender<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("this host has room for it");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                read.extend_from_slice(&buffer[..len]);
                while let Some(len) = mqtt::expected_len(&read).filter(|len| *len <= read.len()) {
                    let packet: Vec<u8> = read.drain(..len).collect();
                    let answer: &[u8] = match packet[0] >> 4 {
                        1 => CONNACK,
                        8 => &[0x90, 3, packet[2], packet[3], 0],
                        12 => {
                            let _ = pinged.send(());
                            while !answers.load(SeqCst) {
                                thread::sleep(Duration::from_millis(20));
                            }
                            PINGRESP
                        }
                        _ => &[],
                    };
                    if stream.write_all(answer).is_err() {
                        break;
                    }
                }
            }
        }
    });
    address
}

#[test]
fn a_bridge_keeps_a_connection_whose_answer_has_come() {
    let (sender, pinged) = mpsc::channel();
    let answers = Arc::new(AtomicBool::new(false));
    let address = far(answers.clone(), sender);
    let bridge = format!(
        "servers = [\"tcp://{address}\"]\nversion = \"3.1.1\"\nkeep_alive_s = 1\n\
         answer_timeout_s = 2\n[[bridge.out]]\nfilter = \"up/#\"\nqos = 0\n"
    );
    let (mut broker, _) = edge("pauses-bridge", &bridge, &[]);
    broker.program.wait_for("connected");
    pinged.recv_timeout(PATIENCE).expect("it pings");
    broker.program.signal("STOP");
    answers.store(true, SeqCst);
    thread::sleep(PAUSE);
    broker.program.signal("CONT");
    for _ in 0..3 {
        pinged.recv_timeout(PATIENCE).expect("it goes on");
    }
    wait_for_value(&broker, "connects", |value| value == "1");
    assert!(!broker.program.seen().iter().any(|line| line.contains("no longer answers")));
}

/// `godwit sub` that was stopped (SIGSTOP) and continues keeps its connection.
#[test]
fn a_client_that_was_stopped_goes_on() {
    let (sender, pinged) = mpsc::channel();
    let answers = Arc::new(AtomicBool::new(false));
    let port = far(answers.clone(), sender).port().to_string();
    let arguments = ["sub", "-p", &port, "-t", "t", "-k", "1", "-d", "-V", "3.1.1"];
    let mut client = TestProgram::start(godwit(&arguments));
    client.wait_for("SUBACK");
    pinged.recv_timeout(PATIENCE).expect("it pings");
    client.signal("STOP");
    answers.store(true, SeqCst);
    thread::sleep(PAUSE);
    client.signal("CONT");
    for _ in 0..3 {
        pinged.recv_timeout(PATIENCE).expect("it goes on");
    }
}
