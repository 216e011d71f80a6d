//! The options of this build, for the importers, which write option files.

use crate::links::{bridge_options, check_bridge_topic};
use crate::options::table;
use auth::password_hash::PasswordHash;
use auth::users;
use config::catalog::{OptionCatalog, OptionDescription};
use config::row::OptionScope;
use std::sync::LazyLock;

static CATALOG: LazyLock<OptionCatalog> = LazyLock::new(|| OptionCatalog {
    options: table::rows().map(describe).collect(),
    bridge_options: bridge_options(table::rows_of(OptionScope::Link).map(describe)),
    check_bridge_topic,
    check_user_name: users::check_name,
    hash_password: |password| Ok(PasswordHash::from_password(password)?.to_string()),
});

/// Returns every option of this build.
pub fn option_catalog() -> &'static OptionCatalog {
    &CATALOG
}

fn describe(row: &table::ProgramOption) -> OptionDescription {
    let missing = (row.key == "tls.psk_file" && !cfg!(feature = "psk")).then_some("psk");
    OptionDescription {
        missing_feature: missing,
        ..OptionDescription::of_row(row, row.is_for(OptionScope::Listener))
    }
}
