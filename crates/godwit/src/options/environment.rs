//! The middle layer: `GODWIT_SECTION__KEY=value`.

use super::table;
use super::{Origin, Plan, Wrong, unknown};

/// Names the file to read, where no `--config` does.
pub(crate) const CONFIG: &str = "GODWIT_CONFIG";

pub(super) fn read(variables: &[(String, String)], plan: &mut Plan, wrongs: &mut Vec<Wrong>) {
    for (name, text) in variables {
        if !is_ours(name) {
            continue;
        }
        let origin = Origin::Environment(name.clone());
        let Some(row) = table::rows().find(|row| row.environment() == *name) else {
            let key = name.trim_start_matches("GODWIT_").replace("__", ".").to_lowercase();
            wrongs.push(Wrong { origin, why: in_environment(&key) });
            continue;
        };
        match row.kind.read_text(text) {
            Ok(value) => plan.give(row, value, origin),
            Err(why) => {
                let given = row.kind.excerpt(&format!("{text:?}"));
                wrongs.push(Wrong { origin, why: format!("{}{given}: {why}", row.key) });
            }
        }
    }
}

/// Container platforms announce a service named "godwit" by `GODWIT_PORT`, `GODWIT_PORT_1883_TCP`,
/// `GODWIT_SERVICE_HOST` and the like: those are not meant for us.
fn is_ours(name: &str) -> bool {
    name.strip_prefix("GODWIT_")
        .is_some_and(|rest| name != CONFIG && !rest.starts_with("SERVICE_") && !is_port(rest))
}

fn is_port(rest: &str) -> bool {
    rest.strip_prefix("PORT").is_some_and(|tail| tail.is_empty() || tail.starts_with('_'))
}

fn in_environment(key: &str) -> String {
    let why = unknown(key);
    let meant = why.split_once("did you mean ").and_then(|(_, key)| key.strip_suffix('?'));
    match meant.and_then(table::find) {
        Some(row) => format!("{key} is no option, did you mean {}?", row.environment()),
        None => why,
    }
}
