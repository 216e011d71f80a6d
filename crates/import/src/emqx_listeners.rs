//! What EMQX says of a listener: where it listens without a word, which of them are deleted, which
//! suites of TLS it speaks, and whose pages it serves.

use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree};
use super::draft::{ConfigDraft, UnsupportedKey};
use super::units::is_true;

/// Leaves out what a word of the same listener takes back, and adds what one asks for.
pub(super) fn arrange_listeners(root: &mut ConfigNode, draft: &mut ConfigDraft) {
    let kinds = root.field_mut("listeners").and_then(ConfigNode::fields_mut);
    for (kind, node) in kinds.into_iter().flatten() {
        let Some(named) = node.fields_mut() else { continue };
        for (name, node) in named.iter_mut() {
            arrange_origins(node, &format!("listeners.{kind}.{name}"), draft);
        }
        named.retain(|(name, node)| {
            // There are listeners without a word, and this word takes one of them out.
            let is_deleted = node.text() == Some("marked_for_deletion");
            if is_deleted {
                leave_off(node, format!("listeners.{kind}.{name}"), draft);
            }
            !is_deleted
        });
    }
}

fn leave_off(node: &ConfigNode, key: String, draft: &mut ConfigDraft) {
    let (place, why) = (node.place.clone(), "it is switched off there".to_string());
    draft.missing.push(UnsupportedKey { place, key, why });
}

/// EMQX's default origins for a listener that checks origins and names none.
const USUAL_ORIGINS: &str = "http://localhost:18083, http://127.0.0.1:18083";

/// Pages are named there without a word, and nobody looks at them before another key says so.
fn arrange_origins(listener: &mut ConfigNode, path: &str, draft: &mut ConfigDraft) {
    let Some(web) = listener.field_mut("websocket") else { return };
    let is_checked = web.field_text("check_origin_enable") == Some("true");
    let place = web.place.clone();
    let Some(fields) = web.fields_mut() else { return };
    if is_checked {
        if !fields.iter().any(|(key, _)| key == "check_origins") {
            let tree = ConfigTree::Text(USUAL_ORIGINS.to_string());
            fields.push(("check_origins".to_string(), ConfigNode { place, tree }));
        }
        return;
    }
    fields.retain(|(key, node)| {
        let is_idle = matches!(key.as_str(), "check_origins" | "allow_origin_absence");
        if is_idle {
            leave_off(node, format!("{path}.websocket.{key}"), draft);
        }
        !is_idle
    });
}

/// Whether a client may come in that names no page, as all but browsers do.
pub(super) fn origin_absence(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    if !is_true(entry.text()?)? {
        let why =
            "a client that names no page comes in here: browsers alone are held to ws.origins";
        draft.leave_listener_unresolved(entry, why);
    }
    Ok(())
}

/// Adds the default port to listeners without an address.
pub(super) fn add_usual_ports(draft: &mut ConfigDraft) {
    for listener in draft.listeners.iter_mut().filter(|one| one.key.is_empty()) {
        let port = match listener.id.split('.').next().unwrap_or_default() {
            "tcp" => "1883",
            "ssl" => "8883",
            "ws" => "8083",
            "wss" => "8084",
            "quic" => "14567",
            _ => continue,
        };
        listener.port = port.to_string();
        listener.key = format!("listeners.{}, where it listens without a word", listener.id);
    }
}

/// Adds what EMQX's web listeners have where nothing is named: the path, and the header in which a
/// proxy names its client.
pub(super) fn add_usual_web(draft: &mut ConfigDraft) {
    const NOTE: &str = "what it is there without a word; let only a proxy reach this listener, or \
                        take this out where there is none: whoever sends it can claim any address";
    for listener in &mut draft.listeners {
        let is_web = ["ws.", "wss."].iter().any(|kind| listener.id.starts_with(kind));
        if is_web && listener.path.is_empty() {
            listener.path = "/mqtt".to_string();
        }
        if is_web && !listener.has("ws.address_header") {
            listener.add_implied("ws.address_header", "x-forwarded-for", NOTE);
        }
    }
}

/// Suites of TLS. Where all of them go by a key that both sides have, nobody comes in without one.
pub(super) fn ciphers(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let texts = entry.node.texts().ok_or("use a list of suites")?;
    let suites = texts.iter().flat_map(|text| text.split([',', ':'])).map(str::trim);
    let (keys, others): (Vec<&str>, Vec<&str>) =
        suites.filter(|suite| !suite.is_empty()).partition(|suite| suite.contains("PSK"));
    if keys.is_empty() || !others.is_empty() {
        draft.report_unsupported(entry, "only suites with forward secrecy are spoken");
        return Ok(());
    }
    let why = "every client shows that it has a key there (TLS-PSK): give the [[listener]] \
               tls.psk_file = FILE";
    draft.leave_listener_unresolved(entry, why);
    Ok(())
}

/// Pages of browsers that a listener of EMQX 4 lets in.
pub(super) fn origins(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        let why = "browsers come in from the pages of check_origins alone there: name them in \
                   ws.origins";
        draft.leave_listener_unresolved(entry, why);
    }
    Ok(())
}

/// EMQX's own limit of certificates between a client's and its CA.
const USUAL_CHAIN_DEPTH: u64 = 10;

/// A shorter chain than EMQX's usual one refuses certificates that would be good here.
pub(super) fn chain_depth(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let depth: u64 = entry.text()?.trim().parse().map_err(|_| "use a number")?;
    if depth < USUAL_CHAIN_DEPTH {
        let note = entry.note();
        draft.listener_of_entry(entry).unverified = Some(note);
    } else {
        draft.report_unsupported(entry, "chains have no limit here");
    }
    Ok(())
}
