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

use crate::refusal::Refusal;
use mqtt::SharedFilter;

/// Bound of a namespace in bytes, since `Session` holds the prefix length (namespace and `/`) as
/// `u8`.
pub(crate) const NAMESPACE_BYTES_MAX: usize = 254;

/// Whether `text` is a valid namespace: levels without wildcards, none empty or with a leading `$`.
pub(crate) fn is_valid_namespace(text: &str) -> bool {
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

/// Levels of a namespace, in addition to the levels which `topic_levels_max` bounds.
pub(crate) const LEVELS_MAX: usize = 8;

/// Returns the filter without the `$share/` prefix.
pub(crate) fn filter_behind_share(filter: &str) -> &str {
    parse_known_share(filter).map_or(filter, |share| share.filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::namespace_template::NamespaceTemplate;

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
