//! The types of the inputs and outputs of a shard: inputs and messages between shards, the outbox,
//! reads of the store, requests to authorization servers.

pub mod authz;
pub mod cache_message;
pub mod input;
pub mod outbox;
pub mod rule_event;
pub mod store_access;
