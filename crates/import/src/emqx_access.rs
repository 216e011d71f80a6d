//! Access decisions of EMQX outside of its chains: hooks, topic rewriting, and servers of backends.

use super::chain;
use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree};
use super::draft::{ConfigDraft, UnsupportedKey};
use super::row::ImportValue;
use super::rules;
use super::table::SUBJECT_FORMS;
use super::table::emqx::certificate;
use super::units;

/// Leaves enabled hooks and plugins unresolved, since they may refuse clients or packets.
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

/// Leaves topic rewriting unresolved: EMQX rewrites a topic after the access decision.
pub(super) fn rewrites(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if matches!(&entry.node.tree, ConfigTree::List(nodes) if nodes.is_empty()) {
        return Ok(());
    }
    let why = "topics are rewritten there, by which clients may be kept apart: write each as a \
               [[rewrite]]: action, source, regex, dest (docs/topics.md)";
    draft.leave_unresolved(entry, why);
    Ok(())
}

/// Reads the CA file of a backend; `auth.backend_ca` is a single file for all backends.
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

/// Reads how long a server's decision about a topic is cached; any key may switch the cache off.
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

/// Leaves out incoming messages of a bridge without a local topic, which go only to rules there.
pub(super) fn arrange_ingress(root: &mut ConfigNode, draft: &mut ConfigDraft) {
    let mqtt = root.field_mut("bridges").and_then(|bridges| bridges.field_mut("mqtt"));
    for (name, bridge) in mqtt.and_then(ConfigNode::fields_mut).into_iter().flatten() {
        let Some(parts) = bridge.fields_mut() else { continue };
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

/// Disables delayed messages if anything restricts publishing: EMQX checks access for
/// `$delayed/60/a`, and this broker for `a`.
pub(super) fn close_delayed(draft: &mut ConfigDraft) {
    let restricts = draft.rules.iter().any(|rule| !rule.allows)
        || draft.no_match.as_ref().is_some_and(|(allows, _)| !allows)
        || draft.settings.iter().any(|setting| rules::brings_rules(setting.key));
    if restricts {
        let note = "rules there are about $delayed/60/a, and here about a: take this out where \
                    they may be";
        draft.imply_once("delayed.messages_max", "0", note);
    }
}

/// Reads which part of a certificate is the user name.
pub(super) fn certificate_name(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if entry.text()? == "dn" {
        draft.leave_unresolved(entry, SUBJECT_FORMS);
    }
    draft.set_global_option("auth.certificate", certificate, entry)
}

/// Notes that keys are fetched without the headers of the original.
pub(super) fn note_headers(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.notes.push(format!("{}: keys are fetched without headers", entry.note()));
    Ok(())
}

pub(super) fn redis_type(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if entry.text()? != "single" {
        draft.report_unsupported(entry, "one server is asked, no cluster and no sentinels");
    }
    Ok(())
}

/// Sets EMQX's interpretation of HTTP answers: only `result` counts.
pub(super) fn imply_answers(draft: &mut ConfigDraft) {
    let answers = [["auth.http_url", "auth.http_answer"], ["acl.http_url", "acl.http_answer"]];
    for [url, answer] in answers {
        if draft.setting(url).is_some() {
            draft.imply_once(answer, "emqx", "EMQX reads an answer with result alone");
        }
    }
}

/// Removes the server's connection keys from a source if an authenticator of the same kind has the
/// same values: rules are read from the server with the users.
pub(super) fn arrange_source_servers(root: &mut ConfigNode) {
    const REACHED: &[&str] =
        &["database", "password", "pool_size", "redis_type", "server", "ssl", "username"];
    let Some(ConfigTree::List(authenticators)) =
        root.field("authentication").map(|node| node.tree.clone())
    else {
        return;
    };
    let authorization = root.field_mut("authorization");
    let sources = authorization.and_then(|node| node.field_mut("sources"));
    let Some(ConfigTree::List(sources)) = sources.map(|node| &mut node.tree) else { return };
    for source in sources {
        let kind = source.field_text("type").map(str::to_string);
        let same_kind = |one: &&ConfigNode| one.field_text("backend") == kind.as_deref();
        let mut same = authenticators.iter().filter(same_kind);
        let (Some(there), None) = (same.next(), same.next()) else { continue };
        let is_same = |key: &&str| match (source.field(key), there.field(key)) {
            (Some(own), Some(other)) => says_the_same(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        let agrees = REACHED.iter().all(is_same);
        if let Some(inside) = source.fields_mut().filter(|_| agrees) {
            inside.retain(|(key, _)| !REACHED.contains(&key.as_str()));
        }
    }
}

/// Whether two nodes have the same content, regardless of location and order of keys.
fn says_the_same(one: &ConfigNode, other: &ConfigNode) -> bool {
    match (&one.tree, &other.tree) {
        (ConfigTree::Object(fields), ConfigTree::Object(others)) => {
            let is_there = |(key, node): &(String, ConfigNode)| {
                other.field(key).is_some_and(|there| says_the_same(node, there))
            };
            fields.len() == others.len() && fields.iter().all(is_there)
        }
        (ConfigTree::List(nodes), ConfigTree::List(others)) => {
            let mut pairs = nodes.iter().zip(others);
            nodes.len() == others.len() && pairs.all(|(one, other)| says_the_same(one, other))
        }
        _ => one.text().is_some() && one.text() == other.text(),
    }
}
