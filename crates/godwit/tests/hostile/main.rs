//! Hostile input over real sockets to the real process: nothing that anybody sends may take more
//! memory than the options allow, or a healthy client's latency.

mod broker;
mod bytes;
#[path = "../process/certs.rs"]
mod certs;
mod crowds;
mod doors;
mod floods;
mod handshakes;
mod peer;
#[cfg(feature = "psk")]
mod psk;
mod quic;
mod web;

/// Seed of what attackers draw: the same each time, so that what was found is found again.
const SEED: u64 = 0x9e37_79b9;
