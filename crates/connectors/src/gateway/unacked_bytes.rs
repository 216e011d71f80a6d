//! Count of written bytes which have arrived at a peer's host. The kernel accepts megabytes for a
//! peer which does not read, and loses them with the connection, so a written message is not yet
//! delivered.

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

/// Written and arrived bytes of one socket. Counted below TLS and WebSocket, so their buffers do
/// not matter.
#[derive(Debug, Default)]
pub(super) struct UnackedBytes {
    socket: Option<OwnedFd>,
    /// For a peer on this host: start and length of each write which may be unread.
    writes: Option<Mutex<VecDeque<(u64, u64)>>>,
    written: AtomicU64,
    arrived: AtomicU64,
    /// Whether bytes are sent and not acknowledged by the peer's host. False while the peer's
    /// receive buffer is full.
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

    /// Resets the connection on close, so bytes which have not arrived never do.
    pub(super) fn reset_connection(&self) {
        if let Some(socket) = &self.socket {
            // If this fails, a message may arrive here and at another peer too.
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
        // Without information from the kernel all written bytes count as arrived.
        let left = unacknowledged_bytes(socket).unwrap_or_default() as u64;
        if let Some(writes) = &self.writes {
            // Unread bytes of a closed local peer would count as arrived, so the count stays.
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

/// Returns a lower bound of the bytes which the peer has read. For a local socket the kernel
/// reports the memory of unread writes, which is larger than their bytes.
fn read_until(writes: &mut VecDeque<(u64, u64)>, left: u64, written: u64) -> u64 {
    let (mut rest, mut unread) = (left, 0);
    // The first unread write may be read in part.
    while rest > 0 && unread < writes.len() {
        let (_, len) = writes[writes.len() - 1 - unread];
        rest = rest.saturating_sub(write_cost(len));
        unread += 1;
    }
    writes.drain(..writes.len() - unread);
    writes.front().map_or(written, |(from, _)| *from)
}

/// Returns the memory which the kernel counts for a write of `len` bytes: rounded up, with an
/// overhead for each write. Measured once for each step of `COST_STEP` bytes.
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
    // A small send buffer must not block the thread.
    one.set_nonblocking(true)?;
    one.write_all(&vec![0; len as usize])?;
    Ok(unacknowledged_bytes(one)? as u64)
}

/// Granularity of the table of socket memory per write length, in bytes.
const COST_STEP: u64 = 64;
/// Number of steps, up to 32 KiB; for longer writes the overhead does not matter.
const COSTS_COUNT: usize = 512;

fn is_peer_gone(socket: &impl AsFd) -> bool {
    let mut all = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut all, Some(&Timespec::default())).is_ok_and(|found| found > 0)
}

/// A socket which counts its written bytes in [`UnackedBytes`].
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

    /// Arrival is detected for each message that the peer process has read, also for short writes
    /// with many others behind them.
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
        // With many writes in the queue, each read is counted.
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
