//! Requests to authorization servers, and their decisions.

use crate::access_rules::acl_rules::AclAction;
use crate::ids::ListenerId;
use std::net::IpAddr;
use std::sync::Arc;

/// A request to authorize an action of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthzRequest {
    pub client_id: Box<str>,
    /// Namespace of the client; empty for none. `topic` has no namespace prefix.
    pub namespace: Box<str>,
    pub user: Option<Arc<str>>,
    /// Address of the client; `None` over a Unix socket.
    pub address: Option<IpAddr>,
    pub listener: ListenerId,
    pub common_name: Option<Box<str>>,
    pub action: AclAction,
    pub topic: Box<str>,
    pub qos: u8,
    pub retain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthzDecision {
    Allow,
    Deny,
    /// No server could decide. The action is denied this once.
    Unavailable,
}
