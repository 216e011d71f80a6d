//! How a listener speaks QUIC: its TLS, and what a peer may have us hold.

use crate::tls::TlsCredentials;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    EndpointConfig, HashedConnectionIdGenerator, IdleTimeout, ServerConfig, TransportConfig, VarInt,
};
use ring::{hkdf, hmac};
use rustls::server::{ProducesTickets, ServerSessionMemoryCache};
use std::fmt;
use std::sync::Arc;

/// QUIC options of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicOptions {
    /// A client that comes back may say something before its handshake is done (0-RTT).
    pub early_data: bool,
    /// After so much silence a connection ends without a word; 0 leaves that to MQTT's keep-alive.
    pub idle_timeout_ms: u32,
    /// Flow-control window of a connection in bytes, over all its streams.
    pub window_bytes: u32,
    /// Streams of a connection that may be open at once, the control stream among them.
    pub streams_max: u32,
}

/// Both together, ready for handshakes. Connections keep the one that they began with.
#[derive(Clone)]
pub struct QuicConfig {
    pub(super) config: Arc<ServerConfig>,
    secret: [u8; 32],
}

impl QuicConfig {
    pub fn new(credentials: &TlsCredentials, manners: QuicOptions) -> Result<QuicConfig, String> {
        let mut tls = (*credentials.config).clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        // Who comes with a certificate has not shown its key when it speaks early.
        if manners.early_data && !credentials.asks_clients {
            // What is said early could be said again by whoever overheard it. A session that is
            // kept here, and not with the client, is good for once [RFC 8446, 8.1].
            tls.max_early_data_size = u32::MAX;
            tls.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
            tls.ticketer = Arc::new(NoSessionTickets);
        }
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| error.to_string())?;
        let secret = credentials.secret;
        let seal = hkdf::Salt::new(hkdf::HKDF_SHA256, b"godwit quic token").extract(&secret);
        let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(seal));
        config
            .transport_config(Arc::new(transport_config(manners)))
            .max_incoming(super::endpoint::WAITING_MAX)
            .incoming_buffer_size(INCOMING_BYTES_MAX)
            .incoming_buffer_size_total(INCOMING_BYTES_MAX * 64);
        Ok(QuicConfig { config: Arc::new(config), secret })
    }

    /// Connection ids, and the tokens by which a peer believes that we know nothing of one, come
    /// from the listener's private key. So a restarted broker tells the peers of the process before
    /// it that their connections are gone [RFC 9000, 10.3].
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
    // One stream that is not read must not take all of it.
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

/// Number of sessions kept for clients that may resume with early data.
const SESSIONS_MAX: usize = 4096;
/// ALPN name of MQTT over QUIC, as EMQX and NanoMQ use it.
const ALPN: &[u8] = b"mqtt";
/// Largest number of bytes in flight on one connection: the counterpart of a TCP socket's send
/// buffer.
const SEND_WINDOW_BYTES: u64 = 256 * 1024;
/// Bytes that are kept of a peer before its handshake is admitted.
const INCOMING_BYTES_MAX: u64 = 16 * 1024;
