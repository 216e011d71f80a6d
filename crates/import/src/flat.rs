//! A file with one option per line, `a.b.c = value`, where the value extends to the end of the
//! line: NanoMQ's old file, and the files of EMQX before version 5.

use super::access::may_decide_about_access;
use super::config_tree::{ConfigEntry, ConfigNode, SourceLocation};
use super::draft::ConfigDraft;
use super::row::{RowTables, apply_node, row_weight};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(super) fn read_flat_file(rows: RowTables, text: &str, file: &Rc<str>, draft: &mut ConfigDraft) {
    let mut lines = FlatLines { rows, places: BTreeMap::new() };
    lines.read(text, file, INCLUDES_MAX, draft);
}

/// Keys read so far, to detect duplicates: some keys count by their first line in the original, and
/// some by their last.
struct FlatLines {
    rows: RowTables,
    places: BTreeMap<String, (SourceLocation, String)>,
}

/// Largest depth of included files.
const INCLUDES_MAX: usize = 8;

impl FlatLines {
    fn read(&mut self, text: &str, file: &Rc<str>, includes: usize, draft: &mut ConfigDraft) {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = SourceLocation { file: file.clone(), line: at + 1 };
            if let Some(named) = included_file(line) {
                match draft.folder.read(named) {
                    Ok((file, text)) if includes > 0 => {
                        self.read(&text, &file, includes - 1, draft);
                    }
                    Ok(_) => {
                        let why = "files name others too deep, or themselves";
                        draft.wrongs.push(format!("{place}: include: {why}"));
                    }
                    // An included file may contain decisions about access.
                    Err(why) => {
                        let node = ConfigNode::text_at(&place, named);
                        let key = "include".to_string();
                        let entry = ConfigEntry { key, names: Vec::new(), node: &node };
                        draft.leave_unresolved(&entry, why);
                    }
                }
                continue;
            }
            match line.split_once('=') {
                Some((key, value)) if is_key(key.trim()) => {
                    self.read_option(place, key, value.trim(), draft);
                }
                _ => draft.wrongs.push(format!("{place}: no option, use NAME = VALUE")),
            }
        }
    }

    fn read_option(
        &mut self,
        place: SourceLocation,
        key: &str,
        value: &str,
        draft: &mut ConfigDraft,
    ) {
        let said = (place.clone(), value.to_string());
        match self.places.insert(key.trim().to_string(), said) {
            Some((before, other)) if other != value && may_decide_about_access(key.trim()) => {
                let key = key.trim();
                let why = format!("it stands at {before} with another value, leave one out");
                draft.wrongs.push(format!("{place}: {key}: {why}"));
            }
            _ => apply_node(
                self.rows,
                &mut key_path(key),
                &ConfigNode::text_at(&place, value),
                draft,
            ),
        }
    }
}

/// Returns the file name of a line `include "FILE"`; `None` for any other line.
fn included_file(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("include")?;
    let named = rest.trim_start().strip_prefix('"')?.strip_suffix('"')?;
    (!named.is_empty()).then_some(named)
}

fn key_path(key: &str) -> Vec<String> {
    // NanoMQ ignores a rule with a blank after its number.
    let own = if key.starts_with("acl.rule.") { key } else { key.trim() };
    let mut path: Vec<String> = own.split('.').map(str::to_string).collect();
    // The first versions had a single bridge without a name.
    if path.len() > 2 && path[..2] == ["bridge", "mqtt"] && NAMELESS.contains(&path[2].as_str()) {
        path.insert(2, "bridge".to_string());
    }
    path
}

const NAMELESS: &[&str] = &[
    "address",
    "bridge_mode",
    "clean_start",
    "clientid",
    "forwards",
    "keepalive",
    "parallel",
    "password",
    "proto_ver",
    "subscription",
    "tls",
    "username",
];

/// Returns the total weight of the lines that the rows know, to detect the project.
pub(super) fn score_text(rows: RowTables, text: &str) -> usize {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let key = |line: &str| line.split_once('=').map(|(key, _)| key_path(key));
    lines.filter_map(key).map(|path| row_weight(rows, &path)).sum()
}

/// Returns a key of the text that the rows `known` have, and that belongs to no part known to the
/// rows `others`.
pub(super) fn foreign_key(known: RowTables, others: RowTables, text: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let paths = lines.filter_map(|line| line.split_once('=').map(|(key, _)| key_path(key)));
    let has_part = |first: &str| {
        let mut rows = others.iter().copied().flatten();
        rows.any(|row| row.key.split('.').next() == Some(first))
    };
    let is_foreign = |path: &Vec<String>| {
        row_weight(known, path) > 0 && path.first().is_some_and(|first| !has_part(first))
    };
    paths.into_iter().find(is_foreign).map(|path| path.join("."))
}

fn is_key(key: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !key.is_empty() && key.len() < 256 && key.bytes().all(legal)
}
