//! The store that forgets: everything is gone with the process, so everything that was committed
//! is as durable as it will ever be.

use crate::{Batch, Fault, Seq, Space, Store, Visit};
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Memory {
    pairs: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
    seq: Seq,
    bytes: usize,
    bytes_max: usize,
}

impl Memory {
    /// Refuses what would bring its keys and values above `bytes_max`.
    pub fn new(bytes_max: usize) -> Memory {
        Memory { pairs: BTreeMap::new(), seq: Seq(0), bytes: 0, bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Store for Memory {
    fn commit(&mut self, batch: Batch) -> Result<Seq, Fault> {
        // What the batch removes or replaces is not counted off in advance: a store that is full
        // takes removals alone, and with them has room again.
        if batch.grows() && self.bytes + batch.bytes() > self.bytes_max {
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

    fn durable(&self) -> Seq {
        self.seq
    }

    fn crowded(&self) -> bool {
        false
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.pairs.get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut Visit<'_>,
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
