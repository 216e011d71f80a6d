//! Check that functions have no parameters in a tuple: a tuple avoids the limit of a function's
//! arguments, and separates types from names.

use super::TidyFinding;
use crate::source::{SourceFile, identifier, line_of, word_positions};
use crate::tree::SourceTree;

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let product = |source: &&SourceFile| source.path.contains("/src/");
    tree.sources.iter().filter(product).flat_map(tuples_of_file).collect()
}

fn tuples_of_file(source: &SourceFile) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for at in word_positions(&source.code, "fn") {
        let rest = &source.code[at + "fn".len()..];
        let name = identifier(rest.trim_start());
        let line = line_of(&source.code, at) + 1;
        if name.is_empty() || source.test[line - 1] {
            continue;
        }
        if parameter_list(rest).is_some_and(has_tuple_pattern) {
            let what = format!(
                "fn {name}: parameters packed into a tuple; name each, or make a struct of what \
                 travels together"
            );
            found.push(TidyFinding::new(&source.path, line, what));
        }
    }
    found
}

/// Returns the text between the parentheses of a signature, given the text after `fn`.
fn parameter_list(rest: &str) -> Option<&str> {
    let open = signature_parenthesis(rest)?;
    let mut depth = 0_usize;
    for (at, c) in rest[open..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&rest[open + 1..open + at]);
        }
    }
    None
}

/// Returns the start of the parameters: behind the name and its generics, which may contain
/// `Fn(A)`.
fn signature_parenthesis(rest: &str) -> Option<usize> {
    let mut angles = 0_usize;
    let mut last = ' ';
    for (at, c) in rest.char_indices() {
        match c {
            '<' => angles += 1,
            '>' if last != '-' => angles = angles.saturating_sub(1),
            '(' if angles == 0 => return Some(at),
            '{' | ';' => return None,
            _ => {}
        }
        last = c;
    }
    None
}

/// Whether a parameter's pattern is a tuple: a parenthesis at the start or behind a comma, closed
/// before a colon.
fn has_tuple_pattern(parameters: &str) -> bool {
    let mut depth = 0_usize;
    let mut tuple_start = false;
    let mut is_first = true;
    for (at, c) in parameters.char_indices() {
        match c {
            '(' | '[' | '<' | '{' => {
                tuple_start |= depth == 0 && c == '(' && is_first;
                depth += 1;
            }
            ')' | ']' | '}' | '>' if !parameters[..at].ends_with(['-', '=']) => {
                depth = depth.saturating_sub(1);
                let rest = parameters[at + 1..].trim_start();
                if depth == 0 && c == ')' && tuple_start && rest.starts_with(':') {
                    return true;
                }
                tuple_start &= depth > 0;
            }
            ',' if depth == 0 => {
                is_first = true;
                continue;
            }
            _ => {}
        }
        is_first &= c.is_whitespace();
    }
    false
}
