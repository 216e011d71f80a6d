//! Topic names and topic filters: their syntax, and matching.
//!
//! Matching here is simple and correct. The broker's index must agree with it.

use crate::text::{check_text, contains_any};
use crate::violation::Violation;

/// Checks a topic name: not empty, at most 65,535 bytes, without wildcards and U+0000.
#[inline]
pub fn check_topic(topic: &str) -> Result<(), Violation> {
    // [MQTT-4.7.0-1] [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.7.3-3]
    let fits = !topic.is_empty() && topic.len() <= TOPIC_BYTES_MAX;
    if fits && !contains_any(topic.as_bytes(), [0, b'+', b'#']) {
        return Ok(());
    }
    Err(Violation::TopicNameInvalid)
}

/// Returns the error in bytes which are not a topic name, as a phrase to follow the topic.
pub fn topic_error(bytes: &[u8]) -> Option<&'static str> {
    match check_text(bytes) {
        Err(Violation::MalformedNul) => Some("has a NUL character, which no topic may have"),
        Err(_) => Some("is not UTF-8"),
        Ok("") => Some("is empty, and a topic has at least one character"),
        Ok(topic) if topic.len() > TOPIC_BYTES_MAX => Some("is longer than 65,535 bytes"),
        Ok(topic) => check_topic(topic)
            .is_err()
            .then_some("has a wildcard (+ or #), which only a filter may have"),
    }
}

/// Checks a topic filter: not empty, at most 65,535 bytes, no U+0000, `+` only as a whole level and
/// `#` only as the last level. Shared filters are parsed by [`SharedFilter::parse`].
pub fn check_filter(filter: &str) -> Result<(), Violation> {
    match unshared_filter_error(filter) {
        None => Ok(()),
        Some(_) => Err(Violation::TopicFilterInvalid),
    }
}

/// Returns the error in a text which is not a topic filter, shared or not, as a phrase to follow
/// the filter.
pub fn filter_error(filter: &str) -> Option<&'static str> {
    let shared = filter.strip_prefix("$share/");
    match shared.and_then(|shared| shared.split_once('/')) {
        Some((_, plain)) if SharedFilter::parse(filter).is_err() => {
            Some(unshared_filter_error(plain).unwrap_or(SHARED_FILTER_FORM))
        }
        Some(_) => None,
        None if shared.is_some() => Some(SHARED_FILTER_FORM),
        None => unshared_filter_error(filter),
    }
}

const SHARED_FILTER_FORM: &str =
    "is not $share/GROUP/FILTER with a group that is not empty and has no + or #";

fn unshared_filter_error(filter: &str) -> Option<&'static str> {
    // [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.7.3-3]
    if filter.is_empty() {
        return Some("is empty, and a filter has at least one character");
    }
    if filter.len() > TOPIC_BYTES_MAX {
        return Some("is longer than 65,535 bytes");
    }
    if contains_any(filter.as_bytes(), [0]) {
        return Some("has a NUL character, which no filter may have");
    }
    if !contains_any(filter.as_bytes(), [b'+', b'#']) {
        return None;
    }
    let mut rest = levels(filter);
    while let Some(level) = rest.next() {
        match level {
            // [MQTT-4.7.1-1]
            "#" if rest.clone().next().is_some() => {
                return Some("has a # that is not the last level");
            }
            "#" | "+" => {}
            // [MQTT-4.7.1-2]
            _ if contains_any(level.as_bytes(), [b'+', b'#']) => {
                return Some("has a wildcard (+ or #) that is not a level of its own");
            }
            _ => {}
        }
    }
    None
}

/// A shared subscription: `$share/{group}/{filter}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedFilter<'a> {
    pub group: &'a str,
    /// Filter behind the group, valid according to [`check_filter`].
    pub filter: &'a str,
}

impl<'a> SharedFilter<'a> {
    /// Parses a shared filter. `None` for a filter without `$share/`, which is not checked here.
    pub fn parse(filter: &'a str) -> Result<Option<SharedFilter<'a>>, Violation> {
        let Some(shared) = filter.strip_prefix("$share/") else {
            return Ok(None);
        };
        // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        let (group, filter) = shared.split_once('/').ok_or(Violation::TopicFilterInvalid)?;
        if group.is_empty() || contains_any(group.as_bytes(), [0, b'+', b'#']) {
            return Err(Violation::TopicFilterInvalid);
        }
        check_filter(filter)?;
        Ok(Some(SharedFilter { group, filter }))
    }
}

/// Whether a checked filter without `$share/` matches a checked topic, byte for byte.
pub fn filter_matches(filter: &str, topic: &str) -> bool {
    // [MQTT-4.7.2-1]
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    // [MQTT-4.7.3-4]
    let mut names = levels(topic);
    for level in levels(filter) {
        // `#` also stands for no level at all: "a/#" matches "a".
        if level == "#" {
            return true;
        }
        match names.next() {
            Some(name) if level == "+" || level == name => {}
            _ => return false,
        }
    }
    names.next().is_none()
}

/// Iterates over the parts between slashes; an empty part is a level too.
#[inline]
pub fn levels(name: &str) -> std::str::Split<'_, char> {
    name.split('/')
}

/// Longest text for a length field of two bytes.
const TOPIC_BYTES_MAX: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_have_no_wildcards() {
        // [MQTT-3.3.2-2] [MQTT-4.7.0-1]
        for topic in ["+", "#", "a/+/b", "a/#", "a+b", "a#", "+a"] {
            assert_eq!(check_topic(topic), Err(Violation::TopicNameInvalid), "{topic}");
        }
        for topic in ["a", "/", "//", "a/b", " ", "$SYS/x", "\u{FEFF}", "\u{E4}/\u{F6}"] {
            assert_eq!(check_topic(topic), Ok(()), "{topic}");
        }
    }

    #[test]
    fn names_and_filters_have_at_least_one_character_and_no_nul() {
        // [MQTT-4.7.3-1] [MQTT-4.7.3-2]
        for name in ["", "\0", "a/b\0"] {
            assert_eq!(check_topic(name), Err(Violation::TopicNameInvalid));
            assert_eq!(check_filter(name), Err(Violation::TopicFilterInvalid));
        }
    }

    #[test]
    fn names_and_filters_end_at_65535_bytes() {
        // [MQTT-4.7.3-3]
        let longest = "a".repeat(65_535);
        assert_eq!(check_topic(&longest), Ok(()));
        assert_eq!(check_filter(&longest), Ok(()));
        let longer = "a".repeat(65_536);
        assert_eq!(check_topic(&longer), Err(Violation::TopicNameInvalid));
        assert_eq!(check_filter(&longer), Err(Violation::TopicFilterInvalid));
    }

    #[test]
    fn an_error_names_the_rule_that_a_topic_or_filter_breaks() {
        for (topic, told) in [
            (&b"a"[..], None),
            (b"", Some("is empty")),
            (b"a/+", Some("has a wildcard (+ or #), which only")),
            (b"a\0", Some("has a NUL character")),
            (b"\xff", Some("is not UTF-8")),
        ] {
            assert!(begins_with(topic_error(topic), told), "{topic:?}");
        }
        for (filter, told) in [
            ("a/+/#", None),
            ("$share/g/a/#", None),
            ("$shared", None),
            ("", Some("is empty")),
            ("a\0", Some("has a NUL character")),
            ("a/#/b", Some("has a # that is not the last level")),
            ("a/b+", Some("has a wildcard (+ or #) that is not a level")),
            ("$share/g/a+", Some("has a wildcard (+ or #) that is not a level")),
            ("$share/g/", Some("is empty")),
            ("$share/g", Some("is not $share/GROUP/FILTER")),
            ("$share//a", Some("is not $share/GROUP/FILTER")),
            ("$share/+/a", Some("is not $share/GROUP/FILTER")),
        ] {
            assert!(begins_with(filter_error(filter), told), "{filter}");
        }
    }

    fn begins_with(error: Option<&str>, told: Option<&str>) -> bool {
        match (error, told) {
            (Some(error), Some(told)) => error.starts_with(told),
            (error, told) => error == told,
        }
    }

    #[test]
    fn hash_stands_alone_at_the_end() {
        // [MQTT-4.7.1-1]
        for filter in ["#", "/#", "a/#", "a/b/#", "+/#", "//#"] {
            assert_eq!(check_filter(filter), Ok(()), "{filter}");
        }
        for filter in ["a#", "#a", "#/", "#/a", "a/#/b", "a/b#", "##", "+#", "#+"] {
            assert_eq!(check_filter(filter), Err(Violation::TopicFilterInvalid), "{filter}");
        }
    }

    #[test]
    fn plus_fills_a_whole_level() {
        // [MQTT-4.7.1-2]
        for filter in ["+", "+/", "/+", "+/+", "a/+", "a/+/b", "+/a/#", "$SYS/+"] {
            assert_eq!(check_filter(filter), Ok(()), "{filter}");
        }
        for filter in ["a+", "+a", "a/b+", "a/+b", "++", "a/+b/c", "\u{E4}+/b"] {
            assert_eq!(check_filter(filter), Err(Violation::TopicFilterInvalid), "{filter}");
        }
    }

    #[test]
    fn shared_filters_name_a_group_and_a_filter() {
        // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        let share = |filter| SharedFilter::parse(filter).map(|s| s.map(|s| (s.group, s.filter)));
        assert_eq!(share("$share/g/a/+"), Ok(Some(("g", "a/+"))));
        assert_eq!(share("$share/g//a"), Ok(Some(("g", "/a"))));
        assert_eq!(share("$share/g/#"), Ok(Some(("g", "#"))));
        assert_eq!(share("$share/g/$share/h/a"), Ok(Some(("g", "$share/h/a"))));
        for plain in ["a", "$share", "$sharegroup/a", "$SHARE/g/a", "a/$share/g/b"] {
            assert_eq!(share(plain), Ok(None), "{plain}");
        }
        for wrong in [
            "$share/",
            "$share/g",
            "$share/g/",
            "$share//a",
            "$share/+/a",
            "$share/g#/a",
            "$share/g+h/a",
            "$share/#",
            "$share/g/a#",
            "$share/g/#/a",
        ] {
            assert_eq!(share(wrong), Err(Violation::TopicFilterInvalid), "{wrong}");
        }
    }

    #[test]
    fn filters_match_level_by_level() {
        let matching = [
            ("a", "a"),
            ("a/b", "a/b"),
            ("/", "/"),
            ("/a", "/a"),
            ("a/", "a/"),
            ("a//b", "a//b"),
            ("+", "a"),
            ("+/+", "a/b"),
            ("+/+", "/"),
            ("/+", "/a"),
            ("a/+/c", "a/b/c"),
            ("a/+", "a/"),
            ("+/b", "/b"),
            ("#", "a"),
            ("#", "a/b/c"),
            ("#", "/"),
            ("a/#", "a"),
            ("a/#", "a/"),
            ("a/#", "a/b"),
            ("a/#", "a/b/c"),
            ("+/#", "a"),
            ("+/b/#", "a/b"),
        ];
        for (filter, topic) in matching {
            assert!(filter_matches(filter, topic), "{filter} {topic}");
        }
        let others = [
            ("a", "b"),
            ("a", "A"),
            ("a", "a/"),
            ("a", "/a"),
            ("a/", "a"),
            ("a/b", "a"),
            ("+", "a/b"),
            ("+", "/a"),
            ("+", "a/"),
            ("a/+", "a"),
            ("a/+", "a/b/c"),
            ("a/#", "ab"),
            ("a/#", "b/a"),
            ("/#", "a"),
            ("a//b", "a/b"),
            ("+/b", "b"),
        ];
        for (filter, topic) in others {
            assert!(!filter_matches(filter, topic), "{filter} {topic}");
        }
    }

    #[test]
    fn leading_wildcard_does_not_see_dollar_topics() {
        // [MQTT-4.7.2-1]
        for filter in ["#", "+", "+/a", "+/#", "+/+"] {
            assert!(!filter_matches(filter, "$SYS"), "{filter}");
            assert!(!filter_matches(filter, "$SYS/a"), "{filter}");
        }
        for filter in ["$SYS/#", "$SYS/+", "$SYS/a"] {
            assert!(filter_matches(filter, "$SYS/a"), "{filter}");
        }
        assert!(filter_matches("a/+", "a/$b"));
        assert!(filter_matches("#", "a/$b"));
    }

    #[test]
    fn names_are_compared_byte_for_byte() {
        // [MQTT-4.7.3-4]: the same letter composed and decomposed.
        assert!(!filter_matches("\u{E9}", "e\u{301}"));
        assert!(!filter_matches("\u{FEFF}a", "a"));
        assert!(filter_matches("\u{FEFF}a", "\u{FEFF}a"));
    }
}
