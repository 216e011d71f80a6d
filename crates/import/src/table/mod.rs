//! The tables of all keys of other brokers, one table per project, in the order of the project's
//! documents.

pub(super) mod emqx;
pub(super) mod emqx4;
pub(super) mod mosquitto;
pub(super) mod mosquitto_access;
pub(super) mod nanomq;
pub(crate) mod nanomq_nodes;
pub(super) mod nanomq_old;

use super::bridge;
use super::config_tree::ConfigEntry;
use super::draft::ConfigDraft;
use super::row::ImportValue;
use super::units;

/// Reads `log.to` and similar keys: a file counts before syslog, and syslog before stderr.
fn log_target(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let texts = entry.node.texts().ok_or("use file, console or syslog")?;
    let words: Vec<&str> = texts.iter().flat_map(|text| text.split(',')).map(str::trim).collect();
    let mut target = "stderr";
    for word in &words {
        match *word {
            "both" | "file" => target = "file",
            "syslog" if target != "file" => target = "syslog",
            "console" | "syslog" | "uds" | "" => {}
            _ => return Err("no such target, use file, console or syslog".to_string()),
        }
    }
    if words.len() > 1 {
        draft.report_unsupported(entry, format!("one target at a time: {target} was taken"));
    }
    draft.push_option("log.target", ImportValue::Text(target.into()), entry);
    Ok(())
}

/// Reads a level of the log; syslog has more levels than `log.level`.
fn log_level(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let word = match entry.text()?.to_ascii_lowercase().as_str() {
        "emergency" | "alert" | "critical" | "fatal" | "error" => "error",
        "warning" | "warn" => "warn",
        "notice" | "info" => "info",
        "debug" => "debug",
        "trace" | "all" => "trace",
        "none" | "off" => "off",
        _ => return Err("no such level, use one like info or debug".to_string()),
    };
    Ok(ImportValue::Text(word.into()))
}

/// Note on user names from certificate subjects, which need a check by an operator.
pub(super) const SUBJECT_FORMS: &str = "subjects with letters beyond ASCII, several values in one \
                                        part or an email address are written in another form here \
                                        (RFC 4514): compare the names that rules and users have \
                                        with those in the log, and take this out";

/// Note on disabled delayed messages.
const NO_DELAYED: &str = "topics that begin with $delayed/ are topics like others there";

fn allow_anonymous(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    // The original accepts no other words.
    let word = match entry.text()?.to_ascii_lowercase().as_str() {
        "true" | "yes" => "true",
        "false" | "no" => "false",
        _ => return Err("no truth value there, use true or false".to_string()),
    };
    draft.push_option("allow_anonymous", ImportValue::Text(word.into()), entry);
    Ok(())
}

fn no_match(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let allows = match entry.text()? {
        "allow" => true,
        "deny" => false,
        _ => return Err("use allow or deny".to_string()),
    };
    // Zones may have several values, and a denial counts before a grant.
    if draft.no_match.as_ref().is_none_or(|(allows, _)| *allows) {
        draft.no_match = Some((allows, entry.note()));
    }
    Ok(())
}

/// Reads whether there is a persistent store: `durability` is `sync` or `memory`.
fn durability(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let word = if units::is_true(entry.text()?)? { "sync" } else { "memory" };
    draft.push_option("durability", ImportValue::Text(word.into()), entry);
    Ok(())
}

/// Reads the topic prefix that is hidden from clients, as a namespace.
pub(super) fn mount_point(entry: &ConfigEntry<'_>) -> Result<ImportValue, String> {
    let text = entry.text()?.replace("${cert_common_name}", "${cert_cn}");
    Ok(match text.strip_suffix('/') {
        Some("") => ImportValue::Unsupported("a namespace here has a name: a slash alone is none"),
        Some(namespace) => ImportValue::Text(namespace.to_string()),
        None if text.is_empty() => ImportValue::Text(text),
        None => ImportValue::Unsupported("a namespace here is whole levels: end it with a slash"),
    })
}

fn out_filter(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.outbound_topics(entry).filter = text;
    Ok(())
}

fn out_topic(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.outbound_topics(entry).topic = text;
    Ok(())
}

fn out_prefix(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.outbound_topics(entry).prefix = text;
    Ok(())
}

fn out_suffix(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.outbound_topics(entry).suffix = text;
    Ok(())
}

fn out_qos(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let qos = bridge::read_qos(entry)?;
    draft.outbound_topics(entry).qos = Some(qos);
    Ok(())
}

/// Reads the retain flag of outgoing messages: 0 clears it; a template keeps it; 1 is reported.
fn out_retain(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "0" | "false" => draft.outbound_topics(entry).clears_retain = true,
        "1" | "true" => {
            draft.report_unsupported(entry, "what was not retained is not made so here")
        }
        _ => {}
    }
    Ok(())
}

fn in_filter(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.inbound_topics(entry).filter = text;
    Ok(())
}

fn in_topic(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.inbound_topics(entry).topic = text;
    Ok(())
}

fn in_prefix(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.inbound_topics(entry).prefix = text;
    Ok(())
}

fn in_suffix(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let text = entry.text()?.to_string();
    draft.inbound_topics(entry).suffix = text;
    Ok(())
}

fn in_qos(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let qos = bridge::read_qos(entry)?;
    draft.inbound_topics(entry).qos = Some(qos);
    Ok(())
}

fn in_retain(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    match entry.text()? {
        "0" | "false" => draft.inbound_topics(entry).clears_retain = true,
        "1" | "true" => {
            draft.report_unsupported(entry, "what was not retained is not made so here")
        }
        _ => {}
    }
    Ok(())
}
