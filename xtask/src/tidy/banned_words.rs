//! Words not allowed in the code of a crate, each with a replacement.

use super::TidyFinding;
use super::size::is_product;
use crate::source::{SourceFile, line_of, match_positions, word_positions as whole};
use crate::tree::SourceTree;

/// Files with permission for `unsafe`, each with the reason in its header.
const UNSAFE_FILES: &[&str] = &[
    "crates/engine/src/batched_send.rs",
    "crates/engine/src/code_pages.rs",
    "crates/engine/src/heap.rs",
    "crates/engine/src/send_queue.rs",
];

/// Files of the simulator which may use sockets: they replay transcripts against real processes.
const WIRE_FILES: &[&str] = &["crates/sim/src/replay.rs"];

/// Files to which a row of [`WORDS`] applies.
enum RuleScope {
    /// The code of these crates, without test code.
    Code(&'static [&'static str]),
    /// The code of these crates, except these files and test code.
    CodeBut(&'static [&'static str], &'static [&'static str]),
    /// All product code, without test code.
    Product,
    /// Unit tests and transcripts, which run in virtual time.
    FastTests,
    Everywhere,
}

struct BannedWord {
    text: &'static str,
    scope: RuleScope,
    instead: &'static str,
}

const PURE: RuleScope = RuleScope::Code(&["mqtt", "broker", "rules"]);
const SIMULATED: RuleScope = RuleScope::Code(&["mqtt", "broker", "rules", "sim"]);
const WIRELESS: RuleScope = RuleScope::CodeBut(&["mqtt", "broker", "rules", "sim"], WIRE_FILES);

const WORDS: &[BannedWord] = &[
    BannedWord { text: "Instant::now", scope: SIMULATED, instead: "take `now` as an argument" },
    BannedWord { text: "std::time::Instant", scope: PURE, instead: "take `now` as an argument" },
    BannedWord { text: "SystemTime", scope: SIMULATED, instead: "take the time as an argument" },
    BannedWord { text: "TcpStream", scope: WIRELESS, instead: "leave sockets to engine" },
    BannedWord { text: "TcpListener", scope: WIRELESS, instead: "leave sockets to engine" },
    BannedWord { text: "UdpSocket", scope: WIRELESS, instead: "leave sockets to engine" },
    BannedWord { text: "std::thread", scope: PURE, instead: "leave threads to engine" },
    BannedWord { text: "Mutex", scope: PURE, instead: "give it one owner: the Shard" },
    BannedWord { text: "RwLock", scope: PURE, instead: "give it one owner: the Shard" },
    BannedWord { text: "RefCell", scope: PURE, instead: "give it one owner: the Shard" },
    BannedWord {
        text: "serde",
        scope: PURE,
        instead: "mirror the type in godwit and derive there",
    },
    BannedWord { text: "std::fs", scope: PURE, instead: "leave files to store and godwit" },
    BannedWord {
        text: "std::io",
        scope: PURE,
        instead: "return bytes or a Violation; engine does I/O",
    },
    BannedWord { text: "std::env", scope: PURE, instead: "take an option as an argument" },
    BannedWord { text: "println!", scope: PURE, instead: "push a BrokerEvent into the Outbox" },
    BannedWord {
        text: "tokio",
        scope: RuleScope::Code(&["mqtt", "broker", "rules", "store", "engine", "sim"]),
        instead: "use mio in engine; tokio belongs to the control plane in godwit",
    },
    BannedWord {
        text: "thread::sleep",
        scope: RuleScope::FastTests,
        instead: "move virtual time: a line `+ 5s` of a transcript",
    },
    BannedWord {
        text: "#[ignore",
        scope: RuleScope::Everywhere,
        instead: "mend the test or delete it",
    },
    BannedWord {
        text: "todo!",
        scope: RuleScope::Everywhere,
        instead: "write it or open an issue",
    },
    BannedWord {
        text: "unimplemented!",
        scope: RuleScope::Everywhere,
        instead: "write it or refuse it",
    },
    BannedWord { text: "dbg!", scope: RuleScope::Everywhere, instead: "delete it" },
    BannedWord {
        text: ".unwrap()",
        scope: RuleScope::Product,
        instead: "return the error, or expect(\"why it holds\")",
    },
];

pub(super) fn find_words(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let imports = grouped_imports(&source.code);
        for word in WORDS.iter().filter(|word| applies(&word.scope, source)) {
            let direct = whole(&source.code, word.text).into_iter();
            let lines = direct.map(|at| line_of(&source.code, at));
            let hidden = imports.iter().filter(|(path, _)| starts_with_path(path, word.text));
            let mut lines: Vec<_> = lines.chain(hidden.map(|(_, line)| *line)).collect();
            lines.retain(|line| in_scope(&word.scope, source.test[*line]));
            lines.dedup();
            let what = format!("{} here; {}", word.text, word.instead);
            found.extend(lines.iter().map(|line| TidyFinding::new(&source.path, line + 1, &*what)));
        }
    }
    found
}

pub(super) fn leftovers(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        for word in ["FIXME", "XXX"] {
            for at in whole(&source.comments, word) {
                let what = format!("{word} left behind; mend it or open an issue");
                found.push(TidyFinding::new(&source.path, line_of(&source.comments, at) + 1, what));
            }
        }
    }
    found
}

pub(super) fn unsafe_code(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|s| !UNSAFE_FILES.contains(&s.path.as_str())) {
        for at in whole(&source.code, "unsafe") {
            let what = "unsafe outside the listed files; find a safe way, or list the file in \
                        tidy/banned_words.rs with the reason in its header";
            found.push(TidyFinding::new(&source.path, line_of(&source.code, at) + 1, what));
        }
    }
    found
}

fn applies(scope: &RuleScope, source: &SourceFile) -> bool {
    let path = &source.path;
    let in_crate = |name: &&str| path.starts_with(&format!("crates/{name}/src/"));
    match scope {
        RuleScope::Code(crates) => crates.iter().any(in_crate),
        RuleScope::CodeBut(crates, files) => {
            crates.iter().any(in_crate) && !files.contains(&path.as_str())
        }
        RuleScope::Product => is_product(source),
        RuleScope::FastTests => is_product(source) || path.starts_with("crates/sim/"),
        RuleScope::Everywhere => true,
    }
}

fn in_scope(scope: &RuleScope, test: bool) -> bool {
    match scope {
        RuleScope::Code(_) | RuleScope::CodeBut(..) | RuleScope::Product => !test,
        RuleScope::FastTests => test,
        RuleScope::Everywhere => true,
    }
}

fn starts_with_path(path: &str, word: &str) -> bool {
    let rest = path.strip_prefix(word);
    word.contains("::") && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Expands `use std::{fs, time::{Duration, Instant}}` into its full paths, each with a line.
fn grouped_imports(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for at in match_positions(code, "use ") {
        let end = code[at..].find(';').map_or(code.len(), |n| at + n);
        if !code[at..end].contains('{') {
            continue;
        }
        let (mut stems, mut word) = (vec![String::new()], String::new());
        for (offset, c) in code[at + 4..end].char_indices() {
            let line = || line_of(code, at + 4 + offset);
            let stem = stems.last().cloned().unwrap_or_default();
            match c {
                '{' => stems.push(stem + &std::mem::take(&mut word)),
                ',' if word.is_empty() => {}
                ',' => found.push((stem + &std::mem::take(&mut word), line())),
                '}' => {
                    if !word.is_empty() {
                        found.push((stem + &std::mem::take(&mut word), line()));
                    }
                    stems.pop();
                }
                c if c.is_whitespace() => {}
                c => word.push(c),
            }
        }
    }
    found
}
