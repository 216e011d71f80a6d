//! A client's certificate as its name: the transport has checked it, here is read what it says.

use super::backend::{Backend, Outcome, Reply};
use broker::judge::Grant;
use broker::{Certificate, Claim};

/// What of a certificate is a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    AlternativeName,
    CommonName,
    Subject,
}

impl Part {
    fn of(self, certificate: &Certificate) -> Option<String> {
        let name = match self {
            Part::AlternativeName => certificate.alternatives.first().map(ToString::to_string),
            Part::CommonName => certificate.common_name.as_deref().map(String::from),
            Part::Subject => Some(certificate.subject.to_string()),
        };
        name.filter(|name| !name.is_empty())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) user: Part,
    pub(crate) client_id: Option<Part>,
}

impl Certificates {
    /// A client that came without one is for the next backend; one that names nobody is a fault of
    /// whoever made it, and no reason to try a password.
    fn check(self, claim: &Claim) -> Outcome {
        let Some(certificate) = &claim.certificate else { return Outcome::Ignore };
        let Some(user) = self.user.of(certificate) else {
            return Outcome::Deny("the certificate has no such name");
        };
        let client_id = match self.client_id.map(|part| part.of(certificate)) {
            None => None,
            Some(Some(name)) => Some(name.into()),
            Some(None) => return Outcome::Deny("the certificate has no such name"),
        };
        let grant = Grant { user: Some(user.into()), client_id, ..Grant::default() };
        Outcome::Allow(Box::new(grant))
    }
}

impl Backend for Certificates {
    fn name(&self) -> &'static str {
        "certificate"
    }

    fn judge(&self, claim: &Claim, reply: Reply) {
        reply.give(self.check(claim));
    }
}
