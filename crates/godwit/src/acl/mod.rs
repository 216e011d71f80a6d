//! The file that says who may do what: ours, in TOML, or one of mosquitto's. It becomes a
//! [`Permissions`] only as a whole; every error names its line and what would be right.

mod mosquitto;
mod rules;

use crate::source;
use broker::permissions::Permissions;
use std::path::Path;

/// Reads a file by its name: what ends in `.toml` is ours. `ports` are those of the listeners, in
/// their order; a unix socket has none.
pub(crate) fn read(path: &Path, ports: &[Option<u16>]) -> Result<Permissions, Vec<String>> {
    let is_ours = path.extension().is_some_and(|extension| extension == "toml");
    let rules = source::read(path, "ACL file", "topics and names are", |text| {
        if is_ours { rules::read(text, ports) } else { mosquitto::read(text) }
    });
    rules.map(Permissions::new)
}
