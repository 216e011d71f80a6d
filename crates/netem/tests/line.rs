//! An emulated network line with the TCP and UDP of the kernel: delay, loss, reordering and rate as
//! measured by sockets.

#[allow(dead_code, reason = "tests of programs use the rest")]
#[path = "../../auth/src/contract/installed.rs"]
mod installed;

use netem::{
    CLIENT_ADDRESS, IMPAIRED_SERVER_ADDRESS, ImpairedNetwork, NetworkConditions, SERVER_ADDRESS,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

fn line(weather: NetworkConditions) -> Option<ImpairedNetwork> {
    if let Some(why) = netem::unavailable_reason() {
        installed::leave_out(&why);
        return None;
    }
    Some(ImpairedNetwork::open(weather, 1).expect("nothing is missing"))
}

/// Starts an echo server at `SERVER_ADDRESS`. Returns its port.
fn echo() -> u16 {
    let listener = TcpListener::bind((SERVER_ADDRESS, 0)).expect("this host has room for it");
    let port = listener.local_addr().expect("this host has room for it").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut from = stream.try_clone().expect("this host has room for it");
                let _ = std::io::copy(&mut from, &mut &stream);
            });
        }
    });
    port
}

/// Returns the round-trip time of one byte.
fn round(stream: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    stream.write_all(b"x").expect("somebody is there");
    stream.read_exact(&mut [0]).expect("he says it back");
    begun.elapsed()
}

#[test]
fn tcp_gets_through_late_and_loses_nothing_but_time() {
    let delay = Duration::from_millis(20);
    let weather = NetworkConditions { delay, loss_percent: 5.0, ..NetworkConditions::default() };
    let Some(line) = line(weather) else { return };
    let port = echo();
    let mut direct = TcpStream::connect((SERVER_ADDRESS, port)).unwrap();
    assert!(round(&mut direct) < delay, "not by the line");
    let mut stream = TcpStream::connect((IMPAIRED_SERVER_ADDRESS, port)).unwrap();
    assert_eq!(stream.local_addr().unwrap().ip(), CLIENT_ADDRESS);
    assert!(round(&mut stream) >= 2 * delay);
    let said: Vec<u8> = (0..500_000u32).map(|at| (at % 251) as u8).collect();
    let (mut writer, copy) = (stream.try_clone().unwrap(), said.clone());
    thread::spawn(move || writer.write_all(&copy).unwrap());
    let mut heard = vec![0; said.len()];
    stream.read_exact(&mut heard).unwrap();
    assert!(heard == said);
    assert!(line.counts().lost.load(Relaxed) > 0);
}

#[test]
fn a_line_that_is_cut_says_nothing_and_one_that_is_mended_goes_on() {
    let Some(line) = line(NetworkConditions::default()) else { return };
    let mut stream = TcpStream::connect((IMPAIRED_SERVER_ADDRESS, echo())).unwrap();
    round(&mut stream);
    line.cut();
    stream.write_all(b"x").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    line.restore();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    round(&mut stream);
}

#[test]
fn datagrams_are_lost_and_overtake_each_other() {
    let weather = NetworkConditions {
        delay: Duration::from_millis(10),
        loss_percent: 10.0,
        reorder_percent: 10.0,
        reorder_delay: Duration::from_millis(20),
        ..NetworkConditions::default()
    };
    let Some(_line) = line(weather) else { return };
    let there = UdpSocket::bind((SERVER_ADDRESS, 0)).unwrap();
    let here = UdpSocket::bind((CLIENT_ADDRESS, 0)).unwrap();
    let to = SocketAddr::from((IMPAIRED_SERVER_ADDRESS, there.local_addr().unwrap().port()));
    thread::spawn(move || {
        for number in 0..200u8 {
            here.send_to(&[number], to).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    there.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut came = Vec::new();
    let mut byte = [0];
    while there.recv(&mut byte).is_ok() {
        came.push(byte[0]);
    }
    assert!((150..200).contains(&came.len()), "{}", came.len());
    assert!(came.windows(2).any(|pair| pair[0] > pair[1]), "{came:?}");
}
