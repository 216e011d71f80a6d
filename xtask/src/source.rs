//! A Rust file as the checks see it: its text, its code without comments and literals, its comments
//! alone, and which lines are test code. Blanking keeps every byte's position, so a line number
//! found in one view is right in all of them.

/// A parsed file; lines count from 0 here and from 1 in findings.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
    /// Code only: comments and the contents of strings and characters are spaces.
    pub(crate) code: String,
    /// Comments only.
    pub(crate) comments: String,
    /// For each line, whether it is test code.
    pub(crate) test: Vec<bool>,
}

/// A function: its name, the line of `fn` and the line of its closing brace.
pub(crate) struct FunctionSpan {
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> SourceFile {
        let (code, comments) = split_comments(text);
        let mut source = SourceFile {
            path: path.to_string(),
            text: text.to_string(),
            test: vec![is_test_path(path); text.lines().count()],
            code,
            comments,
        };
        source.mark_test_blocks();
        source
    }

    /// Returns every function with a body, in order; a nested function follows its outer function.
    pub(crate) fn functions(&self) -> Vec<FunctionSpan> {
        let mut found = Vec::new();
        for at in word_positions(&self.code, "fn") {
            let rest = &self.code[at + 2..];
            let name = identifier(rest.trim_start());
            if name.is_empty() {
                continue;
            }
            if let Some((open, close)) = body_range(&self.code, at) {
                debug_assert!(open < close);
                let first = line_of(&self.code, at);
                found.push(FunctionSpan { name, first, last: line_of(&self.code, close) });
            }
        }
        found
    }

    /// Returns the names in `#[cfg(test)] mod name;`: a file of this name is test code.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let mut names = Vec::new();
        for at in match_positions(&self.code, "#[cfg(test)]") {
            let rest = self.code[at + "#[cfg(test)]".len()..].trim_start();
            let rest = rest.strip_prefix("pub(crate) ").unwrap_or(rest);
            if let Some(rest) = rest.strip_prefix("mod ") {
                let name = identifier(rest);
                if rest[name.len()..].trim_start().starts_with(';') {
                    names.push(name);
                }
            }
        }
        names
    }

    fn mark_test_blocks(&mut self) {
        let mut spans = Vec::new();
        for marker in ["#[cfg(test)]", "#[test]"] {
            for at in match_positions(&self.code, marker) {
                let end = body_range(&self.code, at).map_or_else(
                    || self.code[at..].find(';').map_or(at, |n| at + n),
                    |(_, close)| close,
                );
                spans.push((line_of(&self.code, at), line_of(&self.code, end)));
            }
        }
        for (first, last) in spans {
            let end = self.test.len().min(last + 1);
            self.test[first..end].fill(true);
        }
    }
}

/// Whether the path alone marks a file as test code.
fn is_test_path(path: &str) -> bool {
    let in_folder = |name: &str| path.starts_with(name) || path.contains(&format!("/{name}"));
    let stem = path.rsplit('/').next().unwrap_or(path);
    in_folder("tests/")
        || in_folder("benches/")
        || stem == "tests.rs"
        || stem.ends_with("_tests.rs")
}

/// Returns the positions of the opening and closing brace of the item at `from`, if the item has a
/// body.
fn body_range(code: &str, from: usize) -> Option<(usize, usize)> {
    let (mut round, mut depth, mut open) = (0i32, 0i32, None);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' if depth == 0 => round += 1,
            b')' | b']' if depth == 0 => round -= 1,
            b';' if depth == 0 && round == 0 => return None,
            b'{' => {
                open = open.or(Some(at));
                depth += 1;
            }
            b'}' => {
                depth -= 1;
                if depth <= 0 {
                    return open.map(|open| (open, at));
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits text into its code and its comments, each as long as the text.
fn split_comments(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let (mut code, mut comments) = (blank(bytes), blank(bytes));
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            let end = at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            comments[at..end].copy_from_slice(&bytes[at..end]);
            at = end;
        } else if rest.starts_with(b"/*") {
            let end = at + block_comment_len(rest);
            comments[at..end].copy_from_slice(&bytes[at..end]);
            at = end;
        } else if let Some(len) = literal_len(bytes, at) {
            code[at] = b'"';
            code[at + len - 1] = b'"';
            at += len;
        } else {
            code[at] = bytes[at];
            at += 1;
        }
    }
    (printable(code), printable(comments))
}

fn blank(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }).collect()
}

/// Replaces bytes outside ASCII by `?`, so cutting at any byte is safe.
fn printable(bytes: Vec<u8>) -> String {
    bytes.into_iter().map(|b| if b.is_ascii() { char::from(b) } else { '?' }).collect()
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length of a string or character literal at `at`, or `None` without a literal.
fn literal_len(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    match rest[0] {
        b'"' => Some(quoted_len(rest, b'"')),
        b'\'' => char_literal_len(rest),
        b'r' | b'b' | b'c' if !after_word => raw_string_len(rest),
        _ => None,
    }
}

/// Returns the length of a raw string with any prefix: `r"`, `r#"`, `br##"`, `cr"`.
fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let r = rest.iter().take(2).position(|b| *b == b'r')?;
    let hashes = rest[r + 1..].iter().take_while(|b| **b == b'#').count();
    let open = r + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let inside = &rest[open + 1..];
    let end = inside.windows(close.len()).position(|w| w == close).map_or(inside.len(), |n| n);
    Some((open + 1 + end + close.len()).min(rest.len()))
}

fn quoted_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal; `None` for a lifetime, which has no closing quote.
fn char_literal_len(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted_len(rest, b'\''));
    }
    let width = rest.iter().skip(2).take_while(|b| **b & 0xC0 == 0x80).count();
    (rest.get(1) != Some(&b'\'') && rest.get(2 + width) == Some(&b'\'')).then_some(width + 3)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

pub(crate) fn identifier(text: &str) -> String {
    text.bytes().take_while(|b| is_word(*b)).map(char::from).collect()
}

/// Returns the positions of `text` in `code`.
pub(crate) fn match_positions(code: &str, text: &str) -> Vec<usize> {
    code.match_indices(text).map(|(at, _)| at).collect()
}

/// Returns the positions of `text` in `code` as whole words: `Base` is not in `SqlDatabase`.
pub(crate) fn word_positions(code: &str, text: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let bound = |at: usize| !bytes.get(at).is_some_and(|b| is_word(*b));
    let first = text.as_bytes().first().is_some_and(|b| is_word(*b));
    let last = text.as_bytes().last().is_some_and(|b| is_word(*b));
    let starts = |at: usize| !first || at == 0 || bound(at - 1);
    let ends = |at: usize| !last || bound(at + text.len());
    match_positions(code, text).into_iter().filter(|at| starts(*at) && ends(*at)).collect()
}

/// Returns the line of a byte position, counted from 0.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_characters_and_comments_are_not_code() {
        let text = "let a = \"fn {\"; // fn }\n\
                    let b = '{'; let c = r#\"\"{\"#; /* { /* */ */ d::<'a>()";
        let source = SourceFile::new("crates/mqtt/src/a.rs", text);
        let code: Vec<_> = source.code.lines().collect();
        let blank = " ".repeat(13);
        let second = format!("let b = \" \"; let c = \"     \"; {blank} d::<'a>()");
        assert_eq!(code, ["let a = \"    \";        ", &second]);
        let found: Vec<_> = source.comments.lines().map(str::trim).collect();
        assert_eq!(found, ["// fn }", "/* { /* */ */"]);
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "fn a(x: [u8; 2]) {\n if x { b'{' }\n \"}\"\n}\n\
                    trait T { fn none(&self);\n fn b() {} }\n";
        let source = SourceFile::new("crates/a/src/a.rs", text);
        let found: Vec<_> =
            source.functions().into_iter().map(|f| (f.name, f.first, f.last)).collect();
        assert_eq!(found, [("a".to_string(), 0, 3), ("b".to_string(), 5, 5)]);
    }

    #[test]
    fn a_test_block_is_test_code_and_the_rest_is_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n\
                    #[cfg(test)]\nmod d;\n";
        let source = SourceFile::new("crates/a/src/a.rs", text);
        assert_eq!(source.test, [false, true, true, true, true, false, true, true]);
        assert_eq!(source.test_modules(), ["d"]);
    }
}
