//! A small version of the engine's store client: writes which the disk refuses wait here, and later
//! removals overtake them.

use crate::disk::SimDisk;
use broker::{RecordChange, RecordSpace};
use std::collections::BTreeMap;

/// Changes which the disk refused. Later changes of the same keys wait behind them.
#[derive(Debug, Default)]
pub(crate) struct SimStoreClient {
    /// Changes that the disk has refused, by key.
    parked: BTreeMap<(RecordSpace, Vec<u8>), Option<Vec<u8>>>,
    /// Whether a client waits for a refused change.
    urgent: bool,
}

impl SimStoreClient {
    pub(crate) fn has_refused(&self) -> bool {
        !self.parked.is_empty()
    }

    pub(crate) fn parked_changes(&self) -> Vec<RecordChange> {
        let pairs = self.parked.clone().into_iter();
        pairs.map(|((space, key), value)| RecordChange { space, key, value }).collect()
    }

    pub(crate) fn is_parked(&self, space: RecordSpace, key: &[u8]) -> bool {
        self.parked.contains_key(&(space, key.to_vec()))
    }

    /// Commits changes. Returns the disk's batch number, 0 if there were no changes, or `None`
    /// while changes are refused.
    pub(crate) fn commit(
        &mut self,
        changes: Vec<RecordChange>,
        urgent: bool,
        disk: &mut SimDisk,
        refuses: bool,
    ) -> Option<u64> {
        let grows = changes.iter().any(|change| change.value.is_some());
        let concerns = changes.iter().any(|change| self.is_parked(change.space, &change.key));
        if grows || concerns {
            let pairs =
                changes.into_iter().map(|RecordChange { space, key, value }| ((space, key), value));
            self.parked.extend(pairs);
            self.urgent |= urgent;
        } else if !changes.is_empty() {
            let seq = disk.commit(changes, urgent);
            if !self.has_refused() {
                return Some(seq);
            }
        }
        match (self.has_refused(), refuses) {
            (false, _) => Some(0),
            (true, true) => None,
            (true, false) => {
                let parked = self.parked_changes();
                self.parked.clear();
                Some(disk.commit(parked, std::mem::take(&mut self.urgent)))
            }
        }
    }
}
