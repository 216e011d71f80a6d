//! What stands before a request and its answer, so that the answer finds its way back.
//!
//! ```text
//! ZeroMQ   any frames | an empty frame | the request's frames
//! nanomsg  words of four bytes, the last with its highest bit set | the request
//! pair1    one word: over how many hops it came
//! ```

use crate::pattern::Pattern;
use crate::{Heard, Message};

/// So many devices it may have come through.
const HOPS_MAX: usize = 15;
/// A routing id has at most so many bytes (ZeroMQ RFC 28): an envelope is kept until its answer.
const ID_BYTES_MAX: usize = 255;
const WORD: usize = 4;
const LAST: u8 = 0x80;

pub(crate) fn of_zmq(pattern: Pattern, mut frames: Vec<Vec<u8>>) -> Heard {
    if !pattern.asks() && !pattern.answers() {
        return Heard::Message(Message { envelope: Vec::new(), frames });
    }
    let is_id = |frame: &Vec<u8>| frame.len() <= ID_BYTES_MAX;
    match frames.iter().position(Vec::is_empty) {
        Some(at) if at <= HOPS_MAX && frames[..at].iter().all(is_id) => {
            let body = frames.split_off(at + 1);
            frames.truncate(at);
            // It is kept until its answer, and the room of what stood behind it shall not be.
            frames.shrink_to_fit();
            Heard::Message(Message { envelope: frames, frames: body })
        }
        _ => Heard::Astray,
    }
}

/// How many bytes of a body are not its message's.
fn sp_header(pattern: Pattern, body: &[u8]) -> Option<usize> {
    if pattern == Pattern::Pair1 {
        let hops = body.get(..WORD)?;
        return (hops[..3] == [0; 3] && hops[3] > 0).then_some(WORD);
    }
    if !pattern.asks() && !pattern.answers() {
        return Some(0);
    }
    let words = body.chunks_exact(WORD).take(HOPS_MAX + 1);
    let last = words.into_iter().position(|word| word[0] & LAST != 0)?;
    Some((last + 1) * WORD)
}

pub(crate) fn of_sp(pattern: Pattern, body: &[u8]) -> Heard {
    let Some(len) = sp_header(pattern, body) else { return Heard::Astray };
    let (header, body) = body.split_at(len);
    let keeps = len > 0 && pattern != Pattern::Pair1;
    let envelope = if keeps { vec![header.to_vec()] } else { Vec::new() };
    Heard::Message(Message { envelope, frames: vec![body.to_vec()] })
}

/// What goes out before the first frame of a message of nanomsg.
pub(crate) fn sp_bytes(pattern: Pattern, message: &Message) -> &[u8] {
    match (pattern, message.envelope.first()) {
        (Pattern::Pair1, _) => &[0, 0, 0, 1],
        (_, Some(header)) => header,
        (_, None) => &[],
    }
}

/// A question's number, as it stands in front of it in both families.
pub(crate) fn numbered(number: u32) -> Vec<u8> {
    (number | u32::from(LAST) << 24).to_be_bytes().to_vec()
}

impl Message {
    /// A question with so many before it: the number is less than 2^31.
    pub fn question(number: u32, frames: Vec<Vec<u8>>) -> Message {
        Message { envelope: vec![numbered(number)], frames }
    }

    /// Which question it answers, or is.
    pub fn answered(&self) -> Option<u32> {
        let number: [u8; WORD] = self.envelope.last()?.as_slice().try_into().ok()?;
        let number = u32::from_be_bytes(number);
        Some(number & !(u32::from(LAST) << 24))
    }

    pub fn len(&self) -> usize {
        self.envelope.iter().chain(&self.frames).map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
