//! Backends that ask another server: a few connections to it, questions that wait for one, and
//! what happens when it is slow or gone.
//!
//! Everything here runs on the control plane's runtime. What costs work, such as checking a
//! password against a hash that the server gave, goes back to the porter's threads.

#[cfg(feature = "http")]
pub(crate) mod call;
pub(crate) mod dial;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod template;
pub(crate) mod url;
mod waiting;

use super::backend::{Backend, Outcome, Reply};
#[cfg(feature = "tables")]
use super::password::Stored;
#[cfg(feature = "tables")]
use super::verified::VerifiedCache;
use crate::patience::timeout;
use crate::runtime::Runtime;
use broker::Claim;
#[cfg(feature = "tables")]
use broker::judge::Grant;
use engine::ConnectionLiveness;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use waiting::{ConnectionQueue, TurnLost};

/// What the rows of the table say for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteSettings {
    /// Who vouches for servers; the host's own list where it is empty.
    pub(crate) authorities: PathBuf,
    pub(crate) bounds: Bounds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) timeout_ms: u32,
    /// Connections to one server.
    pub(crate) connections_max: usize,
    /// Questions that wait for one, or for an answer.
    pub(crate) questions_max: usize,
}

/// One kind of server: how to reach it, and how to ask.
pub(crate) trait Server: Send + Sync + 'static {
    type Conn: Send + 'static;
    type Question: Send + Sync;
    type Found: Send;

    fn connect(&self) -> impl Future<Output = Result<Self::Conn, String>> + Send;

    fn ask(
        &self,
        conn: &mut Self::Conn,
        question: &Self::Question,
    ) -> impl Future<Output = Result<Self::Found, Trouble>> + Send;
}

/// One that says who a client is.
pub(crate) trait Identifies: Server<Question = Claim, Found = Found> {
    fn name(&self) -> &'static str;

    /// Whether it could know the client at all.
    fn is_for(&self, claim: &Claim) -> bool;

    /// Whether it may know a client that brings nothing but its client id.
    fn is_for_unproven(&self) -> bool {
        false
    }

    /// An answer of its that is still good.
    fn recall(&self, _claim: &Claim) -> Option<Outcome> {
        None
    }
}

/// What a server says of a client.
pub(crate) enum Found {
    Verdict(Outcome),
    /// The client is who this says if it has the password.
    #[cfg(feature = "tables")]
    Proof {
        stored: Stored,
        grant: Box<Grant>,
    },
    /// No such client.
    #[cfg(feature = "tables")]
    Nobody,
}

/// Words for the log, without secrets.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is good for the next question.
    Answered(String),
    Broken(String),
}

pub(crate) struct Remote<S: Server> {
    desk: Arc<Desk<S>>,
    runtime: Arc<Runtime>,
}

/// Where questions to a server wait.
pub(crate) struct Desk<S: Server> {
    server: S,
    bounds: Bounds,
    /// Questions that are not answered yet.
    asked: AtomicUsize,
    /// One turn for each connection that may be in use.
    turns: Arc<ConnectionQueue>,
    idle: Mutex<Vec<Idle<S::Conn>>>,
    down: Mutex<Down>,
    /// A hash to work on for clients that the server does not know.
    #[cfg(feature = "tables")]
    decoy: std::sync::OnceLock<Stored>,
    #[cfg(feature = "tables")]
    verified: std::sync::OnceLock<Arc<VerifiedCache>>,
}

/// Why a question has no answer. Words are for the log, without secrets.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Its client has gone.
    Abandoned,
    /// It made room for another.
    Busy,
    Failed(String),
}

struct Idle<C> {
    conn: C,
    since: Instant,
}

/// After a connection that failed nobody tries for a while.
#[derive(Default)]
struct Down {
    until: Option<Instant>,
    pause: Duration,
    why: String,
}

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Somebody between us may have forgotten a connection that was quiet for longer.
const IDLE_MAX: Duration = Duration::from_secs(60);

impl<S: Server> Remote<S> {
    pub(crate) fn new(server: S, bounds: Bounds, runtime: Arc<Runtime>) -> Remote<S> {
        Remote { desk: Desk::new(server, bounds), runtime }
    }

    /// Passwords that were right are not hashed again for a while.
    #[cfg(feature = "tables")]
    pub(crate) fn remember_in(self, verified: Option<Arc<VerifiedCache>>) -> Remote<S> {
        if let Some(verified) = verified {
            let _ = self.desk.verified.set(verified);
        }
        self
    }
}

impl<S: Identifies> Backend for Remote<S> {
    fn name(&self) -> &'static str {
        self.desk.server.name()
    }

    fn is_for_unproven(&self) -> bool {
        self.desk.server.is_for_unproven()
    }

    fn judge(&self, claim: &Claim, reply: Reply) {
        let desk = &self.desk;
        if !desk.server.is_for(claim) {
            return reply.give(Outcome::Ignore);
        }
        if let Some(outcome) = desk.server.recall(claim) {
            return reply.give(outcome);
        }
        let Some(asked) = Asked::new(desk.clone()) else { return reply.give(Outcome::Busy) };
        self.runtime.spawn(async move { asked.answer(reply).await });
    }
}

/// A question that counts until it is dropped.
pub(crate) struct Asked<S: Server> {
    desk: Arc<Desk<S>>,
}

impl<S: Server> Asked<S> {
    /// Where there are too many the one that has waited longest makes room; none where all of them
    /// are being answered.
    pub(crate) fn new(desk: Arc<Desk<S>>) -> Option<Asked<S>> {
        let before = desk.asked.fetch_add(1, Ordering::Relaxed);
        let asked = Asked { desk };
        let has_room = before < asked.desk.bounds.questions_max;
        (has_room || asked.desk.turns.evict_oldest()).then_some(asked)
    }

    /// The answer within its time, or why there is none.
    pub(crate) async fn find(
        &self,
        question: &S::Question,
        liveness: &ConnectionLiveness,
    ) -> Result<S::Found, Unanswered> {
        let ms = self.desk.bounds.timeout_ms;
        let within = Duration::from_millis(u64::from(ms));
        let found = timeout(within, self.desk.find(question, liveness)).await;
        let late = |_| Err(Unanswered::Failed(format!("no answer within {ms} ms")));
        found.unwrap_or_else(late)
    }
}

impl<S: Identifies> Asked<S> {
    async fn answer(self, reply: Reply) {
        let desk = &self.desk;
        let Some(claim) = reply.claim() else { return };
        match self.find(&claim, &reply.liveness()).await {
            Ok(Found::Verdict(outcome)) => reply.give(outcome),
            #[cfg(feature = "tables")]
            Ok(Found::Proof { stored, grant }) => {
                let desk = desk.clone();
                reply.work_out(move |claim| desk.check(claim, stored, grant));
            }
            #[cfg(feature = "tables")]
            Ok(Found::Nobody) => {
                let desk = desk.clone();
                reply.work_out(move |claim| desk.pretend(claim));
            }
            Err(Unanswered::Abandoned) => reply.abandon(),
            Err(Unanswered::Busy) => reply.give(Outcome::Busy),
            Err(Unanswered::Failed(why)) => reply.give(Outcome::Fail(why)),
        }
    }
}

impl<S: Server> Drop for Asked<S> {
    fn drop(&mut self) {
        self.desk.asked.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Server> Desk<S> {
    pub(crate) fn new(server: S, bounds: Bounds) -> Arc<Desk<S>> {
        Arc::new(Desk {
            server,
            bounds,
            asked: AtomicUsize::new(0),
            turns: ConnectionQueue::new(bounds.connections_max),
            idle: Mutex::new(Vec::new()),
            down: Mutex::default(),
            #[cfg(feature = "tables")]
            decoy: std::sync::OnceLock::new(),
            #[cfg(feature = "tables")]
            verified: std::sync::OnceLock::new(),
        })
    }

    async fn find(
        &self,
        question: &S::Question,
        liveness: &ConnectionLiveness,
    ) -> Result<S::Found, Unanswered> {
        let permit = self.turns.acquire(liveness).await;
        // A client that has gone loses its turn as well.
        if !liveness.is_open() {
            return Err(Unanswered::Abandoned);
        }
        let _permit = permit.map_err(|TurnLost| Unanswered::Busy)?;
        self.ask(question).await.map_err(Unanswered::Failed)
    }

    async fn ask(&self, question: &S::Question) -> Result<S::Found, String> {
        if let Some(mut conn) = self.idle_conn() {
            match self.server.ask(&mut conn, question).await {
                // It went while nobody used it, and the others may have gone with it.
                Err(Trouble::Broken(_)) => self.idle().clear(),
                other => return self.settle(conn, other),
            }
        }
        let mut conn = self.connect().await?;
        let found = self.server.ask(&mut conn, question).await;
        self.settle(conn, found)
    }

    fn settle(&self, conn: S::Conn, found: Result<S::Found, Trouble>) -> Result<S::Found, String> {
        let found = match found {
            Err(Trouble::Broken(why)) => return Err(why),
            Err(Trouble::Answered(why)) => Err(why),
            Ok(found) => Ok(found),
        };
        self.idle().push(Idle { conn, since: Instant::now() });
        found
    }

    fn idle_conn(&self) -> Option<S::Conn> {
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
            Ok(_) => *down = Down::default(),
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

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<S::Conn>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn down(&self) -> MutexGuard<'_, Down> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "tables")]
impl<S: Server> Desk<S> {
    fn check(&self, claim: &Claim, stored: Stored, grant: Box<Grant>) -> Outcome {
        let Some(password) = &claim.password else { return Outcome::Ignore };
        let known = self.verified.get().map(Arc::as_ref);
        let is_right = stored.is_known_to_be_of(&password.0, known);
        let _ = self.decoy.set(stored);
        if is_right { Outcome::Allow(grant) } else { Outcome::Deny("wrong password") }
    }

    /// As much work as for somebody else, so that time does not tell who is known.
    fn pretend(&self, claim: &Claim) -> Outcome {
        if let (Some(stored), Some(password)) = (self.decoy.get(), &claim.password) {
            stored.pretend_to_check(&password.0, self.verified.get().map(Arc::as_ref));
        }
        Outcome::Ignore
    }
}
