//! The file that says who may do what: ours, in TOML, or one of mosquitto's. It becomes a
//! [`Permissions`] only as a whole; every error names its line and what would be right.

#[cfg(feature = "remote")]
pub(crate) mod entry;
mod mosquitto;
mod rules;
#[cfg(feature = "http")]
pub(crate) mod warden;

use crate::source;
use broker::permissions::{Members, Permissions};
use std::path::Path;

/// Reads a file by its name: what ends in `.toml` is ours. `ports` are those of the listeners, in
/// their order; a unix socket has none.
pub(crate) fn read(path: &Path, ports: &[Option<u16>]) -> Result<Permissions, Vec<String>> {
    let is_ours = path.extension().is_some_and(|extension| extension == "toml");
    let rules = source::read(path, "ACL file", "topics and names are", |text| match is_ours {
        true => rules::read(text, ports),
        false => mosquitto::read(text).map(|rules| (rules, Members::default())),
    });
    rules.map(|(rules, members)| Permissions::new(rules).with_members(members))
}
