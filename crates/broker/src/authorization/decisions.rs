//! Decisions about publishing and subscribing, by rules and by known answers of servers.

use crate::access_rules::acl_rules::{AclAction, AclQuery};
use crate::authorization::ShardAuthorization;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::SessionId;
use crate::interface::cache_message::{CacheReplyTarget, response_topic};
use crate::interface::outbox::Outbox;
use crate::memory::SMALL_BYTES_MAX;
use crate::message::namespace;
use crate::permissions::access_check::AccessCheck;
use crate::refusal::Refusal;
use crate::routing::publish::PublishProperties;
use crate::session::session_table::SessionTable;
use crate::session::subscribe_checks::is_own_link_topic;
use mqtt::{Property, Publish, QoS};

impl ShardAuthorization {
    /// Whether the current rules allow a will that was accepted at CONNECT. Without a matching
    /// rule, the server's decision at CONNECT applies.
    pub(crate) fn may_publish_will(
        &self,
        id: SessionId,
        topic: &str,
        manner: (u8, bool),
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let wish = AccessCheck::publish(topic, manner.0, manner.1);
        let asks = sessions.context.options.authz_at(sessions.get(id).listener);
        let was_asked = asks.is_some() && self.decide_access(id, &wish, sessions).is_none();
        let rights = sessions.get(id).permissions.as_ref();
        let was_allowed = rights.is_some_and(|rights| rights.will_is_allowed);
        (was_asked && was_allowed) || self.may_publish(id, topic, manner, sessions, out)
    }

    /// Returns the decision about an access check, and `None` if an external server has to be
    /// asked.
    pub(crate) fn decide_access(
        &self,
        id: SessionId,
        wish: &AccessCheck<'_>,
        sessions: &mut SessionTable,
    ) -> Option<bool> {
        // Caching stops at half of the memory at which queues count as full.
        let keeps = sessions.messages.memory_bytes() < sessions.elevated_at / 2;
        let (session, context) = sessions.with_context(id);
        let listener = session.listener;
        let Some(all) = context.options.permissions_at(listener) else { return Some(true) };
        let asked = context.options.authz_at(listener).map(|asks| (asks, context.now));
        // Messages from rules to a link are allowed, since the options name the link.
        let is_subscribe = wish.action == AclAction::Subscribe;
        if is_subscribe && is_own_link_topic(&session.client_id, wish.topic) {
            return Some(true);
        }
        // Without permissions the client has not connected since the first rules.
        let Some(rights) = &mut session.permissions else { return Some(false) };
        let before = rights.bytes();
        rights.follow_generation(self.rights_generation);
        let said_id = &session.client_id[usize::from(session.prefix_len)..];
        let decided = match wish.action {
            AclAction::Publish => rights.decide_publish(all, said_id, wish, asked, keeps),
            AclAction::Subscribe => {
                let deed = AclQuery::Subscribe { filter: wish.topic, qos: wish.qos };
                let decided = rights.decide(all, said_id, deed);
                match (decided, asked) {
                    (None, Some((asks, now))) => rights
                        .authz_cache
                        .as_ref()
                        .and_then(|answers| answers.find(wish, asks, now)),
                    (decided, _) => Some(decided.unwrap_or(false)),
                }
            }
        };
        let after = rights.bytes();
        sessions.count_permissions(before, after);
        decided
    }

    /// Whether a session may publish, by rules and server; a denial is counted and reported. No
    /// decision denies, since `hold_for_authz` has requested one before.
    pub(crate) fn may_publish(
        &self,
        id: SessionId,
        topic: &str,
        manner: (u8, bool),
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let allows = self
            .decide_access(id, &AccessCheck::publish(topic, manner.0, manner.1), sessions)
            .unwrap_or(false);
        if !allows {
            sessions.counters.denied_publishes += 1;
            sessions.note_denial(
                id,
                "publish",
                AccessCheck::publish(topic, manner.0, manner.1),
                out,
            );
        }
        allows
    }

    /// Returns the decision about a subscription. `Refusal::QuotaExceeded` if the SUBSCRIBE had
    /// more filters than requests allowed.
    pub(crate) fn may_subscribe(
        &self,
        id: SessionId,
        filter: &str,
        qos: u8,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let refusal = match self.decide_access(id, &AccessCheck::subscribe(filter, qos), sessions) {
            Some(true) => return Ok(()),
            Some(false) => Refusal::NotPermitted,
            // More filters in one packet than `QUESTIONS_MAX` requests.
            None => Refusal::QuotaExceeded,
        };
        sessions.counters.denied_subscribes += 1;
        sessions.note_denial(id, "subscribe", AccessCheck::subscribe(filter, qos), out);
        Err(refusal)
    }

    /// Checks topic, payload format, memory and the client's permission, in this order.
    #[inline]
    pub(crate) fn authorize_publish(
        &self,
        id: SessionId,
        topic: &str,
        packet: &Publish<'_>,
        said: &PublishProperties,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let session = sessions.get(id);
        let options = sessions.context.options.options_of_session(session);
        options.check_topic(topic)?;
        namespace::check_name(usize::from(session.prefix_len), topic)?;
        if said.is_too_long {
            return Err(Refusal::TopicNameInvalid);
        }
        if said.is_text
            && options.check_payload_format
            && std::str::from_utf8(packet.payload).is_err()
        {
            return Err(Refusal::PayloadFormatInvalid);
        }
        // QoS 0 messages are not stored for connected readers, and are dropped elsewhere.
        let large = packet.payload.len() > SMALL_BYTES_MAX;
        if packet.qos != QoS::AtMostOnce
            && (sessions.is_pressure_critical() || (large && sessions.is_pressure_high()))
        {
            return Err(Refusal::QuotaExceeded);
        }
        let manner = (packet.qos as u8, packet.retain);
        let has_rules = sessions.context.options.permissions_at(session.listener).is_some();
        if has_rules && !self.may_publish(id, topic, manner, sessions, out) {
            return Err(Refusal::NotPermitted);
        }
        Ok(())
    }

    /// Returns the destination of responses, if the client may publish there.
    pub(crate) fn reply_target_of(
        &self,
        id: SessionId,
        packet: &Publish<'_>,
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<CacheReplyTarget, Refusal> {
        let said = response_topic(packet).ok_or(Refusal::CacheUnanswerable)?;
        let made = sessions.context.rewrite_name(
            AclAction::Publish,
            said,
            &connections.placeholder_values(id, sessions),
        )?;
        let topic = made.as_deref().unwrap_or(said);
        let session = sessions.get(id);
        sessions.context.options.options_of_session(session).check_topic(topic)?;
        namespace::check_name(usize::from(session.prefix_len), topic)?;
        let known = session.add_prefix(topic).into();
        let permitted = sessions.context.options.permissions_at(session.listener).is_none()
            || self.may_publish(id, topic, (packet.qos as u8, false), sessions, out);
        let correlation = packet.properties.iter().find_map(|property| match property {
            Property::CorrelationData(bytes) => Some(bytes.into()),
            _ => None,
        });
        match permitted {
            true => Ok(CacheReplyTarget { topic: known, correlation, qos: packet.qos }),
            false => Err(Refusal::NotPermitted),
        }
    }
}
