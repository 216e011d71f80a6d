//! HOCON as NanoMQ and EMQX write it: objects with or without braces, `key = value`, `key : value`
//! and `key { }`, dots in keys, comments, unquoted text, lists, `include "FILE"`, `${name}`, and
//! repeated keys. This crate has its own parser because every value needs its line, which
//! `hocon-parser` and `hocon-rs` do not report.
//!
//! Invariant: any text ends in a tree or in errors, with work bounded by its length.

mod merge;
mod resolve;

use super::config_tree::{
    self, ConfigFields, ConfigFolder, ConfigNode, ConfigTree, SourceLocation,
};
use merge::{key_twice, merge, put_field};
use std::rc::Rc;

/// The project whose interpretation of HOCON applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoconDialect {
    Standard,
    /// EMQX's versions differ in whether dots in a quoted key separate a path.
    Emqx,
    /// NanoMQ's versions differ in which of two values of a key counts, in escapes, and in whether
    /// a blank after a word belongs to the word. Keys match in any case.
    NanoMq,
}

/// Returns the tree with all names resolved, or every error.
pub(super) fn read(
    text: &str,
    dialect: HoconDialect,
    file: Rc<str>,
    folder: &ConfigFolder,
) -> Result<ConfigNode, Vec<String>> {
    let place = SourceLocation { file: file.clone(), line: 1 };
    let mut includes = INCLUDES_MAX;
    let fields = parse(text, dialect, file, folder, &mut includes).map_err(|why| vec![why])?;
    resolve::resolve(ConfigNode { place, tree: ConfigTree::Object(fields) })
        .map_err(|why| vec![why])
}

fn parse(
    text: &str,
    dialect: HoconDialect,
    file: Rc<str>,
    folder: &ConfigFolder,
    includes: &mut usize,
) -> Result<ConfigFields, String> {
    if is_terms(text) {
        // Access rules in Erlang terms have a language of their own.
        let place = SourceLocation { file, line: 1 };
        return Ok(vec![(TERMS.to_string(), ConfigNode::text_at(&place, text))]);
    }
    let text = text.trim_start_matches('\u{feff}');
    let mut parser = HoconParser { rest: text, dialect, line: 1, file, depth: 0, folder, includes };
    parser.skip_gap();
    let has_braces = parser.rest.starts_with('{');
    if has_braces {
        parser.skip(1);
    }
    let fields = parser.fields(has_braces)?;
    parser.skip_gap();
    match parser.rest.chars().next() {
        None => Ok(fields),
        Some(char) => Err(parser.wrong(&format!("{char:?} closes nothing, leave it out"))),
    }
}

/// Key under which a missing included file is recorded.
pub(super) const MISSING_INCLUDE: &str = "include, which is not there";

/// Key under which a file of Erlang terms is stored.
pub(super) const TERMS: &str = "terms";

fn is_terms(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('%'));
    let inside = first.and_then(|line| line.strip_prefix('{')).map(str::trim_start);
    inside.is_some_and(|line| {
        ["allow", "deny"].iter().any(|word| {
            let rest = line.strip_prefix(word).map(str::trim_start);
            rest.is_some_and(|rest| rest.starts_with(',') || rest.starts_with('}'))
        })
    })
}

const DEPTH_MAX: usize = 32;
const INCLUDES_MAX: usize = 64;

struct HoconParser<'a, 'b> {
    rest: &'a str,
    dialect: HoconDialect,
    line: usize,
    file: Rc<str>,
    depth: usize,
    folder: &'b ConfigFolder,
    includes: &'b mut usize,
}

impl<'a> HoconParser<'a, '_> {
    fn place(&self) -> SourceLocation {
        SourceLocation { file: self.file.clone(), line: self.line }
    }

    fn wrong(&self, why: &str) -> String {
        format!("{}: {why}", self.place())
    }

    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// Skips white space except line ends. Returns whether any was skipped.
    fn skip_spaces(&mut self) -> bool {
        let blank = |char: char| char.is_ascii_whitespace() && char != '\n';
        let len = self.rest.len() - self.rest.trim_start_matches(blank).len();
        self.skip(len);
        len > 0
    }

    fn is_comment(&self) -> bool {
        self.rest.starts_with('#') || self.rest.starts_with("//")
    }

    fn skip_comment(&mut self) {
        if self.is_comment() {
            let len = self.rest.find('\n').unwrap_or(self.rest.len());
            self.skip(len);
        }
    }

    /// Skips white space, line ends, commas and comments.
    fn skip_gap(&mut self) {
        loop {
            let before = self.rest.len();
            let blank = |char: char| char.is_ascii_whitespace() || char == ',';
            let len = self.rest.len() - self.rest.trim_start_matches(blank).len();
            self.skip(len);
            self.skip_comment();
            if self.rest.len() == before {
                return;
            }
        }
    }

    /// Reads fields up to the closing brace, or to the end of the file without braces.
    fn fields(&mut self, has_braces: bool) -> Result<ConfigFields, String> {
        let opened = self.place();
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(&format!("deeper than {DEPTH_MAX} braces, use fewer")));
        }
        let mut fields = ConfigFields::new();
        loop {
            self.skip_gap();
            if self.rest.starts_with('}') && has_braces {
                self.skip(1);
                break;
            }
            if self.rest.is_empty() {
                if has_braces {
                    return Err(format!("{opened}: this brace is never closed, use }}"));
                }
                break;
            }
            if self.rest.starts_with('}') && !has_braces {
                break;
            }
            self.field(&mut fields)?;
        }
        self.depth -= 1;
        Ok(fields)
    }

    fn field(&mut self, fields: &mut ConfigFields) -> Result<(), String> {
        let place = self.place();
        if let Some(included) = self.include()? {
            included.iter().try_for_each(|(key, node)| {
                self.check_twice(fields, std::slice::from_ref(key), node)
            })?;
            merge(fields, included);
            return Ok(());
        }
        let path = self.path()?;
        self.gap_before_value();
        let appends = self.rest.starts_with("+=");
        if appends {
            self.skip(2);
        } else if self.rest.starts_with(['=', ':']) {
            self.skip(1);
        } else if !self.rest.starts_with('{') {
            let key = path.join(".");
            return Err(format!("{place}: {key} has no value, use {key} = VALUE"));
        }
        self.gap_before_value();
        let value = self.value()?;
        let value = match value.tree {
            // The value gets the line of its key.
            ConfigTree::Pieces(_) | ConfigTree::Variable { .. } | ConfigTree::Override(_) => value,
            tree => ConfigNode { place, tree },
        };
        self.check_twice(fields, &path, &value)?;
        put_field(fields, &path, value, appends);
        Ok(())
    }

    /// Refuses a repeated key in NanoMQ's dialect, whose versions differ in which value counts.
    fn check_twice(
        &self,
        fields: &ConfigFields,
        path: &[String],
        value: &ConfigNode,
    ) -> Result<(), String> {
        if self.dialect != HoconDialect::NanoMq {
            return Ok(());
        }
        match key_twice(fields, path, &value.tree) {
            Some(key) => Err(format!("{}: {key} stands twice, leave one out", value.place)),
            None => Ok(()),
        }
    }

    /// Skips white space, line ends and comments before a value.
    fn gap_before_value(&mut self) {
        loop {
            let len = self.rest.len() - self.rest.trim_ascii_start().len();
            self.skip(len);
            if !self.is_comment() {
                return;
            }
            self.skip_comment();
        }
    }

    fn include(&mut self) -> Result<Option<ConfigFields>, String> {
        let Some(after) = self.rest.strip_prefix("include") else { return Ok(None) };
        let inside = after.trim_start_matches(|char: char| {
            char.is_ascii_whitespace() && char != '\n' || char == '(' || char.is_ascii_lowercase()
        });
        if !after.starts_with([' ', '\t']) || !inside.starts_with('"') {
            return Ok(None);
        }
        self.skip(self.rest.len() - inside.len());
        let place = self.place();
        let name = self.quoted()?.text;
        let len = self.rest.len() - self.rest.trim_start_matches([')', ' ']).len();
        self.skip(len);
        let wrong = |why: String| format!("{place}: include: {why}");
        *self.includes = self.includes.checked_sub(1).ok_or_else(|| {
            wrong(format!("more than {INCLUDES_MAX} files, or one that includes itself"))
        })?;
        let path = match self.folder.find_beside(&self.file, &name) {
            Ok(path) => path,
            Err(why) => {
                let node = ConfigNode::text_at(&place, &format!("include: {why}"));
                return Ok(Some(vec![(MISSING_INCLUDE.to_string(), node)]));
            }
        };
        let (file, text) = config_tree::read_included(&path).map_err(wrong)?;
        parse(&text, self.dialect, file, self.folder, self.includes).map(Some)
    }

    /// Reads a key as its words: `a.b."c.d"` has three.
    fn path(&mut self) -> Result<Vec<String>, String> {
        let (mut path, mut word, mut was_quoted) = (Vec::new(), String::new(), false);
        loop {
            match self.rest.chars().next() {
                Some('"') => {
                    let quoted = self.quoted()?.text;
                    if self.dialect == HoconDialect::Emqx && quoted.contains('.') {
                        let right = "write it without quotes where they are those of a path";
                        return Err(
                            self.wrong(&format!("{quoted:?} has points in quotes: {right}"))
                        );
                    }
                    word += &quoted;
                    was_quoted = true;
                }
                Some('.') => {
                    self.skip(1);
                    path.push(std::mem::take(&mut word));
                    was_quoted = false;
                }
                Some(char) if !"=:{}[],+#\n".contains(char) => {
                    self.skip(char.len_utf8());
                    word.push(char);
                }
                _ => break,
            }
        }
        path.push(word);
        let path: Vec<String> = path.iter().map(|word| word.trim_ascii().to_string()).collect();
        let is_empty = path.iter().any(String::is_empty) && !was_quoted;
        if is_empty || path.len() > DEPTH_MAX {
            return Err(self.wrong("here a key has to stand, use NAME = VALUE"));
        }
        Ok(path)
    }

    /// Reads a value: one piece, or several adjacent pieces.
    fn value(&mut self) -> Result<ConfigNode, String> {
        let place = self.place();
        let mut pieces: Vec<ConfigNode> = Vec::new();
        let mut is_word = false;
        loop {
            let before = self.rest;
            let spaced = self.skip_spaces();
            if spaced && is_word && self.dialect == HoconDialect::NanoMq {
                pieces.last_mut().into_iter().for_each(ConfigNode::make_unclear);
            }
            let Some(char) = self.rest.chars().next() else { break };
            if "\n,}]".contains(char)
                || char == '#'
                || (spaced || pieces.is_empty()) && self.is_comment()
            {
                break;
            }
            let gap = &before[..before.len() - self.rest.len()];
            if spaced && !pieces.is_empty() {
                pieces.push(ConfigNode::text_at(&place, gap));
            }
            is_word = !"\"{[$".contains(char);
            pieces.push(self.piece(char)?);
        }
        let has_object = pieces.iter().any(|piece| matches!(piece.tree, ConfigTree::Object(_)));
        if self.dialect == HoconDialect::NanoMq && has_object && pieces.len() > 1 {
            return Err(format!("{place}: only one object can be a value, use one"));
        }
        match pieces.len() {
            0 => Err(format!("{place}: a value is missing here, use one or leave out the key")),
            1 => Ok(pieces.remove(0)),
            _ => Ok(ConfigNode { place, tree: ConfigTree::Pieces(pieces) }),
        }
    }

    fn piece(&mut self, first: char) -> Result<ConfigNode, String> {
        let place = self.place();
        let tree = match first {
            '{' => {
                self.skip(1);
                ConfigTree::Object(self.fields(true)?)
            }
            '[' => ConfigTree::List(self.list()?),
            '"' => self.quoted()?.into_tree(),
            '$' if self.rest.starts_with("${") => {
                let Some(end) = self.rest.find('}') else {
                    return Err(self.wrong("${ is never closed, use ${NAME}"));
                };
                let inside = &self.skip(end + 1)[2..end];
                let optional = inside.starts_with('?');
                let path = inside.trim_start_matches('?').trim().to_string();
                ConfigTree::Variable { path, optional }
            }
            _ => match self.unquoted()? {
                word if word == "null" => ConfigTree::Null,
                word => ConfigTree::Text(word),
            },
        };
        Ok(ConfigNode { place, tree })
    }

    /// Reads an unquoted word. Files of the projects contain unquoted URLs.
    fn unquoted(&mut self) -> Result<String, String> {
        let stops = |char: char| char.is_ascii_whitespace() || "\"{}[],#".contains(char);
        let mut len = self.rest.find(stops).unwrap_or(self.rest.len());
        if let Some(named) = self.rest[..len].find("${") {
            len = named;
        }
        // A character that starts no value must be an error, or the reader would never advance.
        if len == 0 {
            return Err(self.wrong("no value begins so, use text in quotes"));
        }
        Ok(self.skip(len).to_string())
    }

    fn list(&mut self) -> Result<Vec<ConfigNode>, String> {
        let opened = self.place();
        self.skip(1);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(&format!("deeper than {DEPTH_MAX} brackets, use fewer")));
        }
        let mut nodes = Vec::new();
        loop {
            self.skip_gap();
            if self.rest.starts_with(']') {
                self.skip(1);
                self.depth -= 1;
                return Ok(nodes);
            }
            if self.rest.is_empty() || self.rest.starts_with('}') {
                return Err(format!("{opened}: this bracket is never closed, use ]"));
            }
            nodes.push(self.value()?);
        }
    }

    /// Reads quoted text: `"..."` with JSON's escapes, or raw `"""..."""`. Older versions of EMQX
    /// have escapes in the latter too, do not know `\u` and `\/`, and drop a quote at the end.
    fn quoted(&mut self) -> Result<QuotedText, String> {
        let opened = self.place();
        let never = || format!("{opened}: this quote is never closed");
        if self.rest.starts_with("\"\"\"") {
            self.skip(3);
            let end = self.rest.find("\"\"\"").ok_or_else(never)?;
            let text = self.skip(end).to_string();
            self.skip(3);
            let is_unclear = text.contains('\\') || text.starts_with('"') || text.ends_with('"');
            let text = text.strip_prefix("~\n").map_or(text.clone(), without_indent);
            return Ok(QuotedText { text, is_unclear });
        }
        self.skip(1);
        let (mut text, mut is_unclear) = (String::new(), false);
        loop {
            match self.rest.chars().next() {
                None | Some('\n') => return Err(never()),
                Some('"') => {
                    self.skip(1);
                    is_unclear |= text.starts_with('"') || text.ends_with('"');
                    return Ok(QuotedText { text, is_unclear });
                }
                Some('\\') => {
                    is_unclear |= self.dialect == HoconDialect::NanoMq
                        || self.rest[1..].starts_with(['u', '/']);
                    text.push(self.escape()?);
                }
                Some(char) => {
                    self.skip(char.len_utf8());
                    text.push(char);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let letter = self.rest[1..].chars().next().unwrap_or_default();
        let char = match letter {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '"' | '\\' | '/' => letter,
            'u' => {
                let digits = self.rest.get(2..6).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let char = digits.and_then(char::from_u32);
                let char = char.ok_or_else(|| self.wrong("\\u needs four hexadecimal digits"))?;
                self.skip(6);
                return Ok(char);
            }
            _ => return Err(self.wrong("no such escape, use \\\\ for a backslash")),
        };
        self.skip(2);
        Ok(char)
    }
}

/// Removes the common indentation of text between `"""~` and `~"""`, as EMQX and NanoMQ do.
fn without_indent(text: &str) -> String {
    let text = text.strip_suffix('~').unwrap_or(text);
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let common = lines().map(indent).min().unwrap_or(0);
    let line = |line: &str| line.get(common..).unwrap_or_default().to_string();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Text inside quotes, without the quotes and escapes.
struct QuotedText {
    text: String,
    /// Whether other versions of the original read the text differently.
    is_unclear: bool,
}

impl QuotedText {
    fn into_tree(self) -> ConfigTree {
        match self.is_unclear {
            true => ConfigTree::UnclearText(self.text),
            false => ConfigTree::Text(self.text),
        }
    }
}

#[cfg(test)]
mod tests;
