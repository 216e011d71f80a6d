//! Texts. Positions count characters from 1, unless the function says otherwise.

use super::{Arguments, Function, Outcome, room, row};
use crate::operate::write_text;
use crate::run::Frame;
use crate::value::Value;
use std::borrow::Cow;

pub(super) const ROWS: &[Function] = &[
    row(
        "ascii",
        1..=1,
        "character",
        "The code of a text's first character.",
        ("ascii('a')", "97"),
        ascii,
    ),
    row(
        "concat",
        1..=16,
        "value, ...",
        "All arguments as one text, like `||`.",
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
        1..=1,
        "text",
        "Without white space at its start.",
        ("ltrim('  a ')", r#""a ""#),
        |_, a| part(a, str::trim_start),
    ),
    row(
        "pad",
        2..=4,
        "text, length[, 'leading', 'both' or 'trailing'[, character]]",
        "Made that long by spaces, or another character, behind it, before it or around it.",
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
        1..=1,
        "text",
        "Without white space at its end.",
        ("rtrim(' a  ')", r#"" a""#),
        |_, a| part(a, str::trim_end),
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
        let text = a.text(0)?;
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
        1..=1,
        "text",
        "Without white space around it.",
        ("trim('  a ')", r#""a""#),
        |_, a| part(a, str::trim),
    ),
    row(
        "unescape",
        1..=1,
        "text",
        "With `\\n`, `\\t`, `\\r`, `\\b`, `\\f`, `\\v`, `\\a`, `\\0`, `\\xHH`, quotes and \
         backslashes as what they stand for.",
        (r"strlen(unescape('a\tb'))", "3"),
        unescape,
    ),
    row("upper", 1..=1, "text", "In capitals.", ("upper('AbC')", r#""ABC""#), upper),
];

fn ascii<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    match a.text(0)?.chars().next() {
        Some(first) => Ok(Value::Int(i64::from(u32::from(first)))),
        None => a.no("the text is empty"),
    }
}

fn concat<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let mut out = String::new();
    for at in 0..a.len() {
        write_text(a.peek(at), &mut out, f.budget)?;
    }
    Ok(Value::Text(out.into()))
}

/// A part of a text, which is not copied where the text is not.
fn cut<'a>(text: Cow<'a, str>, of: impl Fn(&str) -> &str) -> Value<'a> {
    Value::Text(match text {
        Cow::Borrowed(text) => Cow::Borrowed(of(text)),
        Cow::Owned(text) => Cow::Owned(of(&text).to_string()),
    })
}

fn part<'a>(a: &mut Arguments<'_, 'a>, of: fn(&str) -> &str) -> Outcome<'a> {
    Ok(cut(a.text(0)?, of))
}

fn find<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let trailing = match a.len() {
        3 => a.word(2, &["leading", "trailing"], "'leading' or 'trailing'")? == 1,
        _ => false,
    };
    let (text, sought) = (a.text(0)?, a.text(1)?);
    f.budget.scan(2 * text.len())?;
    Ok(cut(text, |text| {
        let at = if trailing { text.rfind(&*sought) } else { text.find(&*sought) };
        at.and_then(|at| text.get(at..)).unwrap_or("")
    }))
}

fn join_to_string<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let separator = if a.len() == 2 { a.text(0)? } else { ", ".into() };
    let values = a.array(a.len() - 1)?;
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            room(f.budget, separator.len())?;
            out.push_str(&separator);
        }
        write_text(value, &mut out, f.budget)?;
    }
    Ok(Value::Text(out.into()))
}

fn lower<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.text(0)?;
    room(f.budget, 3 * text.len())?;
    Ok(Value::Text(text.to_lowercase().into()))
}

fn upper<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.text(0)?;
    room(f.budget, 3 * text.len())?;
    Ok(Value::Text(text.to_uppercase().into()))
}

fn pad<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let side = match a.len() {
        3.. => a.word(2, &["trailing", "leading", "both"], "'leading', 'both' or 'trailing'")?,
        _ => 0,
    };
    let filler = if a.len() == 4 { a.text(3)? } else { " ".into() };
    let mut fillers = filler.chars();
    let (Some(filler), None) = (fillers.next(), fillers.next()) else {
        return a.no("argument 4 has to be one character");
    };
    let wanted = a.size(1)?;
    let text = a.text(0)?;
    f.budget.scan(text.len())?;
    let missing = wanted.saturating_sub(text.chars().count());
    room(f.budget, missing.saturating_mul(filler.len_utf8()).saturating_add(text.len()))?;
    let before = [0, missing, missing / 2][side];
    let fill = |count| std::iter::repeat_n(filler, count);
    let padded = fill(before).chain(text.chars()).chain(fill(missing - before));
    Ok(Value::Text(padded.collect::<String>().into()))
}

fn replace<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let which = match a.len() {
        4 => a.word(3, &["all", "leading", "trailing"], "'all', 'leading' or 'trailing'")?,
        _ => 0,
    };
    let (text, sought, by) = (a.text(0)?, a.text(1)?, a.text(2)?);
    f.budget.scan(2 * text.len())?;
    if sought.is_empty() {
        return Ok(Value::Text(text));
    }
    let at = match which {
        0 => {
            let count = text.matches(&*sought).count();
            room(f.budget, text.len().saturating_add(count.saturating_mul(by.len())))?;
            return Ok(Value::Text(text.replace(&*sought, &by).into()));
        }
        1 => text.find(&*sought),
        _ => text.rfind(&*sought),
    };
    let Some(at) = at else { return Ok(Value::Text(text)) };
    room(f.budget, text.len() + by.len())?;
    let (before, behind) = text.split_at(at);
    Ok(Value::Text([before, &by, &behind[sought.len()..]].concat().into()))
}

fn reverse<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.text(0)?;
    room(f.budget, 2 * text.len())?;
    Ok(Value::Text(text.chars().rev().collect::<String>().into()))
}

fn rm_prefix<'a>(_: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let prefix = a.text(1)?;
    Ok(cut(a.text(0)?, |text| text.strip_prefix(&*prefix).unwrap_or(text)))
}

/// What stands between the places where a text is cut.
fn parts<'a>(
    f: &mut Frame<'_, 'a>,
    text: Cow<'a, str>,
    cuts: Vec<(usize, usize)>,
    keep_empty: bool,
) -> Outcome<'a> {
    f.budget.step(cuts.len() as u64)?;
    room(f.budget, text.len() + (cuts.len() + 1) * size_of::<Value>())?;
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

fn split<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let how = match a.len() {
        3 => a.word(2, SPLITS, "one of the words that docs/rules.md names")?,
        _ => 0,
    };
    let (text, separator) = (a.text(0)?, a.text(1)?);
    if separator.is_empty() {
        return a.no("the separator is empty");
    }
    f.budget.scan(4 * text.len())?;
    let cut = |(at, _): (usize, &str)| (at, at + separator.len());
    let cuts = match SPLITS[how].split('_').next() {
        Some("leading") => text.match_indices(&*separator).take(1).map(cut).collect(),
        Some("trailing") => text.rmatch_indices(&*separator).take(1).map(cut).collect(),
        _ => {
            room(f.budget, text.matches(&*separator).count() * 16)?;
            text.match_indices(&*separator).map(cut).collect()
        }
    };
    parts(f, text, cuts, SPLITS[how].ends_with("notrim"))
}

const SPLITS: &[&str] = &["", "notrim", "leading", "leading_notrim", "trailing", "trailing_notrim"];

fn tokens<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let (text, separators) = (a.text(0)?, a.text(1)?);
    let mut any: Vec<char> = separators.chars().collect();
    if a.len() == 3 {
        a.word(2, &["nocrlf"], "'nocrlf'")?;
        any.extend(['\r', '\n']);
    }
    f.budget.step((text.len() as u64).saturating_mul(any.len() as u64) / 8)?;
    room(f.budget, text.matches(&*any).count() * 16)?;
    let cuts = text.match_indices(&*any).map(|(at, cut)| (at, at + cut.len())).collect();
    parts(f, text, cuts, false)
}

/// EMQX's `substr(text, start)` counts from 0.
fn substr<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let start = a.size(1)?;
    let len = if a.len() == 3 { a.size(2)? } else { usize::MAX };
    let text = a.text(0)?;
    f.budget.scan(text.len())?;
    Ok(cut(text, |text| {
        let place = |chars: usize, text: &str| {
            text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
        };
        let rest = &text[place(start, text)..];
        &rest[..place(len, rest)]
    }))
}

fn unescape<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let text = a.text(0)?;
    room(f.budget, 2 * text.len())?;
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
                let (high, low) = (chars.next(), chars.next());
                let digit = |c: Option<char>| c.and_then(|c| c.to_digit(16));
                match (digit(high), digit(low)) {
                    (Some(high), Some(low)) => char::from((high * 16 + low) as u8),
                    _ => return a.no("\\x needs two hexadecimal digits"),
                }
            }
            _ => return a.no("there is an escape that nobody knows"),
        });
    }
    Ok(Value::Text(out.into()))
}
