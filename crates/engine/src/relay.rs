//! Relays of links on the thread of a shard: a link that only forwards packets needs no thread of
//! its own, and no thread wake-up for each message.
//!
//! A link's session is connected by a pair of sockets, of which the link holds one end. While the
//! shard hosts the relay, the socket to the other broker replaces the pair, and the relay is its
//! layer:
//!
//! ```text
//! link thread:   session <-> MQTT <-> pair of sockets <-> relay <-> socket to the other broker
//! shard thread:  session <-> MQTT <----------------------> relay <-> socket to the other broker
//! ```
//!
//! The pair stays open, and the session uses it again after a recall. Bytes in the pair and bytes
//! waiting for the socket move over too, in their order.

use crate::poll_token::socket_token;
use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use crate::stream::SocketStream;
use crate::tls::SealedBuffer;
use crate::transport_stack::TransportStack;
use broker::{ConnId, ShardInput};
use mio::net::UnixStream;
use mio::{Interest, net::TcpStream};
use rustix::net::{RecvFlags, recv};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

/// Forwards packets between a session of this process and a peer broker, sans I/O. The engine calls
/// [`LinkRelay::give_back`] at the end in every case, also when the loan or the socket is dropped.
pub trait LinkRelay: Send {
    /// Takes bytes of the local session; a packet may continue in the next call.
    fn hear_near(&mut self, bytes: &[u8]);

    /// Takes bytes of the peer broker; a packet may continue in the next call.
    fn hear_far(&mut self, bytes: &[u8]);

    /// Whole packets for the local session. The engine clears the buffer after each use.
    fn to_near(&mut self) -> &mut Vec<u8>;

    /// Whole packets for the peer broker. The engine clears the buffer after each use.
    fn to_far(&mut self) -> &mut Vec<u8>;

    /// Reports that the socket has taken all bytes for the peer broker.
    fn note_sent(&mut self);

    /// Whether the relay cannot go on; the engine then closes the session's connection.
    fn is_over(&self) -> bool;

    /// Bytes kept by the relay until their packet is complete, counted as memory of the socket.
    fn held_bytes(&self) -> usize;

    fn give_back(self: Box<Self>, socket: RelaySocket);
}

/// The rest of an ended relay, for [`LinkRelay::give_back`].
#[derive(Debug, Default)]
pub struct RelaySocket {
    /// The socket to the peer broker; `None` if the loan was dropped or bytes were lost in
    /// `out_of_memory`.
    pub stream: Option<std::net::TcpStream>,
    /// Bytes for the peer broker which the socket had not taken.
    pub unsent: Vec<u8>,
    /// The error or end of the socket, if there was one.
    pub fault: Option<io::Error>,
}

/// The parts which a shard needs to run a [`LinkRelay`].
pub struct RelayLoan {
    client_id: Box<str>,
    relay: RelayGuard,
    far: std::net::TcpStream,
    /// The end of the socket pair held by the link.
    near: std::os::unix::net::UnixStream,
}

/// A loan offered to all shards; the shard of the link's session takes the [`RelayLoan`].
pub(crate) type RelaySlot = Arc<Mutex<Option<RelayLoan>>>;

/// Calls `give_back` on drop, so a relay returns to its link even if the connection ends.
struct RelayGuard(Option<Box<dyn LinkRelay>>);

/// A relay as the only layer between the socket to the peer broker and MQTT.
pub(crate) struct RelayLayer {
    relay: RelayGuard,
    /// The shard's end of the socket pair, not registered with a poller while the relay runs.
    pair: UnixStream,
    fault: Option<io::Error>,
}

/// Capacity in bytes above which `empty` frees a buffer after a burst.
const KEPT_BYTES: usize = 256 * 1024;

impl RelayLoan {
    /// Creates a loan for the session of `client_id`. `near` is a descriptor of the far end of the
    /// stream given to `EngineHandle::connect_internal`. Only the relay may read and write there
    /// until `give_back`.
    pub fn new(
        client_id: &str,
        relay: Box<dyn LinkRelay>,
        far: std::net::TcpStream,
        near: std::os::unix::net::UnixStream,
    ) -> RelayLoan {
        RelayLoan { client_id: client_id.into(), relay: RelayGuard(Some(relay)), far, near }
    }
}

impl RelayGuard {
    fn give_back(mut self, socket: RelaySocket) {
        if let Some(relay) = self.0.take() {
            relay.give_back(socket);
        }
    }
}

impl Drop for RelayGuard {
    fn drop(&mut self) {
        if let Some(relay) = self.0.take() {
            relay.give_back(RelaySocket::default());
        }
    }
}

impl RelayLayer {
    /// Passes bytes of the peer broker to the relay, and collects the output for both sides.
    /// Returns whether the relay is over.
    pub(crate) fn take_in(
        &mut self,
        raw: &[u8],
        plain: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> Result<bool, rustls::Error> {
        let Some(relay) = &mut self.relay.0 else { return Ok(true) };
        if !raw.is_empty() {
            relay.hear_far(raw);
        }
        plain.extend_from_slice(relay.to_near());
        empty(relay.to_near());
        self.seal(&[], sealed)?;
        Ok(self.is_over())
    }

    /// Passes bytes of the local session to the relay, and collects the output for the peer broker.
    pub(crate) fn seal(
        &mut self,
        bytes: &[u8],
        sealed: &mut SealedBuffer,
    ) -> Result<(), rustls::Error> {
        let Some(relay) = &mut self.relay.0 else { return Ok(()) };
        if !bytes.is_empty() {
            relay.hear_near(bytes);
        }
        let said = sealed.push(relay.to_far());
        empty(relay.to_far());
        said
    }

    /// Whether the relay has output for the local session, or is over, without a poller event.
    pub(crate) fn has_words(&mut self) -> bool {
        let is_silent = self.relay.0.as_mut().is_some_and(|relay| relay.to_near().is_empty());
        !is_silent || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.relay.0.as_ref().is_none_or(|relay| relay.is_over())
    }

    pub(crate) fn note_sent(&mut self) {
        if let Some(relay) = &mut self.relay.0 {
            relay.note_sent();
        }
    }

    pub(crate) fn note_fault(&mut self, fault: io::Error) {
        self.fault.get_or_insert(fault);
    }

    pub(crate) fn holds(&self) -> usize {
        self.relay.0.as_ref().map_or(0, |relay| relay.held_bytes())
    }
}

impl fmt::Debug for RelayLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayLayer").field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl fmt::Debug for RelayLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayLoan").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl ShardDriver {
    /// Takes the relay if its session is connected here. Otherwise the [`RelaySlot`] keeps the loan
    /// for the next shard, and the last drop gives the relay back.
    pub(crate) fn host_relay(&mut self, slot: &RelaySlot) {
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = slot.as_ref().and_then(|loan| self.shard.connection_of(&loan.client_id));
        let Some(ConnId(index)) = conn else { return };
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let is_able = socket.stack.is_none() && !socket.out_of_memory && !socket.is_lingering();
        if !is_able || socket.peer_closed || !matches!(socket.stream, SocketStream::Unix(_)) {
            return;
        }
        let Some(RelayLoan { mut relay, far, near, .. }) = slot.take() else { return };
        let _ = self.registry.deregister(&mut socket.stream);
        if let Some(relay) = &mut relay.0 {
            relay.hear_near(&drain_socket(&near));
            relay.hear_near(&socket.take_unsent());
        }
        let far = SocketStream::Tcp(TcpStream::from_std(far));
        let SocketStream::Unix(pair) = std::mem::replace(&mut socket.stream, far) else { return };
        socket.tail.extend(drain_socket(&pair));
        let layer = RelayLayer { relay, pair, fault: None };
        socket.stack = Some(Box::new(TransportStack::of_relay(layer)));
        if self.begin_stream(index) {
            self.say_by(index, &[]);
        }
    }

    /// Registers the new stream of a socket with the poller and resumes the socket. Returns false,
    /// after dropping the connection, if the poller refuses.
    fn begin_stream(&mut self, index: u32) -> bool {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return false };
        (socket.watches_writable, socket.peer_closed) = (false, false);
        let token = socket_token(self.id, index as usize);
        if self.registry.register(&mut socket.stream, token, Interest::READABLE).is_err() {
            self.drop_lost_connection(index);
            return false;
        }
        if socket.congested.take().is_some() {
            let conn = ConnId(index);
            self.shard.handle(self.now, ShardInput::Writable { conn }, &mut self.out);
        }
        self.count_socket_bytes(index);
        self.resume_later(index);
        true
    }

    /// Returns the relay to its link, and puts the session back on the socket pair.
    pub(crate) fn recall_relay(&mut self, client_id: &str) {
        let Some(index) = self.relay_of(client_id) else { return };
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let _ = self.registry.deregister(&mut socket.stream);
        let layers = socket.stack.take();
        let Some(RelayLayer { relay, pair, fault }) = layers.and_then(|layers| layers.relay) else {
            return;
        };
        let far = std::mem::replace(&mut socket.stream, SocketStream::Unix(pair));
        let unsent = socket.take_unsent();
        self.begin_stream(index);
        relay.give_back(RelaySocket { stream: far.into_tcp(), unsent, fault });
    }

    /// Returns the relay of a dropped socket to its link, with the stream and the unsent bytes.
    pub(crate) fn give_back_relay(&self, mut socket: Socket) {
        let layers = socket.stack.take();
        let Some(RelayLayer { relay, fault, .. }) = layers.and_then(|layers| layers.relay) else {
            return;
        };
        // Released bytes are missing in the stream, so the stream is not returned.
        if socket.out_of_memory {
            return relay.give_back(RelaySocket { fault, ..RelaySocket::default() });
        }
        let unsent = socket.take_unsent();
        relay.give_back(RelaySocket { stream: socket.stream.into_tcp(), unsent, fault });
    }

    /// Sends `bytes` of the link to the peer broker, behind the output of the relay.
    pub(crate) fn say_by_relay(&mut self, client_id: &str, bytes: &[u8]) {
        if let Some(index) = self.relay_of(client_id) {
            self.say_by(index, bytes);
        }
    }

    /// Sends the pending output of the relay to the peer broker, followed by `bytes`.
    fn say_by(&mut self, index: u32, bytes: &[u8]) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let Some(relay) = socket.relay() else { return };
        self.sealed.clear();
        let said = relay.seal(&[], &mut self.sealed).and_then(|()| self.sealed.push(bytes));
        if said.is_err() {
            return;
        }
        // The next read finds out whether the socket is broken.
        let _ = socket.send_sealed(self.sealed.bytes());
        if socket.unsent_len() > 0 && self.wait_for_room(index) {
            let conn = ConnId(index);
            self.shard.handle(self.now, ShardInput::Congested { conn }, &mut self.out);
        }
    }

    fn relay_of(&mut self, client_id: &str) -> Option<u32> {
        let ConnId(index) = self.shard.connection_of(client_id)?;
        let socket = self.sockets.get_mut(index as usize)?.as_mut()?;
        socket.relay().map(|_| index)
    }

    /// Lists the socket after a write if `has_words`: output for the local session has no event.
    #[inline]
    pub(crate) fn list_relay(&mut self, index: u32) {
        let socket = self.sockets.get_mut(index as usize).and_then(Option::as_mut);
        if socket.and_then(Socket::relay).is_some_and(RelayLayer::has_words) {
            self.list_socket(index);
        }
    }

    /// Reads once from the socket to the peer broker. Returns whether the connection is over.
    pub(crate) fn read_by_relay(&mut self, index: u32, buffer: &mut [u8]) -> bool {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return false };
        let (read, fault) = match socket.receive(buffer) {
            Ok(Some(read @ 1..)) => (read, None),
            Ok(None) if !socket.peer_closed => (0, None),
            Ok(_) => (0, Some(io::ErrorKind::UnexpectedEof.into())),
            Err(fault) => (0, Some(fault)),
        };
        let has_more = read == buffer.len() || (read > 0 && socket.peer_closed);
        let is_ended = fault.is_some();
        if let Some(fault) = fault {
            socket.note_fault(fault);
        }
        if has_more {
            self.list_socket(index);
        }
        let is_over =
            self.decode_through_stack(index, &mut buffer[..read]).unwrap_or(true) || is_ended;
        let socket = self.sockets.get(index as usize).and_then(Option::as_ref);
        // The last packets of the other broker are handled first; the end is found again by the
        // next read.
        let is_behind = socket.is_some_and(|socket| socket.has_unread_tail);
        is_over && !is_behind
    }

    pub(crate) fn hosts_relay(&mut self, index: u32) -> bool {
        let socket = self.sockets.get_mut(index as usize).and_then(Option::as_mut);
        socket.is_some_and(|socket| socket.relay().is_some())
    }
}

/// Reads all bytes available now in the socket, without waiting.
fn drain_socket(socket: &impl AsFd) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok((len @ 1.., _)) = recv(socket, &mut chunk, RecvFlags::DONTWAIT) {
        all.extend_from_slice(&chunk[..len]);
    }
    all
}

fn empty(words: &mut Vec<u8>) {
    words.clear();
    if words.capacity() > KEPT_BYTES {
        *words = Vec::new();
    }
}
