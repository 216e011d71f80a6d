//! `cargo x gen`: documents generated from the code, so that both always agree.

mod clauses;
mod conformance;

use std::fs;
use std::path::PathBuf;

use crate::shell::{cargo, new_command, output};
use crate::tree::{SourceTree, root};

/// A document: its path and the function for its text.
struct GeneratedDocument {
    path: &'static str,
    text: fn(&DocumentSources) -> Result<String, String>,
}

/// Sources of all [`DOCUMENTS`].
struct DocumentSources {
    tree: SourceTree,
    /// The broker to run for its documents; `None` runs the broker by cargo.
    godwit: Option<PathBuf>,
}

const DOCUMENTS: &[GeneratedDocument] = &[
    GeneratedDocument { path: "docs/conformance.md", text: |from| conformance::write(&from.tree) },
    GeneratedDocument {
        path: "docs/options.md",
        text: |from| run_godwit(from, &["options", "--markdown"]),
    },
    GeneratedDocument {
        path: "docs/import.md",
        text: |from| run_godwit(from, &["import", "--markdown"]),
    },
    GeneratedDocument {
        path: "docs/rules.md",
        text: |from| run_godwit(from, &["rules", "--markdown"]),
    },
    GeneratedDocument { path: "docs/reference.md", text: |from| run_godwit(from, &["reference"]) },
    GeneratedDocument {
        path: "docs/godwit.toml",
        text: |from| run_godwit(from, &["options", "--sample"]),
    },
];

/// Writes all documents; with `--check` stale documents are an error and stay as they are.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let check = args.iter().any(|arg| arg == "--check");
    let named = args.iter().position(|arg| arg == "--godwit");
    let godwit = named.and_then(|at| args.get(at + 1)).map(PathBuf::from);
    let tree =
        SourceTree::read(&root()).map_err(|e| format!("gen: the tree cannot be read: {e}"))?;
    let from = DocumentSources { tree, godwit };
    let mut bad = Vec::new();
    for document in DOCUMENTS {
        let there = from.tree.text(document.path);
        match (document.text)(&from) {
            Err(why) => bad.push(format!("{}: {why}", document.path)),
            Ok(text) if there == Some(&text) => println!("{}: fresh", document.path),
            Ok(_) if check => {
                bad.push(format!("{}: stale; mend it with `cargo x gen`", document.path));
            }
            Ok(text) => {
                let path = root().join(document.path);
                fs::write(&path, text).map_err(|e| format!("{}: {e}", document.path))?;
                println!("{}: written", document.path);
            }
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n")) }
}

/// Runs the broker and returns its output.
fn run_godwit(from: &DocumentSources, args: &[&str]) -> Result<String, String> {
    match &from.godwit {
        Some(path) => output(new_command(&path.to_string_lossy()).args(args)),
        None => output(cargo().args(["run", "--quiet", "--package", "godwit", "--"]).args(args)),
    }
}
