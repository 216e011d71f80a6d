//! What says who a client is, and the chain of those that are asked in turn.
//!
//! A backend is asked on a thread of the pool, where it may compute; one that waits for somebody
//! else keeps the [`Reply`] and answers from wherever it hears of it. Backends know neither shards
//! nor each other. `contract.rs` is what each of them has to stand.

use super::{Porter, is_nobody};
use crate::notes::some;
use broker::judge::{Grant, Secret, Verdict};
use broker::{Claim, ListenerId, Refusal};
use engine::ConnectionLiveness;
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

pub(crate) trait Backend: Send + Sync {
    /// One word, for logs and options.
    fn name(&self) -> &'static str;

    /// The authentication methods of MQTT 5.0 that it knows. It is asked about clients that name
    /// one of them, and about those that name none.
    fn methods(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it may know a client that brings nothing but its client id.
    fn is_for_unproven(&self) -> bool {
        false
    }

    /// Before it is asked for the first time.
    fn begin(&self) {}

    /// Answers once, now or later. A reply that is dropped is a fault of the backend's.
    fn judge(&self, claim: &Claim, reply: Reply);
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Allow(Box<Grant>),
    /// It has more to answer than it may.
    Busy,
    /// The client has to say more. What has to be remembered comes back with it.
    Challenge {
        data: Box<[u8]>,
        memory: Secret,
    },
    /// It knows the client, and this is not the client. The words are for the log only.
    Deny(&'static str),
    /// It knows nothing of the client: the next one is asked.
    Ignore,
    /// It should know and cannot say. Nobody is let in because a backend is dead.
    Fail(String),
}

/// Backends in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    /// Whether clients may come in that say nothing of who they are.
    pub(crate) anonymous: bool,
}

impl Chain {
    pub(crate) fn methods(&self) -> Arc<[Box<str>]> {
        let methods = self.backends.iter().flat_map(|backend| backend.methods());
        methods.map(|method| Box::from(*method)).collect()
    }

    /// Whether nobody of it could know more of the client than is known already.
    pub(crate) fn leaves_out(&self, claim: &Claim) -> bool {
        is_nobody(claim)
            && claim.certificate.is_none()
            && !self.backends.iter().any(|backend| backend.is_for_unproven())
    }
}

/// The chain of each listener: `all` is that of listeners without one of their own.
#[derive(Default)]
pub(crate) struct ListenerChains {
    pub(crate) all: Arc<Chain>,
    /// By `ListenerId`.
    pub(crate) own: Vec<Option<Arc<Chain>>>,
}

impl From<Chain> for ListenerChains {
    fn from(chain: Chain) -> ListenerChains {
        ListenerChains { all: Arc::new(chain), own: Vec::new() }
    }
}

impl ListenerChains {
    pub(crate) fn of(&self, at: ListenerId) -> &Arc<Chain> {
        self.own.get(usize::from(at.0)).and_then(Option::as_ref).unwrap_or(&self.all)
    }

    /// A backend that several chains share begins once.
    pub(crate) fn begin(&self) {
        let mut begun: Vec<&Arc<dyn Backend>> = Vec::new();
        let own = self.own.iter().flatten();
        for backend in own.chain([&self.all]).flat_map(|chain| &chain.backends) {
            if !begun.iter().any(|other| Arc::ptr_eq(other, backend)) {
                backend.begin();
                begun.push(backend);
            }
        }
    }
}

/// A client at the door, and how far it has come.
pub(crate) struct Case {
    pub(crate) claim: Arc<Claim>,
    pub(crate) chain: Arc<Chain>,
    pub(crate) at: usize,
    /// When the client came.
    pub(crate) since: Instant,
    /// Nobody is asked about a client that has gone.
    pub(crate) liveness: ConnectionLiveness,
    /// Instead of asking the backend whose turn it is, which has heard what it needs.
    pub(crate) work: Option<Work>,
    pub(crate) answer: Box<dyn FnOnce(Verdict) + Send>,
}

/// What a backend has left to compute.
pub(crate) struct Work(Box<dyn FnOnce(&Claim) -> Outcome + Send>);

/// Where one backend's outcome goes.
pub(crate) struct Reply {
    case: Option<Box<Case>>,
    porter: Arc<Porter>,
}

impl Case {
    /// Asks the backend whose turn it is.
    pub(crate) fn go_on(mut self, porter: &Arc<Porter>) {
        let chain = self.chain.clone();
        let knows = |backend: &Arc<dyn Backend>| match &self.claim.step {
            Some(step) => backend.methods().contains(&&*step.method),
            None => true,
        };
        let rest = chain.backends.iter().enumerate().skip(self.at);
        let Some((at, backend)) = rest.into_iter().find(|(_, backend)| knows(backend)) else {
            return self.end_unknown(porter);
        };
        self.at = at;
        let (claim, work) = (self.claim.clone(), self.work.take());
        let reply = Reply { case: Some(Box::new(self)), porter: porter.clone() };
        match work {
            Some(Work(work)) => reply.give(work(&claim)),
            None => backend.judge(&claim, reply),
        }
    }

    /// Nobody knows the client. If it did not say who it is, that may be all right.
    pub(crate) fn end_unknown(self, porter: &Arc<Porter>) {
        let verdict = match (is_nobody(&self.claim), self.chain.anonymous) {
            (true, true) => Ok(("none", Box::default())),
            (true, false) => Err(("none", "it did not say who it is", Refusal::NotWelcome)),
            (false, _) => Err(("none", "unknown to all", Refusal::BadCredentials)),
        };
        self.end(porter, verdict);
    }

    /// What an earlier chain found out says nothing of who may come in today: it begins again.
    fn end(
        mut self,
        porter: &Arc<Porter>,
        verdict: Result<(&'static str, Box<Grant>), (&'static str, &str, Refusal)>,
    ) {
        let chain = porter.state().chains.of(self.claim.listener).clone();
        if !Arc::ptr_eq(&chain, &self.chain) {
            (self.chain, self.at, self.work) = (chain, 0, None);
            return match self.chain.leaves_out(&self.claim) {
                true => self.end_unknown(porter),
                false => porter.go_on_later(self),
            };
        }
        let (peer, client_id) = (self.claim.peer, &self.claim.client_id);
        let claimed = shown(self.claim.user_name.as_deref().unwrap_or_default());
        match verdict {
            Ok((backend, grant)) => {
                let user = grant.user.as_deref().unwrap_or_default();
                debug!(target: "godwit::auth", %peer, %client_id, %user, backend, "let in");
                (self.answer)(Verdict::Allow(grant));
            }
            Err((backend, why, refusal)) => {
                let (client_id, user) = (client_id.clone(), claimed.to_string());
                let why = why.to_string();
                porter.tell_refusal(move |count| {
                    let withheld = some(count - 1);
                    info!(
                        target: "godwit::auth", %peer, %client_id, %user, backend, why, withheld,
                        "not let in"
                    );
                });
                if refusal == Refusal::BadCredentials {
                    porter.fail(peer.into());
                }
                (self.answer)(Verdict::Deny(refusal));
            }
        }
    }
}

/// A user name for logs. Some clients have a token in its place, which would be good for whoever
/// reads it.
fn shown(user_name: &str) -> &str {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte);
    let parts = user_name.split('.');
    let is_token = user_name.starts_with("eyJ")
        && parts.clone().count() == 3
        && parts.flat_map(str::bytes).all(is_base64);
    if is_token { "***" } else { user_name }
}

impl Reply {
    pub(crate) fn give(mut self, outcome: Outcome) {
        self.pass_on(outcome);
    }

    /// Who is asked about, until there is an answer.
    #[cfg(feature = "remote")]
    pub(crate) fn claim(&self) -> Option<Arc<Claim>> {
        self.case.as_ref().map(|case| case.claim.clone())
    }

    /// Whether the client still waits for the answer.
    #[cfg(feature = "remote")]
    pub(crate) fn liveness(&self) -> ConnectionLiveness {
        self.case.as_ref().map_or_else(ConnectionLiveness::default, |case| case.liveness.clone())
    }

    /// The client has gone: there is nobody to answer.
    #[cfg(feature = "remote")]
    pub(crate) fn abandon(mut self) {
        self.case = None;
    }

    /// The rest is work, which a thread of the porter's does.
    #[cfg(feature = "remote")]
    pub(crate) fn work_out(mut self, work: impl FnOnce(&Claim) -> Outcome + Send + 'static) {
        let Some(mut case) = self.case.take() else { return };
        case.work = Some(Work(Box::new(work)));
        self.porter.go_on_later(*case);
    }

    fn pass_on(&mut self, outcome: Outcome) {
        let Some(mut case) = self.case.take() else { return };
        let backend = case.chain.backends.get(case.at).map_or("", |backend| backend.name());
        match outcome {
            Outcome::Allow(grant) => case.end(&self.porter, Ok((backend, grant))),
            Outcome::Busy => {
                case.end(&self.porter, Err((backend, "too many ask", Refusal::TooBusy)));
            }
            Outcome::Challenge { data, memory } => {
                (case.answer)(Verdict::Challenge { data, memory });
            }
            Outcome::Deny(why) => {
                case.end(&self.porter, Err((backend, why, Refusal::BadCredentials)));
            }
            Outcome::Ignore => {
                case.at += 1;
                self.porter.go_on_later(*case);
            }
            Outcome::Fail(why) => {
                warn!(target: "godwit::auth", backend, %why, "nobody can say who a client is");
                case.end(&self.porter, Err((backend, "it cannot say", Refusal::NoVerdict)));
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.pass_on(Outcome::Fail("it gave no answer".into()));
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_token_is_no_name_for_logs() {
        assert_eq!(shown("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln-_"), "***");
        for name in ["ann", "eyJ", "a.b.c", "eyJ.b.c/d", ""] {
            assert_eq!(shown(name), name);
        }
    }
}
