//! The thread that turns memory into tables, and many small tables into few large ones.

use crate::disk::{Event, Sealed, Shared, State};
use crate::manifest::Manifest;
use crate::table::{self, Draft, Merge, Source, Table};
use crate::{Damage, Fault, writer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    manifest: Manifest,
    failing: bool,
    /// Everything is to be merged, with what was sealed for it.
    sweeps: bool,
    /// Tables with a block that cannot be read. They stay as they are until an open repairs them.
    spoilt: BTreeSet<u64>,
    /// When the last merge of everything ended, and how long it took.
    swept: Option<(Instant, Duration)>,
}

/// Which tables become one: a range of the list.
type Span = std::ops::Range<usize>;

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, manifest: Manifest) -> Keeper {
        Keeper {
            shared,
            manifest,
            failing: false,
            sweeps: false,
            spoilt: BTreeSet::new(),
            swept: None,
        }
    }

    pub(crate) fn run(mut self) {
        let mut pause = RETRY_MIN;
        while self.wait(pause) {
            self.drop_logs();
            match self.flush().and_then(|()| self.tidy()) {
                Ok(()) => {
                    pause = RETRY_MIN;
                    if std::mem::take(&mut self.failing) {
                        (self.shared.notify)(Event::Recovered);
                    }
                }
                Err(fault) => {
                    pause = (2 * pause).min(RETRY_MAX);
                    if !std::mem::replace(&mut self.failing, true) {
                        (self.shared.notify)(Event::Failing(fault));
                    }
                }
            }
        }
    }

    /// False when the store ends. What is in memory then is in the log as well.
    fn wait(&self, pause: Duration) -> bool {
        let mut state = self.shared.lock();
        if self.failing && !state.stop {
            let woken = self.shared.to_keep.wait_timeout(state, pause);
            state = woken.expect("nobody panics while holding the state").0;
        }
        while !state.stop && !self.has_work(&mut state) {
            // Looked at again after a pause only if a merge was put off.
            let put_off = state.refused || is_garbage(&state.tables);
            let wait = if put_off { RETRY_MIN } else { FOREVER };
            let woken = self.shared.to_keep.wait_timeout(state, wait);
            state = woken.expect("nobody panics while holding the state").0;
        }
        !state.stop
    }

    fn has_work(&self, state: &mut State) -> bool {
        !state.sealed.is_empty()
            || self.sweeps
            || self.has_old_logs(state)
            || self.makes_room(state)
            || is_garbage(&state.tables) && self.may_sweep(state)
    }

    /// A full store that has removals in it gets room by merging everything, at most a tenth of the
    /// time. It looks when a batch was refused.
    fn makes_room(&self, state: &mut State) -> bool {
        if !state.refused {
            return false;
        }
        let removals = state.removes() || state.tables.iter().any(|table| table.removals > 0);
        if !removals && state.tables.len() < 2 {
            state.refused = false;
            return false;
        }
        self.may_sweep(state)
    }

    /// Whether everything may be merged: not too often, and not if that would end at a block that
    /// cannot be read.
    fn may_sweep(&self, state: &State) -> bool {
        self.swept.is_none_or(|(at, took)| at.elapsed() >= 10 * took)
            && !state.tables.iter().any(|table| self.spoilt.contains(&table.number))
    }

    /// Makes one table of everything that was sealed.
    fn flush(&mut self) -> Result<(), Fault> {
        let (sealed, tables) = {
            let mut state = self.shared.lock();
            if state.refused && self.may_sweep(&state) {
                // What is refused from here on may be for what comes from here on.
                state.refused = false;
                self.sweeps = true;
                state.seal();
                state.end_segment = true;
                self.shared.to_write.notify_one();
            }
            (state.sealed.clone(), Arc::clone(&state.tables))
        };
        let Some(upto) = sealed.back().map(|sealed| sealed.upto) else {
            return Ok(());
        };
        let sources = sealed.iter().rev().map(|sealed| Sealed::source(sealed, &[])).collect();
        let made = self.write(sources, upto, tables.is_empty(), |_| Ok(true))?;
        let mut tables = (*tables).clone();
        tables.extend(made.map(Arc::new));
        self.list(tables, upto, sealed.len())?;
        self.drop_logs();
        Ok(())
    }

    /// Merges until nothing is worth it.
    fn tidy(&mut self) -> Result<(), Fault> {
        loop {
            // A flush in the middle of a long merge may ask for the next one.
            let sweeps = std::mem::take(&mut self.sweeps);
            let (span, all) = {
                let state = self.shared.lock();
                let all = 0..state.tables.len();
                let sweeps = (sweeps || is_garbage(&state.tables)) && self.may_sweep(&state);
                match sweeps && !all.is_empty() {
                    true => (Some(all), true),
                    false => (worth_merging(&self.tiers(&state.tables)), false),
                }
            };
            let Some(span) = span else {
                return Ok(());
            };
            let started = Instant::now();
            let merged = match self.merge(span) {
                Err(Fault::Damaged(damage)) => {
                    self.pass_by(damage);
                    continue;
                }
                merged => merged,
            };
            if !matches!(merged, Ok(true)) {
                self.sweeps |= sweeps;
                return merged.map(|_| ());
            }
            if all {
                self.swept = Some((Instant::now(), started.elapsed()));
            }
        }
    }

    /// What is damaged is merged no more: the others are, so that they do not become too many.
    fn pass_by(&mut self, damage: Vec<Damage>) {
        for damage in &damage {
            if let Damage::Block { table, .. } = damage {
                self.spoilt.insert(*table);
            }
        }
        (self.shared.notify)(Event::Damaged(Fault::Damaged(damage)));
    }

    /// Tables of one tier differ in size by less than what a merge of them makes of it.
    fn tiers(&self, tables: &[Arc<Table>]) -> Vec<u32> {
        let unit = (self.shared.options.memory_bytes / TIER).max(1) as u64;
        let tier = |table: &Arc<Table>| match self.spoilt.contains(&table.number) {
            true => SPOILT,
            false => (table.bytes / unit).max(1).ilog(TIER as u64),
        };
        tables.iter().map(tier).collect()
    }

    /// Makes one table of those in `span`; false if the store ends meanwhile.
    fn merge(&mut self, span: Span) -> Result<bool, Fault> {
        let old = Arc::clone(&self.shared.lock().tables);
        let old = &old[span.clone()];
        let last = old.last().map_or(0, |table| table.last);
        let sources =
            old.iter().rev().map(|table| Box::new(table.from(&[])) as Source<'_>).collect();
        // Memory does not wait for a long merge: tables that are made meanwhile come behind.
        let mut ended = false;
        let made = self.write(sources, last, span.start == 0, |keeper| {
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
        self.list(tables, self.manifest.flushed, 0)?;
        for table in old {
            // A file that stays belongs to no manifest, and is swept at the next open.
            let _ = self.shared.folder.remove(&table::name(table.number));
        }
        Ok(true)
    }

    /// A new table of what the sources hold. Asks `go_on` now and then.
    fn write(
        &mut self,
        sources: Vec<Source<'_>>,
        last: u64,
        oldest: bool,
        mut go_on: impl FnMut(&mut Keeper) -> Result<bool, Fault>,
    ) -> Result<Option<Table>, Fault> {
        let number = self.manifest.number_next;
        self.manifest.number_next += 1;
        let shared = Arc::clone(&self.shared);
        let made = || -> Result<Option<Table>, Fault> {
            let mut draft = Draft::create(&*shared.folder, shared.id, number, last)?;
            for (n, pair) in Merge::new(sources)?.enumerate() {
                let (key, value) = pair?;
                // Below the oldest table there is nothing that a removal could remove.
                if value.is_some() || !oldest {
                    draft.put(&key, value.as_deref())?;
                }
                if n % ASK_EVERY == ASK_EVERY - 1 && !go_on(self)? {
                    return Ok(None);
                }
            }
            Ok(draft.finish()?)
        };
        let made = made();
        if !matches!(made, Ok(Some(_))) {
            // What is left of it is swept at the next open, if not now.
            let _ = shared.folder.remove(&table::name(number));
        }
        made
    }

    /// From now on these are the tables, and hold everything up to `flushed`: of what was sealed
    /// the first `parts`.
    fn list(&mut self, tables: Vec<Arc<Table>>, flushed: u64, parts: usize) -> Result<(), Fault> {
        let listed = tables.iter().map(|table| (table.number, table.bytes)).collect();
        let manifest = Manifest { flushed, tables: listed, ..self.manifest };
        let folder = &*self.shared.folder;
        if let Err(fault) = manifest.replace(folder) {
            // What was made for it would else lie there until the next open, more with each try.
            for table in &manifest.tables {
                if !self.manifest.tables.contains(table) {
                    let _ = folder.remove(&table::name(table.0));
                }
            }
            return Err(fault.into());
        }
        folder.sync()?;
        // Not before: the log goes by what it says.
        self.manifest = manifest;
        let mut state = self.shared.lock();
        state.table_bytes = tables.iter().map(|table| table.bytes).sum();
        state.tables = Arc::new(tables);
        state.sealed.drain(..parts);
        // What could not be sealed while too much waited can be now.
        state.seal_if_grown(&self.shared.options);
        let roomy = self.shared.set_crowded(&state);
        drop(state);
        if roomy {
            (self.shared.notify)(Event::Roomy);
        }
        Ok(())
    }

    fn has_old_logs(&self, state: &State) -> bool {
        state.segments.front().is_some_and(|first| first.last <= self.manifest.flushed)
    }

    /// Segments are removed oldest first, so what is left of the log has no gap.
    fn drop_logs(&self) {
        let mut state = self.shared.lock();
        let mut gone = Vec::new();
        while self.has_old_logs(&state) {
            gone.extend(state.segments.pop_front());
        }
        drop(state);
        for segment in gone {
            // A segment that stays is read at the next open, counts for nothing, and goes then.
            let _ = self.shared.folder.remove(&writer::name(segment.number));
        }
    }
}

/// The smallest and then newest neighbours that are about as large as each other, once there are
/// enough of them. Larger ones are looked at as well: small tables may come faster than they merge.
fn worth_merging(tiers: &[u32]) -> Option<Span> {
    let largest = tiers.iter().filter(|tier| **tier != SPOILT).max()?;
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

/// More than a third is removals: merging everything returns at least as much as it writes.
fn is_garbage(tables: &[Arc<Table>]) -> bool {
    let entries: u64 = tables.iter().map(|table| table.entries).sum();
    let removals: u64 = tables.iter().map(|table| table.removals).sum();
    3 * removals > entries && entries > 0
}

/// Above all tiers: what is of it is merged with nothing.
const SPOILT: u32 = u32::MAX;

/// How many tables become one.
const TIER: usize = 4;

/// With more tables than this a long merge is not interrupted, and memory waits: the store becomes
/// crowded rather than slow to read.
const TABLES_MAX: usize = 256;

/// Pairs between two looks at whether something else is more urgent.
const ASK_EVERY: usize = 1024;

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);
const FOREVER: Duration = Duration::from_secs(1 << 30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_size_are_merged_the_smallest_first_and_the_newest_of_them() {
        let cases: [(&[u32], Option<Span>); 10] = [
            (&[], None),
            (&[0, 0, 0], None),
            (&[0, 0, 0, 0], Some(0..4)),
            (&[2, 1, 0, 0, 0, 0], Some(2..6)),
            (&[1, 1, 1, 1, 0], Some(0..5)),
            (&[1, 1, 1, 0, 0, 0], Some(0..6)),
            (&[0, 0, 0, 0, 1, 0, 0, 0, 0], Some(5..9)),
            (&[3, 2, 2, 2, 0, 0, 0], Some(1..7)),
            (&[0, 0, SPOILT, 0, 0, 0], None),
            (&[0, 0, 0, 0, SPOILT, 1, 0], Some(0..4)),
        ];
        for (tiers, span) in cases {
            assert_eq!(worth_merging(tiers), span, "{tiers:?}");
        }
    }
}
