//! Messages that stand once for several queues, where nobody counts who still wants them: those of
//! an earlier process, and those that joined queues which only the store has. From time to time the
//! queues are looked through, a piece a turn, and what none of them names goes. All references to a
//! message are made with it, so what was not seen once is not wanted any more.

use crate::durability::records::{self, RecordBody};
use crate::durability::stored_queue::StoreReadRequest;
use crate::durability::write_batch::{RecordNumber, RecordSpace, StoreReader};
use crate::input::{MonotonicMs, ShardId};
use crate::outbox::{Effect, Outbox};
use crate::shard::Shard;
use crate::timer::ShardTimer;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// A scan of the store for records that nothing refers to.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    /// The next key.
    from: Vec<u8>,
    /// Messages of this shard from here on are too new.
    upto: RecordNumber,
    /// Messages that a queue names.
    wanted: HashSet<u64, FixedState>,
    /// The queues are done.
    removes: bool,
    /// A queue could not be read, and may name anything: nothing is removed.
    is_blind: bool,
}

/// Records that are scanned in a turn.
const RECORDS_PER_SCAN: usize = 1024;
/// After the start, and from then on.
const FIRST_SCAN_MS: u64 = 1_000;
const SCAN_INTERVAL_MS: u64 = 3_600_000;

impl Shard {
    /// Every shard looks for what it made itself, and the first for what earlier processes left.
    pub(crate) fn plan_garbage_collection(&mut self) {
        self.sessions.write_batch.uncounted = u64::from(self.id == ShardId(0));
        self.timers.set(MonotonicMs(self.now.0 + FIRST_SCAN_MS), ShardTimer::GarbageCollection);
    }

    pub(crate) fn start_garbage_collection(&mut self, out: &mut Outbox) {
        self.timers.set(MonotonicMs(self.now.0 + SCAN_INTERVAL_MS), ShardTimer::GarbageCollection);
        let journal = &mut self.sessions.write_batch;
        if self.garbage_collector.is_some() || std::mem::take(&mut journal.uncounted) == 0 {
            return;
        }
        self.garbage_collector = Some(Box::new(GarbageCollector {
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
        let Some(mut search) = self.garbage_collector.take() else { return };
        if self.store_is_full {
            // What has moved here is still there in the store, and removals pass that by.
            return self.sessions.write_batch.uncounted += 1;
        }
        let done = match search.removes {
            false => search.mark_wanted(stored),
            true => self.remove_unwanted(&mut search, stored),
        };
        match (done, search.removes) {
            _ if search.is_blind => return self.sessions.write_batch.uncounted += 1,
            // What is still wanted is looked for again.
            (true, true) => {
                return self.sessions.write_batch.uncounted += search.wanted.len() as u64;
            }
            (true, false) => (search.removes, search.from) = (true, Vec::new()),
            (false, _) => {}
        }
        self.garbage_collector = Some(search);
        out.effects.push(Effect::ReadStore { reading: StoreReadRequest::GarbageScan });
    }

    /// Says whether there are no more.
    fn remove_unwanted(&mut self, search: &mut GarbageCollector, stored: &dyn StoreReader) -> bool {
        let (mut seen, mut last) = (0, Vec::new());
        let (is_first, journal) = (self.id == ShardId(0), &mut self.sessions.write_batch);
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
    /// Says whether there are no more.
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
    use crate::{BrokerOptions, Interest, ProcessMemory};
    use std::sync::Arc;

    /// A message that no queue names any more.
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
            shard.plan_garbage_collection();
            shard.start_garbage_collection(&mut out);
            shard.continue_garbage_collection(&OneMessageReader, &mut out);
            shard.set_store_full(is_full);
            shard.continue_garbage_collection(&OneMessageReader, &mut out);
            assert_eq!(!shard.sessions.write_batch.is_empty(), is_removed);
            assert!(shard.garbage_collector.is_none(), "another hour");
        }
    }
}
