//! Pool of connections to one server, with a bounded queue of requests and a back-off after a
//! failed connection. All code here runs on the control plane's runtime.

use crate::connection_queue::{ConnectionQueue, RequestEvicted};
use crate::pause_aware_timeout::timeout;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use transport::ConnectionLiveness;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteLimits {
    pub timeout_ms: u32,
    /// Largest number of connections to one server.
    pub connections_max: usize,
    /// Largest number of requests that wait for a connection or an answer.
    pub questions_max: usize,
}

/// A kind of server: how to connect and how to send a request.
pub trait RemoteServer: Send + Sync + 'static {
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

/// Error of a request. Texts are for the log and contain no secrets.
#[derive(Debug)]
pub enum RemoteError {
    /// The server reports an error; the connection stays usable.
    ErrorReply(String),
    Broken(String),
    /// The connection failed before the request was sent.
    Unreachable(String),
}

impl RemoteError {
    pub fn into_text(self) -> String {
        let (RemoteError::ErrorReply(why)
        | RemoteError::Broken(why)
        | RemoteError::Unreachable(why)) = self;
        why
    }
}

/// Connections to a server, and the requests that wait for a connection.
pub struct ConnectionPool<S: RemoteServer> {
    server: S,
    bounds: RemoteLimits,
    /// Number of unanswered requests: one for each [`RequestGuard`].
    in_flight: AtomicUsize,
    /// Permits for [`RemoteLimits::connections_max`] connections.
    turns: Arc<ConnectionQueue>,
    idle: Mutex<Vec<IdleConnection<S::Conn>>>,
    backoff: Mutex<DialBackoff>,
}

/// Reason for which a request has no answer. Texts are for the log and contain no secrets.
#[derive(Debug)]
pub enum PoolError {
    /// The client closed its connection, see [`ConnectionLiveness`].
    Abandoned,
    /// The request was evicted in favour of a newer request.
    Busy,
    Failed(String),
}

struct IdleConnection<C> {
    conn: C,
    since: Instant,
}

/// Back-off after a failed connection attempt. The pause doubles with each failure.
#[derive(Default)]
struct DialBackoff {
    until: Option<Instant>,
    pause: Duration,
    why: String,
}

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum idle time of a reused connection: a firewall may have dropped an older one.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Request that counts in `in_flight` until dropped.
pub struct RequestGuard<S: RemoteServer> {
    desk: Arc<ConnectionPool<S>>,
}

impl<S: RemoteServer> RequestGuard<S> {
    /// Adds a request. Above `questions_max`, evicts the longest waiting request; returns `None` if
    /// no request waits for a connection.
    pub fn new(desk: Arc<ConnectionPool<S>>) -> Option<RequestGuard<S>> {
        let before = desk.in_flight.fetch_add(1, Ordering::Relaxed);
        let asked = RequestGuard { desk };
        let has_room = before < asked.desk.bounds.questions_max;
        (has_room || asked.desk.turns.evict_oldest()).then_some(asked)
    }

    /// Returns the answer within `timeout_ms`, or the reason for its absence.
    pub async fn run(
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

impl<S: RemoteServer> Drop for RequestGuard<S> {
    fn drop(&mut self) {
        self.desk.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: RemoteServer> ConnectionPool<S> {
    /// Returns the server of the pool.
    pub fn server(&self) -> &S {
        &self.server
    }

    pub fn new(server: S, bounds: RemoteLimits) -> Arc<ConnectionPool<S>> {
        Arc::new(ConnectionPool {
            server,
            bounds,
            in_flight: AtomicUsize::new(0),
            turns: ConnectionQueue::new(bounds.connections_max),
            idle: Mutex::new(Vec::new()),
            backoff: Mutex::default(),
        })
    }

    async fn request_with_permit(
        &self,
        question: &S::Question,
        liveness: &ConnectionLiveness,
    ) -> Result<S::Reply, PoolError> {
        let permit = self.turns.acquire(liveness).await;
        // A client that closed its connection returns its permit.
        if !liveness.is_open() {
            return Err(PoolError::Abandoned);
        }
        let _permit = permit.map_err(|RequestEvicted| PoolError::Busy)?;
        self.request(question).await.map_err(PoolError::Failed)
    }

    async fn request(&self, question: &S::Question) -> Result<S::Reply, String> {
        if let Some(mut conn) = self.take_idle_connection() {
            match self.server.request(&mut conn, question).await {
                // The connection was lost while idle. All idle connections are dropped, because the
                // other ones may be lost too.
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
        if let Err(RemoteError::Unreachable(why)) = found {
            self.idle().clear();
            self.down().extend(&why);
            return Err(why);
        }
        *self.down() = DialBackoff::default();
        let found = match found {
            Err(RemoteError::Broken(why) | RemoteError::Unreachable(why)) => return Err(why),
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
        conn.inspect_err(|why| self.down().extend(why))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection<S::Conn>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn down(&self) -> MutexGuard<'_, DialBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DialBackoff {
    /// Starts the next pause after a failed attempt. Failures within the present pause have no
    /// effect.
    fn extend(&mut self, why: &str) {
        let now = Instant::now();
        if self.until.is_none_or(|until| until <= now) {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.until = Some(now + self.pause);
            self.why = why.to_string();
        }
    }
}
