//! Text of MQTT, and the reader that decodes the bodies of packets.
//!
//! Invariant: a [`PacketReader`] never reads past the end of its bytes; a field beyond the end is a
//! violation.

use crate::frame::split_varint;
use crate::packet::PacketId;
use crate::violation::Violation;

/// Checks text: UTF-8 without surrogates and without U+0000. A byte order mark is allowed.
#[inline]
pub fn check_text(bytes: &[u8]) -> Result<&str, Violation> {
    // [MQTT-1.5.4-1] [MQTT-1.5.4-3]
    let text = std::str::from_utf8(bytes).map_err(|_| Violation::MalformedUtf8)?;
    if contains_any(bytes, [0]) {
        return Err(Violation::MalformedNul); // [MQTT-1.5.4-2]
    }
    Ok(text)
}

/// Reads fields from the front of a packet's body.
#[derive(Clone, Copy, Debug)]
pub struct PacketReader<'a> {
    rest: &'a [u8],
}

impl<'a> PacketReader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> PacketReader<'a> {
        PacketReader { rest: bytes }
    }

    /// Returns the unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that the body ends with its last field; otherwise
    /// [`Violation::MalformedTrailingBytes`].
    #[inline]
    pub fn finish(self) -> Result<(), Violation> {
        if self.rest.is_empty() { Ok(()) } else { Err(Violation::MalformedTrailingBytes) }
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Violation> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Violation::MalformedTruncated)?;
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

    /// Reads text without wildcards. Whether an empty topic is valid depends on the packet.
    #[inline]
    pub fn topic(&mut self) -> Result<&'a str, Violation> {
        let bytes = self.binary()?;
        let text = std::str::from_utf8(bytes).map_err(|_| Violation::MalformedUtf8)?;
        // One scan finds the three bytes that no topic has; telling them apart is the rare case.
        if contains_any(bytes, [0, b'+', b'#']) {
            check_text(bytes)?;
            return Err(Violation::TopicNameInvalid);
        }
        Ok(text)
    }

    #[inline]
    pub fn packet_id(&mut self) -> Result<PacketId, Violation> {
        // [MQTT-2.2.1-3] [3.1.1:MQTT-2.3.1-1]
        PacketId::new(self.u16()?).ok_or(Violation::PacketIdZero)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Violation::MalformedTruncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Whether `bytes` contains any of `needles`, testing eight bytes at a time: topics are too short
/// for the vector loops of the standard library.
#[inline]
pub(crate) fn contains_any<const N: usize>(bytes: &[u8], needles: [u8; N]) -> bool {
    let found_in = |word: u64| {
        needles
            .iter()
            .fold(0, |found, &needle| found | zero_bytes(word ^ u64::from_le_bytes([needle; 8])))
    };
    let Some(tail) = bytes.last_chunk::<8>() else {
        // Two halves that overlap.
        let (Some(head), Some(tail)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) else {
            return bytes.iter().any(|byte| needles.contains(byte));
        };
        let (head, tail) = (u32::from_le_bytes(*head), u32::from_le_bytes(*tail));
        return found_in(u64::from(head) | u64::from(tail) << 32) != 0;
    };
    let found = |word: &[u8; 8]| found_in(u64::from_le_bytes(*word));
    let (words, _) = bytes.as_chunks::<8>();
    // The tail overlaps the last whole word, which costs less than reading it byte by byte.
    words.iter().fold(found(tail), |sum, word| sum | found(word)) != 0
}

/// Nonzero if and only if a byte of `word` is zero.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(u64::from_le_bytes([0x01; 8])) & !word & u64::from_le_bytes([0x80; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_strict_utf8() {
        // [MQTT-1.5.4-1]
        let surrogate = b"\xed\xa0\x80";
        let overlong = b"\xc0\xaf";
        let above_unicode = b"\xf4\x90\x80\x80";
        let cut_off = b"\xe2\x82";
        for bytes in [&surrogate[..], overlong, above_unicode, cut_off, b"\xff"] {
            assert_eq!(check_text(bytes), Err(Violation::MalformedUtf8));
        }
        assert_eq!(check_text("a\u{1F980}\u{FFFF}\u{7F}".as_bytes()).unwrap().len(), 9);
    }

    #[test]
    fn text_has_no_nul() {
        // [MQTT-1.5.4-2]
        for bytes in [&b"\0"[..], b"a\0", b"0123456789\0abcdefgh", b"01234567\0"] {
            assert_eq!(check_text(bytes), Err(Violation::MalformedNul));
        }
    }

    #[test]
    fn byte_order_mark_is_text() {
        // [MQTT-1.5.4-3]
        let mut reader = PacketReader::new(b"\x00\x04\xef\xbb\xbfa");
        assert_eq!(reader.text(), Ok("\u{FEFF}a"));
    }

    #[test]
    fn reader_stops_at_the_end() {
        let mut reader = PacketReader::new(b"\x00\x03ab");
        assert_eq!(reader.text(), Err(Violation::MalformedTruncated));
        let mut reader = PacketReader::new(b"\x01");
        assert_eq!(reader.u16(), Err(Violation::MalformedTruncated));
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u8(), Err(Violation::MalformedTruncated));
        assert_eq!(reader.varint(), Err(Violation::MalformedTruncated));
        assert_eq!(reader.u32(), Err(Violation::MalformedTruncated));
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(PacketReader::new(b"\0").finish(), Err(Violation::MalformedTrailingBytes));
    }

    #[test]
    fn numbers_are_big_endian() {
        let mut reader = PacketReader::new(b"\x01\x02\x03\x04\x05\x06\x80\x01");
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.u32(), Ok(0x0304_0506));
        assert_eq!(reader.varint(), Ok(128));
    }

    #[test]
    fn packet_id_is_never_zero() {
        assert_eq!(PacketReader::new(b"\0\0").packet_id(), Err(Violation::PacketIdZero));
        assert_eq!(PacketReader::new(b"\0\x01").packet_id(), Ok(PacketId::MIN));
    }

    #[test]
    fn forbidden_bytes_are_found_wherever_they_stand() {
        for len in 0..40 {
            let mut bytes = vec![b'a'; len];
            assert!(!contains_any(&bytes, [0, b'+', b'#']));
            for place in 0..len {
                for forbidden in [0, b'+', b'#'] {
                    bytes[place] = forbidden;
                    assert!(contains_any(&bytes, [0, b'+', b'#']), "{len} {place}");
                }
                // Neighbours that differ in one bit, or by the borrow of the word trick.
                for allowed in [0x01, 0x80, b'*', b',', b'"', b'$', 0xA3, 0xAB] {
                    bytes[place] = allowed;
                    assert!(!contains_any(&bytes, [0, b'+', b'#']), "{len} {place}");
                }
                bytes[place] = b'a';
            }
        }
    }
}
