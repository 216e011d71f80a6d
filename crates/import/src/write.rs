//! The written files: options, each below a comment with its source, then the keys without an
//! equivalent; rules and users in files of their own.

use super::bridge::{BridgeTopics, DraftBridge};
use super::config_tree::SourceLocation;
use super::draft::{ConfigDraft, DraftSetting};
use super::listener::DraftListener;
use config::value::quote;
use std::fmt::Write as _;

/// Returns the text of the main file.
pub(super) fn write_options(draft: &ConfigDraft, from: &str) -> String {
    let mut text = format!(
        "# Written by `godwit import` from {}. docs/options.md explains every option.\n",
        single_line_comment(from)
    );
    let mut section = "";
    // In the order of the catalog, so that each section occurs once.
    for row in &draft.catalog.options {
        let Some(setting) = draft.setting(row.key) else { continue };
        if row.section() != section {
            section = row.section();
            let _ = write!(text, "\n[{section}]\n");
        }
        write_setting(&mut text, row.name(), setting);
    }
    draft.listeners.iter().for_each(|one| write_listener(&mut text, one));
    draft.listeners.iter().for_each(|one| write_imported(&mut text, draft, one));
    if draft.listeners.is_empty() && !draft.demands.unresolved.is_empty() {
        let place = SourceLocation { file: from.into(), line: 1 };
        write_imported(&mut text, draft, &DraftListener::new(draft.catalog, "default", &place));
    }
    draft.bridges.iter().for_each(|one| write_bridge(&mut text, one));
    let missing = list_unsupported(draft);
    if !missing.is_empty() {
        text.push_str("\n# no equal:\n");
        missing.iter().for_each(|line| _ = writeln!(text, "# {line}"));
    }
    text
}

/// Lists the keys without an equivalent: location, key, and reason.
pub(super) fn list_unsupported(draft: &ConfigDraft) -> Vec<String> {
    let one = |one: &super::draft::UnsupportedKey| {
        single_line_comment(&format!("{} {}: {}", one.place, one.key, one.why))
    };
    let mut all: Vec<String> = draft.missing.iter().map(one).collect();
    all.extend(draft.notes.iter().map(|note| single_line_comment(note)));
    all
}

fn write_setting(text: &mut String, name: &str, setting: &DraftSetting) {
    let _ = writeln!(text, "\n# {}\n{name} = {}", single_line_comment(&setting.note), setting.toml);
}

fn write_listener(text: &mut String, listener: &DraftListener) {
    let note = single_line_comment(&format!("{} {}", listener.place, listener.key));
    let url = quote(&listener.url());
    let _ = writeln!(text, "\n[[listener]]\n# {note}\nurl = {url}");
    for setting in &listener.settings {
        let _ = writeln!(
            text,
            "# {}\n{} = {}",
            single_line_comment(&setting.note),
            setting.key,
            setting.toml
        );
    }
}

/// Writes the requirements of the original for a listener as a table `[[imported]]`, which `godwit
/// check` compares with the options.
fn write_imported(text: &mut String, draft: &ConfigDraft, listener: &DraftListener) {
    let note = single_line_comment(&format!("{} {}", listener.place, listener.key));
    let demands = draft.requirements_of(listener);
    let address = quote(&listener.address());
    let _ = writeln!(text, "\n[[imported]]\n# {note}, as it was\nlistener = {address}");
    for (key, is_demanded) in [
        ("credentials", demands.credentials),
        ("client_certificate", demands.client_certificate),
        ("roots", demands.roots),
        ("namespace", demands.namespace),
        ("rules", demands.rules),
    ] {
        if is_demanded {
            let _ = writeln!(text, "{key} = true");
        }
    }
    if !demands.unresolved.is_empty() {
        let all: Vec<String> =
            demands.unresolved.iter().map(|one| quote(&single_line_comment(one))).collect();
        let _ = writeln!(text, "unresolved = [{}]", all.join(", "));
    }
}

fn write_bridge(text: &mut String, bridge: &DraftBridge) {
    let (place, name) = (single_line_comment(&bridge.place.to_string()), quote(&bridge.name));
    let _ = writeln!(text, "\n[[bridge]]\n# {place}\nname = {name}");
    for setting in &bridge.settings {
        let _ = writeln!(
            text,
            "# {}\n{} = {}",
            single_line_comment(&setting.note),
            setting.key,
            setting.toml
        );
    }
    bridge.outward.iter().for_each(|one| write_topics(text, "out", one));
    bridge.inward.iter().for_each(|one| write_topics(text, "in", one));
}

fn write_topics(text: &mut String, way: &str, topics: &BridgeTopics) {
    let (note, filter) = (single_line_comment(&topics.note), quote(&topics.filter));
    let _ = writeln!(text, "\n[[bridge.{way}]]\n# {note}\nfilter = {filter}");
    let template = topics.template();
    if !template.is_empty() && template != "${topic}" {
        let _ = writeln!(text, "topic = {}", quote(&template));
    }
    if let Some(qos) = topics.qos {
        let _ = writeln!(text, "qos = {qos}");
    }
    if topics.clears_retain {
        text.push_str("retain = \"clear\"\n");
    }
}

/// Returns the text of the rule file, to which the option `acl.file` refers.
pub(super) fn write_rules(draft: &ConfigDraft, from: &str) -> String {
    let mut text = format!("# Written by `godwit import` from {}.\n", single_line_comment(from));
    text.push_str("# The first rule that is about the case decides; docs/security.md has more.\n");
    draft.rules.iter().for_each(|rule| {
        let mut rule = rule.clone();
        rule.note = single_line_comment(&rule.note);
        rule.write(&mut text);
    });
    text
}

/// Returns the text of the user file, to which the option `auth.users` refers, with hashed
/// passwords. Fails if a name or a password is empty.
pub(super) fn write_users(draft: &ConfigDraft) -> Result<String, String> {
    let mut text = String::new();
    if draft.users.is_empty() {
        text.push_str("# Nobody yet: godwit passwd FILE USER adds a user.\n");
    }
    for user in &draft.users {
        if user.name.is_empty() || user.password.is_empty() {
            return Err(format!(
                "user {}: a name and a password go together",
                single_line_comment(&user.at)
            ));
        }
        let hash = (draft.catalog.hash_password)(user.password.as_bytes())?;
        let _ = writeln!(text, "{}:{hash}", user.name);
    }
    Ok(text)
}

/// Replaces control characters, so that a text cannot leave its comment line.
fn single_line_comment(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}
