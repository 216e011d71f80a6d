//! Transports between an MQTT client and a broker: TCP, TLS, WebSocket and QUIC, and the
//! verification of servers. The client commands, bridges and the load tester use the client side;
//! the broker uses [`QuicUdpSocket`].
//!
//! Functions do not block, and this crate does not depend on MQTT packets or on the broker.

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
pub use websocket::{WebSocketUpgrade, accept_key_of, http_head_end};
