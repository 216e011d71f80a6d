//! Check that doc comments are whole sentences. A comment that opens or ends with three dots
//! continues in the comment of its neighbour, and a reader who is shown one of them alone cannot
//! understand it.

use super::TidyFinding;
use crate::source::SourceFile;
use crate::tree::SourceTree;

const DOTS: &str = "...";

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    tree.sources.iter().flat_map(fragments_of_file).collect()
}

fn fragments_of_file(source: &SourceFile) -> Vec<TidyFinding> {
    let comments: Vec<Option<&str>> =
        source.comments.lines().map(|line| line.trim().strip_prefix("///")).collect();
    let mut found = Vec::new();
    let mut is_example = false;
    for (at, comment) in comments.iter().enumerate() {
        let Some(text) = comment.map(str::trim) else {
            is_example = false;
            continue;
        };
        // In an example three dots stand for the rest of it.
        is_example ^= text.starts_with("```");
        let is_first = at == 0 || comments[at - 1].is_none();
        let is_last = comments.get(at + 1).copied().flatten().is_none();
        if !is_example && (is_first && text.starts_with(DOTS) || is_last && text.ends_with(DOTS)) {
            let what = "a doc comment opens or ends with \"...\"; make it a sentence of its own";
            found.push(TidyFinding::new(&source.path, at + 1, what));
        }
    }
    found
}
