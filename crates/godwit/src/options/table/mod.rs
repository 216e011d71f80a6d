//! The option table: one row an option. The parser, `--help`, the sample file, the docs and the
//! settings come from it. Only the broker's defaults stand in `broker::Options` too.
//!
//! Invariant: keys are `section.name` (a few have no section), unique, and the rows of one section
//! stand together.

#[cfg(feature = "remote")]
mod backends;
mod connections;
#[cfg(feature = "http")]
mod http;
mod limits;
pub(crate) mod listeners;
mod messages;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
#[cfg(feature = "redis")]
mod redis;
mod security;
mod sessions;
mod store;
#[cfg(feature = "tables")]
mod tables;

use super::settings::ProgramSettings;
use super::value::{NumberUnit, OptionKind, OptionValue};

/// `S` is what it sets.
pub(crate) struct OptionRow<S = ProgramSettings> {
    pub(crate) key: &'static str,
    pub(crate) kind: OptionKind,
    /// As an environment variable would say it.
    pub(crate) default: &'static str,
    /// Whether SIGHUP applies a change, or only a restart. What CONNACK announced to clients that
    /// rely on it cannot change under them.
    pub(crate) live: bool,
    /// Description in a line, for `--help`.
    pub(crate) short: &'static str,
    /// Further description behind `short`; may be empty.
    pub(crate) long: &'static str,
    /// The clause that it follows; empty where it is our own idea.
    pub(crate) source: &'static str,
    /// Puts the value in its place.
    pub(crate) set: fn(&mut S, &OptionValue),
}

/// Implemented by hand, since `S` need not be `Clone`.
impl<S> Clone for OptionRow<S> {
    fn clone(&self) -> OptionRow<S> {
        *self
    }
}

impl<S> Copy for OptionRow<S> {}

impl<S> OptionRow<S> {
    /// Whether a `[[listener]]` may have it for itself.
    pub(crate) fn is_listeners(&self) -> bool {
        listeners::SECTIONS.contains(&self.section())
            || listeners::KEYS.contains(&self.key)
            || listeners::is_own(self.key)
    }

    /// Whether a `[[group]]` may.
    pub(crate) fn is_groups(&self) -> bool {
        listeners::GROUP_KEYS.contains(&self.key) || listeners::KEYS.contains(&self.key)
    }

    /// Empty for the keys that stand at the top of a file.
    pub(crate) fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// `GODWIT_SECTION__KEY`
    pub(crate) fn environment(&self) -> String {
        format!("GODWIT_{}", self.key.replace('.', "__").to_uppercase())
    }

    pub(crate) fn default_value(&self) -> OptionValue {
        self.kind.read_text(self.default).expect("a default fits its own row")
    }
}

/// Every option, in the order of the docs and the sample file.
pub(crate) fn rows() -> impl Iterator<Item = &'static OptionRow> + Clone {
    let parts = [
        program::TOP,
        listeners::ROWS,
        security::ACL,
        #[cfg(feature = "http")]
        http::ACL,
        security::ROWS,
        #[cfg(feature = "remote")]
        backends::ROWS,
        #[cfg(feature = "http")]
        http::ROWS,
        #[cfg(feature = "tables")]
        tables::ROWS,
        #[cfg(feature = "postgres")]
        postgres::ROWS,
        #[cfg(feature = "mysql")]
        mysql::ROWS,
        #[cfg(feature = "redis")]
        redis::ROWS,
        security::BANS,
        limits::ROWS,
        connections::ROWS,
        sessions::ROWS,
        messages::ROWS,
        store::ROWS,
        program::ROWS,
    ];
    parts.into_iter().flatten()
}

pub(crate) fn find(key: &str) -> Option<&'static OptionRow> {
    rows().find(|row| row.key == key)
}

const ANY: OptionKind = OptionKind::Text { of: "text", check: |_| Ok(()) };

/// Seconds as MQTT 5 counts them, where the largest number means for ever.
pub(crate) const EXPIRY: OptionKind = OptionKind::Number {
    min: 0,
    max: u32::MAX as u64,
    unit: NumberUnit::Named("seconds"),
    word: Some(("never", u32::MAX as u64)),
};

pub(crate) const fn bytes(min: u64, max: u64) -> OptionKind {
    OptionKind::Number { min, max, unit: NumberUnit::Bytes, word: None }
}

pub(crate) const fn count(min: u64, max: u64, unit: &'static str) -> OptionKind {
    OptionKind::Number { min, max, unit: NumberUnit::Named(unit), word: None }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
pub(crate) const TIB: u64 = 1 << 40;
