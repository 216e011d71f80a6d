//! Regular expressions without back references and look-around, so that matching is linear in the
//! text.

use super::{Arguments, Function, Needs, Outcome, room, row};
use crate::budget::Failed;
use crate::run::Frame;
use crate::value::Value;
use regex::{Regex, RegexBuilder};
use std::borrow::Cow;

pub(super) const ROWS: &[Function] = &[
    pattern(row(
        "regex_extract",
        2..=2,
        "text, pattern",
        "What the groups of the first match caught, as an array; empty without a match.",
        (r"regex_extract('Number: 12, Text: ab', '(\d+).*: (\w+)')", r#"["12","ab"]"#),
        regex_extract,
    )),
    pattern(row(
        "regex_match",
        2..=2,
        "text, pattern",
        "Whether the pattern matches somewhere in the text.",
        (r"regex_match('abc123', '[a-z]+\d+$')", "true"),
        regex_match,
    )),
    pattern(row(
        "regex_replace",
        3..=3,
        "text, pattern, by",
        "With another text in the place of every match; `$1` or `${1}` is what a group caught.",
        (r"regex_replace('ab1cd3ef', '([0-9])', '<$1>')", r#""ab<1>cd<3>ef""#),
        regex_replace,
    )),
];

const fn pattern(of: Function) -> Function {
    Function { needs: Needs::Pattern, ..of }
}

/// Bytes that a compiled pattern may have. One that a message brings has less.
const LITERAL_BYTES_MAX: usize = 256 * 1024;
const BROUGHT_BYTES_MAX: usize = 16 * 1024;
const BROUGHT_TEXT_MAX: usize = 256;
/// What it costs to compile a small one.
const COMPILE_STEPS: u64 = 5_000;

/// For a pattern that stands in the rule.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    build(text, LITERAL_BYTES_MAX).map_err(|wrong| match wrong {
        regex::Error::CompiledTooBig(_) => {
            "the pattern is too large; repeat fewer characters fewer times".to_string()
        }
        // The last of its lines says what is wrong, the others where.
        other => {
            let told = other.to_string();
            told.lines().last().unwrap_or("").trim_start_matches("error: ").to_string()
        }
    })
}

fn build(text: &str, bytes_max: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(bytes_max).nest_limit(50).build()
}

/// The plan's pattern, or what the arguments bring.
fn regex_of<'a>(
    f: &mut Frame<'_, 'a>,
    a: &mut Arguments<'_, 'a>,
) -> Result<Cow<'a, Regex>, Failed> {
    if let Some(regex) = a.regex {
        return Ok(Cow::Borrowed(regex));
    }
    let text = a.text(1)?;
    if text.len() > BROUGHT_TEXT_MAX {
        return a.no("a pattern that is not in the rule has at most 256 bytes");
    }
    f.budget.step(COMPILE_STEPS)?;
    f.budget.take(2 * BROUGHT_BYTES_MAX)?;
    build(&text, BROUGHT_BYTES_MAX)
        .map_or_else(|_| a.no("the pattern is none, or too large"), |regex| Ok(Cow::Owned(regex)))
}

/// A text that is about to be searched, at the price of what a pattern may have of states.
fn subject<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Result<Cow<'a, str>, Failed> {
    let text = a.text(0)?;
    f.budget.step(4 + text.len() as u64)?;
    Ok(text)
}

fn regex_match<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let regex = regex_of(f, a)?;
    let text = subject(f, a)?;
    Ok(Value::Bool(regex.is_match(&text)))
}

fn regex_extract<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let regex = regex_of(f, a)?;
    let text = subject(f, a)?;
    room(f.budget, text.len().saturating_add(regex.captures_len() * 64))?;
    let Some(caught) = regex.captures(&text) else { return Ok(Value::Array(Vec::new())) };
    let groups = caught.iter().skip(1).map(|group| group.map_or("", |group| group.as_str()));
    let groups = groups.map(|text| Value::Text(text.to_string().into()));
    Ok(Value::Array(groups.collect()))
}

fn regex_replace<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let regex = regex_of(f, a)?;
    let text = subject(f, a)?;
    let by = a.text(2)?;
    let mut out = String::new();
    let mut written = 0;
    // Each match begins a new search of what is left.
    for caught in regex.captures_iter(&text) {
        let Some(whole) = caught.get(0) else { continue };
        // `$1$1$1` may be long, but not longer than this.
        let most = by.len().saturating_add((by.len() / 2).saturating_mul(whole.len()));
        f.budget.step(8)?;
        room(f.budget, most.saturating_add(whole.start() - written))?;
        out.push_str(&text[written..whole.start()]);
        caught.expand(&by, &mut out);
        written = whole.end();
    }
    room(f.budget, text.len() - written)?;
    out.push_str(&text[written..]);
    Ok(Value::Text(out.into()))
}
