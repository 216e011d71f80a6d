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

use crate::stream::SocketStream;
use crate::tls::SealedBuffer;
use mio::net::{TcpStream, UnixStream};
use rustix::net::{RecvFlags, recv};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
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

    /// The client id of the link's session.
    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Starts the relay on the session's socket, whose stream becomes the one to the peer broker.
    /// Bytes on their way to the link, in the socket pair and in `unsent`, go to the relay. Returns
    /// the layer, and the bytes which the link has sent to the session.
    pub(crate) fn start(
        self,
        stream: &mut SocketStream,
        unsent: &[u8],
    ) -> Option<(RelayLayer, Vec<u8>)> {
        let RelayLoan { mut relay, far, near, .. } = self;
        if let Some(relay) = &mut relay.0 {
            relay.hear_near(&drain_socket(&near));
            relay.hear_near(unsent);
        }
        let far = SocketStream::Tcp(TcpStream::from_std(far));
        let SocketStream::Unix(pair) = std::mem::replace(stream, far) else { return None };
        let sent = drain_socket(&pair);
        Some((RelayLayer { relay, pair, fault: None }, sent))
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

    /// Ends the layer of a session which goes on without the relay: its stream is the socket pair
    /// again.
    pub(crate) fn into_recalled(self, stream: &mut SocketStream, unsent: Vec<u8>) -> EndedRelay {
        let RelayLayer { relay, pair, fault } = self;
        let far = std::mem::replace(stream, SocketStream::Unix(pair));
        EndedRelay { relay, socket: RelaySocket { stream: far.into_tcp(), unsent, fault } }
    }

    /// Ends the layer of a dropped socket; `stream` is `None` if bytes are missing there.
    pub(crate) fn into_ended(self, stream: Option<SocketStream>, unsent: Vec<u8>) -> EndedRelay {
        let RelayLayer { relay, fault, .. } = self;
        let stream = stream.and_then(SocketStream::into_tcp);
        EndedRelay { relay, socket: RelaySocket { stream, unsent, fault } }
    }
}

/// A relay whose layer has ended, on its way to its link.
pub(crate) struct EndedRelay {
    relay: RelayGuard,
    socket: RelaySocket,
}

impl EndedRelay {
    pub(crate) fn give_back(self) {
        self.relay.give_back(self.socket);
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
