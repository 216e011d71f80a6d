//! Batched writes by io_uring, observed from outside by the file descriptor of the ring.

use crate::broker::{TestBroker, run};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

const SUBSCRIBERS: usize = 10;

/// Returns whether the process has a descriptor of io_uring.
fn has_ring(process: u32) -> bool {
    let folder = format!("/proc/{process}/fd");
    let all = std::fs::read_dir(folder).expect("it runs").filter_map(Result::ok);
    let mut names = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names.any(|name| name == Path::new("anon_inode:[io_uring]"))
}

/// Connects a client that subscribes to `t` with QoS 1.
fn subscriber(broker: &TestBroker, id: usize) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address).expect("it listens");
    let id = id as u8 + b'a';
    let connect = [b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01", &[id][..]].concat();
    stream.write_all(&connect).expect("it reads");
    stream.write_all(b"\x82\x06\0\x01\0\x01t\x01").expect("it reads");
    let mut answers = [0; 9];
    stream.read_exact(&mut answers).expect("CONNACK and SUBACK come");
    assert_eq!(answers, *b"\x20\x02\0\0\x90\x03\0\x01\x01");
    stream
}

/// Checks that each subscriber receives 20 messages. Returns whether the broker has an io_uring
/// afterwards.
fn hears_all(arguments: &[&str]) -> bool {
    let broker = TestBroker::start(arguments);
    let mut streams: Vec<_> = (0..SUBSCRIBERS).map(|id| subscriber(&broker, id)).collect();
    assert!(!has_ring(broker.program.id()), "nobody had much to write yet");
    let port = broker.port();
    for round in 0..20_u8 {
        let word = format!("{round:02}");
        let published = run(&["pub", "-p", &port, "-t", "t", "-q", "1", "-m", &word]);
        assert_eq!(published.0, Some(0), "{}", published.2);
        for stream in &mut streams {
            let mut packet = [0; 9];
            stream.read_exact(&mut packet).expect("it comes");
            assert_eq!(packet[..5], *b"\x32\x07\0\x01t");
            assert_eq!(packet[7..], *word.as_bytes());
            let answer = [0x40, 2, packet[5], packet[6]];
            stream.write_all(&answer).expect("it reads");
        }
    }
    has_ring(broker.program.id())
}

#[test]
fn many_are_written_to_in_one_call_where_that_is_wanted() {
    assert!(!hears_all(&["--set", "io_uring=false"]));
    let has_ring = hears_all(&[]);
    // CI's kernel does.
    assert!(has_ring || std::env::var_os("CI").is_none(), "this kernel does not let us");
}
