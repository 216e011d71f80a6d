//! Chooses among several certificates for a client: the first with the requested name and a kind of
//! key that the client supports.

use super::certificate_names;
use broker::AlternativeName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct CertificateResolver {
    /// Certificates in the order of the options; the first is for a client without a matching
    /// server name (SNI).
    certificates: Vec<NamedCertificate>,
}

#[derive(Debug)]
struct NamedCertificate {
    names: Vec<Box<str>>,
    key: Arc<CertifiedKey>,
}

impl CertificateResolver {
    pub(super) fn new(keys: Vec<Arc<CertifiedKey>>) -> CertificateResolver {
        let named = |key: Arc<CertifiedKey>| {
            let own = key.cert.first().and_then(|own| certificate_names::parse_certificate(own));
            let alternatives = own.map(|own| own.alternatives).unwrap_or_default();
            let dns = alternatives.into_iter().filter_map(|name| match name {
                AlternativeName::Dns(name) => Some(name),
                _ => None,
            });
            NamedCertificate { names: dns.collect(), key }
        };
        CertificateResolver { certificates: keys.into_iter().map(named).collect() }
    }

    fn choose(
        &self,
        asked: Option<&str>,
        understands: impl Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let has_name = |named: &&NamedCertificate| {
            asked.is_some_and(|asked| named.names.iter().any(|name| matches_host(name, asked)))
        };
        let by_name = self.certificates.iter().filter(has_name);
        let mut all = by_name.chain(&self.certificates);
        // If the client supports none of the keys, rustls has to end the handshake with the alert
        // handshake_failure [RFC 5246, 7.4.1.3]; without a certificate it would send access_denied.
        let found = all.find(|named| understands(&named.key)).or(self.certificates.first());
        found.map(|named| named.key.clone())
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        self.choose(hello.server_name(), |key| key.key.choose_scheme(schemes).is_some())
    }
}

/// Whether a DNS name of a certificate covers the host `asked`: `*` stands for exactly the leftmost
/// label (RFC 9525, 6.3).
fn matches_host(name: &str, asked: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) => asked
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(domain)),
        None => name.eq_ignore_ascii_case(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        assert!(matches_host("a.example.org", "A.EXAMPLE.org"));
        assert!(matches_host("*.example.org", "a.example.org"));
        assert!(!matches_host("*.example.org", "a.b.example.org"));
        assert!(!matches_host("*.example.org", "example.org"));
        assert!(!matches_host("*.example.org", ".example.org"));
        assert!(!matches_host("a.example.org", "b.example.org"));
    }
}
