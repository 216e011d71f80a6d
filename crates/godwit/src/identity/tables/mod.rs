//! Servers that keep users and rules in tables: how they are asked, and what their rows mean. They
//! have the names that EMQX's tables have.

#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "mysql")]
mod packets;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
pub(crate) mod resp;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sql;

use super::password::{Form, Stored};
use crate::acl::entry::Entry;
use broker::Claim;
use broker::judge::Grant;
use broker::permissions::Permissions;
use std::sync::Arc;

/// Names and values; what is NULL is not there.
#[derive(Debug, Default)]
pub(crate) struct Row(pub(crate) Vec<(String, Vec<u8>)>);

/// A client with more is a mistake, and memory for its session.
const RULES_MAX: usize = 10_000;
/// An answer with more bytes is none.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Row {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        let known = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, value)| &value[..])
    }

    /// What is no text is not there either.
    fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    fn word(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().trim().to_lowercase()
    }

    /// Whom a row is about, by what it says: `password_hash`, `salt`, `is_superuser`, `groups`.
    fn proof(&self, claim: &Claim, form: &Form) -> Result<(Stored, Grant), String> {
        let hash = self.text("password_hash").or_else(|| self.text("password"));
        let hash = hash.ok_or("the client's row has no password_hash")?.trim_end();
        let salt = self.bytes("salt").unwrap_or_default();
        let stored = form.read(hash, salt).map_err(|why| format!("the client's row: {why}"))?;
        let is_superuser = match self.word("is_superuser").as_str() {
            "" | "0" | "f" | "false" => false,
            "1" | "t" | "true" => true,
            _ => return Err("the client's row: is_superuser is not true or false".into()),
        };
        let groups = self.text("groups").unwrap_or_default().split(',').map(str::trim);
        let groups = groups.filter(|group| !group.is_empty()).map(Arc::from).collect();
        let user = claim.user_name.as_deref().map(Arc::from);
        Ok((stored, Grant { user, groups, is_superuser, ..Grant::default() }))
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn entry(&self) -> Result<Entry, &'static str> {
        if ["ipaddr", "ipaddress"]
            .iter()
            .any(|name| self.bytes(name).is_some_and(|v| !v.is_empty()))
        {
            return Err("a rule has an address, which stands in acl.file only");
        }
        Ok(Entry {
            permission: self.word("permission"),
            action: self.word("action"),
            topics: self.text("topic").map(String::from).into_iter().collect(),
            qos: self.word("qos"),
            retain: self.word("retain"),
        })
    }
}

pub(crate) fn permissions(
    entries: impl Iterator<Item = Result<Entry, &'static str>>,
) -> Result<Permissions, &'static str> {
    let mut all = Vec::new();
    for entry in entries {
        all.extend(entry?.rules()?);
        if all.len() > RULES_MAX {
            return Err("there are too many rules");
        }
    }
    Ok(Permissions::new(all))
}
