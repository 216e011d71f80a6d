//! TLS with pre-shared keys (RFC 4279, RFC 5489) in place of certificates. rustls has no such
//! suites, so OpenSSL implements the protocol. OpenSSL reads and writes memory, whole records at a
//! time: a silent connection keeps no memory but the state of OpenSSL.

#[cfg(test)]
mod tests;

use super::{LayerProgress, SealedBuffer, TlsError};
use broker::PeerCertificate;
use openssl::error::ErrorStack;
use openssl::ssl::{self, ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode};
use openssl::ssl::{SslOptions, SslSessionCacheMode, SslStream, SslVersion};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Longest identity in bytes, the minimum which RFC 4279, 5.3 requires of every implementation;
/// [`KEY_BYTES_MAX`] bounds the key.
pub const IDENTITY_BYTES_MAX: usize = 128;
pub const KEY_BYTES_MAX: usize = 256;

/// Measured memory of OpenSSL for a connection in bytes: see docs/benchmarks.md, TLS.
pub(super) const STATE_BYTES: u32 = 14 * 1024;
/// Measured memory of a handshake in bytes.
pub(super) const HANDSHAKE_BYTES: usize = 44 * 1024;

/// The keys of a listener by identity. A connection keeps the keys of its start.
#[derive(Clone)]
pub struct PskKeys {
    by_identity: Arc<HashMap<Box<str>, Box<[u8]>>>,
    context: SslContext,
}

impl fmt::Debug for PskKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("identities", &self.by_identity.len()).finish_non_exhaustive()
    }
}

impl PskKeys {
    /// Creates the keys and their OpenSSL context. An error is the text of OpenSSL.
    pub fn new(by_identity: HashMap<Box<str>, Box<[u8]>>) -> Result<PskKeys, String> {
        let by_identity = Arc::new(by_identity);
        let context = build_ssl(&by_identity).map_err(|errors| errors.to_string())?;
        Ok(PskKeys { by_identity, context })
    }
}

/// Builds the OpenSSL context shared by all clients.
fn build_ssl(keys: &Arc<HashMap<Box<str>, Box<[u8]>>>) -> Result<SslContext, ErrorStack> {
    let mut context = SslContextBuilder::new(SslMethod::tls_server())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    // TLS 1.3 permits a second ClientHello, whose announced length would not be bounded here.
    context.set_max_proto_version(Some(SslVersion::TLS1_2))?;
    // Without tickets and a session cache no client can resume with a key that was removed.
    context.set_options(
        SslOptions::NO_TICKET
            | SslOptions::NO_COMPRESSION
            | SslOptions::NO_RENEGOTIATION
            | SslOptions::CIPHER_SERVER_PREFERENCE,
    );
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_mode(SslMode::RELEASE_BUFFERS);
    context.set_cipher_list(SUITES)?;
    context.set_groups_list(GROUPS)?;
    // An unknown identity gets a random key, so the handshake fails as with a wrong key: a peer
    // does not learn which identities exist (RFC 4279, 2).
    let mut nobodys = [0; 32];
    openssl::rand::rand_bytes(&mut nobodys)?;
    let keys = keys.clone();
    context.set_psk_server_callback(move |_, identity, room| {
        let identity = identity.and_then(|identity| std::str::from_utf8(identity).ok());
        let key = identity.and_then(|identity| keys.get(identity));
        let key = key.map_or(&nobodys[..], |key| key);
        let Some(room) = room.get_mut(..key.len()) else { return Ok(0) };
        room.copy_from_slice(key);
        Ok(key.len())
    });
    Ok(context.build())
}

/// Why a handshake or a record failed.
#[derive(Debug)]
pub(crate) enum PskError {
    /// The keys differ, or a third party changed the handshake.
    Key(Box<str>),
    NoHello,
    OpenSsl(&'static str),
    UnknownIdentity(Box<str>),
}

impl fmt::Display for PskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PskError::Key(identity) => write!(f, "the key is not that of identity {identity:?}"),
            PskError::NoHello => f.write_str("it began with something else than a ClientHello"),
            PskError::OpenSsl(reason) => f.write_str(reason),
            PskError::UnknownIdentity(identity) => write!(f, "nobody has identity {identity:?}"),
        }
    }
}

/// TLS of a connection by pre-shared keys, as a variant of `TlsLayer`.
pub(crate) enum PskLayer {
    /// The peer has not sent a byte yet, so no connection state exists.
    Silent(PskKeys),
    Talking(Box<PskConnection>),
}

pub(crate) struct PskConnection {
    keys: PskKeys,
    stream: SslStream<RecordBuffers>,
}

/// The socket of OpenSSL: buffers for the records of one call.
#[derive(Default)]
struct RecordBuffers {
    incoming: Vec<u8>,
    read: usize,
    outgoing: Vec<u8>,
}

impl Read for RecordBuffers {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let there = &self.incoming[self.read..];
        if there.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        self.read += len;
        Ok(len)
    }
}

impl Write for RecordBuffers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PskLayer {
    /// Decodes the complete records at the front of `raw`, like `TlsLayer::decode`: payload goes to
    /// `plain`, responses of the protocol to `sealed`.
    pub(super) fn decode(
        &mut self,
        raw: &[u8],
        plain: &mut Vec<u8>,
        sealed: &mut SealedBuffer,
    ) -> Result<LayerProgress, TlsError> {
        let consumed = whole_records(raw);
        if consumed == 0 {
            return Ok(LayerProgress::default());
        }
        if self.is_silent() && !is_client_hello(&raw[..consumed]) {
            sealed.push(&UNEXPECTED_MESSAGE)?;
            return Err(PskError::NoHello.into());
        }
        let was_ready = self.is_ready();
        let connection = self.start_connection()?;
        *connection.stream.get_mut() =
            RecordBuffers { incoming: raw[..consumed].to_vec(), ..RecordBuffers::default() };
        let ended = connection.advance(plain, consumed);
        let wire = std::mem::take(connection.stream.get_mut());
        // After an error the output is the alert with the reason.
        sealed.push(&wire.outgoing)?;
        let ended = ended.map_err(|error| connection.explain(&error, was_ready))?;
        Ok(LayerProgress { consumed, ended })
    }

    pub(super) fn seal(
        &mut self,
        bytes: &[u8],
        sealed: &mut SealedBuffer,
    ) -> Result<(), rustls::Error> {
        let PskLayer::Talking(connection) = self else {
            return Err(rustls::Error::HandshakeNotComplete);
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = connection.stream.ssl_write(rest);
            rest = &rest[written.map_err(|_| rustls::Error::EncryptError)?..];
        }
        sealed.push(&std::mem::take(connection.stream.get_mut()).outgoing)
    }

    pub(super) fn close(&mut self, sealed: &mut SealedBuffer) {
        let PskLayer::Talking(connection) = self else { return };
        // A peer that never finished its handshake cannot receive a close_notify.
        let _ = connection.stream.shutdown();
        let _ = sealed.push(&std::mem::take(connection.stream.get_mut()).outgoing);
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self, PskLayer::Silent(_))
    }

    pub(super) fn is_ready(&self) -> bool {
        match self {
            PskLayer::Silent(_) => false,
            PskLayer::Talking(connection) => connection.stream.ssl().is_init_finished(),
        }
    }

    /// Returns the identity of the peer's key as the common name of a certificate: the only name
    /// verified by the transport.
    pub(super) fn certificate(&self) -> Option<Arc<PeerCertificate>> {
        let PskLayer::Talking(connection) = self else { return None };
        let identity = std::str::from_utf8(connection.stream.ssl().psk_identity()?).ok()?;
        Some(Arc::new(PeerCertificate {
            common_name: Some(identity.into()),
            ..PeerCertificate::default()
        }))
    }

    fn start_connection(&mut self) -> Result<&mut PskConnection, TlsError> {
        if let PskLayer::Silent(keys) = self {
            let made = Ssl::new(&keys.context)
                .and_then(|ssl| SslStream::new(ssl, RecordBuffers::default()));
            let stream = made.map_err(|errors| PskError::OpenSsl(openssl_reason(&errors)))?;
            *self = PskLayer::Talking(Box::new(PskConnection { keys: keys.clone(), stream }));
        }
        match self {
            PskLayer::Talking(connection) => Ok(connection),
            PskLayer::Silent(_) => Err(rustls::Error::HandshakeNotComplete.into()),
        }
    }
}

impl PskConnection {
    /// Continues the handshake, or reads records into `plain`. Returns whether the peer sent
    /// close_notify.
    fn advance(&mut self, plain: &mut Vec<u8>, sealed_len: usize) -> Result<bool, ssl::Error> {
        if !self.stream.ssl().is_init_finished() {
            match self.stream.accept() {
                Err(error) if error.code() == ErrorCode::WANT_READ => return Ok(false),
                accepted => accepted?,
            }
        }
        let mut at = plain.len();
        // The payload of a record is shorter than the record.
        plain.resize(at + sealed_len, 0);
        let ended = loop {
            match self.stream.ssl_read(&mut plain[at..]) {
                Ok(read) => at += read,
                Err(error) if error.code() == ErrorCode::WANT_READ => break Ok(false),
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => break Ok(true),
                Err(error) => break Err(error),
            }
        };
        plain.truncate(at);
        ended
    }

    /// Returns an error for the log, which may tell whether the identity exists; the peer must not
    /// learn this.
    fn explain(&self, error: &ssl::Error, was_ready: bool) -> PskError {
        let asked = self.stream.ssl().psk_identity().filter(|_| !was_ready);
        let Some(asked) = asked else {
            return PskError::OpenSsl(error.ssl_error().map_or(NO_REASON, openssl_reason));
        };
        let identity = String::from_utf8_lossy(asked);
        match self.keys.by_identity.contains_key(&*identity) {
            true => PskError::Key(identity.into()),
            false => PskError::UnknownIdentity(identity.into()),
        }
    }
}

fn openssl_reason(errors: &ErrorStack) -> &'static str {
    let first = errors.errors().first().and_then(|error| error.reason());
    first.unwrap_or(NO_REASON)
}

/// Returns the length of the whole records at the front. OpenSSL would keep a partial record in a
/// buffer of its own. Bytes which cannot be a record count as whole: OpenSSL chooses the alert.
fn whole_records(raw: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = raw.get(at..at + RECORD_HEADER) {
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if !(20..=23).contains(&header[0]) || header[1] != 3 || len > RECORD_BYTES_MAX {
            return raw.len();
        }
        if raw.len() < at + RECORD_HEADER + len {
            return at;
        }
        at += RECORD_HEADER + len;
    }
    let is_none = raw.get(at).is_some_and(|kind| !(20..=23).contains(kind));
    if is_none { raw.len() } else { at }
}

/// Whether `raw` begins with a ClientHello fitting in one record. OpenSSL allocates the announced
/// length, up to 128 KiB, before the bytes have come.
fn is_client_hello(raw: &[u8]) -> bool {
    let Some(&[22, 3, _, record_high, record_low, 1, high, middle, low]) = raw.first_chunk() else {
        return false;
    };
    let record = u16::from_be_bytes([record_high, record_low]);
    let len = u32::from_be_bytes([0, high, middle, low]);
    (4..=HELLO_BYTES_MAX).contains(&u32::from(record)) && len <= HELLO_BYTES_MAX
}

/// Cipher suites, forward secrecy first. The suites without are for small devices (RFC 7925, 4.2),
/// where a key exchange would cost too much. No suite needs a certificate, and DHE-PSK is absent:
/// any peer could cause ten times the work of ECDHE before proving a key.
const SUITES: &str = "ECDHE-PSK-CHACHA20-POLY1305:\
    ECDHE-PSK-AES256-CBC-SHA384:ECDHE-PSK-AES128-CBC-SHA256:\
    PSK-AES256-GCM-SHA384:PSK-AES128-GCM-SHA256:PSK-CHACHA20-POLY1305:\
    PSK-AES256-CCM:PSK-AES128-CCM:PSK-AES128-CCM8:\
    PSK-AES256-CBC-SHA384:PSK-AES128-CBC-SHA256:PSK-AES128-CBC-SHA";
const NO_REASON: &str = "it cannot go on";
const GROUPS: &str = "X25519:P-256:P-384";
const RECORD_HEADER: usize = 5;
/// Length of the longest encrypted record (RFC 5246, 6.2.3).
const RECORD_BYTES_MAX: usize = (1 << 14) + 2048;
const HELLO_BYTES_MAX: u32 = 1 << 14;
/// A fatal alert unexpected_message in a whole record.
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];
