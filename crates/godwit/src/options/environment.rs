//! Options from the environment, `GODWIT_SECTION__KEY=value`: they override a file, and flags
//! override them.

use super::table;
use super::{OptionError, OptionOrigin, OptionPlan, unknown_option};

/// Environment variable that names the configuration file if `--config` is not given.
pub(crate) const CONFIG: &str = "GODWIT_CONFIG";

pub(super) fn read_environment(
    variables: &[(String, String)],
    plan: &mut OptionPlan,
    wrongs: &mut Vec<OptionError>,
) {
    for (name, text) in variables {
        if !is_godwit_variable(name) {
            continue;
        }
        let origin = OptionOrigin::Environment(name.clone());
        let Some(row) = table::rows().find(|row| row.environment() == *name) else {
            let key = name.trim_start_matches("GODWIT_").replace("__", ".").to_lowercase();
            wrongs.push(OptionError { origin, why: variable_name(&key) });
            continue;
        };
        match row.kind.read_text(text) {
            Ok(value) => plan.set_value(row, value, origin),
            Err(why) => {
                let given = row.kind.excerpt(&format!("{text:?}"));
                wrongs.push(OptionError { origin, why: format!("{}{given}: {why}", row.key) });
            }
        }
    }
}

/// Whether a variable is an option. For a service named "godwit", container platforms set
/// `GODWIT_PORT`, `GODWIT_PORT_1883_TCP`, `GODWIT_SERVICE_HOST` and similar variables, which are
/// ignored.
fn is_godwit_variable(name: &str) -> bool {
    name.strip_prefix("GODWIT_")
        .is_some_and(|rest| name != CONFIG && !rest.starts_with("SERVICE_") && !is_port(rest))
}

fn is_port(rest: &str) -> bool {
    rest.strip_prefix("PORT").is_some_and(|tail| tail.is_empty() || tail.starts_with('_'))
}

fn variable_name(key: &str) -> String {
    let why = unknown_option(key);
    let meant = why.split_once("did you mean ").and_then(|(_, key)| key.strip_suffix('?'));
    match meant.and_then(table::find) {
        Some(row) => format!("{key} is not an option, did you mean {}?", row.environment()),
        None => why,
    }
}
