//! Sorted set of packet ids. A client increments packet ids, so an insertion is at the end and a
//! removal is near the front: both are fast at any size of the set.

use crate::PacketId;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub struct PacketIds(VecDeque<PacketId>);

impl PacketIds {
    #[inline]
    pub fn contains(&self, id: PacketId) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// Inserts an id. Returns whether the id was absent before.
    pub fn insert(&mut self, id: PacketId) -> bool {
        let place = self.0.binary_search(&id);
        if let Err(place) = place {
            self.0.insert(place, id);
        }
        place.is_err()
    }

    /// Removes an id. Returns whether the id was present.
    pub fn remove(&mut self, id: PacketId) -> bool {
        let place = self.0.binary_search(&id);
        place.is_ok_and(|place| self.0.remove(place).is_some())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = PacketId> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn they_are_a_set_in_whatever_order_ids_come_and_go() {
        let (mut ids, mut naive) = (PacketIds::default(), BTreeSet::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for turn in 0..20_000_u32 {
            let draw = rng.u64(..);
            // Ids mostly count up, as clients do, past the maximum and on from 1.
            let counted = (turn + 60_000) as u16;
            let id = if draw.is_multiple_of(4) { (draw >> 32) as u16 % 64 } else { counted };
            let Some(id) = PacketId::new(id) else { continue };
            if draw.is_multiple_of(3) {
                assert_eq!(ids.remove(id), naive.remove(&id));
            } else {
                assert_eq!(ids.contains(id), naive.contains(&id));
                assert_eq!(ids.insert(id), naive.insert(id));
            }
            assert_eq!(ids.len(), naive.len());
        }
        assert!(ids.iter().eq(naive.iter().copied()));
    }
}
