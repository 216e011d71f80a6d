//! Requests, answers and frames of RFC 6455, and the violations of a client.

use super::*;
use websocket_codec::{FrameOpcode, write_frame};

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

fn site() -> Arc<WebSocketSite> {
    Arc::new(WebSocketSite { path: Some("/mqtt".into()), ..WebSocketSite::default() })
}

/// Example of RFC 6455, 1.2, with the subprotocols of MQTT.
const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Origin: http://example.com\r\nSec-WebSocket-Protocol: chat, mqttv3.1, mqtt\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

/// Returns a frame of a client, with any first byte.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(FrameOpcode::Binary, payload.len(), [payload], Some(KEY), &mut bytes);
    bytes[0] = first;
    bytes
}

fn open() -> WebSocketLayer {
    WebSocketLayer { upgrade: None, named_client: None, frames: FrameDecoder::default() }
}

/// Decodes bytes. Returns the bytes of MQTT, the answers, and whether the connection ends.
fn take(
    web: &mut WebSocketLayer,
    bytes: &[u8],
) -> (Vec<u8>, Vec<u8>, Result<bool, WebSocketError>) {
    let (mut said, mut answers) = ([b"before", bytes].concat(), Vec::new());
    let ended = web.decode(&mut said, 6, &mut answers);
    assert_eq!(said.drain(..6).as_slice(), b"before");
    (said, answers, ended)
}

fn ask(request: &str) -> (String, Result<bool, WebSocketError>) {
    let (said, answers, ended) = take(&mut WebSocketLayer::new(site()), request.as_bytes());
    assert_eq!(said, b"");
    (String::from_utf8(answers).unwrap(), ended)
}

/// Returns a refusal and its status line.
fn refuse(request: &str) -> (UpgradeRefusal, String) {
    let (answer, ended) = ask(request);
    let Err(WebSocketError::Request(refused)) = ended else { panic!("{ended:?} for {request:?}") };
    let (head, words) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", words.len())), "{answer}");
    assert!(head.contains("close\r\n"), "{answer}");
    assert_eq!(words, format!("{refused}\n"));
    (refused, head.lines().next().unwrap().to_string())
}

// [MQTT-6.0.0-4]
#[test]
fn the_rfcs_handshake_is_answered_with_its_proof() {
    let (answer, ended) = ask(REQUEST);
    assert_eq!(ended, Ok(false));
    // 1.3 has the key and its answer.
    assert_eq!(
        answer,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: \
         mqtt\r\n\r\n"
    );
}

#[test]
fn a_request_comes_in_any_pieces_and_frames_may_follow_it_at_once() {
    let bytes = [REQUEST.as_bytes(), &masked(0x82, b"packet")].concat();
    for len in [1, 3, 100, bytes.len()] {
        let (mut web, mut all) = (WebSocketLayer::new(site()), Vec::new());
        for piece in bytes.chunks(len) {
            let (said, _, ended) = take(&mut web, piece);
            assert_eq!(ended, Ok(false));
            all.extend(said);
        }
        assert!(web.is_ready());
        assert_eq!(all, b"packet");
    }
}

#[test]
fn words_in_headers_are_found_as_browsers_write_them() {
    for (from, to) in [
        ("Connection: Upgrade", "connection: keep-alive, UPGRADE"),
        ("Upgrade: websocket", "UPGRADE: h2c, WebSocket"),
        ("/mqtt HTTP", "/mqtt?token=1 HTTP"),
        ("chat, mqttv3.1, mqtt", "mqtt"),
        ("Protocol: chat, mqttv3.1, mqtt", "Protocol: chat\r\nsec-websocket-protocol:mqtt"),
        ("Origin: http://example.com\r\n", ""),
        ("Host:", "Sec-WebSocket-Extensions: permessage-deflate\r\nHost:"),
    ] {
        let (answer, ended) = ask(&REQUEST.replace(from, to));
        assert_eq!(ended, Ok(false), "{to}: {answer}");
        assert!(answer.contains("Protocol: mqtt\r\n"));
        // An extension that is not confirmed is not used (9.1).
        assert!(!answer.contains("Extensions"));
    }
    let (answer, _) = ask(&REQUEST.replace("chat, mqttv3.1, mqtt", "mqttv3.1"));
    assert!(answer.contains("Protocol: mqttv3.1\r\n"));
}

// [MQTT-6.0.0-3]
#[test]
fn requests_that_are_refused_are_told_why() {
    let many: String = (0..80).map(|at| format!("X-{at}: 1\r\n")).collect();
    let long = format!("X: {}\r\n", "x".repeat(9000));
    let protocols = "Sec-WebSocket-Protocol: chat, mqttv3.1, mqtt\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (from, to, refused, status) in [
        ("GET", "\x10\x0c\0\x04MQTT", UpgradeRefusal::NoRequest, "400"),
        ("GET", "GE T", UpgradeRefusal::NoRequest, "400"),
        ("Host: ", "Ho\0st: ", UpgradeRefusal::NoRequest, "400"),
        ("Host: server.example.com\r\n", "", UpgradeRefusal::NoHost, "400"),
        ("Host: ", "Host: a\r\nHost: ", UpgradeRefusal::NoHost, "400"),
        (key, "", UpgradeRefusal::NoKey, "400"),
        (key, &format!("{key}{key}"), UpgradeRefusal::NoKey, "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", UpgradeRefusal::NoKey, "400"),
        (protocols, "", UpgradeRefusal::NoSubprotocol, "400"),
        ("chat, mqttv3.1, mqtt", "chat, MQTT", UpgradeRefusal::NoSubprotocol, "400"),
        ("/mqtt", "/", UpgradeRefusal::Path, "404"),
        ("/mqtt", "/mqttt", UpgradeRefusal::Path, "404"),
        ("GET", "POST", UpgradeRefusal::Method, "405"),
        ("Upgrade: websocket\r\n", "", UpgradeRefusal::NoUpgrade, "426"),
        ("Connection: Upgrade", "Connection: close", UpgradeRefusal::NoUpgrade, "426"),
        ("Version: 13", "Version: 8", UpgradeRefusal::Version, "426"),
        ("Sec-WebSocket-Version: 13\r\n", "", UpgradeRefusal::Version, "426"),
        ("Host: ", &format!("{many}Host: "), UpgradeRefusal::Headers, "431"),
        ("Host: ", &format!("{long}Host: "), UpgradeRefusal::Headers, "431"),
        ("HTTP/1.1", "HTTP/1.0", UpgradeRefusal::Protocol, "505"),
    ] {
        assert!(REQUEST.contains(from));
        let (why, line) = refuse(&REQUEST.replacen(from, to, 1));
        assert_eq!(why, refused, "{to}");
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{line}");
    }
    let version = ask(&REQUEST.replace("Version: 13", "Version: 8")).0;
    assert!(version.contains("Sec-WebSocket-Version: 13\r\n"), "4.4: {version}");
    assert!(version.contains("Connection: Upgrade, close\r\n"), "{version}");
    assert!(ask(&REQUEST.replace("GET", "PUT")).0.contains("Allow: GET\r\n"));
}

#[test]
fn what_is_no_request_is_refused_at_its_first_byte() {
    for first in [0x10, 0x16, 0x82, b'\n', b' '] {
        let (_, answer, ended) = take(&mut WebSocketLayer::new(site()), &[first]);
        assert_eq!(ended, Err(WebSocketError::Request(UpgradeRefusal::NoRequest)));
        assert!(answer.starts_with(b"HTTP/1.1 400 "));
    }
}

#[test]
fn a_request_without_an_end_is_refused_when_it_is_too_long() {
    let mut web = WebSocketLayer::new(site());
    let mut bytes = b"GET /mqtt HTTP/1.1\r\n".to_vec();
    while bytes.len() < HEAD_BYTES_MAX {
        bytes.extend_from_slice(b"X: y\r\n");
    }
    let (last, rest) = (bytes[HEAD_BYTES_MAX - 1..].to_vec(), &bytes[..HEAD_BYTES_MAX - 1]);
    for piece in rest.chunks(7) {
        assert_eq!(take(&mut web, piece), (Vec::new(), Vec::new(), Ok(false)));
    }
    assert!(web.held_bytes() <= 2 * HEAD_BYTES_MAX);
    assert_eq!(take(&mut web, &last).2, Err(WebSocketError::Request(UpgradeRefusal::Headers)));
}

#[test]
fn origins_are_those_of_the_list_or_of_this_host() {
    let ask = |origins: &AllowedOrigins, origin: &str| {
        let site = Arc::new(WebSocketSite { origins: origins.clone(), ..WebSocketSite::default() });
        let request = REQUEST.replace("http://example.com", origin);
        take(&mut WebSocketLayer::new(site), request.as_bytes()).2
    };
    let listed = AllowedOrigins::Listed(vec!["https://a.example".into(), "null".into()]);
    let (yes, no) = (Ok(false), Err(WebSocketError::Request(UpgradeRefusal::Origin)));
    for (origins, origin, expected) in [
        (&AllowedOrigins::Any, "https://evil.example", yes),
        (&listed, "https://a.example", yes),
        (&listed, "https://A.example", yes),
        (&listed, "null", yes),
        (&listed, "http://a.example", no),
        (&listed, "https://a.example:444", no),
        (&listed, "https://a.example.evil.example", no),
        (&listed, "https://a.example\r\nOrigin: https://evil.example", no),
        (&AllowedOrigins::ThisHost, "http://localhost:3000", yes),
        (&AllowedOrigins::ThisHost, "https://127.0.0.1", yes),
        (&AllowedOrigins::ThisHost, "http://[::1]:80", yes),
        (&AllowedOrigins::ThisHost, "http://localhost.evil.example", no),
        (&AllowedOrigins::ThisHost, "https://evil.example:1883", no),
        (&AllowedOrigins::ThisHost, "null", no),
    ] {
        assert_eq!(ask(origins, origin), expected, "{origins:?} {origin}");
    }
    // A client that is not a browser sends no Origin.
    let request = REQUEST.replace("Origin: http://example.com\r\n", "");
    let site = Arc::new(WebSocketSite { origins: listed, ..WebSocketSite::default() });
    assert_eq!(take(&mut WebSocketLayer::new(site), request.as_bytes()).2, yes);
}

#[test]
fn a_proxy_names_its_client_in_a_header() {
    let ask = |header: &str| {
        let header_name = Some("x-forwarded-for".to_string());
        let site =
            Arc::new(WebSocketSite { address_header: header_name, ..WebSocketSite::default() });
        let mut web = WebSocketLayer::new(site);
        let request = REQUEST.replace("Origin: http://example.com", header);
        let ended = take(&mut web, request.as_bytes()).2;
        ended.map(|_| web.take_named_client().map(|address| address.to_string()))
    };
    for (header, named) in [
        ("X-Forwarded-For: 192.0.2.44", "192.0.2.44:0"),
        ("x-forwarded-for:  192.0.2.44 , 198.51.100.7", "192.0.2.44:0"),
        ("X-Forwarded-For: 192.0.2.44:4711", "192.0.2.44:4711"),
        ("X-Forwarded-For: 2001:db8::1", "[2001:db8::1]:0"),
        ("X-Forwarded-For: [2001:db8::1]", "[2001:db8::1]:0"),
        ("X-Forwarded-For: [2001:db8::1]:4711, 192.0.2.1", "[2001:db8::1]:4711"),
    ] {
        assert_eq!(ask(header), Ok(Some(named.to_string())), "{header}");
    }
    assert_eq!(ask("Forwarded: for=192.0.2.44"), Ok(None));
    for header in [
        "X-Forwarded-For:",
        "X-Forwarded-For: unknown",
        "X-Forwarded-For: 192.0.2.256",
        "X-Forwarded-For: , 192.0.2.1",
        "X-Forwarded-For: [192.0.2.1",
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2",
    ] {
        let refused = Err(WebSocketError::Request(UpgradeRefusal::ClientAddress));
        assert_eq!(ask(header), refused, "{header}");
    }
    // Without the option the header is ignored.
    let mut web = WebSocketLayer::new(site());
    let request = REQUEST.replace("Origin: http://example.com", "X-Forwarded-For: unknown");
    assert_eq!(take(&mut web, request.as_bytes()).2, Ok(false));
    assert_eq!(web.take_named_client(), None);
}

// [MQTT-6.0.0-1]
#[test]
fn the_rfcs_frames_are_read() {
    // 5.7: a single masked frame, here a binary one.
    let hello = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(take(&mut open(), &hello), (b"Hello".to_vec(), vec![], Ok(false)));
    // In the RFC the frame is text.
    let text = [&[0x81], &hello[1..]].concat();
    let (said, answer, ended) = take(&mut open(), &text);
    assert_eq!((said.len(), ended), (0, Err(WebSocketError::Frame(FrameError::Text))));
    assert_eq!(answer[..4], [0x88, 29, 0x03, 0xeb], "1003 and words: {answer:x?}");
    // A fragmented message, with a ping and an unsolicited pong between.
    let pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let pieces = [masked(0x02, b"Hel"), masked(0x89, b"Hello"), pong.to_vec(), masked(0x80, b"lo")];
    let pongs = b"\x8a\x05Hello".to_vec();
    assert_eq!(take(&mut open(), &pieces.concat()), (b"Hello".to_vec(), pongs, Ok(false)));
    // 256 bytes, and 64 KiB.
    for len in [0, 125, 126, 256, 65_535, 65_536, 70_001] {
        let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let (said, answer, ended) = take(&mut open(), &masked(0x82, &payload));
        assert!(said == payload && answer.is_empty() && ended == Ok(false), "{len}");
    }
}

// [MQTT-6.0.0-2]
#[test]
fn frames_come_in_any_pieces() {
    let payload: Vec<u8> = (0..300_u32).map(|at| at as u8).collect();
    let frames = [
        masked(0x02, &payload),
        masked(0x00, b""),
        masked(0x89, b"are you there"),
        masked(0x00, b"middle"),
        masked(0x80, &payload[..200]),
        masked(0x82, b""),
        masked(0x82, b"x"),
    ];
    let (frames, expected) =
        (frames.concat(), [&payload[..], b"middle", &payload[..200], b"x"].concat());
    for len in 1..40 {
        let (mut web, mut all, mut pongs) = (open(), Vec::new(), Vec::new());
        for piece in frames.chunks(len) {
            let (said, answers, ended) = take(&mut web, piece);
            assert_eq!(ended, Ok(false));
            all.extend(said);
            pongs.extend(answers);
        }
        assert_eq!(all, expected, "{len}");
        assert_eq!(pongs, b"\x8a\x0dare you there");
    }
}

#[test]
fn what_no_client_may_send_closes_with_its_code() {
    let long = |bytes: &[u8]| [&[0x82, 0x80 | 127][..], bytes, &KEY].concat();
    let short = |bytes: &[u8]| [&[0x82, 0x80 | 126][..], bytes, &KEY].concat();
    for (bytes, wrong, code) in [
        (vec![0x82, 0x01], FrameError::Unmasked, 1002),
        (vec![0xc2, 0x81], FrameError::Reserved, 1002),
        (vec![0x92, 0x81], FrameError::Reserved, 1002),
        (vec![0x83, 0x81], FrameError::Opcode, 1002),
        (vec![0x8b, 0x81], FrameError::Opcode, 1002),
        (vec![0x01, 0x81], FrameError::Text, 1003),
        (vec![0x89, 0x80 | 126], FrameError::Control, 1002),
        (vec![0x09, 0x80], FrameError::Control, 1002),
        (masked(0x80, b"x"), FrameError::Fragment, 1002),
        ([masked(0x02, b""), masked(0x82, b"")].concat(), FrameError::Fragment, 1002),
        (short(&[0, 125]), FrameError::Length, 1002),
        (long(&[0, 0, 0, 0, 0, 0, 0xff, 0xff]), FrameError::Length, 1002),
        (long(&[0x80, 0, 0, 0, 0, 1, 0, 0]), FrameError::Length, 1002),
        (long(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), FrameError::TooLong, 1009),
        (long(&[0, 0, 0, 0, 0x10, 0, 0, 5]), FrameError::TooLong, 1009),
    ] {
        let mut web = open();
        let before = take(&mut web, &masked(0x82, b"good"));
        assert_eq!(before, (b"good".to_vec(), vec![], Ok(false)));
        let (said, answer, ended) = take(&mut web, &bytes);
        assert_eq!((said, ended), (vec![], Err(WebSocketError::Frame(wrong))), "{bytes:x?}");
        assert_eq!(answer[0], 0x88);
        assert_eq!(usize::from(answer[1]), answer.len() - 2);
        assert_eq!(answer[2..4], u16::to_be_bytes(code), "{bytes:x?}");
        assert_eq!(answer[4..], *wrong.to_string().as_bytes());
    }
    // A frame as long as the longest packet is accepted.
    assert_eq!(take(&mut open(), &long(&[0, 0, 0, 0, 0x10, 0, 0, 4])).2, Ok(false));
}

#[test]
fn what_came_before_a_wrong_frame_is_heard() {
    let bytes = [masked(0x82, b"packet"), vec![0x81, 0x80]].concat();
    let (said, _, ended) = take(&mut open(), &bytes);
    assert_eq!((said, ended), (b"packet".to_vec(), Err(WebSocketError::Frame(FrameError::Text))));
}

#[test]
fn a_close_is_answered_with_its_code_and_nothing_after_it_is_heard() {
    for (says, answers) in [
        (&b""[..], &b"\x88\0"[..]),
        (b"\x03\xe8", b"\x88\x02\x03\xe8"),
        (b"\x03\xe9bye", b"\x88\x02\x03\xe9"),
        (b"\x0f\xa0", b"\x88\x02\x0f\xa0"),
    ] {
        let bytes = [masked(0x82, b"x"), masked(0x88, says), masked(0x82, b"y")].concat();
        assert_eq!(take(&mut open(), &bytes), (b"x".to_vec(), answers.to_vec(), Ok(true)));
    }
    for (says, wrong, code) in [
        (&b"\x03"[..], FrameError::Close, 1002_u16),
        // 1005, 1006 and 1015 are never sent (7.4.1).
        (b"\x03\xed", FrameError::Close, 1002),
        (b"\x03\xee", FrameError::Close, 1002),
        (b"\x03\xf7", FrameError::Close, 1002),
        (b"\x00\x01", FrameError::Close, 1002),
        (b"\x13\x88", FrameError::Close, 1002),
        (b"\x03\xe8\xff", FrameError::CloseText, 1007),
    ] {
        let (_, answer, ended) = take(&mut open(), &masked(0x88, says));
        assert_eq!(ended, Err(WebSocketError::Frame(wrong)), "{says:x?}");
        assert_eq!(answer[2..4], code.to_be_bytes());
    }
}

#[test]
fn many_pings_have_one_answer() {
    let pings: Vec<u8> = (0..100_u8).flat_map(|at| masked(0x89, &[at; 125])).collect();
    let (_, answers, _) = take(&mut open(), &pings);
    assert_eq!(answers, [&[0x8a, 125][..], &[99; 125]].concat());
}

#[test]
fn our_frames_have_the_shortest_header() {
    for (len, header) in [
        (1, &[0x82, 1][..]),
        (125, &[0x82, 125]),
        (126, &[0x82, 126, 0, 126]),
        (65_532, &[0x82, 126, 0xff, 0xfc]),
    ] {
        let mut bytes = vec![0xee; HEADER_ROOM + len];
        let from = wrap_in_place(&mut bytes);
        assert_eq!(bytes[from..HEADER_ROOM], *header);
    }
    let mut last = Vec::new();
    open().close(false, &mut last);
    assert_eq!(last, b"\x88\x02\x03\xe8", "1000, with nothing to add");
    last.clear();
    open().close(true, &mut last);
    assert_eq!(last, b"\x88\x02\x03\xe9", "1001");
    last.clear();
    WebSocketLayer::new(site()).close(false, &mut last);
    assert_eq!(last, b"", "nobody to say it to");
}
