//! WebSocket listeners of the real program, tested by a client with full control over its bytes.

use crate::broker::{run, scratch};
use crate::doors::{CONNACK, CONNECT, CertificateFolder, ListenerBroker, refs};
use crate::wire;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use websocket_codec::{
    FrameHeader, FrameOpcode, FrameRules, HEADER_BYTES_MAX, header_len, write_frame,
};

pub(crate) const UPGRADE: &str = "GET /mqtt HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
const KEY: [u8; 4] = [0x5a, 0xa5, 0x0f, 0xf0];
/// Bit of the first byte of a frame: final fragment.
pub(crate) const FIN: u8 = 0x80;
pub(crate) const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Encodes a frame of a client with the given first byte.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(FrameOpcode::Binary, payload.len(), [payload], Some(KEY), &mut bytes);
    bytes[0] = first;
    bytes
}

/// Reads the next frame of the server: opcode and payload. Returns `None` at the end of the stream.
pub(crate) fn next(mut stream: impl Read) -> Option<(u8, Vec<u8>)> {
    let rules = FrameRules { from_client: false, accepts_text: false, payload_bytes_max: u32::MAX };
    let mut head = [0; HEADER_BYTES_MAX];
    match stream.read_exact(&mut head[..2]) {
        Ok(()) => {}
        Err(fault)
            if matches!(fault.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
        {
            return None;
        }
        Err(fault) => panic!("nothing came: {fault}"),
    }
    let len = header_len(head[0], head[1], &rules).expect("a server's frame");
    stream.read_exact(&mut head[2..len]).expect("a header");
    let header = FrameHeader::parse(&head[..len], &rules).expect("a server's frame");
    assert!(header.is_last, "whole: {head:x?}");
    let mut payload = vec![0; header.len as usize];
    stream.read_exact(&mut payload).expect("a payload");
    Some((head[0] & 0x0f, payload))
}

pub(crate) fn open(port: &str) -> TcpStream {
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    stream
}

/// Reads the head of an HTTP response, up to the empty line.
fn head(mut stream: impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

/// Sends the upgrade request over a stream, and checks the response.
pub(crate) fn ask(stream: &mut (impl Read + Write)) {
    stream.write_all(UPGRADE.as_bytes()).expect("it reads");
    let head = head(stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("Sec-WebSocket-Protocol: mqtt\r\n"), "{head}");
}

/// Opens a WebSocket to a port of the loopback interface.
pub(crate) fn upgrade(port: &str) -> TcpStream {
    let mut stream = open(port);
    ask(&mut stream);
    stream
}

/// Sends a request and returns the whole response, up to the end of the connection.
fn refused(port: &str, request: &str) -> String {
    let mut stream = open(port);
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text, and an end");
    answer
}

pub(crate) fn port(url: &str) -> String {
    let (_, rest) = url.split_once("://").expect("a URL");
    let host = rest.split('/').next().expect("a host");
    host.rsplit(':').next().expect("a port").to_string()
}

#[test]
fn packets_and_frames_end_where_they_like() {
    let broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0/mqtt", "-l", "tcp://127.0.0.1:0"]);
    assert!(broker.urls[0].ends_with("/mqtt"), "{:?}", broker.urls);
    let mut stream = upgrade(&port(&broker.urls[0]));
    // [MQTT-6.0.0-2]: a packet in three frames, a ping between them, then two packets in one.
    let (one, two) = CONNECT.split_at(5);
    let (two, three) = two.split_at(1);
    for bytes in [frame(FIN | BINARY, one), frame(BINARY, two), frame(FIN | PING, b"well?")] {
        stream.write_all(&bytes).expect("it reads");
    }
    assert_eq!(next(&stream), Some((PONG, b"well?".to_vec())));
    stream.write_all(&frame(FIN, three)).expect("it reads");
    assert_eq!(next(&stream), Some((BINARY, CONNACK.to_vec())));
    let subscribe = b"\x82\x09\0\x01\0\x04door\0";
    let both = [&subscribe[..], b"\xc0\0"].concat();
    stream.write_all(&frame(FIN | BINARY, &both)).expect("it reads");
    assert_eq!(next(&stream), Some((BINARY, b"\x90\x03\0\x01\0\xd0\0".to_vec())));
    let message = "m".repeat(300);
    let tcp = port(&broker.urls[1]);
    let (code, _, why) = run(&["pub", "-p", &tcp, "-t", "door", "-m", &message]);
    assert_eq!(code, Some(0), "{why}");
    let (opcode, packet) = next(&stream).expect("it is delivered");
    assert_eq!((opcode, &packet[..2]), (BINARY, &b"\x30\xb2"[..]));
    assert!(packet.ends_with(message.as_bytes()));
    // DISCONNECT ends the MQTT connection, and that the WebSocket: normally (RFC 6455, 7.4.1).
    stream.write_all(&frame(FIN | BINARY, b"\xe0\0")).expect("it reads");
    assert_eq!(next(&stream), Some((CLOSE, b"\x03\xe8".to_vec())));
    assert_eq!(next(&stream), None);
}

#[test]
fn large_messages_pass_both_ways() {
    let broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0", "--shards", "2"]);
    let mut stream = upgrade(&port(&broker.urls[0]));
    stream.write_all(&frame(FIN | BINARY, CONNECT)).expect("it reads");
    assert_eq!(next(&stream), Some((BINARY, CONNACK.to_vec())));
    stream.write_all(&frame(FIN | BINARY, b"\x82\x06\0\x01\0\x01l\0")).expect("it reads");
    assert_eq!(next(&stream), Some((BINARY, b"\x90\x03\0\x01\0".to_vec())));
    let payload: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
    let mut packet = vec![0x30];
    let (mut rest, topic) = (3 + payload.len(), b"\0\x01l");
    while rest > 0 {
        packet.push((rest % 128) as u8 | if rest > 127 { 0x80 } else { 0 });
        rest /= 128;
    }
    packet.extend_from_slice(topic);
    packet.extend_from_slice(&payload);
    let mut writer = stream.try_clone().expect("a socket");
    let sent = packet.clone();
    let writes = thread::spawn(move || {
        let mut lens = [1, 125, 126, 65_535, 7, 40_000].into_iter().cycle();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(lens.next().unwrap_or(1).min(rest.len()));
            writer.write_all(&frame(FIN | BINARY, now)).expect("it reads");
            rest = later;
        }
    });
    let mut came = Vec::new();
    while came.len() < packet.len() {
        let (opcode, bytes) = next(&stream).expect("it goes on");
        assert_eq!(opcode, BINARY);
        came.extend(bytes);
    }
    assert!(came == packet);
    writes.join().expect("it writes");
}

#[test]
fn a_close_is_answered_and_what_is_no_mqtt_is_told_so() {
    let mut broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0/mqtt"]);
    let port = port(&broker.urls[0]);
    for (bytes, code) in [
        (frame(FIN | CLOSE, b"\x03\xe9"), Some(1001)),
        (frame(FIN | CLOSE, b""), None),
        // [MQTT-6.0.0-1]
        (frame(FIN | 0x1, b"CONNECT"), Some(1003)),
        // RFC 6455, 5.1.
        (vec![FIN | BINARY, 2, 0xc0, 0], Some(1002)),
        (vec![FIN | BINARY, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4], Some(1009)),
    ] {
        for welcomed in [false, true] {
            let mut stream = upgrade(&port);
            if welcomed {
                stream.write_all(&frame(FIN | BINARY, CONNECT)).expect("it reads");
                assert_eq!(next(&stream), Some((BINARY, CONNACK.to_vec())));
                broker.program.wait_for("client connected");
            }
            stream.write_all(&bytes).expect("it reads");
            let (opcode, said) = next(&stream).expect("a close");
            let said = said.first_chunk().map(|code| u16::from_be_bytes(*code));
            assert_eq!((opcode, said), (CLOSE, code), "{bytes:x?}");
            assert_eq!(next(&stream), None);
            if welcomed {
                broker.program.wait_for("connection lost");
            }
        }
    }
}

#[test]
fn who_is_there_at_the_stop_hears_that_the_broker_goes() {
    let mut broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0/mqtt", "--shards", "2"]);
    let port = port(&broker.urls[0]);
    let mut welcomed = upgrade(&port);
    welcomed.write_all(&frame(FIN | BINARY, CONNECT)).expect("it reads");
    assert_eq!(next(&welcomed), Some((BINARY, CONNACK.to_vec())));
    // One that has not said who it is yet, and one that leaves by itself before.
    let (waiting, mut leaving) = (upgrade(&port), upgrade(&port));
    let own = [&CONNECT[..CONNECT.len() - 1], b"d\xe0\0"].concat();
    leaving.write_all(&frame(FIN | BINARY, &own)).expect("it reads");
    assert_eq!(next(&leaving), Some((BINARY, CONNACK.to_vec())));
    assert_eq!(next(&leaving), Some((CLOSE, 1000_u16.to_be_bytes().to_vec())));
    broker.program.signal("TERM");
    // RFC 6455, 7.4.1.
    for stream in [&welcomed, &waiting] {
        assert_eq!(next(stream), Some((CLOSE, 1001_u16.to_be_bytes().to_vec())));
        assert_eq!(next(stream), None);
    }
    assert_eq!(broker.program.exit_code(), Some(0));
}

#[test]
fn requests_that_are_no_websocket_are_answered_in_words() {
    let mut broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0/mqtt"]);
    let port = port(&broker.urls[0]);
    for (from, to, status, words) in [
        ("GET /mqtt", "GET /", "404", "no WebSocket is served at this path"),
        ("GET", "HEAD", "405", "a WebSocket is opened with GET"),
        ("Upgrade: websocket\r\n", "", "426", "MQTT over WebSocket is served here"),
        ("Version: 13", "Version: 7", "426", "use 13"),
        ("Sec-WebSocket-Protocol: mqtt\r\n", "", "400", "use Sec-WebSocket-Protocol: mqtt"),
        ("Host: ", "Origin: https://a.example\r\nHost: ", "403", "pages of this origin may not"),
    ] {
        let answer = refused(&port, &UPGRADE.replacen(from, to, 1));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(words), "{answer}");
    }
    let line = broker.program.wait_for("connections ended before CONNECT");
    assert!(line.contains("WebSocket: no WebSocket is served at this path"), "{line}");
    // Plain MQTT is told at once that it came to the wrong port.
    let mut stream = open(&port);
    stream.write_all(CONNECT).expect("it reads");
    assert!(head(&stream).starts_with("HTTP/1.1 400 "));
}

#[test]
fn pages_of_other_origins_stay_out_unless_they_are_named() {
    let ask = |url: &str, origin: &str| {
        let request = UPGRADE.replace("Host: ", &format!("Origin: {origin}\r\nHost: "));
        let mut stream = open(&port(url));
        stream.write_all(request.as_bytes()).expect("it reads");
        head(&stream)[9..12].to_string()
    };
    // Who is on this host comes without proof; a page that somebody reads there is not.
    let broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0"]);
    assert_eq!(ask(&broker.urls[0], "http://localhost:8000"), "101");
    assert_eq!(ask(&broker.urls[0], "https://a.example"), "403");
    let origins = "ws.origins=https://a.example,null";
    let broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0", "-s", origins]);
    assert_eq!(ask(&broker.urls[0], "https://a.example"), "101");
    assert_eq!(ask(&broker.urls[0], "null"), "101");
    assert_eq!(ask(&broker.urls[0], "http://localhost:8000"), "403");
    for open in ["ws.origins=*", "allow_anonymous=true"] {
        let broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0", "-s", open]);
        assert_eq!(ask(&broker.urls[0], "https://a.example"), "101");
    }
    let (code, _, why) = run(&["-l", "ws://127.0.0.1:0", "-s", "ws.origins=a.example"]);
    assert_eq!(code, Some(2));
    assert!(why.contains("use one like \"https://example.org\""), "{why}");
}

/// The address in the header counts as the address of the client in the log, for bans and for
/// limits.
#[test]
fn a_proxy_before_a_web_listener_names_its_client() {
    let folder = scratch("web-address-header");
    let bans = folder.join("bans.toml");
    std::fs::write(&bans, "[[ban]]\naddress = \"192.0.2.66\"\n").expect("it can be written");
    let bans = format!("bans.file={}", bans.display());
    let header = "ws.address_header=X-Forwarded-For";
    let mut broker = ListenerBroker::start(&[
        "-l",
        "ws://127.0.0.1:0",
        "-s",
        header,
        "-s",
        "limits.address_connections_max=1",
        "-s",
        &bans,
    ]);
    let port = port(&broker.urls[0]);
    let ask = |named: &str| {
        let request = UPGRADE.replace("Host: ", &format!("{named}Host: "));
        let mut stream = open(&port);
        stream.write_all(request.as_bytes()).expect("it reads");
        let status = head(&stream)[9..12].to_string();
        if status == "101" {
            stream.write_all(&frame(FIN | BINARY, CONNECT)).expect("it reads");
        }
        (status, stream)
    };
    let (_, first) = ask("X-Forwarded-For: 192.0.2.44\r\n");
    assert_eq!(next(&first), Some((BINARY, CONNACK.to_vec())));
    let line = broker.program.wait_for("client connected");
    assert!(line.contains("peer=192.0.2.44:0"), "{line}");
    // Another client of the same address is one too many, one of another address is not.
    let (_, second) = ask("X-Forwarded-For: 192.0.2.44\r\n");
    assert_ne!(next(&second), Some((BINARY, CONNACK.to_vec())));
    let (_, third) = ask("X-Forwarded-For: 192.0.2.45\r\n");
    assert_eq!(next(&third), Some((BINARY, CONNACK.to_vec())));
    let (_, banned) = ask("X-Forwarded-For: 192.0.2.66\r\n");
    assert_ne!(next(&banned), Some((BINARY, CONNACK.to_vec())));
    broker.program.wait_for("banned");
    let (status, _) = ask("X-Forwarded-For: nobody\r\n");
    assert_eq!(status, "400");
    let (_, direct) = ask("");
    assert_eq!(next(&direct), Some((BINARY, CONNACK.to_vec())));
    let (code, _, why) = run(&["-l", "ws://127.0.0.1:0", "-s", "ws.address_header=a b"]);
    assert_eq!(code, Some(2));
    assert!(why.contains("use one like \"x-forwarded-for\""), "{why}");
}

#[test]
fn who_does_not_ask_in_time_is_sent_away() {
    let timeout = ["-s", "connect.timeout_ms=300"];
    let mut broker = ListenerBroker::start(&[&["-l", "ws://127.0.0.1:0"], &timeout[..]].concat());
    let port = port(&broker.urls[0]);
    for begun in ["", "GET /mqtt HTTP/1.1\r\nHost:"] {
        let mut stream = open(&port);
        stream.write_all(begun.as_bytes()).expect("it reads");
        let began = Instant::now();
        assert_eq!(stream.read(&mut [0; 1]).ok(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    broker.program.wait_for("not done in time");
    // The same time counts for CONNECT: asking does not buy more.
    let stream = upgrade(&port);
    let began = Instant::now();
    assert_eq!(next(&stream), Some((CLOSE, b"\x03\xe8".to_vec())));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn pings_do_not_keep_a_client_alive() {
    let broker = ListenerBroker::start(&["-l", "ws://127.0.0.1:0"]);
    let mut stream = upgrade(&port(&broker.urls[0]));
    let connect = b"\x10\x0d\0\x04MQTT\x04\x02\0\x01\0\x01k";
    stream.write_all(&frame(FIN | BINARY, connect)).expect("it reads");
    assert_eq!(next(&stream), Some((BINARY, CONNACK.to_vec())));
    let began = Instant::now();
    // [MQTT-3.1.2-22]: what counts are packets of MQTT.
    loop {
        let _ = stream.write_all(&frame(FIN | PING, b""));
        match next(&stream) {
            Some((PONG, _)) => thread::sleep(Duration::from_millis(50)),
            Some((CLOSE, _)) | None => break,
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < Duration::from_secs(10), "it is kept");
    }
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn every_layer_stands_before_the_next() {
    let certs = CertificateFolder::new("web-layers");
    let listen = ["-l", "wss://127.0.0.1:0/mqtt", "-s", "proxy.protocol=v1"];
    let mut broker = ListenerBroker::start(&refs(&certs.serve(&listen)));
    let mut stream = open(&port(&broker.urls[0]));
    stream.write_all(b"PROXY TCP4 192.0.2.44 198.51.100.7 56324 8084\r\n").expect("it reads");
    let mut conn = client(&certs);
    let mut tls = rustls::Stream::new(&mut conn, &mut stream);
    tls.write_all(UPGRADE.as_bytes()).expect("it reads");
    tls.write_all(&frame(FIN | BINARY, CONNECT)).expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(next(&mut tls), Some((BINARY, CONNACK.to_vec())));
    let line = broker.program.wait_for("client connected");
    assert!(line.contains("peer=192.0.2.44:56324"), "{line}");
    tls.write_all(&frame(FIN | PING, b"x")).expect("it reads");
    assert_eq!(next(&mut tls), Some((PONG, b"x".to_vec())));
    tls.write_all(&frame(FIN | CLOSE, b"\x03\xe8")).expect("it reads");
    assert_eq!(next(&mut tls), Some((CLOSE, b"\x03\xe8".to_vec())));
    // TLS ends as it should: with its own last words.
    assert_eq!(tls.read(&mut [0; 1]).ok(), Some(0));
}

pub(crate) fn client(certs: &CertificateFolder) -> rustls::ClientConnection {
    use rustls::pki_types::pem::PemObject;
    let ca = rustls::pki_types::CertificateDer::from_pem_file(certs.path("ca.pem"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.expect("a certificate")).expect("a CA");
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    rustls::ClientConnection::new(config.into(), name).expect("a client")
}

#[test]
fn a_reload_changes_who_may_come_and_nobody_who_is_in_notices() {
    let file = crate::broker::scratch("web-reload").join("godwit.toml");
    let text = |origin: &str| {
        format!("[[listener]]\nurl = \"ws://127.0.0.1:0\"\nws.origins = [\"{origin}\"]\n")
    };
    std::fs::write(&file, text("https://a.example")).expect("it can be written");
    let mut broker = ListenerBroker::start(&["--config", file.to_str().expect("text")]);
    let port = port(&broker.urls[0]);
    let request = UPGRADE.replace("Host: ", "Origin: https://b.example\r\nHost: ");
    assert!(refused(&port, &request).starts_with("HTTP/1.1 403 "));
    let mut stays = upgrade(&port);
    std::fs::write(&file, text("https://b.example")).expect("it can be written");
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    let mut stream = open(&port);
    stream.write_all(request.as_bytes()).expect("it reads");
    assert!(head(&stream).starts_with("HTTP/1.1 101 "));
    stays.write_all(&frame(FIN | BINARY, CONNECT)).expect("it reads");
    assert_eq!(next(&stays), Some((BINARY, CONNACK.to_vec())));
}

/// Starts a proxy in front of a WebSocket listener for clients of plain MQTT. Packets of a client
/// go into frames and fragments of all lengths, with pings between them.
fn plain(port: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let port = port.to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a client");
            client.set_nodelay(true).expect("a socket");
            let server = upgrade(&port);
            server.set_read_timeout(None).expect("a socket");
            let both = (client.try_clone().expect("one"), server.try_clone().expect("one"));
            thread::spawn(move || wrap(client, server));
            thread::spawn(move || unwrap(both.0, both.1));
        }
    });
    address
}

fn wrap(mut client: TcpStream, mut server: TcpStream) {
    let (mut buffer, mut round, mut fragments) = ([0; 40_000], 0_usize, false);
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let mut rest = &buffer[..read];
        let mut bytes = Vec::new();
        while !rest.is_empty() {
            round += 1;
            let len = [1, 3, 2, 200, 0, 5, 30_000][round % 7].min(rest.len());
            let (now, later) = rest.split_at(len);
            let last = round % 3 == 0;
            let first = if fragments { 0 } else { BINARY } | if last { FIN } else { 0 };
            bytes.extend(frame(first, now));
            fragments = !last;
            if round % 5 == 0 {
                bytes.extend(frame(FIN | PING, &[round as u8; 9]));
            }
            rest = later;
        }
        if server.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

fn unwrap(mut client: TcpStream, server: TcpStream) {
    while let Some((opcode, bytes)) = next(&server) {
        if opcode == BINARY && client.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn transcripts_hold_in_frames() {
    wire::replay_all(5, |arguments| {
        let mut command = arguments.to_vec();
        command.extend(["--listen=ws://127.0.0.1:0/mqtt".to_string()]);
        let broker = ListenerBroker::start(&refs(&command));
        let address = plain(&port(&broker.urls[0]));
        (broker, address)
    });
}
