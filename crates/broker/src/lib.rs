//! The protocol core of one shard: connections, sessions, subscriptions, retained messages and
//! timers of one CPU core, sans I/O. Every event enters by `Shard::handle(now, input, &mut outbox)`
//! and every consequence leaves by the [`Outbox`]. The crate has no socket, clock, thread or lock:
//! time and chance are arguments, so a test can run in virtual time and repeat a run from a seed.
//!
//! The folders are declared in groups, the lowest first. The exact order, in which a folder uses
//! only those below it, is in `xtask/src/tidy/folder_edges.rs`.
#![forbid(unsafe_code)]

pub mod ids;
pub(crate) mod leaky_bucket;
pub mod limits;
pub mod log_rate_limiter;
mod memory;
pub(crate) mod owner_shard;
pub(crate) mod process_pause;
pub(crate) mod reason_string;
pub mod refusal;
mod slab;
pub mod special_topics;
mod timer;

pub mod access_rules;
pub mod broker_event;
mod context;
pub mod counters;
pub mod interface;
pub mod message;
pub mod options;
pub mod peer;
pub mod permissions;

pub mod authorization;
pub mod connection;
pub mod durability;
pub mod routing;
pub mod session;

pub mod caches;
pub mod rules;
pub mod statistics;

mod shard;

pub use crate::ids::{ConnId, ListenerId, MonotonicMs, ShardId};
pub use crate::interface::store_access::{
    RecordChange, RecordSpace, RestoreError, StoreReadError, StoreReadRequest, StoreReader,
};
pub use crate::peer::authentication::AuthStep;
pub use broker_event::{BrokerEvent, WithheldKind};
pub use durability::time_of_day::{ClockReading, stored_clock};
pub use interface::input::{ShardCommand, ShardInput, ShardMessage};
pub use interface::outbox::{Effect, Outbox};
pub use log_rate_limiter::LogRateLimiter;
pub use memory::ProcessMemory;
pub use message::Message;
pub use options::BrokerOptions;
pub use peer::authentication::{AuthDecision, AuthRequest};
pub use peer::{AlternativeName, PeerAddress, PeerCertificate, PeerInfo, PeerSource};
pub use process_pause::ProcessPause;
pub use refusal::Refusal;
pub use routing::bridge_path::{BRIDGE_PATH, hop_name};
pub use routing::interest::Interest;
pub use shard::Shard;
pub use shard::restore::{RestoreStats, restore};
