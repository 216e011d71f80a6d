//! Ports of servers that tests start, stop, and start again where they were.

use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
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
        if is_free(port) {
            return port;
        }
    }
}

/// Asked without listening: a process that another test is just starting has what this one has open
/// until it executes its program, and a broker could not listen there that long.
fn is_free(port: u16) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into()).is_ok()
}
