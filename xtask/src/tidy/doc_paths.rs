//! Check of the names of code in documents: a path such as `broker::routing::publish`, a type or a
//! function has to exist. A name without capitals, underscore, `::` or parentheses may be an
//! ordinary word, so it is not checked.

use super::TidyFinding;
use crate::source::{SourceFile, word_positions};
use crate::tree::{SourceTree, TreeFile};
use std::collections::BTreeSet;

/// Names of other programs, libraries and kernels, which the documents compare or explain.
const FOREIGN: &[&str] = &[
    "CLOCK_BOOTTIME",
    "CSVSaveService.processSamples",
    "Client::statistics",
    "MySqlConnection::establish",
    "RUSTC_WORKSPACE_WRAPPER",
    "SamplingStatCalculator",
    "TCP_USER_TIMEOUT",
    "TLS_RSA_WITH_...",
    "ZMQ_MAXMSGSIZE",
    "duplicate_window",
    "finish_task_switch",
    "from_clientid",
    "from_username",
    "handshake_first",
    "io_uring_enter",
    "max_reconnects(0)",
    "poll_read_op",
    "sync_interval",
    "tcp_retries2",
    "use_pem",
];

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let crates = crate_names(tree);
    let words = code_words(tree);
    let documents = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let mut found = Vec::new();
    for file in documents {
        let names_code = is_about_code(&file.path);
        for (line, name) in quoted_names(file) {
            let name = match name.strip_suffix("()") {
                Some(path) if path.contains("::") => path,
                _ => name,
            };
            let first = name.split("::").next().unwrap_or_default();
            let is_path = name.contains("::") && is_path(name);
            let stale = match is_path && crates.contains(&first) {
                true => (!exists(tree, name)).then_some(name),
                false if !names_code || is_excepted(name) => None,
                false if is_path && is_foreign(tree, &words, first) => None,
                false if is_path => (!partial_path_exists(tree, name)).then_some(name),
                false => code_like_words(name).find(|word| !words.contains(word)),
            };
            if let Some(stale) = stale {
                let what = format!("{stale} is not there; name a module or an item that is");
                found.push(TidyFinding::new(&file.path, line, what));
            }
        }
    }
    found
}

fn is_excepted(name: &str) -> bool {
    FOREIGN.contains(&name)
}

/// Whether a path begins with `std`, with a dependency in the root's Cargo.toml, or with a type
/// that the code uses but does not define.
fn is_foreign(tree: &SourceTree, words: &BTreeSet<&str>, name: &str) -> bool {
    if name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return words.contains(name) && !tree.sources.iter().any(|one| definition(one, name));
    }
    let manifest = tree.files.iter().find(|file| file.path == "Cargo.toml");
    let rows = manifest.and_then(|file| file.text.as_deref()).unwrap_or_default().lines();
    let mut keys = rows.filter_map(|line| line.split([' ', '.', '=']).next());
    name == "std" || keys.any(|key| key.replace('-', "_") == name)
}

/// Whether every name of code in the document is checked, in addition to paths from a crate on.
fn is_about_code(path: &str) -> bool {
    let in_folder =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| !rest.contains('/'));
    matches!(path, "ARCHITECTURE.md" | "CONTRIBUTING.md")
        || in_folder("docs/")
        || in_folder("docs/decisions/")
}

/// Returns the texts between backticks with their lines, except in blocks of code.
fn quoted_names(file: &TreeFile) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_block = false;
    for (at, line) in file.text.iter().flat_map(|text| text.lines()).enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            // Text between backticks is every second piece.
            found.extend(line.split('`').skip(1).step_by(2).map(|name| (at + 1, name)));
        }
    }
    found
}

/// Returns the words of a name that look like code: with an underscore, parentheses, or a capital
/// behind a small letter.
fn code_like_words(name: &str) -> impl Iterator<Item = &str> {
    let is_name = !name.starts_with("GODWIT_")
        && name.chars().all(|c| is_word_char(c) || matches!(c, '.' | ':' | '(' | ')'));
    let is_call = name.ends_with(')');
    let words = name.split(|c| !is_word_char(c)).filter(move |_| is_name);
    words.filter(move |word| {
        let is_camel = word
            .as_bytes()
            .windows(2)
            .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
        is_camel || word.trim_matches('_').contains('_') || is_call && !word.is_empty()
    })
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the words of all files but documents, without the comments of Rust, and the names of
/// modules. Texts count: options, topics and metrics are in texts.
fn code_words(tree: &SourceTree) -> BTreeSet<&str> {
    let mut words = BTreeSet::new();
    for source in &tree.sources {
        for (text, comments) in source.text.lines().zip(source.comments.lines()) {
            let end = comments.find("//").unwrap_or(text.len());
            let code = text.get(..end).unwrap_or(text);
            words.extend(code.split(|c| !is_word_char(c)));
        }
    }
    let is_other = |file: &&TreeFile| !file.path.ends_with(".md") && !file.path.ends_with(".rs");
    for file in tree.files.iter().filter(is_other) {
        words.extend(file.text.iter().flat_map(|text| text.split(|c| !is_word_char(c))));
    }
    let paths = tree.files.iter().filter_map(|file| file.path.strip_suffix(".rs"));
    words.extend(paths.flat_map(|path| path.split('/')));
    words
}

fn crate_names(tree: &SourceTree) -> Vec<&str> {
    let name = |path: &str| path.strip_prefix("crates/")?.split('/').next().map(str::len);
    let of_path = |path| name(path).map(|len| &path["crates/".len().."crates/".len() + len]);
    let mut names: Vec<&str> = tree.sources.iter().filter_map(|one| of_path(&one.path)).collect();
    names.dedup();
    names
}

fn is_path(text: &str) -> bool {
    text.chars().all(|c| is_word_char(c) || c == ':')
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

/// Whether a path that does not begin with a crate names a module with an item of it, or a type
/// with a member.
fn partial_path_exists(tree: &SourceTree, path: &str) -> bool {
    let words: Vec<&str> = path.split("::").collect();
    let is_type = |word: &str| word.starts_with(|c: char| c.is_ascii_uppercase());
    let Some(at) = words.iter().position(|word| is_type(word)) else {
        let module = |words: &[&str]| format!("/{}", words.join("/"));
        let (item, outer) = words.split_last().unwrap_or((&"", &[]));
        return tree.sources.iter().any(|source| {
            let own = module_path(&source.path);
            own.ends_with(&module(&words))
                || own.ends_with(&module(outer)) && definition(source, item)
        });
    };
    let is_module = |word: &&str| tree.sources.iter().any(|one| one.path.contains(*word));
    let member = words.get(at + 1);
    words[..at].iter().all(is_module)
        && tree.sources.iter().any(|source| {
            has_type(source, words[at])
                && member.is_none_or(|member| !word_positions(&source.code, member).is_empty())
        })
}

/// Returns the path of a module without `mod.rs` or the extension.
fn module_path(path: &str) -> &str {
    path.strip_suffix("/mod.rs").or(path.strip_suffix(".rs")).unwrap_or(path)
}

/// Whether the file defines the type or implements something for it.
fn has_type(source: &SourceFile, name: &str) -> bool {
    let is_impl = |line: &str| {
        line.trim_start().starts_with("impl") && !word_positions(line, name).is_empty()
    };
    source.code.contains(name)
        && source.code.lines().any(|line| is_impl(line) || defines(line, name))
}

fn definition(source: &SourceFile, item: &str) -> bool {
    source.code.contains(item) && source.code.lines().any(|line| defines(line, item))
}

/// Whether the line begins the definition of an item.
fn defines(line: &str, item: &str) -> bool {
    const KINDS: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type"];
    let mut words = line.split(|c: char| !is_word_char(c));
    let mut is_kind = false;
    words.any(|word| {
        let found = is_kind && word == item;
        is_kind = KINDS.contains(&word);
        found
    })
}
