//! Durability: the records for the store, the acknowledgements that wait for a commit, and the
//! restoration of a shard from the store.

pub(crate) mod garbage_collector;
pub(crate) mod id_barrier;
pub(crate) mod id_shifts;
pub(crate) mod pending_acks;
pub(crate) mod persistent_session;
pub(crate) mod records;
pub(crate) mod stored_body;
pub(crate) mod time_of_day;
pub(crate) mod write_batch;

use crate::ids::RecordNumber;
use garbage_collector::GarbageCollector;
use pending_acks::PendingAcks;

/// Acknowledgements that wait for a commit, and the state of the store as the engine reports it.
#[derive(Debug, Default)]
pub(crate) struct ShardDurability {
    pub(crate) pending_acks: PendingAcks,
    pub(crate) lasting_sessions: i64,
    /// Records of ended sessions that are still to be removed from the store, by
    /// `StoreReadRequest::Tombstone`.
    pub(crate) tombstones: Vec<RecordNumber>,
    pub(crate) garbage_collector: Option<Box<GarbageCollector>>,
    /// Whether the store refuses writes: see `set_store_full`.
    pub(crate) store_is_full: bool,
    /// Whether so many writes wait for the disk that connections with stored messages are held.
    pub(crate) store_is_backlogged: bool,
}
