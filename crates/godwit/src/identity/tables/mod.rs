//! Servers that keep users and rules in tables: how they are asked, and what their rows mean. They
//! have the names that EMQX's tables have.

#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "mysql")]
mod mysql_packets;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
pub(crate) mod resp;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sql;

use super::password_format::{PasswordFormat, StoredPassword};
use crate::acl::entry::AclEntry;
use broker::AuthRequest;
use broker::acl_rules::AclRuleSet;
use broker::authentication::Principal;
use std::sync::Arc;

/// Names and values; what is NULL is not there.
#[derive(Debug, Default)]
pub(crate) struct TableRow(pub(crate) Vec<(String, Vec<u8>)>);

/// A client with more is a mistake, and memory for its session.
const RULES_MAX: usize = 10_000;
/// An answer with more bytes is none.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl TableRow {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        let known = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, value)| &value[..])
    }

    /// Returns a column as text; other types count as absent.
    fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    fn word(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().trim().to_lowercase()
    }

    /// Reads the user of a row: `password_hash`, `salt`, `is_superuser`, `groups`.
    fn read_proof(
        &self,
        request: &AuthRequest,
        form: &PasswordFormat,
    ) -> Result<(StoredPassword, Principal), String> {
        let hash = self.text("password_hash").or_else(|| self.text("password"));
        let hash = hash.ok_or("the client's row has no password_hash")?.trim_end();
        let salt = self.bytes("salt").unwrap_or_default();
        let stored =
            form.parse_hash(hash, salt).map_err(|why| format!("the client's row: {why}"))?;
        let is_superuser = is_true(&self.word("is_superuser"));
        let groups = self.text("groups").unwrap_or_default().split(',').map(str::trim);
        let groups = groups.filter(|group| !group.is_empty()).map(Arc::from).collect();
        let user = request.user_name.as_deref().map(Arc::from);
        Ok((stored, Principal { user, groups, is_superuser, ..Principal::default() }))
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn read_acl_entry(&self) -> Result<AclEntry, &'static str> {
        if ["ipaddr", "ipaddress"]
            .iter()
            .any(|name| self.bytes(name).is_some_and(|v| !v.is_empty()))
        {
            return Err("a rule has an address, which stands in acl.file only");
        }
        let topics = self.text("topic").map(String::from).into_iter();
        if self.bytes("permission").is_none() && self.bytes("allow").is_some() {
            return Ok(self.read_numbered_acl_entry(topics));
        }
        Ok(AclEntry {
            permission: self.word("permission"),
            action: self.word("action"),
            topics: topics.collect(),
            qos: self.word("qos"),
            retain: self.word("retain"),
        })
    }

    /// As the tables of EMQX 4 have it: `allow` 0 or 1, `access` 1 (subscribe), 2 (publish) or 3,
    /// and `%c` and `%u` in the topic.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn read_numbered_acl_entry(&self, topics: impl Iterator<Item = String>) -> AclEntry {
        let named = |topic: String| topic.replace("%c", "${clientid}").replace("%u", "${username}");
        let permission = match self.word("allow").as_str() {
            "1" | "t" | "true" => "allow",
            "0" | "f" | "false" => "deny",
            // What is not understood is said by what reads it.
            _ => "?",
        };
        let permission = permission.into();
        let action = action_word(&self.word("access")).into();
        AclEntry { permission, action, topics: topics.map(named).collect(), ..AclEntry::default() }
    }
}

/// Whether EMQX takes the word for true. Any other word is false, so that an unknown word makes no
/// superuser.
pub(crate) fn is_true(word: &str) -> bool {
    // A BIT of MySQL is a byte.
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

pub(crate) fn collect_permissions(
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
