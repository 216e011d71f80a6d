//! Rewrites of topics and filters as packets arrive. The first rewrite whose source and regex match
//! is applied, once. All later steps, permissions included, see the rewritten name.
//!
//! `resolve_topic` rewrites for a PUBLISH, `rewrite_filter` for SUBSCRIBE and UNSUBSCRIBE,
//! `rewrite_will_topic` for wills.

use crate::access_rules::acl_rules::AclAction;
use crate::access_rules::placeholders::{NameTemplate, PlaceholderValues};
use crate::limits::LINK_IDS;
use crate::special_topics::{CACHE_PREFIX, DELAYED_PREFIX, EXCLUSIVE};
use mqtt::filter_matches;
use regex::{Regex, RegexBuilder};

/// A `[[rewrite]]` section.
#[derive(Clone, Debug)]
pub struct TopicRewrite {
    /// Packets which the rule applies to; `None` is both PUBLISH and SUBSCRIBE.
    action: Option<AclAction>,
    /// Filter of the names that the rule applies to. Names which do not match skip the `regex`.
    source: Box<str>,
    regex: Regex,
    dest: NameTemplate,
}

/// Rules with the same text are equal: `Regex` has no equality of its own.
impl PartialEq for TopicRewrite {
    fn eq(&self, other: &TopicRewrite) -> bool {
        (self.action, &self.source, self.regex.as_str(), &self.dest)
            == (other.action, &other.source, other.regex.as_str(), &other.dest)
    }
}

impl Eq for TopicRewrite {}

/// Memory that a compiled `regex` may take, in bytes.
const REGEX_BYTES_MAX: usize = 256 * 1024;

impl TopicRewrite {
    /// Parses a rule. The error names the faulty value and a correct example.
    pub fn parse(
        action: Option<AclAction>,
        source: &str,
        regex: &str,
        dest: &str,
    ) -> Result<TopicRewrite, String> {
        mqtt::topic::check_filter(source).map_err(|_| {
            format!("source: {source:?} is not a topic filter, use one like \"a/#\"")
        })?;
        let regex = RegexBuilder::new(regex)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|why| format!("regex: {why}"))?;
        let dest = NameTemplate::parse(dest, regex.captures_len() - 1)
            .map_err(|why| format!("dest: {why}"))?;
        let example = dest.example();
        let is_name = mqtt::topic::check_filter(&example).is_ok() && !is_special(&example);
        match is_name {
            true => Ok(TopicRewrite { action, source: source.into(), regex, dest }),
            false => Err("dest becomes no topic, use one like \"a/$1/%c\"".to_string()),
        }
    }

    /// Returns `None` if the rule does not apply, and `Some(None)` if a placeholder has no usable
    /// value.
    pub(crate) fn rewrite(
        &self,
        action: AclAction,
        name: &str,
        whom: &PlaceholderValues<'_>,
    ) -> Option<Option<String>> {
        if self.action.is_some_and(|own| own != action) || !filter_matches(&self.source, name) {
            return None;
        }
        let found = self.regex.captures(name)?;
        Some(self.dest.fill(whom, |at| found.get(at).map_or("", |group| group.as_str())))
    }
}

/// Whether a name has a prefix with a special meaning. The result of a rewrite must not.
pub(crate) fn is_special(name: &str) -> bool {
    let prefixes = ["$share/", EXCLUSIVE, CACHE_PREFIX, DELAYED_PREFIX, LINK_IDS];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_is_told() {
        let parse =
            |source, regex, dest| TopicRewrite::parse(None, source, regex, dest).unwrap_err();
        assert!(parse("a/#/b", "^a", "b").starts_with("source: "));
        assert!(parse("a/#", "(", "b").starts_with("regex: "));
        assert!(parse("a/#", "^(a)", "$2").contains("it has 1"));
        assert!(parse("a/#", "^a", "").starts_with("dest "));
        assert!(parse("a/#", "^a", "b/#/c").starts_with("dest "));
        assert!(parse("a/#", "^a", "$share/g/b").starts_with("dest "));
        assert!(parse("a/#", "(a{1000}){1000}", "b").starts_with("regex: "));
    }
}
