//! Authentication: the request to a backend for each CONNECT on a listener with authentication,
//! and the decision.
//!
//! ```text
//!            CONNECT                          ShardInput::AuthDecided, or the deadline: deny
//! AwaitingConnect --------> Authenticating ---------------------------------> AwaitingConnect
//!            Effect::Authenticate, Effect::Hold                      Effect::Resume
//! ```
//!
//! The CONNECT stays unread in the transport and is decoded again after the decision, so the
//! packets behind CONNECT keep their order, and every refusal takes the same path.

use crate::access_rules::acl_rules::AclRuleSet;
use crate::ids::{ListenerId, MonotonicMs};
use crate::peer::{PeerAddress, PeerCertificate};
use crate::refusal::Refusal;
use mqtt::{Properties, Property, ProtocolVersion};
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

/// The result of an authentication. [`PeerInfo`](crate::peer::PeerInfo) holds the
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

/// Data of the client in one step of an authentication exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthStep {
    pub method: Box<str>,
    pub data: SecretBytes,
    /// State that the backend returned with the last challenge; `None` in the first step.
    pub memory: Option<SecretBytes>,
}

impl AuthStep {
    /// Returns the first step of the exchange if CONNECT has an Authentication Method.
    pub(crate) fn of_connect(properties: Properties<'_>) -> Option<AuthStep> {
        let (method, data) = auth_properties(properties);
        Some(AuthStep { method: method?.into(), data: SecretBytes(data.into()), memory: None })
    }
}

/// Returns Authentication Method and Authentication Data.
pub(crate) fn auth_properties(properties: Properties<'_>) -> (Option<&str>, &[u8]) {
    let (mut method, mut data): (_, &[u8]) = (None, &[]);
    for property in properties.iter() {
        match property {
            Property::AuthenticationMethod(text) => method = Some(text),
            Property::AuthenticationData(bytes) => data = bytes,
            _ => {}
        }
    }
    (method, data)
}
