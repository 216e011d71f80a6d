//! A connection of a link while bytes go both ways.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// One connection, and what was read of it and not understood yet.
pub(crate) struct Way<S> {
    pub(crate) stream: S,
    read: Vec<u8>,
    taken: usize,
    pub(crate) heard: Instant,
    pub(crate) said: Instant,
    /// What was written may still stand in a layer of the stream.
    unflushed: bool,
}

/// So much is read at a time.
pub(crate) const READ_BYTES: usize = 64 * 1024;

impl<S: AsyncRead + AsyncWrite + Unpin> Way<S> {
    pub(crate) fn new(stream: S, read: Vec<u8>) -> Way<S> {
        let now = Instant::now();
        Way { stream, read, taken: 0, heard: now, said: now, unflushed: false }
    }

    pub(crate) fn unread(&self) -> &[u8] {
        &self.read[self.taken..]
    }

    pub(crate) fn take(&mut self, len: usize) {
        self.taken += len;
        if self.taken == self.read.len() {
            self.read.clear();
            self.taken = 0;
        } else if self.taken > READ_BYTES {
            self.read.drain(..self.taken);
            self.taken = 0;
        }
        if self.read.is_empty() && self.read.capacity() > 4 * READ_BYTES {
            self.read = Vec::new();
        }
    }

    /// Whether a layer of the stream, as TLS is, keeps nothing of what was written.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.unflushed
    }

    /// Says whether anything came.
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
                self.read.extend_from_slice(buffer.filled());
                self.heard = Instant::now();
                Ok(true)
            }
        }
    }

    /// Writes from the front of `bytes`, and says whether any of it went.
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
            self.said = Instant::now();
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
