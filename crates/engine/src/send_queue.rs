//! Bytes given to a socket that the peer does not have yet. A successful `write` only says that
//! this system has the bytes; code that must know about their arrival, without an answer of the
//! peer, asks here.
#![expect(unsafe_code, reason = "ioctl(2) has no safe wrapper for these")]

use rustix::ioctl::{Getter, Opcode, ioctl};
use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

/// SIOCOUTQ of tcp(7). For a unix socket the count has some overhead and covers bytes which the
/// program at the far end has not read (unix(7)).
const NOT_ACKNOWLEDGED: Opcode = libc::TIOCOUTQ as Opcode;
/// SIOCOUTQNSD of <linux/sockios.h>: bytes never sent so far.
const NOT_SENT: Opcode = 0x894b;

/// Returns the number of bytes not acknowledged by the system of the peer.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    query_socket::<NOT_ACKNOWLEDGED>(socket)
}

/// Returns the number of bytes not sent yet, because the peer has no room for more. TCP only.
pub fn unsent_bytes(socket: impl AsFd) -> io::Result<usize> {
    query_socket::<NOT_SENT>(socket)
}

/// # Safety
///
/// Both requests write one `c_int` through the pointer and touch no more memory (tcp(7)); a
/// [`Getter`] of `c_int` has room for exactly this. The descriptor is borrowed for the call. A
/// descriptor of anything but a socket gives an error without a write.
fn query_socket<const REQUEST: Opcode>(socket: impl AsFd) -> io::Result<usize> {
    // SAFETY: see above.
    let bytes = unsafe { ioctl(socket.as_fd(), Getter::<REQUEST, c_int>::new()) }?;
    Ok(usize::try_from(bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    fn soon(what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::yield_now();
        }
    }

    /// Writes as many bytes as fit, and returns their number.
    fn fill(mut socket: impl Write) -> usize {
        let mut all = 0;
        while let Ok(len) = socket.write(&[7; 65_536]) {
            all += len;
        }
        all
    }

    #[test]
    fn what_a_peer_has_no_room_for_is_under_way_and_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        (&ours).write_all(b"a").unwrap();
        soon("it arrives though nobody reads", || unacknowledged_bytes(&ours).unwrap() == 0);
        let all = fill(&ours);
        let here = || unacknowledged_bytes(&ours).unwrap();
        soon("what was sent arrives", || here() == unsent_bytes(&ours).unwrap());
        assert!(here() > 0 && here() < all, "{} of {all}", here());
        theirs.read_exact(&mut vec![0; 1 + all]).unwrap();
        soon("the rest arrives", || here() == 0 && unsent_bytes(&ours).unwrap() == 0);
    }

    #[test]
    fn what_nobody_has_read_of_a_unix_socket_is_under_way() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let all = fill(&ours);
        assert!(unacknowledged_bytes(&ours).unwrap() >= all);
        assert!(unsent_bytes(&ours).is_err());
        theirs.read_exact(&mut vec![0; all]).unwrap();
        assert_eq!(unacknowledged_bytes(&ours).unwrap(), 0);
    }
}
