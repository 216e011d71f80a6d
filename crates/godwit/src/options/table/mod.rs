//! The option table: one row an option. The parser, `--help`, the sample file, the docs and the
//! settings come from it. Only the broker's defaults stand in `broker::Options` too.
//!
//! Invariant: keys are `section.name` (a few have no section), unique, and the rows of one section
//! stand together.

pub(crate) mod listener_keys;
mod program;

use super::settings::ProgramSettings;
use config::row::OptionRow;

type EngineTables = engine::options::EngineOptionTables<ProgramSettings>;
type AuthTables = auth::options::AuthOptionTables<ProgramSettings>;

/// A row of the program's own table.
pub(crate) type ProgramOption = OptionRow<ProgramSettings>;

/// Whether a `[[listener]]` may have an option for itself.
pub(crate) fn is_listener_option(row: &ProgramOption) -> bool {
    listener_keys::SECTIONS.contains(&row.section())
        || listener_keys::KEYS.contains(&row.key)
        || listener_keys::is_own(row.key)
}

/// Whether a `[[group]]` may.
pub(crate) fn is_group_option(row: &ProgramOption) -> bool {
    listener_keys::GROUP_KEYS.contains(&row.key) || listener_keys::KEYS.contains(&row.key)
}

/// Every option, in the order of the docs and the sample file.
pub(crate) fn rows() -> impl Iterator<Item = &'static ProgramOption> + Clone {
    let parts = [
        program::TOP,
        EngineTables::LISTENERS,
        AuthTables::ACL,
        #[cfg(feature = "http")]
        AuthTables::HTTP_ACL,
        AuthTables::CLIENTS,
        #[cfg(feature = "remote")]
        AuthTables::BACKENDS,
        #[cfg(feature = "http")]
        AuthTables::HTTP,
        #[cfg(feature = "tables")]
        AuthTables::TABLES,
        #[cfg(feature = "postgres")]
        AuthTables::POSTGRES,
        #[cfg(feature = "mysql")]
        AuthTables::MYSQL,
        #[cfg(feature = "redis")]
        AuthTables::REDIS,
        AuthTables::BANS,
        EngineTables::LIMITS,
        EngineTables::CONNECTIONS,
        EngineTables::SESSIONS,
        EngineTables::MESSAGES,
        EngineTables::STORE,
        program::ROWS,
    ];
    parts.into_iter().flatten()
}

pub(crate) fn find(key: &str) -> Option<&'static ProgramOption> {
    rows().find(|row| row.key == key)
}
