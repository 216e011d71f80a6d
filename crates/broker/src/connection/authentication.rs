//! Authentication: the request to a backend for each CONNECT on a listener with authentication, and
//! the effects of the decision.
//!
//! ```text
//!            CONNECT                          ShardInput::AuthDecided, or the deadline: deny
//! AwaitingConnect --------> Authenticating ---------------------------------> AwaitingConnect
//!            Effect::Authenticate, Effect::Hold                      Effect::Resume
//! ```
//!
//! The CONNECT stays unread in the transport and is decoded again after the decision, so the
//! packets behind CONNECT keep their order, and every refusal takes the same path.

use crate::authorization::ShardAuthorization;
use crate::authorization::acl_rules::AclRuleSet;
use crate::connection::auth_exchange::{AuthExchange, AuthStep};
use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::peer::{ListenerId, PeerAddress, PeerCertificate};
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, MonotonicMs};
use crate::outbox::{Effect, Outbox};
use crate::routing::namespace::NamespacedClientId;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::{Connect, Property, ProtocolVersion};
use std::fmt;
use std::sync::Arc;

/// A request to authenticate a client: the credentials of CONNECT, and facts from the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    pub peer: PeerAddress,
    pub version: ProtocolVersion,
    /// Client id of CONNECT; empty if the client requests an assigned client id.
    pub client_id: Box<str>,
    pub user_name: Option<Box<str>>,
    pub password: Option<SecretBytes>,
    pub listener: ListenerId,
    pub certificate: Option<Arc<PeerCertificate>>,
    /// Step of an authentication exchange; `None` without Authentication Method.
    pub step: Option<AuthStep>,
}

/// Secret bytes: the `Debug` output is `***`, so neither logs nor panics show the contents.
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
    /// The client has to continue with AUTH. The backend gets `memory` back in the next
    /// [`AuthStep`].
    Challenge {
        data: Box<[u8]>,
        memory: SecretBytes,
    },
    Deny(Refusal),
}

/// An authenticated client: name, client id, namespace and permissions from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// User name; `None` for an anonymous client.
    pub user: Option<Arc<str>>,
    /// Client id that replaces the client id of CONNECT.
    pub client_id: Option<Box<str>>,
    /// Namespace that replaces the namespace of the listener or the group; empty for none.
    pub namespace: Option<Box<str>>,
    pub groups: Vec<Arc<str>>,
    /// The client may publish and subscribe to every topic.
    pub is_superuser: bool,
    /// Rules of this client, checked before the rules for all clients.
    pub permissions: Option<Arc<AclRuleSet>>,
    /// Time in milliseconds until the broker ends the connection with `Refusal::Expired`.
    pub expires_in_ms: Option<u64>,
    /// The connection receives responses only: messages wait for another connection of the session.
    pub is_quiet: bool,
    /// Authentication Data for CONNACK, or for AUTH 0x00 after a re-authentication.
    pub auth_data: Option<Box<[u8]>>,
}

/// The result of an authentication. [`PeerInfo`](crate::connection::peer::PeerInfo) holds the
/// result, so a move to another shard does not lose the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthOutcome {
    pub(crate) decision: Result<Box<Principal>, Refusal>,
    /// Time at which the broker ends the connection with `Refusal::Expired`.
    pub(crate) expires: Option<MonotonicMs>,
    /// Number of AUTH packets behind CONNECT that belong to the exchange.
    pub(crate) auth_packets: u8,
}

impl AuthOutcome {
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.decision.as_deref().ok()
    }
}

impl ConnectionTable {
    /// Returns the decision about the client, and `None` before there is one.
    pub(crate) fn auth_decision(&self, conn: ConnId) -> Option<&Result<Box<Principal>, Refusal>> {
        self.conn(conn)?.peer.auth_outcome().map(|pass| &pass.decision)
    }

    /// Requests a decision from the backend by `Effect::Authenticate` and stops reading from the
    /// client. The deadline is `BrokerOptions::verdict_timeout_ms` from now.
    pub(crate) fn request_authentication(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        step: Option<AuthStep>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let deadline = MonotonicMs(
            sessions.context.now.0 + u64::from(sessions.context.options.verdict_timeout_ms),
        );
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
        sessions.context.timers.set(deadline, ShardTimer::Conn { index: conn.0, generation: case });
        out.effects.push(Effect::Hold { conn });
        out.effects.push(Effect::Authenticate { conn, case, request: Box::new(request) });
    }

    /// Whether the decision replaced the client id of CONNECT.
    pub(crate) fn has_other_client_id(&self, conn: ConnId) -> bool {
        let grant = self
            .conn(conn)
            .and_then(|known| known.peer.auth_outcome())
            .and_then(AuthOutcome::principal);
        let given = grant.and_then(|grant| grant.client_id.as_ref());
        given.is_some_and(|id| !id.is_empty())
    }
}

impl Shard {
    /// Handles the backend's decision. A decision for an earlier generation of the connection, or
    /// after the deadline, has no effect.
    pub(crate) fn on_auth_decision(
        &mut self,
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
        out: &mut Outbox,
    ) {
        let now = self.sessions.context.now;
        let Some(known) = self.connections.conn_mut(conn) else { return };
        if known.generation != case {
            return;
        }
        if !matches!(known.state, ConnState::Authenticating | ConnState::Challenged) {
            return self.on_reauthentication(conn, verdict, out);
        }
        let decided = match verdict {
            AuthDecision::Challenge { data, memory } => {
                match self.connections.send_challenge(conn, &data, memory, &mut self.sessions, out)
                {
                    Ok(()) => return,
                    Err(refusal) => Err(refusal),
                }
            }
            AuthDecision::Allow(principal) => Ok(principal),
            AuthDecision::Deny(refusal) => Err(refusal),
        };
        let Some(known) = self.connections.conn_mut(conn) else { return };
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
}

impl ShardAuthorization {
    /// Applies the decision to a CONNECT with an admitted client id. Returns the client id of the
    /// [`Principal`] if present, or an assigned id, after a check of length, reserved prefix and
    /// bans.
    pub(crate) fn apply_auth_decision(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        admitted: NamespacedClientId,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<NamespacedClientId, Refusal> {
        let (client_id, user) = match connections.auth_decision(conn) {
            None => return Ok(admitted),
            Some(Err(refusal)) => {
                let refusal = *refusal;
                let is_about_who = !matches!(refusal, Refusal::QuotaExceeded | Refusal::TooFast);
                sessions.counters.denied_connects += u64::from(is_about_who);
                return Err(refusal);
            }
            Some(Ok(principal)) => (principal.client_id.clone(), principal.user.clone()),
        };
        let namespace = connections.namespace_at(conn, sessions)?;
        let client_id = match client_id {
            Some(id) if id.len() > usize::from(sessions.context.options.client_id_bytes_max) => {
                return Err(Refusal::ClientIdTooLong);
            }
            Some(id) if !id.is_empty() => {
                connections.check_reserved(conn, &id)?;
                id
            }
            _ if packet.client_id.is_empty() => sessions.assign_client_id(&namespace),
            _ => admitted.client_id,
        };
        let admitted = NamespacedClientId::new(&namespace, client_id);
        self.check_bans(conn, &admitted, user.as_deref(), connections, sessions, out)?;
        Ok(admitted)
    }
}
