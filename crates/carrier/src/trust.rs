//! Whom a client trusts over TLS and QUIC, and how it says who it is.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Trust {
    pub authorities: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    /// Anyone will do.
    pub insecure: bool,
}

impl Trust {
    /// Whether a flag was given that only makes sense with TLS.
    pub fn is_given(&self) -> bool {
        let Trust { authorities, certificate, key, insecure } = self;
        *insecure || authorities.is_some() || certificate.is_some() || key.is_some()
    }

    pub fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let builder = if self.insecure {
            let anyone = Arc::new(Anyone { provider });
            builder.dangerous().with_custom_certificate_verifier(anyone)
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let own = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{key}: {e}"))?;
                let chain = certificates(certificate)?;
                let config = builder.with_client_auth_cert(chain, own);
                config.map_err(|error| format!("{certificate}: {error}"))?
            }
            _ => return Err("a certificate and its private key go together".to_string()),
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = &self.authorities {
            for root in certificates(file)? {
                roots.add(root).map_err(|error| format!("{file}: {error}"))?;
            }
            return Ok(roots);
        }
        // Those whom the host trusts; a few of them are usually too old for us.
        let own = std::env::var("SSL_CERT_FILE").ok();
        let found = own.iter().map(String::as_str).chain(BUNDLES.iter().copied());
        for file in found {
            if let Ok(all) = certificates(file) {
                roots.add_parsable_certificates(all);
                return Ok(roots);
            }
        }
        Err("this host has no file of CAs, use --cafile FILE or --insecure".to_string())
    }
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("{file}: {error}");
    let all = CertificateDer::pem_file_iter(file).map_err(wrong)?;
    all.collect::<Result<_, _>>().map_err(wrong)
}

/// Where distributions keep the CAs that they trust.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Takes any certificate whose owner holds the key.
#[derive(Debug)]
struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anyone {
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
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
