//! The weakest layer: a TOML file. Every error names its line.

use super::Given;
use super::table::listeners::SECTIONS;
use super::table::{self, Row};
use super::value::{Kind, Misfit};
use super::{GroupGiven, ListenerGiven, Origin, Plan, Wrong, unknown};
use crate::listen::ListenUrl;
use crate::source::{document, line_at, text_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) fn read(path: &Path, plan: &mut Plan, wrongs: &mut Vec<Wrong>) {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let whole = crate::source::whole_path(path);
            let origin = Origin::Flag(format!("--config {}", whole.display()));
            wrongs.push(Wrong { origin, why: format!("the file cannot be read: {error}") });
            return;
        }
    };
    match text_of(&bytes, "TOML must be") {
        Ok(source) => {
            let preset_ids = BTreeSet::new();
            Reader { path, source, plan, preset_ids, wrongs }.read();
        }
        Err((line, why)) => {
            let origin = Origin::File { path: path.to_path_buf(), line };
            wrongs.push(Wrong { origin, why });
        }
    }
}

pub(super) struct Reader<'a> {
    path: &'a Path,
    source: &'a str,
    pub(super) plan: &'a mut Plan,
    /// Those that the file has a preset for.
    pub(super) preset_ids: BTreeSet<String>,
    wrongs: &'a mut Vec<Wrong>,
}

impl Reader<'_> {
    fn read(&mut self) {
        match document(self.source) {
            Ok(document) => self.table("", document.get_ref()),
            Err(errors) => errors.into_iter().for_each(|(at, why)| self.wrong(at, why)),
        }
    }

    fn table(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let dot = if section.is_empty() { "" } else { "." };
            let key = format!("{section}{dot}{}", name.get_ref());
            self.entry(&key, name.span(), value);
        }
    }

    fn entry(&mut self, key: &str, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        match key {
            #[cfg(feature = "bridge")]
            "bridge" => return self.links("bridge", at.start, value, Reader::bridge),
            #[cfg(feature = "gateway")]
            "gateway" => return self.links("gateway", at.start, value, Reader::gateway),
            #[cfg(feature = "sink")]
            "sink" => return self.links("sink", at.start, value, Reader::sink),
            "auto_subscribe" => {
                return self.links(key, at.start, value, Reader::auto_subscribe);
            }
            "cache" => return self.links(key, at.start, value, Reader::cache),
            "group" => return self.groups(at, value),
            "imported" => return self.links(key, at.start, value, Reader::imported),
            "preset" => return self.links(key, at.start, value, Reader::preset),
            "rewrite" => return self.links(key, at.start, value, Reader::rewrite),
            "rule" => return self.links("rule", at.start, value, Reader::rule),
            "listener" => return self.listeners(at, value),
            _ => {}
        }
        if let Some(row) = table::find(key) {
            return self.option(row, at, value);
        }
        let in_section = |row: &&Row| !row.section().is_empty() && row.section() == key;
        let names: Vec<&str> = table::rows().filter(in_section).map(Row::name).collect();
        match value.get_ref() {
            _ if names.is_empty() => self.wrong(at.start, self.stranger(key, value)),
            DeValue::Table(section) => self.table(key, section),
            _ => self.wrong(
                at.start,
                format!("{key} is a section, use [{key}] and under it {}", names.join(", ")),
            ),
        }
    }

    fn listeners(&mut self, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.wrong(at.start, "a listener stands under [[listener]]".to_string());
        };
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => self.listener(one.span().start, table),
                _ => self.wrong(one.span().start, "use [[listener]] and url = ...".to_string()),
            }
        }
    }

    fn listener(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own =
            ListenerGiven { url: String::new(), origin: self.origin(at), given: BTreeMap::new() };
        for (name, value) in table {
            match (&**name.get_ref(), value.get_ref()) {
                ("url", DeValue::String(url)) => match ListenUrl::parse(url) {
                    Ok(_) => own.url = url.to_string(),
                    Err(why) => self.wrong(value.span().start, format!("url: {why}")),
                },
                (section, DeValue::Table(options)) => {
                    let whose = ("listener", Row::is_listeners as fn(&Row) -> bool);
                    self.own_section(&mut own.given, whose, section, options);
                }
                (key, _) if table::find(key).is_some_and(Row::is_listeners) => {
                    self.own_option(&mut own.given, key, name.span().start, value);
                }
                (other, _) => {
                    let why = format!(
                        "a listener has no {other}, use url and options of {} and the like",
                        SECTIONS.join(", ")
                    );
                    self.wrong(name.span().start, why);
                }
            }
        }
        match own.url.is_empty() {
            false => self.plan.listeners.push(own),
            true => self.wrong(at, "a listener needs url = \"tls://ADDRESS:PORT\"".to_string()),
        }
    }

    fn groups(&mut self, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        let DeValue::Array(all) = value.get_ref() else {
            return self.wrong(at.start, "a group stands under [[group]]".to_string());
        };
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => self.group(one.span().start, table),
                _ => self.wrong(one.span().start, "use [[group]] and name = ...".to_string()),
            }
        }
    }

    fn group(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = GroupGiven::new(self.origin(at));
        for (name, value) in table {
            match (&**name.get_ref(), value.get_ref()) {
                ("name", DeValue::String(name)) => own.name = name.to_string(),
                (section, DeValue::Table(options)) => {
                    let whose = ("group", Row::is_groups as fn(&Row) -> bool);
                    self.own_section(&mut own.given, whose, section, options);
                }
                (key, _) if table::find(key).is_some_and(Row::is_groups) => {
                    self.own_option(&mut own.given, key, name.span().start, value);
                }
                (other, _) => {
                    let why = format!("a group has no {other}, use name and limits");
                    self.wrong(name.span().start, why);
                }
            }
        }
        let is_known = self.plan.groups.iter().any(|group| group.name == own.name);
        match own.name.is_empty() || is_known {
            false => self.plan.groups.push(own),
            true => self.wrong(at, "a group needs a name = \"...\" of its own".to_string()),
        }
    }

    /// Options of one section that a listener or a group has for itself.
    fn own_section(
        &mut self,
        given: &mut BTreeMap<&'static str, Given>,
        (whose, is_one): (&str, fn(&Row) -> bool),
        section: &str,
        options: &DeTable<'_>,
    ) {
        for (name, value) in options {
            let (key, at) = (format!("{section}.{}", name.get_ref()), name.span().start);
            match table::find(&key) {
                None => self.wrong(at, unknown(&key)),
                Some(row) if !is_one(row) => {
                    self.wrong(at, format!("{key} goes for all, a {whose} has none of its own"));
                }
                Some(_) => self.own_option(given, &key, at, value),
            }
        }
    }

    pub(super) fn own_option(
        &mut self,
        given: &mut BTreeMap<&'static str, Given>,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        let Some(row) = table::find(key) else { return self.wrong(at, unknown(key)) };
        let origin = self.origin(at);
        match row.kind.read_toml(value) {
            Ok(value) => _ = given.insert(row.key, Given { value, origin }),
            Err(Misfit { at, why }) => self.wrong(at, format!("{key}: {why}")),
        }
    }

    fn option(&mut self, row: &'static Row, at: Range<usize>, value: &Spanned<DeValue<'_>>) {
        let origin = self.origin(at.start);
        match row.kind.read_toml(value) {
            Ok(value) => self.plan.give(row, value, origin),
            Err(Misfit { at, why }) => {
                let given = self.excerpt(value, row.kind);
                self.wrong(at, format!("{}{given}: {why}", row.key));
            }
        }
    }

    /// An unknown section is named once, not once a key.
    fn stranger(&self, key: &str, value: &Spanned<DeValue<'_>>) -> String {
        let sections = || table::rows().map(Row::section).filter(|section| !section.is_empty());
        match (value.get_ref(), super::nearest::nearest(key, sections())) {
            (DeValue::Table(_), Some(meant)) if !key.contains('.') => {
                format!("[{key}] is no section, did you mean [{meant}]?")
            }
            (DeValue::Table(_), None) if !key.contains('.') => {
                format!("[{key}] is no section, `godwit options` lists them all")
            }
            _ => unknown(key),
        }
    }

    /// ` = value` as it stands in the file; lists and tables would say too much.
    fn excerpt(&self, value: &Spanned<DeValue<'_>>, kind: Kind) -> String {
        let text = self.source.get(value.span()).unwrap_or_default();
        let many = matches!(kind, Kind::List { .. } | Kind::Map { .. });
        if many || text.len() > EXCERPT_BYTES_MAX || text.contains('\n') {
            return String::new();
        }
        kind.excerpt(text)
    }

    pub(super) fn wrong(&mut self, at: usize, why: String) {
        let origin = self.origin(at);
        self.wrongs.push(Wrong { origin, why });
    }

    /// How much was wrong so far.
    pub(super) fn wrongs(&self) -> usize {
        self.wrongs.len()
    }

    pub(super) fn origin(&self, at: usize) -> Origin {
        let line = line_at(self.source.as_bytes(), at);
        Origin::File { path: self.path.to_path_buf(), line }
    }
}

const EXCERPT_BYTES_MAX: usize = 60;
