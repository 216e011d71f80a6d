//! The simulator's disk: it takes every batch at once, or refuses it, keeps it when it syncs, and a
//! power cut takes the rest.

use broker::{Change, Space, Stored, Unreadable};
use std::collections::{BTreeMap, VecDeque};

type Pairs = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What a reader sees.
    pairs: Pairs,
    /// What survives a power cut.
    kept: Pairs,
    /// Taken and not synced.
    pending: VecDeque<Vec<Change>>,
    taken: u64,
    durable: u64,
    /// Up to this batch it was asked to sync.
    wanted: u64,
    /// The power goes with this batch.
    last: Option<u64>,
    pub syncs: Syncs,
    /// It refuses what grows: always, or most of the time where there is chance.
    pub refuses: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncs {
    #[default]
    Everything,
    Nothing,
    /// So many batches more.
    Batches(usize),
    /// What somebody waits for; anything else with that, or in its own time.
    Wanted,
}

impl Disk {
    /// The number of what was taken last. Somebody waits for what is urgent.
    pub fn commit(&mut self, changes: Vec<Change>, urgent: bool) -> u64 {
        apply(&mut self.pairs, &changes);
        self.pending.push_back(changes);
        self.taken += 1;
        if urgent {
            self.wanted = self.taken;
        }
        self.taken
    }

    pub fn want_all(&mut self) {
        self.wanted = self.taken;
    }

    /// What it would be with these changes.
    pub(crate) fn with(&self, changes: &[Change]) -> Disk {
        let mut pairs = self.pairs.clone();
        apply(&mut pairs, changes);
        Disk { pairs, ..Disk::default() }
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// How many batches could be synced.
    pub fn unsynced(&self) -> usize {
        match self.syncs {
            Syncs::Nothing => 0,
            Syncs::Batches(batches) => self.pending.len().min(batches),
            Syncs::Everything => self.pending.len(),
            Syncs::Wanted => self.wanted.saturating_sub(self.durable) as usize,
        }
    }

    /// Keeps so many batches for good.
    pub fn sync(&mut self, batches: usize) {
        if let Syncs::Batches(left) = &mut self.syncs {
            *left = left.saturating_sub(batches);
        }
        for changes in self.pending.drain(..batches) {
            apply(&mut self.kept, &changes);
            self.durable += 1;
        }
    }

    /// The power goes with the so many-th batch from here.
    pub fn stop_after(&mut self, batches: usize) {
        self.last = Some(self.taken + batches as u64);
    }

    pub fn stop_never(&mut self) {
        self.last = None;
    }

    pub fn is_stopped(&self) -> bool {
        self.last.is_some_and(|last| self.taken >= last)
    }

    /// How many batches were taken and not synced.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What was not synced is gone.
    pub fn forget(&mut self) {
        self.last = None;
        if let Syncs::Batches(left) = &mut self.syncs {
            *left = 0;
        }
        self.pairs = self.kept.clone();
        self.taken -= self.pending.len() as u64;
        self.wanted = self.taken;
        self.pending.clear();
    }

    /// The keys of a space: of what is done nothing may stay.
    pub fn keys(&self, space: Space) -> impl Iterator<Item = &[u8]> {
        self.pairs.keys().filter(move |(of, _)| *of == space).map(|(_, key)| &key[..])
    }
}

fn apply(pairs: &mut Pairs, changes: &[Change]) {
    for change in changes {
        let key = (change.space, change.key.clone());
        match &change.value {
            Some(value) => pairs.insert(key, value.clone()),
            None => pairs.remove(&key),
        };
    }
}

impl Stored for Disk {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
        Ok(self.pairs.get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Unreadable> {
        let start = (space, from.max(prefix).to_vec());
        for ((of, key), value) in self.pairs.range(start..) {
            if *of != space || !key.starts_with(prefix) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
