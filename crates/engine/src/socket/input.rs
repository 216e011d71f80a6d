//! Input of a socket: received bytes are kept until the broker has consumed them.

use super::Socket;
use crate::tls::SealedBuffer;
use crate::transport_stack::{PendingHandshake, TransportError};
use broker::limits;
use std::io;

/// Tail length up to which the tail is copied in front of the next read; a longer tail is read
/// into.
pub(crate) const TAIL_COPIED_MAX: usize = 16 * 1024;

impl Socket {
    /// Reads once. `None` if no bytes are available now; zero is the end of the stream.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.receive(into) {
                Ok(read) => return Ok(Some(read)),
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Notes an event of the poller, or the end of writes: with `is_closed` the end of the stream
    /// follows the bytes still to be read.
    #[inline]
    pub(crate) fn note_peer_closed(&mut self, is_closed: bool) {
        self.peer_closed |= is_closed;
    }

    #[inline]
    pub(crate) fn has_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Whether the last bytes of the client caused a delivery.
    #[inline]
    pub(crate) fn is_publisher(&self) -> bool {
        self.is_publisher
    }

    /// Stops reading until [`Socket::resume`].
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    pub(crate) fn resume(&mut self) {
        self.held = false;
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Whether the socket is held, or its peer does not read our answers: the peer is not read
    /// either, and is listed again once all is sent. Its pings are read for longer than messages
    /// are sent to it.
    #[inline]
    pub(crate) fn is_unreadable(&self) -> bool {
        self.held
            || self.out_of_memory
            || self.congested.is_some_and(|max| self.unsent_len() > max.get() as usize)
    }

    /// Marks the socket as listed for the next turn. Returns whether the socket was not before.
    #[inline]
    pub(crate) fn start_listing(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    #[inline]
    pub(crate) fn end_listing(&mut self) {
        self.listed = false;
    }

    /// Bytes read and not consumed.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    #[inline]
    pub(crate) fn tail_len(&self) -> usize {
        self.tail.len()
    }

    #[inline]
    pub(crate) fn take_tail(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.tail)
    }

    /// Keeps `tail` in place of the former bytes.
    #[inline]
    pub(crate) fn keep_tail(&mut self, tail: Vec<u8>) {
        self.tail = tail;
    }

    /// Marks the tail as possibly holding whole packets.
    pub(crate) fn mark_unread_tail(&mut self) {
        self.has_unread_tail = true;
    }

    #[inline]
    pub(crate) fn has_unread_tail(&self) -> bool {
        self.has_unread_tail
    }

    /// Takes the mark of [`Socket::mark_unread_tail`].
    #[inline]
    pub(crate) fn take_unread_mark(&mut self) -> bool {
        std::mem::take(&mut self.has_unread_tail)
    }

    /// Records the outcome of bytes passed to the broker: `left` was not consumed.
    #[inline]
    pub(crate) fn note_delivery(&mut self, is_publisher: bool, left: &[u8]) {
        self.is_publisher = is_publisher;
        self.tail = left.to_vec();
    }

    /// Returns the buffer for decoded bytes, starting with the received part of a packet. A part
    /// above `TAIL_COPIED_MAX` is moved and grows in place, reported by `true`; a smaller part is
    /// copied into `spare`.
    pub(crate) fn take_plain_buffer(&mut self, spare: &mut Vec<u8>) -> (Vec<u8>, bool) {
        if self.tail.len() > TAIL_COPIED_MAX {
            return (std::mem::take(&mut self.tail), true);
        }
        let mut plain = std::mem::take(spare);
        plain.clear();
        plain.extend_from_slice(&self.tail);
        (plain, false)
    }

    /// Reads into the tail of a large packet. The buffer at most doubles per read, so its size
    /// follows the bytes received and not the announced length. Returns the bytes read and the
    /// tail; without bytes the tail stays.
    pub(crate) fn receive_into_tail(&mut self) -> io::Result<Option<TailRead>> {
        let have = self.tail.len();
        let mut tail = std::mem::take(&mut self.tail);
        let missing = mqtt::expected_len(&tail).map_or(0, |len| len.saturating_sub(have));
        let more = missing.clamp(1, have.max(limits::READ_BYTES_PER_TICK));
        tail.resize(have + more, 0);
        let read = self.receive(&mut tail[have..])?;
        match read {
            Some(0) => Ok(Some(TailRead::Ended)),
            Some(read) => {
                tail.truncate(have + read);
                Ok(Some(match read < missing {
                    true => TailRead::Partial(tail),
                    false => TailRead::Whole(tail),
                }))
            }
            None => {
                tail.truncate(have);
                self.tail = tail;
                Ok(None)
            }
        }
    }

    /// Copies the bytes which the layers have not decoded to the front of `buffer`, and returns
    /// their number.
    pub(crate) fn copy_pending(&self, buffer: &mut [u8]) -> usize {
        self.stack.as_ref().map_or(0, |layers| layers.copy_pending(buffer))
    }

    /// Number of bytes which the layers have not decoded.
    pub(crate) fn pending_len(&self) -> usize {
        self.stack.as_ref().map_or(0, |layers| layers.pending_len())
    }

    /// Decodes received bytes through the layers; see `TransportStack::decode`.
    pub(crate) fn decode(
        &mut self,
        raw: &mut [u8],
        plain: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> Result<bool, TransportError> {
        let Some(layers) = &mut self.stack else { return Ok(false) };
        layers.decode(raw, plain, sealed)
    }

    /// Returns the completed handshake, once, and drops layers that are no longer needed.
    pub(crate) fn finish_decoding(&mut self) -> Option<PendingHandshake> {
        let layers = self.stack.as_mut()?;
        let opened = layers.take_completed_handshake();
        if !layers.is_needed() {
            self.stack = None;
        }
        opened
    }

    /// Drops the layers and appends their closing records. Returns false without layers.
    pub(crate) fn close_layers(&mut self, goes_down: bool, sealed: &mut SealedBuffer) -> bool {
        let Some(mut layers) = self.stack.take() else { return false };
        layers.close(goes_down, sealed);
        true
    }

    /// Reads once ahead of a decision, into the tail. `buffer` is of use during the call. Returns
    /// whether all available bytes were read.
    pub(crate) fn receive_ahead(&mut self, buffer: &mut [u8], sealed: &mut SealedBuffer) -> bool {
        let kept = self.copy_pending(buffer);
        let Ok(Some(read @ 1..)) = self.receive(&mut buffer[kept..]) else { return true };
        let len = kept + read;
        match &mut self.stack {
            None => self.tail.extend_from_slice(&buffer[..len]),
            Some(layers) => {
                sealed.clear();
                // A layer that fails here gives no more bytes, as a layer whose peer has ended.
                let _ = layers.decode(&mut buffer[..len], &mut self.tail, sealed);
            }
        }
        len < buffer.len()
    }
}

/// Bytes read by [`Socket::receive_into_tail`].
pub(crate) enum TailRead {
    Ended,
    /// The packet is still incomplete.
    Partial(Vec<u8>),
    Whole(Vec<u8>),
}
