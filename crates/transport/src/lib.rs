//! What carries a client's bytes to its broker: TCP, TLS, WebSocket and QUIC, and whom the client
//! trusts. Our own clients and the load tester go out by it, and the broker has its UDP sockets
//! of it.
//!
//! Nothing here blocks, and nothing here knows a packet of MQTT or anything of a broker.

#![forbid(unsafe_code)]

pub mod certificate_form;
mod connection_liveness;
pub mod pem_files;
mod quic_client;
mod scheme;
mod server_verifier;
mod tcp_transport;
mod tls_client;
pub mod tls_errors;
mod udp;
mod websocket;

pub use connection_liveness::ConnectionLiveness;
pub use quic_client::{QuicClientEndpoint, QuicClientOptions, QuicConnectionHandle};
pub use scheme::{TCP, UrlScheme};
pub use tcp_transport::{TcpTransport, TransportLayers};
pub use tls_client::TlsClientOptions;
pub use udp::{QuicUdpSocket, SLOT_BYTES, SLOTS, ecn_of};
pub use websocket::{WebSocketUpgrade, accept_key_of};
