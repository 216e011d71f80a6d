//! Output of a socket: bytes that the kernel does not take are kept until there is room.

use super::Socket;
use crate::batched_send::SendResult;
use crate::tls::SealedBuffer;
use broker::interface::outbox::ConnWrite;
use std::io::{self, IoSlice};
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;

#[derive(Debug, Default)]
pub(super) struct UnsentBytes {
    bytes: Vec<u8>,
    from: usize,
}

impl UnsentBytes {
    fn new(bytes: Vec<u8>) -> UnsentBytes {
        UnsentBytes { bytes, from: 0 }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the bytes but one, so that closing still knows that the stream is cut.
    pub(super) fn release_memory(&mut self) {
        let rest = self.bytes.get(self.from..self.from + 1).unwrap_or(&[0]).to_vec();
        *self = UnsentBytes::new(rest);
    }
}

/// Most slices for one `writev(2)`; more are copied together first.
const SLICES_MAX: usize = 16;
/// Length in bytes up to which copying many slices is cheaper than `writev(2)`.
const GATHER_BYTES_MAX: usize = 256 * 1024;

/// Bytes encrypted at once: four of the largest TLS records.
const SEAL_BYTES_MAX: usize = 64 * 1024;

impl Socket {
    pub(crate) fn unsent_len(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.bytes.len() - unsent.from)
    }

    /// Returns the descriptor and the bytes of a write which a single `send(2)` can make, for
    /// `BatchedSend`. `None` for sockets with TLS or WebSocket or unsent bytes, and for a write of
    /// several slices.
    #[inline]
    pub(crate) fn as_single_send<'a>(
        &'a self,
        write: &'a ConnWrite,
        arena: &'a [u8],
    ) -> Option<(BorrowedFd<'a>, &'a [u8])> {
        if self.stack.is_some() || self.unsent.is_some() {
            return None;
        }
        let mut slices = write.slices(arena);
        let (Some(only), None) = (slices.next(), slices.next()) else { return None };
        Some((self.stream.descriptor().ok()?, only))
    }

    /// Writes the rest of one turn's bytes after `sent`, as many as the socket takes, and keeps the
    /// remainder.
    pub(crate) fn send(
        &mut self,
        write: &ConnWrite,
        sent: SendResult,
        arena: &[u8],
        gathered: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> io::Result<()> {
        if self.stack.is_some() {
            return self.send_through_stack(write, arena, gathered, sealed);
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.bytes.reserve(write.len());
            write.slices(arena).for_each(|slice| unsent.bytes.extend_from_slice(slice));
            return Ok(());
        }
        let mut slices = write.slices(arena);
        let (Some(first), None) = (slices.next(), slices.next()) else {
            return self.send_slices(write, arena, gathered);
        };
        self.send_slice(&first[sent.sent_len()?..])
    }

    fn send_slices(
        &mut self,
        write: &ConnWrite,
        arena: &[u8],
        gathered: &mut Vec<u8>,
    ) -> io::Result<()> {
        let few = write.slices_max() <= SLICES_MAX;
        if few || write.len() > GATHER_BYTES_MAX {
            return self.send_vectored(write, arena);
        }
        gathered.clear();
        write.slices(arena).for_each(|slice| gathered.extend_from_slice(slice));
        self.send_slice(gathered)
    }

    /// Gathers, encrypts and writes at most [`SEAL_BYTES_MAX`] at a time, so the buffers stay
    /// small.
    fn send_through_stack(
        &mut self,
        write: &ConnWrite,
        arena: &[u8],
        gathered: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> io::Result<()> {
        let front = self.stack.as_ref().map_or(0, |layers| layers.header_room());
        gathered.clear();
        gathered.resize(front, 0);
        for mut slice in write.slices(arena) {
            while !slice.is_empty() {
                let room = SEAL_BYTES_MAX - gathered.len();
                let (now, later) = slice.split_at(room.min(slice.len()));
                gathered.extend_from_slice(now);
                slice = later;
                if gathered.len() == SEAL_BYTES_MAX {
                    self.seal(gathered, sealed)?;
                    gathered.truncate(front);
                }
            }
        }
        if gathered.len() == front { Ok(()) } else { self.seal(gathered, sealed) }
    }

    fn seal(&mut self, bytes: &mut [u8], sealed: &mut SealedBuffer) -> io::Result<()> {
        let Some(layers) = &mut self.stack else { return Ok(()) };
        let bytes = layers.seal(bytes, sealed).map_err(io::Error::other)?;
        self.send_sealed(bytes)
    }

    /// Writes encoded bytes of the layers unchanged, behind earlier unsent bytes.
    pub(crate) fn send_sealed(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.unsent {
            Some(unsent) => unsent.bytes.extend_from_slice(bytes),
            None => {
                self.send_slice(bytes)?;
                if self.unsent.is_none() && !bytes.is_empty() {
                    self.note_sent();
                }
            }
        }
        Ok(())
    }

    fn send_slice(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.send(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some(Box::new(UnsentBytes::new(bytes.to_vec())));
                    return Ok(());
                }
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn send_vectored(&mut self, write: &ConnWrite, arena: &[u8]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = write.slices(arena).map(IoSlice::new).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match self.stream.send_vectored(&left[..left.len().min(1024)]) {
                Ok(sent) => IoSlice::advance_slices(&mut left, sent),
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                    let bytes = left.iter().flat_map(|slice| slice.iter().copied()).collect();
                    self.unsent = Some(Box::new(UnsentBytes::new(bytes)));
                    return Ok(());
                }
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Continues writing unsent bytes. Returns true once all are written.
    pub(crate) fn resend(&mut self) -> io::Result<bool> {
        let Socket { stream, unsent, .. } = self;
        drain_unsent(unsent, |bytes| stream.send(bytes))
    }

    /// Sends unsent bytes like [`Socket::resend`], through `take`, which returns the number of
    /// bytes taken: for QUIC streams without a descriptor.
    pub(crate) fn resend_with(
        &mut self,
        take: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        drain_unsent(&mut self.unsent, take)
    }

    /// Removes the unsent bytes, for another owner to send.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let Some(unsent) = self.unsent.take() else { return Vec::new() };
        unsent.bytes[unsent.from..].to_vec()
    }

    #[inline]
    pub(crate) fn watches_writable(&self) -> bool {
        self.watches_writable
    }

    /// Marks the socket as registered for writability. Returns whether the socket was not before.
    pub(crate) fn start_watching(&mut self) -> bool {
        !std::mem::replace(&mut self.watches_writable, true)
    }

    /// Marks the socket as congested if more than `unsent_max` bytes wait: reading stops once
    /// `more_max` further bytes wait. Returns whether the connection becomes congested.
    pub(crate) fn congest_above(&mut self, unsent_max: usize, more_max: usize) -> bool {
        let unsent = self.unsent_len();
        let congests = unsent > unsent_max && self.congested.is_none();
        if congests {
            let unsent_max = u32::try_from(unsent + more_max);
            self.congested = NonZeroU32::new(unsent_max.unwrap_or(u32::MAX));
        }
        congests
    }

    /// Ends the congestion. Returns whether the socket was congested.
    pub(crate) fn end_congestion(&mut self) -> bool {
        self.congested.take().is_some()
    }

    /// Discards the unsent bytes of a connection which can no longer take them.
    pub(crate) fn drop_unsent(&mut self) {
        self.unsent = None;
        self.congested = None;
    }
}

fn drain_unsent(
    unsent: &mut Option<Box<UnsentBytes>>,
    mut take: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<bool> {
    let Some(all) = unsent else { return Ok(true) };
    while all.from < all.bytes.len() {
        match take(&all.bytes[all.from..]) {
            Ok(sent) => all.from += sent,
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
    *unsent = None;
    Ok(true)
}
