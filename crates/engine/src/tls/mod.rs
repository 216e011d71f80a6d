//! TLS as a layer between a socket and MQTT: rustls implements the protocol, and buffers of the
//! shard hold the bytes. A silent connection keeps no memory but the state of rustls.

mod certificate_names;
mod certificate_resolver;
mod client_hello;
mod client_verifier;
mod files;
#[cfg(feature = "psk")]
pub mod psk;

use client_hello::{HelloPreview, preview_hello};

pub use files::{ClientCertificateMode, TlsCredentials, TlsFiles, TlsVersionMin};

use broker::PeerCertificate;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use std::fmt;
use std::sync::Arc;
use transport::tls_errors::describe_client_error;

/// Measured memory of rustls for a connection in bytes: see docs/benchmarks.md, TLS.
const STATE_BYTES: u32 = 4 * 1024;
/// Measured memory of a handshake in bytes: keys and certificates of both sides.
pub(crate) const HANDSHAKE_BYTES: usize = 12 * 1024;

pub(crate) enum TlsLayer {
    /// The peer has not sent a byte yet, so no connection state exists.
    Silent(Arc<ServerConfig>),
    Talking(Box<UnbufferedServerConnection>),
    #[cfg(feature = "psk")]
    Psk(psk::PskLayer),
}

impl fmt::Debug for TlsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_silent() { "Silent" } else { "Talking" })
    }
}

/// Progress of [`TlsLayer::decode`] through received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerProgress {
    /// Number of bytes consumed at the front.
    consumed: usize,
    /// The peer sent close_notify.
    ended: bool,
}

impl LayerProgress {
    /// Progress through bytes of a connection without TLS, which are all payload.
    pub(crate) fn through_plain(consumed: usize) -> LayerProgress {
        LayerProgress { consumed, ended: false }
    }

    pub(crate) fn consumed(self) -> usize {
        self.consumed
    }

    pub(crate) fn has_ended(self) -> bool {
        self.ended
    }
}

/// Why TLS cannot go on; the text goes to the log.
#[derive(Debug)]
pub(crate) enum TlsError {
    #[cfg(feature = "psk")]
    Psk(psk::PskError),
    Rustls(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "psk")]
            TlsError::Psk(wrong) => write!(f, "TLS: {wrong}"),
            TlsError::Rustls(error) => {
                write!(f, "TLS: {}{}", describe_client_error(error), option_hint(error))
            }
        }
    }
}

/// Returns a hint with the option responsible, or an empty text.
fn option_hint(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::NoCertificatesPresented => " (tls.client_certificate)",
        rustls::Error::InvalidCertificate(_) => " (tls.client_ca, tls.crl)",
        rustls::Error::PeerIncompatible(_) => " (tls.version_min, tls.certificate)",
        rustls::Error::InvalidMessage(_) => ": is it TLS? (plain MQTT belongs to tcp://)",
        _ => "",
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        TlsError::Rustls(error)
    }
}

#[cfg(feature = "psk")]
impl From<psk::PskError> for TlsError {
    fn from(wrong: psk::PskError) -> TlsError {
        TlsError::Psk(wrong)
    }
}

/// Encoded bytes for the socket, shared by all connections of a shard: the buffer keeps its size up
/// to `SEALED_BYTES_KEPT`.
#[derive(Debug, Default)]
pub(crate) struct SealedBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl SealedBuffer {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        if self.bytes.len() > SEALED_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends bytes unchanged.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), rustls::Error> {
        self.fill(|room| {
            let room = room.get_mut(..bytes.len()).ok_or(SealError::NeedsRoom(bytes.len()))?;
            room.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }

    /// Appends the output of `write`, which may ask for more room by [`SealError::NeedsRoom`].
    fn fill(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, SealError>,
    ) -> Result<(), rustls::Error> {
        loop {
            match write(&mut self.bytes[self.len..]) {
                Ok(written) => {
                    self.len += written;
                    return Ok(());
                }
                Err(SealError::NeedsRoom(room)) => self.bytes.resize(self.len + room, 0),
                Err(SealError::Exhausted) => return Err(rustls::Error::EncryptError),
            }
        }
    }
}

/// Why [`SealedBuffer::fill`] has no output from its writer.
enum SealError {
    /// The buffer needs at least this many bytes of room.
    NeedsRoom(usize),
    /// The keys have reached their encryption limit.
    Exhausted,
}

impl From<EncodeError> for SealError {
    fn from(error: EncodeError) -> SealError {
        match error {
            EncodeError::InsufficientSize(short) => SealError::NeedsRoom(short.required_size),
            EncodeError::AlreadyEncoded => SealError::Exhausted,
        }
    }
}

impl From<EncryptError> for SealError {
    fn from(error: EncryptError) -> SealError {
        match error {
            EncryptError::InsufficientSize(short) => SealError::NeedsRoom(short.required_size),
            EncryptError::EncryptExhausted => SealError::Exhausted,
        }
    }
}

impl TlsLayer {
    /// Decodes the whole records at the front of `raw`: payload goes to `plain`, answers of the
    /// protocol to `sealed`. After an error `sealed` has the alert for the peer.
    pub(crate) fn decode(
        &mut self,
        raw: &mut [u8],
        plain: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> Result<LayerProgress, TlsError> {
        #[cfg(feature = "psk")]
        if let TlsLayer::Psk(keyed) = self {
            return keyed.decode(raw, plain, sealed);
        }
        if let TlsLayer::Silent(config) = self {
            match preview_hello(raw) {
                HelloPreview::Incomplete => return Ok(LayerProgress::default()),
                HelloPreview::Fragment(None) => {}
                // Few devices ask for short records, so each has a configuration of its own.
                HelloPreview::Fragment(limit) => {
                    Arc::make_mut(config).max_fragment_size = limit;
                }
            }
        }
        let conn = self.start_connection()?;
        let mut taken = LayerProgress::default();
        loop {
            let UnbufferedStatus { discard, state } =
                conn.process_tls_records(&mut raw[taken.consumed..]);
            match apply_state(state, plain, sealed) {
                Ok(RecordStep::Continue) => taken.consumed += discard,
                Ok(RecordStep::Ended) => {
                    taken.consumed += discard;
                    taken.ended = true;
                }
                Ok(RecordStep::Done) => {
                    taken.consumed += discard;
                    return Ok(taken);
                }
                Err(error) => {
                    take_alert(conn, &mut raw[taken.consumed + discard..], sealed);
                    return Err(error.into());
                }
            }
        }
    }

    /// Encrypts `bytes` into `sealed`. `raw` is the received part of the peer's next record, and is
    /// kept.
    pub(crate) fn seal(
        &mut self,
        raw: &mut Vec<u8>,
        bytes: &[u8],
        sealed: &mut SealedBuffer,
    ) -> Result<(), rustls::Error> {
        #[cfg(feature = "psk")]
        if let TlsLayer::Psk(keyed) = self {
            return keyed.seal(bytes, sealed);
        }
        self.write_records(raw, sealed, |traffic, room| traffic.encrypt(bytes, room))
    }

    /// Appends a close_notify to `sealed`.
    pub(crate) fn close(&mut self, raw: &mut Vec<u8>, sealed: &mut SealedBuffer) {
        #[cfg(feature = "psk")]
        if let TlsLayer::Psk(keyed) = self {
            return keyed.close(sealed);
        }
        // A peer that never finished its handshake cannot receive a close_notify.
        let _ = self.write_records(raw, sealed, |traffic, room| traffic.queue_close_notify(room));
    }

    fn write_records(
        &mut self,
        raw: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
        mut what: impl FnMut(&mut TrafficWriter<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), rustls::Error> {
        let conn = self.start_connection()?;
        loop {
            let UnbufferedStatus { discard, state } = conn.process_tls_records(raw);
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    sealed.fill(|room| Ok(what(&mut traffic, room)?))?;
                    raw.drain(..discard);
                    return Ok(());
                }
                ConnectionState::EncodeTlsData(mut answer) => {
                    sealed.fill(|room| Ok(answer.encode(room)?))?;
                }
                ConnectionState::TransmitTlsData(sent) => sent.done(),
                ConnectionState::PeerClosed => {}
                _ => return Err(rustls::Error::HandshakeNotComplete),
            }
            raw.drain(..discard);
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        match self {
            TlsLayer::Silent(_) => true,
            TlsLayer::Talking(_) => false,
            #[cfg(feature = "psk")]
            TlsLayer::Psk(keyed) => keyed.is_silent(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        match self {
            TlsLayer::Silent(_) => false,
            TlsLayer::Talking(conn) => !conn.is_handshaking(),
            #[cfg(feature = "psk")]
            TlsLayer::Psk(keyed) => keyed.is_ready(),
        }
    }

    /// Returns the memory in bytes kept for the whole lifetime of the connection.
    pub(crate) fn state_bytes(&self) -> u32 {
        match self {
            TlsLayer::Silent(_) | TlsLayer::Talking(_) => STATE_BYTES,
            #[cfg(feature = "psk")]
            TlsLayer::Psk(_) => psk::STATE_BYTES,
        }
    }

    /// Returns the memory in bytes needed by the handshake in addition to
    /// [`TlsLayer::state_bytes`].
    pub(crate) fn handshake_bytes(&self) -> usize {
        match self {
            TlsLayer::Silent(_) => 0,
            TlsLayer::Talking(_) => HANDSHAKE_BYTES,
            #[cfg(feature = "psk")]
            TlsLayer::Psk(keyed) if keyed.is_silent() => 0,
            #[cfg(feature = "psk")]
            TlsLayer::Psk(_) => psk::HANDSHAKE_BYTES,
        }
    }

    /// Returns the parsed certificate of the peer, if the peer has shown a certificate. For
    /// pre-shared keys see `PskLayer::certificate`.
    pub(crate) fn certificate(&self) -> Option<Arc<PeerCertificate>> {
        #[cfg(feature = "psk")]
        if let TlsLayer::Psk(keyed) = self {
            return keyed.certificate();
        }
        let TlsLayer::Talking(conn) = self else { return None };
        peer_certificate(conn.peer_certificates()?)
    }

    fn start_connection(&mut self) -> Result<&mut UnbufferedServerConnection, rustls::Error> {
        if let TlsLayer::Silent(config) = self {
            let conn = UnbufferedServerConnection::new(config.clone())?;
            *self = TlsLayer::Talking(Box::new(conn));
        }
        match self {
            TlsLayer::Talking(conn) => Ok(conn),
            _ => Err(rustls::Error::HandshakeNotComplete),
        }
    }
}

/// Parses the first certificate of a chain; a certificate which cannot be parsed has no names.
pub(crate) fn peer_certificate(chain: &[CertificateDer<'_>]) -> Option<Arc<PeerCertificate>> {
    let own = chain.first()?;
    Some(Arc::new(certificate_names::parse_certificate(own).unwrap_or_default()))
}

type TrafficWriter<'c> = rustls::unbuffered::WriteTraffic<'c, ServerConnectionData>;

enum RecordStep {
    Continue,
    Ended,
    Done,
}

fn apply_state(
    state: Result<ConnectionState<'_, '_, ServerConnectionData>, rustls::Error>,
    plain: &mut Vec<u8>,
    sealed: &mut SealedBuffer,
) -> Result<RecordStep, rustls::Error> {
    match state? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                plain.extend_from_slice(record?.payload);
            }
        }
        ConnectionState::EncodeTlsData(mut answer) => {
            sealed.fill(|room| Ok(answer.encode(room)?))?;
        }
        ConnectionState::TransmitTlsData(sent) => sent.done(),
        ConnectionState::PeerClosed => return Ok(RecordStep::Ended),
        ConnectionState::BlockedHandshake
        | ConnectionState::WriteTraffic(_)
        | ConnectionState::Closed => return Ok(RecordStep::Done),
        // Early data is never offered.
        _ => return Err(rustls::Error::HandshakeNotComplete),
    }
    Ok(RecordStep::Continue)
}

/// Appends the alert left behind by an error. rustls hands out pending output before input is read;
/// reading after an error is a bug for rustls.
fn take_alert(conn: &mut UnbufferedServerConnection, raw: &mut [u8], sealed: &mut SealedBuffer) {
    while conn.wants_write() {
        let UnbufferedStatus { state, .. } = conn.process_tls_records(raw);
        let Ok(ConnectionState::EncodeTlsData(mut alert)) = state else { return };
        if sealed.fill(|room| Ok(alert.encode(room)?)).is_err() {
            return;
        }
    }
}

const SEALED_BYTES_KEPT: usize = 256 * 1024;
