//! Durability: the records for the store, the acknowledgements that wait for a commit, and the
//! restoration of a shard from the store.

pub(crate) mod cross_shard_log;
pub(crate) mod garbage_collector;
pub(crate) mod id_barrier;
pub(crate) mod pending_acks;
pub(crate) mod persistent_session;
pub(crate) mod records;
pub(crate) mod restore;
pub(crate) mod stored_queue;
pub(crate) mod time_of_day;
pub(crate) mod write_batch;
