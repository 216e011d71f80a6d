//! The record of one batch in the log, specified in docs/store-format.md.

use crate::crc::crc;
use crate::{BatchChange, KeySpace, StoreBatch};

/// A record with a valid checksum.
#[derive(Debug)]
pub(crate) struct LogRecord<'a> {
    pub seq: u64,
    /// The last batch that was durable when this record was written.
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
    // Until the checksum is known, the id is in the place of marker and checksum, where it precedes
    // all other bytes of the checksum.
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

/// Returns the record at the start of `bytes`, if its checksum is valid. The store's id is part of
/// the checksum, so that the bytes of a client's message are never mistaken for a record.
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

/// Calls `visit` with each change of a record. Returns `false` if the body is malformed.
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

/// The first bytes of every record. The marker differs between stores and is never published, so a
/// client cannot send messages which look like records.
pub(crate) fn marker(id: u64) -> [u8; 4] {
    (id as u32).to_le_bytes()
}

/// Takes the next `N` bytes.
pub(crate) fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

pub(crate) const HEAD: usize = 28;

/// Marks a removal in the place of a value's length. A batch is below 4 GiB, so no value has it.
pub(crate) const REMOVED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// A log and its manifest as written before `crc32fast` computed the checksums.
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
