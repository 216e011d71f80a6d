//! Sources in FROM: topic filters and events, and topics which no rule ever sees.

use super::RuleParseError;
use crate::events::{EVENTS, event_index};
use sqlparser::tokenizer::Location;

/// Topics used only between clients and the broker, with hints: no message has these topics.
const NEVER_SEEN: [(&str, &str); 4] = [
    ("$delayed/", "a rule sees the message when it is due, under the topic behind the seconds"),
    ("$cache/", "what is asked of a cache goes to nobody else"),
    ("$bridges/", "what a bridge brings is a message: say the topic under which it comes"),
    ("$sources/", "what a bridge or a gateway brings is a message: say the topic of it"),
];

/// Returns the index of an event in [`EVENTS`], or `None` for a valid topic filter; refuses unknown
/// events and invalid filters.
pub(super) fn parse_source(filter: &str, at: Location) -> Result<Option<usize>, RuleParseError> {
    if let Some(name) = filter.strip_prefix("$events/") {
        let names = || EVENTS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
        let wrong = || RuleParseError::new(at, format!("{filter} is not an event"), names());
        return event_index(name).map(Some).ok_or_else(wrong);
    }
    if filter.starts_with("$share/") {
        let hint = "a rule sees every message once, so leave $share and the group out";
        return Err(RuleParseError::new(at, "a rule has no shared subscription", hint));
    }
    let never = NEVER_SEEN.iter().find(|(prefix, _)| filter.starts_with(prefix));
    if let Some((prefix, hint)) = never {
        return Err(RuleParseError::new(at, format!("no rule sees what is below {prefix}"), *hint));
    }
    match mqtt::topic::check_filter(filter) {
        Ok(()) => Ok(None),
        Err(_) => Err(RuleParseError::new(
            at,
            format!("\"{filter}\" is not a topic filter"),
            "`+` stands for a whole level, `#` for all that follow and stands last",
        )),
    }
}
