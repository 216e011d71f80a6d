//! QUIC configuration of a listener: its TLS, and the bounds on what a peer may make the broker
//! hold.

use crate::tls::TlsCredentials;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    EndpointConfig, HashedConnectionIdGenerator, IdleTimeout, ServerConfig, TransportConfig, VarInt,
};
use ring::{hkdf, hmac};
use rustls::server::{ProducesTickets, ServerSessionMemoryCache};
use std::fmt;
use std::sync::Arc;

/// QUIC options of a listener, from the `quic.` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicOptions {
    /// Whether a returning client may send data before its handshake is done (0-RTT).
    pub early_data: bool,
    /// Silence in milliseconds after which a connection ends without a packet; 0 leaves the timeout
    /// to the keep-alive of MQTT.
    pub idle_timeout_ms: u32,
    /// Flow-control window of a connection in bytes, over all its streams; a stream has half of
    /// `window_bytes`.
    pub window_bytes: u32,
    /// Streams of a connection which may be open at once, the control stream included.
    pub streams_max: u32,
}

/// TLS credentials and [`QuicOptions`] of a listener, ready for handshakes. A connection keeps the
/// configuration of its start.
#[derive(Clone)]
pub struct QuicConfig {
    config: Arc<ServerConfig>,
    secret: [u8; 32],
}

impl QuicConfig {
    pub fn new(credentials: &TlsCredentials, manners: QuicOptions) -> Result<QuicConfig, String> {
        let mut tls = (*credentials.config()).clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        // A client has not yet proven its key when early data arrives, so there is no early data
        // with client certificates.
        if manners.early_data && !credentials.asks_clients() {
            // A third party could replay early data. Sessions stored here, and not in tickets at
            // the client, are valid only once [RFC 8446, 8.1].
            tls.max_early_data_size = u32::MAX;
            tls.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
            tls.ticketer = Arc::new(NoSessionTickets);
        }
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| error.to_string())?;
        let secret = credentials.secret();
        let seal = hkdf::Salt::new(hkdf::HKDF_SHA256, b"godwit quic token").extract(&secret);
        let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(seal));
        config
            .transport_config(Arc::new(transport_config(manners)))
            .max_incoming(super::endpoint::WAITING_MAX)
            .incoming_buffer_size(INCOMING_BYTES_MAX)
            .incoming_buffer_size_total(INCOMING_BYTES_MAX * 64);
        Ok(QuicConfig { config: Arc::new(config), secret })
    }

    pub(super) fn server_config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Returns the endpoint's keys for connection ids and stateless resets, derived from the
    /// private key of the listener. A restarted broker thus resets connections of the former
    /// process [RFC 9000, 10.3].
    pub(super) fn endpoint_config(&self) -> EndpointConfig {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let mut ids = [0; 8];
        ids.copy_from_slice(&hmac::sign(&key, b"connection ids").as_ref()[..8]);
        let ids = u64::from_le_bytes(ids);
        let resets = hmac::sign(&key, b"stateless resets");
        let resets = hmac::Key::new(hmac::HMAC_SHA256, resets.as_ref());
        let mut config = EndpointConfig::new(Arc::new(resets));
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
        config
    }
}

impl fmt::Debug for QuicConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct NoSessionTickets;

impl ProducesTickets for NoSessionTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

fn transport_config(manners: QuicOptions) -> TransportConfig {
    let window = VarInt::from_u32(manners.window_bytes);
    // A single unread stream must not take the whole window.
    let stream_window = VarInt::from_u32(manners.window_bytes / 2);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(manners.streams_max))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .receive_window(window)
        .stream_receive_window(stream_window)
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(match manners.idle_timeout_ms {
            0 => None,
            ms => Some(IdleTimeout::from(VarInt::from_u32(ms))),
        });
    transport
}

/// Number of sessions kept for clients resuming with early data.
const SESSIONS_MAX: usize = 4096;
/// ALPN name of MQTT over QUIC, as EMQX and NanoMQ use the protocol.
const ALPN: &[u8] = b"mqtt";
/// Bytes in flight on one connection at most: the counterpart of a TCP socket's send buffer.
const SEND_WINDOW_BYTES: u64 = 256 * 1024;
/// Bytes kept for a peer before its handshake is accepted; [`QuicConfig`] allows 64 times as many
/// for all.
const INCOMING_BYTES_MAX: u64 = 16 * 1024;
