//! What sockets of ZeroMQ and of nanomsg say to each other, sans I/O: bytes that came become
//! messages, and messages become bytes. `zmtp` is ZeroMQ's protocol (ZMTP 3.0 and 3.1), `sp` that
//! of nanomsg and NNG, `pattern` which kinds of sockets go together.
//!
//! Invariants: whatever a peer sends, nothing is kept of it whose length was not checked before;
//! before hands are shaken that is a greeting or one short command; and a broken peer is told apart
//! from a silent one.

#![forbid(unsafe_code)]

mod envelope;
mod pattern;
mod sp;
mod topics;
mod web;
mod zmtp;

#[cfg(test)]
mod tests;

pub use pattern::{Family, Manner, Pattern};
pub use sp::Carrier;
pub use topics::Topics;
pub use zmtp::Plain;

use std::collections::VecDeque;
use std::fmt;

/// What goes over such a socket as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Whom a request is from, or an answer for; empty where nobody is asked.
    pub envelope: Vec<Vec<u8>>,
    /// One of nanomsg has one frame.
    pub frames: Vec<Vec<u8>>,
}

/// What came of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Hands are shaken: messages may go both ways.
    Open,
    Message(Message),
    /// It wants what begins so, ...
    Subscribe(Vec<u8>),
    /// ... or no longer, ...
    Cancel(Vec<u8>),
    /// A whole message that says nobody whom it is for.
    Astray,
}

/// How much a peer may say at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All frames of a message together.
    pub message_bytes_max: usize,
}

/// Frames of one message: each of them costs more than its bytes.
pub const FRAMES_MAX: usize = 256;

/// Why it cannot go on with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It speaks another language.
    Greeting,
    Version(u8),
    Mechanism(String),
    /// The kind of socket that it says it is.
    Pattern(String),
    Credentials,
    /// It has refused us, and says why.
    Refused(String),
    TooLarge,
    TooManyFrames,
    /// What no peer may say there.
    Command(&'static str),
    /// Frames of WebSocket that are none.
    Web(&'static str),
    /// It has said goodbye.
    Closed,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Greeting => f.write_str("it does not greet as such a socket does"),
            Broken::Version(version) => write!(f, "it speaks ZMTP {version}, use one of 3"),
            Broken::Mechanism(name) => write!(f, "its security mechanism is {name:?}, not ours"),
            Broken::Pattern(name) => write!(f, "it is {name}, which does not go with ours"),
            Broken::Credentials => f.write_str("its user name or password is not right"),
            Broken::Refused(why) => write!(f, "it refuses us: {why:?}"),
            Broken::TooLarge => f.write_str("it sent a message above message_bytes_max"),
            Broken::TooManyFrames => write!(f, "it sent a message of above {FRAMES_MAX} frames"),
            Broken::Command(what) | Broken::Web(what) => f.write_str(what),
            Broken::Closed => f.write_str("it closed the connection"),
        }
    }
}

impl std::error::Error for Broken {}

/// One connection's half of the conversation that is ours.
#[derive(Debug)]
pub enum Speech {
    Sp(sp::Sp),
    Zmtp(Box<zmtp::Zmtp>),
}

impl Speech {
    /// Of nanomsg and NNG, over what carries it.
    pub fn sp(pattern: Pattern, carrier: Carrier, limits: Limits) -> Speech {
        Speech::Sp(sp::Sp::new(pattern, carrier, limits))
    }

    /// Of ZeroMQ; who listens is the server where there are passwords.
    pub fn zmtp(pattern: Pattern, plain: Option<Plain>, listens: bool, limits: Limits) -> Speech {
        Speech::Zmtp(Box::new(zmtp::Zmtp::new(pattern, plain, listens, limits)))
    }

    /// Our first words.
    pub fn greet(&self, out: &mut Vec<u8>) {
        match self {
            Speech::Sp(sp) => sp.greet(out),
            Speech::Zmtp(zmtp) => zmtp.greet(out),
        }
    }

    /// Takes what is whole from the front of `bytes`, and says how much. What has to be answered
    /// at once goes to `out`, even where it is broken.
    pub fn hear(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<Heard>,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        match self {
            Speech::Sp(sp) => sp.hear(bytes, heard, out),
            Speech::Zmtp(zmtp) => zmtp.hear(bytes, heard, out),
        }
    }

    /// Bytes of a message of which more is to come, beside those that were not taken.
    pub fn held(&self) -> usize {
        match self {
            Speech::Sp(sp) => sp.held(),
            Speech::Zmtp(zmtp) => zmtp.held(),
        }
    }

    pub fn say(&self, message: &Message, out: &mut Vec<u8>) {
        match self {
            Speech::Sp(sp) => sp.say(message, out),
            Speech::Zmtp(zmtp) => zmtp.say(message, out),
        }
    }

    /// Asks for what begins so. Sockets of nanomsg get everything and choose themselves.
    pub fn subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        if let Speech::Zmtp(zmtp) = self {
            zmtp.subscribe(prefix, out);
        }
    }
}

/// What must hold for any bytes: what comes of them does not depend on the pieces they come in,
/// and there is never more of it than there was. For the fuzzer, and for its corpus. The first
/// byte says which socket hears them, the second how long the pieces are.
pub fn probe(bytes: &[u8]) {
    let [which, piece, bytes @ ..] = bytes else { return };
    let whole = heard_of(*which, bytes, bytes.len());
    let pieces = heard_of(*which, bytes, usize::from(*piece));
    assert!(whole == pieces, "{whole:?} at once, {pieces:?} in pieces");
    let size = |heard: &Heard| match heard {
        Heard::Message(message) => {
            message.envelope.iter().chain(&message.frames).map(Vec::len).sum()
        }
        Heard::Subscribe(prefix) | Heard::Cancel(prefix) => prefix.len(),
        Heard::Open | Heard::Astray => 0,
    };
    let sum: usize = whole.0.iter().map(size).sum();
    assert!(sum <= bytes.len(), "{sum} bytes of {}", bytes.len());
}

fn heard_of(which: u8, bytes: &[u8], piece: usize) -> (VecDeque<Heard>, Result<(), Broken>) {
    let limits = Limits { message_bytes_max: 1024 };
    let at = usize::from(which >> 3);
    let sp = |carrier| {
        let all: Vec<Pattern> = Pattern::all(Family::Sp).collect();
        Speech::sp(all[at % all.len()], carrier, limits)
    };
    let plain = Plain { user_name: "u".into(), password: b"p"[..].into() };
    let zmtp = |plain, listens| {
        let all: Vec<Pattern> = Pattern::all(Family::Zmq).collect();
        Speech::zmtp(all[at % all.len()], plain, listens, limits)
    };
    let mut speech = match which % 8 {
        0 => sp(Carrier::Stream),
        1 => sp(Carrier::Ipc),
        2 => sp(Carrier::Web { masks: true }),
        3 => sp(Carrier::Web { masks: false }),
        4 | 5 => zmtp(None, false),
        6 => zmtp(Some(plain), true),
        _ => zmtp(Some(plain), false),
    };
    let (mut heard, mut out, mut unread) = (VecDeque::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        unread.extend_from_slice(piece);
        match speech.hear(&unread, &mut heard, &mut out) {
            Ok(taken) => _ = unread.drain(..taken),
            Err(broken) => return (heard, Err(broken)),
        }
    }
    (heard, Ok(()))
}
