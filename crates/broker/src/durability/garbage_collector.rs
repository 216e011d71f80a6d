//! Garbage collection of shared message bodies without a count of references: bodies of an earlier
//! process, and bodies referred to by queues that only the store has. From time to time all queues
//! are scanned in pieces, and bodies without a reference are removed. All references to a body are
//! written together with the body, so a body without references stays so.

use crate::durability::records::{self, RecordBody};
use crate::durability::stored_queue::StoreReadRequest;
use crate::durability::write_batch::{RecordNumber, RecordSpace, StoreReader};
use crate::input::{MonotonicMs, ShardId};
use crate::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// A scan of the store for message bodies ([`RecordSpace::Messages`]) without references.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    /// The next key of the scan, in [`RecordSpace::Queues`] or then [`RecordSpace::Messages`].
    from: Vec<u8>,
    /// Bodies of this shard with this number or above are too new.
    upto: RecordNumber,
    /// Numbers of the bodies that a queue record refers to by [`RecordBody::Shared`].
    wanted: HashSet<u64, FixedState>,
    /// Whether all queues are scanned and bodies are removed now.
    removes: bool,
    /// Whether a queue could not be read. The queue may refer to any body, so nothing is removed.
    is_blind: bool,
}

/// Records scanned in one turn.
const RECORDS_PER_SCAN: usize = 1024;
/// Delay of the first scan after the start, and interval of later scans, in milliseconds.
const FIRST_SCAN_MS: u64 = 1_000;
const SCAN_INTERVAL_MS: u64 = 3_600_000;

impl SessionTable {
    /// Sets `ShardTimer::GarbageCollection` for the first scan. Every shard collects bodies written
    /// by the shard itself, and shard 0 also bodies of earlier processes.
    pub(crate) fn plan_garbage_collection(&mut self) {
        self.write_batch.uncounted = u64::from(self.context.id == ShardId(0));
        self.context
            .timers
            .set(MonotonicMs(self.context.now.0 + FIRST_SCAN_MS), ShardTimer::GarbageCollection);
    }

    pub(crate) fn start_garbage_collection(&mut self, out: &mut Outbox) {
        self.context
            .timers
            .set(MonotonicMs(self.context.now.0 + SCAN_INTERVAL_MS), ShardTimer::GarbageCollection);
        let journal = &mut self.write_batch;
        if self.durability.garbage_collector.is_some()
            || std::mem::take(&mut journal.uncounted) == 0
        {
            return;
        }
        self.durability.garbage_collector = Some(Box::new(GarbageCollector {
            upto: journal.next_number(),
            ..GarbageCollector::default()
        }));
        out.effects.push(Effect::ReadStore { reading: StoreReadRequest::GarbageScan });
    }

    pub(crate) fn continue_garbage_collection(
        &mut self,
        stored: &dyn StoreReader,
        out: &mut Outbox,
    ) {
        let Some(mut search) = self.durability.garbage_collector.take() else { return };
        if self.durability.store_is_full {
            // In a full store, new queue records wait and removals overtake them, so a scan would
            // miss references.
            return self.write_batch.uncounted += 1;
        }
        let done = match search.removes {
            false => search.mark_wanted(stored),
            true => self.remove_unwanted(&mut search, stored),
        };
        match (done, search.removes) {
            _ if search.is_blind => return self.write_batch.uncounted += 1,
            // Bodies still referred to are scanned again next time.
            (true, true) => {
                return self.write_batch.uncounted += search.wanted.len() as u64;
            }
            (true, false) => (search.removes, search.from) = (true, Vec::new()),
            (false, _) => {}
        }
        self.durability.garbage_collector = Some(search);
        out.effects.push(Effect::ReadStore { reading: StoreReadRequest::GarbageScan });
    }

    /// Removes unwanted bodies, up to `RECORDS_PER_SCAN`. Returns whether the scan is complete.
    fn remove_unwanted(&mut self, search: &mut GarbageCollector, stored: &dyn StoreReader) -> bool {
        let (mut seen, mut last) = (0, Vec::new());
        let (is_first, journal) = (self.context.id == ShardId(0), &mut self.write_batch);
        let scanned = stored.scan(RecordSpace::Messages, &[], &search.from, &mut |key, _| {
            seen += 1;
            last = [key, &[0]].concat();
            let number = key.try_into().map_or(u64::MAX, u64::from_be_bytes);
            let number = RecordNumber(number);
            let own = journal.is_own(number) && number < search.upto;
            let old = is_first && journal.is_old(number);
            if (own || old) && !search.wanted.contains(&number.0) {
                journal.push_change(RecordSpace::Messages, key.to_vec(), None);
            }
            seen < RECORDS_PER_SCAN
        });
        search.from = last;
        scanned.is_err() || seen < RECORDS_PER_SCAN
    }
}

impl GarbageCollector {
    /// Collects the references of queue records, up to `RECORDS_PER_SCAN`. Returns whether the scan
    /// is complete or has failed.
    fn mark_wanted(&mut self, stored: &dyn StoreReader) -> bool {
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
    use crate::durability::write_batch::{StoreReadError, WriteBatch};
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
                visit(&records::number_key(RecordNumber(7)), b"");
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
