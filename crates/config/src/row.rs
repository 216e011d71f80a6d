//! Rows of option tables: the key of an option, the values it accepts, and the setter which stores
//! the value.

use crate::value::{NumberUnit, OptionKind, OptionValue};

/// An option, with a setter for the settings type `S`. Tables are constant slices of rows.
pub struct OptionRow<S> {
    pub key: &'static str,
    pub kind: OptionKind,
    /// Default as text, in the form of an environment variable. [`OptionRow::default_value`] parses
    /// the text.
    pub default: &'static str,
    /// Whether SIGHUP applies a change. Values which CONNACK has announced to connected clients
    /// change only with a restart.
    pub live: bool,
    /// Tables, in addition to the broker's own, which may set the option for their clients or
    /// sessions.
    pub also_for: &'static [OptionScope],
    /// Description in one line, for `--help`.
    pub short: &'static str,
    /// Further description, printed after `short`; may be empty.
    pub long: &'static str,
    /// Clause of the specification which the option implements, or "" if the option has no such
    /// source.
    pub source: &'static str,
    /// Stores the value in the settings. The value has the kind of `kind`.
    pub set: fn(&mut S, &OptionValue),
}

/// Table which may set an option of the broker for its own clients or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionScope {
    /// The table `[[group]]`: the option applies to the clients of the group.
    Group,
    /// The table `[[bridge]]` or `[[gateway]]`: the option applies to the link's session at this
    /// broker.
    Link,
    /// The table `[[listener]]`: the option applies to the clients which connect to the listener.
    Listener,
    /// The table `[[sink]]`: the option applies to the sink's session at this broker.
    Sink,
}

impl OptionScope {
    /// Returns the name of the table in a configuration file, for errors and documents.
    pub fn table(self) -> &'static str {
        match self {
            OptionScope::Group => "group",
            OptionScope::Link => "bridge or gateway",
            OptionScope::Listener => "listener",
            OptionScope::Sink => "sink",
        }
    }
}

/// Implemented by hand: the derived `Clone` would require `S: Clone`.
impl<S> Clone for OptionRow<S> {
    fn clone(&self) -> OptionRow<S> {
        *self
    }
}

impl<S> Copy for OptionRow<S> {}

impl<S> OptionRow<S> {
    /// Whether the table `scope` may set the option.
    pub fn is_for(&self, scope: OptionScope) -> bool {
        self.also_for.contains(&scope)
    }

    /// Returns the section of the key, or "" for keys at the top of a file.
    pub fn section(&self) -> &'static str {
        split_key(self.key).0
    }

    /// Returns the key without its section.
    pub fn name(&self) -> &'static str {
        split_key(self.key).1
    }

    /// Returns the environment variable of the option: `GODWIT_SECTION__KEY`.
    pub fn environment(&self) -> String {
        format!("GODWIT_{}", self.key.replace('.', "__").to_uppercase())
    }

    /// Parses the default. Panics if the default does not fit `kind`; a test reads the defaults of
    /// every table.
    pub fn default_value(&self) -> OptionValue {
        self.kind.read_text(self.default).expect("a default fits its own row")
    }
}

/// Splits a key into section and name. The section of a key at the top of a file is "".
pub(crate) fn split_key(key: &'static str) -> (&'static str, &'static str) {
    key.split_once('.').unwrap_or(("", key))
}

/// Kind of a path. The file is checked when the program reads it, not when the option is read.
pub const PATH: OptionKind = OptionKind::Text { of: "a path", check: |_| Ok(()) };

/// Kind of a text without a check.
pub const ANY: OptionKind = OptionKind::Text { of: "text", check: |_| Ok(()) };

/// Seconds, where "never" stands for 4,294,967,295 as in the Session Expiry Interval [MQTT 5.0,
/// 3.1.2.11.2].
pub const EXPIRY: OptionKind = OptionKind::Number {
    min: 0,
    max: u32::MAX as u64,
    unit: NumberUnit::Named("seconds"),
    word: Some(("never", u32::MAX as u64)),
};

/// Kind of a size from `min` to `max` bytes, also written with a suffix: "64KiB".
pub const fn bytes(min: u64, max: u64) -> OptionKind {
    OptionKind::Number { min, max, unit: NumberUnit::Bytes, word: None }
}

/// Kind of a number from `min` to `max`, with `unit` for errors and documents.
pub const fn count(min: u64, max: u64, unit: &'static str) -> OptionKind {
    OptionKind::Number { min, max, unit: NumberUnit::Named(unit), word: None }
}

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// Returns settings in which every row has stored its default.
pub fn defaults<S: Default>(rows: &[OptionRow<S>]) -> S {
    let mut settings = S::default();
    for row in rows {
        (row.set)(&mut settings, &row.default_value());
    }
    settings
}

/// Returns the row of a key, or `None` if the table has no such row.
pub fn find_row<S>(rows: &'static [OptionRow<S>], key: &str) -> Option<&'static OptionRow<S>> {
    rows.iter().find(|row| row.key == key)
}
