//! The routing header before a request and its reply, by which the reply finds the requester.
//!
//! ```text
//! ZeroMQ   any frames | an empty frame | the request's frames
//! nanomsg  words of four bytes, the last with its highest bit set | the request
//! pair1    one word: over how many hops it came
//! ```

use crate::socket_type::SocketType;
use crate::{MultipartMessage, SocketEvent};

/// Largest number of devices on the way of a request; a message with more is
/// [`SocketEvent::Unroutable`].
const HOPS_MAX: usize = 15;
/// Largest routing id in bytes (ZeroMQ RFC 28): an envelope is kept until its reply, so its size is
/// bounded.
const ID_BYTES_MAX: usize = 255;
const HOP_BYTES: usize = 4;
const LAST_HOP: u8 = 0x80;

pub(crate) fn decode_zmq(pattern: SocketType, mut frames: Vec<Vec<u8>>) -> SocketEvent {
    if !pattern.sends_requests() && !pattern.sends_replies() {
        return SocketEvent::Message(MultipartMessage { envelope: Vec::new(), frames });
    }
    let is_id = |frame: &Vec<u8>| frame.len() <= ID_BYTES_MAX;
    match frames.iter().position(Vec::is_empty) {
        Some(at) if at <= HOPS_MAX && frames[..at].iter().all(is_id) => {
            let body = frames.split_off(at + 1);
            frames.truncate(at);
            // The envelope is kept until the reply, so the spare capacity is freed.
            frames.shrink_to_fit();
            SocketEvent::Message(MultipartMessage { envelope: frames, frames: body })
        }
        _ => SocketEvent::Unroutable,
    }
}

/// Returns the length of the SP header before the message in `body`, and `None` if the header is
/// incomplete or invalid.
fn sp_header(pattern: SocketType, body: &[u8]) -> Option<usize> {
    if pattern == SocketType::Pair1 {
        let hops = body.get(..HOP_BYTES)?;
        return (hops[..3] == [0; 3] && hops[3] > 0).then_some(HOP_BYTES);
    }
    if !pattern.sends_requests() && !pattern.sends_replies() {
        return Some(0);
    }
    let words = body.chunks_exact(HOP_BYTES).take(HOPS_MAX + 1);
    let last = words.into_iter().position(|word| word[0] & LAST_HOP != 0)?;
    Some((last + 1) * HOP_BYTES)
}

pub(crate) fn decode_sp(pattern: SocketType, body: &[u8]) -> SocketEvent {
    let Some(len) = sp_header(pattern, body) else { return SocketEvent::Unroutable };
    let (header, body) = body.split_at(len);
    let keeps = len > 0 && pattern != SocketType::Pair1;
    let envelope = if keeps { vec![header.to_vec()] } else { Vec::new() };
    SocketEvent::Message(MultipartMessage { envelope, frames: vec![body.to_vec()] })
}

/// Returns the bytes sent by an SP socket before the first frame of a message.
pub(crate) fn sp_header_bytes(pattern: SocketType, message: &MultipartMessage) -> &[u8] {
    match (pattern, message.envelope.first()) {
        (SocketType::Pair1, _) => &[0, 0, 0, 1],
        (_, Some(header)) => header,
        (_, None) => &[],
    }
}

/// Encodes the id of a request, the same in both families: the highest bit marks the last word.
pub(crate) fn encode_request_id(number: u32) -> Vec<u8> {
    (number | u32::from(LAST_HOP) << 24).to_be_bytes().to_vec()
}

impl MultipartMessage {
    /// Creates a request with the id `number`, which must be below 2^31.
    pub fn new_request(number: u32, frames: Vec<Vec<u8>>) -> MultipartMessage {
        MultipartMessage { envelope: vec![encode_request_id(number)], frames }
    }

    /// Returns the id of the request, for a request or its reply; `None` if the envelope has no id.
    pub fn request_id(&self) -> Option<u32> {
        let number: [u8; HOP_BYTES] = self.envelope.last()?.as_slice().try_into().ok()?;
        let number = u32::from_be_bytes(number);
        Some(number & !(u32::from(LAST_HOP) << 24))
    }

    pub fn len(&self) -> usize {
        self.envelope.iter().chain(&self.frames).map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
