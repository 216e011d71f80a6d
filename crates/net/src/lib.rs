//! Outgoing connections: URLs of servers, TLS, pools, and the runtime on which tasks wait for
//! answers. Authentication backends and links to other systems share this crate.
//!
//! The crate does not depend on the broker.

#![forbid(unsafe_code)]

pub mod base64;
#[cfg(feature = "postgres")]
mod client_driver;
#[cfg(feature = "runtime")]
mod connection_queue;
#[cfg(feature = "runtime")]
pub mod control_runtime;
#[cfg(feature = "runtime")]
pub mod endpoint;
#[cfg(all(test, any(feature = "http", feature = "postgres")))]
mod hostile_server;
#[cfg(feature = "http")]
pub mod http_client;
#[cfg(feature = "http")]
pub mod http_proxy;
#[cfg(feature = "runtime")]
pub mod pause_aware_timeout;
#[cfg(feature = "redis")]
pub mod redis;
pub mod scram;
#[cfg(feature = "runtime")]
pub mod server_pool;
pub mod server_url;
#[cfg(feature = "runtime")]
pub mod sql;
#[cfg(feature = "runtime")]
pub mod table_row;
pub mod timestamp;
pub mod tunnel;
pub mod unix_socket;

#[cfg(feature = "runtime")]
use std::sync::Arc;

/// Returns the TLS client configuration that trusts a PEM file of CAs, or the CAs of this host if
/// `authorities` is `None`.
#[cfg(feature = "runtime")]
pub fn tls_client_config(authorities: Option<String>) -> Result<Arc<rustls::ClientConfig>, String> {
    let options = transport::TlsClientOptions { authorities, ..Default::default() };
    options.client_config()
}
