//! The connections of a shard: their protocol state, CONNECT and the negotiation of options,
//! answers, and limits of clients.

pub mod admission;
pub(crate) mod auth_exchange;
pub(crate) mod authentication;
pub(crate) mod client_limits;
pub(crate) mod conn;
pub(crate) mod connect;
pub(crate) mod connection_table;
pub(crate) mod data_stream;
pub(crate) mod deferred_acks;
pub(crate) mod end_detail;
pub(crate) mod flapping;
pub(crate) mod negotiation;
pub mod pending_authz;
pub(crate) mod publish_answer;
pub(crate) mod read_rate;
pub(crate) mod rewrite;
pub(crate) mod rule_client;
pub(crate) mod stalls;
pub(crate) mod suback;
pub(crate) mod topic_resolution;
