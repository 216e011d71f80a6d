//! Limits on connections and rates, and bans, over real sockets.

use crate::broker::{TestBroker, run, scratch};
use crate::doors::{CONNACK, CONNECT, CertificateFolder, ListenerBroker, refs};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Connects with a read timeout of ten seconds.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the kernel takes it");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout can be set");
    stream
}

/// Reads up to `bytes` bytes, or to the end of the connection.
fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    let mut len = 0;
    while len < bytes {
        match stream.read(&mut all[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            // The broker closed the connection before it had read all bytes.
            Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(fault) => panic!("nothing came: {fault}"),
        }
    }
    all.truncate(len);
    all
}

/// Connects a client of MQTT 3.1.1, and checks its CONNACK.
fn welcomed(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(CONNECT).expect("it is open");
    assert_eq!(read(&mut stream, CONNACK.len()), CONNACK);
    stream
}

/// Returns whether the broker admits a client within about a second. The broker notices a closed
/// connection with a delay, so several attempts are made.
fn comes_in(address: SocketAddr) -> bool {
    (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let mut stream = connect(address);
        // Whoever is turned away may have been so before it said anything.
        stream.write_all(CONNECT).is_ok() && read(&mut stream, CONNACK.len()) == CONNACK
    })
}

#[test]
fn a_list_of_bans_holds_for_who_comes_and_for_who_is_in() {
    let file = scratch("limits-bans").join("bans.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("it can be written");
    write("[[ban]]\nclient_id = \"bad-*\"\nreason = \"it floods\"\n");
    let set = format!("bans.file={}", file.to_str().expect("a path in UTF-8"));
    let mut broker = TestBroker::start(&["--set", &set]);
    let port = broker.port();
    let say = |id: &str, version: &str| {
        run(&["pub", "-p", &port, "-i", id, "-V", version, "-q", "1", "-t", "t", "-m", "x"]).0
    };
    assert_eq!(say("good-1", "5"), Some(0));
    assert_eq!([say("bad-1", "5"), say("bad-1", "311")], [Some(138), Some(5)]);
    let line = broker.program.wait_for("the client is banned");
    assert!(line.contains("bad-1") && line.contains("it floods"), "{line}");
    let mut inside = welcomed(broker.address);
    // A wrong list changes nothing, and says where it is wrong.
    write("[[ban]]\nclient = \"c\"\n");
    broker.program.signal("HUP");
    let line = broker.program.wait_for("not reloaded");
    assert!(line.contains("bans.toml:2: a ban has no client"), "{line}");
    write("[[ban]]\naddress = \"127.0.0.0/8\"\n");
    broker.program.signal("HUP");
    assert_eq!(read(&mut inside, 1), b"");
    // Not a byte is needed to be turned away, and none is answered.
    assert_eq!(read(&mut connect(broker.address), 1), b"");
    broker.program.wait_for("connections turned away");
    write("");
    broker.program.signal("HUP");
    assert!(comes_in(broker.address));
}

/// CONNACK of MQTT 3.1.1 with return code 3, server unavailable.
const UNAVAILABLE: &[u8] = b"\x20\x02\0\x03";

#[test]
fn a_listener_has_room_for_so_many_and_another_one_for_more() {
    let file = scratch("limits-connections").join("godwit.toml");
    let text = "[[listener]]\nurl = \"tcp://127.0.0.1:0\"\nlimits.connections_max = 1\n\
                [[listener]]\nurl = \"tcp://127.0.0.1:0\"\n";
    std::fs::write(&file, text).expect("it can be written");
    let broker = ListenerBroker::start(&["--config", file.to_str().expect("a path in UTF-8")]);
    let at = |at: usize| broker.urls[at].trim_start_matches("tcp://").parse().expect("an address");
    let (narrow, wide) = (at(0), at(1));
    let first = welcomed(narrow);
    let mut second = connect(narrow);
    second.write_all(CONNECT).expect("it is open");
    assert_eq!(read(&mut second, UNAVAILABLE.len() + 1), UNAVAILABLE);
    let others = [0; 3].map(|_| welcomed(wide));
    drop((first, others));
    assert!(comes_in(narrow));
}

#[test]
fn above_its_rate_a_listener_has_clients_wait_and_refuses_nobody() {
    let broker = TestBroker::start(&["--set", "limits.connections_per_s=2"]);
    let began = std::time::Instant::now();
    let all = [0; 4].map(|_| welcomed(broker.address));
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    drop(all);
}

#[test]
fn whoever_only_shakes_hands_is_counted_and_the_next_one_costs_no_handshake() {
    let certs = CertificateFolder::new("limits-tls");
    let set = ["--set", "limits.address_connections_max=1"];
    let arguments =
        certs.serve(&[&["--listen", "tls://127.0.0.1:0", "--shards", "2"], &set[..]].concat());
    let mut broker = ListenerBroker::start(&refs(&arguments));
    let address = format!("127.0.0.1:{}", broker.port(0)).parse().expect("an address");
    let first = connect(address);
    assert_eq!(read(&mut connect(address), 1), b"");
    broker.program.wait_for("connections turned away");
    drop(first);
}

#[test]
fn whoever_talks_too_fast_waits_and_loses_nothing() {
    let broker = TestBroker::start(&["--set", "limits.messages_per_s=2"]);
    let mut stream = welcomed(broker.address);
    let began = std::time::Instant::now();
    let publish = |id: u8| [0x32, 5, 0, 1, b't', 0, id];
    stream.write_all(&[publish(1), publish(2), publish(3), publish(4)].concat()).expect("open");
    let answers = read(&mut stream, 16);
    assert_eq!(
        answers,
        [[0x40, 2, 0, 1], [0x40, 2, 0, 2], [0x40, 2, 0, 3], [0x40, 2, 0, 4]].concat()
    );
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}

/// Encodes a CONNECT of MQTT 3.1.1 with a user name and a password.
fn connect_as(client_id: &str, user: &str, password: &str) -> Vec<u8> {
    let mut body = b"\0\x04MQTT\x04\xc2\0\0".to_vec();
    for text in [client_id, user, password] {
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    [&[0x10, body.len() as u8], &body[..]].concat()
}

#[test]
fn a_group_of_users_and_a_listener_have_limits_of_their_own() {
    let folder = scratch("limits-groups");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    for user in ["ann", "bob"] {
        assert_eq!(run(&["passwd", "-b", &path("users"), user, "secret"]).0, Some(0));
    }
    let rules = "[groups]\nfew = [\"ann\"]\n[[rule]]\nallow = \"all\"\n";
    std::fs::write(path("acl.toml"), rules).expect("it can be written");
    let write = |group: &str| {
        let (users, acl) = (path("users"), path("acl.toml"));
        let text = format!(
            "auth.users = \"{users}\"\nacl.file = \"{acl}\"\n\
             [[listener]]\nurl = \"tcp://127.0.0.1:0\"\nconnection.packet_bytes_max = 1024\n\
             [[listener]]\nurl = \"tcp://127.0.0.1:0\"\n{group}"
        );
        std::fs::write(path("godwit.toml"), text).expect("it can be written");
    };
    let group = "[[group]]\nname = \"few\"\nlimits.connections_max = ";
    write(&format!("{group}1\n"));
    let broker = ListenerBroker::start(&["--config", &path("godwit.toml"), "--shards", "2"]);
    let at = |at: usize| broker.urls[at].trim_start_matches("tcp://").parse().expect("an address");
    let (narrow, wide): (SocketAddr, SocketAddr) = (at(0), at(1));
    let knock = |address: SocketAddr, client_id: &str, user: &str| {
        let mut stream = connect(address);
        stream.write_all(&connect_as(client_id, user, "secret")).expect("it is open");
        let answer = read(&mut stream, CONNACK.len());
        (stream, answer)
    };
    // Ids of several homes, so that both shards count.
    let first = knock(wide, "a1", "ann");
    assert_eq!(first.1, CONNACK);
    let others: Vec<_> = (0..4).map(|at| knock(wide, &format!("b{at}"), "bob")).collect();
    assert!(others.iter().all(|(_, answer)| answer == CONNACK));
    for at in 2..6 {
        assert_eq!(knock(wide, &format!("a{at}"), "ann").1, UNAVAILABLE);
    }
    // A reload that allows one more counts who is there already.
    write(&format!("{group}2\n"));
    broker.program.signal("HUP");
    let second = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let (stream, answer) = knock(wide, "a7", "ann");
        (answer == CONNACK).then_some(stream)
    });
    assert!(second.is_some());
    assert_eq!(knock(wide, "a8", "ann").1, UNAVAILABLE);
    drop(first);
    assert!((0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        knock(wide, "a9", "ann").1 == CONNACK
    }));
    // What is too large for one listener is not for the other.
    let large = [&[0x30, 0x83, 0x10, 0, 1, b't'], &[b'x'; 2048][..]].concat();
    for (address, closes) in [(narrow, true), (wide, false)] {
        let (mut stream, answer) = knock(address, "large", "bob");
        assert_eq!(answer, CONNACK);
        stream.write_all(&large).expect("it is open");
        stream.write_all(b"\xc0\0").expect("the kernel takes it");
        let came = read(&mut stream, 2);
        assert_eq!(came, if closes { &b""[..] } else { b"\xd0\0" });
    }
}

#[test]
fn what_is_for_a_client_above_its_rate_waits_and_its_publisher_does_not() {
    let broker = TestBroker::start(&["--set", "limits.messages_out_per_s=2"]);
    let (mut subscriber, mut publisher) = (welcomed(broker.address), welcomed_as(&broker, "p"));
    subscriber.write_all(b"\x82\x06\0\x01\0\x01t\0").expect("it is open");
    assert_eq!(read(&mut subscriber, 5), b"\x90\x03\0\x01\0");
    let began = std::time::Instant::now();
    let publish = |id: u8| [0x32, 6, 0, 1, b't', 0, id, b'0' + id];
    publisher.write_all(&[1, 2, 3, 4].map(publish).concat()).expect("it is open");
    assert_eq!(read(&mut publisher, 16).len(), 16);
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    let came = read(&mut subscriber, 24);
    assert_eq!(came, [1, 2, 3, 4].map(|at| [0x30, 4, 0, 1, b't', b'0' + at]).concat());
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}

/// Connects a client with this client id, and checks its CONNACK.
fn welcomed_as(broker: &TestBroker, client_id: &str) -> TcpStream {
    let mut stream = connect(broker.address);
    stream.write_all(&connect_as(client_id, "", "")).expect("it is open");
    assert_eq!(read(&mut stream, CONNACK.len()), CONNACK);
    stream
}

/// A slow reader that is disconnected can still read all packets sent so far, whole and in order,
/// and the DISCONNECT with the reason behind them.
#[test]
fn who_is_too_slow_may_read_to_the_end_why_it_goes() {
    let broker = TestBroker::start(&[
        "--set=queue.policy=disconnect",
        "--set=queue.messages_max=10",
        "--set=connection.write_bytes_max=64KiB",
    ]);
    let mut slow = connect(broker.address);
    slow.write_all(b"\x10\x10\0\x04MQTT\x05\x02\0\0\0\0\x03s-1").expect("it is open");
    slow.write_all(b"\x82\x07\0\x01\0\0\x01t\0").expect("it is open");
    let mut packets = Vec::new();
    let mut bytes = Vec::new();
    while packets.len() < 2 {
        bytes.extend(read(&mut slow, 1));
        packets.extend(whole_packets(&mut bytes));
    }
    let mut fast = welcomed(broker.address);
    let body = [&b"\0\x01t"[..], &[b'x'; 10_000]].concat();
    let publish = [&[0x30, 0x93, 0x4e][..], &body].concat();
    let many = publish.repeat(1_000);
    fast.write_all(&many).expect("nobody waits for the slow one");
    packets.clear();
    loop {
        let more = read(&mut slow, 64 * 1024);
        if more.is_empty() {
            break;
        }
        bytes.extend(more);
        packets.extend(whole_packets(&mut bytes));
    }
    assert!(bytes.is_empty(), "the stream ended within a packet, after {} bytes", bytes.len());
    let last = packets.pop().expect("it got something");
    assert_eq!(last[..3], [0xE0, last.len() as u8 - 2, 0x97]);
    assert!((1..1_000).contains(&packets.len()), "{}", packets.len());
    // In 5.0 with its empty properties.
    assert!(packets.iter().all(|packet| packet.len() == publish.len() + 1));
}

/// Removes the complete packets from the front of `bytes`.
fn whole_packets(bytes: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Ok(Some(frame)) = mqtt::split_frame(bytes, u32::MAX) {
        packets.push(bytes.drain(..frame.len).collect());
    }
    packets
}
