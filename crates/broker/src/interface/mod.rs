//! The types of what goes into a shard and comes out: inputs and messages between shards, the
//! outbox, reads of the store, requests to authorization servers.

pub mod authz;
pub mod cache_message;
pub mod input;
pub mod outbox;
pub mod rule_event;
pub mod store_access;
