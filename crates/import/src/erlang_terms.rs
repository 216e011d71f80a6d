//! The language of `acl.conf`: Erlang's terms, each of which ends with a point.

/// A term of Erlang: atom, list, text or tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ErlangTerm {
    Atom(String),
    List(Vec<ErlangTerm>),
    Text(String),
    Tuple(Vec<ErlangTerm>),
}

impl ErlangTerm {
    pub(super) fn is_atom(&self, word: &str) -> bool {
        matches!(self, ErlangTerm::Atom(atom) if atom == word)
    }

    pub(super) fn is_ascii(&self) -> bool {
        match self {
            ErlangTerm::Atom(text) | ErlangTerm::Text(text) => text.is_ascii(),
            ErlangTerm::List(terms) | ErlangTerm::Tuple(terms) => {
                terms.iter().all(ErlangTerm::is_ascii)
            }
        }
    }
}

/// Reads a sequence of terms, each with its line.
pub(super) struct TermReader<'a> {
    rest: &'a str,
    pub(super) line: usize,
    depth: usize,
}

const DEPTH_MAX: usize = 16;

/// Words that are not atoms without quotes (Erlang Reference Manual, 2.3).
const RESERVED: &[&str] = &[
    "after", "and", "andalso", "band", "begin", "bnot", "bor", "bsl", "bsr", "bxor", "case",
    "catch", "cond", "div", "else", "end", "fun", "if", "let", "maybe", "not", "of", "or",
    "orelse", "receive", "rem", "try", "when", "xor",
];

/// Reads an escape after the backslash (Erlang Reference Manual, 3.15), and returns the character
/// and the rest of the text.
fn read_escape(text: &str) -> Result<(char, &str), String> {
    let wrong = || "no such escape, use \\\\ for a backslash".to_string();
    let first = text.chars().next().ok_or_else(wrong)?;
    let after = &text[first.len_utf8()..];
    let of_code = |code: u32| char::from_u32(code).ok_or_else(wrong);
    let char = match first {
        '0'..='7' => {
            let len = text.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            let code = u32::from_str_radix(&text[..len], 8).map_err(|_| wrong())?;
            return Ok((of_code(code)?, &text[len..]));
        }
        'x' => {
            let (digits, rest) = match after.strip_prefix('{') {
                Some(inside) => inside.split_once('}').ok_or_else(wrong)?,
                None => (after.get(..2).ok_or_else(wrong)?, after.get(2..).ok_or_else(wrong)?),
            };
            let code = u32::from_str_radix(digits, 16).map_err(|_| wrong())?;
            return Ok((of_code(code)?, rest));
        }
        '^' => {
            let control = after.chars().next().filter(char::is_ascii).ok_or_else(wrong)?;
            return Ok((of_code(u32::from(control) & 31)?, &after[1..]));
        }
        'b' => '\u{8}',
        'd' => '\u{7f}',
        'e' => '\u{1b}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        's' => ' ',
        't' => '\t',
        'v' => '\u{b}',
        other => other,
    };
    Ok((char, after))
}

impl<'a> TermReader<'a> {
    pub(super) fn new(text: &'a str, line: usize) -> TermReader<'a> {
        TermReader { rest: text, line, depth: 0 }
    }

    /// Returns the next term with its line; `None` at the end.
    pub(super) fn next_term(&mut self) -> Option<(usize, Result<ErlangTerm, String>)> {
        self.skip_blank();
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        Some((line, self.read_term().and_then(|term| self.expect_end().map(|()| term))))
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    fn skip_blank(&mut self) {
        loop {
            let is_blank = |c: char| c <= ' ';
            self.skip(self.rest.len() - self.rest.trim_start_matches(is_blank).len());
            if !self.rest.starts_with('%') {
                return;
            }
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn expect_end(&mut self) -> Result<(), String> {
        self.skip_blank();
        match self.rest.strip_prefix('.') {
            Some(rest) if rest.is_empty() || rest.starts_with(|c: char| c <= ' ' || c == '%') => {
                self.skip(1);
                Ok(())
            }
            Some(_) => Err("behind the point of a rule a blank or a new line has to stand".into()),
            None => Err("a rule ends with a point, as {allow, all}.".into()),
        }
    }

    fn read_term(&mut self) -> Result<ErlangTerm, String> {
        self.skip_blank();
        match self.rest.chars().next() {
            Some('{') => self.read_terms('}').map(ErlangTerm::Tuple),
            Some('[') => self.read_terms(']').map(ErlangTerm::List),
            Some('<') if self.rest.starts_with("<<\"") => {
                self.skip(2);
                let text = self.quoted('"')?;
                let end = ["/utf8>>", ">>"].into_iter().find(|end| self.rest.starts_with(end));
                let end = end.ok_or("<<\" is never closed, use <<\"text\">>")?;
                if end == ">>" && !text.is_ascii() {
                    return Err("text beyond ASCII is cut to bytes, use <<\"text\"/utf8>>".into());
                }
                self.skip(end.len());
                Ok(ErlangTerm::Text(text))
            }
            Some('"') => self.quoted('"').map(ErlangTerm::Text),
            Some('\'') => self.quoted('\'').map(ErlangTerm::Atom),
            _ => {
                let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '@';
                let len = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                if self.rest.starts_with('#') {
                    return Err("a comment begins with %, and not with #".into());
                }
                if len == 0 {
                    return Err("no value begins so, use {allow, WHO, DEED, [TOPICS]}.".into());
                }
                let word = self.rest[..len].to_string();
                if RESERVED.contains(&word.as_str()) {
                    return Err(format!("{word} is a word of Erlang, use '{word}'"));
                }
                self.skip(len);
                Ok(ErlangTerm::Atom(word))
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let (mut text, mut rest) = (String::new(), &self.rest[1..]);
        while let Some(char) = rest.chars().next() {
            rest = &rest[char.len_utf8()..];
            match char {
                '\\' => {
                    let (escaped, after) = read_escape(rest)?;
                    text.push(escaped);
                    rest = after;
                }
                _ if char == quote => {
                    self.skip(self.rest.len() - rest.len());
                    return Ok(text);
                }
                _ => text.push(char),
            }
        }
        Err("a quote is never closed".to_string())
    }

    fn read_terms(&mut self, end: char) -> Result<Vec<ErlangTerm>, String> {
        self.skip(1);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("deeper than {DEPTH_MAX} braces, use fewer"));
        }
        let mut terms = Vec::new();
        loop {
            self.skip_blank();
            if self.rest.starts_with(end) {
                self.skip(1);
                self.depth -= 1;
                return Ok(terms);
            }
            if !terms.is_empty() {
                if !self.rest.starts_with(',') {
                    return Err(format!("use a comma, or {end} where it ends"));
                }
                self.skip(1);
            }
            terms.push(self.read_term()?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_with_their_lines() {
        let mut reader = TermReader::new("% x\n{deny, \"a\\\"b\"}.\n\n[<<\"t\">>, 'and', 2].", 1);
        let (line, term) = reader.next_term().unwrap();
        assert_eq!(line, 2);
        let text = |text: &str| ErlangTerm::Text(text.to_string());
        assert_eq!(
            term,
            Ok(ErlangTerm::Tuple(vec![ErlangTerm::Atom("deny".into()), text("a\"b")]))
        );
        let (line, term) = reader.next_term().unwrap();
        let atom = |text: &str| ErlangTerm::Atom(text.to_string());
        assert_eq!(
            (line, term),
            (4, Ok(ErlangTerm::List(vec![text("t"), atom("and"), atom("2")])))
        );
        assert!(reader.next_term().is_none());
        assert!(TermReader::new("\"a", 1).next_term().unwrap().1.is_err());
        assert!(TermReader::new("<<\"a\"", 1).next_term().unwrap().1.is_err());
    }
}
