//! Functions of text. Positions count characters from 1, unless the function says otherwise.

use super::{CallArguments, EvalResult, RuleFunction, charge_output, row};
use crate::evaluation::EvalFrame;
use crate::operators::write_string;
use crate::value::Value;
use std::borrow::Cow;

pub(super) const ROWS: &[RuleFunction] = &[
    row(
        "ascii",
        1..=1,
        "character",
        "The first byte of a text, which is the code of an ASCII character.",
        ("ascii('a')", "97"),
        ascii,
    ),
    row(
        "concat",
        1..=16,
        "value, ...",
        "All arguments as one text, each as `str` has it; of one array its elements.",
        ("concat('a', 1, true)", r#""a1true""#),
        concat,
    ),
    row(
        "find",
        2..=3,
        "text, part[, 'leading' or 'trailing']",
        "The rest of a text from its first (or last) such part on, empty where it has none.",
        ("find('eeabcabcee', 'abc', 'trailing')", r#""abcee""#),
        find,
    ),
    row(
        "join_to_string",
        1..=2,
        "[separator, ]array",
        "The elements as one text with a separator between them, which is `, ` if left out.",
        ("join_to_string('/', ['a', 1])", r#""a/1""#),
        join_to_string,
    ),
    row("lower", 1..=1, "text", "In small letters.", ("lower('AbC')", r#""abc""#), lower),
    row(
        "ltrim",
        1..=2,
        "text[, characters]",
        "Without white space, or without these characters, at its start.",
        ("ltrim('  a ')", r#""a ""#),
        |f, a| trim_text(f, a, true, false),
    ),
    row(
        "pad",
        2..=4,
        "text, length[, 'leading', 'both' or 'trailing'[, filler]]",
        "Made that long by spaces, or a filler, behind it, before it or around it; a filler counts \
         as one character, however long it is.",
        ("pad('7', 3, 'leading', '0')", r#""007""#),
        pad,
    ),
    row(
        "replace",
        3..=4,
        "text, part, by[, 'all', 'leading' or 'trailing']",
        "With another text in the place of every such part, or of the first or last of them.",
        ("replace('abab', 'b', 'c', 'leading')", r#""acab""#),
        replace,
    ),
    row(
        "reverse",
        1..=1,
        "text",
        "From its end to its start.",
        ("reverse('abc')", r#""cba""#),
        reverse,
    ),
    row(
        "rm_prefix",
        2..=2,
        "text, prefix",
        "Without a prefix, where it has it.",
        ("rm_prefix('foo/bar', 'foo/')", r#""bar""#),
        rm_prefix,
    ),
    row(
        "rtrim",
        1..=2,
        "text[, characters]",
        "Without white space, or without these characters, at its end.",
        ("rtrim(' a  ')", r#"" a""#),
        |f, a| trim_text(f, a, false, true),
    ),
    row(
        "split",
        2..=3,
        "text, separator[, how]",
        "The parts between separators, without empty ones; with `leading` or `trailing` parted at \
         the first or last separator only; with `notrim`, `leading_notrim` or `trailing_notrim` \
         empty parts stay.",
        ("split('a/b/c', '/', 'leading')", r#"["a","b/c"]"#),
        split,
    ),
    row("strlen", 1..=1, "text", "How many characters it has.", ("strlen('abc')", "3"), |f, a| {
        let text = a.subject(0)?;
        f.budget.scan(text.len())?;
        Ok(Value::Int(text.chars().count() as i64))
    }),
    row(
        "substr",
        2..=3,
        "text, start[, length]",
        "The text from a place on, that many characters; as with EMQX its first place is 0.",
        ("substr('abcdef', 2, 3)", r#""cde""#),
        substr,
    ),
    row(
        "tokens",
        2..=3,
        "text, separators[, 'nocrlf']",
        "The parts between any of the separators' characters, without empty ones; `nocrlf` parts \
         it at line breaks as well.",
        ("tokens('a;b, c', ';, ')", r#"["a","b","c"]"#),
        tokens,
    ),
    row(
        "trim",
        1..=2,
        "text[, characters]",
        "Without white space, or without these characters, around it.",
        ("trim('  a ')", r#""a""#),
        |f, a| trim_text(f, a, true, true),
    ),
    row(
        "unescape",
        1..=1,
        "text",
        "With `\\n`, `\\t`, `\\r`, `\\b`, `\\f`, `\\v`, `\\a`, `\\0`, `\\?`, `\\xH...` (as many \
         hexadecimal digits as there are), quotes and backslashes as what they stand for.",
        (r"strlen(unescape('a\tb'))", "3"),
        unescape,
    ),
    row("upper", 1..=1, "text", "In capitals.", ("upper('AbC')", r#""ABC""#), upper),
];

fn ascii<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let text = match a.peek(0) {
        Value::Bytes(_) => a.bytes(0)?.first().copied(),
        _ => a.subject(0)?.as_bytes().first().copied(),
    };
    text.map_or_else(|| a.fail("the text is empty"), |first| Ok(Value::Int(i64::from(first))))
}

fn concat<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let mut out = String::new();
    if a.len() == 1 && matches!(a.peek(0), Value::Array(_)) {
        for value in a.array(0)? {
            write_string(&value, &mut out, f.budget)?;
        }
        return Ok(Value::Text(out.into()));
    }
    for at in 0..a.len() {
        write_string(a.peek(at), &mut out, f.budget)?;
    }
    Ok(Value::Text(out.into()))
}

/// Returns a part of a text, borrowed if the text is borrowed.
fn slice_text<'a>(text: Cow<'a, str>, of: impl Fn(&str) -> &str) -> Value<'a> {
    Value::Text(match text {
        Cow::Borrowed(text) => Cow::Borrowed(of(text)),
        Cow::Owned(text) => Cow::Owned(of(&text).to_string()),
    })
}

/// Whether a character is white space: Unicode's Pattern_White_Space.
fn is_blank(c: char) -> bool {
    matches!(c, '\t'..='\r' | ' ' | '\u{85}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}')
}

fn trim_text<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
    start: bool,
    end: bool,
) -> EvalResult<'a> {
    let characters: Option<Vec<char>> = match a.len() {
        2 => Some(a.text(1)?.chars().collect()),
        _ => None,
    };
    let text = a.subject(0)?;
    let each = characters.as_ref().map_or(1, |characters| characters.len() as u64);
    f.budget.step((text.len() as u64).saturating_mul(each) / 16)?;
    let leaves = |c: char| match &characters {
        Some(characters) => characters.contains(&c),
        None => is_blank(c),
    };
    Ok(slice_text(text, |text| {
        let text = if start { text.trim_start_matches(leaves) } else { text };
        if end { text.trim_end_matches(leaves) } else { text }
    }))
}

fn find<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let trailing = match a.len() {
        3 => a.keyword(2, &["leading", "trailing"], "'leading' or 'trailing'")? == 1,
        _ => false,
    };
    let (text, sought) = (a.subject(0)?, a.text(1)?);
    f.budget.scan(2 * text.len())?;
    if sought.is_empty() {
        return Ok(Value::Text(text));
    }
    Ok(slice_text(text, |text| {
        let at = if trailing { text.rfind(&*sought) } else { text.find(&*sought) };
        at.and_then(|at| text.get(at..)).unwrap_or("")
    }))
}

fn join_to_string<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let separator = if a.len() == 2 { a.text(0)? } else { ", ".into() };
    let values = a.array(a.len() - 1)?;
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            charge_output(f.budget, separator.len())?;
            out.push_str(&separator);
        }
        write_string(value, &mut out, f.budget)?;
    }
    Ok(Value::Text(out.into()))
}

fn lower<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let text = a.subject(0)?;
    charge_output(f.budget, 3 * text.len())?;
    Ok(Value::Text(text.to_lowercase().into()))
}

fn upper<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let text = a.subject(0)?;
    charge_output(f.budget, 3 * text.len())?;
    Ok(Value::Text(text.to_uppercase().into()))
}

fn pad<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let side = match a.len() {
        3.. => a.keyword(2, &["trailing", "leading", "both"], "'leading', 'both' or 'trailing'")?,
        _ => 0,
    };
    let filler = if a.len() == 4 { a.text(3)? } else { " ".into() };
    let wanted = usize::try_from(a.int(1)?).unwrap_or(0);
    let text = a.subject(0)?;
    f.budget.scan(text.len())?;
    let missing = wanted.saturating_sub(text.chars().count());
    charge_output(f.budget, missing.saturating_mul(filler.len()).saturating_add(text.len()))?;
    let before = [0, missing, missing / 2][side];
    let padded = [&filler.repeat(before), &*text, &filler.repeat(missing - before)].concat();
    Ok(Value::Text(padded.into()))
}

fn replace<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let which = match a.len() {
        4 => a.keyword(3, &["all", "leading", "trailing"], "'all', 'leading' or 'trailing'")?,
        _ => 0,
    };
    let (text, sought, by) = (a.subject(0)?, a.text(1)?, a.text(2)?);
    f.budget.scan(2 * text.len())?;
    if sought.is_empty() {
        return Ok(Value::Text(text));
    }
    let at = match which {
        0 => {
            let count = text.matches(&*sought).count();
            charge_output(f.budget, text.len().saturating_add(count.saturating_mul(by.len())))?;
            return Ok(Value::Text(text.replace(&*sought, &by).into()));
        }
        1 => text.find(&*sought),
        _ => text.rfind(&*sought),
    };
    let Some(at) = at else { return Ok(Value::Text(text)) };
    charge_output(f.budget, text.len() + by.len())?;
    let (before, behind) = text.split_at(at);
    Ok(Value::Text([before, &by, &behind[sought.len()..]].concat().into()))
}

fn reverse<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let text = a.subject(0)?;
    charge_output(f.budget, 2 * text.len())?;
    Ok(Value::Text(text.chars().rev().collect::<String>().into()))
}

fn rm_prefix<'a>(_: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let prefix = a.text(1)?;
    Ok(slice_text(a.subject(0)?, |text| text.strip_prefix(&*prefix).unwrap_or(text)))
}

/// Returns the parts of a text between `cuts`, the byte ranges of separators.
fn split_at_cuts<'a>(
    f: &mut EvalFrame<'_, 'a>,
    text: Cow<'a, str>,
    cuts: Vec<(usize, usize)>,
    keep_empty: bool,
) -> EvalResult<'a> {
    f.budget.step(cuts.len() as u64)?;
    charge_output(f.budget, text.len() + (cuts.len() + 1) * size_of::<Value>())?;
    let starts = std::iter::once(0).chain(cuts.iter().map(|(_, end)| *end));
    let ends = cuts.iter().map(|(start, _)| *start).chain(std::iter::once(text.len()));
    let kept = starts.zip(ends).filter(|(start, end)| keep_empty || start < end);
    Ok(Value::Array(match &text {
        Cow::Borrowed(text) => kept.map(|(start, end)| Value::text(&text[start..end])).collect(),
        Cow::Owned(text) => {
            kept.map(|(start, end)| Value::Text(text[start..end].to_string().into())).collect()
        }
    }))
}

fn split<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let how = match a.len() {
        3 => a.keyword(2, SPLITS, "one of the words that docs/rules.md names")?,
        _ => 0,
    };
    let (text, separator) = (a.subject(0)?, a.text(1)?);
    if separator.is_empty() {
        return split_at_cuts(f, text, Vec::new(), SPLITS[how].ends_with("notrim"));
    }
    f.budget.scan(4 * text.len())?;
    let cut = |(at, _): (usize, &str)| (at, at + separator.len());
    let cuts = match SPLITS[how].split('_').next() {
        Some("leading") => text.match_indices(&*separator).take(1).map(cut).collect(),
        Some("trailing") => text.rmatch_indices(&*separator).take(1).map(cut).collect(),
        _ => {
            charge_output(f.budget, text.matches(&*separator).count() * 16)?;
            text.match_indices(&*separator).map(cut).collect()
        }
    };
    split_at_cuts(f, text, cuts, SPLITS[how].ends_with("notrim"))
}

const SPLITS: &[&str] = &["", "notrim", "leading", "leading_notrim", "trailing", "trailing_notrim"];

fn tokens<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (text, separators) = (a.subject(0)?, a.text(1)?);
    let mut any: Vec<char> = separators.chars().collect();
    if a.len() == 3 {
        a.keyword(2, &["nocrlf"], "'nocrlf'")?;
        any.extend(['\r', '\n']);
    }
    f.budget.step((text.len() as u64).saturating_mul(any.len() as u64) / 8)?;
    charge_output(f.budget, text.matches(&*any).count() * 16)?;
    let cuts = text.match_indices(&*any).map(|(at, cut)| (at, at + cut.len())).collect();
    split_at_cuts(f, text, cuts, false)
}

/// The function `substr(text, start, length)`. Counts `start` from 0, as EMQX does.
fn substr<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let start = a.size(1)?;
    let len = if a.len() == 3 { a.size(2)? } else { usize::MAX };
    let text = a.subject(0)?;
    f.budget.scan(text.len())?;
    Ok(slice_text(text, |text| {
        let place = |chars: usize, text: &str| {
            text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
        };
        let rest = &text[place(start, text)..];
        &rest[..place(len, rest)]
    }))
}

fn unescape<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let text = a.subject(0)?;
    charge_output(f.budget, 2 * text.len())?;
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('v') => '\u{b}',
            Some('a') => '\u{7}',
            Some('0') => '\0',
            Some(c @ ('\'' | '"' | '\\' | '?')) => c,
            Some('x') => {
                let rest = chars.as_str();
                let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
                let (digits, behind) = rest.split_at(end);
                chars = behind.chars();
                // Leading zeros do not change the value.
                let kept = digits.trim_start_matches('0');
                let kept = if kept.is_empty() { digits.get(..1).unwrap_or("") } else { kept };
                match u32::from_str_radix(kept, 16).ok().and_then(char::from_u32) {
                    Some(c) => c,
                    None => return a.fail("\\x needs the hexadecimal digits of a character"),
                }
            }
            _ => return a.fail("there is an escape that nobody knows"),
        });
    }
    Ok(Value::Text(out.into()))
}
