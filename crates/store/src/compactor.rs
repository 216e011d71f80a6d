//! The thread which writes memtables to tables, and merges many small tables into few large ones.

use crate::disk::{SealedMemtable, StoreCore, StoreEvent, StoreState};
use crate::manifest::Manifest;
use crate::table::{self, MergeIterator, PairSource, SortedTable, TableBuilder};
use crate::{Fault, StoreDamage, log_writer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the compactor thread. Only this thread writes tables and the manifest.
pub(crate) struct Compactor {
    shared: Arc<StoreCore>,
    manifest: Manifest,
    failing: bool,
    /// Whether a merge of all tables, and of the memtables sealed for it, is requested or running.
    compacts_all: bool,
    /// Tables with an unreadable block. They stay unchanged until an open with `repair`.
    unreadable_tables: BTreeSet<u64>,
    /// End and duration of the last merge of all tables.
    last_full_compaction: Option<(Instant, Duration)>,
}

/// A range of the table list that is merged into one table. Neighbours only, to keep the order.
type TableSpan = std::ops::Range<usize>;

impl Compactor {
    pub(crate) fn new(shared: Arc<StoreCore>, manifest: Manifest) -> Compactor {
        Compactor {
            shared,
            manifest,
            failing: false,
            compacts_all: false,
            unreadable_tables: BTreeSet::new(),
            last_full_compaction: None,
        }
    }

    pub(crate) fn run(mut self) {
        let mut pause = RETRY_MIN;
        while self.wait(pause) {
            self.remove_flushed_segments();
            match self.flush().and_then(|()| self.compact()) {
                Ok(()) => {
                    pause = RETRY_MIN;
                    if std::mem::take(&mut self.failing) {
                        (self.shared.notify)(StoreEvent::Recovered);
                    }
                }
                Err(fault) => {
                    pause = (2 * pause).min(RETRY_MAX);
                    if !std::mem::replace(&mut self.failing, true) {
                        (self.shared.notify)(StoreEvent::Failing(fault));
                    }
                }
            }
        }
    }

    /// Waits for work. Returns `false` when the store ends; memtables need no flush then, since the
    /// log contains their batches.
    fn wait(&self, pause: Duration) -> bool {
        let mut state = self.shared.lock();
        if self.failing && !state.stop {
            let woken = self.shared.to_keep.wait_timeout(state, pause);
            state = woken.expect("nobody panics while holding the state").0;
        }
        while !state.stop && !self.has_work(&mut state) {
            // Wakes up by itself only if a merge was postponed.
            let put_off = state.quota_refused || is_mostly_removals(&state.tables);
            let wait = if put_off { RETRY_MIN } else { FOREVER };
            let woken = self.shared.to_keep.wait_timeout(state, wait);
            state = woken.expect("nobody panics while holding the state").0;
        }
        !state.stop
    }

    fn has_work(&self, state: &mut StoreState) -> bool {
        !state.sealed.is_empty()
            || self.compacts_all
            || self.has_flushed_segments(state)
            || self.should_make_room(state)
            || is_mostly_removals(&state.tables) && self.can_compact_all(state)
    }

    /// Whether to merge all tables because the quota refused a batch. A merge makes room if there
    /// are removals or several tables, and takes at most about a tenth of the time.
    fn should_make_room(&self, state: &mut StoreState) -> bool {
        if !state.quota_refused {
            return false;
        }
        let removals = state.has_removals() || state.tables.iter().any(|table| table.removals > 0);
        if !removals && state.tables.len() < 2 {
            state.quota_refused = false;
            return false;
        }
        self.can_compact_all(state)
    }

    /// Whether all tables may be merged into one now. Ten times the duration of the last such merge
    /// has to pass after it, and no table may have an unreadable block, where the merge would stop.
    fn can_compact_all(&self, state: &StoreState) -> bool {
        self.last_full_compaction.is_none_or(|(at, took)| at.elapsed() >= 10 * took)
            && !state.tables.iter().any(|table| self.unreadable_tables.contains(&table.number))
    }

    /// Writes all sealed memtables to one table.
    fn flush(&mut self) -> Result<(), Fault> {
        let (sealed, tables) = {
            let mut state = self.shared.lock();
            if state.quota_refused && self.can_compact_all(&state) {
                // Reset first: batches refused from here on may need room for later changes.
                state.quota_refused = false;
                self.compacts_all = true;
                state.seal();
                state.end_segment = true;
                self.shared.to_write.notify_one();
            }
            (state.sealed.clone(), Arc::clone(&state.tables))
        };
        let Some(upto) = sealed.back().map(|sealed| sealed.upto) else {
            return Ok(());
        };
        let sources =
            sealed.iter().rev().map(|sealed| SealedMemtable::pairs_from(sealed, &[])).collect();
        let made = self.write_table(sources, upto, tables.is_empty(), |_| Ok(true))?;
        let mut tables = (*tables).clone();
        tables.extend(made.map(Arc::new));
        self.install_tables(tables, upto, sealed.len())?;
        self.remove_flushed_segments();
        Ok(())
    }

    /// Merges tables until no merge is worthwhile.
    fn compact(&mut self) -> Result<(), Fault> {
        loop {
            // A `flush` during a long merge may request the next one.
            let sweeps = std::mem::take(&mut self.compacts_all);
            let (span, all) = {
                let state = self.shared.lock();
                let all = 0..state.tables.len();
                let sweeps =
                    (sweeps || is_mostly_removals(&state.tables)) && self.can_compact_all(&state);
                match sweeps && !all.is_empty() {
                    true => (Some(all), true),
                    false => (choose_merge(&self.tiers(&state.tables)), false),
                }
            };
            let Some(span) = span else {
                return Ok(());
            };
            let started = Instant::now();
            let merged = match self.merge(span) {
                Err(Fault::Damaged(damage)) => {
                    self.exclude_damaged(damage);
                    continue;
                }
                merged => merged,
            };
            if !matches!(merged, Ok(true)) {
                self.compacts_all |= sweeps;
                return merged.map(|_| ());
            }
            if all {
                self.last_full_compaction = Some((Instant::now(), started.elapsed()));
            }
        }
    }

    /// Excludes damaged tables from merging, and reports the damage. Other tables are still merged,
    /// so that their number stays bounded.
    fn exclude_damaged(&mut self, damage: Vec<StoreDamage>) {
        for damage in &damage {
            if let StoreDamage::Block { table, .. } = damage {
                self.unreadable_tables.insert(*table);
            }
        }
        (self.shared.notify)(StoreEvent::Damaged(Fault::Damaged(damage)));
    }

    /// Returns the size class of each table: the logarithm of its size to the base `TIER`.
    fn tiers(&self, tables: &[Arc<SortedTable>]) -> Vec<u32> {
        let unit = (self.shared.options.memory_bytes / TIER).max(1) as u64;
        let tier = |table: &Arc<SortedTable>| match self.unreadable_tables.contains(&table.number) {
            true => UNREADABLE_TIER,
            false => (table.bytes / unit).max(1).ilog(TIER as u64),
        };
        tables.iter().map(tier).collect()
    }

    /// Merges the tables in `span` into one. Returns `false` if the store ends meanwhile.
    fn merge(&mut self, span: TableSpan) -> Result<bool, Fault> {
        let old = Arc::clone(&self.shared.lock().tables);
        let old = &old[span.clone()];
        let last = old.last().map_or(0, |table| table.last);
        let sources = old
            .iter()
            .rev()
            .map(|table| Box::new(table.pairs_from(&[])) as PairSource<'_>)
            .collect();
        // Memtables do not wait for a long merge: tables flushed meanwhile are appended behind.
        let mut ended = false;
        let made = self.write_table(sources, last, span.start == 0, |keeper| {
            let (stop, waits) = {
                let state = keeper.shared.lock();
                (state.stop, !state.sealed.is_empty() && state.tables.len() < TABLES_MAX)
            };
            if waits && !stop {
                keeper.flush()?;
            }
            ended = stop;
            Ok(!stop)
        })?;
        if ended {
            return Ok(false);
        }
        let now = Arc::clone(&self.shared.lock().tables);
        let mut tables = now[..span.start].to_vec();
        tables.extend(made.map(Arc::new));
        tables.extend_from_slice(&now[span.end..]);
        self.install_tables(tables, self.manifest.flushed, 0)?;
        for table in old {
            // A file which stays is in no manifest, and the next open removes it.
            let _ = self.shared.folder.remove(&table::table_file_name(table.number));
        }
        Ok(true)
    }

    /// Writes the merged sources to a new table. Calls `go_on` every `PAIRS_PER_CHECK` pairs, and
    /// returns `None` if it returns `false` or if the table would be empty.
    fn write_table(
        &mut self,
        sources: Vec<PairSource<'_>>,
        last: u64,
        oldest: bool,
        mut go_on: impl FnMut(&mut Compactor) -> Result<bool, Fault>,
    ) -> Result<Option<SortedTable>, Fault> {
        let number = self.manifest.number_next;
        self.manifest.number_next += 1;
        let shared = Arc::clone(&self.shared);
        let made = || -> Result<Option<SortedTable>, Fault> {
            let mut draft = TableBuilder::create(&*shared.folder, shared.id, number, last)?;
            for (n, pair) in MergeIterator::new(sources)?.enumerate() {
                let (key, value) = pair?;
                // Below the oldest table there is no value that a removal could hide.
                if value.is_some() || !oldest {
                    draft.put(&key, value.as_deref())?;
                }
                if n % PAIRS_PER_CHECK == PAIRS_PER_CHECK - 1 && !go_on(self)? {
                    return Ok(None);
                }
            }
            Ok(draft.finish()?)
        };
        let made = made();
        if !matches!(made, Ok(Some(_))) {
            // If the removal fails, the next open removes the file.
            let _ = shared.folder.remove(&table::table_file_name(number));
        }
        made
    }

    /// Makes `tables` the tables of the store, which hold all batches up to `flushed`, and drops
    /// the first `parts` sealed memtables.
    fn install_tables(
        &mut self,
        tables: Vec<Arc<SortedTable>>,
        flushed: u64,
        parts: usize,
    ) -> Result<(), Fault> {
        let listed = tables.iter().map(|table| (table.number, table.bytes)).collect();
        let manifest = Manifest { flushed, tables: listed, ..self.manifest };
        let folder = &*self.shared.folder;
        if let Err(fault) = manifest.replace(folder) {
            // Remove the new tables now: each retry would add more files until the next open.
            for table in &manifest.tables {
                if !self.manifest.tables.contains(table) {
                    let _ = folder.remove(&table::table_file_name(table.0));
                }
            }
            return Err(fault.into());
        }
        folder.sync()?;
        // Not earlier: the removal of log segments depends on the manifest on the disk.
        self.manifest = manifest;
        let mut state = self.shared.lock();
        state.table_bytes = tables.iter().map(|table| table.bytes).sum();
        state.tables = Arc::new(tables);
        state.sealed.drain(..parts);
        // A memtable which could not be sealed while `SEALED_MAX` waited can be sealed now.
        state.seal_if_grown(&self.shared.options);
        let roomy = self.shared.update_backlogged(&state);
        drop(state);
        if roomy {
            (self.shared.notify)(StoreEvent::BacklogCleared);
        }
        Ok(())
    }

    fn has_flushed_segments(&self, state: &StoreState) -> bool {
        state.segments.front().is_some_and(|first| first.last <= self.manifest.flushed)
    }

    /// Removes segments whose batches are in tables, oldest first, so that the log has no gap.
    fn remove_flushed_segments(&self) {
        let mut state = self.shared.lock();
        let mut gone = Vec::new();
        while self.has_flushed_segments(&state) {
            gone.extend(state.segments.pop_front());
        }
        drop(state);
        for segment in gone {
            // A segment which stays is removed by the next open, and its records are not applied
            // again.
            let _ = self.shared.folder.remove(&log_writer::log_file_name(segment.number));
        }
    }
}

/// Chooses the tables of the next merge by their size classes `tiers`: the smallest and then newest
/// run of at least `TIER` neighbours of at most one class. Larger classes are checked too, since
/// small tables may come faster than merges. `None` if no run is long enough.
fn choose_merge(tiers: &[u32]) -> Option<TableSpan> {
    let largest = tiers.iter().filter(|tier| **tier != UNREADABLE_TIER).max()?;
    for tier in 0..=*largest {
        let mut end = tiers.len();
        while end > 0 {
            let start = tiers[..end].iter().rposition(|other| *other > tier).map_or(0, |n| n + 1);
            if end - start >= TIER {
                return Some(start..end);
            }
            end = start.saturating_sub(1);
        }
    }
    None
}

/// Whether more than a third of the entries are removals. Merging all tables then frees at least as
/// much space as it writes.
fn is_mostly_removals(tables: &[Arc<SortedTable>]) -> bool {
    let entries: u64 = tables.iter().map(|table| table.entries).sum();
    let removals: u64 = tables.iter().map(|table| table.removals).sum();
    3 * removals > entries && entries > 0
}

/// Size class of an unreadable table, above all others: such a table is never merged.
const UNREADABLE_TIER: u32 = u32::MAX;

/// Number of tables of a size class that are merged into one, and the base of the size classes.
const TIER: usize = 4;

/// Number of tables at which a long merge is no longer interrupted by flushes. Memtables then wait
/// and the store becomes backlogged, but reads stay fast.
const TABLES_MAX: usize = 256;

/// Number of pairs that a merge writes between two checks (`go_on`) whether to continue.
const PAIRS_PER_CHECK: usize = 1024;

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);
const FOREVER: Duration = Duration::from_secs(1 << 30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_size_are_merged_the_smallest_first_and_the_newest_of_them() {
        let cases: [(&[u32], Option<TableSpan>); 10] = [
            (&[], None),
            (&[0, 0, 0], None),
            (&[0, 0, 0, 0], Some(0..4)),
            (&[2, 1, 0, 0, 0, 0], Some(2..6)),
            (&[1, 1, 1, 1, 0], Some(0..5)),
            (&[1, 1, 1, 0, 0, 0], Some(0..6)),
            (&[0, 0, 0, 0, 1, 0, 0, 0, 0], Some(5..9)),
            (&[3, 2, 2, 2, 0, 0, 0], Some(1..7)),
            (&[0, 0, UNREADABLE_TIER, 0, 0, 0], None),
            (&[0, 0, 0, 0, UNREADABLE_TIER, 1, 0], Some(0..4)),
        ];
        for (tiers, span) in cases {
            assert_eq!(choose_merge(tiers), span, "{tiers:?}");
        }
    }
}
