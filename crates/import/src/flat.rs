//! A file with a line an option, `a.b.c = value`, the value up to the end of the line: NanoMQ's old
//! file, and EMQX's before 5.

use super::config_tree::{ConfigEntry, ConfigNode, SourceLocation};
use super::draft::ConfigDraft;
use super::row::{RowTables, apply_node, row_weight};
use std::rc::Rc;

pub(super) fn read_flat_file(rows: RowTables, text: &str, file: &Rc<str>, draft: &mut ConfigDraft) {
    read_lines(rows, text, file, INCLUDES_MAX, draft);
}

/// Largest depth of included files.
const INCLUDES_MAX: usize = 8;

fn read_lines(
    rows: RowTables,
    text: &str,
    file: &Rc<str>,
    includes: usize,
    draft: &mut ConfigDraft,
) {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = SourceLocation { file: file.clone(), line: at + 1 };
        if let Some(named) = included_file(line) {
            match draft.folder.read(named) {
                Ok((file, text)) if includes > 0 => {
                    read_lines(rows, &text, &file, includes - 1, draft);
                }
                Ok(_) => {
                    let why = "files name others too deep, or themselves";
                    draft.wrongs.push(format!("{place}: include: {why}"));
                }
                // What stands in it may decide about access.
                Err(why) => {
                    let node = ConfigNode::text_at(&place, named);
                    let entry =
                        ConfigEntry { key: "include".to_string(), names: Vec::new(), node: &node };
                    draft.leave_unresolved(&entry, why);
                }
            }
            continue;
        }
        match line.split_once('=') {
            Some((key, value)) if is_key(key.trim()) => {
                let value = ConfigNode::text_at(&place, value.trim());
                apply_node(rows, &mut key_path(key), &value, draft);
            }
            _ => draft.wrongs.push(format!("{place}: no option, use NAME = VALUE")),
        }
    }
}

/// `include "FILE"`.
fn included_file(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("include")?;
    let named = rest.trim_start().strip_prefix('"')?.strip_suffix('"')?;
    (!named.is_empty()).then_some(named)
}

fn key_path(key: &str) -> Vec<String> {
    let mut path: Vec<String> = key.trim().split('.').map(str::to_string).collect();
    // The first versions had one bridge, and no name for it.
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

/// Returns how many of these lines the rows know.
pub(super) fn score_text(rows: RowTables, text: &str) -> usize {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let key = |line: &str| line.split_once('=').map(|(key, _)| key_path(key));
    lines.filter_map(key).map(|path| row_weight(rows, &path)).sum()
}

fn is_key(key: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !key.is_empty() && key.len() < 256 && key.bytes().all(legal)
}
