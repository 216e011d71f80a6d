//! Ports of servers that tests start, stop, and start again where they were.

use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the system gives to whoever names none and to outgoing connections.
const FIRST: u32 = 15_000;
const COUNT: u32 = 17_000;

/// Nobody listens there, nor will: no test gets a port that another one has got, and the system
/// gives none of them away while a server is away for a while.
pub(super) fn free_port() -> u16 {
    static GIVEN: OnceLock<AtomicU32> = OnceLock::new();
    // Two test processes side by side begin apart.
    let given = GIVEN.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(997) % COUNT));
    loop {
        let port = FIRST + given.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(port).expect("all of them are ports");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
