//! What carries a client's bytes to its broker: TCP, TLS, WebSocket and QUIC, and whom the client
//! trusts. Our own clients and the load tester go out by it, and the broker has its UDP sockets
//! of it.
//!
//! Nothing here blocks, and nothing here knows a packet of MQTT or anything of a broker.

#![forbid(unsafe_code)]

pub mod certificate_form;
mod outlet;
pub mod pem_files;
mod scheme;
mod server_verifier;
pub mod tls_errors;
mod trust;
mod udp;
mod websocket;
mod wire;

pub use outlet::{Manner, Outlet, TrunkId};
pub use scheme::{Scheme, TCP};
pub use trust::Trust;
pub use udp::{SLOT_BYTES, SLOTS, Udp, ecn_of};
pub use websocket::{Upgrade, proof_of};
pub use wire::{Layers, Wire};
