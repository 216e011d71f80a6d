//! What sockets of ZeroMQ and of nanomsg say to each other, sans I/O: bytes that came become
//! messages, and messages become bytes. `zmtp` is ZeroMQ's protocol (ZMTP 3.0 and 3.1), `sp` that
//! of nanomsg and NNG, `pattern` which kinds of sockets go together.
//!
//! Invariants: whatever a peer sends, nothing is kept of it whose length was not checked before;
//! before hands are shaken that is a greeting or one short command; and a broken peer is told apart
//! from a silent one.

#![forbid(unsafe_code)]

mod envelope;
mod prefix_subscriptions;
mod socket_type;
mod sp;
mod websocket;
mod zmtp;

#[cfg(test)]
mod tests;

pub use prefix_subscriptions::PrefixSubscriptions;
pub use socket_type::{ProtocolFamily, RoutingStrategy, SocketType};
pub use sp::SpTransport;
pub use zmtp::PlainCredentials;

use std::collections::VecDeque;
use std::fmt;

/// A message of several frames, which a socket sends and receives as a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultipartMessage {
    /// Address of the peer that a request came from or that a response goes to; empty for patterns
    /// without requests.
    pub envelope: Vec<Vec<u8>>,
    /// Frames of the message: exactly one for nanomsg and NNG, at least one for ZeroMQ.
    pub frames: Vec<Vec<u8>>,
}

/// An event that [`SocketProtocol`] decodes from received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// Hands are shaken: messages may go both ways.
    Open,
    Message(MultipartMessage),
    /// The peer subscribes to messages that begin with these bytes, ...
    Subscribe(Vec<u8>),
    /// ... or no longer, ...
    Cancel(Vec<u8>),
    /// A whole message that says nobody whom it is for.
    Unroutable,
}

/// Limits on the size of what a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// All frames of a message together.
    pub message_bytes_max: usize,
}

/// Frames of one message: each of them costs more than its bytes.
pub const FRAMES_MAX: usize = 256;

/// Why it cannot go on with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketError {
    /// The greeting is not one of this protocol.
    Greeting,
    Version(u8),
    Mechanism(String),
    /// The kind of socket that it says it is.
    SocketType(String),
    Credentials,
    /// The peer refused the connection for this reason.
    Refused(String),
    TooLarge,
    TooManyFrames,
    /// A command that the protocol does not allow at this point.
    Command(&'static str),
    /// Frames of WebSocket that are none.
    WebSocket(&'static str),
    /// The peer closed the connection in the protocol's own way.
    Closed,
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketError::Greeting => f.write_str("it does not greet as such a socket does"),
            SocketError::Version(version) => write!(f, "it speaks ZMTP {version}, use one of 3"),
            SocketError::Mechanism(name) => {
                write!(f, "its security mechanism is {name:?}, not ours")
            }
            SocketError::SocketType(name) => write!(f, "it is {name}, which does not go with ours"),
            SocketError::Credentials => f.write_str("its user name or password is not right"),
            SocketError::Refused(why) => write!(f, "it refuses us: {why:?}"),
            SocketError::TooLarge => f.write_str("it sent a message above message_bytes_max"),
            SocketError::TooManyFrames => {
                write!(f, "it sent a message of above {FRAMES_MAX} frames")
            }
            SocketError::Command(what) | SocketError::WebSocket(what) => f.write_str(what),
            SocketError::Closed => f.write_str("it closed the connection"),
        }
    }
}

impl std::error::Error for SocketError {}

/// Our side of one connection, without I/O: bytes in, [`SocketEvent`]s out, bytes to send.
#[derive(Debug)]
pub enum SocketProtocol {
    Sp(sp::SpCodec),
    Zmtp(Box<zmtp::ZmtpCodec>),
}

impl SocketProtocol {
    /// Creates a connection of nanomsg or NNG over the given transport.
    pub fn sp(
        pattern: SocketType,
        transport: SpTransport,
        limits: MessageLimits,
    ) -> SocketProtocol {
        SocketProtocol::Sp(sp::SpCodec::new(pattern, transport, limits))
    }

    /// Creates a connection of ZeroMQ. With passwords the listening side is the server of PLAIN
    /// [ZMTP 3.1].
    pub fn zmtp(
        pattern: SocketType,
        plain: Option<PlainCredentials>,
        listens: bool,
        limits: MessageLimits,
    ) -> SocketProtocol {
        SocketProtocol::Zmtp(Box::new(zmtp::ZmtpCodec::new(pattern, plain, listens, limits)))
    }

    /// Our first words.
    pub fn write_greeting(&self, out: &mut Vec<u8>) {
        match self {
            SocketProtocol::Sp(sp) => sp.write_greeting(out),
            SocketProtocol::Zmtp(zmtp) => zmtp.write_greeting(out),
        }
    }

    /// Takes what is whole from the front of `bytes`, and says how much. What has to be answered
    /// at once goes to `out`, even where it is broken.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<SocketEvent>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SocketError> {
        match self {
            SocketProtocol::Sp(sp) => sp.decode(bytes, heard, out),
            SocketProtocol::Zmtp(zmtp) => zmtp.decode(bytes, heard, out),
        }
    }

    /// Bytes of a message of which more is to come, beside those that were not taken.
    pub fn pending_bytes(&self) -> usize {
        match self {
            SocketProtocol::Sp(sp) => sp.pending_bytes(),
            SocketProtocol::Zmtp(zmtp) => zmtp.pending_bytes(),
        }
    }

    pub fn encode(&self, message: &MultipartMessage, out: &mut Vec<u8>) {
        match self {
            SocketProtocol::Sp(sp) => sp.encode(message, out),
            SocketProtocol::Zmtp(zmtp) => zmtp.encode(message, out),
        }
    }

    /// Asks for what begins so. Sockets of nanomsg get everything and choose themselves.
    pub fn write_subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        if let SocketProtocol::Zmtp(zmtp) = self {
            zmtp.write_subscribe(prefix, out);
        }
    }
}

/// Checks two properties for any bytes: the events do not depend on how the bytes are split, and
/// they never hold more bytes than were received. Used by the fuzzer and its corpus. The first byte
/// of `bytes` selects the socket type, the second the length of the pieces.
pub fn probe(bytes: &[u8]) {
    let [which, piece, bytes @ ..] = bytes else { return };
    let whole = decode_in_pieces(*which, bytes, bytes.len());
    let pieces = decode_in_pieces(*which, bytes, usize::from(*piece));
    assert!(whole == pieces, "{whole:?} at once, {pieces:?} in pieces");
    let size = |heard: &SocketEvent| match heard {
        SocketEvent::Message(message) => {
            message.envelope.iter().chain(&message.frames).map(Vec::len).sum()
        }
        SocketEvent::Subscribe(prefix) | SocketEvent::Cancel(prefix) => prefix.len(),
        SocketEvent::Open | SocketEvent::Unroutable => 0,
    };
    let sum: usize = whole.0.iter().map(size).sum();
    assert!(sum <= bytes.len(), "{sum} bytes of {}", bytes.len());
}

fn decode_in_pieces(
    which: u8,
    bytes: &[u8],
    piece: usize,
) -> (VecDeque<SocketEvent>, Result<(), SocketError>) {
    let limits = MessageLimits { message_bytes_max: 1024 };
    let at = usize::from(which >> 3);
    let sp = |transport| {
        let all: Vec<SocketType> = SocketType::all(ProtocolFamily::Sp).collect();
        SocketProtocol::sp(all[at % all.len()], transport, limits)
    };
    let plain = PlainCredentials { user_name: "u".into(), password: b"p"[..].into() };
    let zmtp = |plain, listens| {
        let all: Vec<SocketType> = SocketType::all(ProtocolFamily::Zmq).collect();
        SocketProtocol::zmtp(all[at % all.len()], plain, listens, limits)
    };
    let mut speech = match which % 8 {
        0 => sp(SpTransport::Stream),
        1 => sp(SpTransport::Ipc),
        2 => sp(SpTransport::WebSocket { masks: true }),
        3 => sp(SpTransport::WebSocket { masks: false }),
        4 | 5 => zmtp(None, false),
        6 => zmtp(Some(plain), true),
        _ => zmtp(Some(plain), false),
    };
    let (mut heard, mut out, mut unread) = (VecDeque::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        unread.extend_from_slice(piece);
        match speech.decode(&unread, &mut heard, &mut out) {
            Ok(taken) => _ = unread.drain(..taken),
            Err(broken) => return (heard, Err(broken)),
        }
    }
    (heard, Ok(()))
}
