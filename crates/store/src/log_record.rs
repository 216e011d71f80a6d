//! One batch as it stands in the log. docs/store-format.md draws it.

use crate::crc::crc;
use crate::{BatchChange, KeySpace, StoreBatch};

/// A record that was read and whose checksum holds.
#[derive(Debug)]
pub(crate) struct LogRecord<'a> {
    pub seq: u64,
    /// The last batch that was on the disk when this record was written.
    pub durable: u64,
    pub body: &'a [u8],
}

impl LogRecord<'_> {
    pub(crate) fn len(&self) -> usize {
        HEAD + self.body.len()
    }
}

pub(crate) fn write_record(out: &mut Vec<u8>, id: u64, seq: u64, durable: u64, batch: &StoreBatch) {
    let start = out.len();
    // Until the sum is known the id stands in the place of marker and sum, in front of everything
    // else that the sum is of.
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for change in &batch.changes {
        out.push(change.space as u8);
        let value = change.value.as_deref();
        out.extend_from_slice(&(change.key.len() as u32).to_le_bytes());
        out.extend_from_slice(&value.map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        out.extend_from_slice(&change.key);
        out.extend_from_slice(value.unwrap_or_default());
    }
    let body_len = u32::try_from(out.len() - start - HEAD).expect("a batch is below 4 GiB");
    out[start + 24..start + 28].copy_from_slice(&body_len.to_le_bytes());
    let sum = crc(&[&out[start..]]);
    out[start..start + 4].copy_from_slice(&marker(id));
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The record at the start of `bytes`. The id of the store is part of the checksum, so that what a
/// client sends is never taken for a record, whatever it looks like.
pub(crate) fn read_record(bytes: &[u8], id: u64) -> Option<LogRecord<'_>> {
    let mut rest = bytes;
    if take_array::<4>(&mut rest)? != marker(id) {
        return None;
    }
    let sum = u32::from_le_bytes(take_array(&mut rest)?);
    let seq = u64::from_le_bytes(take_array(&mut rest)?);
    let durable = u64::from_le_bytes(take_array(&mut rest)?);
    let body_len = u32::from_le_bytes(take_array(&mut rest)?) as usize;
    let body = rest.get(..body_len)?;
    let whole = &bytes[8..HEAD + body_len];
    (crc(&[&id.to_le_bytes(), whole]) == sum).then_some(LogRecord { seq, durable, body })
}

/// Calls `visit` with what the record changed; false if the body is not what `write` makes.
pub(crate) fn read_changes(mut body: &[u8], mut visit: impl FnMut(BatchChange)) -> bool {
    while let Some(change) = read_change(&mut body) {
        visit(change);
    }
    body.is_empty()
}

fn read_change(rest: &mut &[u8]) -> Option<BatchChange> {
    let [space] = take_array(rest)?;
    let key_len = u32::from_le_bytes(take_array(rest)?) as usize;
    let value_len = u32::from_le_bytes(take_array(rest)?);
    let key = rest.split_off(..key_len)?.to_vec();
    let value = match value_len {
        REMOVED => None,
        len => Some(rest.split_off(..len as usize)?.to_vec()),
    };
    Some(BatchChange { space: KeySpace::from_number(space)?, key, value })
}

/// The first bytes of every record. They differ from store to store and are never published, so a
/// client cannot fill its messages with bytes that look like records.
pub(crate) fn marker(id: u64) -> [u8; 4] {
    (id as u32).to_le_bytes()
}

/// The next `N` bytes.
pub(crate) fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

pub(crate) const HEAD: usize = 28;

/// Stands in place of a value's length. No value is that long, for a batch is below 4 GiB.
pub(crate) const REMOVED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// A log and its store as they were written when each of their checksums was our own code.
    #[test]
    fn a_stored_log_is_written_again_byte_for_byte() {
        let manifest = include_bytes!("../tests/disk/stored/store");
        let id = u64::from_le_bytes(manifest[16..24].try_into().unwrap());
        let log = include_bytes!("../tests/disk/stored/log.2");
        let (mut rest, mut records) = (&log[..], 0);
        while !rest.is_empty() {
            let record = read_record(rest, id).expect("a whole record");
            let (mut batch, mut again) = (StoreBatch::default(), Vec::new());
            assert!(read_changes(record.body, |change| batch.changes.push(change)));
            write_record(&mut again, id, record.seq, record.durable, &batch);
            assert_eq!(again, rest[..record.len()], "record {}", record.seq);
            (rest, records) = (&rest[record.len()..], records + 1);
        }
        assert_eq!(records, 40);
    }
}
