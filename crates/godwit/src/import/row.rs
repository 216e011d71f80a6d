//! A row of a table: a key of another broker's, and what becomes of it. The import, its errors and
//! `docs/import.md` come from the rows.
//!
//! Keys are as the project's documents spell them; `*` stands for a name of the user's, and `**` at
//! the end for everything below.

use super::draft::{Draft, Missing};
use super::hocon::MISSING_INCLUDE;
use super::tree::{Entry, Node, Tree};
use crate::options::nearest::nearest;

pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) to: To,
}

impl Row {
    /// Whether it is about all that no other row of a listener, or of a zone, knows.
    pub(super) fn is_for_others(&self) -> bool {
        ["listeners.*.*.**", "listener.*.*.**", "zone.**", "zones.**"].contains(&self.key)
    }
}

/// The sentence about a key that no row knows.
pub(super) fn unknown_row(key: &str) -> String {
    format!("{key} is not known here, leave it out; docs/import.md has all keys")
}

/// How a value is read.
pub(super) type As = fn(&Entry<'_>) -> Result<Said, String>;

pub(super) enum To {
    /// An option of ours, for all.
    All(&'static str, As),
    /// One that the listener has for itself.
    Listener(&'static str, As),
    /// One of the bridge.
    Bridge(&'static str, As),
    /// What the sentence says; it stands in the document.
    Made(&'static str, fn(&mut Draft, &Entry<'_>) -> Result<(), String>),
    /// It has no equal: why, and what to do instead.
    Nothing(&'static str),
}

/// An option of ours, for all.
pub(super) const fn all(key: &'static str, ours: &'static str, by: As) -> Row {
    Row { key, to: To::All(ours, by) }
}

/// One that a listener has of its own.
pub(super) const fn own(key: &'static str, ours: &'static str, by: As) -> Row {
    Row { key, to: To::Listener(ours, by) }
}

/// One of a bridge, which is about what is far away.
pub(super) const fn far(key: &'static str, ours: &'static str, by: As) -> Row {
    Row { key, to: To::Bridge(ours, by) }
}

pub(super) const fn made(
    key: &'static str,
    what: &'static str,
    make: fn(&mut Draft, &Entry<'_>) -> Result<(), String>,
) -> Row {
    Row { key, to: To::Made(what, make) }
}

pub(super) const fn no(key: &'static str, why: &'static str) -> Row {
    Row { key, to: To::Nothing(why) }
}

/// What they say, in the words of our options.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Text(String),
    List(Vec<String>),
    Map(Vec<(String, String)>),
    /// No bound: the option's word for that, or the most that it takes.
    Endless,
    /// This value has no equal, though the key has one.
    Nothing(&'static str),
}

/// Finds the row of everything in a tree, and has it done.
pub(super) fn walk(rows: &'static [Row], node: &Node, draft: &mut Draft) {
    if let Tree::Object(fields) = &node.tree {
        for (key, node) in fields {
            meet(rows, &mut vec![key.clone()], node, draft);
        }
    }
}

/// One key with all that is below it.
pub(super) fn meet(rows: &'static [Row], path: &mut Vec<String>, node: &Node, draft: &mut Draft) {
    let is_inside = matches!(node.tree, Tree::Object(_) | Tree::List(_));
    if path.last().is_some_and(|last| last == MISSING_INCLUDE) {
        return missing_include(path, node, draft);
    }
    let below = is_inside && rows.iter().any(|row| begins(row.key, path));
    if let Some((row, names)) = find(rows, path) {
        // What goes for everything below does so where no row is more particular.
        let particular = |row: &Row| !row.key.ends_with(".**") && begins(row.key, path);
        if !(below && row.key.ends_with(".**") && rows.iter().any(particular)) {
            let entry = Entry { key: path.join("."), names, node };
            return draft.take(row, &entry);
        }
    }
    match &node.tree {
        Tree::Object(fields) if below => {
            for (key, node) in fields {
                path.push(key.clone());
                meet(rows, path, node, draft);
                path.pop();
            }
        }
        Tree::List(nodes) if below => {
            for (at, node) in (1..).zip(nodes) {
                path.push(format!("{at}"));
                meet(rows, path, node, draft);
                path.pop();
            }
        }
        _ => draft.unknown(&node.place, &path.join("."), unknown(rows, path)),
    }
}

/// A file that is named in place of a part, and is not there: of what decides about access nothing
/// is known then.
fn missing_include(path: &[String], node: &Node, draft: &mut Draft) {
    let part = path[..path.len() - 1].join(".");
    let why = node.text().unwrap_or_default().to_string();
    let known = ["auth.acl", "auth.password"].into_iter().find(|known| *known == part);
    if let Some(known) = known {
        draft.lost.push(known);
        let why = format!("{why}: nobody is let in, or allowed anything, by what stands in it");
        let place = node.place.clone();
        return draft.missing.push(Missing { place, key: part, why });
    }
    if part.is_empty() || super::access::may_decide_about_access(&part) {
        return draft.wrongs.push(format!("{}: {why}", node.place));
    }
    draft.missing.push(Missing { place: node.place.clone(), key: part, why });
}

/// How much of a tree the rows know.
pub(super) fn score(rows: &'static [Row], node: &Node) -> usize {
    fn below(rows: &'static [Row], path: &mut Vec<String>, node: &Node) -> usize {
        let inside: Vec<(String, &Node)> = match &node.tree {
            Tree::Object(fields) => fields.iter().map(|(key, node)| (key.clone(), node)).collect(),
            Tree::List(nodes) => (1..).map(|at: usize| at.to_string()).zip(nodes).collect(),
            _ => Vec::new(),
        };
        if inside.is_empty() {
            return weight(rows, path);
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

/// How much a row says about a key: the words that it names itself.
pub(super) fn weight(rows: &'static [Row], path: &[String]) -> usize {
    find(rows, path)
        .map_or(0, |(row, _)| row.key.split('.').filter(|word| !["*", "**"].contains(word)).count())
}

/// The row of a path, with what stands at its stars.
fn find(rows: &'static [Row], path: &[String]) -> Option<(&'static Row, Vec<String>)> {
    rows.iter().find_map(|row| names(row.key, path).map(|names| (row, names)))
}

fn names(pattern: &str, path: &[String]) -> Option<Vec<String>> {
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

/// Whether rows below the path may exist.
fn begins(pattern: &str, path: &[String]) -> bool {
    let words: Vec<&str> = pattern.split('.').collect();
    let fits = |(word, name): (&&str, &String)| *word == "*" || *word == name;
    words.len() > path.len() && words.iter().zip(path).all(fits)
}

fn unknown(rows: &'static [Row], path: &[String]) -> String {
    let key = path.join(".");
    // Rows with the user's own names in the place of stars.
    let like = rows.iter().map(|row| {
        let words = row.key.split('.').enumerate();
        let words = words.map(|(at, word)| match word {
            "*" => path.get(at).map_or("NAME", String::as_str),
            word => word,
        });
        words.collect::<Vec<_>>().join(".")
    });
    let like: Vec<String> = like.collect();
    match nearest(&key, like.iter().map(String::as_str)) {
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
        assert_eq!(names("a.*.c", &path("a.x.c")), Some(vec!["x".to_string()]));
        assert_eq!(names("a.*.c", &path("a.x")), None);
        assert_eq!(names("a.**", &path("a")), Some(vec![]));
        assert_eq!(names("a.**", &path("a.b.c")), Some(vec![]));
        assert_eq!(names("a", &path("a.b")), None);
        assert!(begins("a.*.c", &path("a.x")) && !begins("a.*.c", &path("a.x.c")));
    }
}
