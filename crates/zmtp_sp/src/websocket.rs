//! Messages of WebSocket (RFC 6455, 5), from either side: each is one of the socket's. The request
//! that opens it is none of this.

use crate::SocketError;

#[derive(Debug)]
pub(crate) struct WebSocketCodec {
    /// Ours are masked, and the peer's are not; or the other way round.
    masks: bool,
    /// Fragments of a message whose last has not come.
    partial_message: Option<Vec<u8>>,
}

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const CONTROL_BYTES_MAX: u64 = 125;
/// Masking key of sent frames. Masking protects proxies that would take a payload for a request, so
/// the key need not be secret between two programs.
const MASK: [u8; 4] = *b"Gdwt";

struct WebSocketFrame {
    opcode: u8,
    is_last: bool,
    /// Start and end of the payload in the buffer.
    from: usize,
    to: usize,
    key: Option<[u8; 4]>,
}

impl WebSocketCodec {
    pub(crate) fn new(masks: bool) -> WebSocketCodec {
        WebSocketCodec { masks, partial_message: None }
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.partial_message.as_ref().map_or(0, Vec::len)
    }

    /// Hands each whole message on, and answers pings.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        most: usize,
        out: &mut Vec<u8>,
        mut hear: impl FnMut(&[u8]),
    ) -> Result<usize, SocketError> {
        let mut taken = 0;
        while let Some(frame) = self.parse_frame(&bytes[taken..], most)? {
            let mut payload = bytes[taken..][frame.from..frame.to].to_vec();
            if let Some(key) = frame.key {
                payload.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
            }
            taken += frame.to;
            match frame.opcode {
                TEXT | BINARY if self.partial_message.is_some() => return Err(MIXED_FRAGMENTS),
                TEXT | BINARY if frame.is_last => hear(&payload),
                TEXT | BINARY => self.partial_message = Some(payload),
                CONTINUED => {
                    let mut begun = self.partial_message.take().ok_or(MIXED_FRAGMENTS)?;
                    begun.append(&mut payload);
                    if frame.is_last { hear(&begun) } else { self.partial_message = Some(begun) }
                }
                CLOSE => {
                    self.write_frame(CLOSE, payload.len(), [&payload[..]].into_iter(), out);
                    return Err(SocketError::Closed);
                }
                PING => self.write_frame(PONG, payload.len(), [&payload[..]].into_iter(), out),
                PONG => {}
                _ => return Err(SocketError::WebSocket("it sent a frame of an unknown kind")),
            }
        }
        Ok(taken)
    }

    /// The frame in front, if it is whole.
    fn parse_frame(
        &self,
        bytes: &[u8],
        most: usize,
    ) -> Result<Option<WebSocketFrame>, SocketError> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & RESERVED != 0 {
            return Err(SocketError::WebSocket("it sent a frame with reserved bits"));
        }
        // RFC 6455, 5.1: who connected masks, who listens does not.
        if (second & MASKED == 0) != self.masks {
            return Err(SocketError::WebSocket(
                "its frames are masked and must not be, or are not",
            ));
        }
        let len_len = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(len) = rest.get(..len_len) else { return Ok(None) };
        let len = match len_len {
            0 => u64::from(second & !MASKED),
            _ => len.iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
        };
        let (opcode, is_last) = (first & 0x0F, first & FIN != 0);
        if opcode >= CLOSE && (!is_last || len > CONTROL_BYTES_MAX) {
            return Err(SocketError::WebSocket(
                "it sent a control frame that is long or in pieces",
            ));
        }
        let begun = self.partial_message.as_ref().map_or(0, Vec::len) as u64;
        if begun.saturating_add(len) > most as u64 && opcode < CLOSE {
            return Err(SocketError::TooLarge);
        }
        let key_len = if self.masks { 0 } else { 4 };
        let from = 2 + len_len + key_len;
        let to = from + len as usize;
        if bytes.len() < to {
            return Ok(None);
        }
        let key = <[u8; 4]>::try_from(&bytes[from - key_len..from]).ok();
        Ok(Some(WebSocketFrame { opcode, is_last, from, to, key }))
    }

    pub(crate) fn encode<'p>(
        &self,
        len: usize,
        parts: impl Iterator<Item = &'p [u8]>,
        out: &mut Vec<u8>,
    ) {
        self.write_frame(BINARY, len, parts, out);
    }

    fn write_frame<'p>(
        &self,
        opcode: u8,
        len: usize,
        parts: impl Iterator<Item = &'p [u8]>,
        out: &mut Vec<u8>,
    ) {
        out.push(FIN | opcode);
        let masked = if self.masks { MASKED } else { 0 };
        match len {
            0..=125 => out.push(masked | len as u8),
            126..=0xFFFF => {
                out.push(masked | 126);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            _ => {
                out.push(masked | 127);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        if self.masks {
            out.extend_from_slice(&MASK);
        }
        let from = out.len();
        parts.for_each(|part| out.extend_from_slice(part));
        if self.masks {
            let payload = out[from..].iter_mut().zip(MASK.iter().cycle());
            payload.for_each(|(byte, key)| *byte ^= key);
        }
    }
}

const MIXED_FRAGMENTS: SocketError = SocketError::WebSocket("it mixed fragments of messages");
