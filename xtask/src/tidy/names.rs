//! Names: words of the domain, none of plumbing. Functions, types and files are looked at.

use super::Finding;
use crate::source::{Source, identifier, line_of, words};
use crate::tree::Tree;

/// A part of a name that says nothing, and what to write instead.
struct Banned {
    part: &'static str,
    instead: &'static str,
}

/// How a function's name must not begin; `handle` alone is the one entry of the Shard.
const PREFIXES: &[Banned] = &[
    Banned { part: "process_", instead: "say the verb of the domain: publish, deliver, expire" },
    Banned { part: "handle_", instead: "say the verb of the domain; `handle` is the one entry" },
    Banned { part: "do_", instead: "drop the prefix" },
    Banned { part: "get_", instead: "drop the prefix: `topic()`, not `get_topic()`" },
    Banned { part: "_", instead: "drop the underscore, or delete what is not used" },
];

/// Words that no type, file or function has in its name.
const WORDS: &[Banned] = &[
    Banned { part: "manager", instead: "name what it owns" },
    Banned { part: "helper", instead: "name what it does" },
    Banned { part: "helpers", instead: "name what they do" },
    Banned { part: "util", instead: "name what it does" },
    Banned { part: "utils", instead: "name what they do" },
    Banned { part: "common", instead: "name the noun that is shared" },
    Banned { part: "base", instead: "name the noun that is shared" },
    Banned { part: "info", instead: "name what is known: options, counts, identity" },
    Banned { part: "data", instead: "name what the bytes are: payload, body, record" },
    Banned { part: "context", instead: "name what is handed over, or hand over its parts" },
    Banned { part: "wrapper", instead: "name what it adds" },
    Banned { part: "impl", instead: "name how it differs: Memory, Fjall" },
    Banned { part: "inner", instead: "one owner needs no inner part; name what it is" },
];

/// Names that others gave: the specification, the standard library, sqlparser, the option `--data`.
const GIVEN: &[&str] =
    &["CorrelationData", "correlation_data", "data", "get_mut", "get_next_precedence", "get_ref"];

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let (_, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let stem = file.trim_end_matches(".rs");
        found.extend(word_in(stem).map(|why| says(&source.path, 1, "file", stem, why)));
        for (name, line) in names_after(source, &["fn"]) {
            let prefix = PREFIXES.iter().find(|banned| name.starts_with(banned.part));
            let banned = prefix.or_else(|| word_in(&name));
            let banned = banned.filter(|_| !source.test[line - 1] || prefix.is_some());
            found.extend(banned.map(|why| says(&source.path, line, "fn", &name, why)));
        }
        for (name, line) in names_after(source, &["struct", "enum", "trait", "type", "union"]) {
            let banned = word_in(&snake(&name));
            found.extend(banned.map(|why| says(&source.path, line, "type", &name, why)));
        }
    }
    found
}

fn says(path: &str, line: usize, kind: &str, name: &str, why: &Banned) -> Finding {
    let part = why.part;
    Finding::new(path, line, format!("{kind} {name}: `{part}` says nothing; {}", why.instead))
}

fn names_after(source: &Source, keywords: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for keyword in keywords {
        for at in words(&source.code, keyword) {
            let rest = source.code[at + keyword.len()..].trim_start();
            let name = identifier(rest);
            if !name.is_empty() && !GIVEN.contains(&name.as_str()) {
                found.push((name, line_of(&source.code, at) + 1));
            }
        }
    }
    found
}

fn word_in(snake: &str) -> Option<&'static Banned> {
    WORDS.iter().find(|banned| snake.split('_').any(|part| part == banned.part))
}

/// `TopicInfo` as `topic_info`.
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
