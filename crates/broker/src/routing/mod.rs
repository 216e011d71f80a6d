//! Routing: from a published topic to the sessions, groups, shards and retained messages which the
//! message is for.

pub(crate) mod bridge_path;
pub(crate) mod cross_shard;
pub(crate) mod delayed;
pub(crate) mod exclusive;
pub(crate) mod interest;
pub(crate) mod persistent;
pub(crate) mod publish;
pub(crate) mod retained;
pub(crate) mod retained_feed;
pub(crate) mod session_report;
pub(crate) mod shared;
pub(crate) mod stored_queue;
pub(crate) mod subscribe;
pub(crate) mod topics;

use crate::ids::{FilterId, MonotonicMs, RetainStamp};
use crate::session::deliver::Delivery;
use delayed::DelayedMessages;
use exclusive::ExclusiveFilters;
use interest::{Interest, ShardInterest};
use retained::Retained;
use shared::SharedGroups;
use std::sync::Arc;
use topics::FilterIndex;

/// Filters, shared groups, retained and delayed messages of a shard.
#[derive(Debug)]
pub(crate) struct ShardRouting {
    pub(crate) topics: FilterIndex,
    pub(crate) groups: SharedGroups,
    pub(crate) retained: Retained,
    pub(crate) interest: Arc<Interest>,
    pub(crate) shard_interest: ShardInterest,
    pub(crate) exclusives: ExclusiveFilters,
    pub(crate) delayed: DelayedMessages,
    /// The highest stamp given or received. Later retained messages of this shard get a higher one.
    pub(crate) retain_stamp: RetainStamp,
    pub(crate) scratch: ScratchBuffers,
    pub(crate) sweep_at: Option<MonotonicMs>,
}

/// Buffers which stay allocated from publish to publish.
#[derive(Debug, Default)]
pub(crate) struct ScratchBuffers {
    pub(in crate::routing) filters: Vec<FilterId>,
    pub(in crate::routing) hits: Vec<(Delivery, u32)>,
    pub(in crate::routing) levels: Vec<u64>,
    pub(crate) properties: Vec<u8>,
    /// The full topic of a message from a client in a namespace.
    pub(crate) name: String,
}

impl ShardRouting {
    pub(crate) fn new(seed: u64, interest: Arc<Interest>) -> ShardRouting {
        ShardRouting {
            topics: FilterIndex::new(seed),
            groups: SharedGroups::new(seed),
            retained: Retained::new(),
            interest,
            shard_interest: ShardInterest::default(),
            exclusives: ExclusiveFilters::default(),
            delayed: DelayedMessages::default(),
            retain_stamp: RetainStamp::default(),
            scratch: ScratchBuffers::default(),
            sweep_at: None,
        }
    }
}
