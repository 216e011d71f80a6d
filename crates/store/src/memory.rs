//! A store in memory. All data end with the process, so every committed batch counts as durable.

use crate::{BatchSeq, Fault, KeySpace, KeyValueStore, PairVisitor, StoreBatch};
use std::collections::BTreeMap;

/// Keys and values in a `BTreeMap`, for a broker without persistence.
#[derive(Debug)]
pub struct MemoryStore {
    pairs: BTreeMap<(KeySpace, Vec<u8>), Vec<u8>>,
    seq: BatchSeq,
    bytes: usize,
    bytes_max: usize,
}

impl MemoryStore {
    /// Makes an empty store. `commit` fails with [`Fault::Full`] beyond `bytes_max` of keys and
    /// values.
    pub fn new(bytes_max: usize) -> MemoryStore {
        MemoryStore { pairs: BTreeMap::new(), seq: BatchSeq(0), bytes: 0, bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl KeyValueStore for MemoryStore {
    fn commit(&mut self, batch: StoreBatch) -> Result<BatchSeq, Fault> {
        // Bytes which the batch removes or replaces are not subtracted in advance: a full store
        // only accepts batches of removals, and has room again afterwards.
        if batch.has_puts() && self.bytes + batch.bytes() > self.bytes_max {
            return Err(Fault::Full);
        }
        for change in batch.changes {
            let key = (change.space, change.key);
            let key_len = key.1.len();
            let (old, added) = match change.value {
                Some(value) => {
                    let added = key_len + value.len();
                    (self.pairs.insert(key, value), added)
                }
                None => (self.pairs.remove(&key), 0),
            };
            self.bytes += added;
            self.bytes -= old.map_or(0, |old| key_len + old.len());
        }
        self.seq.0 += 1;
        Ok(self.seq)
    }

    fn durable(&self) -> BatchSeq {
        self.seq
    }

    fn is_backlogged(&self) -> bool {
        false
    }

    fn get(&self, space: KeySpace, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.pairs.get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: KeySpace,
        prefix: &[u8],
        from: &[u8],
        visit: &mut PairVisitor<'_>,
    ) -> Result<(), Fault> {
        let start = (space, from.max(prefix).to_vec());
        for ((of, key), value) in self.pairs.range(start..) {
            if *of != space || !key.starts_with(prefix) || !visit(key, value) {
                return Ok(());
            }
        }
        Ok(())
    }
}
