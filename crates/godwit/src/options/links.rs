//! The kinds of links, and parsing common to `[[bridge]]`, `[[gateway]]` and `[[sink]]` in a file.

use super::file::OptionFileReader;
use super::settings::ProgramSettings;
use super::{OptionError, OptionOrigin, OptionPlan, RawOption, table};
use config::row::{OptionRow, OptionScope, defaults, find_row};
use config::value::{OptionValue, ValueError};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A kind of link: its part in reading, checking and applying options, and in the documents.
pub(crate) struct LinkKindOptions {
    /// Name of the tables in a file, such as `bridge`.
    pub(super) name: &'static str,
    pub(super) read: fn(&mut OptionFileReader<'_>, usize, &DeTable<'_>),
    /// Returns the names of the plan's links of this kind.
    pub(super) names: fn(&OptionPlan) -> Vec<&str>,
    pub(super) check: fn(&OptionPlan, &ProgramSettings, &mut Vec<OptionError>),
    pub(super) add_settings: fn(&OptionPlan, &mut ProgramSettings),
    /// Takes over the links of the second plan. Returns whether the links differ.
    pub(super) replace: fn(&mut OptionPlan, &OptionPlan) -> bool,
    /// Adds the rows to the list of `godwit options`.
    pub(super) write_list: fn(&mut String),
    /// Adds the section of `docs/options.md`.
    pub(super) write_page: fn(&mut String),
    /// Adds the topics below `$SYS/broker/` to the reference.
    pub(crate) write_topics: fn(&mut String),
}

/// Kinds of links in this build.
pub(crate) const LINK_KINDS: &[LinkKindOptions] = &[
    #[cfg(feature = "bridge")]
    super::bridges::KIND,
    #[cfg(feature = "gateway")]
    super::gateways::KIND,
    #[cfg(feature = "sink")]
    super::sinks::KIND,
];

/// Returns the kind of links whose tables in a file have this name.
pub(super) fn find_kind(name: &str) -> Option<&'static LinkKindOptions> {
    LINK_KINDS.iter().find(|kind| kind.name == name)
}

/// A link as written in the file.
#[derive(Clone, Debug)]
pub(crate) struct LinkOptions<S> {
    pub(crate) origin: OptionOrigin,
    /// Settings without the session limits, which are in `limits`.
    pub(super) settings: S,
    pub(super) limits: BTreeMap<&'static str, RawOption>,
}

/// Option rows of a link, and the scope of the broker's options that a link may override.
pub(super) struct LinkTables<S: 'static> {
    pub(super) rows: &'static [OptionRow<S>],
    /// Scope of the broker's options for the link's own session, if any.
    pub(super) scope: Option<OptionScope>,
}

impl<S> LinkTables<S> {
    fn limit_keys(&self) -> impl Iterator<Item = &'static str> {
        self.scope.into_iter().flat_map(table::rows_of).map(|row| row.key)
    }
}

impl<S: Clone + Default> LinkOptions<S> {
    pub(super) fn new(origin: OptionOrigin, rows: &[OptionRow<S>]) -> LinkOptions<S> {
        LinkOptions { origin, settings: defaults(rows), limits: BTreeMap::new() }
    }

    /// Returns the values to compare with another plan's link.
    fn values(&self) -> (S, Vec<(&'static str, OptionValue)>) {
        let limits = self.limits.iter().map(|(key, given)| (*key, given.value.clone()));
        (self.settings.clone(), limits.collect())
    }
}

/// Takes over the links of the next plan. Returns whether the links differ.
pub(super) fn replace_links<S: Clone + Default + PartialEq>(
    own: &mut Vec<LinkOptions<S>>,
    next: &[LinkOptions<S>],
) -> bool {
    let before = std::mem::replace(own, next.to_vec());
    let values = |all: &[LinkOptions<S>]| all.iter().map(LinkOptions::values).collect::<Vec<_>>();
    values(&before) != values(next)
}

/// Describes the right form of a rule, with the filter from the wrong form.
fn rule_form(table: &str, given: &Spanned<DeValue<'_>>) -> String {
    let filter = given.get_ref().as_str().unwrap_or("a/#");
    format!("[[{table}]] on a line of its own, and below it filter = {filter:?}")
}

impl OptionFileReader<'_> {
    /// Calls `read` for each table of `[[kind]]`, with the table's position in the file.
    pub(super) fn read_links(
        &mut self,
        kind: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
        mut read: impl FnMut(&mut Self, usize, &DeTable<'_>),
    ) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.report_error(at, format!("a {kind} stands under [[{kind}]]"));
        };
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => read(self, one.span().start, table),
                _ => self.report_error(one.span().start, format!("use [[{kind}]] and name = ...")),
            }
        }
    }

    /// Reads `key = value`, or a table of options.
    pub(super) fn read_link_option<S>(
        &mut self,
        own: &mut LinkOptions<S>,
        tables: &LinkTables<S>,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        match value.get_ref() {
            _ if tables.limit_keys().any(|limit| limit == key) => {
                self.read_override(&mut own.limits, key, at, value)
            }
            DeValue::Table(options) if find_row(tables.rows, key).is_none() => {
                for (name, value) in options {
                    let key = format!("{key}.{}", name.get_ref());
                    self.read_link_option(own, tables, &key, name.span().start, value);
                }
            }
            _ => self.read_link_row(&mut own.settings, tables, key, at, value),
        }
    }

    /// Reads each rule of `[[table]]`, with the rule's position in the file.
    pub(super) fn read_link_rules<R: Default>(
        &mut self,
        table: &str,
        rows: &'static [OptionRow<R>],
        at: usize,
        value: &Spanned<DeValue<'_>>,
        rules: &mut Vec<(usize, R)>,
    ) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.report_error(
                at,
                format!("a rule stands under [[{table}]]: {}", rule_form(table, value)),
            );
        };
        for one in all.iter() {
            let at = one.span().start;
            let DeValue::Table(options) = one.get_ref() else {
                self.report_error(at, format!("use {}", rule_form(table, one)));
                continue;
            };
            let mut rule: R = defaults(rows);
            for (name, value) in options {
                let (key, at) = (name.get_ref(), name.span().start);
                self.read_link_row(&mut rule, &LinkTables { rows, scope: None }, key, at, value);
            }
            rules.push((at, rule));
        }
    }

    /// Sets an option by a row of the link's own table.
    pub(super) fn read_link_row<S>(
        &mut self,
        settings: &mut S,
        tables: &LinkTables<S>,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        let rows = tables.rows;
        let Some(row) = find_row(rows, key) else {
            let names = rows.iter().map(|row| row.key).chain(tables.limit_keys());
            let why = match config::nearest::nearest_word(key, names) {
                Some(meant) => format!("{key} is not an option of it, did you mean {meant}?"),
                None => {
                    let names: Vec<&str> = rows.iter().map(|row| row.key).collect();
                    format!("{key} is not an option of it, it has {}", names.join(", "))
                }
            };
            return self.report_error(at, why);
        };
        match row.kind.read_toml(value) {
            Ok(value) => (row.set)(settings, &value),
            Err(ValueError { at, why }) => self.report_error(at, format!("{key}: {why}")),
        }
    }
}

impl OptionPlan {
    /// Returns the names of all links, as in `send_to` of rules.
    pub(super) fn link_names(&self) -> Vec<String> {
        let names = |kind: &LinkKindOptions| -> Vec<String> {
            (kind.names)(self).iter().map(|name| format!("{}/{name}", kind.name)).collect()
        };
        LINK_KINDS.iter().flat_map(names).collect()
    }
}

/// Returns the error in the name of a link: invalid, or the name of another link of the same kind.
pub(super) fn check_name<'a>(
    kind: &str,
    name: &str,
    mut others: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_legal = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(legal);
    (!is_legal || others.any(|other| other == name)).then(|| {
        format!(
            "a {kind} needs a name of its own, of at most {NAME_BYTES_MAX} letters, digits, \
             \"-\", \"_\" and \".\""
        )
    })
}

const NAME_BYTES_MAX: usize = 64;
