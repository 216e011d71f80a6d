//! One socket of a shard: received bytes that are not consumed yet, and bytes to send that are not
//! written yet, both in order and without a gap [MQTT-4.2-1] [MQTT-7.1.1-1].

use crate::batched_send::SendResult;
use crate::connection_limiter::ConnectionSlot;
use crate::relay::RelayLayer;
use crate::stream::SocketStream;
use crate::tls::SealedBuffer;
use crate::transport_stack::TransportStack;
use broker::interface::outbox::ConnWrite;
use broker::{MonotonicMs, limits};
use std::io::{self, IoSlice};
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: SocketStream,
    /// Layers below MQTT; `None` for plain MQTT.
    pub(crate) stack: Option<Box<TransportStack>>,
    /// Bytes read and not consumed: a partial packet, or the rest after a full outbox or a hold.
    pub(crate) tail: Vec<u8>,
    /// Bytes not written, while the socket takes no more.
    unsent: Option<Box<UnsentBytes>>,
    /// `tail` may hold whole packets, left over by a full outbox or a hold.
    pub(crate) has_unread_tail: bool,
    /// The socket is in `ShardDriver::listed`.
    pub(crate) listed: bool,
    /// The poller or a write has reported the end of the stream: it follows the bytes still to be
    /// read. The poller reports the end only once.
    pub(crate) peer_closed: bool,
    /// Whether the last bytes of the client caused a delivery.
    pub(crate) is_publisher: bool,
    /// Whether reading waits for `Effect::Resume` of the broker.
    pub(crate) held: bool,
    /// Set while the broker sends no messages because of unsent bytes. Answers to received packets
    /// may still grow the output, and above this number of bytes reading stops as well.
    pub(crate) congested: Option<NonZeroU32>,
    /// Whether the socket is registered for writability as well.
    pub(crate) watches_writable: bool,
    /// Time at which a closed socket is dropped, zero before the close. Until then input is
    /// discarded.
    pub(crate) lingers_until: MonotonicMs,
    /// Slot in the connection limits, if the listener has limits.
    pub(crate) slot: Option<Box<ConnectionSlot>>,
    /// The socket had to free its buffers, and is neither read nor written any more.
    pub(crate) out_of_memory: bool,
    /// Value of [`Socket::held_bytes`] at the last count.
    pub(crate) counted_bytes: u32,
    /// Time of the last progress while the socket holds bytes: a consumed packet or a written byte.
    pub(crate) stuck_since: MonotonicMs,
}

#[derive(Debug, Default)]
struct UnsentBytes {
    bytes: Vec<u8>,
    from: usize,
}

/// Most slices for one `writev(2)`; more are copied together first.
const SLICES_MAX: usize = 16;
/// Length in bytes up to which copying many slices is cheaper than `writev(2)`.
const GATHER_BYTES_MAX: usize = 256 * 1024;

/// Bytes encrypted at once: four of the largest TLS records.
const SEAL_BYTES_MAX: usize = 64 * 1024;

// Every connection costs these bytes, and is counted with them.
const _: () = assert!(size_of::<Option<Socket>>() <= limits::SOCKET_BYTES);

impl Socket {
    pub(crate) fn new(stream: SocketStream, tail: Vec<u8>) -> Socket {
        Socket {
            stream,
            stack: None,
            tail,
            unsent: None,
            has_unread_tail: false,
            listed: false,
            peer_closed: false,
            is_publisher: false,
            held: false,
            congested: None,
            watches_writable: false,
            lingers_until: MonotonicMs::default(),
            slot: None,
            out_of_memory: false,
            counted_bytes: 0,
            stuck_since: MonotonicMs::default(),
        }
    }

    /// Returns the socket as it moves to another shard: with its bytes, layers and limits, without
    /// the state kept for this shard.
    pub(crate) fn into_moved(self) -> Socket {
        let Socket { stream, stack: layers, tail, unsent, slot: seat, .. } = self;
        Socket { stack: layers, unsent, slot: seat, ..Socket::new(stream, tail) }
    }

    #[inline]
    pub(crate) fn relay(&mut self) -> Option<&mut RelayLayer> {
        self.stack.as_mut()?.relay.as_mut()
    }

    /// Records why the stream ends, for the link of a hosted relay.
    pub(crate) fn note_fault(&mut self, fault: io::Error) {
        if let Some(relay) = self.relay() {
            relay.note_fault(fault);
        }
    }

    /// Reports to a hosted relay that all bytes are written.
    pub(crate) fn note_sent(&mut self) {
        if let Some(relay) = self.relay() {
            relay.note_sent();
        }
    }

    pub(crate) fn is_lingering(&self) -> bool {
        self.lingers_until > MonotonicMs::default()
    }

    /// Returns the allocated bytes for input, output and layers, as counted against the memory
    /// limit.
    pub(crate) fn held_bytes(&self) -> u32 {
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.bytes.capacity());
        let layers = self.stack.as_ref().map_or(0, |layers| layers.held_bytes());
        u32::try_from(self.tail.capacity() + unsent + layers).unwrap_or(u32::MAX)
    }

    /// Whether the socket holds bytes because of its peer: a handshake, a partial packet, or output
    /// not read.
    pub(crate) fn is_stuck(&self) -> bool {
        let opens = self.stack.as_ref().is_some_and(|layers| layers.handshake.is_some());
        opens
            || self.unsent.is_some()
            || (!self.tail.is_empty() && !self.held && !self.has_unread_tail)
    }

    /// Frees all buffers of a connection which has to end for lack of memory.
    pub(crate) fn release_memory(&mut self) {
        self.out_of_memory = true;
        self.tail = Vec::new();
        if let Some(layers) = &mut self.stack {
            layers.release_memory();
        }
        if let Some(unsent) = &mut self.unsent {
            // One byte is left, so that closing still knows that the stream is cut.
            let rest = unsent.bytes.get(unsent.from..unsent.from + 1).unwrap_or(&[0]).to_vec();
            **unsent = UnsentBytes { bytes: rest, from: 0 };
        }
    }

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
                    self.unsent = Some(Box::new(UnsentBytes { bytes: bytes.to_vec(), from: 0 }));
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
                    self.unsent = Some(Box::new(UnsentBytes { bytes, from: 0 }));
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

    /// Discards the unsent bytes of a connection which can no longer take them.
    pub(crate) fn drop_unsent(&mut self) {
        self.unsent = None;
        self.congested = None;
    }

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
