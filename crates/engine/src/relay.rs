//! Relays of links on the thread of a shard: a link that only passes packets on needs no thread of
//! its own, and no wake-up of one for each message.
//!
//! A link's session is connected by a pair of sockets, of which the link has one end. While the
//! shard hosts the relay, the socket to the other broker stands in the place of the pair, and the
//! relay is its layer:
//!
//! ```text
//! link thread:   session <-> MQTT <-> pair of sockets <-> relay <-> socket to the other broker
//! shard thread:  session <-> MQTT <----------------------> relay <-> socket to the other broker
//! ```
//!
//! The pair stays, and the session speaks through it again after a recall. Bytes that stand in the
//! pair or wait for the socket change over too, in their order.

use crate::shard_driver::{ShardDriver, socket_token};
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

/// Passes packets between a session of this process and another broker, sans I/O. The engine calls
/// [`LinkRelay::give_back`] in the end, whatever happens.
pub trait LinkRelay: Send {
    /// Bytes of the session here; a packet may end in the next ones.
    fn hear_near(&mut self, bytes: &[u8]);

    /// Bytes of the other broker.
    fn hear_far(&mut self, bytes: &[u8]);

    /// Whole packets for the session here. The engine empties it.
    fn to_near(&mut self) -> &mut Vec<u8>;

    /// Packets for the other broker. The engine empties it.
    fn to_far(&mut self) -> &mut Vec<u8>;

    /// The socket has taken all that there was for the other broker.
    fn note_sent(&mut self);

    /// Whether the relay cannot go on: the connection of the session ends.
    fn is_over(&self) -> bool;

    /// Bytes that the relay keeps until their packet is whole.
    fn held_bytes(&self) -> usize;

    fn give_back(self: Box<Self>, socket: RelaySocket);
}

/// The result of a relay that has ended.
#[derive(Debug, Default)]
pub struct RelaySocket {
    /// None where the shard could not go on with it.
    pub stream: Option<std::net::TcpStream>,
    /// Said to the other broker, and not taken by the socket.
    pub unsent: Vec<u8>,
    /// Why the socket ended, where it did.
    pub fault: Option<io::Error>,
}

/// The parts that a shard needs to run a relay.
pub struct RelayLoan {
    client_id: Box<str>,
    relay: RelayGuard,
    far: std::net::TcpStream,
    /// The link's end of the pair.
    near: std::os::unix::net::UnixStream,
}

/// For the shard that has the session: all shards are asked.
pub(crate) type RelaySlot = Arc<Mutex<Option<RelayLoan>>>;

/// A relay that is given back when its holder goes.
struct RelayGuard(Option<Box<dyn LinkRelay>>);

/// A relay between a socket and MQTT.
pub(crate) struct RelayLayer {
    relay: RelayGuard,
    /// The shard's end of the pair, which no poller watches now.
    pair: UnixStream,
    fault: Option<io::Error>,
}

/// Buffers that a burst made larger than this are given back, in bytes.
const KEPT_BYTES: usize = 256 * 1024;

impl RelayLoan {
    /// Creates a relay for the session with this client id. `near` is a descriptor of the other end
    /// of the stream given to `EngineHandle::connect_internal`. Only the relay may read and write
    /// there until it is returned.
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
    /// Handles bytes from the other broker, and sends the responses. Returns whether the relay is
    /// over.
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

    /// Handles bytes from the local session, and sends the responses.
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

    /// Whether there is something for the session here that no event tells of.
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
    /// Takes the relay, if its session is connected here. Otherwise the loan stays for another
    /// shard, and goes back when the last one has looked.
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

    /// A socket has another stream now, which the poller does not know yet. Says whether it does
    /// in the end.
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

    /// The link wants its relay back, and goes on by itself.
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

    /// A socket is gone: a relay that was its layer goes back to its link.
    pub(crate) fn give_back_relay(&self, mut socket: Socket) {
        let layers = socket.stack.take();
        let Some(RelayLayer { relay, fault, .. }) = layers.and_then(|layers| layers.relay) else {
            return;
        };
        // What a socket had to give up is missing in its stream.
        if socket.out_of_memory {
            return relay.give_back(RelaySocket { fault, ..RelaySocket::default() });
        }
        let unsent = socket.take_unsent();
        relay.give_back(RelaySocket { stream: socket.stream.into_tcp(), unsent, fault });
    }

    /// Something for the other broker that is not the relay's own.
    pub(crate) fn say_by_relay(&mut self, client_id: &str, bytes: &[u8]) {
        if let Some(index) = self.relay_of(client_id) {
            self.say_by(index, bytes);
        }
    }

    /// Sends the pending output of the relay to the other broker, followed by `bytes`.
    fn say_by(&mut self, index: u32, bytes: &[u8]) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let Some(relay) = socket.relay() else { return };
        self.sealed.clear();
        let said = relay.seal(&[], &mut self.sealed).and_then(|()| self.sealed.push(bytes));
        if said.is_err() {
            return;
        }
        // Whether it breaks is found out by the next read.
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

    /// After a write to a socket: its relay may have something for the session here because of it.
    #[inline]
    pub(crate) fn list_relay(&mut self, index: u32) {
        let socket = self.sockets.get_mut(index as usize).and_then(Option::as_mut);
        if socket.and_then(Socket::relay).is_some_and(RelayLayer::has_words) {
            self.list_socket(index);
        }
    }

    /// Reads once from the socket to the other broker. Says whether the connection is over.
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
        // What the other broker said last is done first, and its end is found again.
        let is_behind = socket.is_some_and(|socket| socket.has_unread_tail);
        is_over && !is_behind
    }

    pub(crate) fn hosts_relay(&mut self, index: u32) -> bool {
        let socket = self.sockets.get_mut(index as usize).and_then(Option::as_mut);
        socket.is_some_and(|socket| socket.relay().is_some())
    }
}

/// Reads everything that a socket has at the moment.
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
