//! Hostile input to the real process over real sockets: no input may use more memory than the
//! options allow, or increase the latency of a healthy client.

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

/// Seed of the random input: fixed, so that a failure can be reproduced.
const SEED: u64 = 0x9e37_79b9;
