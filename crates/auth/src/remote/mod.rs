//! Backends that call another server: a few connections, queued requests, and the behaviour with a
//! slow or lost server.
//!
//! Requests run on the control plane's runtime. Computation, such as a password check against a
//! hash from the server, returns to the threads of the [`Authenticator`](crate::Authenticator).

#[cfg(feature = "http")]
pub mod http_call;
pub mod template;

use super::backend::{AuthBackend, BackendOutcome, BackendReply};
use super::password_format::StoredPassword;
use super::verified_cache::VerifiedCache;
use broker::AuthRequest;
use broker::peer::authentication::Principal;
use net::control_runtime::ControlRuntime;
use net::server_pool::{ConnectionPool, PoolError, RemoteLimits, RemoteServer, RequestGuard};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Values of the option rows for all remote backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSettings {
    /// File of trusted CAs; if empty, the CAs of the host.
    pub authorities: PathBuf,
    pub bounds: RemoteLimits,
}

/// A server that authenticates clients.
pub trait IdentityServer: RemoteServer<Question = AuthRequest, Reply = IdentityLookup> {
    fn name(&self) -> &'static str;

    /// Whether the server may know the client, given the request's credentials.
    fn can_identify(&self, request: &AuthRequest) -> bool;

    /// Whether the server may identify a client by its client identifier alone.
    fn accepts_client_id_only(&self) -> bool {
        false
    }

    /// Returns a cached outcome that is still valid.
    fn cached_outcome(&self, _claim: &AuthRequest) -> Option<BackendOutcome> {
        None
    }
}

/// A server's answer about a client.
pub enum IdentityLookup {
    Verdict(BackendOutcome),
    /// The client is `principal` if its password matches `stored`.
    Proof {
        stored: StoredPassword,
        principal: Box<Principal>,
    },
    /// The server does not know the client.
    UnknownClient,
}

/// A backend that sends requests to a server.
pub struct RemoteBackend<S: RemoteServer> {
    pool: Arc<ConnectionPool<S>>,
    runtime: Arc<ControlRuntime>,
    passwords: Arc<PasswordVerifier>,
}

/// Verifies passwords against [`StoredPassword`]s from the server.
#[derive(Default)]
struct PasswordVerifier {
    /// A [`StoredPassword`] to verify against for clients that the server does not know.
    decoy: OnceLock<StoredPassword>,
    /// Cache of recently verified passwords.
    verified: Option<Arc<VerifiedCache>>,
}

impl<S: RemoteServer> RemoteBackend<S> {
    pub fn new(server: S, bounds: RemoteLimits, runtime: Arc<ControlRuntime>) -> RemoteBackend<S> {
        RemoteBackend {
            pool: ConnectionPool::new(server, bounds),
            runtime,
            passwords: Arc::default(),
        }
    }

    /// Sets the [`VerifiedCache`] of recently verified passwords.
    pub fn remember_in(self, verified: Option<Arc<VerifiedCache>>) -> RemoteBackend<S> {
        let passwords = Arc::new(PasswordVerifier { verified, ..PasswordVerifier::default() });
        RemoteBackend { passwords, ..self }
    }
}

impl<S: IdentityServer> AuthBackend for RemoteBackend<S> {
    fn name(&self) -> &'static str {
        self.pool.server().name()
    }

    fn accepts_client_id_only(&self) -> bool {
        self.pool.server().accepts_client_id_only()
    }

    fn authenticate(&self, request: &AuthRequest, reply: BackendReply) {
        let server = self.pool.server();
        if !server.can_identify(request) {
            return reply.send(BackendOutcome::Ignore);
        }
        if let Some(outcome) = server.cached_outcome(request) {
            return reply.send(outcome);
        }
        let Some(guard) = RequestGuard::new(self.pool.clone()) else {
            return reply.send(BackendOutcome::Busy);
        };
        let passwords = self.passwords.clone();
        self.runtime.spawn(async move {
            let Some(request) = reply.claim() else { return };
            match guard.run(&request, &reply.liveness()).await {
                Ok(IdentityLookup::Verdict(outcome)) => reply.send(outcome),
                Ok(IdentityLookup::Proof { stored, principal }) => {
                    reply.run_later(move |request| passwords.check(request, stored, principal));
                }
                Ok(IdentityLookup::UnknownClient) => {
                    reply.run_later(move |request| passwords.simulate_check(request));
                }
                Err(PoolError::Abandoned) => reply.abandon(),
                Err(PoolError::Busy) => reply.send(BackendOutcome::Busy),
                Err(PoolError::Failed(why)) => reply.send(BackendOutcome::Fail(why)),
            }
        });
    }
}

impl PasswordVerifier {
    fn check(
        &self,
        request: &AuthRequest,
        stored: StoredPassword,
        principal: Box<Principal>,
    ) -> BackendOutcome {
        let Some(password) = &request.password else { return BackendOutcome::Ignore };
        let is_right = stored.verify_with_cache(&password.0, self.verified.as_deref());
        let _ = self.decoy.set(stored);
        if is_right {
            BackendOutcome::Allow(principal)
        } else {
            BackendOutcome::Deny("wrong password")
        }
    }

    /// Does the work of a password check for an unknown client, so that response times do not
    /// reveal known names.
    fn simulate_check(&self, request: &AuthRequest) -> BackendOutcome {
        if let (Some(stored), Some(password)) = (self.decoy.get(), &request.password) {
            stored.simulate_verify(&password.0, self.verified.as_deref());
        }
        BackendOutcome::Ignore
    }
}
