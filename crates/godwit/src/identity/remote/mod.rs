//! Backends that ask another server: a few connections to it, questions that wait for one, and
//! what happens when it is slow or gone.
//!
//! Everything here runs on the control plane's runtime. What costs work, such as checking a
//! password against a hash that the server gave, goes back to the authenticator's threads.

mod connection_queue;
pub(crate) mod endpoint;
#[cfg(feature = "http")]
pub(crate) mod http_call;
#[cfg(feature = "http")]
pub(crate) mod http_client;
pub(crate) mod server_url;
pub(crate) mod template;

use super::backend::{AuthBackend, BackendOutcome, BackendReply};
#[cfg(feature = "tables")]
use super::password_format::StoredPassword;
#[cfg(feature = "tables")]
use super::verified_cache::VerifiedCache;
use crate::control_runtime::ControlRuntime;
use crate::pause_aware_timeout::timeout;
use broker::AuthRequest;
#[cfg(feature = "tables")]
use broker::authentication::Principal;
use connection_queue::{ConnectionQueue, RequestEvicted};
use engine::ConnectionLiveness;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Values of the option rows for all remote backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteSettings {
    /// File of trusted CAs; the host's own list if it is empty.
    pub(crate) authorities: PathBuf,
    pub(crate) bounds: RemoteLimits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteLimits {
    pub(crate) timeout_ms: u32,
    /// Connections to one server.
    pub(crate) connections_max: usize,
    /// Questions that wait for one, or for an answer.
    pub(crate) questions_max: usize,
}

/// A kind of server: how to connect to it, and how to ask.
pub(crate) trait RemoteServer: Send + Sync + 'static {
    type Conn: Send + 'static;
    type Question: Send + Sync;
    type Reply: Send;

    fn connect(&self) -> impl Future<Output = Result<Self::Conn, String>> + Send;

    fn request(
        &self,
        conn: &mut Self::Conn,
        question: &Self::Question,
    ) -> impl Future<Output = Result<Self::Reply, RemoteError>> + Send;
}

/// A server that authenticates clients.
pub(crate) trait IdentityServer:
    RemoteServer<Question = AuthRequest, Reply = IdentityLookup>
{
    fn name(&self) -> &'static str;

    /// Whether it could know the client at all.
    fn can_identify(&self, request: &AuthRequest) -> bool;

    /// Whether it may know a client that brings nothing but its client id.
    fn accepts_client_id_only(&self) -> bool {
        false
    }

    /// An answer of its that is still good.
    fn cached_outcome(&self, _claim: &AuthRequest) -> Option<BackendOutcome> {
        None
    }
}

/// A server's answer about a client.
pub(crate) enum IdentityLookup {
    Verdict(BackendOutcome),
    /// The client is who this says if it has the password.
    #[cfg(feature = "tables")]
    Proof {
        stored: StoredPassword,
        principal: Box<Principal>,
    },
    /// No such client.
    #[cfg(feature = "tables")]
    UnknownClient,
}

/// Words for the log, without secrets.
#[derive(Debug)]
pub(crate) enum RemoteError {
    /// The connection is good for the next question.
    ErrorReply(String),
    Broken(String),
}

pub(crate) struct RemoteBackend<S: RemoteServer> {
    pool: Arc<ConnectionPool<S>>,
    runtime: Arc<ControlRuntime>,
}

/// Connections to a server, and the requests that wait for one.
pub(crate) struct ConnectionPool<S: RemoteServer> {
    server: S,
    bounds: RemoteLimits,
    /// Questions that are not answered yet.
    in_flight: AtomicUsize,
    /// Permits, one for each connection that may be in use.
    turns: Arc<ConnectionQueue>,
    idle: Mutex<Vec<IdleConnection<S::Conn>>>,
    backoff: Mutex<DialBackoff>,
    /// A hash to work on for clients that the server does not know.
    #[cfg(feature = "tables")]
    decoy: std::sync::OnceLock<StoredPassword>,
    #[cfg(feature = "tables")]
    verified: std::sync::OnceLock<Arc<VerifiedCache>>,
}

/// Why a question has no answer. Words are for the log, without secrets.
#[derive(Debug)]
pub(crate) enum PoolError {
    /// Its client has gone.
    Abandoned,
    /// The request was dropped in favour of a newer one.
    Busy,
    Failed(String),
}

struct IdleConnection<C> {
    conn: C,
    since: Instant,
}

/// After a connection that failed nobody tries for a while.
#[derive(Default)]
struct DialBackoff {
    until: Option<Instant>,
    pause: Duration,
    why: String,
}

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest idle time of a reused connection: a firewall may have dropped it after a longer one.
const IDLE_MAX: Duration = Duration::from_secs(60);

impl<S: RemoteServer> RemoteBackend<S> {
    pub(crate) fn new(
        server: S,
        bounds: RemoteLimits,
        runtime: Arc<ControlRuntime>,
    ) -> RemoteBackend<S> {
        RemoteBackend { pool: ConnectionPool::new(server, bounds), runtime }
    }

    /// Passwords that were right are not hashed again for a while.
    #[cfg(feature = "tables")]
    pub(crate) fn remember_in(self, verified: Option<Arc<VerifiedCache>>) -> RemoteBackend<S> {
        if let Some(verified) = verified {
            let _ = self.pool.verified.set(verified);
        }
        self
    }
}

impl<S: IdentityServer> AuthBackend for RemoteBackend<S> {
    fn name(&self) -> &'static str {
        self.pool.server.name()
    }

    fn accepts_client_id_only(&self) -> bool {
        self.pool.server.accepts_client_id_only()
    }

    fn authenticate(&self, request: &AuthRequest, reply: BackendReply) {
        let desk = &self.pool;
        if !desk.server.can_identify(request) {
            return reply.send(BackendOutcome::Ignore);
        }
        if let Some(outcome) = desk.server.cached_outcome(request) {
            return reply.send(outcome);
        }
        let Some(asked) = RequestGuard::new(desk.clone()) else {
            return reply.send(BackendOutcome::Busy);
        };
        self.runtime.spawn(async move { asked.authenticate(reply).await });
    }
}

/// A question that counts until it is dropped.
pub(crate) struct RequestGuard<S: RemoteServer> {
    desk: Arc<ConnectionPool<S>>,
}

impl<S: RemoteServer> RequestGuard<S> {
    /// Adds a request. Where there are too many, the one that has waited longest is dropped; `None`
    /// if all of them are being answered.
    pub(crate) fn new(desk: Arc<ConnectionPool<S>>) -> Option<RequestGuard<S>> {
        let before = desk.in_flight.fetch_add(1, Ordering::Relaxed);
        let asked = RequestGuard { desk };
        let has_room = before < asked.desk.bounds.questions_max;
        (has_room || asked.desk.turns.evict_oldest()).then_some(asked)
    }

    /// The answer within its time, or why there is none.
    pub(crate) async fn run(
        &self,
        question: &S::Question,
        liveness: &ConnectionLiveness,
    ) -> Result<S::Reply, PoolError> {
        let ms = self.desk.bounds.timeout_ms;
        let within = Duration::from_millis(u64::from(ms));
        let found = timeout(within, self.desk.request_with_permit(question, liveness)).await;
        let late = |_| Err(PoolError::Failed(format!("no answer within {ms} ms")));
        found.unwrap_or_else(late)
    }
}

impl<S: IdentityServer> RequestGuard<S> {
    async fn authenticate(self, reply: BackendReply) {
        let desk = &self.desk;
        let Some(request) = reply.claim() else { return };
        match self.run(&request, &reply.liveness()).await {
            Ok(IdentityLookup::Verdict(outcome)) => reply.send(outcome),
            #[cfg(feature = "tables")]
            Ok(IdentityLookup::Proof { stored, principal }) => {
                let desk = desk.clone();
                reply.run_later(move |request| desk.check_password(request, stored, principal));
            }
            #[cfg(feature = "tables")]
            Ok(IdentityLookup::UnknownClient) => {
                let desk = desk.clone();
                reply.run_later(move |request| desk.simulate_check(request));
            }
            Err(PoolError::Abandoned) => reply.abandon(),
            Err(PoolError::Busy) => reply.send(BackendOutcome::Busy),
            Err(PoolError::Failed(why)) => reply.send(BackendOutcome::Fail(why)),
        }
    }
}

impl<S: RemoteServer> Drop for RequestGuard<S> {
    fn drop(&mut self) {
        self.desk.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: RemoteServer> ConnectionPool<S> {
    pub(crate) fn new(server: S, bounds: RemoteLimits) -> Arc<ConnectionPool<S>> {
        Arc::new(ConnectionPool {
            server,
            bounds,
            in_flight: AtomicUsize::new(0),
            turns: ConnectionQueue::new(bounds.connections_max),
            idle: Mutex::new(Vec::new()),
            backoff: Mutex::default(),
            #[cfg(feature = "tables")]
            decoy: std::sync::OnceLock::new(),
            #[cfg(feature = "tables")]
            verified: std::sync::OnceLock::new(),
        })
    }

    async fn request_with_permit(
        &self,
        question: &S::Question,
        liveness: &ConnectionLiveness,
    ) -> Result<S::Reply, PoolError> {
        let permit = self.turns.acquire(liveness).await;
        // A client that has gone loses its turn as well.
        if !liveness.is_open() {
            return Err(PoolError::Abandoned);
        }
        let _permit = permit.map_err(|RequestEvicted| PoolError::Busy)?;
        self.request(question).await.map_err(PoolError::Failed)
    }

    async fn request(&self, question: &S::Question) -> Result<S::Reply, String> {
        if let Some(mut conn) = self.take_idle_connection() {
            match self.server.request(&mut conn, question).await {
                // It went while nobody used it, and the others may have gone with it.
                Err(RemoteError::Broken(_)) => self.idle().clear(),
                other => return self.return_connection(conn, other),
            }
        }
        let mut conn = self.connect().await?;
        let found = self.server.request(&mut conn, question).await;
        self.return_connection(conn, found)
    }

    fn return_connection(
        &self,
        conn: S::Conn,
        found: Result<S::Reply, RemoteError>,
    ) -> Result<S::Reply, String> {
        let found = match found {
            Err(RemoteError::Broken(why)) => return Err(why),
            Err(RemoteError::ErrorReply(why)) => Err(why),
            Ok(found) => Ok(found),
        };
        self.idle().push(IdleConnection { conn, since: Instant::now() });
        found
    }

    fn take_idle_connection(&self) -> Option<S::Conn> {
        let mut idle = self.idle();
        idle.retain(|one| one.since.elapsed() < IDLE_MAX);
        idle.pop().map(|one| one.conn)
    }

    async fn connect(&self) -> Result<S::Conn, String> {
        {
            let down = self.down();
            if down.until.is_some_and(|until| Instant::now() < until) {
                return Err(down.why.clone());
            }
        }
        let conn = self.server.connect().await;
        let mut down = self.down();
        match &conn {
            Ok(_) => *down = DialBackoff::default(),
            Err(why) => {
                let now = Instant::now();
                // Several that fail at once are one failure.
                if down.until.is_none_or(|until| until <= now) {
                    down.pause = (down.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                    down.until = Some(now + down.pause);
                    down.why = why.clone();
                }
            }
        }
        conn
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection<S::Conn>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn down(&self) -> MutexGuard<'_, DialBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "tables")]
impl<S: RemoteServer> ConnectionPool<S> {
    fn check_password(
        &self,
        request: &AuthRequest,
        stored: StoredPassword,
        principal: Box<Principal>,
    ) -> BackendOutcome {
        let Some(password) = &request.password else { return BackendOutcome::Ignore };
        let known = self.verified.get().map(Arc::as_ref);
        let is_right = stored.verify_with_cache(&password.0, known);
        let _ = self.decoy.set(stored);
        if is_right {
            BackendOutcome::Allow(principal)
        } else {
            BackendOutcome::Deny("wrong password")
        }
    }

    /// As much work as for somebody else, so that time does not tell who is known.
    fn simulate_check(&self, request: &AuthRequest) -> BackendOutcome {
        if let (Some(stored), Some(password)) = (self.decoy.get(), &request.password) {
            stored.simulate_verify(&password.0, self.verified.get().map(Arc::as_ref));
        }
        BackendOutcome::Ignore
    }
}
