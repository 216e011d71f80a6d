//! Sinks on the real program, with the real thing at their other end. `contract` is what all of
//! them stand, `places` are what they lead to, `own`, `hooks`, `files` and those that are called
//! after a place are what only some of them do.

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
