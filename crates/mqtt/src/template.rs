//! Texts with placeholders: the parser of `${name}`, `%c` and `$1` for names, queries, bodies and
//! paths. The caller defines which placeholders are valid, their values and how a value is escaped.

use std::convert::Infallible;
use std::fmt;

/// Text, parsed into literal parts and placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTemplate<P> {
    parts: Vec<TemplatePart<P>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart<P> {
    /// Literal text: not empty, and never next to another [`TemplatePart::Text`].
    Text(String),
    Value(P),
}

/// Parse error of a template, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Number of characters before the placeholder.
    pub at: usize,
    pub why: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.why)
    }
}

impl std::error::Error for TemplateError {}

impl From<TemplateError> for String {
    fn from(error: TemplateError) -> String {
        error.to_string()
    }
}

/// Returns the error text for an unknown placeholder, with a list of the known placeholders.
pub fn unknown_placeholder<'n>(
    placeholder: &str,
    known: impl IntoIterator<Item = &'n str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let known = match known.split_last() {
        Some((last, [before])) => format!("{before} or {last}"),
        Some((last, front)) if !front.is_empty() => {
            format!("one of {} or {last}", front.join(", "))
        }
        _ => known.concat(),
    };
    format!("{placeholder} is an unknown variable, use {known}")
}

/// Output of a template: text or bytes.
pub trait TemplateOutput {
    fn push_text(&mut self, text: &str);
}

impl TemplateOutput for String {
    fn push_text(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl TemplateOutput for Vec<u8> {
    fn push_text(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

impl<P> Default for TextTemplate<P> {
    fn default() -> TextTemplate<P> {
        TextTemplate { parts: Vec::new() }
    }
}

impl<P> TextTemplate<P> {
    /// Parses a text whose only placeholders are `${name}`.
    pub fn parse(
        text: &str,
        mut name: impl FnMut(&str) -> Result<P, String>,
    ) -> Result<TextTemplate<P>, TemplateError> {
        let name = |inside: &str| name(inside).map(TemplatePart::Value);
        TextTemplate::parse_parts(text, Some(name), |_| Ok(None))
    }

    /// Parses a text that has further placeholders, or placeholders with a value known at parse
    /// time. `sign` receives the rest of the text from a `%`, or from a `$` without a brace, and
    /// returns the part at this position and its length in bytes. If `sign` returns `None`, the
    /// character is literal text.
    pub fn parse_signs(
        text: &str,
        name: impl FnMut(&str) -> Result<TemplatePart<P>, String>,
        sign: impl FnMut(&str) -> Result<Option<(TemplatePart<P>, usize)>, String>,
    ) -> Result<TextTemplate<P>, TemplateError> {
        TextTemplate::parse_parts(text, Some(name), sign)
    }

    /// Parses a text without `${name}`: a brace is literal text. This parser does not fail.
    pub fn parse_letters(
        text: &str,
        mut sign: impl FnMut(&str) -> Option<(TemplatePart<P>, usize)>,
    ) -> TextTemplate<P> {
        let no_name = None::<fn(&str) -> Result<TemplatePart<P>, String>>;
        TextTemplate::parse_parts(text, no_name, |rest| Ok(sign(rest))).expect("nothing fails")
    }

    fn parse_parts(
        text: &str,
        mut name: Option<impl FnMut(&str) -> Result<TemplatePart<P>, String>>,
        mut sign: impl FnMut(&str) -> Result<Option<(TemplatePart<P>, usize)>, String>,
    ) -> Result<TextTemplate<P>, TemplateError> {
        let mut template = TextTemplate::default();
        let mut at = 0;
        while let Some(plain) = text[at..].find(['$', '%']) {
            template.push_text(&text[at..at + plain]);
            at += plain;
            let rest = &text[at..];
            let error = |why| TemplateError { at: text[..at].chars().count(), why };
            let inside = rest.strip_prefix("${");
            let (part, len) = match (inside, &mut name) {
                (Some(inside), Some(name)) => {
                    let no_end = || error("a ${ is without its }".to_string());
                    let (inside, _) = inside.split_once('}').ok_or_else(no_end)?;
                    (name(inside).map_err(error)?, "${}".len() + inside.len())
                }
                _ => {
                    let plain = (TemplatePart::Text(rest[..1].to_string()), 1);
                    sign(rest).map_err(error)?.unwrap_or(plain)
                }
            };
            match part {
                TemplatePart::Text(text) => template.push_text(&text),
                value => template.parts.push(value),
            }
            at += len;
        }
        template.push_text(&text[at..]);
        Ok(template)
    }

    /// Appends literal text.
    pub fn push_text(&mut self, more: &str) {
        match self.parts.last_mut() {
            _ if more.is_empty() => {}
            Some(TemplatePart::Text(text)) => text.push_str(more),
            _ => self.parts.push(TemplatePart::Text(more.to_string())),
        }
    }

    pub fn parts(&self) -> &[TemplatePart<P>] {
        &self.parts
    }

    pub fn parts_mut(&mut self) -> &mut [TemplatePart<P>] {
        &mut self.parts
    }

    /// Returns the placeholders in order.
    pub fn values(&self) -> impl Iterator<Item = &P> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Value(value) => Some(value),
        })
    }

    /// Returns the placeholder if the template is a single placeholder without text.
    pub fn only_value(&self) -> Option<&P> {
        match &self.parts[..] {
            [TemplatePart::Value(value)] => Some(value),
            _ => None,
        }
    }

    /// Appends the text; `write` appends the value of each placeholder.
    pub fn fill<O: TemplateOutput>(&self, out: &mut O, mut write: impl FnMut(&P, &mut O)) {
        let Ok(()) = self.try_fill(out, |value, out| {
            write(value, out);
            Ok::<(), Infallible>(())
        });
    }

    /// Appends the text; `write` appends the value of each placeholder. Stops at the first error.
    pub fn try_fill<O: TemplateOutput, E>(
        &self,
        out: &mut O,
        mut write: impl FnMut(&P, &mut O) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_text(text),
                TemplatePart::Value(value) => write(value, out)?,
            }
        }
        Ok(())
    }

    /// Returns a query with `mark` at each placeholder, and the values in order. Returns `None` if
    /// a placeholder is inside quotes, as tracked by `quote_after`: the database would read a mark
    /// there as literal text.
    pub fn bind(
        &self,
        mark: fn(usize) -> String,
        quote_after: fn(Option<char>, &str) -> Option<char>,
    ) -> Option<(String, Vec<&P>)> {
        let (mut query, mut values, mut quote) = (String::new(), Vec::new(), None);
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => {
                    quote = quote_after(quote, text);
                    query.push_str(text);
                }
                TemplatePart::Value(_) if quote.is_some() => return None,
                TemplatePart::Value(value) => {
                    values.push(value);
                    query.push_str(&mark(values.len()));
                }
            }
        }
        Some((query, values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TextTemplate<String>, String> {
        let name = |name: &str| match name {
            "no" => Err(unknown_placeholder("${no}", ["${a}", "${b}", "${c}"])),
            name => Ok(TemplatePart::Value(name.to_string())),
        };
        let sign = |rest: &str| match rest.as_bytes() {
            [b'%', b'%', ..] => Ok(Some((TemplatePart::Text("%".into()), 2))),
            [b'%', b'c', ..] => Ok(Some((TemplatePart::Value("letter".into()), 2))),
            [b'$', b'1', ..] => Ok(Some((TemplatePart::Value("group".into()), 2))),
            [b'%', b'!', ..] => Err("wrong".into()),
            _ => Ok(None),
        };
        Ok(TextTemplate::parse_signs(text, name, sign)?)
    }

    fn filled(text: &str) -> String {
        let mut out = String::new();
        parse(text).unwrap().fill(&mut out, |name, out| out.push_str(&format!("<{name}>")));
        out
    }

    #[test]
    fn every_spelling_of_a_placeholder_is_read_and_all_else_is_text() {
        for (text, expected) in [
            ("", ""),
            ("a $ b% }{", "a $ b% }{"),
            ("x${a}${b.c[1]}y", "x<a><b.c[1]>y"),
            ("%c$1%%c$2%", "<letter><group>%c$2%"),
            ("\u{e9}${\u{e9}}$", "\u{e9}<\u{e9}>$"),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
        assert_eq!(parse("a%%b%x").unwrap().parts(), [TemplatePart::Text("a%b%x".into())]);
        assert_eq!(parse("${a}").unwrap().only_value().map(String::as_str), Some("a"));
        assert_eq!(parse("${a} ").unwrap().only_value(), None);
    }

    #[test]
    fn an_error_says_where_it_is_and_what_would_be_right() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("\u{e9}${a"), "at character 2: a ${ is without its }");
        let unknown = "at character 1: ${no} is an unknown variable, use one of ${a}, ${b} or ${c}";
        assert_eq!(error("${no}"), unknown);
        assert_eq!(error("${a}%!"), "at character 5: wrong");
        assert!(unknown_placeholder("%x", ["%a"]).ends_with("use %a"));
        assert!(unknown_placeholder("%x", ["%a", "%b"]).ends_with("use %a or %b"));
    }

    #[test]
    fn a_query_has_marks_in_the_place_of_values_outside_quotes() {
        let quote_after = |open: Option<char>, text: &str| {
            let count = text.matches('\'').count() + usize::from(open.is_some());
            (count % 2 == 1).then_some('\'')
        };
        let bind = |text: &str| {
            let template = parse(text).unwrap();
            let (query, values) = template.bind(|n| format!("?{n}"), quote_after)?;
            Some((query, values.len()))
        };
        assert_eq!(bind("a = ${a}, 'x' = ${b}"), Some(("a = ?1, 'x' = ?2".into(), 2)));
        assert_eq!(bind("a = '${a}'"), None);
    }
}
