//! Module paths in documents: a path such as `broker::routing::publish` has to exist.

use super::TidyFinding;
use crate::tree::SourceTree;

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let crates = crate_names(tree);
    let documents = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let mut found = Vec::new();
    for file in documents {
        for (at, line) in file.text.iter().flat_map(|text| text.lines()).enumerate() {
            // Text between backticks is every second piece.
            for path in line.split('`').skip(1).step_by(2) {
                let Some((name, _)) = path.split_once("::") else { continue };
                if crates.contains(&name) && is_path(path) && !exists(tree, path) {
                    let what = format!("{path} is not there; name a module or an item that is");
                    found.push(TidyFinding::new(&file.path, at + 1, what));
                }
            }
        }
    }
    found
}

fn crate_names(tree: &SourceTree) -> Vec<&str> {
    let name = |path: &str| path.strip_prefix("crates/")?.split('/').next().map(str::len);
    let of_path = |path| name(path).map(|len| &path["crates/".len().."crates/".len() + len]);
    let mut names: Vec<&str> = tree.sources.iter().filter_map(|one| of_path(&one.path)).collect();
    names.dedup();
    names
}

fn is_path(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// Whether the words of a path name modules, down to an item of the crate.
fn exists(tree: &SourceTree, path: &str) -> bool {
    let mut words = path.split("::").peekable();
    let name = words.next().unwrap_or_default();
    let mut folder = format!("crates/{name}/src");
    while let Some(word) = words.peek() {
        let inner = format!("{folder}/{word}");
        let files = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
        if !tree.files.iter().any(|file| files.contains(&file.path)) {
            break;
        }
        folder = inner;
        words.next();
    }
    let Some(item) = words.next() else { return true };
    // Types are often named by a path that re-exports them; functions are not.
    let is_type = item.starts_with(|c: char| c.is_ascii_uppercase());
    let own = ["lib.rs", "mod.rs"].map(|file| format!("{folder}/{file}"));
    let below = format!("crates/{name}/src/");
    let mut sources = tree.sources.iter().filter(|one| match is_type {
        true => one.path.starts_with(&below),
        false => own.contains(&one.path) || one.path.strip_suffix(".rs") == Some(&folder),
    });
    sources.any(|source| source.text.lines().any(|line| defines(line, item)))
}

/// Whether the line begins the definition of an item.
fn defines(line: &str, item: &str) -> bool {
    const KINDS: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type"];
    let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut is_kind = false;
    words.any(|word| {
        let found = is_kind && word == item;
        is_kind = KINDS.contains(&word);
        found
    })
}
