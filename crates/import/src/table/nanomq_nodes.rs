//! Bridges in the form of NanoMQ 0.14 to 0.18: a list `bridges.mqtt.nodes`, with the connection as
//! a part of its own.

use super::super::config_tree::{ConfigFields, ConfigNode, ConfigTree};
use super::super::draft::{ConfigDraft, UnsupportedKey};

/// Makes of the list what later versions have: `bridges.mqtt.NAME` for each.
pub(super) fn arrange_bridges(bridges: &mut ConfigNode, draft: &mut ConfigDraft) {
    let mqtt = bridges.field_mut("mqtt").and_then(ConfigNode::fields_mut);
    let Some(fields) = mqtt else { return };
    for (key, node) in fields.iter_mut().filter_map(|(_, bridge)| bridge.fields_mut()).flatten() {
        arrange_topics(key, node);
    }
    let is_list = |(key, node): &(String, ConfigNode)| {
        key == "nodes" && matches!(node.tree, ConfigTree::List(_))
    };
    let Some(at) = fields.iter().position(is_list) else { return };
    let (_, nodes) = fields.remove(at);
    arrange_cache(fields, draft);
    let ConfigTree::List(nodes) = nodes.tree else { return };
    for (number, node) in (1..).zip(nodes) {
        let name = node.field_text("name").map_or(format!("{number}"), str::to_string);
        fields.push((name, bridge_of_node(node)));
    }
}

/// Renames `sqlite` to its later name `cache`, and drops a disabled part.
fn arrange_cache(fields: &mut ConfigFields, draft: &mut ConfigDraft) {
    let Some(at) = fields.iter().position(|(key, _)| key == "sqlite") else { return };
    let (_, mut cache) = fields.remove(at);
    if !super::super::chain::is_enabled(&cache) {
        let (place, key) = (cache.place, "bridges.mqtt.sqlite".to_string());
        let why = "it is switched off there".to_string();
        return draft.missing.push(UnsupportedKey { place, key, why });
    }
    if let ConfigTree::Object(inside) = &mut cache.tree {
        inside.retain(|(key, _)| key != "enable");
    }
    fields.push(("cache".to_string(), cache));
}

fn bridge_of_node(node: ConfigNode) -> ConfigNode {
    let place = node.place.clone();
    let ConfigTree::Object(fields) = node.tree else { return node };
    let mut made: ConfigFields = Vec::new();
    if !fields.iter().any(|(key, _)| key == "enable") {
        // A bridge without `enable` is disabled.
        made.push(("enable".to_string(), ConfigNode::text_at(&place, "false")));
    }
    for (key, node) in fields {
        match (key.as_str(), node.tree) {
            ("name", _) => {}
            ("connector", ConfigTree::Object(inside)) => made.extend(inside),
            ("forwards" | "subscription", tree @ ConfigTree::List(_)) => {
                let mut topics = ConfigNode { place: node.place, tree };
                arrange_topics(&key, &mut topics);
                made.push((key, topics));
            }
            (word, tree) => {
                let word = match word {
                    "parallel" => "max_parallel_processes",
                    "congestion_control" => "quic_congestion_control",
                    "multi_stream" => "quic_multi_stream",
                    word => word,
                };
                made.push((word.to_string(), ConfigNode { place: node.place, tree }));
            }
        }
    }
    ConfigNode { place, tree: ConfigTree::Object(made) }
}

/// Converts a file of access rules into the form of the main file, which has the rules under
/// `auth.acl`. Returns whether the file is one: NanoMQ reads no rules from a file with further
/// keys.
pub(crate) fn arrange_rule_file(root: &mut ConfigNode) -> bool {
    let says_permit = |rule: &ConfigNode| {
        let ConfigTree::Object(parts) = &rule.tree else { return false };
        parts.iter().any(|(key, _)| key.eq_ignore_ascii_case("permit"))
    };
    let is_rule_file = match root.fields_mut().map(|fields| &fields[..]) {
        Some([(key, ConfigNode { tree: ConfigTree::List(rules), .. })]) => {
            key == "rules" && rules.iter().any(says_permit)
        }
        _ => false,
    };
    if is_rule_file {
        for key in ["acl", "auth"] {
            let inside = std::mem::replace(root, ConfigNode::text_at(&root.place.clone(), ""));
            root.tree = ConfigTree::Object(vec![(key.to_string(), inside)]);
        }
    }
    is_rule_file
}

/// Topics of a bridge as later versions write them: each in an object of its own.
fn arrange_topics(key: &str, node: &mut ConfigNode) {
    let ConfigTree::List(topics) = &mut node.tree else { return };
    for topic in topics {
        let place = topic.place.clone();
        let whole = std::mem::replace(topic, ConfigNode::text_at(&place, ""));
        *topic = match key {
            "forwards" => topic_field(whole, "local_topic"),
            "subscription" => rename_topic(topic_field(whole, "remote_topic")),
            _ => whole,
        };
    }
}

/// Wraps a plain topic in an object with the field `key`; leaves other values as they are.
fn topic_field(topic: ConfigNode, key: &str) -> ConfigNode {
    match topic.tree {
        ConfigTree::Text(_) => ConfigNode {
            place: topic.place.clone(),
            tree: ConfigTree::Object(vec![(key.to_string(), topic)]),
        },
        _ => topic,
    }
}

fn rename_topic(mut topic: ConfigNode) -> ConfigNode {
    if let ConfigTree::Object(fields) = &mut topic.tree {
        for (key, _) in fields.iter_mut().filter(|(key, _)| key == "topic") {
            *key = "remote_topic".to_string();
        }
    }
    topic
}
