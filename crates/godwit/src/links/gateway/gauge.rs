//! How much of what was written to a socket has arrived at its peer. A system takes megabytes for a
//! peer that reads nothing, and loses them with the connection: what was only written is nobody's.

use engine::underway::{unacknowledged, unsent};
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
        self.arrived.store(written.saturating_sub(left as u64), Relaxed);
        self.in_flight.store(unsent(&socket).is_ok_and(|unsent| left > unsent), Relaxed);
    }
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
