//! Parses the text of a rule into a plan. sqlparser splits the text into tokens and parses
//! expressions, in the dialect of `dialect`; the clauses are parsed here, since SQL has no FOREACH
//! and no topics in FROM. Anything without a meaning in a rule is refused with its position.

mod dialect;
mod group_by;
mod names;
mod planner;
mod sources;
mod statement;

use crate::plan::RulePlan;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Tokenizer};
use std::fmt;

/// Why a text is not a valid rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleParseError {
    /// Line and `column` count from 1; columns count characters.
    pub line: u32,
    pub column: u32,
    pub message: String,
    /// Suggestion of a correct form; may be empty.
    pub hint: String,
}

impl RuleParseError {
    fn new(at: Location, message: impl Into<String>, hint: impl Into<String>) -> RuleParseError {
        let place = |of: u64| u32::try_from(of).unwrap_or(u32::MAX).max(1);
        let (line, column) = (place(at.line), place(at.column));
        RuleParseError { line, column, message: message.into(), hint: hint.into() }
    }

    /// Returns the error for a terminal: place, message and hint, the line of the text, and a caret
    /// below.
    pub fn show(&self, text: &str) -> String {
        let line = text.lines().nth(self.line as usize - 1).unwrap_or("");
        // A tab before the caret stays a tab, so that the caret stands in the right column.
        let before = line.chars().chain(std::iter::repeat(' ')).take(self.column as usize - 1);
        let before: String = before.map(|c| if c == '\t' { c } else { ' ' }).collect();
        format!("{self}\n    {line}\n    {before}^")
    }
}

impl fmt::Display for RuleParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl std::error::Error for RuleParseError {}

/// Bound of the length of a rule in bytes. This and [`TOKENS_MAX`] are far above rules written by
/// people.
const TEXT_BYTES_MAX: usize = 32 * 1024;
const TOKENS_MAX: usize = 8192;
/// Bound of operators: sqlparser nests expressions of operators, and recursion over the tree needs
/// stack.
const OPERATORS_MAX: usize = 1000;
/// Bound of the nesting of brackets and CASE.
const DEPTH_MAX: usize = 40;

impl RulePlan {
    /// Parses a rule. A byte order mark at the start, as editors write, is skipped.
    pub fn parse(text: &str) -> Result<RulePlan, RuleParseError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let start = Location::new(1, 1);
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("the rule has {} bytes", text.len());
            return Err(RuleParseError::new(
                start,
                message,
                "a rule has at most 32768; make it two",
            ));
        }
        let tokens = Tokenizer::new(&dialect::RuleDialect, text).tokenize_with_location();
        let tokens = tokens.map_err(|wrong| {
            RuleParseError::new(wrong.location, dialect::plain_message(&wrong.message), "")
        })?;
        if tokens.len() > TOKENS_MAX {
            let message = format!("the rule has {} words and signs", tokens.len());
            return Err(RuleParseError::new(
                start,
                message,
                "a rule has at most 8192; make it two",
            ));
        }
        let tokens = dialect::merge_operators(tokens);
        if dialect::count_operators(&tokens) > OPERATORS_MAX {
            let hint = "a rule has at most 1000; IN (...) takes the place of many ORs";
            return Err(RuleParseError::new(start, "the rule has too many operators", hint));
        }
        let parser = Parser::new(&dialect::RuleDialect)
            .with_recursion_limit(DEPTH_MAX)
            .with_tokens_with_locations(tokens);
        statement::read(parser)?.plan()
    }
}

/// Splits a text of several rules separated by `;`: where each begins, and its text. Parts with
/// only white space and comments are left out.
pub fn split(text: &str) -> Vec<(usize, &str)> {
    let mut rules = Vec::new();
    let (mut start, mut at, mut said) = (0, 0, false);
    let bytes = text.as_bytes();
    // All characters looked for are ASCII, so no cut is within a character.
    while at < bytes.len() {
        let rest = &text[at..];
        let skip = |end: &str, from: usize| {
            rest.get(from..)
                .and_then(|rest| rest.find(end))
                .map_or(rest.len(), |n| from + n + end.len())
        };
        let (len, says) = match bytes[at] {
            b'\'' => (skip("'", 1), true),
            b'"' => (skip("\"", 1), true),
            b'-' if rest.starts_with("--") => (skip("\n", 2), false),
            b'/' if rest.starts_with("/*") => (skip("*/", 2), false),
            b';' => {
                if said {
                    rules.push((start, &text[start..at]));
                }
                (start, said) = (at + 1, false);
                (1, false)
            }
            other => (rest.chars().next().map_or(1, char::len_utf8), !other.is_ascii_whitespace()),
        };
        said |= says;
        at += len;
    }
    if said {
        rules.push((start, &text[start..]));
    }
    rules
}

/// Splits an error of sqlparser into its location and its message.
fn parse_error(wrong: ParserError, parser: &Parser<'_>) -> RuleParseError {
    let here = parser.peek_token_ref().span.start;
    let text = match wrong {
        ParserError::RecursionLimitExceeded => {
            let hint = "at most 40 levels; give parts of it a name with AS";
            return RuleParseError::new(here, "too deep", hint);
        }
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
    };
    let (said, at) = match text.rsplit_once(" at Line: ") {
        Some((said, place)) => {
            let mut numbers = place.split(", Column: ").map(str::parse);
            match (numbers.next(), numbers.next()) {
                (Some(Ok(line)), Some(Ok(column))) => (said, Location::new(line, column)),
                _ => (said, here),
            }
        }
        None => (&*text, here),
    };
    let (message, hint) = said.split_once(dialect::HINT).unwrap_or((said, ""));
    // The end of the text has no location of its own.
    let at = if at.line == 0 { dialect::end(parser) } else { at };
    RuleParseError::new(at, dialect::plain_message(message), hint)
}

#[cfg(test)]
mod tests;
