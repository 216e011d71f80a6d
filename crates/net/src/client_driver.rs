//! Support for the clients of database libraries: a stream that bounds a server's answer, and a
//! driver for the library's I/O task that runs only while an answer is awaited.
//!
//! Invariant: no task runs for an idle connection, and no task outlives its connection.

use crate::endpoint::AsyncStream;
use crate::table_row::ANSWER_BYTES_MAX;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes and round trips that an answer may still take. Clones share one bound.
#[derive(Clone)]
pub(crate) struct AnswerLimit(Arc<AnswerLimitState>);

struct AnswerLimitState {
    bytes_left: AtomicUsize,
    round_trips_left: AtomicUsize,
}

/// Largest number of round trips of a library per request. PostgreSQL's library sends a query for
/// each unknown type of a column, and for the types nested in it.
const ROUND_TRIPS_MAX: usize = 64;

impl AnswerLimit {
    pub(crate) fn new() -> AnswerLimit {
        AnswerLimit(Arc::new(AnswerLimitState {
            bytes_left: AtomicUsize::new(ANSWER_BYTES_MAX),
            round_trips_left: AtomicUsize::new(ROUND_TRIPS_MAX),
        }))
    }

    /// Starts a new request with `ANSWER_BYTES_MAX` and `ROUND_TRIPS_MAX`.
    pub(crate) fn begin(&self) {
        self.0.bytes_left.store(ANSWER_BYTES_MAX, Relaxed);
        self.0.round_trips_left.store(ROUND_TRIPS_MAX, Relaxed);
    }

    /// Starts a pipeline of requests: the answers arrive during later writes, so only the bytes are
    /// bounded and not the round trips.
    pub(crate) fn begin_pipeline(&self) {
        self.begin();
        self.0.round_trips_left.store(usize::MAX, Relaxed);
    }
}

/// A stream that reads no more bytes than its `AnswerLimit` allows.
pub(crate) struct LimitedStream {
    stream: Box<dyn AsyncStream>,
    limit: AnswerLimit,
    was_reading: bool,
    /// The first bytes of the server, and the check that refuses a server by these bytes.
    head: Vec<u8>,
    refusal: fn(&[u8]) -> Option<&'static str>,
}

const HEAD_BYTES: usize = 16;

impl LimitedStream {
    pub(crate) fn new(
        stream: Box<dyn AsyncStream>,
        limit: AnswerLimit,
        refusal: fn(&[u8]) -> Option<&'static str>,
    ) -> LimitedStream {
        LimitedStream { stream, limit, was_reading: false, head: Vec::new(), refusal }
    }

    fn check(&mut self, read: &[u8]) -> io::Result<()> {
        let limit = &self.limit.0.bytes_left;
        let left = limit.load(Relaxed).checked_sub(read.len());
        let left = left.ok_or_else(|| io::Error::other("it answers with more than we read"))?;
        limit.store(left, Relaxed);
        self.was_reading |= !read.is_empty();
        let wanted = HEAD_BYTES.saturating_sub(self.head.len()).min(read.len());
        if wanted > 0 {
            self.head.extend_from_slice(&read[..wanted]);
            if let Some(why) = (self.refusal)(&self.head) {
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => Poll::Ready(self.check(&buf.filled()[before..])),
            other => other,
        }
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.was_reading) {
            let limit = &self.limit.0.round_trips_left;
            let Some(left) = limit.load(Relaxed).checked_sub(1) else {
                let why = "its answer needs more questions than we ask";
                return Poll::Ready(Err(io::Error::other(why)));
            };
            limit.store(left, Relaxed);
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The I/O task of a library's client, run by [`ClientDriver::run`]. The task ends with the reason
/// for its end.
pub(crate) struct ClientDriver(Option<Pin<Box<dyn Future<Output = String> + Send>>>);

impl ClientDriver {
    pub(crate) fn new(task: impl Future<Output = String> + Send + 'static) -> ClientDriver {
        ClientDriver(Some(Box::pin(task)))
    }

    /// Runs the I/O task until `work` is done. The error is why the connection ended before.
    pub(crate) async fn run<T, E>(
        &mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, String> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            let Some(task) = &mut self.0 else {
                return Poll::Ready(Err("the connection is closed".to_string()));
            };
            let Poll::Ready(why) = task.as_mut().poll(cx) else { return Poll::Pending };
            self.0 = None;
            // The complete answer may have arrived before the connection ended.
            match work.as_mut().poll(cx) {
                Poll::Ready(Ok(done)) => Poll::Ready(Ok(Ok(done))),
                _ => Poll::Ready(Err(why)),
            }
        })
        .await
    }
}
