//! The connection: CONNECT and the negotiation of options, the dispatch of packets, the limits of a
//! client, and the reasons for which a connection ends.

pub mod admission;
pub(crate) mod alias;
pub(crate) mod auth_exchange;
pub mod authentication;
pub(crate) mod conn;
pub(crate) mod connect;
pub(crate) mod connection_table;
pub(crate) mod data_stream;
pub(crate) mod end_detail;
pub(crate) mod flapping;
pub(crate) mod leaky_bucket;
pub(crate) mod negotiation;
pub(crate) mod peer;
pub(crate) mod process_pause;
pub(crate) mod rate_meter;
pub(crate) mod reason_string;
pub(crate) mod receipt;
pub mod refusal;
pub(crate) mod send_gate;
pub(crate) mod stalls;
