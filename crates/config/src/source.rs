//! Readers of files which people write. A file is read as a whole, and every error carries the
//! number of its line.

use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Errors of a file: the line, counted from 1, and the reason.
pub type LineErrors = Vec<(usize, String)>;
/// A value in a TOML document with its position, for [`TomlReader::report_error`].
pub type TomlValue<'a> = Spanned<DeValue<'a>>;

/// Reads and parses a file, or returns every error as a sentence with path and line. `name` is the
/// common name of the file, and `why_text` continues the sentence "not UTF-8 text, which".
pub fn read<T>(
    path: &Path,
    name: &str,
    why_text: &str,
    parse: impl FnOnce(&str) -> Result<T, LineErrors>,
) -> Result<T, Vec<String>> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).map_err(|error| vec![describe_read_error(path, name, &error)])?;
    let parsed = text_of(&bytes, why_text).map_err(|wrong| vec![wrong]).and_then(parse);
    parsed.map_err(|wrongs| {
        wrongs.iter().map(|(line, why)| format!("{shown}:{line}: {why}")).collect()
    })
}

/// Returns an absolute path, so a message does not depend on the current folder. An empty path
/// stays empty.
pub fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Describes a failure to read a file. `name` is the common name of the file, with its option.
pub fn describe_read_error(path: &Path, name: &str, error: &std::io::Error) -> String {
    format!("{}: the {name} cannot be read: {error}", absolute_path(path).display())
}

/// Decodes UTF-8, without a byte order mark. The error has the line of the first invalid byte.
pub fn text_of<'a>(bytes: &'a [u8], why_text: &str) -> Result<&'a str, (usize, String)> {
    // Editors on some systems begin a file with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err((1, format!("UTF-16 text: save it as UTF-8, which {why_text}")));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        (line_at(bytes, error.valid_up_to()), format!("not UTF-8 text, which {why_text}"))
    })
}

/// Returns the number of the line, from 1, at byte offset `at`.
pub fn line_at(source: &[u8], at: usize) -> usize {
    1 + source[..at.min(source.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// Parses TOML, or returns syntax errors with byte offsets. The parser may misread the text after a
/// syntax error, so a document with errors is not returned.
pub fn parse_toml(source: &str) -> Result<Spanned<DeTable<'_>>, Vec<(usize, String)>> {
    let (document, errors) = DeTable::parse_recoverable(source);
    let why = |error: &toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        (at, format!("not TOML: {}", error.message()))
    };
    if errors.is_empty() { Ok(document) } else { Err(errors.iter().map(why).collect()) }
}

/// Reader of a TOML document which collects errors instead of stopping at the first.
pub struct TomlReader<'a> {
    source: &'a str,
    wrongs: LineErrors,
}

impl<'a> TomlReader<'a> {
    /// Parses `source` and passes the document to `understand`. Returns the result of `understand`
    /// only if no error was reported.
    pub fn read<T>(
        source: &'a str,
        understand: impl FnOnce(&mut TomlReader<'a>, &DeTable<'_>) -> T,
    ) -> Result<T, LineErrors> {
        let mut reader = TomlReader { source, wrongs: Vec::new() };
        let understood = match parse_toml(source) {
            Ok(document) => Some(understand(&mut reader, document.get_ref())),
            Err(errors) => {
                errors.into_iter().for_each(|(at, why)| reader.report_error(at, why));
                None
            }
        };
        match understood {
            Some(understood) if reader.wrongs.is_empty() => Ok(understood),
            _ => Err(reader.wrongs),
        }
    }

    /// Records an error at byte offset `at`; the line is computed here.
    pub fn report_error(&mut self, at: usize, why: impl Into<String>) {
        self.wrongs.push((line_at(self.source.as_bytes(), at), why.into()));
    }

    pub fn has_errors(&self) -> bool {
        !self.wrongs.is_empty()
    }

    /// Reads a text or a list of texts. An empty list and an empty text are errors.
    pub fn read_texts(&mut self, value: &TomlValue<'_>, of: &str) -> Vec<String> {
        let one = |value: &TomlValue<'_>| match value.get_ref() {
            DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
            _ => None,
        };
        let texts: Option<Vec<String>> = match value.get_ref() {
            DeValue::Array(many) => many.iter().map(one).collect(),
            _ => one(value).map(|text| vec![text]),
        };
        match texts {
            Some(texts) if !texts.is_empty() => texts,
            _ => {
                self.report_error(
                    value.span().start,
                    format!("use {of}, as text in quotes or a list"),
                );
                Vec::new()
            }
        }
    }

    /// Reads a text or a list of texts, and parses each text. An error has the position of the
    /// whole list.
    pub fn read_parsed<T>(
        &mut self,
        value: &TomlValue<'_>,
        of: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let texts = self.read_texts(value, of);
        let mut parsed = Vec::with_capacity(texts.len());
        for text in texts {
            match parse(&text) {
                Ok(one) => parsed.push(one),
                Err(why) => self.report_error(value.span().start, why),
            }
        }
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(text_of(b"\xef\xbb\xbfann:x", "it is"), Ok("ann:x"));
        let (line, why) = text_of(b"\xff\xfea\0", "names are").unwrap_err();
        assert_eq!((line, why.as_str()), (1, "UTF-16 text: save it as UTF-8, which names are"));
    }
}
