//! The permissions of one session. `reauthorization` handles a change of the rules.

use crate::access_rules::acl_rules::{AclQuery, AclRuleSet, AclSubject, DenialCause};
use crate::access_rules::client_group_counter::{ClientGroupGuard, ClientGroupId};
use crate::broker_event::BrokerEvent;
use crate::ids::{ListenerId, MonotonicMs};
use crate::log_rate_limiter::LogRateLimiter;
use crate::options::BrokerOptions;
use crate::options::client_groups::AuthzOptions;
use crate::peer::PeerInfo;
use crate::peer::authentication::AuthOutcome;
use crate::permissions::access_check::AccessCheck;
use crate::permissions::acl_cache::AclDecisionCache;
use crate::permissions::authz_cache::AuthzCache;
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
    pub(crate) expires: Option<MonotonicMs>,
    /// Generation of the rules from which `acl_cache` was filled.
    generation: u32,
    acl_cache: Option<Box<AclDecisionCache>>,
    /// Whether the authorization server allowed the client's will at CONNECT.
    pub(crate) will_is_allowed: bool,
    /// Whether the connection receives no messages: see `Principal::is_quiet`.
    pub(crate) is_quiet: bool,
    pub(crate) denial_limiter: LogRateLimiter,
    /// The first withheld denial since the last report.
    pub(crate) withheld_denial: Option<(&'static str, Box<str>, DenialCause)>,
    /// Decisions of the authorization server, if present.
    pub(crate) authz_cache: Option<Box<AuthzCache>>,
}

/// Longest topic whose decision is cached, in bytes.
pub(crate) const TOPIC_BYTES_MAX: usize = 256;
/// Reports of denials of one client, a second.
const DENIALS_PER_S: u16 = 1;

impl ClientPermissions {
    /// Returns the permissions of a connection's client. `None` if the listener has no rules, no
    /// listener authenticates and the peer has no `Principal`.
    pub(crate) fn of_peer(
        peer: &PeerInfo,
        options: &BrokerOptions,
    ) -> Option<Box<ClientPermissions>> {
        let needed = options.permissions_at(peer.listener).is_some()
            // If another listener authenticates, an anonymous client must not match an owner there.
            || options.authenticates_anywhere()
            || peer.auth_outcome().is_some_and(|pass| pass.principal().is_some());
        needed.then(|| Box::new(ClientPermissions::new(peer, options)))
    }

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

    pub(crate) fn new(peer: &PeerInfo, options: &BrokerOptions) -> ClientPermissions {
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
    pub(crate) fn owner(&self) -> Cow<'_, str> {
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
    pub(crate) fn denial_cause(
        &self,
        all: &AclRuleSet,
        id: &str,
        deed: AclQuery<'_>,
    ) -> DenialCause {
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
    pub(crate) fn decide_publish(
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
