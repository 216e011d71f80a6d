//! The file that says who may do what: ours, in TOML, or one of mosquitto's. It becomes a
//! [`Permissions`] only as a whole; every error names its line and what would be right.

mod mosquitto;
mod rules;

use broker::permissions::Permissions;
use std::path::Path;

/// Reads a file by its name: what ends in `.toml` is ours. `ports` are those of the listeners, in
/// their order; a unix socket has none.
pub(crate) fn read(path: &Path, ports: &[Option<u16>]) -> Result<Permissions, Vec<String>> {
    let shown = path.display();
    let source = std::fs::read(path)
        .map_err(|error| vec![format!("{shown}: the ACL file cannot be read: {error}")])?;
    let is_ours = path.extension().is_some_and(|extension| extension == "toml");
    let rules = match std::str::from_utf8(&source) {
        Ok(text) if is_ours => rules::read(text, ports),
        Ok(text) => mosquitto::read(text),
        Err(error) => {
            let line = line_at(&source, error.valid_up_to());
            Err(vec![(line, "not UTF-8 text, which topics and names are".to_string())])
        }
    };
    match rules {
        Ok(rules) => Ok(Permissions::new(rules)),
        Err(wrongs) => {
            Err(wrongs.iter().map(|(line, why)| format!("{shown}:{line}: {why}")).collect())
        }
    }
}

/// Lines that are wrong, and why.
type Wrongs = Vec<(usize, String)>;

fn line_at(source: &[u8], at: usize) -> usize {
    1 + source[..at.min(source.len())].iter().filter(|byte| **byte == b'\n').count()
}
