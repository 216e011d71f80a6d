//! Namespaces. A client in a namespace uses topics and client ids as if the other clients of this
//! namespace were the only ones. Inside the broker all names are complete: the prefix is added as a
//! packet arrives and removed as a packet is encoded.
//!
//! | the client's name | the broker's name |
//! |---|---|
//! | topic, filter or response topic `a/b` | `tenant/a/b` |
//! | `$share/g/a/b` | NUL `7` NUL `$share/g/tenant/a/b`, where 7 is the length of `tenant/` |
//! | client id `c` | `tenant` NUL `c` |
//!
//! MQTT text never contains NUL [MQTT-1.5.4-2], so no client can send another's name.

use crate::authorization::placeholders::NameVariable;
use crate::connection::authentication::AuthOutcome;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::refusal::Refusal;
use crate::input::ConnId;
use crate::session::session_table::Session;
use crate::session::session_table::SessionTable;
use mqtt::template::TextTemplate;
use mqtt::{Property, SharedFilter};
use std::borrow::Cow;
use std::fmt;

/// A namespace as an option gives it: `tenant`, or `tenants/${username}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceTemplate {
    text: Box<str>,
    template: TextTemplate<NameVariable>,
}

/// Bound of a namespace in bytes, since `Session` holds the prefix length (namespace and `/`) as
/// `u8`.
pub const NAMESPACE_BYTES_MAX: usize = 254;
/// Levels of a namespace, in addition to the levels which `topic_levels_max` bounds.
const LEVELS_MAX: usize = 8;

const VARIABLES: [NameVariable; 2] = [NameVariable::User, NameVariable::CommonName];

impl NamespaceTemplate {
    /// Parses the option's value. Returns `None` for the empty text, which means no namespace.
    pub fn parse(text: &str) -> Result<Option<NamespaceTemplate>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let template = TextTemplate::parse(text, |name| NameVariable::parse(name, &VARIABLES))?;
        let mut plain = String::new();
        template.fill(&mut plain, |_, plain| plain.push('x'));
        if !is_valid_namespace(&plain) {
            let why = "no namespace, use one like \"tenant\" or \"tenants/${username}\"";
            return Err(why.to_string());
        }
        Ok(Some(NamespaceTemplate { text: text.into(), template }))
    }

    /// Whether the namespace depends on the client: its user name or its certificate.
    pub fn has_variables(&self) -> bool {
        self.template.values().next().is_some()
    }

    /// Whether the template contains `${username}`.
    pub fn asks_for_user(&self) -> bool {
        self.template.values().any(|variable| *variable == NameVariable::User)
    }

    /// Returns the namespace of a client, or `None` if a value is missing or is not a single level.
    fn of(&self, user: Option<&str>, common_name: Option<&str>) -> Option<Box<str>> {
        let mut text = String::new();
        let filled = self.template.try_fill(&mut text, |variable, text| {
            let value = if *variable == NameVariable::User { user } else { common_name };
            let value = value.filter(|value| !value.contains(['/', '$']));
            text.push_str(value.ok_or(())?);
            Ok::<(), ()>(())
        });
        filled.ok()?;
        is_valid_namespace(&text).then(|| text.into())
    }
}

impl fmt::Display for NamespaceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether `text` is a valid namespace: levels without wildcards, none empty or with a leading `$`.
fn is_valid_namespace(text: &str) -> bool {
    let is_level = |level: &str| !level.is_empty() && !level.starts_with('$');
    text.len() <= NAMESPACE_BYTES_MAX
        && !text.contains(['+', '#', '\0'])
        && text.split('/').count() <= LEVELS_MAX
        && text.split('/').all(is_level)
}

/// Returns the broker's client id (`key`), which distinguishes equal ids in different namespaces.
pub(crate) fn namespaced_id(namespace: &str, client_id: &str) -> Box<str> {
    match namespace {
        "" => client_id.into(),
        _ => format!("{namespace}\0{client_id}").into(),
    }
}

/// Splits the broker's name of a client into the namespace, if any, and the client's own id.
pub fn split_client_id(client_id: &str) -> (Option<&str>, &str) {
    match client_id.split_once('\0') {
        Some((namespace, client_id)) => (Some(namespace), client_id),
        None => (None, client_id),
    }
}

/// Returns the length of the prefix of topics: the namespace and a `/`, or 0 without a namespace.
pub(crate) fn prefix_len(namespace: &str) -> usize {
    if namespace.is_empty() { 0 } else { namespace.len() + 1 }
}

/// Checks a topic of a client in a namespace; `len` is the length of the prefix. A namespace has no
/// server topics, so names with a leading `$` are refused [MQTT 5.0, 4.7.2]. The length limit
/// includes the namespace [MQTT-4.7.3-3].
pub(crate) fn check_name(len: usize, topic: &str) -> Result<(), Refusal> {
    match len {
        0 => Ok(()),
        _ if topic.starts_with('$') => Err(Refusal::NotAuthorized),
        _ if len + topic.len() > usize::from(u16::MAX) => Err(Refusal::TopicNameInvalid),
        _ => Ok(()),
    }
}

/// Returns the length of the prefix of topics, from the broker's client id: NUL replaces the `/`.
pub(crate) fn prefix_len_of(client_id: &str) -> u8 {
    let len = client_id.bytes().position(|byte| byte == 0).map_or(0, |at| at + 1);
    u8::try_from(len).unwrap_or(u8::MAX)
}

/// Parses a shared subscription from its name inside the broker, which begins with the namespace of
/// the client if there is one.
pub(crate) fn parse_known_share(known: &str) -> Option<SharedFilter<'_>> {
    let text = known.rsplit('\0').next().unwrap_or(known);
    SharedFilter::parse(text).ok().flatten()
}

/// Client id of an accepted client: as the client sent it, and as the broker's `key`.
#[derive(Debug)]
pub(crate) struct NamespacedClientId {
    pub(crate) client_id: Box<str>,
    pub(crate) key: Box<str>,
}

impl NamespacedClientId {
    pub(crate) fn new(namespace: &str, client_id: Box<str>) -> NamespacedClientId {
        NamespacedClientId { key: namespaced_id(namespace, &client_id), client_id }
    }
}

impl Session {
    /// Returns the client id of CONNECT, without the namespace, for everything which clients see.
    pub(crate) fn own_client_id(&self) -> &str {
        &self.client_id[usize::from(self.prefix_len)..]
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.client_id[..usize::from(self.prefix_len).saturating_sub(1)]
    }

    /// Returns a topic or filter of the client with the namespace's prefix, for the use in the
    /// broker.
    pub(crate) fn add_prefix<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self.prefix_len {
            0 => Cow::Borrowed(name),
            _ => Cow::Owned(format!("{}/{name}", self.namespace())),
        }
    }

    /// Adds the namespace to a topic or filter like `add_prefix`. For the path of every PUBLISH the
    /// result is in a reused buffer.
    #[inline]
    pub(crate) fn add_prefix_in<'a>(&self, name: &'a str, buffer: &'a mut String) -> &'a str {
        if self.prefix_len == 0 {
            return name;
        }
        buffer.clear();
        buffer.extend([self.namespace(), "/", name]);
        buffer
    }

    /// Adds the prefix to a filter, shared or not. Returns `None` if the result is too long.
    pub(crate) fn add_filter_prefix<'a>(&self, filter: &'a str) -> Option<Cow<'a, str>> {
        if self.prefix_len == 0 {
            return Some(Cow::Borrowed(filter));
        }
        let known = match SharedFilter::parse(filter).ok().flatten() {
            Some(SharedFilter { group, filter }) => {
                format!("\0{}\0$share/{group}/{}", self.prefix_len, self.add_prefix(filter)).into()
            }
            None => self.add_prefix(filter),
        };
        (known.len() <= usize::from(u16::MAX)).then_some(known)
    }

    /// Returns a topic or filter without the namespace's prefix, for a packet to the client.
    pub(crate) fn strip_prefix<'a>(&self, known: &'a str) -> &'a str {
        known.get(usize::from(self.prefix_len)..).unwrap_or_default()
    }

    /// Appends a property of a PUBLISH to `to`, with the prefix added to a Response Topic. Returns
    /// `false` if the Response Topic becomes too long.
    pub(crate) fn add_property_prefix(
        &self,
        property: Property<'_>,
        bytes: &[u8],
        to: &mut Vec<u8>,
    ) -> bool {
        match property {
            Property::ResponseTopic(name) if self.prefix_len > 0 => {
                let name = self.add_prefix(name);
                let fits = name.len() <= usize::from(u16::MAX);
                if fits {
                    Property::ResponseTopic(&name).encode(to);
                }
                fits
            }
            _ => {
                to.extend_from_slice(bytes);
                true
            }
        }
    }
}

impl ConnectionTable {
    /// Returns the namespace of a client whose CONNECT is being handled. The empty text is none.
    /// The namespace of the authenticator takes precedence over the option's.
    pub(crate) fn namespace_at(
        &self,
        conn: ConnId,
        sessions: &SessionTable,
    ) -> Result<Box<str>, Refusal> {
        let Some(known) = self.conn(conn) else { return Ok("".into()) };
        let peer = &known.peer;
        let grant = peer.auth_outcome().and_then(AuthOutcome::principal);
        if let Some(own) = grant.and_then(|grant| grant.namespace.as_deref()) {
            return if own.is_empty() || is_valid_namespace(own) {
                Ok(own.into())
            } else {
                Err(Refusal::NoNamespace)
            };
        }
        let Some(namespace) = &sessions.context.options.options_of_peer(peer).namespace else {
            return Ok("".into());
        };
        let user = grant.and_then(|grant| grant.user.as_deref());
        let certificate = peer.certificate();
        let common_name = certificate.and_then(|known| known.common_name.as_deref());
        namespace.of(user, common_name).ok_or(Refusal::NoNamespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_name_that_names_can_begin_with() {
        for right in ["tenant", "a/b", "users/${username}", "${cert_cn}"] {
            assert!(NamespaceTemplate::parse(right).unwrap().is_some(), "{right}");
        }
        assert_eq!(NamespaceTemplate::parse("").unwrap(), None);
        let long = "x".repeat(NAMESPACE_BYTES_MAX + 1);
        for wrong in [
            "a/b/c/d/e/f/g/h/i",
            "/",
            "a/",
            "/a",
            "a//b",
            "+",
            "a/#",
            "$SYS",
            "a/$b",
            "${user}",
            &long,
        ] {
            assert!(NamespaceTemplate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_clients_name_is_one_level_and_no_more() {
        let of = |text: &str, user| {
            let namespace = NamespaceTemplate::parse(text).unwrap().unwrap();
            namespace.of(user, None).map(String::from)
        };
        assert_eq!(of("t/${username}", Some("ann")).as_deref(), Some("t/ann"));
        assert_eq!(of("t", None).as_deref(), Some("t"));
        for wrong in ["", "a/b", "+", "#", "$SYS", "a\0b"] {
            assert_eq!(of("t/${username}", Some(wrong)), None, "{wrong:?}");
        }
        assert_eq!(of("t/${username}", None), None);
        assert_eq!(of("t/${cert_cn}", Some("ann")), None);
    }

    #[test]
    fn what_a_client_is_known_by_says_its_namespace() {
        let key = namespaced_id("a/b", "c/d");
        assert_eq!(split_client_id(&key), (Some("a/b"), "c/d"));
        assert_eq!(usize::from(prefix_len_of(&key)), "a/b/".len());
        assert_eq!((split_client_id("c/d"), prefix_len_of("c/d")), ((None, "c/d"), 0));
    }
}
