//! Frames of WebSocket, in both directions (RFC 6455, 5). What clients send is a stream here: a
//! frame's bytes go on as they come, and nothing is kept but the beginning of a header and what a
//! control frame says.
//!
//! ```text
//! FIN, RSV1-3, opcode (1) | MASK, length (1) | longer length (0, 2, 8) | key (4) | payload
//! ```

use super::WebSocketError;
use super::close::CloseStatus;
use broker::limits;

/// The longest header: ten bytes, and the key of a client's frame.
const HEADER_BYTES_MAX: usize = 14;
/// The most that a control frame says (5.5).
pub(super) const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LEN_16: u8 = 126;
const LEN_64: u8 = 127;

/// Type of a frame [RFC 6455, 5.2 and 11.8]. A continuation always continues binary data, since
/// text messages are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOpcode {
    Continuation,
    Binary,
    Close,
    Ping,
    Pong,
}

impl FrameOpcode {
    fn from_opcode(opcode: u8) -> Result<FrameOpcode, WebSocketError> {
        match opcode {
            0x0 => Ok(FrameOpcode::Continuation),
            // [MQTT-6.0.0-1]
            0x1 => Err(WebSocketError::Text),
            0x2 => Ok(FrameOpcode::Binary),
            0x8 => Ok(FrameOpcode::Close),
            0x9 => Ok(FrameOpcode::Ping),
            0xa => Ok(FrameOpcode::Pong),
            // 5.2: an unknown opcode ends the connection.
            _ => Err(WebSocketError::Opcode),
        }
    }

    fn opcode(self) -> u8 {
        match self {
            FrameOpcode::Continuation => 0x0,
            FrameOpcode::Binary => 0x2,
            FrameOpcode::Close => 0x8,
            FrameOpcode::Ping => 0x9,
            FrameOpcode::Pong => 0xa,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, FrameOpcode::Close | FrameOpcode::Ping | FrameOpcode::Pong)
    }
}

/// A client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    kind: FrameOpcode,
    last: bool,
    len: u32,
    key: [u8; 4],
}

/// Returns the length of the header that begins with these two bytes. Errors in them are reported
/// at once.
fn header_len(first: u8, second: u8) -> Result<usize, WebSocketError> {
    // 5.2: no extension was agreed on that could give them a meaning.
    if first & RESERVED != 0 {
        return Err(WebSocketError::Reserved);
    }
    let kind = FrameOpcode::from_opcode(first & 0x0f)?;
    // 5.1: a server closes when it gets a frame that is not masked.
    if second & MASKED == 0 {
        return Err(WebSocketError::Unmasked);
    }
    let len = second & !MASKED;
    // 5.5: control frames are short and whole.
    if kind.is_control() && (first & FIN == 0 || usize::from(len) > CONTROL_BYTES_MAX) {
        return Err(WebSocketError::Control);
    }
    Ok(match len {
        LEN_16 => 8,
        LEN_64 => 14,
        _ => 6,
    })
}

/// A whole header.
fn parse_header(bytes: &[u8]) -> Result<FrameHeader, WebSocketError> {
    let (length, key) = bytes[2..].split_at(bytes.len() - 6);
    let len = match length.len() {
        0 => u64::from(bytes[1] & !MASKED),
        _ => length.iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
    };
    // 5.2: the shortest form that holds it, and the highest bit is 0.
    let least = match length.len() {
        0 => 0,
        2 => u64::from(LEN_16),
        _ => 1 << 16,
    };
    if len < least || len >> 63 == 1 {
        return Err(WebSocketError::Length);
    }
    if len > limits::WEB_FRAME_BYTES_MAX {
        return Err(WebSocketError::TooLong);
    }
    let kind = FrameOpcode::from_opcode(bytes[0] & 0x0f)?;
    let key = [key[0], key[1], key[2], key[3]];
    Ok(FrameHeader { kind, last: bytes[0] & FIN != 0, len: len as u32, key })
}

/// The frames of one client, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct FrameDecoder {
    /// Bytes of an incomplete header.
    begun: [u8; HEADER_BYTES_MAX],
    begun_len: u8,
    /// Fragments of a message have come, and its last has not (5.4).
    fragmented: bool,
    frame: Option<PartialFrame>,
    /// Payload of a control frame, as far as it has arrived.
    control: Vec<u8>,
}

/// A frame whose header is read.
#[derive(Clone, Copy, Debug)]
struct PartialFrame {
    kind: FrameOpcode,
    left: u32,
    /// Its first byte is for the next byte of the payload.
    key: [u8; 4],
}

/// Action that a control frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlOutcome {
    Nothing,
    /// To close, and to say this before (5.5.1).
    Close(Option<CloseStatus>),
}

impl FrameDecoder {
    /// Takes all of `bytes` from `from` on, and leaves there what the frames carry for MQTT. A ping
    /// is answered into `answers`; the answer to the last one counts for all of them (5.5.3).
    ///
    /// Frames and packets have nothing to do with each other's ends [MQTT-6.0.0-2].
    pub(super) fn decode(
        &mut self,
        bytes: &mut Vec<u8>,
        from: usize,
        answers: &mut Vec<u8>,
    ) -> Result<ControlOutcome, WebSocketError> {
        let (mut at, mut kept) = (from, from);
        let (mut asked, mut ping) = (Ok(ControlOutcome::Nothing), None);
        loop {
            let frame = match self.frame {
                Some(frame) => frame,
                None => match self.read_header(bytes, &mut at) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(wrong) => {
                        asked = Err(wrong);
                        break;
                    }
                },
            };
            let here = (bytes.len() - at).min(frame.left as usize);
            let payload = &mut bytes[at..at + here];
            let key = unmask(payload, frame.key);
            if frame.kind.is_control() {
                self.control.extend_from_slice(payload);
            } else {
                bytes.copy_within(at..at + here, kept);
                kept += here;
            }
            at += here;
            let left = frame.left - here as u32;
            self.frame = (left > 0).then_some(PartialFrame { left, key, ..frame });
            if left > 0 {
                break;
            }
            let said = std::mem::take(&mut self.control);
            match frame.kind {
                FrameOpcode::Ping => ping = Some(said),
                // Nothing comes after it (5.5.1).
                FrameOpcode::Close => {
                    asked = CloseStatus::read(&said).map(ControlOutcome::Close);
                    break;
                }
                FrameOpcode::Pong | FrameOpcode::Binary | FrameOpcode::Continuation => {}
            }
        }
        bytes.truncate(kept);
        if let Some(said) = ping {
            write_control_frame(FrameOpcode::Pong, &said, answers);
        }
        asked
    }

    /// The next frame, once its header is whole.
    fn read_header(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Option<PartialFrame>, WebSocketError> {
        let len = loop {
            let have = usize::from(self.begun_len);
            let len = if have < 2 { 2 } else { header_len(self.begun[0], self.begun[1])? };
            if have == len {
                break len;
            }
            let here = (len - have).min(bytes.len() - *at);
            if here == 0 {
                return Ok(None);
            }
            self.begun[have..have + here].copy_from_slice(&bytes[*at..*at + here]);
            self.begun_len += here as u8;
            *at += here;
        };
        self.begun_len = 0;
        let FrameHeader { kind, last, len, key } = parse_header(&self.begun[..len])?;
        // 5.4: a message's fragments stand together, with nothing but control frames between.
        match kind {
            FrameOpcode::Binary if self.fragmented => return Err(WebSocketError::Fragment),
            FrameOpcode::Continuation if !self.fragmented => return Err(WebSocketError::Fragment),
            FrameOpcode::Binary | FrameOpcode::Continuation => self.fragmented = !last,
            FrameOpcode::Close | FrameOpcode::Ping | FrameOpcode::Pong => {}
        }
        Ok(Some(PartialFrame { kind, left: len, key }))
    }

    /// Bytes that it holds beside itself.
    pub(super) fn held_bytes(&self) -> usize {
        self.control.capacity()
    }
}

/// Takes the mask off (5.3). The key for the byte after them.
fn unmask(bytes: &mut [u8], mut key: [u8; 4]) -> [u8; 4] {
    let wide = u32::from_ne_bytes(key);
    let mut fours = bytes.chunks_exact_mut(4);
    for four in &mut fours {
        let bare = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]) ^ wide;
        four.copy_from_slice(&bare.to_ne_bytes());
    }
    let rest = fours.into_remainder();
    rest.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    key.rotate_left(rest.len());
    key
}

/// A control frame of ours: whole, and not masked (5.1).
pub(super) fn write_control_frame(kind: FrameOpcode, what: &[u8], into: &mut Vec<u8>) {
    assert!(what.len() <= CONTROL_BYTES_MAX, "it was cut, or came in such a frame");
    into.extend_from_slice(&[FIN | kind.opcode(), what.len() as u8]);
    into.extend_from_slice(what);
}

/// Room for the header of a frame of ours that holds up to 64 KiB - 1.
pub(crate) const HEADER_ROOM: usize = 4;

/// Makes a frame of what stands behind `FRONT` bytes, which are its header's room. Says where it
/// begins.
pub(super) fn wrap(bytes: &mut [u8]) -> usize {
    let len = bytes.len() - HEADER_ROOM;
    let first = FIN | FrameOpcode::Binary.opcode();
    match u8::try_from(len) {
        Ok(short) if short < LEN_16 => {
            bytes[2..HEADER_ROOM].copy_from_slice(&[first, short]);
            2
        }
        _ => {
            assert!(len <= usize::from(u16::MAX), "the writer gathers less than 64 KiB");
            let [high, low] = (len as u16).to_be_bytes();
            bytes[..HEADER_ROOM].copy_from_slice(&[first, LEN_16, high, low]);
            0
        }
    }
}
