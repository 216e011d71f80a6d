//! NanoMQ's rules: objects of JSON,
//! `{"permit": "allow", "username": "ann", "action": "subscribe", "topics": ["a/+"]}`.
//!
//! NanoMQ ignores keys with an unexpected name or form, so a rule may cover more clients and topics
//! than its text suggests. Of several conditions only one counts.
//!
//! Invariant: a grant that NanoMQ reads differently is left out, and a denial covers all clients
//! and topics that any version of NanoMQ lets it cover, or is unresolved.

use super::clients::{self, ClientCondition};
use super::config_tree::{ConfigNode, ConfigTree};
use super::draft::ConfigDraft;
use super::rules::{self, ActionCondition, SourceRule, TopicCondition};
use broker::access_rules::acl_rules::TopicPattern;
use std::net::Ipv4Addr;

/// Reads a rule; parts that cannot be expressed here are left unresolved.
pub(super) fn read_object(draft: &mut ConfigDraft, node: &ConfigNode, key: &str) {
    let is_later = draft.has_and_rule;
    draft.has_and_rule |= is_list(node, "and");
    let read = rule_of_object(node, is_later).map(|(rule, unresolved)| {
        let place = &node.place;
        let lines = unresolved.into_iter().map(|why| format!("{place} {key}: {why}"));
        let lines: Vec<String> = lines.collect();
        draft.demands.unresolved.extend(lines.iter().cloned());
        draft.notes.extend(lines);
        rule
    });
    rules::add_rule(draft, &node.place, key, read);
}

fn is_list(node: &ConfigNode, name: &str) -> bool {
    node.field(name).is_some_and(|value| matches!(value.tree, ConfigTree::List(_)))
}

/// Converts an object to a rule and unresolved parts. `is_later` is true if an earlier rule has
/// `and`.
fn rule_of_object(node: &ConfigNode, is_later: bool) -> Result<(SourceRule, Vec<String>), String> {
    let ConfigTree::Object(fields) = &node.tree else {
        return Err("a rule stands in braces, with permit, action and topics".into());
    };
    let allows = match node.field_text("permit") {
        Some("allow") => true,
        Some("deny") => false,
        _ => return Err("permit is allow or deny".into()),
    };
    let mut unresolved = Vec::new();
    let mut conditions = Vec::new();
    for (name, value) in fields {
        if !["permit", "action", "topics", "topic"].contains(&name.as_str()) {
            conditions.push(condition_of(name, value, allows, &mut unresolved)?);
        }
    }
    let (actions, is_known) = actions_of(node)?;
    if allows && !is_known {
        let why = "NanoMQ knows publish, subscribe and pubsub alone and ignores this rule";
        conditions.push(vec![ClientCondition::inexact(why)]);
    }
    if allows && is_later && is_list(node, "and") {
        let why = "NanoMQ ignores an and for clients that did not match the one before it";
        conditions.push(vec![ClientCondition::inexact(why)]);
    }
    // Versions differ in which condition counts: a denial covers each, and a grant requires all.
    let who = match conditions.is_empty() {
        true => vec![ClientCondition::default()],
        false => join(conditions, allows)?,
    };
    let topics = topics_of(node, allows)?;
    Ok((SourceRule { allows, who, actions, topics }, unresolved))
}

/// Returns the actions, and whether NanoMQ knows the word.
fn actions_of(node: &ConfigNode) -> Result<(Vec<ActionCondition>, bool), String> {
    let Some(value) = node.field("action") else { return Ok((every_action("all"), true)) };
    let word = value.text().unwrap_or_default();
    let is_known = ["publish", "subscribe", "pubsub"].contains(&word);
    Ok((every_action(rules::action_name(word)?), is_known))
}

fn every_action(deed: &'static str) -> Vec<ActionCondition> {
    rules::actions(deed, Vec::new(), None)
}

type RuleClientAlternatives = Result<Vec<ClientCondition>, String>;

/// Joins conditions on one client: a grant requires all of them, and a denial any of them.
fn join(conditions: Vec<Vec<ClientCondition>>, allows: bool) -> RuleClientAlternatives {
    let conditions = conditions.into_iter().map(Ok);
    match allows {
        true => clients::intersect_all(conditions),
        false => clients::union_all(conditions),
    }
}

fn condition_of(
    name: &str,
    value: &ConfigNode,
    allows: bool,
    unresolved: &mut Vec<String>,
) -> RuleClientAlternatives {
    match (name, &value.tree) {
        ("and" | "or", ConfigTree::List(nodes)) if !nodes.is_empty() => {
            let mut parts = Vec::new();
            for node in nodes {
                parts.push(Ok(part_of(node, allows, unresolved)?));
            }
            match name {
                "and" => clients::intersect_all(parts.into_iter()),
                _ => clients::union_all(parts.into_iter()),
            }
        }
        _ => name_condition(name, value, allows, unresolved),
    }
}

/// Reads a part of `and` or `or`, of which NanoMQ evaluates a single key.
fn part_of(
    node: &ConfigNode,
    allows: bool,
    unresolved: &mut Vec<String>,
) -> RuleClientAlternatives {
    let ConfigTree::Object(fields) = &node.tree else {
        return Err("conditions stand in braces".to_string());
    };
    if fields.is_empty() {
        return Ok(vec![ClientCondition::inexact("NanoMQ ignores a part without a condition")]);
    }
    let mut conditions = Vec::new();
    for (name, value) in fields {
        conditions.push(name_condition(name, value, allows, unresolved)?);
    }
    join(conditions, allows)
}

/// Reads a condition on a name or an address.
fn name_condition(
    name: &str,
    value: &ConfigNode,
    allows: bool,
    unresolved: &mut Vec<String>,
) -> RuleClientAlternatives {
    let inexact = |why: String| Ok(vec![ClientCondition::inexact(why)]);
    match (name, &value.tree) {
        ("ipaddr" | "username" | "clientid", ConfigTree::Text(text)) if text == "#" => {
            Ok(vec![ClientCondition::default()])
        }
        ("ipaddr", ConfigTree::Text(text)) => {
            let found = clients::conditions_of_names(name, std::slice::from_ref(text))?;
            match allows && text.parse::<Ipv4Addr>().is_err() {
                true => inexact(format!("NanoMQ finds no client with the address {text:?}")),
                false => Ok(found),
            }
        }
        ("ipaddrs", ConfigTree::List(_)) if allows => {
            inexact("NanoMQ finds no client by a list of addresses".to_string())
        }
        ("ipaddrs", ConfigTree::List(_)) => {
            let texts = value.texts().ok_or("addresses are texts in a list")?;
            let texts: Vec<String> = texts.into_iter().map(str::to_string).collect();
            clients::conditions_of_names(name, &texts)
        }
        ("username" | "clientid", ConfigTree::Text(text)) => {
            if is_bare_word(text) {
                unresolved.push(format!(
                    "{name} {text}: without quotation marks it is not a text, and NanoMQ ignores \
                     it: take this out where it stands in quotation marks"
                ));
            }
            clients::conditions_of_names(name, std::slice::from_ref(text))
        }
        ("ipaddr" | "ipaddrs" | "username" | "clientid" | "and" | "or", _) => {
            inexact(format!("NanoMQ ignores {name:?} in this form"))
        }
        _ => inexact(format!("{name:?} is not a condition in NanoMQ")),
    }
}

/// Whether the text may be a number or a truth value of JSON; the parser does not preserve quotes.
pub(super) fn is_bare_word(text: &str) -> bool {
    ["true", "false", "null", "on", "off", "yes", "no"].contains(&text)
        || text.starts_with(|c: char| c.is_ascii_digit() || c == '-') && text.parse::<f64>().is_ok()
}

/// Returns the topics of the rule; without a list NanoMQ applies the rule to every topic.
fn topics_of(node: &ConfigNode, allows: bool) -> Result<Option<TopicCondition>, String> {
    let (topics, topic) = (node.field("topics"), node.field("topic"));
    let Some(value) = topics.or(topic) else { return Ok(None) };
    let mut all = TopicCondition::default();
    let is_list = topic.is_none() && matches!(value.tree, ConfigTree::List(_));
    let texts = value.texts().ok_or("topics is a list of filters")?;
    if allows && texts.is_empty() {
        all.left_out.push("NanoMQ allows every topic without one: nobody is allowed any".into());
    }
    for text in texts {
        match allows {
            true => allow_topic(text, &mut all),
            false => deny_topic(text, &mut all),
        }
    }
    if !allows && (!is_list || all.topics.is_empty() && all.left_out.is_empty()) {
        let why = "NanoMQ finds no topics in this form: every topic is denied";
        (all.is_every, all.left_out) = (true, vec![why.to_string()]);
    }
    Ok(Some(all))
}

/// Returns the text with NanoMQ's two placeholders filled in, for a syntax check.
fn fill_placeholders(text: &str) -> String {
    text.replace("${clientid}", "x").replace("${username}", "x")
}

fn allow_topic(text: &str, all: &mut TopicCondition) {
    if text.starts_with('@') {
        all.left_out.push(format!(
            "{text:?} is the topic without its first character in some versions of NanoMQ: nobody \
             is allowed it"
        ));
        return;
    }
    if fill_placeholders(text).contains("${") {
        all.left_out.push(format!(
            "{text:?} names something of a client that is not known here: nobody is allowed it, \
             write it by hand"
        ));
        return;
    }
    match TopicPattern::parse(text) {
        Ok(_) => all.topics.push(text.to_string()),
        Err(why) => all.left_out.push(why),
    }
}

/// Adds the topics of a denial. In NanoMQ wildcards also match topics that begin with `$`, `#` ends
/// a filter anywhere, and in some versions a final `+` matches no level.
fn deny_topic(text: &str, all: &mut TopicCondition) {
    let mut levels: Vec<&str> = Vec::new();
    let mut filters: Vec<String> = Vec::new();
    for level in text.split('/') {
        if level == "+" && !levels.is_empty() {
            filters.push(levels.join("/"));
        }
        levels.push(match level {
            // The author may have meant a name, though NanoMQ reads the level literally.
            "%c" | "%u" => "+",
            level if fill_placeholders(level).contains("${") => {
                all.left_out.push(format!(
                    "{text:?} names something of a client that is not known here: all topics \
                     below are denied"
                ));
                "#"
            }
            level => level,
        });
        if levels.last() == Some(&"#") {
            break;
        }
    }
    match levels[0] {
        "#" => all.is_every = true,
        _ if text.starts_with('+') && levels[0] == "+" => {
            all.misses_dollar = Some(text.to_string());
        }
        _ => {}
    }
    // In other versions or brokers these prefixes mark a literal filter.
    let exactly = text.strip_prefix("eq ").or(text.strip_prefix('@'));
    all.filters.extend(exactly.filter(|own| TopicPattern::parse(own).is_ok()).map(String::from));
    filters.insert(0, levels.join("/"));
    for filter in filters {
        match TopicPattern::parse(&filter) {
            Ok(_) => all.topics.push(filter),
            // An invalid filter matches no topic and no subscription there either.
            Err(why) => all.left_out.push(why),
        }
    }
}

/// Returns the text after a strict JSON value, as rules in the old file use it; `None` if there is
/// no such value.
pub(super) fn after_json(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let (inside, close) = match text.chars().next()? {
        '{' => (&text[1..], '}'),
        '[' => (&text[1..], ']'),
        '"' => return after_string(text),
        _ => {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
            let (word, rest) = text.split_at(end.unwrap_or(text.len()));
            let is_number = !word.starts_with('+') && word.parse::<f64>().is_ok();
            let is_value = is_number || ["true", "false", "null"].contains(&word);
            return is_value.then_some(rest);
        }
    };
    let mut rest = inside.trim_start();
    if let Some(rest) = rest.strip_prefix(close) {
        return Some(rest);
    }
    loop {
        if close == '}' {
            rest = after_string(rest.trim_start())?.trim_start().strip_prefix(':')?;
        }
        rest = after_json(rest)?.trim_start();
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return rest.strip_prefix(close),
        }
    }
}

fn after_string(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('"')?;
    let mut is_escaped = false;
    for (at, c) in inside.char_indices() {
        if c == '"' && !is_escaped {
            return Some(&inside[at + 1..]);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::config_tree::{ConfigFolder, SourceLocation};
    use super::super::hocon::{self, HoconDialect};
    use super::*;
    use std::path::Path;

    /// Reads a rule: the written rules, the number of lines about it, and whether it is unresolved.
    fn read(rule: &str) -> (Vec<String>, usize, bool) {
        let folder = ConfigFolder::of_file(Path::new("nowhere/x"));
        let root =
            hocon::read(&format!("rule = {rule}"), HoconDialect::NanoMq, "t.conf".into(), &folder)
                .unwrap();
        let mut draft = ConfigDraft::new(godwit::option_catalog(), folder);
        let mut node = root.field("rule").cloned().unwrap();
        node.place = SourceLocation { file: "t.conf".into(), line: 1 };
        read_object(&mut draft, &node, "rule");
        assert!(draft.wrongs.is_empty(), "{rule}: {:?}", draft.wrongs);
        let rules = draft.rules.iter().map(|rule| {
            let mut text = String::new();
            rule.write(&mut text);
            text.lines().skip(3).collect::<Vec<_>>().join(" ")
        });
        (rules.collect(), draft.missing.len(), !draft.demands.unresolved.is_empty())
    }

    #[test]
    fn a_denial_covers_what_nanomq_has_it_cover() {
        for (rule, expected) in [
            // Without a list of topics the rule applies to all topics.
            (
                r#"{"permit":"deny","clientid":"ann","topics":[]}"#,
                r#"deny = "all" client_id = ["ann"]"#,
            ),
            (r#"{"permit":"deny","topics":[]}"#, r#"deny = "all""#),
            (r#"{"permit":"deny","action":"publish","topic":"b"}"#, r#"deny = "publish""#),
            (r#"{"permit":"deny","action":"publish","topics":"b"}"#, r#"deny = "publish""#),
            (r##"{"permit":"deny","topics":["#"]}"##, r#"deny = "all""#),
            (r##"{"permit":"deny","topics":["a/#/b"]}"##, r#"deny = "all" topic = ["a/#"]"#),
            (r#"{"permit":"deny","topics":["a/+"]}"#, r#"deny = "all" topic = ["a/+", "a"]"#),
            (
                r#"{"permit":"deny","topics":["eq x/+"]}"#,
                r#"deny = "all" topic = ["eq x/+", "eq x"] filter = ["x/+"]"#,
            ),
            (
                r##"{"permit":"deny","topics":["@x/#"]}"##,
                r##"deny = "all" topic = ["@x/#"] filter = ["x/#"]"##,
            ),
            (r#"{"permit":"deny","topics":["a/${cn}/b"]}"#, r##"deny = "all" topic = ["a/#"]"##),
            // A condition in another form is ignored.
            (
                r#"{"permit":"deny","clientid":["a","b"],"topics":["a"]}"#,
                r#"deny = "all" topic = ["a"]"#,
            ),
            (r#"{"permit":"deny","client":"ann","topics":["a"]}"#, r#"deny = "all" topic = ["a"]"#),
            (
                r#"{"permit":"deny","and":{"clientid":"a"},"topics":["a"]}"#,
                r#"deny = "all" topic = ["a"]"#,
            ),
            (
                r##"{"permit":"deny","username":"#","topics":["a"]}"##,
                r#"deny = "all" topic = ["a"]"#,
            ),
            (
                r#"{"permit":"deny","action":"pub","topics":["a"]}"#,
                r#"deny = "publish" topic = ["a"]"#,
            ),
        ] {
            let (rules, _, is_unresolved) = read(rule);
            assert_eq!((rules, is_unresolved), (vec![expected.to_string()], false), "{rule}");
        }
    }

    #[test]
    fn of_several_conditions_of_a_denial_each_counts() {
        let part = r#"[{"clientid":"a","ipaddr":"10.0.0.1"}]"#;
        for op in ["and", "or"] {
            let rule = format!(r#"{{"permit":"deny","{op}":{part},"topics":["a"]}}"#);
            assert_eq!(
                read(&rule).0,
                [
                    r#"deny = "all" client_id = ["a"] topic = ["a"]"#,
                    r#"deny = "all" address = ["10.0.0.1"] topic = ["a"]"#,
                ],
                "{rule}"
            );
        }
        let both = r#"{"permit":"deny","and":[{"clientid":"a"},{"username":"u"}],"topics":["a"]}"#;
        assert_eq!(read(both).0, [r#"deny = "all" user = ["u"] client_id = ["a"] topic = ["a"]"#]);
    }

    #[test]
    fn a_denial_that_nothing_here_expresses_is_unresolved() {
        let (rules, _, is_unresolved) = read(r#"{"permit":"deny","topics":["+/y"]}"#);
        assert_eq!((rules[0].as_str(), is_unresolved), (r#"deny = "all" topic = ["+/y"]"#, true));
        assert!(read(r#"{"permit":"deny","clientid":12,"topics":["y"]}"#).2);
        assert!(!read(r#"{"permit":"deny","clientid":"c12","topics":["y"]}"#).2);
    }

    #[test]
    fn a_grant_that_nanomq_ignores_is_left_out() {
        for rule in [
            r#"{"permit":"allow","ipaddr":"127.0.0.0/8","topics":["a"]}"#,
            r#"{"permit":"allow","ipaddr":"::1","topics":["a"]}"#,
            r#"{"permit":"allow","ipaddrs":["127.0.0.1"],"topics":["a"]}"#,
            r#"{"permit":"allow","or":[{"ipaddrs":["127.0.0.1"]}],"topics":["a"]}"#,
            r#"{"permit":"allow","or":[{}],"topics":["a"]}"#,
            r#"{"permit":"allow","or":[{"client":"a"}],"topics":["a"]}"#,
            r#"{"permit":"allow","action":"all","topics":["a"]}"#,
            r#"{"permit":"allow","action":"pub","topics":["a"]}"#,
            r#"{"permit":"allow","action":"sub","topics":["a"]}"#,
            r#"{"permit":"allow","topics":["${cn}/x"]}"#,
            r##"{"permit":"allow","topics":["a/#/b"]}"##,
            r#"{"permit":"allow","topics":[]}"#,
            r#"{"permit":"allow","topics":["@a"]}"#,
        ] {
            let (rules, lines, _) = read(rule);
            assert_eq!((rules.len(), lines), (0, 1), "{rule}: {rules:?}");
        }
    }

    #[test]
    fn a_grant_in_the_expected_form_is_carried_over() {
        for (rule, expected) in [
            (
                r#"{"permit":"allow","ipaddr":"127.0.0.1","topics":["${username}/a"]}"#,
                r#"allow = "all" address = ["127.0.0.1"] topic = ["${username}/a"]"#,
            ),
            (r#"{"permit":"allow","topics":["eq b"]}"#, r#"allow = "all" topic = ["eq b"]"#),
            (r##"{"permit":"allow","topics":["#"]}"##, r##"allow = "all" topic = ["#"]"##),
            (r#"{"permit":"allow","action":"pubsub"}"#, r#"allow = "all""#),
        ] {
            assert_eq!(read(rule), (vec![expected.to_string()], 0, false), "{rule}");
        }
    }

    /// After a failed match of one `and`, NanoMQ never matches a later `and` for that client.
    #[test]
    fn a_grant_by_a_later_and_is_left_out() {
        let part = r#""and":[{"clientid":"a"},{"username":"u"}],"topics":["a"]"#;
        let folder = ConfigFolder::of_file(Path::new("nowhere/x"));
        let mut draft = ConfigDraft::new(godwit::option_catalog(), folder);
        for permit in ["allow", "deny", "allow"] {
            let text = format!(r#"rule = {{"permit":"{permit}",{part}}}"#);
            let root =
                hocon::read(&text, HoconDialect::NanoMq, "t.conf".into(), &draft.folder).unwrap();
            read_object(&mut draft, root.field("rule").unwrap(), "rule");
        }
        let all: Vec<bool> = draft.rules.iter().map(|rule| rule.allows).collect();
        assert_eq!((all, draft.missing.len()), (vec![true, false], 1));
    }

    #[test]
    fn only_strict_json_is_json() {
        for text in [
            r#"{"permit": "allow", "topics": ["a", "b\"c"], "x": {}, "y": [], "z": -1.5}"#,
            r#" {"a":true} rest"#,
        ] {
            assert!(after_json(text).is_some(), "{text}");
        }
        for text in [
            r#"{permit: "allow"}"#,
            r#"{"permit" = "allow"}"#,
            r#"{"topics": ["a",]}"#,
            r#"{"topics": ["a" "b"]}"#,
            r#"{"permit": allow}"#,
            r#"{"permit": """allow"""}"#,
            r#"{"permit": "allow""#,
            "",
        ] {
            assert!(after_json(text).is_none(), "{text}");
        }
    }
}
