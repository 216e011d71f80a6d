//! One access check: may a client publish to a topic, or subscribe to a filter.

use crate::access_rules::acl_rules::{AclAction, AclSubject};
use crate::interface::authz::AuthzRequest;

/// An action on a topic or filter, to be checked by rules and server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessCheck<'a> {
    pub(crate) action: AclAction,
    pub(crate) topic: &'a str,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
}

impl<'a> AccessCheck<'a> {
    pub(crate) fn publish(topic: &'a str, qos: u8, retain: bool) -> AccessCheck<'a> {
        AccessCheck { action: AclAction::Publish, topic, qos, retain }
    }

    pub(crate) fn subscribe(topic: &'a str, qos: u8) -> AccessCheck<'a> {
        AccessCheck { action: AclAction::Subscribe, topic, qos, retain: false }
    }
}

/// Largest number of requests for one packet. Further filters of a SUBSCRIBE are refused.
pub(crate) const QUESTIONS_MAX: usize = 256;
/// Largest number of bytes of a topic or filter in a request. Longer ones are refused.
pub(crate) const QUESTION_BYTES_MAX: usize = 4 * 1024;

/// Builds a request from the client's identity, client id and namespace.
pub(crate) fn authz_request(
    who: &AclSubject,
    client_id: &str,
    namespace: &str,
    wish: AccessCheck<'_>,
) -> Box<AuthzRequest> {
    Box::new(AuthzRequest {
        client_id: client_id.into(),
        namespace: namespace.into(),
        user: who.user.clone(),
        address: who.address,
        listener: who.listener,
        common_name: who.common_name.clone(),
        action: wish.action,
        topic: wish.topic.into(),
        qos: wish.qos,
        retain: wish.retain,
    })
}
