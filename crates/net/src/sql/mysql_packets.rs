//! Packets of the MySQL protocol, and their fields: numbers, texts, columns and rows.

use crate::table_row::{ANSWER_BYTES_MAX, TableRow};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) struct MysqlPacketStream<W> {
    wire: W,
    /// Sequence number of the next packet.
    sequence: u8,
    bytes_left: usize,
}

/// Length of a packet that continues in the next packet; neither sent nor read here.
pub(crate) const PACKET_BYTES_MAX: usize = 0xff_ffff;
/// First byte of the packet after the last row.
pub(crate) const END: u8 = 0xfe;

impl<W> MysqlPacketStream<W> {
    pub(crate) fn new(wire: W) -> MysqlPacketStream<W> {
        MysqlPacketStream::at(wire, 0)
    }

    pub(crate) fn at(wire: W, sequence: u8) -> MysqlPacketStream<W> {
        MysqlPacketStream { wire, sequence, bytes_left: ANSWER_BYTES_MAX }
    }

    /// Returns the stream and the sequence number, to continue on another stream.
    pub(crate) fn into_parts(self) -> (W, u8) {
        (self.wire, self.sequence)
    }

    pub(crate) fn map<V>(self, over: impl FnOnce(W) -> V) -> MysqlPacketStream<V> {
        MysqlPacketStream::at(over(self.wire), self.sequence)
    }

    /// Starts a new command: resets the sequence number and the byte budget of the answer.
    pub(crate) fn begin(&mut self) {
        self.sequence = 0;
        self.bytes_left = ANSWER_BYTES_MAX;
    }
}

impl<W: AsyncRead + AsyncWrite + Unpin> MysqlPacketStream<W> {
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, String> {
        let broken = |error: std::io::Error| error.to_string();
        let mut head = [0; 4];
        self.wire.read_exact(&mut head).await.map_err(broken)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        if len >= PACKET_BYTES_MAX || len > self.bytes_left {
            return Err("it answers with more than we read".into());
        }
        if head[3] != self.sequence {
            return Err("it does not answer what was asked".into());
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.bytes_left -= len;
        let mut body = vec![0; len];
        self.wire.read_exact(&mut body).await.map_err(broken)?;
        Ok(body)
    }

    pub(crate) async fn write(&mut self, body: &[u8]) -> Result<(), String> {
        if body.len() >= PACKET_BYTES_MAX {
            return Err("the question is too long".into());
        }
        let mut out = (body.len() as u32).to_le_bytes().to_vec();
        out[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        out.extend(body);
        let broken = |error: std::io::Error| error.to_string();
        self.wire.write_all(&out).await.map_err(broken)?;
        self.wire.flush().await.map_err(broken)
    }
}

/// The unread rest of a packet.
pub(crate) struct MysqlPacketReader<'a>(pub(crate) &'a [u8]);

impl<'a> MysqlPacketReader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a little-endian number of `len` bytes.
    pub(crate) fn read_number(&mut self, len: usize) -> Option<u64> {
        let bytes = self.take(len)?;
        Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    pub(crate) fn text_to_zero(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).ok()
    }

    pub(crate) fn read_length(&mut self) -> Option<u64> {
        match self.read_number(1)? {
            0xfc => self.read_number(2),
            0xfd => self.read_number(3),
            0xfe => self.read_number(8),
            small @ 0..=0xfa => Some(small),
            _ => None,
        }
    }

    fn read_text(&mut self) -> Option<&'a [u8]> {
        let len = self.read_length()?;
        self.take(usize::try_from(len).ok()?)
    }
}

/// Appends a length-encoded string.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let len = text.len() as u64;
    match len {
        0..=0xfa => out.push(len as u8),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend(&len.to_le_bytes()[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend(&len.to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend(len.to_le_bytes());
        }
    }
    out.extend(text);
}

/// Encoding of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MysqlColumn {
    name: String,
    kind: u8,
    is_unsigned: bool,
}

impl MysqlColumn {
    pub(crate) fn parse(bytes: &[u8]) -> Option<MysqlColumn> {
        let mut rest = MysqlPacketReader(bytes);
        for _ in ["catalog", "schema", "table", "its own table"] {
            rest.read_text()?;
        }
        let name = String::from_utf8(rest.read_text()?.to_vec()).ok()?;
        rest.read_text()?;
        // Skips the length of the fixed fields, the character set and the width.
        rest.take(7)?;
        let kind = rest.read_number(1)? as u8;
        let is_unsigned = rest.read_number(2)? & 0x20 != 0;
        Some(MysqlColumn { name, kind, is_unsigned })
    }

    /// Reads a value as text, as other databases return it.
    fn value(&self, rest: &mut MysqlPacketReader<'_>) -> Option<Vec<u8>> {
        let width = match self.kind {
            0x01 => 1,
            0x02 | 0x0d => 2,
            0x03 | 0x09 => 4,
            0x08 => 8,
            // Floating-point numbers and times are not needed for users and rules.
            0x04 | 0x05 | 0x07 | 0x0a..=0x0c => return None,
            _ => return rest.read_text().map(<[u8]>::to_vec),
        };
        let number = rest.read_number(width)?;
        let shift = 64 - 8 * width as u32;
        let text = match self.is_unsigned {
            true => number.to_string(),
            false => ((number << shift) as i64 >> shift).to_string(),
        };
        Some(text.into_bytes())
    }
}

/// Parses a row in binary form: a bitmap of NULLs, and then the values that are not NULL.
pub(crate) fn parse_binary_row(columns: &[MysqlColumn], bytes: &[u8]) -> Option<TableRow> {
    let mut rest = MysqlPacketReader(bytes);
    rest.take(1)?;
    let nulls = rest.take((columns.len() + 2).div_ceil(8))?;
    let mut row = TableRow::default();
    for (at, column) in columns.iter().enumerate() {
        // The first two bits are reserved.
        let bit = at + 2;
        if nulls[bit / 8] >> (bit % 8) & 1 == 0 {
            row.0.push((column.name.clone(), column.value(&mut rest)?));
        }
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: u8, is_unsigned: bool) -> MysqlColumn {
        MysqlColumn { name: name.into(), kind, is_unsigned }
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for len in [0, 1, 250, 251, 252, 65_535, 65_536, 70_000] {
            let mut out = Vec::new();
            put_text(&mut out, &vec![7; len]);
            let mut rest = MysqlPacketReader(&out);
            assert_eq!(rest.read_text().map(<[u8]>::len), Some(len));
            assert!(rest.0.is_empty());
            assert!(MysqlPacketReader(&out[..out.len() - 1]).read_text().is_none());
        }
        assert!(
            MysqlPacketReader(&[0xfb]).read_length().is_none()
                && MysqlPacketReader(&[0xff]).read_length().is_none()
        );
    }

    #[test]
    fn a_row_is_numbers_texts_and_what_is_not_there() {
        let columns = [
            column("tiny", 0x01, false),
            column("large", 0x08, true),
            column("none", 0xfd, false),
            column("text", 0xfd, false),
        ];
        let mut bytes = vec![0, 0b0001_0000, 0xff];
        bytes.extend(u64::MAX.to_le_bytes());
        bytes.extend(b"\x02ab");
        let read = parse_binary_row(&columns, &bytes).unwrap();
        let values: Vec<(&str, &[u8])> =
            read.0.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
        let large = u64::MAX.to_string();
        assert_eq!(values, [("tiny", &b"-1"[..]), ("large", large.as_bytes()), ("text", b"ab")]);
        (0..bytes.len())
            .for_each(|len| assert!(parse_binary_row(&columns, &bytes[..len]).is_none()));
    }
}
