//! Authentication by client certificate: the transport has verified the certificate, and this
//! backend reads the name in it.

use super::backend::{AuthBackend, BackendOutcome, BackendReply};
use broker::peer::authentication::Principal;
use broker::{AuthRequest, PeerCertificate};

/// Part of a certificate that is used as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateNameField {
    AlternativeName,
    CommonName,
    Subject,
}

impl CertificateNameField {
    fn extract_name(self, certificate: &PeerCertificate) -> Option<String> {
        let name = match self {
            CertificateNameField::AlternativeName => {
                certificate.alternatives.first().map(ToString::to_string)
            }
            CertificateNameField::CommonName => {
                certificate.common_name.as_deref().map(String::from)
            }
            CertificateNameField::Subject => Some(certificate.subject.to_string()),
        };
        name.filter(|name| !name.is_empty())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateBackend {
    pub user: CertificateNameField,
    pub client_id: Option<CertificateNameField>,
}

impl CertificateBackend {
    /// Authenticates by the certificate. Without a certificate the next backend is asked; a
    /// certificate without the name is refused, without a try of the password.
    fn check(self, request: &AuthRequest) -> BackendOutcome {
        let Some(certificate) = &request.certificate else { return BackendOutcome::Ignore };
        let Some(user) = self.user.extract_name(certificate) else {
            return BackendOutcome::Deny("the certificate has no such name");
        };
        let client_id = match self.client_id.map(|part| part.extract_name(certificate)) {
            None => None,
            Some(Some(name)) => Some(name.into()),
            Some(None) => return BackendOutcome::Deny("the certificate has no such name"),
        };
        let principal = Principal { user: Some(user.into()), client_id, ..Principal::default() };
        BackendOutcome::Allow(Box::new(principal))
    }
}

impl AuthBackend for CertificateBackend {
    fn name(&self) -> &'static str {
        "certificate"
    }

    fn authenticate(&self, request: &AuthRequest, reply: BackendReply) {
        reply.send(self.check(request));
    }
}
