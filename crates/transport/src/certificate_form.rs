//! Certificates in forms that users have and webpki does not accept: X.509 version 1, and a
//! certificate that is trusted itself, without its CA.
//!
//! Invariant: this module accepts a certificate only if the user's file contains the certificate
//! itself or the CA that signed the certificate. webpki alone verifies chains with an intermediate
//! certificate.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA};
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

/// The side of a connection that presents the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUse {
    Client,
    Server,
}

/// Reason for which a certificate is refused: its form, and the accepted form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRefusal(pub String);

impl fmt::Display for CertificateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateRefusal {}

impl CertificateRefusal {
    /// Wraps the refusal in the error type of a TLS handshake.
    pub fn tls_error(text: impl Into<String>) -> Error {
        let refusal: Arc<dyn std::error::Error + Send + Sync> =
            Arc::new(CertificateRefusal(text.into()));
        Error::InvalidCertificate(CertificateError::Other(OtherError(refusal)))
    }
}

/// Certificates of a file of trusted certificates, by purpose.
#[derive(Clone, Debug, Default)]
pub struct TrustedCertificates {
    /// CA certificates, which may sign other certificates.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Certificates that are trusted themselves and may not sign [RFC 5280, 4.2.1.9].
    pub pinned: Vec<CertificateDer<'static>>,
    /// Authorities whose issuer is not in the file, or that are self-issued.
    anchors: Vec<TrustAnchorLimits>,
    /// Authorities whose issuer is in the file as well, and must be valid too.
    intermediates: Vec<CertificateDer<'static>>,
    /// CA certificates with an extended key usage for another purpose: not trusted here.
    unfit: Vec<CertificateDer<'static>>,
}

/// Anchor with the limits that webpki does not check for anchors.
#[derive(Clone, Debug)]
struct TrustAnchorLimits {
    certificate: CertificateDer<'static>,
    /// Subject in DER, which certificates below name as their issuer.
    subject: Vec<u8>,
    /// Validity period, in seconds since 1970.
    validity: std::ops::RangeInclusive<i64>,
    /// Maximum number of intermediate certificates below the anchor [RFC 5280, 4.2.1.9].
    path_len_max: Option<u32>,
    has_name_constraints: bool,
}

impl TrustedCertificates {
    /// Sorts the certificates of a file by purpose, for certificates of this `usage`. A certificate
    /// that cannot be parsed is an error.
    pub fn sort(
        all: Vec<CertificateDer<'static>>,
        usage: CertificateUse,
    ) -> Result<TrustedCertificates, String> {
        let mut sorted = TrustedCertificates::default();
        for certificate in all {
            let (is_authority, is_fit) = {
                let parsed = parse(&certificate)
                    .ok_or("a certificate cannot be read: it is not X.509 in DER")?;
                (may_sign(&parsed), check_extended_use(&parsed, usage).is_ok())
            };
            match is_authority {
                true if is_fit => sorted.authorities.push(certificate),
                true => sorted.unfit.push(certificate),
                false => sorted.pinned.push(certificate),
            }
        }
        sorted.find_anchors();
        Ok(sorted)
    }

    /// Separates anchors from authorities that another authority of the file has issued.
    fn find_anchors(&mut self) {
        let parsed: Vec<_> =
            self.authorities.iter().filter_map(|der| Some((der, parse(der)?))).collect();
        let (mut anchors, mut intermediates) = (Vec::new(), Vec::new());
        for (der, own) in &parsed {
            let is_issued = !is_self_issued(own)
                && parsed
                    .iter()
                    .any(|(_, other)| other.subject().as_raw() == own.issuer().as_raw());
            if is_issued {
                intermediates.push((*der).clone());
                continue;
            }
            let dates = own.validity();
            let validity = dates.not_before.timestamp()..=dates.not_after.timestamp();
            let constraints = own.basic_constraints().ok().flatten();
            let path_len_max = constraints.and_then(|own| own.value.path_len_constraint);
            anchors.push(TrustAnchorLimits {
                certificate: (*der).clone(),
                subject: own.subject().as_raw().to_vec(),
                validity,
                path_len_max,
                has_name_constraints: has_name_constraints(own),
            });
        }
        (self.anchors, self.intermediates) = (anchors, intermediates);
    }

    /// Returns the trust anchors for the candidate chains of a certificate: the anchors that are
    /// valid at `now`, and whose path length constraint permits every chain that the names allow.
    /// webpki checks the other certificates of a chain.
    pub fn anchors_for(
        &self,
        chain: &CandidateChain<'_>,
        now: UnixTime,
    ) -> Vec<&CertificateDer<'static>> {
        let fits = |anchor: &&TrustAnchorLimits| {
            is_within(&anchor.validity, now)
                && anchor
                    .path_len_max
                    .is_none_or(|most| chain.longest_below(&anchor.subject) <= most as usize)
        };
        self.anchors.iter().filter(fits).map(|anchor| &anchor.certificate).collect()
    }

    /// Returns whether an anchor is valid at `now`.
    pub fn has_valid_anchor(&self, now: UnixTime) -> bool {
        self.anchors.iter().any(|anchor| is_within(&anchor.validity, now))
    }

    /// Returns every anchor, valid or not.
    pub fn anchors(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.anchors.iter().map(|anchor| &anchor.certificate)
    }

    /// Returns the subjects of trusted certificates that are not self-issued. OpenSSL trusts such a
    /// certificate only if its chain leads to a root in the file.
    pub fn subjects_without_root(&self) -> Vec<String> {
        let named = self.anchors().chain(&self.pinned);
        let parsed = named.filter_map(|der| parse(der));
        parsed.filter(|own| !is_self_issued(own)).map(|own| own.subject().to_string()).collect()
    }

    /// Returns the intermediate certificates of the peer and of the file. Omits certificates of the
    /// peer that may not sign, because webpki does not check their key usage.
    pub fn intermediates_with<'a>(&self, sent: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
        let signing = sent.iter().filter(|der| parse(der).is_some_and(|own| may_sign(&own)));
        signing.cloned().chain(self.intermediates.iter().cloned()).collect()
    }

    /// Accepts a certificate that the file contains, or a certificate of version 1 that a CA of the
    /// file signed. `None` for any other certificate: webpki's result counts.
    pub fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        usage: CertificateUse,
        now: UnixTime,
    ) -> Option<Result<(), Error>> {
        let is_named =
            self.authorities.iter().chain(&self.pinned).any(|named| named == certificate);
        let parsed = parse(certificate)?;
        if is_named {
            return Some(check_validity(&parsed, now).and_then(|()| check_purpose(&parsed, usage)));
        }
        let mut unfit = self.unfit.iter().filter_map(|der| parse(der));
        if unfit.any(|other| other.subject().as_raw() == parsed.issuer().as_raw()) {
            return Some(Err(CertificateRefusal::tls_error(
                "the extended key usage of its CA is another one: use a CA that may vouch for it",
            )));
        }
        if parsed.version() == X509Version::V3 {
            return None;
        }
        Some(check_validity(&parsed, now).and_then(|()| self.verify_issuer(&parsed, now)))
    }

    fn verify_issuer(&self, certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
        let by_name = self.authorities.iter().filter_map(|der| parse(der));
        let mut issuers = by_name
            .filter(|issuer| issuer.subject().as_raw() == certificate.issuer().as_raw())
            .peekable();
        if issuers.peek().is_none() {
            return Err(CertificateRefusal::tls_error(
                "a certificate of X.509 version 1 from an unknown issuer: such a certificate has \
                 to be signed by a CA of the file of trusted CAs itself, without an \
                 intermediate one",
            ));
        }
        let signed = issuers.any(|issuer| {
            is_signed_by(certificate, &issuer) && self.leads_to_anchor(&issuer, 0, now)
        });
        match signed {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(CertificateError::BadSignature)),
        }
    }

    /// Returns whether an authority of the file leads to an anchor by authorities that are valid at
    /// `now`, permit the path length and have no name constraints. `below` counts the authorities
    /// below.
    fn leads_to_anchor(&self, own: &X509Certificate<'_>, below: usize, now: UnixTime) -> bool {
        let constraints = own.basic_constraints().ok().flatten();
        let path_len_max = constraints.and_then(|own| own.value.path_len_constraint);
        let is_good = below < CHAIN_MAX
            && path_len_max.is_none_or(|most| below <= most as usize)
            && !has_name_constraints(own)
            && check_validity(own, now).is_ok();
        if !is_good || is_self_issued(own) {
            return is_good;
        }
        let mut issuers = self.authorities.iter().filter_map(|der| parse(der));
        let names = |other: &X509Certificate<'_>| other.subject().as_raw() == own.issuer().as_raw();
        let is_anchor =
            !self.authorities.iter().filter_map(|der| parse(der)).any(|one| names(&one));
        is_anchor
            || issuers.any(|other| {
                names(&other)
                    && is_signed_by(own, &other)
                    && self.leads_to_anchor(&other, below + 1, now)
            })
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, parsed) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(parsed)
}

/// Returns whether the certificate is X.509 version 1 or 2, without extensions for webpki.
fn is_before_version_3(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_some_and(|parsed| parsed.version() != X509Version::V3)
}

/// Returns whether a certificate is a CA: by basic constraints and key usage, or, as in OpenSSL, by
/// a self-issued certificate of version 1.
fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    if certificate.version() != X509Version::V3 {
        return is_self_issued(certificate);
    }
    let key_usage = certificate.key_usage().ok().flatten();
    let signs = key_usage.is_none_or(|usage| usage.value.key_cert_sign());
    match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca && signs,
        // As in OpenSSL, a key usage for signing certificates is sufficient.
        Ok(None) => certificate.key_usage().ok().flatten().is_some() && signs,
        Err(_) => false,
    }
}

/// Whether a certificate has name constraints [RFC 5280, 4.2.1.10], which a common name would
/// bypass. A certificate which cannot be parsed counts as constrained.
pub fn limits_names(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_none_or(|parsed| has_name_constraints(&parsed))
}

fn has_name_constraints(certificate: &X509Certificate<'_>) -> bool {
    !matches!(certificate.name_constraints(), Ok(None))
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

fn is_within(validity: &std::ops::RangeInclusive<i64>, now: UnixTime) -> bool {
    validity.contains(&i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

fn check_validity(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    let wrong = match ASN1Time::from_timestamp(seconds) {
        Ok(now) if now < validity.not_before => CertificateError::NotValidYet,
        Ok(now) if now <= validity.not_after => return Ok(()),
        _ => CertificateError::Expired,
    };
    Err(Error::InvalidCertificate(wrong))
}

/// Checks the purpose of a certificate. A client signs the handshake, so its key usage must allow
/// signatures [RFC 8446, 4.4.2.2], or key agreement as in OpenSSL.
fn check_purpose(certificate: &X509Certificate<'_>, usage: CertificateUse) -> Result<(), Error> {
    check_extended_use(certificate, usage)?;
    if usage == CertificateUse::Server {
        return Ok(());
    }
    let may_sign = match certificate.key_usage() {
        Ok(usage) => {
            usage.is_none_or(|own| own.value.digital_signature() || own.value.key_agreement())
        }
        Err(_) => false,
    };
    let netscape = certificate.extensions().iter().find_map(|one| match one.parsed_extension() {
        ParsedExtension::NSCertType(types) => Some(types.ssl_client()),
        _ => None,
    });
    match (may_sign, netscape.unwrap_or(true)) {
        (true, true) => Ok(()),
        (false, _) => Err(CertificateRefusal::tls_error(
            "its key usage allows no signature: a client's has to have digitalSignature",
        )),
        (true, false) => Err(CertificateRefusal::tls_error(
            "its Netscape certificate type is that of a server: a client's has to be client",
        )),
    }
}

/// Checks a client's certificate where webpki does not: key usage, Netscape type, and the name
/// constraints of its CAs, which webpki applies only to alternative names.
pub fn check_client(
    trusted: &TrustedCertificates,
    chain: &CandidateChain<'_>,
) -> Result<(), Error> {
    let unreadable = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let own = chain.steps.first().and_then(|step| step.first()).ok_or_else(unreadable)?;
    check_purpose(own, CertificateUse::Client)?;
    let mut above = chain.steps.iter().skip(1).flatten();
    let is_limited = above.any(has_name_constraints)
        || trusted
            .anchors
            .iter()
            .any(|anchor| anchor.has_name_constraints && chain.has_below(&anchor.subject));
    match is_limited && has_names_in_subject(own) {
        false => Ok(()),
        true => Err(CertificateRefusal::tls_error(
            "a CA of it has name constraints, and they are not compared with a host name or an \
             email address in a subject: such names belong into alternative names",
        )),
    }
}

/// Returns whether the subject has an email address, or a common name with a dot without a host
/// among the alternative names.
fn has_names_in_subject(certificate: &X509Certificate<'_>) -> bool {
    let alternatives = match certificate.subject_alternative_name() {
        Ok(found) => found.map_or(&[][..], |found| &found.value.general_names),
        Err(_) => return true,
    };
    let has_host = alternatives.iter().any(|name| matches!(name, GeneralName::DNSName(_)));
    let subject = certificate.subject();
    let mut common_names = subject.iter_common_name();
    subject.iter_email().next().is_some()
        || !has_host && common_names.any(|name| name.attr_value().data.contains(&b'.'))
}

/// Candidate chain of a certificate by names: each step holds the possible issuers of the step
/// before. Self-issued certificates are omitted.
pub struct CandidateChain<'a> {
    steps: Vec<Vec<X509Certificate<'a>>>,
}

impl<'a> CandidateChain<'a> {
    pub fn new(
        certificate: &'a CertificateDer<'_>,
        intermediates: &'a [CertificateDer<'_>],
    ) -> CandidateChain<'a> {
        let mut steps: Vec<Vec<X509Certificate<'a>>> =
            vec![parse(certificate).into_iter().collect()];
        let between: Vec<X509Certificate<'a>> =
            intermediates.iter().filter_map(|der| parse(der)).collect();
        while steps.len() < CHAIN_MAX {
            let Some(below) = steps.last().filter(|step| !step.is_empty()) else { break };
            let issued = |own: &X509Certificate<'_>| {
                below.iter().any(|one| one.issuer().as_raw() == own.subject().as_raw())
            };
            let next = between.iter().filter(|own| !is_self_issued(own) && issued(own));
            steps.push(next.cloned().collect());
        }
        CandidateChain { steps }
    }

    /// Returns the largest number of intermediate certificates between the certificate and the
    /// anchor with `subject` (in DER).
    fn longest_below(&self, subject: &[u8]) -> usize {
        self.steps.iter().rposition(|step| is_issued_by(step, subject)).unwrap_or(0)
    }

    /// Returns whether the anchor with `subject` may have issued a certificate of the chain.
    fn has_below(&self, subject: &[u8]) -> bool {
        self.steps.iter().any(|step| is_issued_by(step, subject))
    }
}

fn is_issued_by(certificates: &[X509Certificate<'_>], subject: &[u8]) -> bool {
    certificates.iter().any(|own| own.issuer().as_raw() == subject)
}

/// Checks that an extended key usage, if present, includes the purpose `usage` (RFC 5280,
/// 4.2.1.12).
fn check_extended_use(
    certificate: &X509Certificate<'_>,
    usage: CertificateUse,
) -> Result<(), Error> {
    let good = match certificate.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(named)) => {
            let named = named.value;
            named.any
                || match usage {
                    CertificateUse::Client => named.client_auth,
                    CertificateUse::Server => named.server_auth,
                }
        }
        Err(_) => false,
    };
    match good {
        true => Ok(()),
        false => Err(Error::InvalidCertificate(CertificateError::InvalidPurpose)),
    }
}

/// Whether the key of `issuer` made the signature. SHA-1 signatures are refused.
fn is_signed_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let algorithm = &certificate.signature_algorithm.algorithm;
    let is_sha1 = *algorithm == OID_PKCS1_SHA1WITHRSA || *algorithm == OID_SHA1_WITH_RSA;
    certificate.signature_algorithm == certificate.tbs_certificate.signature
        && !is_sha1
        && certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

/// Returns the public key of a certificate, as a DER-encoded SubjectPublicKeyInfo.
pub fn public_key(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let parsed = parse(certificate)?;
    Some(SubjectPublicKeyInfoDer::from(parsed.public_key().raw.to_vec()))
}

/// Seconds since 1970 at which a revocation list was issued; the newest of a CA counts.
pub fn list_time(list: &CertificateRevocationListDer<'_>) -> i64 {
    let parsed = CertificateRevocationList::from_der(list);
    parsed.map_or(i64::MIN, |(_, list)| list.last_update().timestamp())
}

/// Returns the subject of a certificate, as a DER-encoded Name.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    Some(parse(certificate)?.subject().as_raw().to_vec())
}

/// Appends certificates of `pool` to a chain, up to `CHAIN_MAX`, in the direction of a root. The
/// root itself is left out, since peers have it. OpenSSL completes a chain from its file of CAs in
/// the same way.
pub fn complete_chain(chain: &mut Vec<CertificateDer<'static>>, pool: &[CertificateDer<'static>]) {
    while chain.len() < CHAIN_MAX {
        let next = chain.last().and_then(|last| {
            let last = parse(last)?;
            if last.subject().as_raw() == last.issuer().as_raw() {
                return None;
            }
            pool.iter().find(|der| {
                parse(der).is_some_and(|issuer| {
                    let is_root = issuer.subject().as_raw() == issuer.issuer().as_raw();
                    let fits = issuer.subject().as_raw() == last.issuer().as_raw();
                    fits && !is_root && is_signed_by(&last, &issuer)
                })
            })
        });
        match next {
            Some(next) if !chain.contains(next) => chain.push(next.clone()),
            _ => return,
        }
    }
}

/// Compares the common name of a certificate without alternative names with the name of the server.
/// `None` means the certificate has alternative names, and only these count [RFC 9525, 2].
pub fn is_subject_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Option<bool> {
    let parsed = parse(certificate)?;
    if !matches!(parsed.subject_alternative_name(), Ok(None)) {
        return None;
    }
    let last = parsed.subject().iter_common_name().last();
    let common_name = last.and_then(|name| name.as_str().ok())?;
    Some(match name {
        ServerName::DnsName(asked) => matches_host(common_name, asked.as_ref()),
        ServerName::IpAddress(asked) => {
            common_name.parse::<IpAddr>().is_ok_and(|address| address == IpAddr::from(*asked))
        }
        _ => false,
    })
}

/// Compares host names. A star stands for exactly the leftmost label [RFC 9525, 6.3].
fn matches_host(name: &str, asked: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) if domain.contains('.') => asked
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(domain)),
        Some(_) => false,
        None => name.eq_ignore_ascii_case(asked),
    }
}

/// Verifies a handshake signature of TLS 1.2, for certificates of any version.
pub fn verify_tls12_message(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    provider: &CryptoProvider,
) -> Result<HandshakeSignatureValid, Error> {
    let all = &provider.signature_verification_algorithms;
    if !is_before_version_3(certificate) {
        return verify_tls12_signature(message, certificate, signed, all);
    }
    let bad = || Error::InvalidCertificate(CertificateError::BadSignature);
    let parsed = parse(certificate).ok_or_else(bad)?;
    let key = &parsed.public_key().subject_public_key.data;
    if key_family(&parsed) != Some(scheme_family(signed.scheme)) {
        return Err(bad());
    }
    let named = all.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let (_, algorithms) = named.ok_or_else(bad)?;
    let mut algorithms = algorithms.iter();
    let verified =
        algorithms.any(|by| by.verify_signature(key, message, signed.signature()).is_ok());
    if verified { Ok(HandshakeSignatureValid::assertion()) } else { Err(bad()) }
}

/// Verifies a handshake signature of TLS 1.3 [RFC 8446, 4.4.3].
pub fn verify_tls13_message(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    provider: &CryptoProvider,
) -> Result<HandshakeSignatureValid, Error> {
    let all = &provider.signature_verification_algorithms;
    if !is_before_version_3(certificate) {
        return verify_tls13_signature(message, certificate, signed, all);
    }
    let key = public_key(certificate).ok_or(CertificateError::BadEncoding)?;
    verify_tls13_signature_with_raw_key(message, &key, signed, all)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyFamily {
    Ecdsa,
    Ed25519,
    Rsa,
}

fn key_family(certificate: &X509Certificate<'_>) -> Option<KeyFamily> {
    match certificate.public_key().algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" => Some(KeyFamily::Rsa),
        "1.2.840.10045.2.1" => Some(KeyFamily::Ecdsa),
        "1.3.101.112" => Some(KeyFamily::Ed25519),
        _ => None,
    }
}

fn scheme_family(scheme: SignatureScheme) -> KeyFamily {
    use SignatureScheme as S;
    match scheme {
        S::ECDSA_NISTP256_SHA256 | S::ECDSA_NISTP384_SHA384 | S::ECDSA_NISTP521_SHA512 => {
            KeyFamily::Ecdsa
        }
        S::ED25519 => KeyFamily::Ed25519,
        _ => KeyFamily::Rsa,
    }
}

const CHAIN_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_name_with_a_star_stands_for_one_label_below_a_domain() {
        assert!(matches_host("broker.example", "BROKER.example"));
        assert!(matches_host("*.home.example", "a.home.example"));
        assert!(!matches_host("*.home.example", "a.b.home.example"));
        assert!(!matches_host("*.example", "a.example"));
        assert!(!matches_host("*", "localhost"));
    }
}
