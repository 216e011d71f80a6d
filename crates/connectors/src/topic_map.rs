//! Topic maps of a link: the filter of the topics which go to the other side, and the template of
//! their names there.
//!
//! A rule has a filter on the side which sends a message and a template for the name on the
//! receiving side:
//!
//! | in a template | stands for |
//! |---|---|
//! | `${topic}` | the whole topic |
//! | `${1}`, `${2}`, ... | the levels which the first, second, ... wildcard of the filter matches |
//! | `${bridge}`, `${gateway}` | the name of the link, by its kind |

use mqtt::template::{TemplatePart, TextTemplate};
use mqtt::topic::{check_topic, filter_error};
use mqtt::{SharedFilter, filter_matches};
use std::fmt;

/// Topics of one filter and their names on the other side of a link, see [`TopicMap::apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMap {
    /// The filter as the link subscribes to it; may be a shared filter, `$share/{group}/{filter}`.
    pub filter: String,
    template: TextTemplate<TopicMapPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TopicMapPart {
    Topic,
    /// The levels which a wildcard matched; wildcards are numbered from 0.
    Wildcard(usize),
}

impl TopicMap {
    /// Parses a rule. An empty template means `${topic}` and leaves names unchanged. `own` holds
    /// the kind of the link, a placeholder, and the link's name. Fails if the template cannot yield
    /// valid topic names.
    pub fn parse(filter: &str, template: &str, own: (&str, &str)) -> Result<TopicMap, String> {
        if let Some(why) = filter_error(filter) {
            return Err(format!(
                "{filter:?} is not a topic filter: it {why}; use one like \"a/+/c\" or \"a/#\""
            ));
        }
        let share = SharedFilter::parse(filter).ok().flatten();
        let plain = share.map_or(filter, |share| share.filter);
        let wildcards = plain.split('/').filter(|level| is_wildcard(level)).count();
        let map = TopicMap {
            filter: filter.into(),
            template: parse_template(template, wildcards, own.0, own.1)?,
        };
        // A topic with "x" for each wildcard must map to a valid topic name.
        let topic = plain.replace(['+', '#'], "x");
        match map.apply(&topic) {
            Some(_) => Ok(map),
            None => Err(format!(
                "topic = {template:?} makes no topic names: use the name on the other side, \
                 without + and #, such as {:?}; ${{topic}} is the whole topic, and ${{1}} the part \
                 that the filter's first wildcard matches",
                example_template(template, wildcards)
            )),
        }
    }

    /// Returns the filter without `$share/{group}/`.
    fn plain_filter(&self) -> &str {
        SharedFilter::parse(&self.filter).ok().flatten().map_or(&self.filter, |share| share.filter)
    }

    pub fn is_shared(&self) -> bool {
        self.filter.starts_with("$share/")
    }

    pub fn matches(&self, topic: &str) -> bool {
        filter_matches(self.plain_filter(), topic)
    }

    /// Returns the name on the other side of a topic which matches the filter, or `None` if the
    /// name is not a valid topic name.
    pub fn apply(&self, topic: &str) -> Option<String> {
        let mut name = String::with_capacity(topic.len());
        let filled = self.template.try_fill(&mut name, |part, name| {
            name.push_str(match part {
                TopicMapPart::Topic => topic,
                TopicMapPart::Wildcard(at) => self.capture(topic, *at).ok_or(())?,
            });
            Ok::<(), ()>(())
        });
        filled.ok()?;
        check_topic(&name).is_ok().then_some(name)
    }

    /// Returns a filter which matches each name made by [`TopicMap::apply`], and perhaps more
    /// names.
    pub fn name_filter(&self) -> String {
        let levels = self.plain_filter().split('/');
        let wildcards: Vec<&str> = levels.filter(|level| is_wildcard(level)).collect();
        let mut name = String::new();
        self.template.fill(&mut name, |part, name| {
            name.push_str(match part {
                TopicMapPart::Topic => self.plain_filter(),
                TopicMapPart::Wildcard(at) => wildcards[*at],
            });
        });
        let mut filter: Vec<&str> = Vec::new();
        for level in name.split('/') {
            // A wildcard has to be a whole level, and `#` matches all following levels.
            filter.push(match level {
                level if level.contains('#') => "#",
                level if level.contains('+') => "+",
                level => level,
            });
            if filter.ends_with(&["#"]) {
                break;
            }
        }
        filter.join("/")
    }

    /// Returns the part of `topic` that the wildcard number `wildcard` of the filter matches,
    /// counted from 0; `None` if the filter has fewer wildcards.
    fn capture<'a>(&self, topic: &'a str, wildcard: usize) -> Option<&'a str> {
        let levels = self.plain_filter().split('/').enumerate();
        let (at, level) = levels.filter(|(_, level)| is_wildcard(level)).nth(wildcard)?;
        let from = match at {
            0 => 0,
            // `a/#` also matches `a`.
            _ => topic.match_indices('/').nth(at - 1).map_or(topic.len(), |(slash, _)| slash + 1),
        };
        let rest = &topic[from..];
        if level == "#" { Some(rest) } else { rest.split('/').next() }
    }

    /// Returns the only topic for which [`TopicMap::apply`] returns `name`, if a single topic
    /// exists.
    pub fn invert(&self, name: &str) -> Option<String> {
        let wildcards = self.plain_filter().split('/').filter(|level| is_wildcard(level)).count();
        let mut found: Vec<Option<&str>> = vec![None; wildcards];
        let (mut rest, mut whole) = (name, None);
        let parts = self.template.parts();
        for (at, part) in parts.iter().enumerate() {
            let place = match part {
                TemplatePart::Text(text) => {
                    rest = rest.strip_prefix(text.as_str())?;
                    continue;
                }
                TemplatePart::Value(place) => place,
            };
            let len = match parts.get(at + 1) {
                None => rest.len(),
                // A whole topic may contain the following text, so the last match counts; a level
                // ends at the first match.
                Some(TemplatePart::Text(text)) if *place == TopicMapPart::Topic => {
                    rest.rfind(text.as_str())?
                }
                Some(TemplatePart::Text(text)) => rest.find(text.as_str())?,
                // Two adjacent placeholders have no unique boundary.
                Some(TemplatePart::Value(_)) => return None,
            };
            let (taken, after) = rest.split_at(len);
            rest = after;
            match place {
                TopicMapPart::Wildcard(wildcard) => found[*wildcard] = Some(taken),
                TopicMapPart::Topic => whole = Some(taken),
            }
        }
        let topic = match whole {
            Some(topic) => topic.to_string(),
            None => self.fill_wildcards(&found)?,
        };
        let is_right = self.matches(&topic) && self.apply(&topic).as_deref() == Some(name);
        is_right.then_some(topic)
    }

    /// Returns the filter with the text of `found` for each wildcard, or `None` if a wildcard has
    /// no text.
    fn fill_wildcards(&self, found: &[Option<&str>]) -> Option<String> {
        let mut found = found.iter();
        let levels = self.plain_filter().split('/');
        let filled = levels.map(|level| match is_wildcard(level) {
            true => found.next().copied().flatten(),
            false => Some(level),
        });
        Some(filled.collect::<Option<Vec<_>>>()?.join("/"))
    }
}

/// Returns a template for an error message: `template` with `${1}`, `${2}` and so on for wildcards,
/// or `site/${topic}` if the result would not be valid.
fn example_template(template: &str, wildcards: usize) -> String {
    let mut at = 0;
    let levels = template.split('/').map(|level| match is_wildcard(level) {
        true => {
            at += 1;
            format!("${{{at}}}")
        }
        false => level.to_string(),
    });
    let example = levels.collect::<Vec<_>>().join("/");
    let is_right = at > 0 && at <= wildcards && !example.contains(['+', '#']);
    if is_right { example } else { "site/${topic}".to_string() }
}

fn is_wildcard(level: &str) -> bool {
    level == "+" || level == "#"
}

fn parse_template(
    template: &str,
    wildcards: usize,
    kind: &str,
    link: &str,
) -> Result<TextTemplate<TopicMapPart>, String> {
    let text = if template.is_empty() { "${topic}" } else { template };
    let name = |name: &str| match (name, name.parse::<usize>()) {
        ("topic", _) => Ok(TemplatePart::Value(TopicMapPart::Topic)),
        (own, _) if own == kind => Ok(TemplatePart::Text(link.to_string())),
        (_, Ok(at)) if (1..=wildcards).contains(&at) => {
            Ok(TemplatePart::Value(TopicMapPart::Wildcard(at - 1)))
        }
        (_, Ok(_)) => {
            Err(format!("${{{name}}} is named, and the filter has {wildcards} wildcards"))
        }
        _ => Err(format!(
            "${{{name}}} is an unknown variable, use ${{topic}}, ${{1}} and so on for the \
             filter's wildcards, or ${{{kind}}}"
        )),
    };
    Ok(TextTemplate::parse_signs(text, name, |_| Ok(None))?)
}

impl fmt::Display for TopicMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(filter: &str, template: &str) -> TopicMap {
        TopicMap::parse(filter, template, ("bridge", "b")).unwrap()
    }

    #[test]
    fn a_topic_gets_the_name_that_the_template_says() {
        for (filter, template, topic, name) in [
            ("#", "", "a/b", "a/b"),
            ("a/#", "site/${topic}", "a/b/c", "site/a/b/c"),
            ("a/#", "${topic}/end", "a/b", "a/b/end"),
            ("local/#", "remote/${1}", "local/a/b", "remote/a/b"),
            ("+/x/+", "${2}/${1}/y", "a/x/b", "b/a/y"),
            ("+/x/#", "y/${1}/${2}", "a/x/b/c", "y/a/b/c"),
            ("t", "from/${bridge}", "t", "from/b"),
            ("$share/g/a/+", "${1}", "a/b", "b"),
            ("$SYS/#", "sys/${1}", "$SYS/broker", "sys/broker"),
        ] {
            let map = map(filter, template);
            assert!(map.matches(topic), "{filter}");
            assert_eq!(map.apply(topic).as_deref(), Some(name), "{filter} {template}");
        }
        assert_eq!(map("a/#", "x/${1}").apply("a").as_deref(), Some("x/"));
        assert_eq!(map("a/#", "${1}").apply("a"), None, "no name is empty");
    }

    #[test]
    fn the_filter_of_names_matches_each_name() {
        for (filter, template, topic, names) in [
            ("#", "", "a/b", "#"),
            ("a/#", "site/${topic}", "a/b/c", "site/a/#"),
            ("a/#", "${topic}/end", "a/b", "a/#"),
            ("local/#", "remote/${1}", "local/a/b", "remote/#"),
            ("+/x/+", "${2}/${1}/y", "a/x/b", "+/+/y"),
            ("+/x/+", "n-${2}/y", "a/x/b", "+/y"),
            ("+/x/#", "${1}${2}/y", "a/x/b/c", "#"),
            ("t", "from/${bridge}", "t", "from/b"),
            ("$share/g/a/+", "${1}", "a/b", "+"),
        ] {
            let map = map(filter, template);
            assert_eq!(map.name_filter(), names, "{filter} {template}");
            assert!(filter_matches(names, &map.apply(topic).unwrap()), "{filter} {template}");
        }
    }

    #[test]
    fn a_name_leads_back_to_its_topic_where_that_is_clear() {
        for (filter, template, topic) in [
            ("#", "", "a/b"),
            ("a/#", "site/${topic}", "a/b/c"),
            ("a/#", "${topic}/end", "a/end/end"),
            ("local/#", "remote/${1}", "local/a/b"),
            ("+/x/+", "${2}/${1}/y", "a/x/b"),
            ("t", "u", "t"),
        ] {
            let map = map(filter, template);
            let name = map.apply(topic).unwrap();
            assert_eq!(map.invert(&name).as_deref(), Some(topic), "{filter} {template}");
        }
        assert_eq!(map("a/#", "site/${topic}").invert("site/b"), None, "the filter has no b");
        assert_eq!(map("+/+", "${1}${2}").invert("ab"), None, "nobody knows where to cut");
        assert_eq!(map("+/+", "${1}").invert("a"), None, "half of it is nowhere");
    }

    #[test]
    fn what_makes_no_map_says_why() {
        for (filter, template, why) in [
            ("a/#/b", "", "not a topic filter: it has a # that is not the last level"),
            ("$share//a", "", "not a topic filter: it is not $share/GROUP/FILTER"),
            ("a/+", "${2}", "has 1 wildcards"),
            ("a", "${x}", "use ${topic}"),
            ("a", "${topic", "without its }"),
            ("a", "b/+", "makes no topic names: use the name on the other side, without + and #"),
            ("a", "b/+", "such as \"site/${topic}\";"),
            ("x/#", "x/#", "such as \"x/${1}\";"),
            ("+/x/#", "y/+/#", "such as \"y/${1}/${2}\";"),
            ("+/x", "y+", "such as \"site/${topic}\";"),
        ] {
            let found = TopicMap::parse(filter, template, ("bridge", "b")).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
