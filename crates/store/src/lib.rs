//! The persistent store: ordered keys and values in named spaces, written in batches. The crate
//! knows no MQTT: the records and their recovery are in the `broker` crate.
//!
//! A batch is atomic, and batches are ordered by [`BatchSeq`]. A committed batch is readable at
//! once, and survives a crash once [`KeyValueStore::durable`] has reached its `BatchSeq`.
//! [`MemoryStore`] keeps the data in memory only, [`DiskStore`] in files, whose format is specified
//! in docs/store-format.md.
#![forbid(unsafe_code)]

mod builder;
mod compactor;
mod crc;
mod disk;
mod fault;
mod files;
mod log_record;
mod log_writer;
mod manifest;
mod memory;
mod recovery;
mod table;

pub use builder::StoreBuilder;
pub use disk::{DiskStore, StoreEvent, StoreEventHandler, StoreHandle, StoreOptions};
pub use fault::{Fault, StoreDamage};
pub use files::{StoreFile, StoreFolder};
pub use memory::MemoryStore;
pub use recovery::{RecoveryReport, check, check_in};

/// The position of a batch in the order of all batches; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchSeq(pub u64);

/// A separate set of keys. The numbers are part of the format on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeySpace {
    Messages = 1,
    Queues = 2,
    Retained = 3,
    Sessions = 4,
}

/// The changes of one tick, which reach the disk together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreBatch {
    changes: Vec<BatchChange>,
    lazy: bool,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BatchChange {
    space: KeySpace,
    key: Vec<u8>,
    /// The new value, or `None` to remove the key.
    value: Option<Vec<u8>>,
}

/// Callback of a scan, called with key and value of each pair. Returning `false` stops the scan.
pub type PairVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// A store of ordered keys: [`MemoryStore`] or [`StoreHandle`].
pub trait KeyValueStore: Send {
    /// Commits the whole batch or, on a [`Fault`], no part of it. Does not wait for a disk.
    fn commit(&mut self, batch: StoreBatch) -> Result<BatchSeq, Fault>;

    /// Returns the last batch which survives a crash or a power cut now.
    fn durable(&self) -> BatchSeq;

    /// Whether more bytes wait for the disk than the options allow. A caller should stop accepting
    /// input which needs a commit until this is false; further commits may fail with
    /// [`Fault::Full`].
    fn is_backlogged(&self) -> bool;

    fn get(&self, space: KeySpace, key: &[u8]) -> Result<Option<Vec<u8>>, Fault>;

    /// Visits the keys that begin with `prefix` and are not below `from`, in order.
    fn scan(
        &self,
        space: KeySpace,
        prefix: &[u8],
        from: &[u8],
        visit: &mut PairVisitor<'_>,
    ) -> Result<(), Fault>;
}

impl StoreBatch {
    pub fn put(&mut self, space: KeySpace, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push(BatchChange { space, key, value: Some(value) });
    }

    pub fn remove(&mut self, space: KeySpace, key: Vec<u8>) {
        self.changes.push(BatchChange { space, key, value: None });
    }

    /// Marks the batch as lazy: no client waits for it, so its sync may be delayed, by up to
    /// [`StoreOptions::lazy`], and shared with later batches.
    pub fn set_lazy(&mut self) {
        self.lazy = true;
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn is_lazy(&self) -> bool {
        self.lazy
    }

    /// Returns all keys which the batch puts or removes, in order, with the values.
    pub fn changes(&self) -> impl Iterator<Item = (KeySpace, &[u8], Option<&[u8]>)> {
        self.changes.iter().map(|change| (change.space, &change.key[..], change.value.as_deref()))
    }

    /// Consumes the batch and returns its changes, as [`StoreBatch::changes`] does by reference.
    pub fn into_changes(self) -> impl Iterator<Item = (KeySpace, Vec<u8>, Option<Vec<u8>>)> {
        self.changes.into_iter().map(|change| (change.space, change.key, change.value))
    }

    /// Whether the batch puts a key. A batch of removals only makes room and is accepted when full.
    pub fn has_puts(&self) -> bool {
        self.changes.iter().any(|change| change.value.is_some())
    }

    /// Bytes of all keys and values, as a quota counts them.
    pub fn bytes(&self) -> usize {
        let value = |change: &BatchChange| change.value.as_ref().map_or(0, Vec::len);
        self.changes.iter().map(|change| change.key.len() + value(change)).sum()
    }
}

impl KeySpace {
    pub const ALL: [KeySpace; 4] =
        [KeySpace::Messages, KeySpace::Queues, KeySpace::Retained, KeySpace::Sessions];

    /// Returns the key with its space as the first byte, the form in memtables and tables.
    fn prefixed_key(self, key: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(key.len() + 1);
        whole.push(self as u8);
        whole.extend_from_slice(key);
        whole
    }

    fn from_number(number: u8) -> Option<KeySpace> {
        KeySpace::ALL.into_iter().find(|space| *space as u8 == number)
    }
}
