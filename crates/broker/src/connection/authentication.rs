//! Who is there: the question that a CONNECT raises where the broker is told to ask, and what
//! becomes of the answer.
//!
//! ```text
//!            CONNECT, asked for                     Input::Verdict, or the deadline: deny
//! Greeting ----------------------> Asked, held ----------------------------------------> Greeting
//!            Effect::Judge                          Effect::Resume
//! ```
//!
//! The CONNECT stays unread in the transport. It is decoded again when the verdict is there, so
//! whatever followed it keeps its order, and a refusal has one way.

use crate::authorization::acl_rules::AclRuleSet;
use crate::connection::auth_exchange::{AuthExchange, AuthStep};
use crate::connection::conn::ConnState;
use crate::connection::peer::{ListenerId, PeerAddress, PeerCertificate};
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, MonotonicMs};
use crate::outbox::{Effect, Outbox};
use crate::routing::namespace::NamespacedClientId;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::{Connect, Property, ProtocolVersion};
use std::fmt;
use std::sync::Arc;

/// A request to authenticate a client: the credentials of its CONNECT, and facts about its
/// transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    pub peer: PeerAddress,
    pub version: ProtocolVersion,
    /// Empty where the client wants one to be assigned.
    pub client_id: Box<str>,
    pub user_name: Option<Box<str>>,
    pub password: Option<SecretBytes>,
    pub listener: ListenerId,
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The step of an authentication exchange, where there is one.
    pub step: Option<AuthStep>,
}

/// Bytes that no log and no panic shows.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(pub Box<[u8]>);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthDecision {
    Allow(Box<Principal>),
    /// The client has to continue with AUTH. `memory` is passed back with its next step.
    Challenge {
        data: Box<[u8]>,
        memory: SecretBytes,
    },
    Deny(Refusal),
}

/// An authenticated client: name, client id, namespace and rights from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// User name; `None` for an anonymous client.
    pub user: Option<Arc<str>>,
    /// Client id that replaces the one of CONNECT.
    pub client_id: Option<Box<str>>,
    /// Namespace that replaces the one of the listener or the group; empty for none.
    pub namespace: Option<Box<str>>,
    pub groups: Vec<Arc<str>>,
    /// May do everything.
    pub is_superuser: bool,
    /// Its own rules, which are asked before everyone's.
    pub permissions: Option<Arc<AclRuleSet>>,
    /// When it has to go.
    pub expires_in_ms: Option<u64>,
    /// The connection receives responses only: messages wait for another connection of its session.
    pub is_quiet: bool,
    /// The last word of an authentication exchange, for the client.
    pub auth_data: Option<Box<[u8]>>,
}

/// The result of authentication, as the peer carries it from shard to shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthOutcome {
    pub(crate) decision: Result<Box<Principal>, Refusal>,
    /// When the client has to go.
    pub(crate) expires: Option<MonotonicMs>,
    /// AUTH packets behind the CONNECT that led to it.
    pub(crate) auth_packets: u8,
}

impl AuthOutcome {
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.decision.as_deref().ok()
    }
}

impl Shard {
    /// Returns the decision about the client, and `None` before there is one.
    pub(crate) fn auth_decision(&self, conn: ConnId) -> Option<&Result<Box<Principal>, Refusal>> {
        self.conn(conn)?.peer.auth_outcome().map(|pass| &pass.decision)
    }

    /// The connection waits for a verdict.
    pub(crate) fn request_authentication(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        step: Option<AuthStep>,
        out: &mut Outbox,
    ) {
        let deadline = MonotonicMs(self.now.0 + u64::from(self.options.verdict_timeout_ms));
        let Some(known) = self.conn_mut(conn) else { return };
        if let Some(step) = step.as_ref().filter(|step| step.memory.is_none()) {
            let max = packet.properties.iter().find_map(|property| match property {
                Property::MaximumPacketSize(max) => Some(max),
                _ => None,
            });
            let exchange = AuthExchange::new(&step.method, max.unwrap_or(u32::MAX));
            known.exchange = Some(Box::new(exchange));
        }
        let request = AuthRequest {
            peer: known.peer.address,
            version: packet.version,
            client_id: packet.client_id.into(),
            user_name: packet.user_name.map(Into::into),
            password: packet.password.map(|password| SecretBytes(password.into())),
            listener: known.peer.listener,
            certificate: known.peer.certificate().cloned(),
            step,
        };
        let case = known.generation;
        known.state = ConnState::Authenticating;
        known.timer_at = deadline;
        self.timers.set(deadline, ShardTimer::Conn { index: conn.0, generation: case });
        out.effects.push(Effect::Hold { conn });
        out.effects.push(Effect::Authenticate { conn, case, request: Box::new(request) });
    }

    /// The answer, unless the connection has gone or the deadline has answered.
    pub(crate) fn on_auth_decision(
        &mut self,
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation != case {
            return;
        }
        if !matches!(known.state, ConnState::Authenticating | ConnState::Challenged) {
            return self.on_reauthentication(conn, verdict, out);
        }
        let decided = match verdict {
            AuthDecision::Challenge { data, memory } => {
                match self.send_challenge(conn, &data, memory, out) {
                    Ok(()) => return,
                    Err(refusal) => Err(refusal),
                }
            }
            AuthDecision::Allow(principal) => Ok(principal),
            AuthDecision::Deny(refusal) => Err(refusal),
        };
        let Some(known) = self.conn_mut(conn) else { return };
        let expires = decided.as_ref().ok().and_then(|principal| principal.expires_in_ms);
        let answers = known.exchange.as_ref().map_or(0, |exchange| exchange.auth_packets());
        let expires = expires.map(|ms| MonotonicMs(now.0.saturating_add(ms)));
        known.peer.set_auth_outcome(AuthOutcome {
            decision: decided,
            expires,
            auth_packets: answers,
        });
        known.state = ConnState::AwaitingConnect;
        out.effects.push(Effect::Resume { conn });
    }

    /// Applies the decision to a client whose client id is admitted.
    pub(crate) fn apply_auth_decision(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        admitted: NamespacedClientId,
        out: &mut Outbox,
    ) -> Result<NamespacedClientId, Refusal> {
        let (client_id, user) = match self.auth_decision(conn) {
            None => return Ok(admitted),
            Some(Err(refusal)) => {
                let refusal = *refusal;
                let is_about_who = !matches!(refusal, Refusal::QuotaExceeded | Refusal::TooFast);
                self.sessions.counters.denied_connects += u64::from(is_about_who);
                return Err(refusal);
            }
            Some(Ok(principal)) => (principal.client_id.clone(), principal.user.clone()),
        };
        let namespace = self.namespace_at(conn)?;
        let client_id = match client_id {
            Some(id) if id.len() > usize::from(self.options.client_id_bytes_max) => {
                return Err(Refusal::ClientIdTooLong);
            }
            Some(id) if !id.is_empty() => {
                self.check_reserved(conn, &id)?;
                id
            }
            _ if packet.client_id.is_empty() => self.assign_client_id(&namespace),
            _ => admitted.client_id,
        };
        let admitted = NamespacedClientId::new(&namespace, client_id);
        self.check_bans(conn, &admitted, user.as_deref(), out)?;
        Ok(admitted)
    }

    /// Whether the verdict gave the client another id than it asked for.
    pub(crate) fn has_other_client_id(&self, conn: ConnId) -> bool {
        let grant = self
            .conn(conn)
            .and_then(|known| known.peer.auth_outcome())
            .and_then(AuthOutcome::principal);
        let given = grant.and_then(|grant| grant.client_id.as_ref());
        given.is_some_and(|id| !id.is_empty())
    }
}
