//! Regular expressions without back references and look-around, so matching takes time linear in
//! the length of the text.

use super::{CallArguments, EvalResult, FunctionNeeds, RuleFunction, charge_output, row};
use crate::budget::RunError;
use crate::evaluation::EvalFrame;
use crate::value::Value;
use regex::{Captures, Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};
use std::borrow::Cow;

pub(super) const ROWS: &[RuleFunction] = &[
    pattern(row(
        "regex_extract",
        2..=2,
        "text, pattern",
        "What the groups of the first match caught, as an array; empty without a match. A last \
         group \
         that caught nothing is left out.",
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
        "With another text in the place of every match; in it `&` is the match, `\\1` or \
         `\\g{1}` what a group caught; a character behind another backslash is itself: `\\&`.",
        (r"regex_replace('ab1cd3ef', '[1-9]', '[&]')", r#""ab[1]cd[3]ef""#),
        regex_replace,
    )),
];

const fn pattern(of: RuleFunction) -> RuleFunction {
    RuleFunction { needs: FunctionNeeds::Pattern, ..of }
}

/// Bound of a compiled pattern in bytes, for a constant; a pattern from a message has
/// [`ARGUMENT_BYTES_MAX`].
const LITERAL_BYTES_MAX: usize = 256 * 1024;
const ARGUMENT_BYTES_MAX: usize = 16 * 1024;
const ARGUMENT_TEXT_MAX: usize = 256;
/// Steps charged to compile a regular expression from a message.
const COMPILE_STEPS: u64 = 5_000;

/// A compiled pattern, and its cost per byte of text.
#[derive(Clone, Debug)]
pub(crate) struct RegexMatcher {
    regex: Regex,
    /// Steps per byte: a match may be under way at each character of the pattern, repetitions
    /// multiplied.
    weight: u64,
}

/// Compiles a constant pattern of a rule. The error is one line for the user.
pub(crate) fn compile(text: &str) -> Result<RegexMatcher, String> {
    build(text, LITERAL_BYTES_MAX).map_err(|wrong| match wrong {
        regex::Error::CompiledTooBig(_) => {
            "the pattern is too large; repeat fewer characters fewer times".to_string()
        }
        // The last line has the error, and the lines before it the place.
        other => {
            let told = other.to_string();
            told.lines().last().unwrap_or("").trim_start_matches("error: ").to_string()
        }
    })
}

fn build(text: &str, bytes_max: usize) -> Result<RegexMatcher, regex::Error> {
    let regex = RegexBuilder::new(text).size_limit(bytes_max).nest_limit(50).build()?;
    let hir = regex_syntax::parse(text).map_err(|wrong| regex::Error::Syntax(wrong.to_string()))?;
    // The matcher carries the captures of groups for every state.
    let groups = regex.captures_len() as u64;
    let weight = 1 + characters(&hir).saturating_mul(groups) / 4;
    Ok(RegexMatcher { regex, weight })
}

/// Counts the characters of a pattern, repetitions multiplied. The recursion is bounded by the nest
/// limit in [`build`].
fn characters(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Class(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Capture(group) => characters(&group.sub),
        HirKind::Concat(hirs) | HirKind::Alternation(hirs) => {
            hirs.iter().map(characters).fold(0, u64::saturating_add)
        }
        HirKind::Repetition(of) => {
            let times = of.max.unwrap_or(of.min.saturating_add(1));
            characters(&of.sub).saturating_mul(u64::from(times))
        }
    }
}

/// Returns the matcher, from the plan or compiled from argument 1, and the text of argument 0,
/// after charging for the search.
fn prepare_search<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
) -> Result<(Cow<'a, RegexMatcher>, Cow<'a, str>), RunError> {
    let matcher = match a.regex {
        Some(matcher) => Cow::Borrowed(matcher),
        None => Cow::Owned(compile_argument(f, a)?),
    };
    let text = a.subject(0)?;
    f.budget.step(4 + matcher.weight.saturating_mul(text.len() as u64))?;
    Ok((matcher, text))
}

fn compile_argument(
    f: &mut EvalFrame<'_, '_>,
    a: &mut CallArguments<'_, '_>,
) -> Result<RegexMatcher, RunError> {
    let text = a.text(1)?;
    if text.len() > ARGUMENT_TEXT_MAX {
        return a.fail("a pattern that is not in the rule has at most 256 bytes");
    }
    f.budget.step(COMPILE_STEPS)?;
    f.budget.take(2 * ARGUMENT_BYTES_MAX)?;
    build(&text, ARGUMENT_BYTES_MAX).or_else(|_| a.fail("the pattern is none, or too large"))
}

fn regex_match<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (matcher, text) = prepare_search(f, a)?;
    Ok(Value::Bool(matcher.regex.is_match(&text)))
}

fn regex_extract<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (matcher, text) = prepare_search(f, a)?;
    let regex = &matcher.regex;
    charge_output(f.budget, text.len().saturating_add(regex.captures_len() * 64))?;
    let Some(caught) = regex.captures(&text) else { return Ok(Value::Array(Vec::new())) };
    let last = (1..caught.len()).rev().find(|at| caught.get(*at).is_some()).unwrap_or(0);
    let groups = caught.iter().take(last + 1).skip(1);
    let groups = groups.map(|group| group.map_or("", |group| group.as_str()));
    let groups = groups.map(|text| Value::Text(text.to_string().into()));
    Ok(Value::Array(groups.collect()))
}

fn regex_replace<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (matcher, text) = prepare_search(f, a)?;
    let by = a.text(2)?;
    f.budget.scan(by.len())?;
    let places = by.bytes().filter(|byte| matches!(byte, b'&' | b'\\')).count();
    let mut out = String::new();
    let mut written = 0;
    for caught in matcher.regex.captures_iter(&text) {
        let Some(whole) = caught.get(0) else { continue };
        // Each match begins a new search over the rest of the text. Few searches read all of it, so
        // a sixteenth is charged, enough to bound the worst case.
        let left = (text.len() - whole.end()) as u64;
        f.budget.step(8 + matcher.weight.saturating_mul(left) / 16)?;
        // Upper bound of the replacement: every `&` or `\` may insert the whole match.
        let most = by.len().saturating_add(places.saturating_mul(whole.len()));
        charge_output(f.budget, most.saturating_add(whole.start() - written))?;
        out.push_str(&text[written..whole.start()]);
        write_replacement(&by, &caught, &mut out);
        written = whole.end();
    }
    charge_output(f.budget, text.len() - written)?;
    out.push_str(&text[written..]);
    Ok(Value::Text(out.into()))
}

/// Writes the replacement of a match, in the syntax of Erlang's `re`. A group which does not exist,
/// or caught no text, is empty.
fn write_replacement(by: &str, caught: &Captures<'_>, out: &mut String) {
    let mut rest = by;
    while let Some(at) = rest.find(['&', '\\']) {
        out.push_str(&rest[..at]);
        let found = &rest[at..];
        rest = match group(found) {
            Some((number, after)) => {
                let group = number.parse().ok().and_then(|number| caught.get(number));
                out.push_str(group.map_or("", |group| group.as_str()));
                after
            }
            None => {
                let mut chars = found[1..].chars();
                out.push(chars.next().unwrap_or('\\'));
                chars.as_str()
            }
        };
    }
    out.push_str(rest);
}

/// Parses a group reference such as `&`, `\1` or `\g{1}`. Returns the group number and the text
/// behind.
fn group(text: &str) -> Option<(&str, &str)> {
    if let Some(after) = text.strip_prefix('&') {
        return Some(("0", after));
    }
    let number = |text: &'_ str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let after = text.strip_prefix('\\')?;
    if let Some(braced) = after.strip_prefix("g{") {
        let (digits, behind) = braced.split_at(number(braced));
        return Some(digits).filter(|digits| !digits.is_empty()).zip(behind.strip_prefix('}'));
    }
    let (named, digits) = match after.strip_prefix('g') {
        Some(digits) => (true, digits),
        None => (false, after),
    };
    // `\0` is the character 0, not a group.
    let is_group = digits.starts_with(|c: char| c.is_ascii_digit() && (named || c != '0'));
    is_group.then(|| digits.split_at(number(digits)))
}
