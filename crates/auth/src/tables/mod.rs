//! Databases with users and rules: queries, and the meaning of their rows, with the names of EMQX's
//! tables.

#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod sql;

use super::password_format::{PasswordFormat, StoredPassword};
use crate::acl::entry::AclEntry;
use broker::AuthRequest;
use broker::access_rules::acl_rules::AclRuleSet;
use broker::peer::authentication::Principal;
use net::table_row::TableRow;
use std::sync::Arc;

/// Largest number of rules of a client, since each session stores its rules. More are an error.
const RULES_MAX: usize = 10_000;
/// Reads the user of a row: `password_hash`, `salt`, `is_superuser`, `groups`.
fn read_proof(
    row: &TableRow,
    request: &AuthRequest,
    form: &PasswordFormat,
) -> Result<(StoredPassword, Principal), String> {
    let hash = row.text("password_hash").or_else(|| row.text("password"));
    let hash = hash.ok_or("the client's row has no password_hash")?.trim_end();
    let salt = row.bytes("salt").unwrap_or_default();
    let stored = form.parse_hash(hash, salt).map_err(|why| format!("the client's row: {why}"))?;
    let is_superuser = is_true(&row.word("is_superuser"));
    let groups = row.text("groups").unwrap_or_default().split(',').map(str::trim);
    let groups = groups.filter(|group| !group.is_empty()).map(Arc::from).collect();
    let user = request.user_name.as_deref().map(Arc::from);
    Ok((stored, Principal { user, groups, is_superuser, ..Principal::default() }))
}

fn read_acl_entry(row: &TableRow) -> Result<AclEntry, &'static str> {
    if ["ipaddr", "ipaddress"].iter().any(|name| row.bytes(name).is_some_and(|v| !v.is_empty())) {
        return Err("a rule has an address, which stands in acl.file only");
    }
    let topics = row.text("topic").map(String::from).into_iter();
    if row.bytes("permission").is_none() && row.bytes("allow").is_some() {
        return Ok(read_numbered_acl_entry(row, topics));
    }
    Ok(AclEntry {
        permission: row.word("permission"),
        action: row.word("action"),
        topics: topics.collect(),
        qos: row.word("qos"),
        retain: row.word("retain"),
    })
}

/// Reads a row in the form of EMQX 4: `allow` 0 or 1, `access` 1 (subscribe), 2 (publish) or 3, and
/// `%c` and `%u` in the topic.
fn read_numbered_acl_entry(row: &TableRow, topics: impl Iterator<Item = String>) -> AclEntry {
    let named = |topic: String| topic.replace("%c", "${clientid}").replace("%u", "${username}");
    let permission = match row.word("allow").as_str() {
        "1" | "t" | "true" => "allow",
        "0" | "f" | "false" => "deny",
        // An unknown word becomes an error in `AclEntry::to_rules`.
        _ => "?",
    };
    let permission = permission.into();
    let action = action_word(&row.word("access")).into();
    AclEntry { permission, action, topics: topics.map(named).collect(), ..AclEntry::default() }
}

/// Whether EMQX reads the word as true. Any other word is false, so an unknown word makes no
/// superuser.
pub fn is_true(word: &str) -> bool {
    // MySQL sends a BIT column as a raw byte.
    matches!(word, "t" | "true" | "\u{1}") || word.parse::<u64>().is_ok_and(|number| number > 0)
}

/// Returns the word for an action that EMQX 4 writes as a number.
fn action_word(word: &str) -> &str {
    match word {
        "1" => "subscribe",
        "2" => "publish",
        "3" => "all",
        other => other,
    }
}

pub fn collect_permissions(
    entries: impl Iterator<Item = Result<AclEntry, &'static str>>,
) -> Result<AclRuleSet, &'static str> {
    let mut all = Vec::new();
    for entry in entries {
        all.extend(entry?.to_rules()?);
        if all.len() > RULES_MAX {
            return Err("there are too many rules");
        }
    }
    Ok(AclRuleSet::new(all))
}
