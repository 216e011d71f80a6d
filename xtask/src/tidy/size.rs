//! Check of the length of files, functions and lines.

use super::TidyFinding;
use crate::source::SourceFile;
use crate::tree::SourceTree;

const FILE_LINES_MAX: usize = 600;
const FN_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Checks product files against `FILE_LINES_MAX`, not counting test code.
pub(super) fn files(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| is_product(source)) {
        let lines = source.test.iter().filter(|test| !**test).count();
        if lines > FILE_LINES_MAX {
            let what = format!(
                "{lines} lines without tests; at most {FILE_LINES_MAX}: split it by the nouns in it"
            );
            found.push(TidyFinding::new(&source.path, 1, what));
        }
    }
    found
}

/// Checks product functions against `FN_LINES_MAX`, from `fn` to the closing brace.
pub(super) fn fns(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| is_product(source)) {
        for function in source.functions() {
            let lines = function.last - function.first + 1;
            if lines > FN_LINES_MAX && !source.test[function.first] {
                let what = format!(
                    "fn {} has {lines} lines; at most {FN_LINES_MAX}: keep the control flow here \
                     and move straight lines into leaves",
                    function.name
                );
                found.push(TidyFinding::new(&source.path, function.first + 1, what));
            }
        }
    }
    found
}

/// Checks Rust lines against `COLUMNS_MAX`; a line with an address may be longer.
pub(super) fn columns(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        for (at, line) in source.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !line.contains("://") {
                let what = format!("{columns} columns; at most {COLUMNS_MAX}: break the line");
                found.push(TidyFinding::new(&source.path, at + 1, what));
            }
        }
    }
    found
}

/// Whether the bounds apply: to sources of the crates and of xtask, including files with only
/// tests, whose lines are marked as test code.
pub(super) fn is_product(source: &SourceFile) -> bool {
    let path = &source.path;
    let in_crate = path.starts_with("crates/") && path.contains("/src/");
    in_crate || path.starts_with("xtask/src/")
}
