//! Rows of option tables: what an option is called, what it may hold, and where its value goes.

use crate::value::{NumberUnit, OptionKind, OptionValue};

/// `S` is what it sets.
pub struct OptionRow<S> {
    pub key: &'static str,
    pub kind: OptionKind,
    /// As an environment variable would say it.
    pub default: &'static str,
    /// Whether SIGHUP applies a change, or only a restart. What CONNACK announced to clients that
    /// rely on it cannot change under them.
    pub live: bool,
    /// Tables besides the broker's own that may have the option for themselves.
    pub also_for: &'static [OptionScope],
    /// Description in a line, for `--help`.
    pub short: &'static str,
    /// Further description behind `short`; may be empty.
    pub long: &'static str,
    /// The clause that it follows; empty where it is our own idea.
    pub source: &'static str,
    /// Puts the value in its place.
    pub set: fn(&mut S, &OptionValue),
}

/// Table that may set an option of the broker for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionScope {
    /// A `[[group]]`, for its clients.
    Group,
    /// A `[[bridge]]` or `[[gateway]]`, for its session here.
    Link,
    /// A `[[listener]]`, for the clients that connect to it.
    Listener,
    /// A `[[sink]]`, for its session here.
    Sink,
}

impl OptionScope {
    /// Returns the name of the table in a file.
    pub fn table(self) -> &'static str {
        match self {
            OptionScope::Group => "group",
            OptionScope::Link => "bridge or gateway",
            OptionScope::Listener => "listener",
            OptionScope::Sink => "sink",
        }
    }
}

/// Implemented by hand, since `S` need not be `Clone`.
impl<S> Clone for OptionRow<S> {
    fn clone(&self) -> OptionRow<S> {
        *self
    }
}

impl<S> Copy for OptionRow<S> {}

impl<S> OptionRow<S> {
    /// Whether another table may set the option for itself.
    pub fn is_for(&self, scope: OptionScope) -> bool {
        self.also_for.contains(&scope)
    }

    /// Empty for the keys that stand at the top of a file.
    pub fn section(&self) -> &'static str {
        split_key(self.key).0
    }

    /// The key without its section.
    pub fn name(&self) -> &'static str {
        split_key(self.key).1
    }

    /// `GODWIT_SECTION__KEY`
    pub fn environment(&self) -> String {
        format!("GODWIT_{}", self.key.replace('.', "__").to_uppercase())
    }

    pub fn default_value(&self) -> OptionValue {
        self.kind.read_text(self.default).expect("a default fits its own row")
    }
}

/// Splits a key into section and name; the section of a key at the top of a file is empty.
pub(crate) fn split_key(key: &'static str) -> (&'static str, &'static str) {
    key.split_once('.').unwrap_or(("", key))
}

/// Any path: what is there is looked at when it is read.
pub const PATH: OptionKind = OptionKind::Text { of: "a path", check: |_| Ok(()) };

/// Any text.
pub const ANY: OptionKind = OptionKind::Text { of: "text", check: |_| Ok(()) };

/// Seconds as MQTT 5 counts them, where the largest number means for ever.
pub const EXPIRY: OptionKind = OptionKind::Number {
    min: 0,
    max: u32::MAX as u64,
    unit: NumberUnit::Named("seconds"),
    word: Some(("never", u32::MAX as u64)),
};

pub const fn bytes(min: u64, max: u64) -> OptionKind {
    OptionKind::Number { min, max, unit: NumberUnit::Bytes, word: None }
}

pub const fn count(min: u64, max: u64, unit: &'static str) -> OptionKind {
    OptionKind::Number { min, max, unit: NumberUnit::Named(unit), word: None }
}

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// With every row's default.
pub fn defaults<S: Default>(rows: &[OptionRow<S>]) -> S {
    let mut settings = S::default();
    for row in rows {
        (row.set)(&mut settings, &row.default_value());
    }
    settings
}

/// Returns the row of a key, if the table has it.
pub fn find_row<S>(rows: &'static [OptionRow<S>], key: &str) -> Option<&'static OptionRow<S>> {
    rows.iter().find(|row| row.key == key)
}
