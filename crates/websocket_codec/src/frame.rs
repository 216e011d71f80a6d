//! WebSocket frame: header in both directions, mask, and errors.
//!
//! ```text
//! FIN, RSV1-3, opcode (1) | MASK, length (1) | longer length (0, 2, 8) | key (0, 4) | payload
//! ```

use std::fmt;

/// Length of the longest header, in bytes.
pub const HEADER_BYTES_MAX: usize = 14;
/// Length of the longest payload of a control frame, in bytes [RFC 6455, 5.5].
pub const CONTROL_BYTES_MAX: usize = 125;
/// Header length of an unmasked frame with a payload of up to 64 KiB - 1, in bytes.
pub const HEADER_ROOM: usize = 4;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LEN_16: u8 = 126;
const LEN_64: u8 = 127;
const KEY_BYTES: usize = 4;

/// Rules for the frames of the peer.
#[derive(Clone, Copy, Debug)]
pub struct FrameRules {
    /// The peer is a client, whose frames are masked; frames of a server are not masked [RFC 6455,
    /// 5.1].
    pub from_client: bool,
    pub accepts_text: bool,
    /// Maximum payload of a frame, or of a message in [`MessageDecoder`](crate::MessageDecoder).
    pub payload_bytes_max: u32,
}

/// Type of a frame [RFC 6455, 5.2 and 11.8].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOpcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl FrameOpcode {
    fn from_opcode(opcode: u8, accepts_text: bool) -> Result<FrameOpcode, FrameError> {
        match opcode {
            0x0 => Ok(FrameOpcode::Continuation),
            0x1 if accepts_text => Ok(FrameOpcode::Text),
            0x1 => Err(FrameError::Text),
            0x2 => Ok(FrameOpcode::Binary),
            0x8 => Ok(FrameOpcode::Close),
            0x9 => Ok(FrameOpcode::Ping),
            0xa => Ok(FrameOpcode::Pong),
            // 5.2: an unknown opcode ends the connection.
            _ => Err(FrameError::Opcode),
        }
    }

    fn opcode(self) -> u8 {
        match self {
            FrameOpcode::Continuation => 0x0,
            FrameOpcode::Text => 0x1,
            FrameOpcode::Binary => 0x2,
            FrameOpcode::Close => 0x8,
            FrameOpcode::Ping => 0x9,
            FrameOpcode::Pong => 0xa,
        }
    }

    pub fn is_control(self) -> bool {
        matches!(self, FrameOpcode::Close | FrameOpcode::Ping | FrameOpcode::Pong)
    }
}

/// Reason for which a frame of the peer ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Close frame with an invalid status code.
    Close,
    /// Close frame with a reason that is not UTF-8.
    CloseText,
    /// Control frame longer than [`CONTROL_BYTES_MAX`], or fragmented.
    Control,
    /// Continuation without a message, or a new message before the last fragment of the message
    /// before.
    Fragment,
    /// Payload length that is not in its shortest encoding, or has the highest bit set.
    Length,
    Masked,
    Opcode,
    Reserved,
    Text,
    TooLong,
    Unmasked,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameError::Close => "the close frame has a code that must not be sent",
            FrameError::CloseText => "the close frame has a reason that is not UTF-8",
            FrameError::Control => "a control frame is too long or in pieces",
            FrameError::Fragment => "fragments of messages are mixed",
            FrameError::Length => "a frame's length is not in its shortest form",
            FrameError::Masked => "a server's frame is masked",
            FrameError::Opcode => "a frame has an unknown opcode",
            FrameError::Reserved => "a frame has reserved bits",
            FrameError::Text => "MQTT comes in binary frames",
            FrameError::TooLong => "a frame is longer than any packet",
            FrameError::Unmasked => "a client's frame is not masked",
        })
    }
}

impl std::error::Error for FrameError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub opcode: FrameOpcode,
    pub is_last: bool,
    /// Length of the payload, in bytes.
    pub len: u32,
    pub key: Option<[u8; KEY_BYTES]>,
}

/// Returns the length of a header from its first two bytes. Reports an error in these bytes at
/// once.
#[inline]
pub fn header_len(first: u8, second: u8, rules: &FrameRules) -> Result<usize, FrameError> {
    // 5.2: reserved bits need an extension, and no extension was negotiated.
    if first & RESERVED != 0 {
        return Err(FrameError::Reserved);
    }
    let opcode = FrameOpcode::from_opcode(first & 0x0f, rules.accepts_text)?;
    match (second & MASKED != 0, rules.from_client) {
        (false, true) => return Err(FrameError::Unmasked),
        (true, false) => return Err(FrameError::Masked),
        _ => {}
    }
    let len = second & !MASKED;
    // 5.5: control frames are short and not fragmented.
    if opcode.is_control() && (first & FIN == 0 || usize::from(len) > CONTROL_BYTES_MAX) {
        return Err(FrameError::Control);
    }
    let key_bytes = if rules.from_client { KEY_BYTES } else { 0 };
    Ok(key_bytes
        + match len {
            LEN_16 => 4,
            LEN_64 => 10,
            _ => 2,
        })
}

impl FrameHeader {
    /// Parses a whole header. `bytes` has the length that [`header_len`] returned.
    #[inline]
    pub fn parse(bytes: &[u8], rules: &FrameRules) -> Result<FrameHeader, FrameError> {
        let key_bytes = if rules.from_client { KEY_BYTES } else { 0 };
        let (length, key) = bytes[2..].split_at(bytes.len() - 2 - key_bytes);
        let len = match length.len() {
            0 => u64::from(bytes[1] & !MASKED),
            _ => length.iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
        };
        // 5.2: the length has its shortest encoding, and the highest bit is 0.
        let least = match length.len() {
            0 => 0,
            2 => u64::from(LEN_16),
            _ => 1 << 16,
        };
        if len < least || len >> 63 == 1 {
            return Err(FrameError::Length);
        }
        if len > u64::from(rules.payload_bytes_max) {
            return Err(FrameError::TooLong);
        }
        let opcode = FrameOpcode::from_opcode(bytes[0] & 0x0f, rules.accepts_text)?;
        let (is_last, key) = (bytes[0] & FIN != 0, key.first_chunk().copied());
        Ok(FrameHeader { opcode, is_last, len: len as u32, key })
    }

    /// Returns whether the message continues after this frame. `goes_on` says whether a message was
    /// open before this frame: only control frames may stand between the fragments of a message
    /// [RFC 6455, 5.4].
    #[inline]
    pub(crate) fn continue_message(&self, goes_on: bool) -> Result<bool, FrameError> {
        match self.opcode {
            FrameOpcode::Binary | FrameOpcode::Text if goes_on => Err(FrameError::Fragment),
            FrameOpcode::Continuation if !goes_on => Err(FrameError::Fragment),
            opcode if opcode.is_control() => Ok(goes_on),
            _ => Ok(!self.is_last),
        }
    }
}

/// Applies or removes a mask [RFC 6455, 5.3]. Returns the key, rotated for the next byte.
#[inline]
pub fn apply_mask(bytes: &mut [u8], mut key: [u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    let wide = u32::from_ne_bytes(key);
    let mut fours = bytes.chunks_exact_mut(KEY_BYTES);
    for four in &mut fours {
        let bare = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]) ^ wide;
        four.copy_from_slice(&bare.to_ne_bytes());
    }
    let rest = fours.into_remainder();
    rest.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    key.rotate_left(rest.len());
    key
}

/// Writes a whole frame with a payload of `len` bytes, the total of `parts`. A client sets `key`,
/// the masking key.
pub fn write_frame<'p>(
    opcode: FrameOpcode,
    len: usize,
    parts: impl IntoIterator<Item = &'p [u8]>,
    key: Option<[u8; KEY_BYTES]>,
    out: &mut Vec<u8>,
) {
    let masked = if key.is_some() { MASKED } else { 0 };
    out.push(FIN | opcode.opcode());
    match len {
        0..=125 => out.push(masked | len as u8),
        126..=0xffff => {
            out.push(masked | LEN_16);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(masked | LEN_64);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend(key.into_iter().flatten());
    let from = out.len();
    parts.into_iter().for_each(|part| out.extend_from_slice(part));
    if let Some(key) = key {
        apply_mask(&mut out[from..], key);
    }
}

/// Writes the header of an unmasked binary frame into the first [`HEADER_ROOM`] bytes, before the
/// payload. Returns the offset of the frame.
pub fn wrap_in_place(bytes: &mut [u8]) -> usize {
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
