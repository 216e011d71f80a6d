//! How much of what was written to a socket has arrived at its peer. A system takes megabytes for a
//! peer that reads nothing, and loses them with the connection: what was only written is nobody's.

use engine::underway::{unacknowledged, unsent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one side reads that the socket, below all layers, says when it is flushed.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    written: AtomicU64,
    arrived: AtomicU64,
    /// Something was sent that the peer's system has not acknowledged. Where it has no room nothing
    /// is.
    in_flight: AtomicBool,
}

impl Gauge {
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Relaxed)
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed)
    }

    fn look(&self, socket: impl AsFd) {
        let written = self.written();
        // Who cannot say has it: there is nothing else to go by.
        let left = unacknowledged(&socket).unwrap_or_default();
        let unsent = unsent(&socket).ok();
        // What a process of this host left unread is under way no more once it has gone.
        if unsent.is_some() || !has_gone(&socket) {
            self.arrived.store(written.saturating_sub(left as u64), Relaxed);
        }
        self.in_flight.store(unsent.is_some_and(|unsent| left > unsent), Relaxed);
    }
}

fn has_gone(socket: &impl AsFd) -> bool {
    let mut all = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut all, Some(&Timespec::default())).is_ok_and(|found| found > 0)
}

/// A socket that says how far it is.
pub(super) struct Gauged<S> {
    socket: S,
    gauge: Arc<Gauge>,
}

impl<S> Gauged<S> {
    pub(super) fn new(socket: S) -> (Gauged<S>, Arc<Gauge>) {
        let gauge: Arc<Gauge> = Arc::default();
        (Gauged { socket, gauge: gauge.clone() }, gauge)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gauged<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for Gauged<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if let Poll::Ready(Ok(len)) = &written {
            self.gauge.written.fetch_add(*len as u64, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.gauge.look(&self.socket);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_a_process_of_this_host_did_not_read_before_it_went_has_not_arrived() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let gauge = Gauge::default();
        let mut say = || {
            ours.write_all(b"12345").unwrap();
            gauge.written.fetch_add(5, Relaxed);
        };
        say();
        theirs.read_exact(&mut [0; 5]).unwrap();
        say();
        drop(theirs);
        gauge.look(&ours);
        assert_eq!(gauge.arrived(), 0, "nobody knows");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"12345").unwrap();
        theirs.read_exact(&mut [0; 5]).unwrap();
        gauge.look(&ours);
        assert_eq!(gauge.arrived(), 10);
    }
}
