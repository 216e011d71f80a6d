//! The engine's shelf in small: what the disk refuses waits here, and removals go past it.

use crate::disk::Disk;
use broker::{Change, Space};

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Refused by the disk, in order.
    parked: Vec<Change>,
    urgent: bool,
}

impl Shelf {
    pub(crate) fn is_full(&self) -> bool {
        !self.parked.is_empty()
    }

    pub(crate) fn parked(&self) -> &[Change] {
        &self.parked
    }

    pub(crate) fn has_parked(&self, space: Space, key: &[u8]) -> bool {
        self.parked.iter().any(|change| change.space == space && change.key == key)
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
            self.parked.extend(changes);
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
                let parked = std::mem::take(&mut self.parked);
                Some(disk.commit(parked, std::mem::take(&mut self.urgent)))
            }
        }
    }
}
