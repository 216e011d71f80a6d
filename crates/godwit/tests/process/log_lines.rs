//! Log lines about floods and refused clients: the counts are complete, and each line names the
//! option that decides.

use crate::broker::{PATIENCE, TestBroker, godwit, run, scratch};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Connects a client of MQTT 3.1.1 with a keep-alive, and waits for CONNACK.
fn client(broker: &TestBroker, id: &str, keep_alive_s: u16) -> TcpStream {
    let mut packet = vec![0x10, 12 + id.len() as u8, 0, 4];
    packet.extend_from_slice(b"MQTT\x04\x02");
    packet.extend_from_slice(&keep_alive_s.to_be_bytes());
    packet.extend_from_slice(&(id.len() as u16).to_be_bytes());
    packet.extend_from_slice(id.as_bytes());
    let mut stream = TcpStream::connect(broker.address).expect("it listens");
    stream.write_all(&packet).expect("it is open");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("CONNACK");
    assert_eq!(answer, [0x20, 2, 0, 0]);
    stream
}

/// Encodes a QoS 1 PUBLISH to a topic of four characters.
fn publish(topic: &str, id: u8) -> Vec<u8> {
    [&[0x32, 9, 0, 4], topic.as_bytes(), &[0, id, b'x']].concat()
}

/// Waits until the sum of the numbers after `count=`, in log lines that contain `text`, reaches
/// `count`.
fn counted(broker: &mut TestBroker, text: &str, count: u64) {
    let began = Instant::now();
    let mut sum = 0;
    while sum < count {
        assert!(began.elapsed() < PATIENCE, "{sum} of {count}: {:?}", broker.program.seen());
        let line = broker.program.wait_for(text);
        let number = line.split("count=").nth(1).expect("a count");
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        sum += digits.parse::<u64>().expect("a number");
    }
    assert_eq!(sum, count);
}

#[test]
fn counts_that_are_withheld_come_though_nothing_else_happens() {
    let rules = scratch("log-counts").join("acl.toml");
    std::fs::write(&rules, "[[rule]]\nallow = \"all\"\ntopic = \"ok/#\"\n").expect("a file");
    let set = format!("acl.file={}", rules.display());
    let mut broker = TestBroker::start(&["--set", &set]);
    let mut one = client(&broker, "one", 0);
    for id in 1..=7 {
        one.write_all(&publish("no/1", id)).expect("it is open");
    }
    counted(&mut broker, "not permitted", 7);
    let port = broker.port();
    let away = ["sub", "-p", &port, "-i", "away", "-c", "-q", "1", "-t", "ok/#", "-E"];
    assert_eq!(run(&away).0, Some(0));
    for _ in 0..9 {
        let qos0 = [&[0x30, 7, 0, 4][..], b"ok/1", b"x"].concat();
        one.write_all(&qos0).expect("it is open");
    }
    counted(&mut broker, "messages dropped", 9);
    let dropped = broker.program.seen().iter().find(|line| line.contains("messages dropped"));
    assert!(dropped.is_some_and(|line| line.contains("queue.qos0")), "{dropped:?}");
}

#[test]
fn counts_that_are_withheld_come_when_the_process_ends() {
    let rules = scratch("log-end").join("acl.toml");
    std::fs::write(&rules, "[[rule]]\nallow = \"all\"\ntopic = \"ok/#\"\n").expect("a file");
    let set = format!("acl.file={}", rules.display());
    let mut broker = TestBroker::start(&["--set", &set]);
    let mut one = client(&broker, "one", 0);
    for id in 1..=7 {
        one.write_all(&publish("no/1", id)).expect("it is open");
    }
    broker.program.wait_for("not permitted");
    broker.program.signal("TERM");
    let line = broker.program.wait_for("not permitted");
    assert!(line.contains("count=6"), "{line}");
}

#[test]
fn a_packet_that_is_too_large_is_told_of_with_its_size_and_the_limit() {
    let mut broker = TestBroker::start(&["--set", "connection.packet_bytes_max=64KiB"]);
    let mut camera = client(&broker, "camera", 0);
    // 3,000,000 bytes are announced.
    camera.write_all(&[0x32, 0xC0, 0x8D, 0xB7, 0x01]).expect("it is open");
    let line = broker.program.wait_for("the client broke the protocol");
    assert!(line.contains("3000005 bytes"), "{line}");
    assert!(line.contains("connection.packet_bytes_max = 65536"), "{line}");
}

#[test]
fn a_client_that_cannot_be_told_keeps_its_keep_alive() {
    let mut broker = TestBroker::start(&["--set", "connect.keep_alive_s_max=1"]);
    let mut meter = client(&broker, "meter", 60);
    let line = broker.program.wait_for("client connected");
    assert!(line.contains("keep_alive_s=60"), "{line}");
    assert!(line.contains("connect.keep_alive_s_max"), "{line}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    meter.write_all(&[0xC0, 0]).expect("it is open");
    let mut answer = [0; 2];
    meter.read_exact(&mut answer).expect("it was not cut");
    assert_eq!(answer, [0xD0, 0]);
}

#[test]
fn whoever_begins_with_something_else_is_told_of_by_what_it_was() {
    let mut broker = TestBroker::start(&["--set", "connect.timeout_ms=1000"]);
    for (says, told) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "text, as of HTTP"),
        (&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3], "are TLS"),
        (&[0xC0, 0], "PingReq"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "(proxy.protocol = true)"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "(proxy.protocol = true)"),
        (b"\x10\x0c\0\x04MQTT\x09\x02\0\x3c\0\0", "with level 9: 3 (MQTT 3.1"),
        (b"\x10\xff\xff\xff\x7f", "a CONNECT of 268435460 bytes, and the most is"),
        (b"\x10\xff\xff\xff\xff", "more than four bytes"),
        (b"", "connect.timeout_ms = 1000"),
    ] {
        let mut stream = TcpStream::connect(broker.address).expect("it listens");
        stream.write_all(says).expect("it is open");
        let line = broker.program.wait_for("the client broke the protocol");
        assert!(line.contains(told), "{told}: {line}");
    }
}

#[test]
fn an_invalid_topic_or_filter_is_named_with_its_reason() {
    let mut broker = TestBroker::start(&[]);
    let long = [&b"\x30\x86\x08\x04\x03"[..], &[b'#'; 1027], b"x"].concat();
    for (says, told) in [
        (&b"\x30\x05\0\x03a/+"[..], r#"\"a/+\" has a wildcard (+ or #)"#),
        (&long, r##"####...\" has a wildcard"##),
        (b"\x82\x0a\0\x01\0\x05a/#/b\0", r##"\"a/#/b\" has a # that is not the last"##),
        (b"\x82\x07\0\x01\0\x02a+\0", r#"\"a+\" has a wildcard (+ or #) that is not"#),
        (b"\xa2\x06\0\x01\0\x02a#", r##"\"a#\" has a wildcard"##),
    ] {
        let mut stream = client(&broker, "c", 60);
        stream.write_all(says).expect("it is open");
        let line = broker.program.wait_for("the client broke the protocol");
        assert!(line.contains(told) || line.contains(&told.replace('\\', "")), "{told}: {line}");
    }
}

#[test]
fn an_invalid_will_topic_is_named_with_its_reason() {
    let mut broker = TestBroker::start(&[]);
    let mut is_told = |level: u8, topic: &[u8], told: &str| {
        let properties: &[u8] = if level == 5 { &[0] } else { &[] };
        let body = [
            &[0, 4, b'M', b'Q', b'T', b'T', level, 0x06, 0, 60][..],
            properties,
            b"\0\x01w",
            properties,
            &[0, topic.len() as u8],
            topic,
            b"\0\x01x",
        ];
        let body = body.concat();
        let mut stream = TcpStream::connect(broker.address).expect("it listens");
        stream.write_all(&[&[0x10, body.len() as u8], &body[..]].concat()).expect("it is open");
        let line = broker.program.wait_for("the client broke the protocol").replace('\\', "");
        assert!(line.contains(told), "{level}: {told}: {line}");
    };
    for level in [4, 5] {
        is_told(level, b"a/+", r#"the will topic "a/+" has a wildcard (+ or #)"#);
        is_told(level, b"", r#"the will topic "" is empty"#);
        is_told(level, b"a\xff", r#"the will topic "axff" is not UTF-8"#);
        is_told(level, b"a\0", r#"has a NUL character"#);
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_named_whole_with_its_option() {
    let folder = scratch("log-folder");
    std::fs::write(folder.join("in-the-way"), "").expect("a file");
    let mut command = godwit(&["--data", "in-the-way", "--listen", "tcp://127.0.0.1:0"]);
    let output = command.current_dir(&folder).output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    let whole = folder.join("in-the-way");
    assert!(!output.status.success());
    assert!(said.contains(whole.to_str().expect("a path in UTF-8")), "{said}");
    assert!(said.contains("option data") && said.contains("--memory"), "{said}");
}
