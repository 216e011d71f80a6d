//! The scan of the store for records without a referring record, step by step.

use crate::durability::garbage_collector::{
    FIRST_SCAN_MS, GarbageCollector, RECORDS_PER_SCAN, SCAN_INTERVAL_MS,
};
use crate::ids::{MonotonicMs, RecordNumber, ShardId};
use crate::interface::outbox::{Effect, Outbox};
use crate::interface::store_access::{RecordSpace, StoreReadRequest, StoreReader};
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;

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
