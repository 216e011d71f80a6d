//! One socket of a shard: received bytes that are not consumed yet, and bytes to send that are not
//! written yet, both in order and without a gap [MQTT-4.2-1] [MQTT-7.1.1-1].

mod input;
mod output;

use crate::connection_limiter::ConnectionSlot;
use crate::relay::{EndedRelay, RelayLayer, RelayLoan};
use crate::stream::SocketStream;
use crate::transport_stack::{PendingHandshake, TransportStack};
use broker::connection::admission::Admission;
use broker::{BrokerOptions, MonotonicMs, PeerAddress, limits};
use std::io;
use std::num::NonZeroU32;

pub(crate) use input::{TAIL_COPIED_MAX, TailRead};

use output::UnsentBytes;

#[derive(Debug)]
pub(crate) struct Socket {
    stream: SocketStream,
    /// Layers below MQTT; `None` for plain MQTT.
    stack: Option<Box<TransportStack>>,
    /// Bytes read and not consumed: a partial packet, or the rest after a full outbox or a hold.
    tail: Vec<u8>,
    /// Bytes not written, while the socket takes no more.
    unsent: Option<Box<UnsentBytes>>,
    /// `tail` may hold whole packets, left over by a full outbox or a hold.
    has_unread_tail: bool,
    /// The socket is in the list of sockets to read in the next turn.
    listed: bool,
    /// The poller or a write has reported the end of the stream: it follows the bytes still to be
    /// read. The poller reports the end only once.
    peer_closed: bool,
    /// Whether the last bytes of the client caused a delivery.
    is_publisher: bool,
    /// Whether reading waits for `Effect::Resume` of the broker.
    held: bool,
    /// Set while the broker sends no messages because of unsent bytes. Answers to received packets
    /// may still grow the output, and above this number of bytes reading stops as well.
    congested: Option<NonZeroU32>,
    /// Whether the socket is registered for writability as well.
    watches_writable: bool,
    /// Time at which a closed socket is dropped, zero before the close. Until then input is
    /// discarded.
    lingers_until: MonotonicMs,
    /// Slot in the connection limits, if the listener has limits.
    slot: Option<Box<ConnectionSlot>>,
    /// The socket had to free its buffers, and is neither read nor written any more.
    out_of_memory: bool,
    /// Value of [`Socket::held_bytes`] at the last count.
    counted_bytes: u32,
    /// Time of the last progress while the socket holds bytes: a consumed packet or a written byte.
    stuck_since: MonotonicMs,
}

// Every connection costs these bytes, and is counted with them.
const _: () = assert!(size_of::<Option<Socket>>() <= limits::SOCKET_BYTES);

impl Socket {
    /// A socket with its layers below MQTT and its place in the connection limits, as the listener
    /// has them.
    pub(crate) fn new(
        stream: SocketStream,
        layers: Option<TransportStack>,
        slot: Option<Box<ConnectionSlot>>,
    ) -> Socket {
        Socket {
            stream,
            stack: layers.map(Box::new),
            tail: Vec::new(),
            unsent: None,
            has_unread_tail: false,
            listed: false,
            peer_closed: false,
            is_publisher: false,
            held: false,
            congested: None,
            watches_writable: false,
            lingers_until: MonotonicMs::default(),
            slot,
            out_of_memory: false,
            counted_bytes: 0,
            stuck_since: MonotonicMs::default(),
        }
    }

    /// Returns the socket as it moves to another shard: with its bytes, layers and limits, without
    /// the state kept for this shard.
    pub(crate) fn into_moved(self) -> Socket {
        let Socket { stream, stack, tail, unsent, slot, .. } = self;
        Socket { stack, tail, unsent, ..Socket::new(stream, None, slot) }
    }

    /// Returns the socket of a QUIC connection which has moved here, to its new slot.
    pub(crate) fn into_quic_stream(mut self, connection: u32) -> Socket {
        self.stream = SocketStream::Quic { connection };
        self
    }

    /// The stream, to register it with a poller.
    pub(crate) fn stream_mut(&mut self) -> &mut SocketStream {
        &mut self.stream
    }

    /// Returns the slot of the QUIC connection, if this is a QUIC stream.
    #[inline]
    pub(crate) fn quic_connection(&self) -> Option<u32> {
        self.stream.quic_connection()
    }

    pub(crate) fn shut_down_write(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Counts the address which a header has named, if the connection limits wait for the address.
    pub(crate) fn admit_named_address(
        &mut self,
        now: MonotonicMs,
        address: PeerAddress,
        options: &BrokerOptions,
    ) -> Option<Admission> {
        self.slot.as_mut()?.admit_named_address(now, address, options)
    }

    #[inline]
    pub(crate) fn relay(&mut self) -> Option<&mut RelayLayer> {
        self.stack.as_mut()?.relay_mut()
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

    /// Starts to discard input until the peer has finished, at most until `at`.
    pub(crate) fn linger_until(&mut self, at: MonotonicMs) {
        self.lingers_until = at;
    }

    /// Whether the socket lingers, and exactly until `at`.
    pub(crate) fn lingers_until(&self, at: MonotonicMs) -> bool {
        self.lingers_until == at
    }

    /// Returns the allocated bytes for input, output and layers, as counted against the memory
    /// limit.
    fn held_bytes(&self) -> u32 {
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.held_bytes());
        let layers = self.stack.as_ref().map_or(0, |layers| layers.held_bytes());
        u32::try_from(self.tail.capacity() + unsent + layers).unwrap_or(u32::MAX)
    }

    /// Counts the held bytes again. Returns the former and the new number if they differ.
    pub(crate) fn recount_bytes(&mut self, now: MonotonicMs) -> Option<(u32, u32)> {
        let (before, held) = (self.counted_bytes, self.held_bytes());
        if before == held {
            return None;
        }
        if before == 0 {
            self.stuck_since = now;
        }
        self.counted_bytes = held;
        Some((before, held))
    }

    /// Held bytes at the last count.
    pub(crate) fn counted_bytes(&self) -> u32 {
        self.counted_bytes
    }

    /// Returns since when the socket makes no progress, if the socket holds bytes because of its
    /// peer, and enough of them to be worth its connection.
    pub(crate) fn stuck_since(&self) -> Option<MonotonicMs> {
        let is_worth_it = self.counted_bytes > SHED_BYTES_MIN;
        (is_worth_it && self.is_stuck()).then_some(self.stuck_since)
    }

    /// Whether the socket holds bytes because of its peer: a handshake, a partial packet, or output
    /// not read.
    fn is_stuck(&self) -> bool {
        self.is_handshaking()
            || self.unsent.is_some()
            || (!self.tail.is_empty() && !self.held && !self.has_unread_tail)
    }

    /// Whether the socket had to free its buffers.
    #[inline]
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory
    }

    /// Whether released bytes are missing in the stream: nothing may be written after them.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.out_of_memory && self.unsent_len() > 0
    }

    /// Frees all buffers of a connection which has to end for lack of memory.
    pub(crate) fn release_memory(&mut self) {
        self.out_of_memory = true;
        self.tail = Vec::new();
        if let Some(layers) = &mut self.stack {
            layers.release_memory();
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.release_memory();
        }
    }

    /// Records progress of a socket that holds bytes.
    #[inline]
    pub(crate) fn note_progress(&mut self, now: MonotonicMs) {
        self.stuck_since = now;
    }

    /// Whether layers stand between the stream and MQTT.
    #[inline]
    pub(crate) fn has_layers(&self) -> bool {
        self.stack.is_some()
    }

    #[inline]
    pub(crate) fn is_handshaking(&self) -> bool {
        self.stack.as_ref().is_some_and(|layers| layers.is_handshaking())
    }

    pub(crate) fn handshake_deadline(&self) -> Option<MonotonicMs> {
        self.stack.as_ref()?.handshake_deadline()
    }

    /// Whether the peer has sent anything in its handshake.
    pub(crate) fn has_handshake_bytes(&self) -> bool {
        self.stack.as_ref().is_some_and(|layers| layers.has_received())
    }

    /// Ends the handshake which QUIC has done.
    pub(crate) fn take_handshake(&mut self) -> Option<Box<PendingHandshake>> {
        self.stack.as_mut()?.take_handshake()
    }

    /// Drops all layers without their last output. Returns a handshake that was not done.
    pub(crate) fn drop_layers(&mut self) -> Option<Box<PendingHandshake>> {
        self.stack.take()?.take_handshake()
    }

    /// Whether the session's connection can give its socket to a relay.
    pub(crate) fn can_host_relay(&self) -> bool {
        let is_able = self.stack.is_none() && !self.out_of_memory && !self.is_lingering();
        is_able && !self.peer_closed && matches!(self.stream, SocketStream::Unix(_))
    }

    /// Starts the relay of `loan` as the only layer, after the stream has left its poller.
    pub(crate) fn start_relay(&mut self, loan: RelayLoan) {
        let unsent = self.take_unsent();
        let Some((layer, sent)) = loan.start(&mut self.stream, &unsent) else { return };
        self.tail.extend(sent);
        self.stack = Some(Box::new(TransportStack::of_relay(layer)));
        self.restart_stream();
    }

    /// Ends the relay for its link, and puts the session back on the socket pair.
    pub(crate) fn recall_relay(&mut self) -> Option<EndedRelay> {
        let layer = self.stack.take()?.into_relay()?;
        let unsent = self.take_unsent();
        let ended = layer.into_recalled(&mut self.stream, unsent);
        self.restart_stream();
        Some(ended)
    }

    /// Ends the relay of a dropped socket.
    pub(crate) fn into_ended_relay(mut self) -> Option<EndedRelay> {
        let layer = self.stack.take()?.into_relay()?;
        // Released bytes are missing in the stream, so the stream is not returned.
        if self.out_of_memory {
            return Some(layer.into_ended(None, Vec::new()));
        }
        let unsent = self.take_unsent();
        Some(layer.into_ended(Some(self.stream), unsent))
    }

    /// Forgets what the poller reported of the former stream.
    fn restart_stream(&mut self) {
        (self.watches_writable, self.peer_closed) = (false, false);
    }
}

/// Counted bytes up to which closing a socket frees too little to be worth its connection.
const SHED_BYTES_MIN: u32 = 64;
