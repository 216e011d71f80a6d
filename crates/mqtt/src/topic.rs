//! Topic names and topic filters: what they may look like and when they match.
//!
//! Matching here is naive and right. The broker's index must agree with it.

use crate::text::contains_any;
use crate::violation::Violation;

/// A topic name is not empty and has no wildcard and no U+0000.
#[inline]
pub fn check_topic(topic: &str) -> Result<(), Violation> {
    // [MQTT-4.7.0-1] [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.7.3-3]
    let fits = !topic.is_empty() && topic.len() <= TOPIC_BYTES_MAX;
    if fits && !contains_any(topic.as_bytes(), [0, b'+', b'#']) {
        return Ok(());
    }
    Err(Violation::TopicNameInvalid)
}

/// A topic filter is not empty, has no U+0000, `+` only as a whole level and `#` only as the last.
pub fn check_filter(filter: &str) -> Result<(), Violation> {
    // [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.7.3-3]
    let fits = !filter.is_empty() && filter.len() <= TOPIC_BYTES_MAX;
    if !fits || contains_any(filter.as_bytes(), [0]) {
        return Err(Violation::TopicFilterInvalid);
    }
    if !contains_any(filter.as_bytes(), [b'+', b'#']) {
        return Ok(());
    }
    let mut rest = levels(filter);
    while let Some(level) = rest.next() {
        let is_last = rest.clone().next().is_none();
        let right = match level {
            "#" => is_last, // [MQTT-4.7.1-1]
            "+" => true,
            _ => !contains_any(level.as_bytes(), [b'+', b'#']), // [MQTT-4.7.1-2]
        };
        if !right {
            return Err(Violation::TopicFilterInvalid);
        }
    }
    Ok(())
}

/// A shared subscription: `$share/{group}/{filter}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share<'a> {
    pub group: &'a str,
    /// Checked with [`check_filter`].
    pub filter: &'a str,
}

impl<'a> Share<'a> {
    /// `None` for a filter that does not start with `$share/`; such a filter is not checked here.
    pub fn parse(filter: &'a str) -> Result<Option<Share<'a>>, Violation> {
        let Some(shared) = filter.strip_prefix("$share/") else {
            return Ok(None);
        };
        // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        let (group, filter) = shared
            .split_once('/')
            .ok_or(Violation::TopicFilterInvalid)?;
        if group.is_empty() || contains_any(group.as_bytes(), [0, b'+', b'#']) {
            return Err(Violation::TopicFilterInvalid);
        }
        check_filter(filter)?;
        Ok(Some(Share { group, filter }))
    }
}

/// Whether a checked filter (not a shared one) selects a checked topic, byte for byte.
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

/// The parts between the slashes; an empty part is a level too.
#[inline]
pub fn levels(name: &str) -> std::str::Split<'_, char> {
    name.split('/')
}

/// The longest text that a length of two bytes can announce.
const TOPIC_BYTES_MAX: usize = 65_535;
