//! The store as the broker sees it: spaces of records, changes and reads.

use crate::ids::{RecordNumber, SessionId};

/// A read of the store, requested by `Effect::ReadStore`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReadRequest {
    Queue {
        session: SessionId,
        generation: u32,
    },
    /// The queue of a shared group, by index and record number.
    Group {
        group: u32,
        number: u64,
    },
    /// The queue of an ended session or group, to be removed by `collect_tombstone`.
    Tombstone {
        number: u64,
    },
    /// The next piece of a `GarbageCollector` scan.
    GarbageScan,
}

/// The store's key spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordSpace {
    Messages,
    Queues,
    Retained,
    Sessions,
}

/// The new value of a key; `None` removes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordChange {
    pub space: RecordSpace,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Read access of a shard to the store, for the time of one `ShardInput::StoreReady` or of
/// `restore`.
pub trait StoreReader: std::fmt::Debug {
    fn get(&self, space: RecordSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError>;

    /// Visits the keys with the given prefix from `from` on, in order, until `visit` returns
    /// `false`.
    fn scan(
        &self,
        space: RecordSpace,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreReadError>;
}

/// The store could not be read. The owner of the store has reported the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreReadError;

pub(crate) fn queue_key(number: RecordNumber, position: u64) -> Vec<u8> {
    let mut key = number_key(number);
    key.extend_from_slice(&position.to_be_bytes());
    key
}

/// Reason for which a restore failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The store has a format that this version cannot read.
    OtherFormat,
    Unreadable,
}

impl From<StoreReadError> for RestoreError {
    fn from(_: StoreReadError) -> RestoreError {
        RestoreError::Unreadable
    }
}

pub(crate) fn number_key(number: RecordNumber) -> Vec<u8> {
    number.0.to_be_bytes().to_vec()
}
