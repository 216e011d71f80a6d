//! The protocol core of one shard: connections, sessions, subscriptions, retained messages and
//! timers of one CPU core, sans I/O. Every event enters by `Shard::handle(now, input, &mut outbox)`
//! and every consequence leaves by the [`Outbox`]. The crate has no socket, clock, thread or lock:
//! time and chance are arguments, so a test can run in virtual time and repeat a run from a seed.
//!
//! The modules are declared roughly in the order in which a PUBLISH meets them.
#![forbid(unsafe_code)]

pub mod authorization;
pub mod connection;
pub mod durability;
pub mod routing;
pub mod session;
pub mod statistics;

pub mod input;
pub mod limits;
pub mod options;

mod context;
mod memory;
mod shard;

pub mod caches;

pub mod rules;

mod slab;
mod timer;

pub mod outbox;

pub use connection::auth_exchange::AuthStep;
pub use connection::authentication::{AuthDecision, AuthRequest};
pub use connection::peer::{
    AlternativeName, ListenerId, PeerAddress, PeerCertificate, PeerInfo, PeerSource,
};
pub use connection::process_pause::ProcessPause;
pub use connection::refusal::Refusal;
pub use durability::restore::{RestoreError, RestoreStats, restore};
pub use durability::stored_queue::StoreReadRequest;
pub use durability::time_of_day::{ClockReading, stored_clock};
pub use durability::write_batch::{RecordChange, RecordSpace, StoreReadError, StoreReader};
pub use input::{ConnId, MonotonicMs, ShardCommand, ShardId, ShardInput, ShardMessage};
pub use memory::ProcessMemory;
pub use options::BrokerOptions;
pub use outbox::{Effect, Outbox};
pub use routing::bridge_path::{BRIDGE_PATH, hop_name};
pub use routing::interest::Interest;
pub use routing::message::Message;
pub use shard::Shard;
pub use statistics::broker_event::{BrokerEvent, WithheldKind};
pub use statistics::log_rate_limiter::LogRateLimiter;
