//! The protocols of ZeroMQ and nanomsg, sans I/O: received bytes become messages, and messages
//! become bytes. `zmtp` is the protocol of ZeroMQ (ZMTP 3.0 and 3.1), `sp` that of nanomsg and NNG,
//! and `socket_type` lists the kinds of sockets and their peers.
//!
//! Invariants: of a peer's data only bytes with a checked length are kept; before the handshake is
//! complete these are a greeting or one short command; and a broken peer is reported differently
//! from a silent one.

#![forbid(unsafe_code)]

mod envelope;
mod prefix_subscriptions;
mod socket_type;
mod sp;
mod zmtp;

#[cfg(test)]
mod tests;

pub use prefix_subscriptions::PrefixSubscriptions;
pub use socket_type::{ProtocolFamily, RoutingStrategy, SocketType};
pub use sp::SpTransport;
pub use zmtp::PlainCredentials;

use std::collections::VecDeque;
use std::fmt;
use websocket_codec::FrameError;

/// A message of several frames, sent and received as a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultipartMessage {
    /// Address of the requester, for a request or its reply; empty for socket types without
    /// requests.
    pub envelope: Vec<Vec<u8>>,
    /// Frames of the message: exactly one for nanomsg and NNG, at least one for ZeroMQ.
    pub frames: Vec<Vec<u8>>,
}

/// An event decoded by [`SocketProtocol::decode`] from received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// The handshake is complete: messages may go both ways.
    Open,
    Message(MultipartMessage),
    /// The peer subscribes to messages with this prefix.
    Subscribe(Vec<u8>),
    /// The peer cancels a subscription to this prefix.
    Cancel(Vec<u8>),
    /// A complete message whose [`MultipartMessage::envelope`] is missing or invalid.
    Unroutable,
}

/// Bounds on the data of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Largest sum of the frames of a message, in bytes.
    pub message_bytes_max: usize,
}

/// Bound of [`MultipartMessage::frames`]: each frame costs more memory than its bytes.
pub const FRAMES_MAX: usize = 256;

/// Why a connection has to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketError {
    /// The greeting is not of this protocol.
    Greeting,
    Version(u8),
    Mechanism(String),
    /// Name of the peer's socket type, which is not a valid peer of the own [`SocketType`].
    SocketType(String),
    Credentials,
    /// The peer refused the connection, with this reason.
    Refused(String),
    TooLarge,
    TooManyFrames,
    /// A command not allowed at this point of the protocol.
    Command(&'static str),
    WebSocket(FrameError),
    /// The peer closed the WebSocket connection.
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
            SocketError::Command(what) => f.write_str(what),
            SocketError::WebSocket(error) => write!(f, "its WebSocket is broken: {error}"),
            SocketError::Closed => f.write_str("it closed the connection"),
        }
    }
}

impl std::error::Error for SocketError {}

/// The protocol of one connection, without I/O: consumes received bytes, and returns
/// [`SocketEvent`]s and bytes to send.
#[derive(Debug)]
pub enum SocketProtocol {
    Sp(sp::SpCodec),
    Zmtp(Box<zmtp::ZmtpCodec>),
}

impl SocketProtocol {
    /// Creates a connection of nanomsg or NNG over `transport`.
    pub fn sp(
        pattern: SocketType,
        transport: SpTransport,
        limits: MessageLimits,
    ) -> SocketProtocol {
        SocketProtocol::Sp(sp::SpCodec::new(pattern, transport, limits))
    }

    /// Creates a connection of ZeroMQ. With `plain` the mechanism is PLAIN, and the side that
    /// listens checks the credentials [ZMTP 3.1]; without, the mechanism is NULL.
    pub fn zmtp(
        pattern: SocketType,
        plain: Option<PlainCredentials>,
        listens: bool,
        limits: MessageLimits,
    ) -> SocketProtocol {
        SocketProtocol::Zmtp(Box::new(zmtp::ZmtpCodec::new(pattern, plain, listens, limits)))
    }

    /// Appends the greeting, which has to be sent first.
    pub fn write_greeting(&self, out: &mut Vec<u8>) {
        match self {
            SocketProtocol::Sp(sp) => sp.write_greeting(out),
            SocketProtocol::Zmtp(zmtp) => zmtp.write_greeting(out),
        }
    }

    /// Decodes whole units at the front of `bytes` and returns the number of bytes consumed.
    /// Immediate answers are appended to `out`, also before an error.
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

    /// Returns the bytes kept of an incomplete message, in addition to those not consumed.
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

    /// Subscribes to messages with the prefix. Sends no bytes for nanomsg and NNG, whose
    /// subscribers receive every message and filter it.
    pub fn write_subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        if let SocketProtocol::Zmtp(zmtp) = self {
            zmtp.write_subscribe(prefix, out);
        }
    }
}

/// Checks two properties of [`SocketProtocol::decode`] for any bytes: the events do not depend on
/// how the bytes are split, and never hold more bytes than were received. The first byte selects
/// the socket type, the second the length of the pieces. For the fuzzer and its corpus.
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
