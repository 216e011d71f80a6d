//! UTF-8 text as MQTT has it, and the reader that takes every body apart.
//!
//! Invariant: a [`Reader`] never reads past the bytes it was given; running out is a violation.

use crate::frame::split_varint;
use crate::packet::PacketId;
use crate::violation::Violation;

/// Text is well-formed UTF-8 without surrogates and without U+0000. A byte order mark is text.
#[inline]
pub fn check_text(bytes: &[u8]) -> Result<&str, Violation> {
    // [MQTT-1.5.4-1] [MQTT-1.5.4-3]
    let text = std::str::from_utf8(bytes).map_err(|_| Violation::MalformedUtf8)?;
    if contains_any(bytes, [0]) {
        return Err(Violation::MalformedNul); // [MQTT-1.5.4-2]
    }
    Ok(text)
}

/// Takes fields off the front of a body.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A body ends with its last field.
    #[inline]
    pub fn end(self) -> Result<(), Violation> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Violation::MalformedTrailingBytes)
        }
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Violation> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Violation::MalformedTruncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, Violation> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16, Violation> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, Violation> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u32, Violation> {
        let (value, len) = split_varint(self.rest)?.ok_or(Violation::MalformedTruncated)?;
        self.bytes(len)?;
        Ok(value)
    }

    #[inline]
    pub fn binary(&mut self) -> Result<&'a [u8], Violation> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }

    #[inline]
    pub fn text(&mut self) -> Result<&'a str, Violation> {
        check_text(self.binary()?)
    }

    /// Text without wildcards. Whether it may be empty depends on the packet.
    #[inline]
    pub fn topic(&mut self) -> Result<&'a str, Violation> {
        let bytes = self.binary()?;
        let text = std::str::from_utf8(bytes).map_err(|_| Violation::MalformedUtf8)?;
        // One scan for the three bytes that no topic has; which of them it was is the rare case.
        if contains_any(bytes, [0, b'+', b'#']) {
            check_text(bytes)?;
            return Err(Violation::TopicNameInvalid);
        }
        Ok(text)
    }

    #[inline]
    pub fn packet_id(&mut self) -> Result<PacketId, Violation> {
        // [3.1.1:MQTT-2.3.1-1]
        PacketId::new(self.u16()?).ok_or(Violation::PacketIdZero)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(Violation::MalformedTruncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Whether any of `needles` is in `bytes`, eight bytes at a time: topics are too short for the
/// vector loops that the standard library would start.
#[inline]
pub(crate) fn contains_any<const N: usize>(bytes: &[u8], needles: [u8; N]) -> bool {
    let Some(tail) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|byte| needles.contains(byte));
    };
    let found = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        needles.iter().fold(0, |found, &needle| {
            found | zero_bytes(word ^ u64::from_le_bytes([needle; 8]))
        })
    };
    let (words, _) = bytes.as_chunks::<8>();
    // The tail overlaps the last whole word, which costs less than reading it byte by byte.
    words
        .iter()
        .fold(found(tail), |sum, word| sum | found(word))
        != 0
}

/// Not zero exactly when a byte of `word` is zero.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(u64::from_le_bytes([0x01; 8])) & !word & u64::from_le_bytes([0x80; 8])
}
