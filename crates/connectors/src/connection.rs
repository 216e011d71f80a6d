//! A connection of a link: the stream in both directions, with the received bytes that are not
//! parsed yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A connection with received bytes which are not parsed yet, and the times of the last read and
/// write.
pub(crate) struct LinkConnection<S> {
    pub stream: S,
    pub read: UnreadBytes,
    pub read_at: Instant,
    pub written_at: Instant,
    /// Whether a layer of the stream, for example TLS, may still hold written bytes. See
    /// `poll_write`.
    unflushed: bool,
}

/// Received bytes which are not parsed yet. `taken` counts the parsed bytes at the front; `take`
/// frees parsed bytes when all are parsed or more than `READ_BYTES` have gathered.
#[derive(Debug, Default)]
pub(crate) struct UnreadBytes {
    bytes: Vec<u8>,
    taken: usize,
}

/// Bytes of one read.
pub(crate) const READ_BYTES: usize = 64 * 1024;

impl UnreadBytes {
    pub(crate) fn new(bytes: Vec<u8>) -> UnreadBytes {
        UnreadBytes { bytes, taken: 0 }
    }

    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn take(&mut self, len: usize) {
        self.taken += len;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > READ_BYTES {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > 4 * READ_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Passes the unread bytes and then `bytes` to `hear`, which returns how many bytes it has
    /// parsed. The rest stays for the next call. Copies nothing if `hear` parses all of `bytes`.
    pub(crate) fn pass<E>(
        &mut self,
        bytes: &[u8],
        hear: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.rest().is_empty() {
            let taken = hear(bytes)?;
            self.push(&bytes[taken..]);
            return Ok(());
        }
        self.push(bytes);
        let taken = hear(self.rest())?;
        self.take(taken);
        Ok(())
    }

    /// Returns the allocated bytes, for accounting of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LinkConnection<S> {
    pub(crate) fn new(stream: S, read: Vec<u8>) -> LinkConnection<S> {
        let now = Instant::now();
        let read = UnreadBytes::new(read);
        LinkConnection { stream, read, read_at: now, written_at: now, unflushed: false }
    }

    pub(crate) fn unread(&self) -> &[u8] {
        self.read.rest()
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.read.take(len);
    }

    #[cfg(feature = "gateway")]
    /// Whether no layer of the stream holds written bytes. A gateway treats a flushed message as
    /// sent.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.unflushed
    }

    /// Reads at most `buffer.len()` bytes and returns whether bytes arrived. The end of the stream
    /// is the error `UnexpectedEof`.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Poll::Ready(Ok(())) => {
                self.read.push(buffer.filled());
                self.read_at = Instant::now();
                Ok(true)
            }
        }
    }

    /// Writes from the front of `bytes`, removes the written part and flushes the stream. Returns
    /// whether any byte was written.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut written = 0;
        while written < bytes.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &bytes[written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(len)) => written += len,
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if written > 0 {
            bytes.drain(..written);
            self.written_at = Instant::now();
            self.unflushed = true;
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
        }
        Ok(written > 0)
    }
}
