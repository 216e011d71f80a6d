//! Authentication backends, and the chain of backends that are asked in turn.
//!
//! A backend is called on a thread of the authenticator, where it may compute. A backend that waits
//! for a server stores the [`BackendReply`] and answers from any thread. Backends know neither
//! shards nor each other. The tests in `contract` apply to every backend.

use super::{Authenticator, has_no_credentials};
use broker::peer::authentication::{Principal, SecretBytes};
use broker::{AuthDecision, AuthRequest, ListenerId, Refusal};
use engine::ConnectionLiveness;
use engine::limited_log::nonzero;
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

pub trait AuthBackend: Send + Sync {
    /// Returns the name in one word, for logs and options.
    fn name(&self) -> &'static str;

    /// Returns the authentication methods of MQTT 5.0 that the backend supports. The backend is
    /// asked about clients with one of these methods, and about clients without a method.
    fn methods(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the backend may identify a client by the client identifier alone, without a user
    /// name.
    fn accepts_client_id_only(&self) -> bool {
        false
    }

    /// Starts background work of the backend. [`ListenerChains::start_backends`] calls the function
    /// when the chains are installed, before any request.
    fn start(&self) {}

    /// Answers once by `reply`, at once or later. A dropped `reply` counts as
    /// [`BackendOutcome::Fail`].
    fn authenticate(&self, request: &AuthRequest, reply: BackendReply);
}

#[derive(Debug)]
pub enum BackendOutcome {
    Allow(Box<Principal>),
    /// Too many requests are queued: [`Refusal::TooBusy`].
    Busy,
    /// The client has to continue with AUTH. `memory` is passed back to the backend with the next
    /// step.
    Challenge {
        data: Box<[u8]>,
        memory: SecretBytes,
    },
    /// The user is known and the credentials are wrong. The text is for the log only.
    Deny(&'static str),
    /// The user is unknown: the next backend is asked.
    Ignore,
    /// The backend cannot decide, and the client is refused with [`Refusal::NoVerdict`].
    Fail(String),
}

/// Backends in the order in which they are asked.
#[derive(Default)]
pub struct BackendChain {
    pub backends: Vec<Arc<dyn AuthBackend>>,
    /// Whether clients without credentials are admitted.
    pub anonymous: bool,
}

impl BackendChain {
    pub fn methods(&self) -> Arc<[Box<str>]> {
        let methods = self.backends.iter().flat_map(|backend| backend.methods());
        methods.map(|method| Box::from(*method)).collect()
    }

    /// Whether no backend of the chain can identify the client: no credentials, no certificate, and
    /// no backend that `accepts_client_id_only`.
    pub fn skips_all_backends(&self, request: &AuthRequest) -> bool {
        has_no_credentials(request)
            && request.certificate.is_none()
            && !self.backends.iter().any(|backend| backend.accepts_client_id_only())
    }
}

/// The chain of each listener; `all` applies to listeners without their own chain.
#[derive(Default)]
pub struct ListenerChains {
    pub all: Arc<BackendChain>,
    /// Chain of each listener that has its own, indexed by `ListenerId`.
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

    /// Starts each backend once, even if several chains share the backend.
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

/// The authentication of a client, with the position in its [`BackendChain`].
pub struct AuthAttempt {
    pub request: Arc<AuthRequest>,
    pub chain: Arc<BackendChain>,
    pub backend_index: usize,
    /// Time when the request arrived.
    pub arrived_at: Instant,
    /// Liveness of the connection: no backend is asked about a closed connection.
    pub liveness: ConnectionLiveness,
    /// Remaining computation of the current backend. A thread runs `work`, if present, in place of
    /// a new request to the backend.
    pub work: Option<BackendTask>,
    pub answer: Box<dyn FnOnce(AuthDecision) + Send>,
}

/// Remaining computation of a backend, run by a thread of the [`Authenticator`].
pub struct BackendTask(Box<dyn FnOnce(&AuthRequest) -> BackendOutcome + Send>);

/// Receives the outcome of one [`AuthBackend`].
pub struct BackendReply {
    attempt: Option<Box<AuthAttempt>>,
    authenticator: Arc<Authenticator>,
}

impl AuthAttempt {
    /// Asks the next backend that supports the request's authentication method.
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

    /// Finishes a request that no backend recognized. A client without credentials is admitted if
    /// [`BackendChain::anonymous`] is set.
    pub fn finish_unknown(self, authenticator: &Arc<Authenticator>) {
        let verdict = match (has_no_credentials(&self.request), self.chain.anonymous) {
            (true, true) => Ok(("none", Box::default())),
            (true, false) => Err(("none", "it did not say who it is", Refusal::NotWelcome)),
            (false, _) => Err(("none", "unknown to all", Refusal::BadCredentials)),
        };
        self.finish(authenticator, verdict);
    }

    /// Finishes a request. An outcome of a replaced [`BackendChain`] is discarded, and the request
    /// starts again with the new chain.
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

/// Returns a user name for logs; a token (a JWT in the user name) is masked, since a reader of the
/// log could use it.
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

    /// Returns the request, or `None` after the decision.
    pub fn claim(&self) -> Option<Arc<AuthRequest>> {
        self.attempt.as_ref().map(|case| case.request.clone())
    }

    /// Returns the liveness of the client's connection; default after the decision.
    pub fn liveness(&self) -> ConnectionLiveness {
        self.attempt.as_ref().map_or_else(ConnectionLiveness::default, |case| case.liveness.clone())
    }

    /// Drops the request without a decision, for a closed connection.
    pub fn abandon(mut self) {
        self.attempt = None;
    }

    /// Continues with `work` on a thread of the authenticator.
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
