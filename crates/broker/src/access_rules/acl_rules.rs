//! Access rules for publish and subscribe, in order: the first rule that applies decides. Rules are
//! compiled outside of the shards and immutable here.
//!
//! A publish is compared with a rule by `filter_matches`. A subscription stands for every topic
//! matched by its filter: an allowing rule applies only if the rule's filter covers all of these
//! topics, a denying rule if both filters share a single topic. So a granted subscription may
//! receive every matching message, and delivery needs no further check.

use crate::ids::ListenerId;
use mqtt::filter_matches;
use mqtt::template::TextTemplate;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclRuleSet {
    rules: Vec<AclRule>,
    /// Indexes of the rules for exact user names, sorted by name.
    by_user: Vec<(Box<str>, Vec<u32>)>,
    /// Indexes of all remaining rules.
    others: Vec<u32>,
    /// Whether any rule has a condition on QoS or RETAIN.
    uses_qos_or_retain: bool,
    members: UserGroups,
}

/// Groups of users, in addition to the groups from authentication. A member leaves a group with the
/// next [`AclRuleSet`].
pub type UserGroups = BTreeMap<Box<str>, Vec<Arc<str>>>;

/// A rule: every condition must hold, and of a list one entry. An empty list is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRule {
    pub allows: bool,
    pub publish: bool,
    pub subscribe: bool,
    /// Whether the rule applies only to clients without an authenticated user name.
    pub anonymous_only: bool,
    pub users: Vec<NamePattern>,
    pub client_ids: Vec<NamePattern>,
    pub groups: Vec<Box<str>>,
    pub addresses: Vec<IpNetwork>,
    pub listeners: Vec<ListenerId>,
    /// Topics to which the rule applies; empty for every topic.
    pub topics: Vec<TopicPattern>,
    /// QoS levels to which the rule applies: bit n for QoS n.
    pub qos: u8,
    pub retain: Option<bool>,
    /// Whether the rule applies only to clients with a wildcard in the user name or client id.
    pub wildcard_names_only: bool,
}

pub const ANY_QOS: u8 = 0b111;

impl Default for AclRule {
    fn default() -> AclRule {
        AclRule {
            allows: false,
            publish: true,
            subscribe: true,
            anonymous_only: false,
            users: Vec::new(),
            client_ids: Vec::new(),
            groups: Vec::new(),
            addresses: Vec::new(),
            listeners: Vec::new(),
            topics: Vec::new(),
            qos: ANY_QOS,
            retain: None,
            wildcard_names_only: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern {
    Exactly(Box<str>),
    /// A prefix, written `sensor-*`.
    StartingWith(Box<str>),
}

impl NamePattern {
    pub fn parse(text: &str) -> NamePattern {
        match text.strip_suffix('*') {
            Some(start) => NamePattern::StartingWith(start.into()),
            None => NamePattern::Exactly(text.into()),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            NamePattern::Exactly(exact) => **exact == *name,
            NamePattern::StartingWith(start) => name.starts_with(&**start),
        }
    }
}

/// `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u8,
}

impl IpNetwork {
    pub fn parse(text: &str) -> Option<IpNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= width)?,
            None => width,
        };
        Some(IpNetwork { address, bits })
    }

    /// Returns the address of a network with a single address.
    pub(crate) fn single_address(self) -> Option<IpAddr> {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        (self.bits == width).then_some(self.address)
    }

    /// Whether the address is in the network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.bits);
                u32::from(own).checked_shr(shift) == u32::from(other).checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.bits);
                u128::from(own).checked_shr(shift) == u128::from(other).checked_shr(shift)
            }
            _ => false,
        }
    }
}

/// A topic filter, optionally with placeholders for client names: `sensors/${clientid}/#`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPattern {
    text: Box<str>,
    /// Parsed placeholders; `None` if the text has none and is the filter itself.
    template: Option<Box<TextTemplate<NameVariable>>>,
    /// Whether the rule applies to this filter or topic only, not to matching topics.
    is_exact: bool,
    /// Common first bytes of every matching topic, at most eight.
    head: u64,
    /// Mask of the valid bits of `head`.
    mask: u64,
}

/// Returns the first eight bytes of a text, padded with zeros, for a quick comparison with `head`.
fn head_bytes(text: &str) -> u64 {
    let bytes = text.bytes().chain(std::iter::repeat(0)).take(8);
    bytes.fold(0, |head, byte| head << 8 | u64::from(byte))
}

/// Returns the bytes with which every topic that a filter matches begins, at most eight, and a mask
/// of the valid bits.
fn head_of_matching_topics(filter: &str) -> (u64, u64) {
    let literal = filter.split(['+', '#']).next().unwrap_or_default();
    // "a/#" matches "a".
    let literal = if filter.ends_with('#') { literal.trim_end_matches('/') } else { literal };
    let mask = match literal.len() {
        0 => 0,
        len => !0 << (8 * (8 - len.min(8))),
    };
    (head_bytes(literal), mask)
}

/// A pattern with the placeholders filled in for one client.
enum ResolvedPattern<'a> {
    Resolved(Cow<'a, str>),
    /// The client has no value for a placeholder, so the pattern does not apply.
    NoValue,
    /// A value is not a single topic level: wildcards, several levels, or `$`.
    UnsafeValue,
}

const VARIABLES: [NameVariable; 3] =
    [NameVariable::ClientId, NameVariable::User, NameVariable::CommonName];

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TopicPattern {
    /// Parses a pattern. The error names the wrong part and shows a valid filter.
    pub fn parse(text: &str) -> Result<TopicPattern, String> {
        let template = TextTemplate::parse(text, |name| NameVariable::parse(name, &VARIABLES))?;
        let mut plain = String::new();
        template.fill(&mut plain, |_, plain| plain.push('x'));
        mqtt::topic::check_filter(&plain).map_err(|_| {
            format!("{text:?} is not a topic filter, use one like \"a/+/c\" or \"a/#\"")
        })?;
        let template = (plain != text).then(|| Box::new(template));
        let (head, mask) = if template.is_some() { (0, 0) } else { head_of_matching_topics(text) };
        Ok(TopicPattern { text: text.into(), template, is_exact: false, head, mask })
    }

    /// Parses a pattern that applies to a subscription with this very filter, or a publish to this
    /// very topic, as with EMQX's `{eq, "#"}`.
    pub fn exactly(text: &str) -> Result<TopicPattern, String> {
        TopicPattern::parse(text).map(|pattern| TopicPattern { is_exact: true, ..pattern })
    }

    fn of(&self, who: &AclSubject, client_id: &str) -> ResolvedPattern<'_> {
        let Some(template) = &self.template else {
            return ResolvedPattern::Resolved(Cow::Borrowed(&self.text));
        };
        let value = |variable: &NameVariable| match variable {
            NameVariable::ClientId => Some(client_id),
            NameVariable::User => who.user.as_deref(),
            NameVariable::CommonName => who.common_name.as_deref(),
            NameVariable::Host => None,
        };
        for variable in VARIABLES {
            if template.values().any(|used| *used == variable) {
                match value(&variable) {
                    None | Some("") => return ResolvedPattern::NoValue,
                    Some(value) if !is_one_level(value) => return ResolvedPattern::UnsafeValue,
                    Some(_) => {}
                }
            }
        }
        let mut text = String::with_capacity(self.text.len());
        template.fill(&mut text, |used, text| text.push_str(value(used).unwrap_or_default()));
        ResolvedPattern::Resolved(Cow::Owned(text))
    }
}

/// Whether a client's name can stand for exactly one level of a filter.
pub(crate) fn is_one_level(name: &str) -> bool {
    !name.is_empty() && !name.contains(['+', '#', '/', '\0', '$'])
}

/// The client whose action is checked.
#[derive(Clone, Debug)]
pub(crate) struct AclSubject {
    pub(crate) user: Option<Arc<str>>,
    pub(crate) groups: Box<[Arc<str>]>,
    /// Address of the client; `None` over a Unix socket, so that rules with `addresses` do not
    /// apply.
    pub(crate) address: Option<IpAddr>,
    pub(crate) listener: ListenerId,
    pub(crate) common_name: Option<Box<str>>,
    pub(crate) is_superuser: bool,
    pub(crate) own: Option<Arc<AclRuleSet>>,
}

/// The action to be checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AclQuery<'a> {
    Publish { topic: &'a str, qos: u8, retain: bool },
    Subscribe { filter: &'a str, qos: u8 },
}

impl AclRuleSet {
    pub fn new(rules: Vec<AclRule>) -> AclRuleSet {
        let mut all = AclRuleSet::default();
        for (at, rule) in rules.iter().enumerate() {
            all.uses_qos_or_retain |= rule.qos != ANY_QOS || rule.retain.is_some();
            let mut names = Vec::new();
            for name in &rule.users {
                match name {
                    NamePattern::Exactly(name) => names.push(name.clone()),
                    NamePattern::StartingWith(_) => {
                        names.clear();
                        break;
                    }
                }
            }
            if names.is_empty() {
                all.others.push(at as u32);
            }
            names.sort_unstable();
            names.dedup();
            for name in names {
                match all.by_user.binary_search_by(|(known, _)| known.cmp(&name)) {
                    Ok(place) => all.by_user[place].1.push(at as u32),
                    Err(place) => all.by_user.insert(place, (name, vec![at as u32])),
                }
            }
        }
        all.rules = rules;
        all
    }

    pub fn with_members(self, members: UserGroups) -> AclRuleSet {
        AclRuleSet { members, ..self }
    }

    pub(crate) fn groups_of(&self, user: Option<&str>) -> &[Arc<str>] {
        user.and_then(|user| self.members.get(user)).map_or(&[], |groups| groups)
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether QoS and RETAIN can make a difference.
    pub(crate) fn uses_qos_or_retain(&self) -> bool {
        self.uses_qos_or_retain
    }

    /// Returns the decision of the first rule that applies, and `None` if no rule does.
    pub(crate) fn decide(
        &self,
        who: &AclSubject,
        client_id: &str,
        deed: AclQuery<'_>,
    ) -> Option<bool> {
        let head = match deed {
            AclQuery::Publish { topic, .. } => (head_bytes(topic), !0),
            AclQuery::Subscribe { filter, .. } => head_of_matching_topics(filter),
        };
        let own = who.user.as_deref().and_then(|user| {
            let found = self.by_user.binary_search_by(|(known, _)| (**known).cmp(user)).ok()?;
            Some(&self.by_user[found].1[..])
        });
        let (mut own, mut others) = (own.unwrap_or_default(), &self.others[..]);
        let groups = self.groups_of(who.user.as_deref());
        loop {
            let next = match (own, others) {
                ([one, rest @ ..], [other, ..]) if one < other => {
                    own = rest;
                    *one
                }
                (_, [other, rest @ ..]) => {
                    others = rest;
                    *other
                }
                ([one, rest @ ..], []) => {
                    own = rest;
                    *one
                }
                ([], []) => return None,
            };
            let rule = &self.rules[next as usize];
            if rule.may_match(head.0, head.1) && rule.matches(who, groups, client_id, deed) {
                return Some(rule.allows);
            }
        }
    }
}

/// Cause of a denial, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DenialCause {
    /// A rule denies the action; the first topic of the rule, if present.
    Denied(Option<Box<str>>),
    /// The filter is wider than the given topic of an allowing rule.
    WiderThan(Box<str>),
    /// No rule applies.
    NoRule,
}

impl fmt::Display for DenialCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DenialCause::Denied(Some(topic)) => write!(f, "a rule denies {topic}"),
            DenialCause::Denied(None) => f.write_str("a rule denies every topic"),
            DenialCause::WiderThan(topic) => {
                write!(f, "the filter is wider than {topic}, which a rule allows")
            }
            DenialCause::NoRule => f.write_str("no rule allows it"),
        }
    }
}

impl AclRuleSet {
    /// Returns the cause of a denial. Slow, for the log only: every rule is compared.
    pub(crate) fn denial_cause(
        &self,
        who: &AclSubject,
        client_id: &str,
        deed: AclQuery<'_>,
    ) -> DenialCause {
        let groups = self.groups_of(who.user.as_deref());
        let about = |rule: &&AclRule| rule.matches(who, groups, client_id, deed);
        if let Some(rule) = self.rules.iter().find(about).filter(|rule| !rule.allows) {
            let topic = rule.topics.first().map(|pattern| pattern.text.clone());
            return DenialCause::Denied(topic);
        }
        let AclQuery::Subscribe { filter, .. } = deed else { return DenialCause::NoRule };
        let part = self.rules.iter().filter(|rule| {
            rule.allows && rule.subscribe && rule.matches_subject(who, groups, client_id)
        });
        let mut part = part.flat_map(|rule| &rule.topics);
        let part = part.find(|pattern| match pattern.of(who, client_id) {
            ResolvedPattern::Resolved(own) => overlaps(&own, filter),
            ResolvedPattern::NoValue | ResolvedPattern::UnsafeValue => false,
        });
        part.map_or(DenialCause::NoRule, |pattern| DenialCause::WiderThan(pattern.text.clone()))
    }
}

impl AclRule {
    fn matches(&self, who: &AclSubject, groups: &[Arc<str>], id: &str, deed: AclQuery<'_>) -> bool {
        let fits = match deed {
            AclQuery::Publish { qos, retain, .. } => {
                self.publish
                    && self.qos >> qos & 1 == 1
                    && self.retain.is_none_or(|wanted| wanted == retain)
            }
            AclQuery::Subscribe { qos, .. } => {
                self.subscribe && self.qos >> qos & 1 == 1 && self.retain.is_none()
            }
        };
        fits && self.matches_topics(deed, who, id) && self.matches_subject(who, groups, id)
    }

    /// Whether the rule may apply to topics with these first bytes. Sorts out most rules quickly.
    #[inline]
    fn may_match(&self, head: u64, mask: u64) -> bool {
        let fits = |pattern: &TopicPattern| (head ^ pattern.head) & pattern.mask & mask == 0;
        self.topics.is_empty() || self.topics.iter().any(fits)
    }

    fn matches_subject(&self, who: &AclSubject, groups: &[Arc<str>], client_id: &str) -> bool {
        let is_own = |own: &Arc<str>| self.groups.iter().any(|group| **group == **own);
        let user = who.user.as_deref();
        let any = |names: &[NamePattern], own: &str| {
            names.is_empty() || names.iter().any(|n| n.matches(own))
        };
        let is_wild = |name: &str| name.contains(['+', '#']);
        (!self.anonymous_only || user.is_none())
            && (!self.wildcard_names_only || is_wild(client_id) || user.is_some_and(is_wild))
            && (self.users.is_empty() || user.is_some_and(|user| any(&self.users, user)))
            && any(&self.client_ids, client_id)
            && (self.groups.is_empty() || who.groups.iter().chain(groups).any(is_own))
            && (self.addresses.is_empty()
                || who.address.is_some_and(|own| self.addresses.iter().any(|n| n.contains(own))))
            && (self.listeners.is_empty() || self.listeners.contains(&who.listener))
    }

    /// Whether the rule's topics apply to the action. A denying rule with an unsafe placeholder
    /// value applies, to be on the safe side.
    fn matches_topics(&self, deed: AclQuery<'_>, who: &AclSubject, client_id: &str) -> bool {
        self.topics.is_empty()
            || self.topics.iter().any(|pattern| match pattern.of(who, client_id) {
                ResolvedPattern::NoValue => false,
                ResolvedPattern::UnsafeValue => !self.allows,
                ResolvedPattern::Resolved(own) if pattern.is_exact => match deed {
                    AclQuery::Publish { topic, .. } => *own == *topic,
                    AclQuery::Subscribe { filter, .. } => *own == *filter,
                },
                ResolvedPattern::Resolved(own) => match deed {
                    AclQuery::Publish { topic, .. } => filter_matches(&own, topic),
                    AclQuery::Subscribe { filter, .. } if self.allows => covers(&own, filter),
                    AclQuery::Subscribe { filter, .. } => overlaps(&own, filter),
                },
            })
    }
}

/// Whether `outer` matches every topic that `inner` matches.
fn covers(outer: &str, inner: &str) -> bool {
    // [MQTT-4.7.2-1]
    if outer.starts_with(['+', '#']) && inner.starts_with('$') {
        return false;
    }
    let (mut outer, mut inner) = (outer.split('/'), inner.split('/'));
    loop {
        match (outer.next(), inner.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(level)) if level != "#" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// Whether some topic is matched by both filters.
fn overlaps(one: &str, other: &str) -> bool {
    let is_wild = |filter: &str| filter.starts_with(['+', '#']);
    // [MQTT-4.7.2-1]
    if is_wild(one) && other.starts_with('$') || is_wild(other) && one.starts_with('$') {
        return false;
    }
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameVariable {
    ClientId,
    CommonName,
    Host,
    User,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclAction {
    Publish,
    Subscribe,
}

#[cfg(test)]
mod tests;
