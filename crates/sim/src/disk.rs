//! The simulator's disk: it takes every batch at once, or refuses it, keeps it when it syncs, and a
//! power cut takes the rest.

use broker::{RecordChange, RecordSpace, StoreReadError, StoreReader};
use std::collections::{BTreeMap, VecDeque};

type RecordMap = BTreeMap<(RecordSpace, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    /// Records that a reader sees.
    pairs: RecordMap,
    /// Records that survive a power cut.
    synced: RecordMap,
    /// Taken and not synced.
    pending: VecDeque<Vec<RecordChange>>,
    accepted: u64,
    durable: u64,
    /// Up to this batch it was asked to sync.
    urgent_upto: u64,
    /// The power goes with this batch.
    power_cut_at: Option<u64>,
    pub sync_mode: SyncMode,
    /// Whether the disk refuses writes that grow: always, or most of the time with a random
    /// generator.
    pub refuses: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    #[default]
    Everything,
    Nothing,
    /// Syncs this many further batches.
    Batches(usize),
    /// Syncs batches that a client waits for, at once; others with them or in their own time.
    Urgent,
}

impl SimDisk {
    /// The number of what was taken last. Somebody waits for what is urgent.
    pub fn commit(&mut self, changes: Vec<RecordChange>, urgent: bool) -> u64 {
        apply(&mut self.pairs, &changes);
        self.pending.push_back(changes);
        self.accepted += 1;
        if urgent {
            self.urgent_upto = self.accepted;
        }
        self.accepted
    }

    pub fn mark_all_urgent(&mut self) {
        self.urgent_upto = self.accepted;
    }

    /// Returns the disk with these changes.
    pub(crate) fn with_changes(&self, changes: &[RecordChange]) -> SimDisk {
        let mut pairs = self.pairs.clone();
        apply(&mut pairs, changes);
        SimDisk { pairs, ..SimDisk::default() }
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns the number of batches that could be synced.
    pub fn unsynced(&self) -> usize {
        match self.sync_mode {
            SyncMode::Nothing => 0,
            SyncMode::Batches(batches) => self.pending.len().min(batches),
            SyncMode::Everything => self.pending.len(),
            SyncMode::Urgent => self.urgent_upto.saturating_sub(self.durable) as usize,
        }
    }

    /// Keeps so many batches for good.
    pub fn sync(&mut self, batches: usize) {
        if let SyncMode::Batches(left) = &mut self.sync_mode {
            *left = left.saturating_sub(batches);
        }
        for changes in self.pending.drain(..batches) {
            apply(&mut self.synced, &changes);
            self.durable += 1;
        }
    }

    /// The power goes with the so many-th batch from here.
    pub fn stop_after(&mut self, batches: usize) {
        self.power_cut_at = Some(self.accepted + batches as u64);
    }

    pub fn cancel_stop(&mut self) {
        self.power_cut_at = None;
    }

    pub fn is_stopped(&self) -> bool {
        self.power_cut_at.is_some_and(|last| self.accepted >= last)
    }

    /// Returns the number of batches that are not synced.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Discards everything that is not synced.
    pub fn lose_unsynced(&mut self) {
        self.power_cut_at = None;
        if let SyncMode::Batches(left) = &mut self.sync_mode {
            *left = 0;
        }
        self.pairs = self.synced.clone();
        self.accepted -= self.pending.len() as u64;
        self.urgent_upto = self.accepted;
        self.pending.clear();
    }

    /// The keys of a space: of what is done nothing may stay.
    pub fn keys(&self, space: RecordSpace) -> impl Iterator<Item = &[u8]> {
        self.pairs.keys().filter(move |(of, _)| *of == space).map(|(_, key)| &key[..])
    }
}

fn apply(pairs: &mut RecordMap, changes: &[RecordChange]) {
    for change in changes {
        let key = (change.space, change.key.clone());
        match &change.value {
            Some(value) => pairs.insert(key, value.clone()),
            None => pairs.remove(&key),
        };
    }
}

impl StoreReader for SimDisk {
    fn get(&self, space: RecordSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
        Ok(self.pairs.get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: RecordSpace,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreReadError> {
        let start = (space, from.max(prefix).to_vec());
        for ((of, key), value) in self.pairs.range(start..) {
            if *of != space || !key.starts_with(prefix) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
