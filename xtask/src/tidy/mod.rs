//! `cargo x tidy`: the house rules that a machine can check, as one table of checks. Each finding
//! says where, what is wrong and what would be right. Each check has its snapshot in `tests.rs`.

mod edges;
mod files;
mod names;
mod size;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use crate::tree::{Tree, root};

/// One rule: its name in `cargo x tidy --list`, and what finds the places that break it.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) find: fn(&Tree) -> Vec<Finding>,
}

/// One place that breaks a rule; lines count from 1.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Runs every check and prints what it finds.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if args.iter().any(|arg| arg == "--list") {
        for check in CHECKS {
            println!("{:<14} {}", check.name, check.rule);
        }
        return Ok(());
    }
    let tree = Tree::read(&root()).map_err(|e| format!("tidy: the tree cannot be read: {e}"))?;
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| (check.find)(&tree)).collect();
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

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "file-length", rule: "product files have at most 600 lines", find: size::files },
    Check { name: "fn-length", rule: "product functions have at most 70 lines", find: size::fns },
    Check { name: "columns", rule: "lines have at most 100 columns", find: size::columns },
    Check { name: "header", rule: "every .rs file opens with //!", find: files::header },
    Check { name: "ascii", rule: ".rs files are ASCII", find: files::ascii },
    Check { name: "tabs", rule: "no tabs where spaces are the custom", find: files::tabs },
    Check { name: "blobs", rule: "no file is larger than 512 KB", find: files::blobs },
    Check { name: "edges", rule: "crates depend only on what the house allows", find: edges::find },
    Check { name: "words", rule: "calls and types that a crate may not name", find: text::words },
    Check {
        name: "leftovers",
        rule: "no FIXME or XXX is left in a comment",
        find: text::leftovers,
    },
    Check { name: "unsafe", rule: "unsafe stands only in listed files", find: text::unsafe_code },
    Check { name: "names", rule: "no words of plumbing in names", find: names::find },
];
