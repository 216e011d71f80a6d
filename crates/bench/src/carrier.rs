//! TLS as the command line asks for it.
//!
//! Without a CA the server is not verified, as in emqtt_bench: a load tester meets test servers.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

pub(crate) fn tls(
    ca: Option<&str>,
    certificate: Option<&str>,
    key: Option<&str>,
) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = match ca {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|error| format!("{file}: {error}"))?;
            }
            builder.with_root_certificates(roots)
        }
        None => {
            let anyone = Arc::new(Anyone { provider });
            builder.dangerous().with_custom_certificate_verifier(anyone)
        }
    };
    let config = match (certificate, key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{key}: {e}"))?;
            let chain = certificates(certificate)?;
            builder.with_client_auth_cert(chain, own).map_err(|e| format!("{certificate}: {e}"))?
        }
        _ => return Err("--certfile and --keyfile go together".into()),
    };
    Ok(Arc::new(config))
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("{file}: {error}");
    let all = CertificateDer::pem_file_iter(file).map_err(wrong)?;
    all.collect::<Result<_, _>>().map_err(wrong)
}

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
