//! A row of a table: a key of another broker and its conversion. The import, its errors and
//! `docs/import.md` are generated from the rows.
//!
//! Keys are spelled as in the project's documents; `*` stands for a name chosen by the user, and a
//! final `**` for everything below.

use super::config_tree::{ConfigEntry, ConfigNode, ConfigTree};
use super::draft::{ConfigDraft, UnsupportedKey};
use super::hocon::MISSING_INCLUDE;
use config::nearest::nearest_word;

pub(super) struct ImportRow {
    pub(super) key: &'static str,
    pub(super) to: ImportTarget,
}

/// Returns the error for a key without a row.
pub(super) fn unknown_row(key: &str) -> String {
    format!("{key} is not known here, leave it out; docs/import.md has all keys")
}

/// The tables of a project, in the order of lookup.
pub(super) type RowTables = &'static [&'static [ImportRow]];

fn all_rows(tables: RowTables) -> impl Iterator<Item = &'static ImportRow> {
    tables.iter().copied().flatten()
}

/// Reads the value of an entry as an [`ImportValue`]; the error says what is right.
pub(super) type ValueReader = fn(&ConfigEntry<'_>) -> Result<ImportValue, String>;

pub(super) enum ImportTarget {
    /// An option for all listeners.
    All(&'static str, ValueReader),
    /// An option of the entry's listener.
    Listener(&'static str, ValueReader),
    /// An option of the entry's bridge.
    Bridge(&'static str, ValueReader),
    /// A conversion by a function; the text describes the conversion in `docs/import.md`.
    Custom(&'static str, fn(&mut ConfigDraft, &ConfigEntry<'_>) -> Result<(), String>),
    /// A key without an equivalent: the reason, and an alternative.
    Unsupported(&'static str),
    /// A key without an equivalent that restricts clients: the broker does not start before an
    /// operator has replaced it, unless the value disables the restriction.
    Restriction(&'static str),
    /// All other keys of a part that may restrict clients. Keys that begin with one of the words
    /// are harmless, and the text says why they have no equivalent; any other key is a restriction.
    Remainder(&'static [&'static str], &'static str),
}

/// Returns a row for an option of all listeners.
pub(super) const fn global_row(
    key: &'static str,
    ours: &'static str,
    by: ValueReader,
) -> ImportRow {
    ImportRow { key, to: ImportTarget::All(ours, by) }
}

/// Returns a row for an option of a listener.
pub(super) const fn listener_row(
    key: &'static str,
    ours: &'static str,
    by: ValueReader,
) -> ImportRow {
    ImportRow { key, to: ImportTarget::Listener(ours, by) }
}

/// Returns a row for an option of a bridge, about its remote side.
pub(super) const fn bridge_row(
    key: &'static str,
    ours: &'static str,
    by: ValueReader,
) -> ImportRow {
    ImportRow { key, to: ImportTarget::Bridge(ours, by) }
}

pub(super) const fn custom_row(
    key: &'static str,
    what: &'static str,
    make: fn(&mut ConfigDraft, &ConfigEntry<'_>) -> Result<(), String>,
) -> ImportRow {
    ImportRow { key, to: ImportTarget::Custom(what, make) }
}

pub(super) const fn unsupported_row(key: &'static str, why: &'static str) -> ImportRow {
    ImportRow { key, to: ImportTarget::Unsupported(why) }
}

pub(super) const fn restriction_row(key: &'static str, why: &'static str) -> ImportRow {
    ImportRow { key, to: ImportTarget::Restriction(why) }
}

/// Returns a row for the keys below a part. Its key ends with `.**`.
pub(super) const fn remainder_row(
    key: &'static str,
    harmless: &'static [&'static str],
    why: &'static str,
) -> ImportRow {
    ImportRow { key, to: ImportTarget::Remainder(harmless, why) }
}

/// A value in the form of the options here.
#[derive(Clone, Debug)]
pub(super) enum ImportValue {
    Text(String),
    List(Vec<String>),
    Map(Vec<(String, String)>),
    /// No bound: the option's word for unlimited, or its largest number.
    Unlimited,
    /// A value without an equivalent, though the key has an option.
    Unsupported(&'static str),
}

/// Applies the matching row to every key of a tree.
pub(super) fn apply_rows(rows: RowTables, node: &ConfigNode, draft: &mut ConfigDraft) {
    if let ConfigTree::Object(fields) = &node.tree {
        for (key, node) in fields {
            apply_node(rows, &mut vec![key.clone()], node, draft);
        }
    }
}

/// Applies the rows to a key and everything below.
pub(super) fn apply_node(
    rows: RowTables,
    path: &mut Vec<String>,
    node: &ConfigNode,
    draft: &mut ConfigDraft,
) {
    let is_inside = matches!(node.tree, ConfigTree::Object(_) | ConfigTree::List(_));
    if path.last().is_some_and(|last| last == MISSING_INCLUDE) {
        return missing_include(path, node, draft);
    }
    let below = is_inside && all_rows(rows).any(|row| has_rows_below(row.key, path));
    if let Some((row, names)) = find_row(rows, path) {
        // A row for everything below applies only if no other row is more specific.
        let particular =
            |row: &ImportRow| !row.key.ends_with(".**") && has_rows_below(row.key, path);
        if !(below && row.key.ends_with(".**") && all_rows(rows).any(particular)) {
            let entry = ConfigEntry { key: path.join("."), names, node };
            return draft.apply_row(row, &entry);
        }
    }
    match &node.tree {
        ConfigTree::Object(fields) if below => {
            for (key, node) in fields {
                path.push(key.clone());
                apply_node(rows, path, node, draft);
                path.pop();
            }
        }
        ConfigTree::List(nodes) if below => {
            for (at, node) in (1..).zip(nodes) {
                path.push(format!("{at}"));
                apply_node(rows, path, node, draft);
                path.pop();
            }
        }
        _ => draft.report_unknown_key(&node.place, &path.join("."), unknown_key(rows, path)),
    }
}

/// Handles a part whose file does not exist: its decisions about access are unknown.
fn missing_include(path: &[String], node: &ConfigNode, draft: &mut ConfigDraft) {
    let part = path[..path.len() - 1].join(".");
    let why = node.text().unwrap_or_default().to_string();
    let known = ["auth.acl", "auth.password"].into_iter().find(|known| *known == part);
    if let Some(known) = known {
        draft.lost.push(known);
        let why = format!("{why}: nobody is let in, or allowed anything, by what stands in it");
        let place = node.place.clone();
        return draft.missing.push(UnsupportedKey { place, key: part, why });
    }
    if super::access::may_have_access_keys(&part) {
        return draft.wrongs.push(format!("{}: {why}", node.place));
    }
    draft.missing.push(UnsupportedKey { place: node.place.clone(), key: part, why });
}

/// Returns the total `row_weight` of a tree's keys, to detect the project.
pub(super) fn score(rows: RowTables, node: &ConfigNode) -> usize {
    fn below(rows: RowTables, path: &mut Vec<String>, node: &ConfigNode) -> usize {
        let inside: Vec<(String, &ConfigNode)> = match &node.tree {
            ConfigTree::Object(fields) => {
                fields.iter().map(|(key, node)| (key.clone(), node)).collect()
            }
            ConfigTree::List(nodes) => (1..).map(|at: usize| at.to_string()).zip(nodes).collect(),
            _ => Vec::new(),
        };
        if inside.is_empty() {
            return row_weight(rows, path);
        }
        let mut sum = 0;
        for (key, node) in inside {
            path.push(key);
            sum += below(rows, path, node);
            path.pop();
        }
        sum
    }
    below(rows, &mut Vec::new(), node)
}

/// Returns how specific the row for a key is: the number of its words that are not wildcards.
pub(super) fn row_weight(rows: RowTables, path: &[String]) -> usize {
    find_row(rows, path)
        .map_or(0, |(row, _)| row.key.split('.').filter(|word| !["*", "**"].contains(word)).count())
}

/// Returns the row of a path, with the names in the places of its wildcards.
fn find_row(rows: RowTables, path: &[String]) -> Option<(&'static ImportRow, Vec<String>)> {
    all_rows(rows).find_map(|row| match_pattern(row.key, path).map(|names| (row, names)))
}

fn match_pattern(pattern: &str, path: &[String]) -> Option<Vec<String>> {
    let (mut words, mut names) = (pattern.split('.'), Vec::new());
    let mut path = path.iter();
    loop {
        match (words.next(), path.next()) {
            (None, None) => return Some(names),
            (Some("**"), _) => return Some(names),
            (Some("*"), Some(name)) => names.push(name.clone()),
            (Some(word), Some(name)) if word == name => {}
            _ => return None,
        }
    }
}

/// Whether a row's key lies below the path.
fn has_rows_below(pattern: &str, path: &[String]) -> bool {
    let words: Vec<&str> = pattern.split('.').collect();
    let fits = |(word, name): (&&str, &String)| *word == "*" || *word == name;
    words.len() > path.len() && words.iter().zip(path).all(fits)
}

fn unknown_key(rows: RowTables, path: &[String]) -> String {
    let key = path.join(".");
    // Wildcards are filled with the key's names, so that the nearest row can be compared with it.
    let like = all_rows(rows).map(|row| {
        let words = row.key.split('.').enumerate();
        let words = words.map(|(at, word)| match word {
            "*" => path.get(at).map_or("NAME", String::as_str),
            word => word,
        });
        words.collect::<Vec<_>>().join(".")
    });
    let like: Vec<String> = like.collect();
    match nearest_word(&key, like.iter().map(String::as_str)) {
        Some(meant) => format!("{key} is not known here, did you mean {meant}?"),
        None => unknown_row(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_take_names_and_the_rest() {
        let path = |text: &str| text.split('.').map(String::from).collect::<Vec<_>>();
        assert_eq!(match_pattern("a.*.c", &path("a.x.c")), Some(vec!["x".to_string()]));
        assert_eq!(match_pattern("a.*.c", &path("a.x")), None);
        assert_eq!(match_pattern("a.**", &path("a")), Some(vec![]));
        assert_eq!(match_pattern("a.**", &path("a.b.c")), Some(vec![]));
        assert_eq!(match_pattern("a", &path("a.b")), None);
        assert!(has_rows_below("a.*.c", &path("a.x")) && !has_rows_below("a.*.c", &path("a.x.c")));
    }
}
