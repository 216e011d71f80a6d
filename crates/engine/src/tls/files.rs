//! From files to what handshakes need. Whatever is wrong with a file is said with its name and what
//! would be right; nothing is half loaded.

use super::choice::Choice;
use ring::hmac;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a listener's TLS is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Each with the chain below it; a client gets the first that has the name it asks for.
    pub certificates: Vec<PathBuf>,
    /// In the same order.
    pub keys: Vec<PathBuf>,
    pub client: ClientCertificate,
    /// Who may vouch for clients.
    pub client_authorities: Option<PathBuf>,
    /// Clients' certificates that are no longer good.
    pub revoked: Vec<PathBuf>,
    pub oldest: Oldest,
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    #[default]
    Off,
    /// They may; one that is not good ends the handshake all the same.
    Optional,
    Required,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oldest {
    #[default]
    V12,
    V13,
}

/// Everything that handshakes need. Connections keep the one that they began with.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) config: Arc<ServerConfig>,
    /// A secret that the first private key has, and that is the same whenever the key is.
    pub(crate) secret: [u8; 32],
    /// Whether clients are asked for certificates.
    pub(crate) asks_clients: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// For who drives handshakes elsewhere.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }
}

impl Files {
    /// Reads every file. The errors, all of them, are sentences.
    pub fn load(&self) -> Result<Credentials, Vec<String>> {
        let provider = Arc::new(default_provider());
        let (mut wrongs, mut keys, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
        for (certificate, key) in self.certificates.iter().zip(&self.keys) {
            match certified(certificate, key, &provider) {
                Ok((certified, secret)) => {
                    keys.push(Arc::new(certified));
                    secrets.push(secret);
                }
                Err(why) => wrongs.push(why),
            }
        }
        let verifier = match self.client {
            ClientCertificate::Off => Ok(WebPkiClientVerifier::no_client_auth()),
            _ => self.verifier(&provider),
        };
        match verifier {
            Ok(verifier) if wrongs.is_empty() => {
                let made = make(provider, self.oldest, verifier, keys);
                let secret = secrets.first().copied().unwrap_or_default();
                let asks_clients = self.client != ClientCertificate::Off;
                let made = made.map(|config| Credentials { config, secret, asks_clients });
                made.map_err(|error| vec![error.to_string()])
            }
            Ok(_) => Err(wrongs),
            Err(whys) => {
                wrongs.extend(whys);
                Err(wrongs)
            }
        }
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, Vec<String>> {
        let Some(file) = &self.client_authorities else {
            return Err(vec!["no file says who may vouch for clients".to_string()]);
        };
        let roots = roots(file).map_err(|why| vec![why])?;
        let mut lists = Vec::new();
        for file in &self.revoked {
            lists.extend(revoked(file).map_err(|why| vec![why])?);
        }
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        if !lists.is_empty() {
            // A list that is out of date says nothing of what was revoked since.
            builder = builder
                .with_crls(lists)
                .only_check_end_entity_revocation()
                .enforce_revocation_expiration();
        }
        if self.client == ClientCertificate::Optional {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map_err(|error| {
            let files: Vec<String> =
                self.revoked.iter().map(|file| file.display().to_string()).collect();
            vec![format!(
                "{}: {error}, use lists in PEM or DER as a CA signs them",
                files.join(", ")
            )]
        })
    }
}

fn make(
    provider: Arc<CryptoProvider>,
    oldest: Oldest,
    verifier: Arc<dyn ClientCertVerifier>,
    keys: Vec<Arc<CertifiedKey>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let versions: &[&SupportedProtocolVersion] = match oldest {
        Oldest::V12 => &[&version::TLS12, &version::TLS13],
        Oldest::V13 => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier);
    let mut config = builder.with_cert_resolver(Arc::new(Choice::new(keys)));
    // The state of a session goes to the client, sealed; we keep nothing for those who left. A
    // ticket is as good as the certificate behind it, so new files come with a new seal.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new()?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

fn certified(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, [u8; 32]), String> {
    let chain = certificates(certificate)?;
    let own = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound if is_locked(key) => format!(
            "{}: the key is locked with a password, use one without: openssl pkey -in {} -out FILE",
            key.display(),
            key.display()
        ),
        pem::Error::NoItemsFound => format!(
            "{}: there is no private key in it, use PEM with PKCS #8, PKCS #1 or SEC 1",
            key.display()
        ),
        error => unreadable(key, &error),
    })?;
    let secret = secret_of(&own);
    let own = provider.key_provider.load_private_key(own).map_err(|_| {
        format!(
            "{}: a key of a kind that is not supported, use RSA of 2048 to 8192 bits, ECDSA P-256 \
             or P-384, or Ed25519",
            key.display()
        )
    })?;
    let certified = CertifiedKey::new(chain, own);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok((certified, secret))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(format!(
            "{}: this is not the key of {}, use the one that its certificate was made for",
            key.display(),
            certificate.display()
        )),
        Err(error) => Err(format!(
            "{}: the certificate cannot be used: {error}, use one of X.509 version 3",
            certificate.display()
        )),
    }
}

/// What nobody can tell who does not have the key.
fn secret_of(key: &PrivateKeyDer<'_>) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
    let mut secret = [0; 32];
    secret.copy_from_slice(hmac::sign(&key, b"godwit").as_ref());
    secret
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(file, &error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| unreadable(file, &error))?;
    if all.is_empty() {
        return Err(format!(
            "{}: there is no certificate in it, use PEM with the listener's own first and then \
             those that lead to its CA",
            file.display()
        ));
    }
    Ok(all)
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for root in certificates(file)? {
        roots.add(root).map_err(|error| {
            format!(
                "{}: a certificate cannot be used: {error}, use those of CAs in X.509 version 3",
                file.display()
            )
        })?;
    }
    Ok(roots)
}

fn revoked(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let lists = CertificateRevocationListDer::pem_file_iter(file);
    let lists = lists.map_err(|error| unreadable(file, &error))?;
    let lists: Vec<_> = lists.collect::<Result<_, _>>().map_err(|e| unreadable(file, &e))?;
    if lists.is_empty() {
        return Err(format!(
            "{}: there is no revocation list in it, use PEM (openssl crl -inform DER -in FILE)",
            file.display()
        ));
    }
    Ok(lists)
}

fn is_locked(key: &Path) -> bool {
    let text = std::fs::read(key).unwrap_or_default();
    text.windows(LOCKED.len()).any(|window| window == LOCKED)
}

const LOCKED: &[u8] = b"BEGIN ENCRYPTED PRIVATE KEY";

fn unreadable(file: &Path, error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => {
            format!("{}: the file cannot be read: {error}", file.display())
        }
        error => format!("{}: this is not PEM: {error}, use openssl x509 or pkey", file.display()),
    }
}
