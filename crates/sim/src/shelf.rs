//! The engine's shelf in small: what the disk refuses waits here, and removals go past it.

use crate::disk::Disk;
use broker::{Change, Space};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// What the disk has refused makes this of each key, ...
    parked: BTreeMap<(Space, Vec<u8>), Option<Vec<u8>>>,
    /// ... and is waited for.
    urgent: bool,
}

impl Shelf {
    pub(crate) fn is_full(&self) -> bool {
        !self.parked.is_empty()
    }

    pub(crate) fn parked(&self) -> Vec<Change> {
        let pairs = self.parked.clone().into_iter();
        pairs.map(|((space, key), value)| Change { space, key, value }).collect()
    }

    pub(crate) fn has_parked(&self, space: Space, key: &[u8]) -> bool {
        self.parked.contains_key(&(space, key.to_vec()))
    }

    /// The disk's number for what it took; 0 where there was nothing. None while something that it
    /// refuses is here.
    pub(crate) fn commit(
        &mut self,
        changes: Vec<Change>,
        urgent: bool,
        disk: &mut Disk,
        refuses: bool,
    ) -> Option<u64> {
        let grows = changes.iter().any(|change| change.value.is_some());
        let concerns = changes.iter().any(|change| self.has_parked(change.space, &change.key));
        if grows || concerns {
            let pairs =
                changes.into_iter().map(|Change { space, key, value }| ((space, key), value));
            self.parked.extend(pairs);
            self.urgent |= urgent;
        } else if !changes.is_empty() {
            let seq = disk.commit(changes, urgent);
            if !self.is_full() {
                return Some(seq);
            }
        }
        match (self.is_full(), refuses) {
            (false, _) => Some(0),
            (true, true) => None,
            (true, false) => {
                let parked = self.parked();
                self.parked.clear();
                Some(disk.commit(parked, std::mem::take(&mut self.urgent)))
            }
        }
    }
}
