//! The layer with the lowest precedence: a TOML file. Every error has its line.

use super::RawOption;
use super::links::find_kind;
use super::table::{self, ProgramOption};
use super::{GroupOptions, ListenerOptions, OptionError, OptionOrigin, OptionPlan, unknown_option};
use config::listen_url::ListenUrl;
use config::row::OptionScope;
use config::source::{line_at, parse_toml, text_of};
use config::value::{OptionKind, ValueError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) fn read_file(path: &Path, plan: &mut OptionPlan, wrongs: &mut Vec<OptionError>) {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let whole = config::source::absolute_path(path);
            let origin = OptionOrigin::Flag(format!("--config {}", whole.display()));
            wrongs.push(OptionError { origin, why: format!("the file cannot be read: {error}") });
            return;
        }
    };
    match text_of(&bytes, "TOML must be") {
        Ok(source) => {
            let preset_ids = BTreeSet::new();
            OptionFileReader { path, source, plan, preset_ids, wrongs }.read_document();
        }
        Err((line, why)) => {
            let origin = OptionOrigin::File { path: path.to_path_buf(), line };
            wrongs.push(OptionError { origin, why });
        }
    }
}

pub(super) struct OptionFileReader<'a> {
    path: &'a Path,
    source: &'a str,
    pub(super) plan: &'a mut OptionPlan,
    /// Client identifiers of the file's preset sessions.
    pub(super) preset_ids: BTreeSet<String>,
    wrongs: &'a mut Vec<OptionError>,
}

impl OptionFileReader<'_> {
    fn read_document(&mut self) {
        match parse_toml(self.source) {
            Ok(document) => self.read_table("", document.get_ref()),
            Err(errors) => errors.into_iter().for_each(|(at, why)| self.report_error(at, why)),
        }
    }

    fn read_table(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let dot = if section.is_empty() { "" } else { "." };
            let key = format!("{section}{dot}{}", name.get_ref());
            self.read_entry(&key, name.span(), value);
        }
    }

    fn read_entry(&mut self, key: &str, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        if let Some(kind) = find_kind(key) {
            return self.read_links(key, at.start, value, kind.read);
        }
        match key {
            "auto_subscribe" => {
                return self.read_links(
                    key,
                    at.start,
                    value,
                    OptionFileReader::read_auto_subscribe,
                );
            }
            "cache" => return self.read_links(key, at.start, value, OptionFileReader::read_cache),
            "group" => return self.read_groups(at, value),
            "imported" => {
                return self.read_links(key, at.start, value, OptionFileReader::read_imported);
            }
            "preset" => {
                return self.read_links(key, at.start, value, OptionFileReader::read_preset);
            }
            "rewrite" => {
                return self.read_links(key, at.start, value, OptionFileReader::read_rewrite);
            }
            "rule" => return self.read_links("rule", at.start, value, OptionFileReader::read_rule),
            "listener" => return self.read_listeners(at, value),
            _ => {}
        }
        if let Some(row) = table::find(key) {
            return self.read_option(row, at, value);
        }
        let in_section = |row: &&ProgramOption| !row.section().is_empty() && row.section() == key;
        let names: Vec<&str> = table::rows().filter(in_section).map(ProgramOption::name).collect();
        match value.get_ref() {
            _ if names.is_empty() => {
                self.report_error(at.start, self.describe_unknown_key(key, value))
            }
            DeValue::Table(section) => self.read_table(key, section),
            _ => self.report_error(
                at.start,
                format!("{key} is a section, use [{key}] and under it {}", names.join(", ")),
            ),
        }
    }

    fn read_listeners(&mut self, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.report_error(at.start, "a listener stands under [[listener]]".to_string());
        };
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => self.read_listener(one.span().start, table),
                _ => self
                    .report_error(one.span().start, "use [[listener]] and url = ...".to_string()),
            }
        }
    }

    fn read_listener(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own =
            ListenerOptions { url: String::new(), origin: self.origin(at), given: BTreeMap::new() };
        for (name, value) in table {
            match (&**name.get_ref(), value.get_ref()) {
                ("url", DeValue::String(url)) => match ListenUrl::parse(url) {
                    Ok(_) => own.url = url.to_string(),
                    Err(why) => self.report_error(value.span().start, format!("url: {why}")),
                },
                (section, DeValue::Table(options)) => {
                    self.read_override_section(
                        &mut own.given,
                        OptionScope::Listener,
                        section,
                        options,
                    );
                }
                (key, _) if is_option_of(key, OptionScope::Listener) => {
                    self.read_override(&mut own.given, key, name.span().start, value);
                }
                (other, _) => {
                    let why = format!(
                        "a listener has no {other}, use url and options of {} and the like",
                        table::listener_sections().join(", ")
                    );
                    self.report_error(name.span().start, why);
                }
            }
        }
        match own.url.is_empty() {
            false => self.plan.listeners.push(own),
            true => {
                self.report_error(at, "a listener needs url = \"tls://ADDRESS:PORT\"".to_string())
            }
        }
    }

    fn read_groups(&mut self, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.report_error(at.start, "a group stands under [[group]]".to_string());
        };
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => self.read_group(one.span().start, table),
                _ => {
                    self.report_error(one.span().start, "use [[group]] and name = ...".to_string())
                }
            }
        }
    }

    fn read_group(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = GroupOptions::new(self.origin(at));
        for (name, value) in table {
            match (&**name.get_ref(), value.get_ref()) {
                ("name", DeValue::String(name)) => own.name = name.to_string(),
                (section, DeValue::Table(options)) => {
                    self.read_override_section(
                        &mut own.given,
                        OptionScope::Group,
                        section,
                        options,
                    );
                }
                (key, _) if is_option_of(key, OptionScope::Group) => {
                    self.read_override(&mut own.given, key, name.span().start, value);
                }
                (other, _) => {
                    let why = format!("a group has no {other}, use name and limits");
                    self.report_error(name.span().start, why);
                }
            }
        }
        let is_known = self.plan.groups.iter().any(|group| group.name == own.name);
        match own.name.is_empty() || is_known {
            false => self.plan.groups.push(own),
            true => self.report_error(at, "a group needs a name = \"...\" of its own".to_string()),
        }
    }

    /// Reads the options of a section that a listener or a group overrides.
    fn read_override_section(
        &mut self,
        given: &mut BTreeMap<&'static str, RawOption>,
        scope: OptionScope,
        section: &str,
        options: &DeTable<'_>,
    ) {
        for (name, value) in options {
            let (key, at) = (format!("{section}.{}", name.get_ref()), name.span().start);
            match table::find(&key) {
                None => self.report_error(at, unknown_option(&key)),
                Some(row) if !row.is_for(scope) => {
                    self.report_error(
                        at,
                        format!("{key} goes for all, a {} has none of its own", scope.table()),
                    );
                }
                Some(_) => self.read_override(given, &key, at, value),
            }
        }
    }

    pub(super) fn read_override(
        &mut self,
        given: &mut BTreeMap<&'static str, RawOption>,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        let Some(row) = table::find(key) else { return self.report_error(at, unknown_option(key)) };
        let origin = self.origin(at);
        match row.kind.read_toml(value) {
            Ok(value) => _ = given.insert(row.key, RawOption { value, origin }),
            Err(ValueError { at, why }) => self.report_error(at, format!("{key}: {why}")),
        }
    }

    fn read_option(
        &mut self,
        row: &'static ProgramOption,
        at: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let origin = self.origin(at.start);
        match row.kind.read_toml(value) {
            Ok(value) => self.plan.set_value(row, value, origin),
            Err(ValueError { at, why }) => {
                let given = self.excerpt(value, row.kind);
                self.report_error(at, format!("{}{given}: {why}", row.key));
            }
        }
    }

    /// Describes an unknown key; an unknown section is reported once, not once per key.
    fn describe_unknown_key(&self, key: &str, value: &Spanned<DeValue<'_>>) -> String {
        let sections =
            || table::rows().map(ProgramOption::section).filter(|section| !section.is_empty());
        match (value.get_ref(), config::nearest::nearest_word(key, sections())) {
            (DeValue::Table(_), Some(meant)) if !key.contains('.') => {
                format!("[{key}] is not a section, did you mean [{meant}]?")
            }
            (DeValue::Table(_), None) if !key.contains('.') => {
                format!("[{key}] is not a section, `godwit options` lists them all")
            }
            _ => unknown_option(key),
        }
    }

    /// Returns ` = value` as in the file; empty for lists, maps and long values.
    fn excerpt(&self, value: &Spanned<DeValue<'_>>, kind: OptionKind) -> String {
        let text = self.source.get(value.span()).unwrap_or_default();
        let many = matches!(kind, OptionKind::List { .. } | OptionKind::Map { .. });
        if many || text.len() > EXCERPT_BYTES_MAX || text.contains('\n') {
            return String::new();
        }
        kind.excerpt(text)
    }

    pub(super) fn report_error(&mut self, at: usize, why: String) {
        let origin = self.origin(at);
        self.wrongs.push(OptionError { origin, why });
    }

    /// Returns the number of errors so far.
    pub(super) fn error_count(&self) -> usize {
        self.wrongs.len()
    }

    pub(super) fn origin(&self, at: usize) -> OptionOrigin {
        let line = line_at(self.source.as_bytes(), at);
        OptionOrigin::File { path: self.path.to_path_buf(), line }
    }
}

fn is_option_of(key: &str, scope: OptionScope) -> bool {
    table::find(key).is_some_and(|row| row.is_for(scope))
}

const EXCERPT_BYTES_MAX: usize = 60;
