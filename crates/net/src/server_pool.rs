//! A few connections to a server, questions that wait for one, and what happens when the server is
//! slow or gone. Everything here runs on the control plane's runtime.

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
    /// Connections to one server.
    pub connections_max: usize,
    /// Questions that wait for one, or for an answer.
    pub questions_max: usize,
}

/// A kind of server: how to connect to it, and how to ask.
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

/// Words for the log, without secrets.
#[derive(Debug)]
pub enum RemoteError {
    /// The connection is good for the next question.
    ErrorReply(String),
    Broken(String),
}

/// Connections to a server, and the requests that wait for one.
pub struct ConnectionPool<S: RemoteServer> {
    server: S,
    bounds: RemoteLimits,
    /// Questions that are not answered yet.
    in_flight: AtomicUsize,
    /// Permits, one for each connection that may be in use.
    turns: Arc<ConnectionQueue>,
    idle: Mutex<Vec<IdleConnection<S::Conn>>>,
    backoff: Mutex<DialBackoff>,
}

/// Why a question has no answer. Words are for the log, without secrets.
#[derive(Debug)]
pub enum PoolError {
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

/// A question that counts until it is dropped.
pub struct RequestGuard<S: RemoteServer> {
    desk: Arc<ConnectionPool<S>>,
}

impl<S: RemoteServer> RequestGuard<S> {
    /// Adds a request. Where there are too many, the one that has waited longest is dropped; `None`
    /// if all of them are being answered.
    pub fn new(desk: Arc<ConnectionPool<S>>) -> Option<RequestGuard<S>> {
        let before = desk.in_flight.fetch_add(1, Ordering::Relaxed);
        let asked = RequestGuard { desk };
        let has_room = before < asked.desk.bounds.questions_max;
        (has_room || asked.desk.turns.evict_oldest()).then_some(asked)
    }

    /// The answer within its time, or why there is none.
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
    /// Returns the server that is asked.
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
