//! `cargo x tidy`: the house rules that a machine can check, as one table of checks. Each finding
//! has a place, the error and the correct form. Each check has its snapshot in `tests.rs`.

mod banned_words;
mod dependency_edges;
mod doc_fragments;
mod doc_openings;
mod doc_paths;
mod files;
mod folder_edges;
mod names;
mod size;
#[cfg(test)]
mod tests;
mod tuple_parameters;
mod type_names;

use std::fmt;

use crate::tree::{SourceTree, root};

/// A rule: its name in `cargo x tidy --list`, and the function returning a [`TidyFinding`] for each
/// violation.
pub(crate) struct TidyCheck {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) find: fn(&SourceTree) -> Vec<TidyFinding>,
}

/// A violation of a rule; lines count from 1.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TidyFinding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl TidyFinding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> TidyFinding {
        TidyFinding { path: path.to_string(), line, what: what.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Runs every check and prints the findings; any finding is an error.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if args.iter().any(|arg| arg == "--list") {
        for check in CHECKS {
            println!("{:<14} {}", check.name, check.rule);
        }
        return Ok(());
    }
    let tree =
        SourceTree::read(&root()).map_err(|e| format!("tidy: the tree cannot be read: {e}"))?;
    let mut findings: Vec<TidyFinding> =
        CHECKS.iter().flat_map(|check| (check.find)(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, {} checks, nothing to mend", tree.files.len(), CHECKS.len());
        return Ok(());
    }
    Err(format!("tidy: {} places to mend", findings.len()))
}

pub(crate) const CHECKS: &[TidyCheck] = &[
    TidyCheck {
        name: "file-length",
        rule: "product files have at most 600 lines",
        find: size::files,
    },
    TidyCheck {
        name: "fn-length",
        rule: "product functions have at most 70 lines",
        find: size::fns,
    },
    TidyCheck { name: "columns", rule: "lines have at most 100 columns", find: size::columns },
    TidyCheck { name: "header", rule: "every .rs file opens with //!", find: files::header },
    TidyCheck { name: "ascii", rule: ".rs files are ASCII", find: files::ascii },
    TidyCheck { name: "tabs", rule: "no tabs where spaces are the custom", find: files::tabs },
    TidyCheck { name: "blobs", rule: "no file is larger than 512 KB", find: files::blobs },
    TidyCheck {
        name: "edges",
        rule: "crates depend only on what the house allows",
        find: dependency_edges::find,
    },
    TidyCheck {
        name: "folder-edges",
        rule: "a folder of a crate uses only those below it",
        find: folder_edges::find,
    },
    TidyCheck {
        name: "words",
        rule: "calls and types that a crate may not name",
        find: banned_words::find_words,
    },
    TidyCheck {
        name: "leftovers",
        rule: "no FIXME or XXX is left in a comment",
        find: banned_words::leftovers,
    },
    TidyCheck {
        name: "unsafe",
        rule: "unsafe stands only in listed files",
        find: banned_words::unsafe_code,
    },
    TidyCheck { name: "names", rule: "no words of plumbing in names", find: names::find },
    TidyCheck {
        name: "type-names",
        rule: "a type's name is a phrase or a listed term, and stands for one thing",
        find: type_names::find,
    },
    TidyCheck {
        name: "tuples",
        rule: "no parameters are packed into a tuple",
        find: tuple_parameters::find,
    },
    TidyCheck {
        name: "doc-openings",
        rule: "no doc comment opens with a pronoun or a question word",
        find: doc_openings::find,
    },
    TidyCheck {
        name: "doc-fragments",
        rule: "no doc comment opens or ends with three dots",
        find: doc_fragments::find,
    },
    TidyCheck {
        name: "doc-paths",
        rule: "a module path or a name of code in a document is there",
        find: doc_paths::find,
    },
];
