//! The writes of one turn, submitted to the kernel in one call instead of one call each.
//!
//! TCP costs the same either way, but between two calls of its own a shard can be interrupted by
//! the peer that the first write has woken, while all other peers wait. One call avoids that. Where
//! the kernel has no io_uring, or does not permit it, every write is a call of its own.
#![expect(unsafe_code, reason = "io_uring(7) takes addresses, which has no safe wrapper")]

use io_uring::{IoUring, opcode, types};
use rustix::net::SendFlags;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Smallest number of writes worth a batch: fewer are not faster together.
pub(crate) const WRITES_MIN: usize = 4;
/// Entries of the submission queue of `IoUring`; the first batch allocates 24 KiB of memory for all
/// entries.
const WRITES_MAX: u32 = 256;

/// Result of one write as the kernel reports it: the number of bytes, or a negative error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendResult(i32);

impl SendResult {
    /// Marks a write which was not submitted: the caller has to use `send(2)`.
    pub(crate) const NOT: SendResult = SendResult(i32::MIN);

    pub(crate) fn is_all_of(self, len: usize) -> bool {
        usize::try_from(self.0) == Ok(len)
    }

    /// Returns the number of bytes taken by the socket. `EAGAIN`, `EINTR` and [`SendResult::NOT`]
    /// count as zero bytes.
    pub(crate) fn sent_len(self) -> io::Result<usize> {
        let fault = match usize::try_from(self.0) {
            Ok(taken) => return Ok(taken),
            Err(_) if self == SendResult::NOT => return Ok(0),
            Err(_) => io::Error::from_raw_os_error(-self.0),
        };
        match fault.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(fault),
        }
    }
}

#[derive(Default)]
pub(crate) struct BatchedSend {
    ring: UringState,
    /// Results of the last `send_all`, in the order of its writes.
    sent: Vec<SendResult>,
}

#[derive(Default)]
enum UringState {
    /// No turn had [`WRITES_MIN`] writes yet.
    #[default]
    Unopened,
    Open(Box<IoUring>),
    /// The kernel refused to create the ring, or `submit_sends` failed.
    Unavailable,
}

impl BatchedSend {
    /// Creates a sender which opens its ring at the first batch; with `io_uring` false every write
    /// is left to `send(2)`.
    pub(crate) fn new(io_uring: bool) -> BatchedSend {
        let ring = if io_uring { UringState::Unopened } else { UringState::Unavailable };
        BatchedSend { ring, sent: Vec::new() }
    }

    /// Makes each write once, without waiting for room in the socket, and returns the results in
    /// the order of `writes`. `None` skips a write, whose result is then [`SendResult::NOT`].
    pub(crate) fn send_all<'a>(
        &mut self,
        writes: impl Iterator<Item = Option<(BorrowedFd<'a>, &'a [u8])>>,
    ) -> &[SendResult] {
        let BatchedSend { ring, sent } = self;
        sent.clear();
        ring.drop_unsubmitted();
        let mut loaded = 0;
        for write in writes {
            if loaded == WRITES_MAX as usize {
                submit_sends(ring, sent, std::mem::take(&mut loaded));
            }
            if let Some((socket, bytes)) = write
                && queue_send(ring, socket, bytes, sent.len())
            {
                loaded += 1;
            }
            sent.push(SendResult::NOT);
        }
        if loaded > 0 {
            submit_sends(ring, sent, loaded);
        }
        sent
    }
}

impl UringState {
    /// Abandons a ring whose submission queue still holds entries after a panic: their buffers may
    /// be freed, so the kernel must never read the entries.
    fn drop_unsubmitted(&mut self) {
        if let UringState::Open(ring) = self
            && !ring.submission().is_empty()
        {
            *self = UringState::Unavailable;
        }
    }

    fn open(&mut self) -> Option<&mut IoUring> {
        if matches!(self, UringState::Unopened) {
            // Kernels before 5.19 do not know both flags: the shard then writes with one call each.
            let ring = IoUring::builder().setup_coop_taskrun().setup_submit_all().build(WRITES_MAX);
            *self = ring.map_or(UringState::Unavailable, |ring| UringState::Open(Box::new(ring)));
        }
        match self {
            UringState::Open(ring) => Some(ring),
            UringState::Unopened | UringState::Unavailable => None,
        }
    }
}

/// # Safety
///
/// The kernel reads the bytes while `submit_sends` runs and never later: `send_all` borrows all
/// loaded writes until `submit_sends` returns, after the kernel has completed every entry taken.
/// Entries which the kernel did not take are dropped with the ring, in `submit_sends`, or in
/// `drop_unsubmitted` where a panic of the iterator came between, before the ring is used again.
fn queue_send(ring: &mut UringState, socket: BorrowedFd<'_>, bytes: &[u8], at: usize) -> bool {
    let (Some(ring), Ok(len)) = (ring.open(), u32::try_from(bytes.len())) else { return false };
    // As a flag of send(2) this also keeps the kernel from waiting for room on our behalf.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), len)
        .flags(flags.bits().cast_signed())
        .build()
        .user_data(at as u64);
    // SAFETY: as above.
    unsafe { ring.submission().push(&entry) }.is_ok()
}

/// Submits the `loaded` entries and returns after the kernel has completed all of the entries it
/// took. A failed submission makes the ring [`UringState::Unavailable`].
fn submit_sends(ring: &mut UringState, sent: &mut [SendResult], loaded: usize) {
    let UringState::Open(open) = ring else { return };
    let mut missing = loaded;
    loop {
        // Writes that do not wait are done when the call returns, so waiting for them costs
        // nothing.
        let called = open.submit_and_wait(missing);
        for done in open.completion() {
            if let Some(sent) = sent.get_mut(done.user_data() as usize) {
                *sent = SendResult(done.result());
            }
            missing -= 1;
        }
        if missing == 0 {
            return;
        }
        let failed = called.is_err_and(|fault| fault.kind() != io::ErrorKind::Interrupted);
        if failed && open.submission().len() == missing {
            break;
        }
    }
    *ring = UringState::Unavailable;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// Opens a ring; `None` where the kernel refuses, except in CI, whose kernel has to permit
    /// io_uring.
    fn ready() -> Option<BatchedSend> {
        let mut salvo = BatchedSend::default();
        let is_open = salvo.ring.open().is_some();
        assert!(is_open || std::env::var_os("CI").is_none(), "no io_uring here");
        is_open.then_some(salvo)
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().expect("two descriptors");
        far.set_nonblocking(true).expect("a socket can");
        (near, far)
    }

    fn heard(mut far: &UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let len = far.read(&mut bytes).unwrap_or(0);
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn each_of_many_writes_arrives_where_it_belongs_and_once() {
        let Some(mut salvo) = ready() else { return };
        let pairs: Vec<_> = (0..2 * WRITES_MAX + 10).map(|_| pair()).collect();
        for round in 0..3_u32 {
            let words: Vec<_> = (0..pairs.len()).map(|at| format!("{round} {at}")).collect();
            let all = pairs.iter().zip(&words).enumerate();
            let all = all.map(|(at, ((near, _), word))| {
                (at % 7 != 3).then_some((near.as_fd(), word.as_bytes()))
            });
            let sent = salvo.send_all(all).to_vec();
            for (at, (word, (_, far))) in words.iter().zip(&pairs).enumerate() {
                let (len, said) = if at % 7 == 3 { (0, "") } else { (word.len(), &**word) };
                assert_eq!(sent[at].is_all_of(word.len()), at % 7 != 3);
                assert_eq!(sent[at].sent_len().expect("it is open"), len);
                assert_eq!(heard(far), said.as_bytes());
            }
        }
    }

    #[test]
    fn a_full_socket_takes_what_it_has_room_for_and_keeps_nobody_waiting() {
        let Some(mut salvo) = ready() else { return };
        let ((full, _far), (other, hears)) = (pair(), pair());
        let long = vec![b'x'; 64 * 1024 * 1024];
        let mut taken = 0;
        for round in 0..2 {
            let writes = [(full.as_fd(), &long[..]), (other.as_fd(), b"here")];
            let sent = salvo.send_all(writes.into_iter().map(Some)).to_vec();
            let now = sent[0].sent_len().expect("no room is not an error");
            assert!(now < long.len() && (now > 0) == (round == 0), "{now} in round {round}");
            assert!(sent[1].is_all_of(4));
            assert_eq!(heard(&hears), b"here");
            taken += now;
        }
        assert!(taken > 0);
    }

    #[test]
    fn who_has_gone_is_told_apart() {
        let Some(mut salvo) = ready() else { return };
        let ((near, far), (other, hears)) = (pair(), pair());
        drop(far);
        let writes = [(near.as_fd(), &b"gone"[..]), (other.as_fd(), b"here")];
        let sent = salvo.send_all(writes.into_iter().map(Some));
        let fault = sent[0].sent_len().expect_err("nobody is there");
        assert_eq!(fault.kind(), io::ErrorKind::BrokenPipe);
        assert!(sent[1].is_all_of(4));
        assert_eq!(heard(&hears), b"here");
    }

    #[test]
    fn without_a_ring_nothing_is_tried() {
        let (near, far) = pair();
        let mut salvo = BatchedSend::new(false);
        let sent = salvo.send_all([Some((near.as_fd(), &b"later"[..])), None].into_iter());
        assert_eq!(sent, [SendResult::NOT, SendResult::NOT]);
        assert_eq!(sent[0].sent_len().expect("it was not tried"), 0);
        assert_eq!(heard(&far), b"");
    }

    #[test]
    fn what_was_loaded_when_the_caller_panicked_is_never_sent() {
        let Some(mut salvo) = ready() else { return };
        let (near, far) = pair();
        let bytes = b"of a borrow that has ended".to_vec();
        let panics =
            (0..2).map(|at| (at == 0).then_some((near.as_fd(), &bytes[..])).or_else(|| panic!()));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            salvo.send_all(panics);
        }));
        assert!(caught.is_err());
        drop(bytes);
        let sent = salvo.send_all([Some((near.as_fd(), &b"new"[..]))].into_iter());
        assert_eq!(sent, [SendResult::NOT]);
        assert_eq!(heard(&far), b"");
    }
}
