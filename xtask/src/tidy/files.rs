//! Checks for files of any content: header, ASCII, tabs and size.

use super::TidyFinding;
use crate::tree::SourceTree;

const BLOB_BYTES_MAX: u64 = 512 * 1024;
const SPACED: [&str; 6] = [".rs", ".toml", ".py", ".md", ".sh", ".yml"];

pub(super) fn header(tree: &SourceTree) -> Vec<TidyFinding> {
    let opens = |text: &str| text.starts_with("//!");
    let bad = tree.sources.iter().filter(|source| !opens(&source.text));
    let what = "no header; open with //! and say in a sentence or two what this file is";
    bad.map(|source| TidyFinding::new(&source.path, 1, what)).collect()
}

pub(super) fn ascii(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        for (at, line) in source.text.lines().enumerate() {
            if let Some(odd) = line.chars().find(|c| !c.is_ascii()) {
                let what = format!(
                    "U+{:04X} in source; write ASCII, in a string \\u{{{:x}}}",
                    u32::from(odd),
                    u32::from(odd)
                );
                found.push(TidyFinding::new(&source.path, at + 1, what));
            }
        }
    }
    found
}

pub(super) fn tabs(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    let spaced = |path: &str| SPACED.iter().any(|end| path.ends_with(end));
    for file in tree.files.iter().filter(|file| spaced(&file.path)) {
        for (at, line) in file.text.as_deref().unwrap_or("").lines().enumerate() {
            if line.contains('\t') {
                let what = "a tab; indent with spaces, in a string write \\t";
                found.push(TidyFinding::new(&file.path, at + 1, what));
            }
        }
    }
    found
}

pub(super) fn blobs(tree: &SourceTree) -> Vec<TidyFinding> {
    let large = tree.files.iter().filter(|file| file.bytes > BLOB_BYTES_MAX);
    large
        .map(|file| {
            let what = format!(
                "{} KB; at most {} KB: generate it in the build or the test that needs it",
                file.bytes / 1024,
                BLOB_BYTES_MAX / 1024
            );
            TidyFinding::new(&file.path, 1, what)
        })
        .collect()
}
