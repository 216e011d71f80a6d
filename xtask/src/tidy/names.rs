//! Check that names of functions, types and files consist of words of the domain.

use super::TidyFinding;
use crate::source::{SourceFile, identifier, line_of, word_positions};
use crate::tree::SourceTree;

/// A part of a name without meaning, and a suggestion for the name.
struct BannedName {
    part: &'static str,
    instead: &'static str,
}

/// Prefixes not allowed in a function's name; `handle` alone is the one entry of the Shard.
const PREFIXES: &[BannedName] = &[
    BannedName {
        part: "process_",
        instead: "say the verb of the domain: publish, deliver, expire",
    },
    BannedName {
        part: "handle_",
        instead: "say the verb of the domain; `handle` is the one entry",
    },
    BannedName { part: "do_", instead: "drop the prefix" },
    BannedName { part: "get_", instead: "drop the prefix: `topic()`, not `get_topic()`" },
    BannedName { part: "_", instead: "drop the underscore, or delete what is not used" },
];

/// Words not allowed in the name of a type, file or function.
const WORDS: &[BannedName] = &[
    BannedName { part: "manager", instead: "name what it owns" },
    BannedName { part: "helper", instead: "name what it does" },
    BannedName { part: "helpers", instead: "name what they do" },
    BannedName { part: "util", instead: "name what it does" },
    BannedName { part: "utils", instead: "name what they do" },
    BannedName { part: "common", instead: "name the noun that is shared" },
    BannedName { part: "base", instead: "name the noun that is shared" },
    BannedName { part: "wrapper", instead: "name what it adds" },
    BannedName { part: "impl", instead: "name how it differs: Memory, Fjall" },
    BannedName { part: "inner", instead: "one owner needs no inner part; name what it is" },
];

/// Names given by the standard library and sqlparser.
const FOREIGN_NAMES: &[&str] = &["get_mut", "get_next_precedence", "get_ref"];

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let (_, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let stem = file.trim_end_matches(".rs");
        found.extend(word_in(stem).map(|why| finding_for(&source.path, 1, "file", stem, why)));
        for (name, line) in names_after(source, &["fn"]) {
            let prefix = PREFIXES.iter().find(|banned| name.starts_with(banned.part));
            let banned = prefix.or_else(|| word_in(&name));
            let banned = banned.filter(|_| !source.test[line - 1] || prefix.is_some());
            found.extend(banned.map(|why| finding_for(&source.path, line, "fn", &name, why)));
        }
        for (name, line) in names_after(source, &["struct", "enum", "trait", "type", "union"]) {
            let banned = word_in(&snake(&name));
            found.extend(banned.map(|why| finding_for(&source.path, line, "type", &name, why)));
        }
    }
    found
}

fn finding_for(path: &str, line: usize, kind: &str, name: &str, why: &BannedName) -> TidyFinding {
    let part = why.part;
    TidyFinding::new(path, line, format!("{kind} {name}: `{part}` says nothing; {}", why.instead))
}

fn names_after(source: &SourceFile, keywords: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for keyword in keywords {
        for at in word_positions(&source.code, keyword) {
            let rest = source.code[at + keyword.len()..].trim_start();
            let name = identifier(rest);
            if !name.is_empty() && !FOREIGN_NAMES.contains(&name.as_str()) {
                found.push((name, line_of(&source.code, at) + 1));
            }
        }
    }
    found
}

fn word_in(snake: &str) -> Option<&'static BannedName> {
    WORDS.iter().find(|banned| snake.split('_').any(|part| part == banned.part))
}

/// Returns `TopicInfo` as `topic_info`.
fn snake(camel: &str) -> String {
    let mut name = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}
