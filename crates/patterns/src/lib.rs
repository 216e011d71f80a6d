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

/// What goes over such a socket as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultipartMessage {
    /// Whom a request is from, or an answer for; empty where nobody is asked.
    pub envelope: Vec<Vec<u8>>,
    /// One of nanomsg has one frame.
    pub frames: Vec<Vec<u8>>,
}

/// What came of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// Hands are shaken: messages may go both ways.
    Open,
    Message(MultipartMessage),
    /// It wants what begins so, ...
    Subscribe(Vec<u8>),
    /// ... or no longer, ...
    Cancel(Vec<u8>),
    /// A whole message that says nobody whom it is for.
    Unroutable,
}

/// How much a peer may say at once.
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
    /// It speaks another language.
    Greeting,
    Version(u8),
    Mechanism(String),
    /// The kind of socket that it says it is.
    SocketType(String),
    Credentials,
    /// It has refused us, and says why.
    Refused(String),
    TooLarge,
    TooManyFrames,
    /// What no peer may say there.
    Command(&'static str),
    /// Frames of WebSocket that are none.
    WebSocket(&'static str),
    /// It has said goodbye.
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

/// One connection's half of the conversation that is ours.
#[derive(Debug)]
pub enum SocketProtocol {
    Sp(sp::SpCodec),
    Zmtp(Box<zmtp::ZmtpCodec>),
}

impl SocketProtocol {
    /// Of nanomsg and NNG, over what carries it.
    pub fn sp(pattern: SocketType, carrier: SpTransport, limits: MessageLimits) -> SocketProtocol {
        SocketProtocol::Sp(sp::SpCodec::new(pattern, carrier, limits))
    }

    /// Of ZeroMQ; who listens is the server where there are passwords.
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

/// What must hold for any bytes: what comes of them does not depend on the pieces they come in,
/// and there is never more of it than there was. For the fuzzer, and for its corpus. The first
/// byte says which socket hears them, the second how long the pieces are.
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
    let sp = |carrier| {
        let all: Vec<SocketType> = SocketType::all(ProtocolFamily::Sp).collect();
        SocketProtocol::sp(all[at % all.len()], carrier, limits)
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
