//! The packet of a connection that waits for an authorization decision.

use crate::access_rules::acl_rules::AclAction;
use crate::connection::conn::ConnState;
use crate::ids::MonotonicMs;
use crate::interface::authz::AuthzDecision;
use crate::permissions::access_check::AccessCheck;

impl ConnState {
    pub(crate) fn pending_authz(&mut self) -> Option<&mut PendingAuthz> {
        match self {
            ConnState::Authorizing { inquiry, .. } | ConnState::AuthorizingWill { inquiry } => {
                Some(inquiry)
            }
            _ => None,
        }
    }
}

/// The decisions that one packet waits for.
#[derive(Debug)]
pub(crate) struct PendingAuthz {
    pub(crate) number: u32,
    /// Generation of the rules that left the decision open.
    pub(crate) generation: u32,
    pub(crate) deadline: MonotonicMs,
    pub(crate) all: Vec<PendingCheck>,
    pub(crate) unanswered: usize,
}

#[derive(Debug)]
pub(crate) struct PendingCheck {
    action: AclAction,
    topic: Box<str>,
    qos: u8,
    retain: bool,
    pub(crate) answer: Option<AuthzDecision>,
}

impl PendingCheck {
    pub(crate) fn new(wish: AccessCheck<'_>) -> PendingCheck {
        let AccessCheck { action, topic, qos, retain } = wish;
        PendingCheck { action, topic: topic.into(), qos, retain, answer: None }
    }

    pub(crate) fn access_check(&self) -> AccessCheck<'_> {
        let PendingCheck { action, ref topic, qos, retain, .. } = *self;
        AccessCheck { action, topic, qos, retain }
    }
}
