//! The simulated disk: commits every batch at once or refuses it, and makes batches durable by a
//! sync. A power cut loses all others.

use broker::{RecordChange, RecordSpace, StoreReadError, StoreReader};
use std::collections::{BTreeMap, VecDeque};

type RecordMap = BTreeMap<(RecordSpace, Vec<u8>), Vec<u8>>;

/// A disk in memory, which is the [`StoreReader`] of the simulated shards.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    /// Records that a reader sees: `synced` and all `pending` batches.
    pairs: RecordMap,
    /// Records that survive a power cut.
    synced: RecordMap,
    /// Committed batches which are not synced, oldest first.
    pending: VecDeque<Vec<RecordChange>>,
    accepted: u64,
    durable: u64,
    /// Last batch for which a sync was requested, used by `SyncMode::Urgent`.
    urgent_upto: u64,
    /// Number of the batch with which the power fails: see `stop_after`.
    power_cut_at: Option<u64>,
    pub sync_mode: SyncMode,
    /// Whether the disk refuses writes that grow: always, or with a random generator in three of
    /// four attempts.
    pub refuses: bool,
}

/// Batches which the disk may sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    #[default]
    Everything,
    Nothing,
    /// Syncs this many further batches, and then none.
    Batches(usize),
    /// Syncs batches for which a client waits at once; other batches with them or after a second.
    Urgent,
}

impl SimDisk {
    /// Commits a batch and returns its number. A batch is `urgent` if a client waits for its sync.
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

    /// Returns a copy of the disk with further changes, for readers that must see parked changes.
    pub(crate) fn with_changes(&self, changes: &[RecordChange]) -> SimDisk {
        let mut pairs = self.pairs.clone();
        apply(&mut pairs, changes);
        SimDisk { pairs, ..SimDisk::default() }
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns the number of batches that may be synced now, by `sync_mode`.
    pub fn unsynced(&self) -> usize {
        match self.sync_mode {
            SyncMode::Nothing => 0,
            SyncMode::Batches(batches) => self.pending.len().min(batches),
            SyncMode::Everything => self.pending.len(),
            SyncMode::Urgent => self.urgent_upto.saturating_sub(self.durable) as usize,
        }
    }

    /// Makes the oldest `batches` batches durable.
    pub fn sync(&mut self, batches: usize) {
        if let SyncMode::Batches(left) = &mut self.sync_mode {
            *left = left.saturating_sub(batches);
        }
        for changes in self.pending.drain(..batches) {
            apply(&mut self.synced, &changes);
            self.durable += 1;
        }
    }

    /// Schedules a power failure with the batch that is `batches` commits ahead.
    pub fn stop_after(&mut self, batches: usize) {
        self.power_cut_at = Some(self.accepted + batches as u64);
    }

    pub fn cancel_stop(&mut self) {
        self.power_cut_at = None;
    }

    pub fn is_stopped(&self) -> bool {
        self.power_cut_at.is_some_and(|last| self.accepted >= last)
    }

    /// Returns the number of batches that are not synced, which a power cut would lose.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Discards everything that is not synced, as a power cut does. `sync_mode` is set to sync
    /// nothing if it counted batches.
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

    /// Returns the keys of a space, to check that finished work leaves no records.
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
