//! Check of the first words of doc comments. A comment that opens with a pronoun or a question word
//! makes a reader look for the noun; a comment that names its subject can be read alone.

use super::TidyFinding;
use crate::source::SourceFile;
use crate::tree::SourceTree;

/// Openings which stand for a noun.
const OPENINGS: &[&str] = &[
    "All that",
    "Beside",
    "Everybody",
    "Everyone",
    "Everything",
    "How",
    "In place of",
    "In the place of",
    "It",
    "Nobody",
    "Nothing",
    "Of",
    "One",
    "Only what",
    "Since then",
    "So far",
    "So long",
    "So many",
    "So much",
    "Somebody",
    "That",
    "The same",
    "These",
    "They",
    "Those",
    "Until",
    "What",
    "Whatever",
    "Where",
    "Which",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
];

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let product = |source: &&SourceFile| source.path.contains("/src/");
    tree.sources.iter().filter(product).flat_map(openings_of_file).collect()
}

fn openings_of_file(source: &SourceFile) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (at, line) in source.text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("///");
        if let Some(text) = comment.filter(|_| !is_inside && !source.test[at])
            && let Some(opening) = pronoun_opening(text.trim_start())
        {
            let what = format!(
                "a doc comment opens with \"{opening}\"; open with the noun that it stands for, or \
                 with a verb"
            );
            found.push(TidyFinding::new(&source.path, at + 1, what));
        }
        is_inside = comment.is_some();
    }
    found
}

fn pronoun_opening(text: &str) -> Option<&'static str> {
    OPENINGS.iter().copied().find(|opening| {
        let rest = text.strip_prefix(opening);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}
