//! The permissions that sessions hold, after changes of options and for denials.

use crate::access_rules::acl_rules::{AclAction, AclQuery, DenialCause};
use crate::broker_event::BrokerEvent;
use crate::ids::{MonotonicMs, SessionId};
use crate::interface::outbox::Outbox;
use crate::limits::LINK_IDS;
use crate::options::BrokerOptions;
use crate::permissions::access_check::AccessCheck;
use crate::permissions::client_permissions::ClientPermissions;
use crate::refusal::Refusal;
use crate::session::session_table::{Session, SessionTable};
use std::borrow::Cow;

impl SessionTable {
    /// Assigns the groups of all sessions again, after a change of the options.
    pub(crate) fn reassign_client_groups(&mut self) {
        let options = self.context.options.clone();
        self.each_mut(|session| {
            if let Some(rights) = &mut session.permissions {
                let who = &rights.subject;
                rights.client_group =
                    options.client_group_of(who.listener, who.user.as_deref(), &who.groups);
            }
        });
    }

    /// Whether an existing session belongs to another user, so that this client must not read the
    /// messages. Always `false` for sessions of links.
    pub(crate) fn belongs_to_other_user(
        &self,
        kept: SessionId,
        rights: Option<&ClientPermissions>,
    ) -> bool {
        let session = self.get(kept);
        // A link may act as another user from now on, but the queue is the link's.
        if session.client_id.starts_with(LINK_IDS) {
            return false;
        }
        match (session.owner(), rights) {
            (Some(owner), Some(rights)) => owner != rights.owner(),
            _ => false,
        }
    }

    /// Checks the will of a CONNECT. Without a matching rule, `answered` has the decision of the
    /// authorization server; no decision denies.
    pub(crate) fn authorize_will(
        &mut self,
        answered: Option<bool>,
        rights: Option<&mut ClientPermissions>,
        client_id: &str,
        will: &mqtt::Will<'_>,
    ) -> Result<(), Refusal> {
        let Some(rights) = rights else { return Ok(()) };
        let Some(all) = self.context.options.permissions_at(rights.subject.listener) else {
            return Ok(());
        };
        let deed =
            AclQuery::Publish { topic: will.topic, qos: will.qos as u8, retain: will.retain };
        let decided = rights.decide(all, client_id, deed);
        rights.will_is_allowed = answered.unwrap_or(false);
        if decided.unwrap_or(rights.will_is_allowed) {
            return Ok(());
        }
        self.counters.denied_publishes += 1;
        Err(Refusal::NotPermitted)
    }

    pub(crate) fn note_denial(
        &mut self,
        id: SessionId,
        deed: &'static str,
        wish: AccessCheck<'_>,
        out: &mut Outbox,
    ) {
        let now = self.context.now;
        let (session, context) = self.with_context(id);
        let said_id = &session.client_id[usize::from(session.prefix_len)..];
        let all = context.options.permissions_at(session.listener);
        let Some(rights) = &mut session.permissions else { return };
        let count = rights.denial_limiter.count(1, now);
        if count.is_none() && rights.withheld_denial.is_some() {
            return;
        }
        let AccessCheck { topic, qos, retain, .. } = wish;
        let asked = match wish.action {
            AclAction::Publish => AclQuery::Publish { topic, qos, retain },
            AclAction::Subscribe => AclQuery::Subscribe { filter: topic, qos },
        };
        let cause = all.map_or(DenialCause::NoRule, |all| rights.denial_cause(all, said_id, asked));
        let Some(count) = count else {
            rights.withheld_denial = Some((deed, topic.into(), cause));
            return;
        };
        rights.withheld_denial = None;
        let (client_id, user) = (session.client_id.clone(), rights.subject.user.clone());
        let topic = topic.into();
        out.events.push(BrokerEvent::Denied { client_id, user, deed, topic, cause, count });
        self.withholding.push(id);
    }
}

impl Session {
    /// Returns the time at which the client's credentials expire; `None` for credentials that do
    /// not.
    pub(crate) fn expires(&self) -> Option<MonotonicMs> {
        self.permissions.as_ref()?.expires
    }

    /// Returns the user that owns the session. `None` if the owner was never determined, empty for
    /// an anonymous owner.
    pub(crate) fn owner(&self) -> Option<Cow<'_, str>> {
        let before = || Some(Cow::Borrowed(self.persistent.as_ref()?.owner.as_deref()?));
        self.permissions.as_ref().map(|rights| rights.owner()).or_else(before)
    }
}

impl BrokerOptions {
    /// Returns the options of a session, by the listener and group of the last connection.
    #[inline]
    pub(crate) fn options_of_session(&self, session: &Session) -> &BrokerOptions {
        let own = self.options_of_listener(session.listener);
        // Without groups, the cache line of the permissions is not touched.
        if own.client_groups.is_empty() {
            return own;
        }
        let class = session.permissions.as_ref().and_then(|rights| rights.client_group);
        self.options_of_client(session.listener, class)
    }
}
