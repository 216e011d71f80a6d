//! What reaches a shard from outside its rings: commands, and the answers to its questions about
//! clients.

use crate::listener::ListenerTransport;
use crate::relay::RelaySlot;
use crate::ring::ShardWaker;
use broker::authorization::authz::{self, RequestId};
use broker::connection::authentication::Principal;
use broker::session::session_report::{SessionReport, SessionSelector};
use broker::{AuthDecision, AuthRequest, ConnId, ShardCommand, ShardId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use transport::ConnectionLiveness;

#[derive(Debug)]
pub(crate) enum ShardControl {
    Command(ShardCommand),
    /// Replaces the layers of the same listeners.
    ReplaceTransports(Arc<[ListenerTransport]>),
    /// For shard 0: who knocks is let in from now on.
    OpenListeners {
        told: Sender<io::Result<()>>,
        /// Descriptors that are kept from clients.
        reserved: usize,
    },
    /// The answer to a question of this shard.
    AuthDecided {
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
    },
    /// A connection that this process made to itself, for shard 0.
    ConnectInternal {
        stream: UnixStream,
        principal: Box<Principal>,
    },
    /// A relay of a link, for the shard that has its session.
    HostRelay(RelaySlot),
    /// The link wants it back.
    RecallRelay(Arc<str>),
    /// The link has these bytes for the other broker.
    SayByRelay {
        client_id: Arc<str>,
        bytes: Arc<[u8]>,
    },
    /// Asks for reports on sessions.
    ReportSessions {
        which: Arc<SessionSelector>,
        to: Sender<Vec<SessionReport>>,
    },
    /// The answer to a question of what a client may do.
    AuthzAnswered {
        request_id: RequestId,
        answer: authz::AuthzDecision,
    },
    /// Never heard: it goes once all that was told before is done.
    Barrier(Sender<Infallible>),
    /// Leave once everything is written.
    Stop,
}

/// Takes questions. It is called on a shard's thread.
pub type AuthHandler = Arc<dyn Fn(AuthTask) + Send + Sync>;

/// A client that waits for authentication.
#[derive(Debug)]
pub struct AuthTask {
    pub request: AuthRequest,
    pub liveness: ConnectionLiveness,
    pub responder: AuthResponder,
}

/// Returns the decision to the shard. Without a call the client is refused after
/// `Options::verdict_timeout_ms`.
#[derive(Debug)]
pub struct AuthResponder {
    control: Sender<ShardControl>,
    wakers: Arc<[ShardWaker]>,
    shard: ShardId,
    conn: ConnId,
    case: u32,
}

impl AuthResponder {
    pub fn respond(self, verdict: AuthDecision) {
        let (conn, case) = (self.conn, self.case);
        // A shard that has ended needs no verdicts.
        let _ = self.control.send(ShardControl::AuthDecided { conn, case, verdict });
        self.wakers[usize::from(self.shard.0)].wake_always();
    }
}

/// Takes questions of what a client may do. It is called on a shard's thread.
pub type AuthzHandler = Arc<dyn Fn(AuthzTask) + Send + Sync>;

/// A request of a client that waits for authorization.
#[derive(Debug)]
pub struct AuthzTask {
    pub request: authz::AuthzRequest,
    pub responder: AuthzResponder,
}

/// Returns the decision to the shard. Without a call the request is denied after
/// `Options::verdict_timeout_ms`.
#[derive(Debug)]
pub struct AuthzResponder {
    control: Sender<ShardControl>,
    wakers: Arc<[ShardWaker]>,
    shard: ShardId,
    request_id: RequestId,
}

impl AuthzResponder {
    pub fn respond(self, answer: authz::AuthzDecision) {
        let request_id = self.request_id;
        // A shard that has ended needs no answers.
        let _ = self.control.send(ShardControl::AuthzAnswered { request_id, answer });
        self.wakers[usize::from(self.shard.0)].wake_always();
    }
}

/// A shard's end of it.
pub(crate) struct PendingAuth {
    auth_handler: Option<AuthHandler>,
    authz_handler: Option<AuthzHandler>,
    control: Sender<ShardControl>,
    wakers: Arc<[ShardWaker]>,
    shard: ShardId,
    /// By the number of its connection, each client of which a verdict is still to come.
    pending: HashMap<u32, PendingDecision>,
}

struct PendingDecision {
    case: u32,
    liveness: ConnectionLiveness,
}

impl PendingAuth {
    pub(crate) fn new(
        auth_handler: Option<AuthHandler>,
        authz_handler: Option<AuthzHandler>,
        control: Sender<ShardControl>,
        wakers: Arc<[ShardWaker]>,
        shard: ShardId,
    ) -> PendingAuth {
        PendingAuth { auth_handler, authz_handler, control, wakers, shard, pending: HashMap::new() }
    }

    /// Without anybody to ask the deadline answers.
    pub(crate) fn request_auth(&mut self, conn: ConnId, case: u32, request: AuthRequest) {
        let Some(judge) = &self.auth_handler else { return };
        let (control, wakers, shard) = (self.control.clone(), self.wakers.clone(), self.shard);
        let answer = AuthResponder { control, wakers, shard, conn, case };
        let liveness = ConnectionLiveness::default();
        self.pending.insert(conn.0, PendingDecision { case, liveness: liveness.clone() });
        judge(AuthTask { request, liveness, responder: answer });
    }

    pub(crate) fn awaits_decision(&self, index: u32) -> bool {
        self.pending.contains_key(&index)
    }

    /// The verdict has come.
    pub(crate) fn resolve(&mut self, conn: ConnId, case: u32) {
        if self.pending.get(&conn.0).is_some_and(|pending| pending.case == case) {
            self.pending.remove(&conn.0);
        }
    }

    /// The connection has ended: a verdict would be for nobody.
    pub(crate) fn cancel(&mut self, index: u32) {
        if !self.pending.is_empty()
            && let Some(pending) = self.pending.remove(&index)
        {
            pending.liveness.close();
        }
    }

    pub(crate) fn request_authz(&self, request_id: RequestId, question: authz::AuthzRequest) {
        let Some(warden) = &self.authz_handler else { return };
        let (control, wakers, shard) = (self.control.clone(), self.wakers.clone(), self.shard);
        warden(AuthzTask {
            request: question,
            responder: AuthzResponder { control, wakers, shard, request_id },
        });
    }
}
