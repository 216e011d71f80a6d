//! A vector that reuses its free places. Owners live in a `Slab`; all references to them are
//! indexes.

use crate::limits::INDEX_MAX;

/// Owners in numbered places. An index stays valid until `remove`, and may then be given again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

/// A slab of at most this many places keeps them when empty. Without this minimum, a slab which
/// empties after every message would allocate for every message.
const PLACES_KEPT: usize = 64;

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(value);
            return index;
        }
        let index = self.places.len() as u32;
        assert!(index < INDEX_MAX, "an index has 31 bits, and the last two say something else");
        self.places.push(Some(value));
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.take();
        if value.is_some() {
            self.free.push(index);
            self.shrink();
        }
        value
    }

    /// Returns the memory of a burst: cuts off all free places once the slab is empty or holds only
    /// index 0 (the root of a tree). `remove` checks only these two cases because both cost
    /// constant time.
    fn shrink(&mut self) {
        let first = usize::from(self.places.first().is_some_and(Option::is_some));
        if self.len() == first && self.places.len() > PLACES_KEPT {
            self.free = Vec::new();
            self.places.truncate(first);
            self.places.shrink_to_fit();
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// Exclusive upper bound of the indexes in use.
    pub(crate) fn index_bound(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(at, place)| Some((at as u32, place.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.places[index as usize].as_ref().expect("an index is dropped before its place is freed")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.places[index as usize].as_mut().expect("an index is dropped before its place is freed")
    }
}
