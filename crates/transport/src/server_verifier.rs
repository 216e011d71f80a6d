//! Verification of server certificates by a client: webpki's result and, with a file of CAs, also
//! the forms that private CAs produce (see [`certificate_form`](crate::certificate_form)).

use crate::certificate_form::{
    CandidateChain, CertificateRefusal, CertificateUse, TrustedCertificates, is_subject_name,
    limits_names, verify_tls12_message, verify_tls13_message,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Verifier for a file of trusted CAs. Accepts every certificate that webpki accepts, and in
/// addition certificates of version 1, without alternative names, or contained in the file: see
/// `certificate_form`.
#[derive(Debug)]
pub(crate) struct PrivateCaVerifier {
    trusted: TrustedCertificates,
    /// `None` if the file contains no CA.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl PrivateCaVerifier {
    pub(crate) fn new(
        all: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<PrivateCaVerifier, String> {
        let trusted = TrustedCertificates::sort(all, CertificateUse::Server)?;
        let webpki = verifier_for_anchors(trusted.anchors(), &provider)?;
        Ok(PrivateCaVerifier { trusted, webpki, provider })
    }

    /// Returns webpki's result, with the anchors which are valid at `now`.
    fn verify_by_webpki(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let intermediates = self.trusted.intermediates_with(intermediates);
        let chain = CandidateChain::new(certificate, &intermediates);
        let anchors = self.trusted.anchors_for(&chain, now);
        let valid = match anchors.len() < self.trusted.anchors().count() {
            true => {
                verifier_for_anchors(anchors.into_iter(), &self.provider).map_err(Error::General)?
            }
            false => self.webpki.clone(),
        };
        match valid {
            Some(webpki) => {
                webpki.verify_server_cert(certificate, &intermediates, name, &[], now).map(drop)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    /// Verifies the chain and the name. webpki checks the chain before the name, so an error about
    /// the name means a valid chain.
    fn verify_chain(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let answer = self.verify_by_webpki(certificate, intermediates, name, now);
        let Err(error) = answer else { return Ok(()) };
        if is_wrong_name(&error) {
            // webpki applies name constraints only to alternative names.
            let mut chain = intermediates.iter().chain(&self.trusted.authorities);
            return match chain.any(limits_names) {
                true => Err(error),
                false => accept_by_subject(certificate, name, error),
            };
        }
        match self.trusted.verify(certificate, CertificateUse::Server, now) {
            Some(Ok(())) => verify_name(certificate, name),
            Some(Err(error)) => Err(error),
            None => Err(error),
        }
    }
}

/// Returns webpki's verifier with these trust anchors; `None` if there are no anchors.
fn verifier_for_anchors<'a>(
    anchors: impl Iterator<Item = &'a CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    for authority in anchors {
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Ok(None);
    }
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
    builder.build().map(Some).map_err(|error| error.to_string())
}

fn is_wrong_name(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
}

fn verify_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let by_alternatives = match ParsedCertificate::try_from(certificate) {
        Ok(parsed) => verify_server_name(&parsed, name),
        // Only a certificate of version 1 fails to parse here; version 1 has no alternative names.
        Err(_) => Err(CertificateError::NotValidForName.into()),
    };
    match by_alternatives {
        Err(error) if is_wrong_name(&error) => accept_by_subject(certificate, name, error),
        answer => answer,
    }
}

/// Accepts the common name of a certificate without alternative names. The user chose the CA, so
/// the common name is as trustworthy as the CA.
fn accept_by_subject(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    error: Error,
) -> Result<(), Error> {
    match is_subject_name(certificate, name) {
        Some(true) => Ok(()),
        Some(false) => Err(CertificateRefusal::tls_error(format!(
            "it has no alternative names, and its common name is not {:?}",
            name.to_str()
        ))),
        None => Err(error),
    }
}

impl ServerCertVerifier for PrivateCaVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_chain(certificate, intermediates, name, now)?;
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
