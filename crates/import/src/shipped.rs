//! State of EMQX outside of its configuration file: the rules of its own `acl.conf`, which apply if
//! the file has none, and settings made at run time.
//!
//! Invariant: settings that may be in a missing file are unresolved, and access is closed until
//! then.

use super::config_tree::{ConfigEntry, ConfigNode, SourceLocation};
use super::draft::ConfigDraft;
use super::erlang_terms::{ErlangTerm, TermReader};
use super::rules;
use std::rc::Rc;

/// Rules of the `acl.conf` that EMQX 5 ships.
pub(super) const RULES: &str = "\
{allow, {username, \"dashboard\"}, subscribe, [\"$SYS/#\"]}.
{allow, {ipaddr, \"127.0.0.1\"}, all, [\"$SYS/#\", \"#\"]}.
{deny, all, subscribe, [\"$SYS/#\", {eq, \"#\"}, {eq, \"+/#\"}]}.
{allow, all}.
";

/// Rules of the `acl.conf` that EMQX 4 ships.
pub(super) const RULES_4: &str = "\
{allow, {user, \"dashboard\"}, subscribe, [\"$SYS/#\"]}.
{allow, {ipaddr, \"127.0.0.1\"}, pubsub, [\"$SYS/#\", \"#\"]}.
{deny, all, subscribe, [\"$SYS/#\", {eq, \"#\"}]}.
{allow, all}.
";

/// Takes the rules of the `acl.conf` next to the file, or else the `shipped` rules. Both are
/// unresolved, since other rules may have been set at run time.
pub(super) fn take_rules(draft: &mut ConfigDraft, shipped: &str, key: &str, elsewhere: &str) {
    let is_beside = draft.folder.find("acl.conf").is_ok();
    let which = if is_beside { "acl.conf beside the file" } else { "EMQX's own etc/acl.conf" };
    let why = format!(
        "{key}: the file says nothing of it: the rules of {which} were taken, and {elsewhere}: \
         name the rules in {key}, or take this out where those are all"
    );
    draft.demands.rules = true;
    draft.demands.unresolved.push(why.clone());
    draft.notes.push(why);
    if !draft.has_out {
        return;
    }
    let read =
        if is_beside { draft.folder.read("acl.conf") } else { Ok((which.into(), shipped.into())) };
    match read {
        Ok((file, text)) => {
            rules::read_terms(draft, &ConfigNode::text_at(&SourceLocation { file, line: 1 }, &text))
        }
        Err(why) => draft.wrongs.push(why),
    }
}

/// Plugins and modules of EMQX 4 without influence on access.
const HARMLESS: &[&str] = &[
    "emqx_bridge_mqtt",
    "emqx_dashboard",
    "emqx_delayed_publish",
    "emqx_management",
    "emqx_mod_acl_internal",
    "emqx_mod_delayed",
    "emqx_mod_presence",
    "emqx_mod_rewrite",
    "emqx_mod_subscription",
    "emqx_mod_topic_metrics",
    "emqx_modules",
    "emqx_prometheus",
    "emqx_recon",
    "emqx_reloader",
    "emqx_retainer",
    "emqx_rule_engine",
    "emqx_statsd",
    "emqx_telemetry",
    "emqx_web_hook",
];

/// Reads the enabled names from lines `{NAME, true}.` or `NAME.`.
fn loaded_names(text: &str) -> Result<Vec<String>, String> {
    let mut reader = TermReader::new(text, 1);
    let mut names = Vec::new();
    while let Some((_, term)) = reader.next_term() {
        match term? {
            ErlangTerm::Atom(name) => names.push(name),
            ErlangTerm::Tuple(pair) => match &pair[..] {
                [ErlangTerm::Atom(_), word] if word.is_atom("false") => {}
                [ErlangTerm::Atom(name), _] => names.push(name.clone()),
                _ => return Err("use {NAME, true}.".to_string()),
            },
            _ => return Err("use {NAME, true}.".to_string()),
        }
    }
    Ok(names)
}

/// Reads the file of loaded plugins or modules that a key of EMQX 4 names; a missing file is
/// ignored.
pub(super) fn loaded_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if let Ok((file, text)) = draft.folder.read(entry.text()?) {
        let part = if entry.key.starts_with("plugins") { PLUGINS } else { MODULES };
        note_loaded(draft, part, &file, &text);
    }
    Ok(())
}

const PLUGINS: &str = "loaded_plugins";
const MODULES: &str = "loaded_modules";
/// The module that reads `acl.conf`.
const RULES_MODULE: &str = "emqx_mod_acl_internal";

/// Leaves unknown plugins unresolved. A file next to the configuration lists the loaded plugins if
/// no key names the file; without that file the set of admitted clients is unknown.
pub(super) fn close_unknown_plugins(draft: &mut ConfigDraft) {
    for part in [PLUGINS, MODULES] {
        let is_known = draft.loaded.contains(&part);
        if let Some((file, text)) = draft.folder.read(part).ok().filter(|_| !is_known) {
            note_loaded(draft, part, &file, &text);
        }
    }
    close_unloaded_rules(draft);
    if !draft.loaded.contains(&PLUGINS) {
        let why = "plugins: which of them EMQX 4 loads, and lets ask clients who they are and what \
                   they do, stands in its data/loaded_plugins: put that file beside this one, or \
                   take this out where there is none such";
        draft.demands.unresolved.push(why.to_string());
        draft.notes.push(why.to_string());
    }
}

/// Handles EMQX 4 without the module that reads `acl.conf`, where `acl_nomatch` alone decides: the
/// grants of that file are dropped, or unresolved if the module's state is unknown and they matter.
fn close_unloaded_rules(draft: &mut ConfigDraft) {
    let is_closed = draft.no_match.as_ref().is_some_and(|(allows, _)| !allows);
    let has_grants = draft.rules.iter().any(|rule| rule.allows);
    if draft.loaded.contains(&RULES_MODULE) || !has_grants {
        return;
    }
    if draft.loaded.contains(&MODULES) {
        draft.rules.retain(|rule| !rule.allows);
        draft.notes.push(format!(
            "{MODULES}: {RULES_MODULE} is not loaded, so acl.conf allows nothing there, and here"
        ));
    } else if is_closed {
        let why = format!(
            "modules: whether EMQX 4 loads {RULES_MODULE}, which reads acl.conf, stands in its \
             data/{MODULES}: put that file beside this one, or take this out where it is loaded"
        );
        draft.demands.unresolved.push(why.clone());
        draft.notes.push(why);
    }
}

fn note_loaded(draft: &mut ConfigDraft, part: &'static str, file: &Rc<str>, text: &str) {
    match loaded_names(text) {
        Ok(names) => {
            draft.loaded.push(part);
            if names.iter().any(|name| name == RULES_MODULE) {
                draft.loaded.push(RULES_MODULE);
            }
            for name in names.iter().filter(|name| !HARMLESS.contains(&name.as_str())) {
                let why = format!(
                    "{file} {name}: it may ask clients who they are and what they do, and is not \
                     read: write auth.* and acl.* by hand"
                );
                draft.demands.unresolved.push(why.clone());
                draft.notes.push(why);
            }
        }
        Err(why) => draft.wrongs.push(format!("{file}: {why}")),
    }
}
