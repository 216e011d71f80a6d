//! Verifies client certificates: by webpki, and in addition certificates of version 1 and
//! certificates in `tls.client_ca` itself, which OpenSSL accepts and webpki does not.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use std::sync::Arc;
use transport::certificate_form::{
    CandidateChain, CertificateRefusal, CertificateUse, TrustedCertificates, check_client, subject,
    verify_tls12_message, verify_tls13_message,
};

#[derive(Debug)]
pub(super) struct ClientCertificateVerifier {
    trusted: TrustedCertificates,
    /// Verifier for the CAs in the file; `None` where the file has no CA.
    webpki: Option<Arc<dyn ClientCertVerifier>>,
    /// Names of CAs by which a client may choose its certificate (certificate_authorities, RFC
    /// 8446).
    hints: Vec<DistinguishedName>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    is_optional: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertificateVerifier {
    pub(super) fn new(
        trusted: TrustedCertificates,
        lists: Vec<CertificateRevocationListDer<'static>>,
        is_optional: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientCertificateVerifier, String> {
        let named = trusted.authorities.iter().chain(&trusted.pinned);
        let hints = named.filter_map(subject).map(DistinguishedName::from).collect();
        let webpki = match trusted.authorities.is_empty() {
            true if !lists.is_empty() => {
                return Err("a list of a CA that tls.client_ca does not have".to_string());
            }
            true => None,
            false => Some(verifier_for_anchors(trusted.anchors(), &lists, &provider)?),
        };
        Ok(ClientCertificateVerifier { trusted, webpki, hints, lists, is_optional, provider })
    }

    /// Verifies by webpki with the anchors which are within their dates; fails if there are none
    /// left.
    fn verify_by_webpki(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let Some(usual) = &self.webpki else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let intermediates = self.trusted.intermediates_with(intermediates);
        let chain = CandidateChain::new(certificate, &intermediates);
        let anchors = self.trusted.anchors_for(&chain, now);
        if !self.trusted.has_valid_anchor(now) {
            return Err(CertificateRefusal::tls_error(
                "each CA of tls.client_ca is out of its own dates: use one that is valid",
            ));
        }
        if anchors.is_empty() {
            return Err(CertificateRefusal::tls_error(
                "its CA allows no such chain of intermediate certificates (path length)",
            ));
        }
        let mut webpki = usual.clone();
        if anchors.len() < self.trusted.anchors().count() {
            webpki = verifier_for_anchors(anchors.into_iter(), &self.lists, &self.provider)
                .map_err(|why| Error::General(format!("tls.client_ca: {why}")))?;
        }
        webpki.verify_client_cert(certificate, &intermediates, now)?;
        check_client(&self.trusted, &chain)
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let answer = self.verify_by_webpki(certificate, intermediates, now);
        let Err(error) = answer else { return Ok(()) };
        // webpki has checked the revocation lists, so its error about them is final.
        if matches!(&error, Error::InvalidCertificate(why) if is_about_lists(why)) {
            return Err(error);
        }
        match self.trusted.verify(certificate, CertificateUse::Client, now) {
            Some(Ok(())) if !self.lists.is_empty() => Err(CertificateRefusal::tls_error(
                "it is of X.509 version 1, of a CA's form or named itself in tls.client_ca, which \
                 cannot be looked up in tls.crl: use one of version 3 that a CA signed",
            )),
            Some(answer) => answer,
            None => Err(error),
        }
    }
}

fn is_about_lists(why: &CertificateError) -> bool {
    matches!(
        why,
        CertificateError::Revoked
            | CertificateError::UnknownRevocationStatus
            | CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. }
    )
}

fn verifier_for_anchors<'a>(
    anchors: impl Iterator<Item = &'a CertificateDer<'static>>,
    lists: &[CertificateRevocationListDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in anchors {
        roots.add(authority.clone()).map_err(|error| {
            format!("a certificate cannot be used: {error}, use those of CAs in X.509 version 3")
        })?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    if !lists.is_empty() {
        // An outdated list does not say what was revoked since, so it counts as an error.
        builder = builder
            .with_crls(lists.to_vec())
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    builder.build().map_err(|error| error.to_string())
}

impl ClientCertVerifier for ClientCertificateVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        !self.is_optional
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(certificate, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
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
