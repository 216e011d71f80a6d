//! What says who a client is, and the chain of those that are asked in turn.
//!
//! A backend is asked on a thread of the pool, where it may compute; one that waits for somebody
//! else keeps the [`BackendReply`] and answers from wherever it hears of it. Backends know neither
//! shards nor each other. `contract.rs` is what each of them has to stand.

use super::{Authenticator, has_no_credentials};
use broker::connection::authentication::{AuthDecision, Principal, SecretBytes};
use broker::{AuthRequest, ListenerId, Refusal};
use engine::ConnectionLiveness;
use engine::log_rate_limiter::nonzero;
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

pub trait AuthBackend: Send + Sync {
    /// Returns the name in one word, for logs and options.
    fn name(&self) -> &'static str;

    /// The authentication methods of MQTT 5.0 that it knows. It is asked about clients that name
    /// one of them, and about those that name none.
    fn methods(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it may know a client that brings nothing but its client id.
    fn accepts_client_id_only(&self) -> bool {
        false
    }

    /// Before it is asked for the first time.
    fn start(&self) {}

    /// Answers once, now or later. A reply that is dropped is a fault of the backend's.
    fn authenticate(&self, request: &AuthRequest, reply: BackendReply);
}

#[derive(Debug)]
pub enum BackendOutcome {
    Allow(Box<Principal>),
    /// Too many requests wait.
    Busy,
    /// The client has to say more. What has to be remembered comes back with it.
    Challenge {
        data: Box<[u8]>,
        memory: SecretBytes,
    },
    /// The backend knows the user, and the credentials are wrong. The text is for the log only.
    Deny(&'static str),
    /// The backend does not know the user: the next one is asked.
    Ignore,
    /// The backend cannot decide. A failed backend lets no client in.
    Fail(String),
}

/// Backends in the order in which they are asked.
#[derive(Default)]
pub struct BackendChain {
    pub backends: Vec<Arc<dyn AuthBackend>>,
    /// Whether clients may come in that say nothing of who they are.
    pub anonymous: bool,
}

impl BackendChain {
    pub fn methods(&self) -> Arc<[Box<str>]> {
        let methods = self.backends.iter().flat_map(|backend| backend.methods());
        methods.map(|method| Box::from(*method)).collect()
    }

    /// Whether nobody of it could know more of the client than is known already.
    pub fn skips_all_backends(&self, request: &AuthRequest) -> bool {
        has_no_credentials(request)
            && request.certificate.is_none()
            && !self.backends.iter().any(|backend| backend.accepts_client_id_only())
    }
}

/// The chain of each listener: `all` is that of listeners without one of their own.
#[derive(Default)]
pub struct ListenerChains {
    pub all: Arc<BackendChain>,
    /// By `ListenerId`.
    pub own: Vec<Option<Arc<BackendChain>>>,
}

impl From<BackendChain> for ListenerChains {
    fn from(chain: BackendChain) -> ListenerChains {
        ListenerChains { all: Arc::new(chain), own: Vec::new() }
    }
}

impl ListenerChains {
    pub fn chain_of_listener(&self, at: ListenerId) -> &Arc<BackendChain> {
        self.own.get(usize::from(at.0)).and_then(Option::as_ref).unwrap_or(&self.all)
    }

    /// A backend that several chains share begins once.
    pub fn start_backends(&self) {
        let mut begun: Vec<&Arc<dyn AuthBackend>> = Vec::new();
        let own = self.own.iter().flatten();
        for backend in own.chain([&self.all]).flat_map(|chain| &chain.backends) {
            if !begun.iter().any(|other| Arc::ptr_eq(other, backend)) {
                backend.start();
                begun.push(backend);
            }
        }
    }
}

/// A client at the door, and how far it has come.
pub struct AuthAttempt {
    pub request: Arc<AuthRequest>,
    pub chain: Arc<BackendChain>,
    pub backend_index: usize,
    /// When the client came.
    pub arrived_at: Instant,
    /// Liveness of the connection: no backend is asked about a closed one.
    pub liveness: ConnectionLiveness,
    /// Instead of asking the backend whose turn it is, which has heard what it needs.
    pub work: Option<BackendTask>,
    pub answer: Box<dyn FnOnce(AuthDecision) + Send>,
}

/// Remaining computation of a backend, for a thread of the authenticator.
pub struct BackendTask(Box<dyn FnOnce(&AuthRequest) -> BackendOutcome + Send>);

/// Receives the outcome of one backend.
pub struct BackendReply {
    attempt: Option<Box<AuthAttempt>>,
    authenticator: Arc<Authenticator>,
}

impl AuthAttempt {
    /// Asks the backend whose turn it is.
    pub fn ask_next_backend(mut self, authenticator: &Arc<Authenticator>) {
        let chain = self.chain.clone();
        let knows = |backend: &Arc<dyn AuthBackend>| match &self.request.step {
            Some(step) => backend.methods().contains(&&*step.method),
            None => true,
        };
        let rest = chain.backends.iter().enumerate().skip(self.backend_index);
        let Some((at, backend)) = rest.into_iter().find(|(_, backend)| knows(backend)) else {
            return self.finish_unknown(authenticator);
        };
        self.backend_index = at;
        let (request, work) = (self.request.clone(), self.work.take());
        let reply =
            BackendReply { attempt: Some(Box::new(self)), authenticator: authenticator.clone() };
        match work {
            Some(BackendTask(work)) => reply.send(work(&request)),
            None => backend.authenticate(&request, reply),
        }
    }

    /// Finishes a request that no backend knows. A client without a user name may be allowed as
    /// anonymous.
    pub fn finish_unknown(self, authenticator: &Arc<Authenticator>) {
        let verdict = match (has_no_credentials(&self.request), self.chain.anonymous) {
            (true, true) => Ok(("none", Box::default())),
            (true, false) => Err(("none", "it did not say who it is", Refusal::NotWelcome)),
            (false, _) => Err(("none", "unknown to all", Refusal::BadCredentials)),
        };
        self.finish(authenticator, verdict);
    }

    /// Finishes a request. Outcomes of an earlier chain of backends are discarded, and the request
    /// starts again.
    fn finish(
        mut self,
        authenticator: &Arc<Authenticator>,
        verdict: Result<(&'static str, Box<Principal>), (&'static str, &str, Refusal)>,
    ) {
        let chain = authenticator.state().chains.chain_of_listener(self.request.listener).clone();
        if !Arc::ptr_eq(&chain, &self.chain) {
            (self.chain, self.backend_index, self.work) = (chain, 0, None);
            return match self.chain.skips_all_backends(&self.request) {
                true => self.finish_unknown(authenticator),
                false => authenticator.requeue_attempt(self),
            };
        }
        let (peer, client_id) = (self.request.peer, &self.request.client_id);
        let claimed = mask_token(self.request.user_name.as_deref().unwrap_or_default());
        match verdict {
            Ok((backend, principal)) => {
                let user = principal.user.as_deref().unwrap_or_default();
                debug!(target: "godwit::auth", %peer, %client_id, %user, backend, "let in");
                (self.answer)(AuthDecision::Allow(principal));
            }
            Err((backend, why, refusal)) => {
                let (client_id, user) = (client_id.clone(), claimed.to_string());
                let why = why.to_string();
                authenticator.log_refusal(move |count| {
                    let withheld = nonzero(count - 1);
                    info!(
                        target: "godwit::auth", %peer, %client_id, %user, backend, why, withheld,
                        "not let in"
                    );
                });
                if refusal == Refusal::BadCredentials {
                    authenticator.count_failure(peer.into());
                }
                (self.answer)(AuthDecision::Deny(refusal));
            }
        }
    }
}

/// A user name for logs. Some clients have a token in its place, which would be good for whoever
/// reads it.
fn mask_token(user_name: &str) -> &str {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte);
    let parts = user_name.split('.');
    let is_token = user_name.starts_with("eyJ")
        && parts.clone().count() == 3
        && parts.flat_map(str::bytes).all(is_base64);
    if is_token { "***" } else { user_name }
}

impl BackendReply {
    pub fn send(mut self, outcome: BackendOutcome) {
        self.apply_outcome(outcome);
    }

    /// Returns the request, until there is a decision.
    #[cfg(feature = "remote")]
    pub fn claim(&self) -> Option<Arc<AuthRequest>> {
        self.attempt.as_ref().map(|case| case.request.clone())
    }

    /// Whether the client still waits for the answer.
    #[cfg(feature = "remote")]
    pub fn liveness(&self) -> ConnectionLiveness {
        self.attempt.as_ref().map_or_else(ConnectionLiveness::default, |case| case.liveness.clone())
    }

    /// The client has gone: there is nobody to answer.
    #[cfg(feature = "remote")]
    pub fn abandon(mut self) {
        self.attempt = None;
    }

    /// The rest is work, which a thread of the authenticator's does.
    #[cfg(feature = "remote")]
    pub fn run_later(mut self, work: impl FnOnce(&AuthRequest) -> BackendOutcome + Send + 'static) {
        let Some(mut case) = self.attempt.take() else { return };
        case.work = Some(BackendTask(Box::new(work)));
        self.authenticator.requeue_attempt(*case);
    }

    fn apply_outcome(&mut self, outcome: BackendOutcome) {
        let Some(mut case) = self.attempt.take() else { return };
        let backend =
            case.chain.backends.get(case.backend_index).map_or("", |backend| backend.name());
        match outcome {
            BackendOutcome::Allow(principal) => {
                case.finish(&self.authenticator, Ok((backend, principal)))
            }
            BackendOutcome::Busy => {
                case.finish(&self.authenticator, Err((backend, "too many ask", Refusal::TooBusy)));
            }
            BackendOutcome::Challenge { data, memory } => {
                (case.answer)(AuthDecision::Challenge { data, memory });
            }
            BackendOutcome::Deny(why) => {
                case.finish(&self.authenticator, Err((backend, why, Refusal::BadCredentials)));
            }
            BackendOutcome::Ignore => {
                case.backend_index += 1;
                self.authenticator.requeue_attempt(*case);
            }
            BackendOutcome::Fail(why) => {
                warn!(target: "godwit::auth", backend, %why, "nobody can say who a client is");
                case.finish(
                    &self.authenticator,
                    Err((backend, "it cannot say", Refusal::NoVerdict)),
                );
            }
        }
    }
}

impl Drop for BackendReply {
    fn drop(&mut self) {
        self.apply_outcome(BackendOutcome::Fail("it gave no answer".into()));
    }
}

#[cfg(test)]
mod tests {
    use super::mask_token;

    #[test]
    fn a_token_is_no_name_for_logs() {
        assert_eq!(mask_token("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln-_"), "***");
        for name in ["ann", "eyJ", "a.b.c", "eyJ.b.c/d", ""] {
            assert_eq!(mask_token(name), name);
        }
    }
}
