//! The protocol of nanomsg and NNG over a stream, a unix socket and WebSocket (sp-tcp-mapping-01,
//! sp-ipc-mapping-01, sp-websocket-mapping-01). TLS is a stream.
//!
//! ```text
//! header    0 'S' 'P' 0 | number of the kind of socket (2) | 0 0
//! message   a byte 1 over unix sockets | length (8) | header of a request | body
//! ```
//! WebSocket has neither header nor length: a message is a WebSocket message.

use crate::socket_type::SocketType;
use crate::{MessageLimits, MultipartMessage, SocketError, SocketEvent, envelope};
use std::collections::VecDeque;
use websocket_codec::{FrameError, FrameOpcode, FrameRules, MessageDecoder, write_frame};

/// Transport below an `SpCodec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpTransport {
    Stream,
    Ipc,
    /// The connecting side masks its frames [RFC 6455, 5.3].
    WebSocket {
        masks: bool,
    },
}

#[derive(Debug)]
pub struct SpCodec {
    pattern: SocketType,
    carrier: SpTransport,
    limits: MessageLimits,
    websocket: MessageDecoder,
    is_open: bool,
}

const HEADER_BYTES: usize = 8;
const IN_BAND: u8 = 1;
const LENGTH_BYTES: usize = 8;
/// Masking key of sent frames. Masking protects proxies that would take a payload for a request, so
/// the key need not be secret between two programs.
const MASKING_KEY: [u8; 4] = *b"Gdwt";

impl SpCodec {
    pub(crate) fn new(pattern: SocketType, carrier: SpTransport, limits: MessageLimits) -> SpCodec {
        let websocket = MessageDecoder::default();
        SpCodec { pattern, carrier, limits, websocket, is_open: false }
    }

    fn is_web(&self) -> bool {
        matches!(self.carrier, SpTransport::WebSocket { .. })
    }

    fn masking_key(&self) -> Option<[u8; 4]> {
        (self.carrier == SpTransport::WebSocket { masks: true }).then_some(MASKING_KEY)
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.websocket.pending_bytes()
    }

    pub(crate) fn write_greeting(&self, out: &mut Vec<u8>) {
        if !self.is_web() {
            out.extend_from_slice(&header(self.pattern.sp_number()));
        }
    }

    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<SocketEvent>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SocketError> {
        let mut taken = 0;
        if !self.is_open {
            if !self.is_web() {
                if !self.read_header(bytes)? {
                    return Ok(0);
                }
                taken = HEADER_BYTES;
            }
            self.is_open = true;
            heard.push_back(SocketEvent::Open);
        }
        if self.is_web() {
            return self.decode_web(bytes, heard, out);
        }
        while let Some((body, len)) = self.next_message(&bytes[taken..])? {
            heard.push_back(envelope::decode_sp(self.pattern, body));
            taken += len;
        }
        Ok(taken)
    }

    fn decode_web(
        &mut self,
        bytes: &[u8],
        heard: &mut VecDeque<SocketEvent>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SocketError> {
        let key = self.masking_key();
        let bytes_max = u32::try_from(self.limits.message_bytes_max).unwrap_or(u32::MAX);
        let rules = FrameRules {
            from_client: key.is_none(),
            accepts_text: true,
            payload_bytes_max: bytes_max,
        };
        let hear = |body: &[u8]| heard.push_back(envelope::decode_sp(self.pattern, body));
        match self.websocket.decode(bytes, &rules, key, out, hear) {
            Ok(progress) if progress.is_closed => Err(SocketError::Closed),
            Ok(progress) => Ok(progress.taken),
            Err(FrameError::TooLong) => Err(SocketError::TooLarge),
            Err(error) => Err(SocketError::WebSocket(error)),
        }
    }

    /// Whether the whole header has been received. A wrong header is an error from its first wrong
    /// byte on.
    fn read_header(&self, bytes: &[u8]) -> Result<bool, SocketError> {
        let begun = &bytes[..bytes.len().min(HEADER_BYTES)];
        let right = header(self.pattern.sp_peer());
        if begun.iter().zip(&right[..4]).any(|(byte, right)| byte != right) {
            return Err(SocketError::Greeting);
        }
        if begun.len() < HEADER_BYTES {
            return Ok(false);
        }
        if begun != right {
            let number = u16::from_be_bytes([begun[4], begun[5]]);
            let named =
                SocketType::all(crate::ProtocolFamily::Sp).find(|one| one.sp_number() == number);
            let name = named.map_or_else(|| format!("number {number}"), |one| one.name().into());
            return Err(SocketError::SocketType(name));
        }
        Ok(true)
    }

    /// Returns the body of the first message, if complete, and the length with its header.
    fn next_message<'b>(&self, bytes: &'b [u8]) -> Result<Option<(&'b [u8], usize)>, SocketError> {
        let front = match self.carrier {
            SpTransport::Ipc if bytes.first().is_some_and(|kind| *kind != IN_BAND) => {
                return Err(SocketError::Command("it sent a message of an unknown kind"));
            }
            SpTransport::Ipc => 1 + LENGTH_BYTES,
            _ => LENGTH_BYTES,
        };
        let Some(len) = bytes.get(front - LENGTH_BYTES..front) else { return Ok(None) };
        let len = len.iter().fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
        if len > self.limits.message_bytes_max as u64 {
            return Err(SocketError::TooLarge);
        }
        let end = front + len as usize;
        Ok(bytes.get(front..end).map(|body| (body, end)))
    }

    pub(crate) fn encode(&self, message: &MultipartMessage, out: &mut Vec<u8>) {
        let before = envelope::sp_header_bytes(self.pattern, message);
        let len = before.len() + message.frames.iter().map(Vec::len).sum::<usize>();
        let parts = std::iter::once(before).chain(message.frames.iter().map(Vec::as_slice));
        match self.carrier {
            SpTransport::WebSocket { .. } => {
                return write_frame(FrameOpcode::Binary, len, parts, self.masking_key(), out);
            }
            SpTransport::Ipc => out.push(IN_BAND),
            SpTransport::Stream => {}
        }
        out.extend_from_slice(&(len as u64).to_be_bytes());
        parts.for_each(|part| out.extend_from_slice(part));
    }
}

fn header(number: u16) -> [u8; HEADER_BYTES] {
    let [high, low] = number.to_be_bytes();
    [0, b'S', b'P', 0, high, low, 0, 0]
}
