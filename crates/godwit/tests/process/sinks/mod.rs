//! Sinks with the real program and real destinations. `contract` has the tests for every sink,
//! `places` the destinations; the other modules test properties of single sinks.

mod contract;
mod files;
mod hooks;
mod influx;
mod kafka;
mod log;
mod nats;
mod own;
mod places;
mod proxies;
mod relay;
mod sql_tls;
mod streams;
#[allow(
    clippy::duplicate_mod,
    clippy::unwrap_used,
    dead_code,
    reason = "a helper of other tests, which use the rest"
)]
#[path = "../../../../auth/src/contract/tls.rs"]
mod tls;
