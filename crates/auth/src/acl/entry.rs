//! Rules in the form of other projects, one entry at a time: a row of a table, or a JSON object
//! with EMQX's names. A wrong entry is an error, since an ignored denial would allow access.

use broker::access_rules::acl_rules::{ANY_QOS, AclRule, TopicPattern};
use serde_json::Value;

/// An entry as texts, before [`AclEntry::to_rules`]; an absent text is empty.
#[derive(Clone, Debug, Default)]
pub struct AclEntry {
    pub permission: String,
    pub action: String,
    pub topics: Vec<String>,
    pub qos: String,
    pub retain: String,
}

impl AclEntry {
    /// Converts the entry to rules. RETAIN restricts publishing only, so an entry with `retain` for
    /// both actions becomes two rules.
    pub fn to_rules(&self) -> Result<Vec<AclRule>, &'static str> {
        let allows = match self.permission.as_str() {
            "allow" | "1" => true,
            "deny" | "0" => false,
            _ => return Err("a rule's permission is neither allow nor deny"),
        };
        let (publish, subscribe) = match self.action.as_str() {
            "publish" | "pub" => (true, false),
            "subscribe" | "sub" => (false, true),
            "all" | "pubsub" => (true, true),
            _ => return Err("a rule's action is not publish, subscribe or all"),
        };
        // A grant of exactly one filter, with no topic below it, has no equivalent here and is
        // dropped. A denial must not be dropped.
        let is_left_out = |text: &&String| allows && is_literal_with_wildcards(text);
        let named = self.topics.iter().filter(|text| !is_left_out(text));
        let topics: Option<Vec<TopicPattern>> = named.map(|text| parse_pattern(text)).collect();
        let topics = topics.filter(|_| !self.topics.is_empty());
        let topics = topics.ok_or("a rule's topic is not a topic filter")?;
        let qos = read_qos(&self.qos).ok_or("a rule's qos is not 0, 1 or 2")?;
        let retain = match self.retain.as_str() {
            "" | "all" => None,
            "1" | "true" | "t" => Some(true),
            "0" | "false" | "f" => Some(false),
            _ => return Err("a rule's retain is not true, false or all"),
        };
        let mut rules = Vec::new();
        if topics.is_empty() {
            return Ok(rules);
        }
        let rule = AclRule { allows, topics, qos, ..AclRule::default() };
        if publish {
            let subscribe = subscribe && retain.is_none();
            rules.push(AclRule { publish, subscribe, retain, ..rule.clone() });
        }
        if subscribe && (!publish || retain.is_some()) {
            rules.push(AclRule { publish: false, subscribe, ..rule });
        }
        Ok(rules)
    }

    /// Reads an object as in EMQX's HTTP authentication and Redis values. `permission` is the
    /// default for objects without the field.
    pub fn from_json(value: &Value, permission: &str) -> Result<AclEntry, &'static str> {
        const WRONG: &str = "a rule is not an object with permission, action and topic";
        let mut entry = AclEntry { permission: permission.into(), ..AclEntry::default() };
        for (name, value) in value.as_object().ok_or(WRONG)? {
            match name.as_str() {
                "permission" => entry.permission = value.as_str().ok_or(WRONG)?.to_lowercase(),
                "action" => entry.action = value.as_str().ok_or(WRONG)?.to_lowercase(),
                "topic" | "topics" => entry.topics.extend(read_texts(value).ok_or(WRONG)?),
                "qos" => entry.qos = read_texts(value).ok_or(WRONG)?.join(","),
                "retain" => entry.retain = read_texts(value).ok_or(WRONG)?.concat(),
                _ => return Err("a rule has a condition that we do not know"),
            }
        }
        Ok(entry)
    }
}

/// Reads a text or a list of texts; `None` for other values.
fn read_texts(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    match value {
        Value::Array(many) => many.iter().map(one).collect(),
        other => Some(vec![one(other)?]),
    }
}

/// Parses a filter. EMQX marks a literal topic by `eq a/b`.
fn parse_pattern(text: &str) -> Option<TopicPattern> {
    if is_literal_with_wildcards(text) {
        return None;
    }
    TopicPattern::parse(text.strip_prefix("eq ").unwrap_or(text)).ok()
}

/// Whether the text is EMQX's `eq FILTER` with wildcards or placeholders, taken literally.
fn is_literal_with_wildcards(text: &str) -> bool {
    text.strip_prefix("eq ")
        .is_some_and(|exactly| exactly.contains(['+', '#']) || exactly.contains("${"))
}

fn read_qos(text: &str) -> Option<u8> {
    if text.is_empty() || text == "all" {
        return Some(ANY_QOS);
    }
    text.split(',').try_fold(0, |all, one| match one.trim() {
        "0" => Some(all | 0b001),
        "1" => Some(all | 0b010),
        "2" => Some(all | 0b100),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(permission: &str, action: &str, topic: &str, qos: &str, retain: &str) -> AclEntry {
        AclEntry {
            permission: permission.into(),
            action: action.into(),
            topics: vec![topic.into()],
            qos: qos.into(),
            retain: retain.into(),
        }
    }

    #[test]
    fn an_entry_is_a_rule() {
        let rules = entry("allow", "publish", "a/${clientid}/#", "0,1", "true").to_rules().unwrap();
        let [rule] = &rules[..] else { panic!("{rules:?}") };
        assert!(rule.allows && rule.publish && !rule.subscribe);
        assert_eq!((rule.qos, rule.retain), (0b011, Some(true)));
        let rules = entry("0", "all", "eq a", "", "").to_rules().unwrap();
        let [rule] = &rules[..] else { panic!("{rules:?}") };
        assert!(!rule.allows && rule.publish && rule.subscribe);
        assert_eq!(
            (rule.qos, rule.retain, rule.topics[0].to_string()),
            (ANY_QOS, None, "a".into())
        );
    }

    #[test]
    fn retain_is_a_condition_of_publishing_only() {
        let rules = entry("deny", "all", "a", "", "0").to_rules().unwrap();
        let said: Vec<_> =
            rules.iter().map(|rule| (rule.publish, rule.subscribe, rule.retain)).collect();
        assert_eq!(said, [(true, false, Some(false)), (false, true, None)]);
        let rules = entry("deny", "subscribe", "a", "", "0").to_rules().unwrap();
        assert_eq!((rules.len(), rules[0].subscribe, rules[0].retain), (1, true, None));
    }

    #[test]
    fn what_would_allow_one_filter_only_allows_nothing() {
        for topic in ["eq a/#", "eq a/${clientid}"] {
            assert!(entry("allow", "all", topic, "", "").to_rules().unwrap().is_empty(), "{topic}");
        }
        let topics = vec!["eq a/#".into(), "b".into()];
        let both = AclEntry { topics, ..entry("allow", "subscribe", "", "", "") };
        let rules = both.to_rules().unwrap();
        assert_eq!((rules.len(), rules[0].topics.len()), (1, 1));
    }

    #[test]
    fn what_is_not_understood_is_no_rule() {
        for wrong in [
            entry("", "publish", "a", "", ""),
            entry("Allow all", "publish", "a", "", ""),
            entry("allow", "", "a", "", ""),
            entry("allow", "publish", "a/#/b", "", ""),
            entry("deny", "subscribe", "eq a/#", "", ""),
            entry("deny", "publish", "eq a/${username}", "", ""),
            entry("allow", "publish", "", "", ""),
            entry("allow", "publish", "a", "3", ""),
            entry("allow", "publish", "a", "0,", ""),
            entry("allow", "publish", "a", "", "maybe"),
            AclEntry { topics: Vec::new(), ..entry("allow", "publish", "a", "", "") },
        ] {
            assert!(wrong.to_rules().is_err(), "{wrong:?}");
        }
    }
}
