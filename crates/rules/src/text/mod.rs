//! The text of a rule to a plan. sqlparser cuts it into tokens and reads expressions, in a dialect
//! of ours; the clauses around them are read here, since SQL has no FOREACH and its FROM knows
//! no topics. What a rule cannot mean is refused with its place.

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

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleParseError {
    /// Both from 1; columns count characters.
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

    /// The place, the line of the text with a caret below it, and the hint.
    pub fn show(&self, text: &str) -> String {
        let line = text.lines().nth(self.line as usize - 1).unwrap_or("");
        // A tab before the caret stays one, so that the caret stands where it should.
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

/// Length of a rule's text in bytes. Both bounds are far above what a person writes.
const TEXT_BYTES_MAX: usize = 32 * 1024;
const TOKENS_MAX: usize = 8192;
/// sqlparser nests them, and a stack has an end.
const OPERATORS_MAX: usize = 1000;
/// Brackets in brackets, CASE in CASE.
const DEPTH_MAX: usize = 40;

impl RulePlan {
    /// Reads a rule. A byte order mark before it, as editors write it, is left out.
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

/// The rules of a text that has several, with `;` behind each but the last: where each begins,
/// and what it says. What is empty but for blanks and comments is left out.
pub fn split(text: &str) -> Vec<(usize, &str)> {
    let mut rules = Vec::new();
    let (mut start, mut at, mut said) = (0, 0, false);
    let bytes = text.as_bytes();
    // All that is looked for is ASCII, so no cut is within a character.
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
    // The end of the text has no place.
    let at = if at.line == 0 { dialect::end(parser) } else { at };
    RuleParseError::new(at, dialect::plain_message(message), hint)
}

#[cfg(test)]
mod tests;
