//! Bans of clients that reconnect too often; EMQX enables the bans apart from their limits.

use super::config_tree::{ConfigEntry, ConfigNode};
use super::draft::ConfigDraft;
use super::row::ImportValue;
use super::units::{is_true, read_count, seconds};

/// EMQX 5's limit of disconnections per minute without `max_count`.
pub(super) const USUAL_COUNT_5: &str = "15";
/// EMQX 4's limit of disconnections per minute without a policy.
pub(super) const USUAL_COUNT_4: &str = "30";

/// Reads the switch of flapping detection, for all clients or for a zone; one enabled zone
/// suffices. `usual_count` is the limit of disconnections if no key sets one.
pub(super) fn read_switch(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
    usual_count: &'static str,
) -> Result<(), String> {
    if is_true(entry.text()?)? {
        draft.flapping_count = Some(usual_count);
    }
    Ok(())
}

/// Reads `COUNT, WINDOW, BAN`, like `30, 1m, 5m`.
pub(super) fn read_policy(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let words: Vec<&str> = entry.text()?.split(',').map(str::trim).collect();
    let [count, window, ban] = words[..] else {
        return Err("use COUNT, WINDOW, BAN like 30, 1m, 5m".to_string());
    };
    let value = |text: &str, read: fn(&ConfigEntry<'_>) -> Result<ImportValue, String>| {
        let node = ConfigNode::text_at(&entry.node.place, text);
        read(&ConfigEntry { key: entry.key.clone(), names: Vec::new(), node: &node })
    };
    draft.push_option("flapping.count_max", value(count, read_count)?, entry);
    draft.push_option("flapping.window_s", value(window, seconds)?, entry);
    draft.push_option("flapping.ban_s", value(ban, seconds)?, entry);
    Ok(())
}

/// Reads a zone's own limits in EMQX 5. Here all clients have the same limits.
pub(super) fn read_zone(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_on = match entry.node.field_text("enable") {
        Some(text) => is_true(text)?,
        None => false,
    };
    if is_on {
        let why = "clients of the zone are banned for a time there: flapping.* does it for all";
        draft.leave_unresolved(entry, why);
    }
    Ok(())
}

/// Keeps the limits if bans are enabled, with the original's defaults for missing limits.
pub(super) fn finish_flapping(draft: &mut ConfigDraft) {
    let Some(count) = draft.flapping_count else {
        return draft.settings.retain(|setting| !setting.key.starts_with("flapping."));
    };
    let note = "what it is there without a word";
    draft.imply_once("flapping.count_max", count, note);
    draft.imply_once("flapping.window_s", "60", note);
    draft.imply_once("flapping.ban_s", "300", note);
}
