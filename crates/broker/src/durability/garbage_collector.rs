//! Garbage collection of shared message bodies without a count of references: bodies of an earlier
//! process, and bodies referred to by queues that only the store has. From time to time all queues
//! are scanned in pieces, and bodies without a reference are removed. All references to a body are
//! written together with the body, so a body without references stays so.

use crate::durability::records::{self, RecordBody};
use crate::ids::RecordNumber;
use crate::interface::store_access::{RecordSpace, StoreReader};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// A scan of the store for message bodies ([`RecordSpace::Messages`]) without references.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    /// The next key of the scan, in [`RecordSpace::Queues`] or then [`RecordSpace::Messages`].
    pub(crate) from: Vec<u8>,
    /// Bodies of this shard with this number or above are too new.
    pub(crate) upto: RecordNumber,
    /// Numbers of the bodies that a queue record refers to by [`RecordBody::Shared`].
    pub(crate) wanted: HashSet<u64, FixedState>,
    /// Whether all queues are scanned and bodies are removed now.
    pub(crate) removes: bool,
    /// Whether a queue could not be read. The queue may refer to any body, so nothing is removed.
    pub(crate) is_blind: bool,
}

/// Records scanned in one turn.
pub(crate) const RECORDS_PER_SCAN: usize = 1024;
/// Delay of the first scan after the start, and interval of later scans, in milliseconds.
pub(crate) const FIRST_SCAN_MS: u64 = 1_000;
pub(crate) const SCAN_INTERVAL_MS: u64 = 3_600_000;

impl GarbageCollector {
    /// Collects the references of queue records, up to `RECORDS_PER_SCAN`. Returns whether the scan
    /// is complete or has failed.
    pub(crate) fn mark_wanted(&mut self, stored: &dyn StoreReader) -> bool {
        let (mut seen, mut last) = (0, Vec::new());
        let wanted = &mut self.wanted;
        let scanned = stored.scan(RecordSpace::Queues, &[], &self.from, &mut |key, value| {
            seen += 1;
            last = [key, &[0]].concat();
            if let Some((_, RecordBody::Shared(number))) = records::read_queue(value) {
                wanted.insert(number.0);
            }
            seen < RECORDS_PER_SCAN
        });
        self.from = last;
        self.is_blind |= scanned.is_err();
        self.is_blind || seen < RECORDS_PER_SCAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::write_batch::WriteBatch;
    use crate::ids::{MonotonicMs, ShardId};
    use crate::interface::outbox::Outbox;
    use crate::interface::store_access::{StoreReadError, number_key};
    use crate::shard::Shard;
    use crate::{BrokerOptions, Interest, ProcessMemory};
    use std::sync::Arc;

    /// A store with one message body to which no queue refers any more.
    #[derive(Debug)]
    struct OneMessageReader;

    impl StoreReader for OneMessageReader {
        fn get(&self, _: RecordSpace, _: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
            Ok(None)
        }

        fn scan(
            &self,
            space: RecordSpace,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), StoreReadError> {
            if space == RecordSpace::Messages {
                visit(&number_key(RecordNumber(7)), b"");
            }
            Ok(())
        }
    }

    #[test]
    fn nothing_is_removed_while_the_store_refuses_what_moved_it() {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        shard.sessions.write_batch = WriteBatch::open(2, 0);
        let mut out = Outbox::new(1);
        for (is_full, is_removed) in [(true, false), (false, true)] {
            shard.set_store_full(false);
            shard.sessions.plan_garbage_collection();
            shard.sessions.start_garbage_collection(&mut out);
            shard.sessions.continue_garbage_collection(&OneMessageReader, &mut out);
            shard.set_store_full(is_full);
            shard.sessions.continue_garbage_collection(&OneMessageReader, &mut out);
            assert_eq!(!shard.sessions.write_batch.is_empty(), is_removed);
            assert!(shard.sessions.durability.garbage_collector.is_none(), "another hour");
        }
    }
}
