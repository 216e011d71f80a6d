//! What must outlive the process: ordered keys and values in named spaces, written a batch at a
//! time. Nothing here knows what a packet is; records and recovery stand above.
//!
//! A batch is all or nothing, and batches have an order: [`Seq`]. What was committed may be read
//! at once; it is kept for good once `durable` has reached its `Seq`. [`Memory`] keeps nothing,
//! [`Disk`] everything: docs/store-format.md draws its files.
#![forbid(unsafe_code)]

mod build;
mod crc;
mod disk;
mod fault;
mod files;
mod keeper;
mod manifest;
mod memory;
mod record;
mod recover;
mod table;
mod writer;

pub use build::Build;
pub use disk::{Disk, Event, Handle, Notify, Options};
pub use fault::{Damage, Fault};
pub use files::{File, Folder};
pub use memory::Memory;
pub use recover::{Report, check, check_in};

/// The place of a batch in the order of all batches; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

/// Keys of different spaces never meet. The numbers stand on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Space {
    Messages = 1,
    Queues = 2,
    Retained = 3,
    Sessions = 4,
}

/// One tick's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
    lazy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    space: Space,
    key: Vec<u8>,
    /// None removes the key.
    value: Option<Vec<u8>>,
}

/// What `scan` calls for each pair; false stops it.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

pub trait Store: Send {
    /// Takes the whole batch or, on a fault, nothing of it. Does not wait for a disk.
    fn commit(&mut self, batch: Batch) -> Result<Seq, Fault>;

    /// The last batch that survives whatever happens now.
    fn durable(&self) -> Seq;

    /// More waits for the disk than the options allow. Whoever sees this takes in nothing more that
    /// it would have to commit, until it sees this no longer; who goes on hears [`Fault::Full`].
    fn crowded(&self) -> bool;

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Fault>;

    /// Visits the keys that begin with `prefix` and are not below `from`, in order.
    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault>;
}

impl Batch {
    pub fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push(Change { space, key, value: Some(value) });
    }

    pub fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.changes.push(Change { space, key, value: None });
    }

    /// Nobody waits for this batch: it may reach the disk together with later ones.
    pub fn lazy(&mut self) {
        self.lazy = true;
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn is_lazy(&self) -> bool {
        self.lazy
    }

    /// Every key that it puts or removes, in order, with its value.
    pub fn changes(&self) -> impl Iterator<Item = (Space, &[u8], Option<&[u8]>)> {
        self.changes.iter().map(|change| (change.space, &change.key[..], change.value.as_deref()))
    }

    /// The same, to keep.
    pub fn into_changes(self) -> impl Iterator<Item = (Space, Vec<u8>, Option<Vec<u8>>)> {
        self.changes.into_iter().map(|change| (change.space, change.key, change.value))
    }

    /// Whether it puts anything: what only removes makes room.
    pub fn grows(&self) -> bool {
        self.changes.iter().any(|change| change.value.is_some())
    }

    /// Key and value bytes: what a quota counts.
    pub fn bytes(&self) -> usize {
        let value = |change: &Change| change.value.as_ref().map_or(0, Vec::len);
        self.changes.iter().map(|change| change.key.len() + value(change)).sum()
    }
}

impl Space {
    pub const ALL: [Space; 4] = [Space::Messages, Space::Queues, Space::Retained, Space::Sessions];

    /// A key with its space in front, as it stands in memory and in tables.
    fn key(self, key: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(key.len() + 1);
        whole.push(self as u8);
        whole.extend_from_slice(key);
        whole
    }

    fn of(number: u8) -> Option<Space> {
        Space::ALL.into_iter().find(|space| *space as u8 == number)
    }
}
