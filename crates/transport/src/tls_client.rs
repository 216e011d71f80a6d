//! TLS options of a client, for TLS over TCP and for QUIC: trusted CAs and the client's own
//! certificate.

use crate::certificate_form::{
    complete_chain, public_key, verify_tls12_message, verify_tls13_message,
};
use crate::pem_files::{read_certificates, read_private_key};
use crate::server_verifier::PrivateCaVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct TlsClientOptions {
    pub authorities: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    /// Accepts any server certificate, see `InsecureVerifier`.
    pub insecure: bool,
}

impl TlsClientOptions {
    /// Whether any option was set; each of them needs TLS.
    pub fn is_given(&self) -> bool {
        let TlsClientOptions { authorities, certificate, key, insecure } = self;
        *insecure || authorities.is_some() || certificate.is_some() || key.is_some()
    }

    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        self.client_config_for(rustls::DEFAULT_VERSIONS)
    }

    /// Builds the configuration for the given versions of TLS. Reads the files now; an error names
    /// the file.
    pub fn client_config_for(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions).map_err(|e| e.to_string())?;
        let builder = if self.insecure {
            let anyone = Arc::new(InsecureVerifier { provider: Arc::clone(&provider) });
            builder.dangerous().with_custom_certificate_verifier(anyone)
        } else if let Some(file) = &self.authorities {
            let all = read_certificates(Path::new(file))?;
            let verifier = PrivateCaVerifier::new(all, Arc::clone(&provider));
            let verifier = verifier.map_err(|why| format!("{file}: {why}"))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(host_roots()?)
        };
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let own = self.own_certificate(certificate, key, &provider)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
            _ => return Err("a certificate and its private key go together".to_string()),
        };
        Ok(Arc::new(config))
    }

    /// Loads the client's certificate and key. The CAs of the file of trusted CAs complete the
    /// chain. A key which does not belong to the first certificate is an error.
    fn own_certificate(
        &self,
        certificate: &str,
        key: &str,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, String> {
        let mut chain = read_certificates(Path::new(certificate))?;
        let own = read_private_key(Path::new(key))?;
        let own = provider.key_provider.load_private_key(own);
        let own = own.map_err(|error| format!("{key}: {error}"))?;
        let known = own.public_key();
        if known.is_some() && known != public_key(&chain[0]) {
            return Err(format!(
                "{key}: this is not the key of the first certificate in {certificate}"
            ));
        }
        if let Some(file) = &self.authorities {
            complete_chain(&mut chain, &read_certificates(Path::new(file))?);
        }
        Ok(CertifiedKey::new(chain, own))
    }
}

/// Returns the CAs of the host, from `SSL_CERT_FILE` or the first readable file of `BUNDLES`. CAs
/// which webpki cannot parse are skipped.
fn host_roots() -> Result<RootCertStore, String> {
    let own = std::env::var("SSL_CERT_FILE").ok();
    let found = own.iter().map(String::as_str).chain(BUNDLES.iter().copied());
    for file in found {
        if let Ok(all) = read_certificates(Path::new(file)) {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(all);
            return Ok(roots);
        }
    }
    Err("this host has no file of CAs, use --cafile FILE or --insecure".to_string())
}

/// Files with trusted CAs, as Linux distributions install them.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Accepts every certificate; the peer still has to prove possession of the private key.
#[derive(Debug)]
struct InsecureVerifier {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for InsecureVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_message(message, certificate, signed, &self.provider)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_message(message, certificate, signed, &self.provider)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
