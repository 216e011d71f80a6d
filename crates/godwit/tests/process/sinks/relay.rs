//! A TCP relay to a server that delays the server's responses, or withholds them.

use super::contract::OURS;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

pub(super) struct TcpRelay {
    to: u16,
    pub(super) port: u16,
    late_ms: Arc<AtomicU64>,
}

/// Delay that is longer than any test waits, in milliseconds.
pub(super) const NEVER: u64 = u64::MAX;

impl TcpRelay {
    /// Starts a relay to a port, without a delay. Connections are closed while the server is down.
    pub(super) fn to(to: u16) -> TcpRelay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let late_ms: Arc<AtomicU64> = Arc::default();
        let relay = TcpRelay { to, port, late_ms: late_ms.clone() };
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let ways = [(&near, &far, Arc::default()), (&far, &near, late_ms.clone())];
                for (from, to, late_ms) in ways {
                    let (from, to) = (from.try_clone().expect(OURS), to.try_clone().expect(OURS));
                    thread::spawn(move || carry(from, to, &late_ms));
                }
            }
        });
        relay
    }

    pub(super) fn late(&self, ms: u64) {
        self.late_ms.store(ms, SeqCst);
    }

    /// Replaces the server's port in options by the port of the relay.
    pub(super) fn instead(&self, options: &str) -> String {
        options.replace(&format!(":{}", self.to), &format!(":{}", self.port))
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, late_ms: &AtomicU64) {
    let mut bytes = [0; 65536];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        match late_ms.load(SeqCst) {
            NEVER => continue,
            ms => thread::sleep(Duration::from_millis(ms)),
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
