//! External authorization: a server decides about an action to which no rule applies.
//!
//! ```text
//!       PUBLISH, SUBSCRIBE, no decision     the last ShardInput::AuthzAnswered, or the deadline
//! Live --------------------------------> Authorizing -------------------------------------> Live
//!       Effect::Hold, Effect::Authorize for each topic             Effect::Resume
//! ```
//!
//! The packet stays unread in the transport and is read again after the decisions, so later packets
//! keep their order. Only this connection waits. A CONNECT with a will waits likewise. A missing
//! decision at the deadline denies the action.

use crate::access_rules::acl_rules::{AclAction, AclQuery};
use crate::authorization::ShardAuthorization;
use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::pending_authz::{PendingAuthz, PendingCheck};
use crate::ids::{ConnId, MonotonicMs, RequestId, SessionId};
use crate::interface::authz::AuthzDecision;
use crate::interface::outbox::{Effect, Outbox};
use crate::permissions::access_check::{
    AccessCheck, QUESTION_BYTES_MAX, QUESTIONS_MAX, authz_request,
};
use crate::permissions::authz_cache::AuthzCache;
use crate::permissions::client_permissions::ClientPermissions;
use crate::session::session_table::SessionTable;
use crate::special_topics::{CACHE_PREFIX, strip_filter_prefix};
use crate::timer::ShardTimer;
use mqtt::{PacketFrame, PacketType, Publish, Subscribe};
use std::collections::BTreeSet;

impl ShardAuthorization {
    /// Stops reading from a connection whose next packet needs a decision of the authorization
    /// server. Returns whether the packet waits.
    pub(crate) fn hold_for_authz(
        &mut self,
        conn: ConnId,
        id: SessionId,
        frame: PacketFrame<'_>,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let kind = PacketType::from_byte(frame.first);
        if !matches!(kind, Some(PacketType::Publish | PacketType::Subscribe)) {
            return false;
        }
        self.update_existing_authz_cache(id, AuthzCache::begin_packet, sessions);
        let all = match kind {
            Some(PacketType::Publish) => {
                self.publish_checks(conn, id, frame, connections, sessions).unwrap_or_default()
            }
            _ => self.filter_checks(id, frame, connections, sessions),
        };
        if all.is_empty() {
            self.update_existing_authz_cache(id, AuthzCache::end_packet, sessions);
            return false;
        }
        let inquiry = self.new_pending_authz(all, sessions);
        let (number, deadline) = (inquiry.number, inquiry.deadline);
        let session = sessions.get(id);
        let Some(rights) = &session.permissions else { return false };
        let client = (&rights.subject, session.own_client_id(), session.namespace());
        let asked = inquiry.all.iter().enumerate().map(|(at, open)| {
            let request_id = RequestId { conn: Some(conn), number, at: at as u32 };
            Effect::Authorize {
                request_id,
                question: authz_request(client.0, client.1, client.2, open.access_check()),
            }
        });
        out.effects.push(Effect::Hold { conn });
        out.effects.extend(asked);
        let asked = inquiry.all.len();
        let is_timed =
            rights.authz_cache.as_ref().is_some_and(|answers| answers.timer_at.is_some());
        let Some(known) = connections.conn_mut(conn) else { return false };
        known.state = ConnState::Authorizing { session: id, inquiry };
        let generation = known.generation;
        if !is_timed {
            sessions
                .context
                .timers
                .set(deadline, ShardTimer::AuthzDeadline { index: conn.0, generation });
        }
        self.update_authz_cache(
            id,
            |answers| {
                answers.count_questions(asked);
                answers.timer_at.get_or_insert(deadline);
            },
            sessions,
        );
        true
    }

    /// Returns the access checks of a PUBLISH for the server. `None` if the packet is invalid: the
    /// code that handles the packet reports the error.
    fn publish_checks(
        &self,
        conn: ConnId,
        id: SessionId,
        frame: PacketFrame<'_>,
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
    ) -> Option<Vec<PendingCheck>> {
        let session = sessions.get(id);
        let packet = Publish::decode(frame, session.version).ok()?;
        let aliased = match packet.topic {
            "" => Some(connections.topic_of_alias(conn, &packet)?),
            _ => None,
        };
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        if topic.starts_with(CACHE_PREFIX) {
            let all = connections.cache_request_checks(id, &packet, topic, sessions);
            let all = all.iter().map(|(action, topic)| match action {
                AclAction::Publish => AccessCheck::publish(topic, packet.qos as u8, false),
                AclAction::Subscribe => AccessCheck::subscribe(topic, packet.qos as u8),
            });
            return Some(
                all.filter(|wish| self.needs_authz(id, wish, sessions))
                    .map(PendingCheck::new)
                    .collect(),
            );
        }
        let topic = connections.resolve_topic(id, topic, sessions).ok()?.topic;
        sessions.context.options.options_of_session(session).check_topic(&topic).ok()?;
        let wish = AccessCheck::publish(&topic, packet.qos as u8, packet.retain);
        self.needs_authz(id, &wish, sessions).then(|| vec![PendingCheck::new(wish)])
    }

    /// Whether the authorization server has to decide, and the topic fits in a request.
    fn needs_authz(
        &self,
        id: SessionId,
        wish: &AccessCheck<'_>,
        sessions: &mut SessionTable,
    ) -> bool {
        self.decide_access(id, wish, sessions).is_none() && wish.topic.len() <= QUESTION_BYTES_MAX
    }

    /// Returns the access checks of a SUBSCRIBE for the server: each filter once, and at most
    /// `QUESTIONS_MAX` requests per packet.
    fn filter_checks(
        &self,
        id: SessionId,
        frame: PacketFrame<'_>,
        connections: &ConnectionTable,
        sessions: &mut SessionTable,
    ) -> Vec<PendingCheck> {
        let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
        let version = sessions.get(id).version;
        let Ok(packet) = Subscribe::decode(frame, version) else { return all };
        let rights = sessions.get(id).permissions.as_ref();
        let answers = rights.and_then(|rights| rights.authz_cache.as_ref());
        let asks = sessions.context.options.authz_at(sessions.get(id).listener);
        let by_qos = asks.is_some_and(|asks| asks.uses_qos_or_retain);
        let asked = answers.map_or(0, |answers| answers.question_count());
        let most = QUESTIONS_MAX.saturating_sub(asked);
        for (filter, options) in packet.filters.iter() {
            if all.len() == most {
                break;
            }
            let Ok(inner) = strip_filter_prefix(filter) else { return Vec::new() };
            if mqtt::topic::check_filter(inner).is_err() {
                return Vec::new();
            }
            let Ok(named) = connections.rewrite_filter(id, filter, sessions) else { continue };
            let Ok(inner) = strip_filter_prefix(&named) else { continue };
            let wish =
                AccessCheck::subscribe(inner, options.qos.min(sessions.qos_max_of(id)) as u8);
            let qos = if by_qos { wish.qos } else { 0 };
            if self.needs_authz(id, &wish, sessions) && seen.insert((inner.to_string(), qos)) {
                all.push(PendingCheck::new(wish));
            }
        }
        all
    }

    fn new_pending_authz(
        &mut self,
        all: Vec<PendingCheck>,
        sessions: &mut SessionTable,
    ) -> Box<PendingAuthz> {
        let (number, deadline) = self.next_authz_request(sessions);
        let unanswered = all.len();
        sessions.counters.asked += unanswered as u64;
        let generation = self.rights_generation;
        Box::new(PendingAuthz { number, generation, deadline, all, unanswered })
    }

    /// Returns a new request number and the deadline, `BrokerOptions::verdict_timeout_ms` from now.
    pub(crate) fn next_authz_request(&mut self, sessions: &SessionTable) -> (u32, MonotonicMs) {
        self.authz_requests = self.authz_requests.wrapping_add(1);
        (
            self.authz_requests,
            MonotonicMs(
                sessions.context.now.0 + u64::from(sessions.context.options.verdict_timeout_ms),
            ),
        )
    }

    /// Stops reading from a connection whose CONNECT has a will without a decision. Returns whether
    /// the CONNECT waits.
    pub(crate) fn hold_for_will_authz(
        &mut self,
        conn: ConnId,
        client_id: &str,
        will: &mqtt::Will<'_>,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let Some(known) = connections.conn(conn) else { return false };
        let all = sessions.context.options.permissions_at(known.peer.listener);
        let (Some(all), None) = (all, connections.will_decision(conn)) else { return false };
        let Some(rights) = ClientPermissions::of_peer(&known.peer, &sessions.context.options)
        else {
            return false;
        };
        let (qos, retain) = (will.qos as u8, will.retain);
        let deed = AclQuery::Publish { topic: will.topic, qos, retain };
        if rights.decide(all, client_id, deed).is_some() || will.topic.len() > QUESTION_BYTES_MAX {
            return false;
        }
        let Ok(namespace) = connections.namespace_at(conn, sessions) else { return false };
        let wish = AccessCheck::publish(will.topic, qos, retain);
        let inquiry = self.new_pending_authz(vec![PendingCheck::new(wish)], sessions);
        let request_id = RequestId { conn: Some(conn), number: inquiry.number, at: 0 };
        let question = authz_request(&rights.subject, client_id, &namespace, wish);
        let deadline = inquiry.deadline;
        let Some(known) = connections.conn_mut(conn) else { return false };
        known.state = ConnState::AuthorizingWill { inquiry };
        // This shard owns the session, even if the client id is assigned again on the second
        // reading.
        known.moved = true;
        known.timer_at = deadline;
        let timer = ShardTimer::Conn { index: conn.0, generation: known.generation };
        sessions.context.timers.set(deadline, timer);
        out.effects.push(Effect::Hold { conn });
        out.effects.push(Effect::Authorize { request_id, question });
        true
    }

    /// Handles the timer of a connection, which may have been set for an earlier packet.
    pub(crate) fn check_authz_deadline(
        &self,
        index: u32,
        generation: u32,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let (now, conn) = (sessions.context.now, ConnId(index));
        let Some(known) = connections.conn(conn) else { return };
        let Some(id) = known.session().filter(|_| known.generation == generation) else { return };
        let due = match &known.state {
            ConnState::Authorizing { inquiry, .. } => {
                Some(sessions.context.extend_authz_deadline(inquiry.deadline))
            }
            _ => None,
        };
        let later = due.filter(|due| now < *due);
        self.update_authz_cache(id, |answers| answers.timer_at = later, sessions);
        match (due, later) {
            (_, Some(at)) => {
                sessions.context.timers.set(at, ShardTimer::AuthzDeadline { index, generation })
            }
            (Some(_), None) => self.resume_after_authz(conn, connections, sessions, out),
            (None, None) => {}
        }
    }

    /// Reads the packet again, after every decision has arrived or the deadline has passed.
    pub(crate) fn resume_after_authz(
        &self,
        conn: ConnId,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let now = sessions.context.now;
        let is_outdated = |inquiry: &PendingAuthz| inquiry.generation != self.rights_generation;
        let Some(known) = connections.conns.get_mut(conn.0 as usize).and_then(Option::as_mut)
        else {
            return;
        };
        let session = known.session();
        let Some(inquiry) = known.state.pending_authz() else { return };
        let outdated = is_outdated(inquiry);
        let all = std::mem::take(&mut inquiry.all);
        let allows = |open: &PendingCheck| open.answer == Some(AuthzDecision::Allow);
        if session.is_none() {
            // CONNECT is read again in a moment; a new deadline applies.
            known.timer_at =
                MonotonicMs(now.0 + u64::from(sessions.context.options.connect_timeout_ms));
            let timer = ShardTimer::Conn { index: conn.0, generation: known.generation };
            sessions.context.timers.set(known.timer_at, timer);
        }
        known.state = match session {
            Some(session) => ConnState::Live { session },
            // Under new rules the will needs a new check.
            None if outdated => ConnState::AwaitingConnect,
            None => ConnState::WillAuthorized { is_allowed: all.iter().all(allows) },
        };
        // The broker did not read until now, so the silence does not count for keep-alive.
        known.last_activity = now;
        out.effects.push(Effect::Resume { conn });
        let silent =
            |open: &&PendingCheck| matches!(open.answer, None | Some(AuthzDecision::Unavailable));
        sessions.counters.unanswered += all.iter().filter(silent).count() as u64;
        let Some(id) = session else { return };
        let asks = sessions.context.options.authz_at(sessions.get(id).listener);
        let (Some(asks), false) = (asks, outdated) else { return };
        let keeps = !sessions.is_pressure_high();
        self.update_authz_cache(
            id,
            |answers| {
                for open in &all {
                    let keeps = keeps && !silent(&open);
                    answers.store_decision(&open.access_check(), asks, now, allows(open), keeps);
                }
            },
            sessions,
        );
    }

    /// Changes the cached decisions of a session and counts the change of memory.
    fn update_authz_cache(
        &self,
        id: SessionId,
        change: impl FnOnce(&mut AuthzCache),
        sessions: &mut SessionTable,
    ) {
        let generation = self.rights_generation;
        let Some(rights) = &mut sessions.get_mut(id).permissions else { return };
        let before = rights.bytes();
        rights.follow_generation(generation);
        change(rights.authz_cache.get_or_insert_default());
        let after = rights.bytes();
        sessions.count_permissions(before, after);
    }

    /// Changes the cached decisions of a session, if the session has any.
    fn update_existing_authz_cache(
        &self,
        id: SessionId,
        change: impl FnOnce(&mut AuthzCache),
        sessions: &mut SessionTable,
    ) {
        let rights = sessions.get(id).permissions.as_ref();
        if rights.is_some_and(|rights| rights.authz_cache.is_some()) {
            self.update_authz_cache(id, change, sessions);
        }
    }
}
