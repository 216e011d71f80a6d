//! Loads the files of a listener's TLS. An error names its file and the right content; a failed
//! load has no effect.

use super::certificate_resolver::CertificateResolver;
use super::client_verifier::ClientCertificateVerifier;
use ring::hmac;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use transport::certificate_form::{
    CertificateUse, TrustedCertificates, complete_chain, list_time, public_key,
};
use transport::pem_files::{read_certificates, read_private_key, read_revocation_lists};

/// Files and options of a listener's TLS, from the `tls.` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Each file has a certificate and the chain below; a client gets the first with the requested
    /// name.
    pub certificates: Vec<PathBuf>,
    /// Private keys of `certificates`, in the same order.
    pub keys: Vec<PathBuf>,
    /// Certificates which complete the chains of `certificates` towards a CA.
    pub chain: Vec<PathBuf>,
    pub client: ClientCertificateMode,
    /// CAs for the certificates of clients (`tls.client_ca`).
    pub client_authorities: Option<PathBuf>,
    /// Revocation lists for the certificates of clients (`tls.crl`).
    pub revoked: Vec<PathBuf>,
    pub version_min: TlsVersionMin,
}

/// Whether a listener requests certificates of clients (`tls.client_certificate`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificateMode {
    #[default]
    Off,
    /// Clients may show a certificate. An invalid certificate ends the handshake all the same.
    Optional,
    Required,
}

/// Oldest version of TLS accepted by a listener (`tls.version_min`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersionMin {
    #[default]
    V12,
    V13,
}

/// Credentials for handshakes, loaded by [`TlsFiles::load`]. A connection keeps the credentials of
/// its start.
#[derive(Clone)]
pub struct TlsCredentials {
    config: Arc<ServerConfig>,
    /// Derived from the first private key, and so equal after a restart with the same key.
    secret: [u8; 32],
    /// Whether the listener requests a certificate from its clients.
    asks_clients: bool,
}

impl fmt::Debug for TlsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl TlsCredentials {
    /// Returns the TLS configuration, for code that does handshakes outside of the shards.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Returns a secret of the listener, for keys that have to be equal after a restart.
    pub(crate) fn secret(&self) -> [u8; 32] {
        self.secret
    }

    pub(crate) fn asks_clients(&self) -> bool {
        self.asks_clients
    }
}

impl TlsFiles {
    /// Reads every file. The error lists all problems as sentences.
    pub fn load(&self) -> Result<TlsCredentials, Vec<String>> {
        let provider = Arc::new(default_provider());
        let (mut wrongs, mut keys, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
        let authorities = match &self.client_authorities {
            Some(file) => read_certificates(file).unwrap_or_else(|why| {
                wrongs.push(why);
                Vec::new()
            }),
            None => Vec::new(),
        };
        let mut pool = authorities.clone();
        for file in &self.chain {
            match read_certificates(file) {
                Ok(all) => pool.extend(all),
                Err(why) => wrongs.push(why),
            }
        }
        for (certificate, key) in self.certificates.iter().zip(&self.keys) {
            match load_certified_key(certificate, key, &pool, &provider) {
                Ok((certified, secret)) => {
                    keys.push(Arc::new(certified));
                    secrets.push(secret);
                }
                Err(why) => wrongs.push(why),
            }
        }
        if !wrongs.is_empty() {
            return Err(wrongs);
        }
        let verifier = match self.client {
            ClientCertificateMode::Off => Ok(WebPkiClientVerifier::no_client_auth()),
            _ => self.verifier(authorities, &provider),
        };
        let made = build_config(provider, self.version_min, verifier?, keys);
        let secret = secrets.first().copied().unwrap_or_default();
        let asks_clients = self.client != ClientCertificateMode::Off;
        let made = made.map(|config| TlsCredentials { config, secret, asks_clients });
        made.map_err(|error| vec![error.to_string()])
    }

    /// Returns the subjects of the certificates in `tls.client_ca` that are not roots and have no
    /// root in the file. Empty for an unreadable file, which is an error when the file is loaded.
    pub fn authorities_without_root(&self) -> Vec<String> {
        if self.client == ClientCertificateMode::Off {
            return Vec::new();
        }
        let read = self.client_authorities.as_deref().and_then(|file| read_certificates(file).ok());
        let sorted = TrustedCertificates::sort(read.unwrap_or_default(), CertificateUse::Client);
        sorted.map(|trusted| trusted.subjects_without_root()).unwrap_or_default()
    }

    fn verifier(
        &self,
        authorities: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, Vec<String>> {
        let Some(file) = &self.client_authorities else {
            return Err(vec![
                "no file says who may vouch for clients, name one with tls.client_ca".to_string(),
            ]);
        };
        let in_file = |why: String| vec![format!("{}: {why}", file.display())];
        let trusted =
            TrustedCertificates::sort(authorities, CertificateUse::Client).map_err(in_file)?;
        let mut lists = Vec::new();
        for file in &self.revoked {
            lists.extend(read_revocation_lists(file).map_err(|why| vec![why])?);
        }
        // webpki takes the first list of a CA.
        lists.sort_by_key(|list| Reverse(list_time(list)));
        let is_optional = self.client == ClientCertificateMode::Optional;
        let verifier =
            ClientCertificateVerifier::new(trusted, lists, is_optional, provider.clone());
        let verifier = verifier.map_err(|why| match self.revoked.is_empty() {
            true => in_file(why),
            false => {
                let files: Vec<_> =
                    self.revoked.iter().map(|file| file.display().to_string()).collect();
                vec![format!(
                    "{}: {why}, use lists in PEM or DER as a CA signs them",
                    files.join(", ")
                )]
            }
        })?;
        Ok(Arc::new(verifier))
    }
}

fn build_config(
    provider: Arc<CryptoProvider>,
    oldest: TlsVersionMin,
    verifier: Arc<dyn ClientCertVerifier>,
    keys: Vec<Arc<CertifiedKey>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let versions: &[&SupportedProtocolVersion] = match oldest {
        TlsVersionMin::V12 => &[&version::TLS12, &version::TLS13],
        TlsVersionMin::V13 => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier);
    let mut config = builder.with_cert_resolver(Arc::new(CertificateResolver::new(keys)));
    // The state of a session goes to the client in a sealed ticket; the broker stores none. A
    // ticket is as good as the certificate behind it, so new files come with a new ticket key.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new()?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

fn load_certified_key(
    certificate: &Path,
    key: &Path,
    pool: &[CertificateDer<'static>],
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, [u8; 32]), String> {
    let mut chain = read_certificates(certificate)?;
    let own = read_private_key(key)?;
    let secret = secret_of(&own);
    let own = provider.key_provider.load_private_key(own).map_err(|_| {
        format!(
            "{}: a key of a kind that is not supported, use RSA of 2048 to 8192 bits, ECDSA P-256 \
             or P-384, or Ed25519",
            key.display()
        )
    })?;
    let shown = chain.first().and_then(public_key).ok_or_else(|| {
        format!("{}: the first certificate cannot be read, use X.509 in PEM", certificate.display())
    })?;
    if own.public_key().is_some_and(|known| known != shown) {
        let fits = |of: &CertificateDer<'_>| own.public_key() == public_key(of);
        let (certificate, key) = (certificate.display(), key.display());
        return Err(match chain.iter().any(fits) {
            true => format!(
                "{certificate}: the certificate of {key} is not the first one, put it before those \
                 that lead to its CA"
            ),
            false => format!(
                "{key}: this is not the key of {certificate}, use the one that its certificate was \
                 made for"
            ),
        });
    }
    complete_chain(&mut chain, pool);
    Ok((CertifiedKey::new(chain, own), secret))
}

/// Derives a secret from a private key, not computable without the key.
fn secret_of(key: &PrivateKeyDer<'_>) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
    let mut secret = [0; 32];
    secret.copy_from_slice(hmac::sign(&key, b"godwit").as_ref());
    secret
}
