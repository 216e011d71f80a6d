//! The option table, with one row per option. The parser, `--help`, the sample file, the documents
//! and the settings are derived from it. Only the broker's defaults are repeated in
//! `BrokerOptions`.
//!
//! Invariant: keys are `section.name` (a few have no section) and unique, and the rows of a section
//! are adjacent.

mod program;

use super::settings::ProgramSettings;
use config::row::{OptionRow, OptionScope};

type EngineTables = engine::options::EngineOptionTables<ProgramSettings>;
type BrokerTables = broker_options::BrokerOptionTables<ProgramSettings>;
type AuthTables = auth::options::AuthOptionTables<ProgramSettings>;

/// A row of the program's own table.
pub(crate) type ProgramOption = OptionRow<ProgramSettings>;

/// Returns the options that a table besides the broker's own may set for itself.
pub(crate) fn rows_of(scope: OptionScope) -> impl Iterator<Item = &'static ProgramOption> {
    rows().filter(move |row| row.is_for(scope))
}

/// Returns the sections all of whose options a `[[listener]]` may override.
pub(crate) fn listener_sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = rows_of(OptionScope::Listener).map(|row| row.section()).collect();
    sections.dedup();
    let is_whole = |section: &&str| {
        let mut all = rows().filter(|row| row.section() == *section);
        !section.is_empty() && all.all(|row| row.is_for(OptionScope::Listener))
    };
    sections.retain(is_whole);
    sections
}

/// Returns every option, in the order of the documents and the sample file.
pub(crate) fn rows() -> impl Iterator<Item = &'static ProgramOption> + Clone {
    let before = [program::TOP, EngineTables::LISTENERS];
    let after = [
        BrokerTables::FLAPPING,
        BrokerTables::LIMITS,
        BrokerTables::CONNECTIONS,
        BrokerTables::SESSIONS,
        BrokerTables::MESSAGES,
        EngineTables::STORE,
        BrokerTables::STORE,
        program::ROWS,
    ];
    before.into_iter().chain(AuthTables::ALL.iter().copied()).chain(after).flatten()
}

pub(crate) fn find(key: &str) -> Option<&'static ProgramOption> {
    rows().find(|row| row.key == key)
}
