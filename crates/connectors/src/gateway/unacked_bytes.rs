//! How much of what was written to a socket has arrived at its peer. A system takes megabytes for a
//! peer that reads nothing, and loses them with the connection: what was only written is nobody's.

use crate::lock;
use engine::send_queue::{unacknowledged_bytes, unsent_bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Unacknowledged bytes of one socket, below all layers, whose buffers do not hide them.
#[derive(Debug, Default)]
pub(super) struct UnackedBytes {
    socket: Option<OwnedFd>,
    /// For a peer on this host: start and length of each write that may be unread.
    writes: Option<Mutex<VecDeque<(u64, u64)>>>,
    written: AtomicU64,
    arrived: AtomicU64,
    /// Something was sent that the peer's system has not acknowledged. Where it has no room nothing
    /// is.
    in_flight: AtomicBool,
}

impl UnackedBytes {
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Relaxed)
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn is_local(&self) -> bool {
        self.writes.is_some()
    }

    /// Resets the connection, so that bytes which have not arrived never do.
    pub(super) fn reset_connection(&self) {
        if let Some(socket) = &self.socket {
            // A system that does not let go of it may have it come twice.
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }

    fn record_write(&self, len: u64) {
        let from = self.written.fetch_add(len, Relaxed);
        if let Some(writes) = &self.writes {
            lock(writes).push_back((from, len));
        }
    }

    pub(super) fn update(&self) {
        let Some(socket) = &self.socket else { return };
        let written = self.written();
        // Who cannot say has it: there is nothing else to go by.
        let left = unacknowledged_bytes(socket).unwrap_or_default() as u64;
        if let Some(writes) = &self.writes {
            // What a process of this host left unread is under way no more once it has gone.
            if !is_peer_gone(socket) {
                self.arrived.store(read_until(&mut lock(writes), left, written), Relaxed);
            }
            return;
        }
        let unsent = unsent_bytes(socket).map_or(left, |unsent| unsent as u64);
        self.arrived.store(written.saturating_sub(left), Relaxed);
        self.in_flight.store(left > unsent, Relaxed);
    }
}

/// Returns a lower bound of the bytes that the peer has read. For a socket of this host the kernel
/// reports the memory of unread writes, which is more than their bytes.
fn read_until(writes: &mut VecDeque<(u64, u64)>, left: u64, written: u64) -> u64 {
    let (mut rest, mut unread) = (left, 0);
    // The first of them may be read in part.
    while rest > 0 && unread < writes.len() {
        let (_, len) = writes[writes.len() - 1 - unread];
        rest = rest.saturating_sub(write_cost(len));
        unread += 1;
    }
    writes.drain(..writes.len() - unread);
    writes.front().map_or(written, |(from, _)| *from)
}

/// Returns the memory that the kernel counts for a write of this length: rounded up, with an
/// overhead for each.
fn write_cost(len: u64) -> u64 {
    static COSTS: [AtomicU64; COSTS_COUNT] = [const { AtomicU64::new(0) }; COSTS_COUNT];
    let step = len.saturating_sub(1) / COST_STEP;
    let Some(cost) = COSTS.get(step as usize) else { return len };
    let known = cost.load(Relaxed);
    if known > 0 {
        return known;
    }
    let Ok(found) = measure_write_cost(step * COST_STEP + 1) else { return len };
    cost.store(found, Relaxed);
    found.max(1)
}

fn measure_write_cost(len: u64) -> io::Result<u64> {
    let (mut one, _other) = UnixStream::pair()?;
    // A system that gives less room is not waited for.
    one.set_nonblocking(true)?;
    one.write_all(&vec![0; len as usize])?;
    Ok(unacknowledged_bytes(one)? as u64)
}

/// Step of the memory of a write, in bytes.
const COST_STEP: u64 = 64;
/// Number of steps, up to 32 KiB; the overhead of longer writes is small.
const COSTS_COUNT: usize = 512;

fn is_peer_gone(socket: &impl AsFd) -> bool {
    let mut all = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut all, Some(&Timespec::default())).is_ok_and(|found| found > 0)
}

/// A socket that says how far it is.
pub(super) struct MeteredSocket<S> {
    socket: S,
    gauge: Arc<UnackedBytes>,
}

impl<S: AsFd> MeteredSocket<S> {
    pub(super) fn new(socket: S) -> io::Result<(MeteredSocket<S>, Arc<UnackedBytes>)> {
        let own = socket.as_fd().try_clone_to_owned()?;
        let writes = unsent_bytes(&own).is_err().then(Mutex::default);
        let gauge = Arc::new(UnackedBytes { socket: Some(own), writes, ..UnackedBytes::default() });
        Ok((MeteredSocket { socket, gauge: gauge.clone() }, gauge))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if let Poll::Ready(Ok(len)) = &written {
            self.gauge.record_write(*len as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_a_process_of_this_host_did_not_read_before_it_went_has_not_arrived() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let gauge = MeteredSocket::new(ours.try_clone().unwrap()).unwrap().1;
        let mut say = || {
            ours.write_all(b"12345").unwrap();
            gauge.record_write(5);
        };
        say();
        theirs.read_exact(&mut [0; 5]).unwrap();
        say();
        drop(theirs);
        gauge.update();
        assert_eq!(gauge.arrived(), 0, "nobody knows");
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let gauge = MeteredSocket::new(ours.try_clone().unwrap()).unwrap().1;
        ours.write_all(b"12345").unwrap();
        gauge.record_write(5);
        theirs.read_exact(&mut [0; 5]).unwrap();
        gauge.update();
        assert_eq!(gauge.arrived(), 5);
    }

    /// However short, and however many wait behind it.
    #[test]
    fn each_message_that_a_process_of_this_host_has_read_has_arrived() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let gauge = MeteredSocket::new(ours.try_clone().unwrap()).unwrap().1;
        let lens = [1, 5, 900, 40_000, 3, 12];
        for len in lens {
            ours.write_all(&vec![7; len]).unwrap();
            gauge.record_write(len as u64);
        }
        let mut all = 0;
        for len in lens {
            theirs.read_exact(&mut vec![0; len]).unwrap();
            all += len as u64;
            gauge.update();
            assert!(gauge.arrived() <= all, "{} of {all}", gauge.arrived());
        }
        assert_eq!(gauge.arrived(), all);
        // Where many wait each is known.
        for len in [5, 128, 192, 193, 255, 705, 1000, 1729, 1984] {
            for _ in 0..40 {
                ours.write_all(&vec![7; len]).unwrap();
                gauge.record_write(len as u64);
            }
            theirs.read_exact(&mut vec![0; 10 * len]).unwrap();
            gauge.update();
            assert_eq!(gauge.arrived(), all + 10 * len as u64, "{len}");
            theirs.read_exact(&mut vec![0; 30 * len]).unwrap();
            all += 40 * len as u64;
        }
    }
}
