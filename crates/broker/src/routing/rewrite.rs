//! Rewrites of topics and filters as packets arrive. The first rewrite whose source and regex match
//! is applied, once. All later steps, permissions included, see the rewritten name.
//!
//! `resolve_topic` rewrites for a PUBLISH, `rewrite_filter` for SUBSCRIBE and UNSUBSCRIBE,
//! `rewrite_will_topic` for wills.

use crate::authorization::authz::AclAction;
use crate::authorization::placeholders::{NameTemplate, PlaceholderValues};
use crate::caches;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::refusal::Refusal;
use crate::context::ShardContext;
use crate::input::{ConnId, SessionId};
use crate::limits::LINK_IDS;
use crate::routing::delayed;
use crate::routing::exclusive::EXCLUSIVE;
use crate::routing::namespace;
use crate::session::session_table::SessionTable;
use mqtt::{Connect, SharedFilter, filter_matches};
use regex::{Regex, RegexBuilder};
use std::borrow::Cow;

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
    fn rewrite(
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
    let prefixes = ["$share/", EXCLUSIVE, caches::PREFIX, delayed::PREFIX, LINK_IDS];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

impl ShardContext {
    /// Returns the rewritten topic or filter, or `None` if no rule applies. A result which is not a
    /// valid name is refused.
    pub(crate) fn rewrite_name(
        &self,
        action: AclAction,
        name: &str,
        whom: &PlaceholderValues<'_>,
    ) -> Result<Option<String>, Refusal> {
        let mut rewrites = self.options.rewrites.iter();
        let Some(text) = rewrites.find_map(|one| one.rewrite(action, name, whom)) else {
            return Ok(None);
        };
        let text = text.filter(|text| text.len() <= usize::from(u16::MAX) && !is_special(text));
        let (text, refusal) = match action {
            AclAction::Publish => {
                let is_fit = |text: &String| mqtt::topic::check_topic(text).is_ok();
                (text.filter(is_fit), Refusal::TopicNameInvalid)
            }
            AclAction::Subscribe => {
                let is_fit = |text: &String| mqtt::topic::check_filter(text).is_ok();
                (text.filter(is_fit), Refusal::TopicFilterInvalid)
            }
        };
        text.map(Some).ok_or(refusal)
    }
}

impl ConnectionTable {
    /// Rewrites a filter. A prefix `$share/GROUP/` or `$exclusive/` stays in front of the new name.
    pub(crate) fn rewrite_filter<'a>(
        &self,
        id: SessionId,
        filter: &'a str,
        sessions: &SessionTable,
    ) -> Result<Cow<'a, str>, Refusal> {
        // Links compare the topics they receive with the filters they sent.
        let is_link = || sessions.get(id).client_id.starts_with(LINK_IDS);
        if sessions.context.options.rewrites.is_empty() || is_link() {
            return Ok(Cow::Borrowed(filter));
        }
        let (front, inner) = match SharedFilter::parse(filter).ok().flatten() {
            Some(SharedFilter { group, filter }) => (format!("$share/{group}/"), filter),
            None => match filter.strip_prefix(EXCLUSIVE) {
                Some(inner) => (EXCLUSIVE.to_string(), inner),
                None => (String::new(), filter),
            },
        };
        let made = sessions.context.rewrite_name(
            AclAction::Subscribe,
            inner,
            &self.placeholder_values(id, sessions),
        )?;
        Ok(made.map_or(Cow::Borrowed(filter), |made| Cow::Owned(front + &made)))
    }

    /// Rewrites the topic of a client's will and checks the new topic.
    pub(crate) fn rewrite_will_topic(
        &self,
        conn: ConnId,
        client_id: &str,
        packet: &Connect<'_>,
        sessions: &SessionTable,
    ) -> Result<Option<String>, Refusal> {
        let (Some(will), Some(known)) = (&packet.will, self.conn(conn)) else { return Ok(None) };
        if sessions.context.options.rewrites.is_empty() {
            return Ok(None);
        }
        let rights = sessions.context.permissions_of(&known.peer);
        let whom = PlaceholderValues::new(client_id, rights.as_deref(), Some(&known.peer));
        let made = sessions.context.rewrite_name(AclAction::Publish, will.topic, &whom)?;
        if let Some(made) = &made {
            self.limits_at(conn, sessions).check_topic(made)?;
            namespace::check_name(
                namespace::prefix_len(&self.namespace_at(conn, sessions)?),
                made,
            )?;
        }
        Ok(made)
    }
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
