//! Who may not come in, and how many may, over real sockets.

use crate::broker::{Broker, run, scratch};
use crate::doors::{CONNACK, CONNECT, Certs, Doors, refs};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection that waits for what it reads, but not for ever.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the kernel takes it");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout can be set");
    stream
}

/// What comes until the broker closes, or as much of it as is awaited.
fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    let mut len = 0;
    while len < bytes {
        match stream.read(&mut all[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            // Closed before all that we said was read.
            Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(fault) => panic!("nothing came: {fault}"),
        }
    }
    all.truncate(len);
    all
}

/// A client of 3.1.1 that is in.
fn welcomed(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(CONNECT).expect("it is open");
    assert_eq!(read(&mut stream, CONNACK.len()), CONNACK);
    stream
}

/// Whether a client is let in within a second: what makes room for it the broker learns in its own
/// time.
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
    let mut broker = Broker::start(&["--set", &set]);
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

/// Tells a client of 3.1.1 that there is no room.
const UNAVAILABLE: &[u8] = b"\x20\x02\0\x03";

#[test]
fn a_listener_has_room_for_so_many_and_another_one_for_more() {
    let file = scratch("limits-connections").join("godwit.toml");
    let text = "[[listener]]\nurl = \"tcp://127.0.0.1:0\"\nlimits.connections_max = 1\n\
                [[listener]]\nurl = \"tcp://127.0.0.1:0\"\n";
    std::fs::write(&file, text).expect("it can be written");
    let broker = Doors::start(&["--config", file.to_str().expect("a path in UTF-8")]);
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
    let broker = Broker::start(&["--set", "limits.connections_per_s=2"]);
    let began = std::time::Instant::now();
    let all = [0; 4].map(|_| welcomed(broker.address));
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    drop(all);
}

#[test]
fn whoever_only_shakes_hands_is_counted_and_the_next_one_costs_no_handshake() {
    let certs = Certs::new("limits-tls");
    let set = ["--set", "limits.address_connections_max=1"];
    let arguments =
        certs.serve(&[&["--listen", "tls://127.0.0.1:0", "--shards", "2"], &set[..]].concat());
    let mut broker = Doors::start(&refs(&arguments));
    let address = format!("127.0.0.1:{}", broker.port(0)).parse().expect("an address");
    let first = connect(address);
    assert_eq!(read(&mut connect(address), 1), b"");
    broker.program.wait_for("connections turned away");
    drop(first);
}

#[test]
fn whoever_talks_too_fast_waits_and_loses_nothing() {
    let broker = Broker::start(&["--set", "limits.messages_per_s=2"]);
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
