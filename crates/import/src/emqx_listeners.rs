//! EMQX's listeners: default addresses, deleted listeners, TLS cipher suites, and origins of
//! WebSocket.

use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree};
use super::draft::{ConfigDraft, UnsupportedKey};
use super::units::is_true;

/// Removes deleted listeners, and arranges the origins of WebSocket listeners.
pub(super) fn arrange_listeners(root: &mut ConfigNode, draft: &mut ConfigDraft) {
    let kinds = root.field_mut("listeners").and_then(ConfigNode::fields_mut);
    for (kind, node) in kinds.into_iter().flatten() {
        let Some(named) = node.fields_mut() else { continue };
        for (name, node) in named.iter_mut() {
            arrange_origins(node, &format!("listeners.{kind}.{name}"), draft);
        }
        named.retain(|(name, node)| {
            // Default listeners exist without a key, and `marked_for_deletion` removes one.
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

/// EMQX's default origins for a listener that checks origins without a list.
const USUAL_ORIGINS: &str = "http://localhost:18083, http://127.0.0.1:18083";

/// Drops `check_origins` and `allow_origin_absence` unless `check_origin_enable` is true, since the
/// original ignores both then; adds `USUAL_ORIGINS` to a check without a list.
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

/// Reads whether a client without an `Origin` header may connect, as all clients but browsers do.
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

/// Adds EMQX's default port to listeners without an address.
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

/// Adds EMQX's defaults of WebSocket listeners: the path, and the header in which a proxy passes
/// the client's address.
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

/// Reads cipher suites. If all suites use a pre-shared key, every client needs such a key.
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

/// Reads whether a listener of EMQX 4 checks the origins of browsers.
pub(super) fn origins(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        let why = "browsers come in from the pages of check_origins alone there: name them in \
                   ws.origins";
        draft.leave_listener_unresolved(entry, why);
    }
    Ok(())
}

/// EMQX's default limit of certificates between a client's certificate and its CA.
const USUAL_CHAIN_DEPTH: u64 = 10;

/// Reads the limit of a certificate chain. A limit below EMQX's default refuses certificates that
/// would be accepted here.
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
