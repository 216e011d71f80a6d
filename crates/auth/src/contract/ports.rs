//! Ports of servers that tests start, stop and restart on the same port.

use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// First port for servers of tests; all are below the ephemeral ports of the system.
const FIRST: u32 = 15_000;
const COUNT: u32 = 17_000;

/// Returns a free port. No other test gets the same port, and the system does not assign it while a
/// server is stopped.
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

/// Whether the port is free, checked without `listen`: a child process of another test inherits
/// descriptors until its `exec`, and a listening socket among them would block a broker that long.
fn is_free(port: u16) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into()).is_ok()
}
