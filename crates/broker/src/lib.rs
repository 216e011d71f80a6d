//! The brain of one shard: connections, sessions, subscriptions, retained messages and timers of
//! one core, sans I/O. Whatever happens enters by `Shard::handle(now, input, &mut outbox)`, and
//! whatever follows leaves by the outbox. No socket, no clock, no thread, no lock: time and chance
//! are arguments, so every behaviour can be tested in virtual time and repeated from a seed.
//!
//! The groups of modules stand about in the order in which a PUBLISH meets them.
#![forbid(unsafe_code)]

pub mod input;
pub mod limits;
pub mod options;

mod memory;
mod shard;

pub mod admission;
mod auth_exchange;
pub mod authentication;
pub mod authz;
mod authz_cache;
pub mod auto_subscription;
pub mod bans;
mod bridge_path;
pub mod caches;
pub mod client_groups;
mod conn;
mod connect;
mod data_stream;
mod flapping;
mod negotiation;
mod queue_age;
mod rate_meter;
mod reauthorization;
mod session_end;

pub mod acl_rules;
mod client_permissions;
mod delayed;
mod message;
pub mod namespace;
pub mod placeholders;
pub mod preset;
mod publish;
pub mod rewrite;
mod topic_resolution;

mod interest;
mod packet_ids;
mod retained;
mod shared;
mod topics;

mod acl_cache;
mod alias;
mod delivery;
mod encoded_publish;
mod end_detail;
mod exclusive;
mod flight;
mod garbage_collector;
mod id_barrier;
mod id_shifts;
mod leaky_bucket;
mod overdue_slots;
mod owner_shard;
mod pending_acks;
mod persistent_session;
mod process_pause;
mod queue_drain;
mod reason_string;
mod receipt;
mod records;
mod restore;
mod retained_feed;
pub mod rules;
mod send_gate;
mod sent_slots;
mod session;
mod write_batch;

mod cross_shard_log;
pub mod session_report;
mod slab;
mod stalls;
mod stored_queue;
mod subscribe;
mod subscriptions;
pub mod sys;
mod time_of_day;
mod timer;
mod trace;
mod will;

pub mod broker_event;
pub mod outbox;
mod peer;
pub mod refusal;

pub use auth_exchange::AuthStep;
pub use authentication::{AuthDecision, AuthRequest};
pub use bridge_path::{BRIDGE_PATH, hop_name};
pub use broker_event::{BrokerEvent, LogBurstLimiter, WithheldKind};
pub use input::{ConnId, MonotonicMs, ShardCommand, ShardId, ShardInput, ShardMessage};
pub use interest::Interest;
pub use memory::ProcessMemory;
pub use message::Message;
pub use options::BrokerOptions;
pub use outbox::{Effect, Outbox};
pub use peer::{AlternativeName, ListenerId, PeerAddress, PeerCertificate, PeerInfo, PeerSource};
pub use process_pause::ProcessPause;
pub use refusal::Refusal;
pub use restore::{RestoreError, RestoreStats, restore};
pub use shard::Shard;
pub use stored_queue::StoreReadRequest;
pub use time_of_day::{ClockReading, stored_clock};
pub use write_batch::{RecordChange, RecordSpace, StoreReadError, StoreReader};
