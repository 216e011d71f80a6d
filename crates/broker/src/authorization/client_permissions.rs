//! The permissions of one session. `reauthorization` handles a change of the rules.

use crate::authorization::ShardAuthorization;
use crate::authorization::acl_cache::AclDecisionCache;
use crate::authorization::acl_rules::{AclQuery, AclRuleSet, AclSubject, DenialCause};
use crate::authorization::authz::{AccessCheck, AclAction};
use crate::authorization::authz_cache::AuthzCache;
use crate::authorization::client_groups::{ClientGroupGuard, ClientGroupId};
use crate::connection::authentication::AuthOutcome;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::peer::{ListenerId, PeerInfo};
use crate::connection::refusal::Refusal;
use crate::context::ShardContext;
use crate::input::{ConnId, MonotonicMs, SessionId};
use crate::limits::{LINK_IDS, RULES_PER_TICK};
use crate::options::{AuthzOptions, BrokerOptions};
use crate::outbox::Outbox;
use crate::session::session_table::Session;
use crate::session::session_table::SessionTable;
use crate::session::subscribe::is_own_link_topic;
use crate::statistics::broker_event::BrokerEvent;
use crate::statistics::log_rate_limiter::LogRateLimiter;
use std::borrow::Cow;

/// Identity of a session's client, and recent decisions. Absent if every client may do everything.
#[derive(Debug)]
pub(crate) struct ClientPermissions {
    pub(crate) subject: AclSubject,
    /// The domain in which the subject's user name is unique: see `ListenerAccess`.
    identity_domain: u64,
    /// The group of the client, if the group has limits of its own.
    pub(crate) client_group: Option<ClientGroupId>,
    /// Guard that counts the connection in its group, if the group limits the number of
    /// connections; dropping the guard takes the connection out of the count.
    pub(crate) group_guard: Option<ClientGroupGuard>,
    /// Time at which the credentials expire and the connection ends.
    expires: Option<MonotonicMs>,
    /// Generation of the rules from which `acl_cache` was filled.
    generation: u32,
    acl_cache: Option<Box<AclDecisionCache>>,
    /// Whether the authorization server allowed the client's will at CONNECT.
    pub(crate) will_is_allowed: bool,
    /// Whether the connection receives no messages: see `Principal::is_quiet`.
    pub(crate) is_quiet: bool,
    denial_limiter: LogRateLimiter,
    /// The first withheld denial since the last report.
    withheld_denial: Option<(&'static str, Box<str>, DenialCause)>,
    /// Decisions of the authorization server, if present.
    pub(crate) authz_cache: Option<Box<AuthzCache>>,
}

/// Longest topic whose decision is cached, in bytes.
pub(crate) const TOPIC_BYTES_MAX: usize = 256;
/// Reports of denials of one client, a second.
const DENIALS_PER_S: u16 = 1;

impl ClientPermissions {
    /// Returns the event that reports the withheld denials with their number, if there are any.
    pub(crate) fn withheld_denials(
        &mut self,
        client_id: &str,
        now: MonotonicMs,
    ) -> Option<BrokerEvent> {
        let (deed, topic, cause) = self.withheld_denial.take()?;
        let count = self.denial_limiter.flush(now)?;
        let (client_id, user) = (client_id.into(), self.subject.user.clone());
        Some(BrokerEvent::Denied { client_id, user, deed, topic, cause, count })
    }

    fn new(peer: &PeerInfo, options: &BrokerOptions) -> ClientPermissions {
        let grant = peer.auth_outcome().and_then(AuthOutcome::principal);
        let certificate = peer.certificate();
        let who = AclSubject {
            // A user name without authentication does not count.
            user: grant.and_then(|grant| grant.user.clone()),
            groups: grant.map(|grant| grant.groups.clone().into()).unwrap_or_default(),
            address: peer.address.ip(),
            listener: peer.listener,
            common_name: certificate.and_then(|known| known.common_name.clone()),
            is_superuser: grant.is_some_and(|grant| grant.is_superuser),
            own: grant.and_then(|grant| grant.permissions.clone()),
        };
        let class = options.client_group_of(peer.listener, who.user.as_deref(), &who.groups);
        let is_quiet = grant.is_some_and(|grant| grant.is_quiet);
        let expires = peer.auth_outcome().and_then(|pass| pass.expires);
        ClientPermissions {
            identity_domain: options.identity_domain_at(peer.listener),
            client_group: class,
            expires,
            is_quiet,
            ..ClientPermissions::of_subject(who)
        }
    }

    /// Creates the permissions of a user that is not connected, for a `PresetSession`.
    pub(crate) fn of_absent_user(user: &str) -> ClientPermissions {
        ClientPermissions::of_subject(AclSubject {
            user: Some(user.into()),
            groups: Box::default(),
            address: None,
            listener: ListenerId::NONE,
            common_name: None,
            is_superuser: false,
            own: None,
        })
    }

    fn of_subject(who: AclSubject) -> ClientPermissions {
        ClientPermissions {
            client_group: None,
            group_guard: None,
            identity_domain: 0,
            subject: who,
            expires: None,
            generation: 0,
            acl_cache: None,
            will_is_allowed: false,
            is_quiet: false,
            denial_limiter: LogRateLimiter::new(DENIALS_PER_S),
            withheld_denial: None,
            authz_cache: None,
        }
    }

    /// Returns the permissions for a data stream of the same client, with empty caches.
    pub(crate) fn for_data_stream(&self) -> ClientPermissions {
        ClientPermissions {
            subject: self.subject.clone(),
            identity_domain: self.identity_domain,
            expires: self.expires,
            generation: self.generation,
            acl_cache: None,
            will_is_allowed: false,
            is_quiet: false,
            denial_limiter: LogRateLimiter::new(DENIALS_PER_S),
            withheld_denial: None,
            authz_cache: None,
            client_group: self.client_group,
            // The control stream's guard counts the client.
            group_guard: None,
        }
    }

    /// Returns the user name and the domain, separated by NUL, which no user name contains; empty
    /// for an anonymous client.
    fn owner(&self) -> Cow<'_, str> {
        match (self.subject.user.as_deref(), self.identity_domain) {
            (None, _) => Cow::Borrowed(""),
            (Some(user), 0) => Cow::Borrowed(user),
            (Some(user), domain) => Cow::Owned(format!("{user}\0{domain:016x}")),
        }
    }

    /// Returns the memory of the permissions in bytes, in addition to the session's.
    pub(crate) fn bytes(&self) -> u64 {
        let user = self.subject.user.as_ref().map_or(0, |user| user.len());
        let decided = self.acl_cache.as_ref().map_or(0, |decided| decided.bytes());
        let answers = self.authz_cache.as_ref().map_or(0, |answers| answers.bytes());
        (size_of::<ClientPermissions>() + user) as u64 + decided + answers
    }

    /// Returns the decision of the client's own rules, then of `all`; `None` if no rule applies. A
    /// superuser may do everything.
    pub(crate) fn decide(&self, all: &AclRuleSet, id: &str, deed: AclQuery<'_>) -> Option<bool> {
        let who = &self.subject;
        let own = || who.own.as_ref().and_then(|own| own.decide(who, id, deed));
        who.is_superuser.then_some(true).or_else(own).or_else(|| all.decide(who, id, deed))
    }

    /// Returns the rule that denies an action.
    fn denial_cause(&self, all: &AclRuleSet, id: &str, deed: AclQuery<'_>) -> DenialCause {
        let own = self.subject.own.as_ref().map(|own| own.denial_cause(&self.subject, id, deed));
        let own = own.filter(|own| *own != DenialCause::NoRule);
        own.unwrap_or_else(|| all.denial_cause(&self.subject, id, deed))
    }

    /// Clears the cached decisions about publishing.
    pub(crate) fn clear_acl_cache(&mut self) {
        self.acl_cache = None;
    }

    /// Clears the caches if the decisions are from an older generation of the rules.
    pub(crate) fn follow_generation(&mut self, generation: u32) {
        if self.generation != generation {
            self.generation = generation;
            self.acl_cache = None;
            if let Some(answers) = &mut self.authz_cache {
                answers.clear();
            }
        }
    }

    /// Returns the decision of rules and server about a publish, from the cache if possible. `None`
    /// if the server has to be asked.
    fn decide_publish(
        &mut self,
        all: &AclRuleSet,
        client_id: &str,
        wish: &AccessCheck<'_>,
        asked: Option<(AuthzOptions, MonotonicMs)>,
        keeps: bool,
    ) -> Option<bool> {
        let AccessCheck { topic, qos, retain, .. } = *wish;
        let own_is_particular =
            self.subject.own.as_ref().is_some_and(|own| own.uses_qos_or_retain());
        let manner = match all.uses_qos_or_retain() || own_is_particular {
            true => qos | u8::from(retain) << 2,
            false => 0,
        };
        let decided = self.acl_cache.as_mut();
        if let Some(known) = decided.and_then(|decided| decided.find(topic, manner)) {
            return Some(known);
        }
        if let Some((asks, now)) = asked
            && let Some(answers) = &self.authz_cache
            && let Some(allows) = answers.find(wish, asks, now)
        {
            return Some(allows);
        }
        let decided = self.decide(all, client_id, AclQuery::Publish { topic, qos, retain });
        let allows = match (decided, asked) {
            (None, Some(_)) => return None,
            (decided, _) => decided.unwrap_or(false),
        };
        if keeps && topic.len() <= TOPIC_BYTES_MAX {
            self.acl_cache.get_or_insert_default().insert(topic, manner, allows);
        }
        Some(allows)
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

impl ShardContext {
    /// Returns the permissions of a connection's client. `None` if the listener has no rules, no
    /// listener authenticates and the peer has no `Principal`.
    pub(crate) fn permissions_of(&self, peer: &PeerInfo) -> Option<Box<ClientPermissions>> {
        let needed = self.options.permissions_at(peer.listener).is_some()
            // If another listener authenticates, an anonymous client must not match an owner there.
            || self.options.authenticates_anywhere()
            || peer.auth_outcome().is_some_and(|pass| pass.principal().is_some());
        needed.then(|| Box::new(ClientPermissions::new(peer, &self.options)))
    }

    /// Returns how many filters may be compared with the rules in one tick: `RULES_PER_TICK`
    /// divided by the number of rules.
    pub(crate) fn filters_per_tick(&self) -> usize {
        let own = self.options.access.own.iter().flatten().map(|own| &own.permissions);
        let all = own.chain([&self.options.permissions]).flatten();
        let most = all.map(|rules| rules.len()).max();
        RULES_PER_TICK / most.unwrap_or(0).max(1)
    }
}

impl ConnectionTable {
    /// Moves the result of authentication from the connection to the permissions of the new
    /// session. `None` as for [`Shard::permissions_of`].
    pub(crate) fn take_permissions(
        &mut self,
        conn: ConnId,
        sessions: &mut SessionTable,
    ) -> Option<Box<ClientPermissions>> {
        let rights = sessions.context.permissions_of(&self.conn(conn)?.peer);
        self.conn_mut(conn)?.peer.clear_auth_outcome();
        rights
    }
}

impl SessionTable {
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

impl ShardAuthorization {
    /// Whether the current rules allow a will that was accepted at CONNECT. Without a matching
    /// rule, the server's decision at CONNECT applies.
    pub(crate) fn may_publish_will(
        &mut self,
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
        &mut self,
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
        &mut self,
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
        &mut self,
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
}
