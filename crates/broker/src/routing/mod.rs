//! Routing: from a published topic to the sessions, groups, shards and retained messages which the
//! message is for.

pub(crate) mod bridge_path;
pub(crate) mod delayed;
pub(crate) mod exclusive;
pub(crate) mod interest;
pub(crate) mod message;
pub mod namespace;
pub(crate) mod owner_shard;
pub(crate) mod publish;
pub(crate) mod retained;
pub mod rewrite;
pub(crate) mod shared;
pub(crate) mod topic_resolution;
pub(crate) mod topics;
