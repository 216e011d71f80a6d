//! Cuts a byte stream into packets by their fixed header, without looking inside.
//!
//! ```text
//!   first      1 byte      packet type (upper half), flags (lower half)
//!   length     1..4 bytes  seven bits each, low first; the top bit says that more follow
//!   body       length bytes
//! ```

use crate::violation::Violation;

/// A whole packet, still encoded, cut out of a buffer by [`split_frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFrame<'a> {
    pub first: u8,
    pub body: &'a [u8],
    /// Length of the whole packet in bytes: fixed header and body.
    pub len: usize,
}

impl PacketFrame<'_> {
    /// Returns the number of the [`PacketType`](crate::packet::PacketType), the upper half of the
    /// first byte.
    #[inline]
    pub fn packet_type(&self) -> u8 {
        self.first >> 4
    }
}

/// Cuts the first packet off `bytes`; `None` if incomplete.
///
/// The header alone is enough to refuse a packet above `packet_bytes_max`, so no caller waits for a
/// body, or stores a body, only to refuse the packet.
#[inline]
pub fn split_frame(
    bytes: &[u8],
    packet_bytes_max: u32,
) -> Result<Option<PacketFrame<'_>>, Violation> {
    let Some((&first, after_first)) = bytes.split_first() else {
        return Ok(None);
    };
    let Some((body_len, len_len)) = split_varint(after_first)? else {
        return Ok(None);
    };
    let len = 1 + len_len + body_len as usize;
    if len > packet_bytes_max as usize {
        return Err(Violation::PacketTooLarge);
    }
    let Some(body) = bytes.get(1 + len_len..len) else {
        return Ok(None);
    };
    Ok(Some(PacketFrame { first, body, len }))
}

/// Returns the length of the first packet in bytes, once its fixed header is complete and valid;
/// `None` for an invalid header too.
#[inline]
pub fn expected_len(bytes: &[u8]) -> Option<usize> {
    let (_, after_first) = bytes.split_first()?;
    let (body_len, len_len) = split_varint(after_first).ok()??;
    Some(1 + len_len + body_len as usize)
}

/// Reads a variable byte integer: its value and its size in bytes. `None` if the bytes end before
/// the integer.
#[inline]
pub(crate) fn split_varint(bytes: &[u8]) -> Result<Option<(u32, usize)>, Violation> {
    match bytes.first() {
        None => Ok(None),
        Some(&byte) if byte < 0x80 => Ok(Some((u32::from(byte), 1))),
        Some(_) => split_varint_long(bytes),
    }
}

/// Reads an integer of more than one byte, in which a zero byte is padding.
fn split_varint_long(bytes: &[u8]) -> Result<Option<(u32, usize)>, Violation> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * i);
        if byte == 0 {
            return Err(Violation::MalformedIntegerPadded); // [MQTT-1.5.5-1]
        }
        if byte < 0x80 {
            return Ok(Some((value, i + 1)));
        }
    }
    if bytes.len() < VARINT_BYTES_MAX {
        return Ok(None);
    }
    Err(Violation::MalformedIntegerTooLong)
}

const VARINT_BYTES_MAX: usize = 4;

/// The largest variable byte integer, and so the largest length of a packet's body.
pub const VARINT_MAX: u32 = 268_435_455;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 1 << 20;

    #[test]
    fn frame_ends_where_its_length_says() {
        let frame = split_frame(b"\x30\x02abc", MAX).unwrap().unwrap();
        assert_eq!(frame, PacketFrame { first: 0x30, body: b"ab", len: 4 });
        assert_eq!(frame.packet_type(), 3);
    }

    #[test]
    fn incomplete_packets_wait() {
        let mut bytes = vec![0x30, 0x80, 0x01];
        bytes.extend([7; 128]);
        for len in 0..bytes.len() {
            assert_eq!(split_frame(&bytes[..len], MAX), Ok(None), "{len}");
            let expected = (len >= 3).then_some(131);
            assert_eq!(expected_len(&bytes[..len]), expected, "{len}");
        }
        assert_eq!(split_frame(&bytes, MAX).unwrap().unwrap().len, 131);
    }

    #[test]
    fn header_alone_shows_that_a_packet_is_too_large() {
        assert_eq!(split_frame(b"\x30\x08", 9), Err(Violation::PacketTooLarge));
        assert_eq!(split_frame(b"\x30\x07", 9), Ok(None));
        assert_eq!(split_frame(b"\x30\xff\xff\xff\x7f", MAX), Err(Violation::PacketTooLarge));
        assert_eq!(split_frame(b"\x30\xff\xff\xff\x7f", u32::MAX), Ok(None));
        assert_eq!(expected_len(b"\x30\xff\xff\xff\x7f"), Some(VARINT_MAX as usize + 5));
    }

    #[test]
    fn length_takes_at_most_four_bytes() {
        assert_eq!(split_frame(b"\x30\xff\xff\xff", MAX), Ok(None));
        assert_eq!(
            split_frame(b"\x30\xff\xff\xff\xff", MAX),
            Err(Violation::MalformedIntegerTooLong)
        );
        assert_eq!(expected_len(b"\x30\xff\xff\xff\xff\x01"), None);
    }

    #[test]
    fn length_takes_as_few_bytes_as_possible() {
        // [MQTT-1.5.5-1]
        for header in [&b"\x30\x80\x00"[..], b"\x30\xff\x80\x00", b"\x30\x80\x80\x80\x00"] {
            assert_eq!(split_frame(header, MAX), Err(Violation::MalformedIntegerPadded));
            assert_eq!(expected_len(header), None);
        }
    }

    #[test]
    fn integers_at_the_edges_of_their_sizes() {
        let cases: [(&[u8], u32); 8] = [
            (&[0x00], 0),
            (&[0x7F], 127),
            (&[0x80, 0x01], 128),
            (&[0xFF, 0x7F], 16_383),
            (&[0x80, 0x80, 0x01], 16_384),
            (&[0xFF, 0xFF, 0x7F], 2_097_151),
            (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
            (&[0xFF, 0xFF, 0xFF, 0x7F], VARINT_MAX),
        ];
        for (bytes, value) in cases {
            assert_eq!(split_varint(bytes), Ok(Some((value, bytes.len()))));
            let mut out = Vec::new();
            crate::encode_remaining_len(value as usize, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(crate::varint_len(value), bytes.len());
        }
    }
}
