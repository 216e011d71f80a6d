//! Decisions about clients that a shard asks for: the requests to the handlers, and the responders
//! which bring the decisions back.

use crate::ring::ShardWaker;
use crate::shard_control::ShardControl;
use broker::ids::RequestId;
use broker::interface::authz::{AuthzDecision, AuthzRequest};
use broker::{AuthDecision, AuthRequest, ConnId, ShardId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use transport::ConnectionLiveness;

/// Takes authentication requests. Runs on the thread of a shard, so must not block.
pub type AuthHandler = Arc<dyn Fn(AuthTask) + Send + Sync>;

/// An authentication request of a client held until [`AuthResponder::respond`].
#[derive(Debug)]
pub struct AuthTask {
    pub request: AuthRequest,
    pub liveness: ConnectionLiveness,
    pub responder: AuthResponder,
}

/// Returns the decision to the shard. Without a call the client is refused after
/// `BrokerOptions::verdict_timeout_ms`.
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
        // An ended shard needs no decisions.
        let _ = self.control.send(ShardControl::AuthDecided { conn, case, verdict });
        self.wakers[usize::from(self.shard.0)].wake_always();
    }
}

/// Takes authorization requests. Runs on the thread of a shard, so must not block.
pub type AuthzHandler = Arc<dyn Fn(AuthzTask) + Send + Sync>;

/// An authorization request of a client, which waits for [`AuthzResponder::respond`].
#[derive(Debug)]
pub struct AuthzTask {
    pub request: AuthzRequest,
    pub responder: AuthzResponder,
}

/// Returns the decision to the shard. Without a call the request is denied after
/// `BrokerOptions::verdict_timeout_ms`.
#[derive(Debug)]
pub struct AuthzResponder {
    control: Sender<ShardControl>,
    wakers: Arc<[ShardWaker]>,
    shard: ShardId,
    request_id: RequestId,
}

impl AuthzResponder {
    pub fn respond(self, answer: AuthzDecision) {
        let request_id = self.request_id;
        // An ended shard needs no decisions.
        let _ = self.control.send(ShardControl::AuthzAnswered { request_id, answer });
        self.wakers[usize::from(self.shard.0)].wake_always();
    }
}

/// The requests of a shard to [`AuthHandler`] and [`AuthzHandler`].
pub(crate) struct PendingAuth {
    auth_handler: Option<AuthHandler>,
    authz_handler: Option<AuthzHandler>,
    control: Sender<ShardControl>,
    wakers: Arc<[ShardWaker]>,
    shard: ShardId,
    /// Clients waiting for a decision, by the number of their connection.
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

    /// Passes a request to the [`AuthHandler`]. Without a handler the client is refused at the
    /// deadline.
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

    /// Forgets a request whose decision has come. A decision on an older `case` of the connection
    /// changes no entry.
    pub(crate) fn resolve(&mut self, conn: ConnId, case: u32) {
        if self.pending.get(&conn.0).is_some_and(|pending| pending.case == case) {
            self.pending.remove(&conn.0);
        }
    }

    /// Forgets the request of an ended connection, and closes its `ConnectionLiveness` so the
    /// handler may stop working on the request.
    pub(crate) fn cancel(&mut self, index: u32) {
        if !self.pending.is_empty()
            && let Some(pending) = self.pending.remove(&index)
        {
            pending.liveness.close();
        }
    }

    pub(crate) fn request_authz(&self, request_id: RequestId, question: AuthzRequest) {
        let Some(warden) = &self.authz_handler else { return };
        let (control, wakers, shard) = (self.control.clone(), self.wakers.clone(), self.shard);
        warden(AuthzTask {
            request: question,
            responder: AuthzResponder { control, wakers, shard, request_id },
        });
    }
}
