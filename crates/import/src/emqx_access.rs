//! What of EMQX's files decides about access beside its chains: hooks, rewriting of topics, and the
//! servers that are asked.

use super::chain;
use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree};
use super::draft::{ConfigDraft, UnsupportedKey};
use super::row::ImportValue;
use super::rules::DraftRule;
use super::units;

/// Servers and plugins that may refuse clients, and what they do.
pub(super) fn hooks(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let any_on = match &entry.node.tree {
        ConfigTree::List(nodes) => nodes.iter().any(chain::is_enabled),
        ConfigTree::Object(fields) => fields.iter().any(|(_, node)| chain::is_enabled(node)),
        _ => true,
    };
    if any_on {
        let why = "it may refuse clients and what they do there, and there is nothing like it \
                   here: auth.http_url and acl.http_url ask a server";
        draft.leave_unresolved(entry, why);
    }
    Ok(())
}

/// Topics that are rewritten after what the client may do was decided.
pub(super) fn rewrites(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if matches!(&entry.node.tree, ConfigTree::List(nodes) if nodes.is_empty()) {
        return Ok(());
    }
    let why = "topics are rewritten there, by which clients may be kept apart: write each as a \
               [[rewrite]]: action, source, regex, dest (docs/topics.md)";
    draft.leave_unresolved(entry, why);
    Ok(())
}

/// The authorities of servers that are asked, of which there is one file for all.
pub(super) fn backend_ca(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    let other = draft.setting("auth.backend_ca").filter(|there| there.value.text() != text);
    if let Some(note) = other.map(|there| there.note.clone()) {
        let why = format!("{note} names another file, and auth.backend_ca is one for all");
        draft.leave_unresolved(entry, why);
    }
    draft.push_option("auth.backend_ca", ImportValue::Text(text), entry);
    Ok(())
}

/// For how long a server's answer about a topic is kept: off where any key says so.
pub(super) fn authz_cache(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_off = draft.setting("acl.http_cache_s").is_some_and(|there| there.value.number() == 0);
    let said = match entry.last_word() {
        "enable" if units::is_true(entry.text()?)? => return Ok(()),
        "excludes" if matches!(&entry.node.tree, ConfigTree::List(all) if all.is_empty()) => {
            return Ok(());
        }
        "ttl" if is_off => return Ok(()),
        "ttl" => units::seconds(entry)?,
        _ => ImportValue::Text("off".to_string()),
    };
    draft.push_option("acl.http_cache_s", said, entry);
    Ok(())
}

/// Leaves out messages of another broker without a local topic, which go to rules alone there.
pub(super) fn arrange_ingress(root: &mut ConfigNode, draft: &mut ConfigDraft) {
    let ConfigTree::Object(fields) = &mut root.tree else { return };
    let bridges = fields.iter_mut().find(|(key, _)| key == "bridges");
    let Some(ConfigTree::Object(kinds)) = bridges.map(|(_, node)| &mut node.tree) else { return };
    let mqtt = kinds.iter_mut().find(|(key, _)| key == "mqtt");
    let Some(ConfigTree::Object(named)) = mqtt.map(|(_, node)| &mut node.tree) else { return };
    for (name, bridge) in named {
        let ConfigTree::Object(parts) = &mut bridge.tree else { continue };
        parts.retain(|(key, part)| {
            let local = part.field("local").and_then(|local| local.field_text("topic"));
            let keeps = key != "ingress" || local.is_some_and(|topic| !topic.is_empty());
            if !keeps {
                let place = part.place.clone();
                let key = format!("bridges.mqtt.{name}.ingress");
                let why = "without local.topic its messages go to rules alone there: name the \
                           topics in [[bridge.in]]";
                draft.missing.push(UnsupportedKey { place, key, why: why.to_string() });
            }
            keeps
        });
    }
}

pub(super) fn delayed(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if !units::is_true(entry.text()?)? {
        draft.push_option("delayed.messages_max", ImportValue::Text("0".into()), entry);
    }
    Ok(())
}

/// Switches delayed messages off where rules deny anything and none allows them: rules of EMQX are
/// about `$delayed/60/a`, and here about `a`.
pub(super) fn close_delayed(draft: &mut ConfigDraft) {
    let denies = draft.rules.iter().any(|rule| !rule.allows)
        || draft.no_match.as_ref().is_some_and(|(allows, _)| !allows);
    let is_named = |rule: &DraftRule| {
        rule.allows && rule.topics.iter().any(|topic| topic.starts_with("$delayed/"))
    };
    if denies && !draft.rules.iter().any(is_named) {
        let note = "no rule there allows topics that begin with $delayed/";
        draft.imply_once("delayed.messages_max", "0", note);
    }
}
