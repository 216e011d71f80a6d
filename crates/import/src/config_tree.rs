//! The content of another broker's file as a tree in which every value has its line, and the access
//! to further files, which is limited to the folder of the first file.

use super::access::may_decide_about_access;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// Location in a file, shown as `FILE:LINE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLocation {
    pub(super) file: Rc<str>,
    pub(super) line: usize,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, Debug)]
pub(super) struct ConfigNode {
    pub(super) place: SourceLocation,
    pub(super) tree: ConfigTree,
}

pub(super) type ConfigFields = Vec<(String, ConfigNode)>;

#[derive(Clone, Debug)]
pub(super) enum ConfigTree {
    List(Vec<ConfigNode>),
    Object(ConfigFields),
    /// A key with the value `null`, which counts as absent; only until all names are resolved.
    Null,
    Text(String),
    /// Quoted text whose backslashes have another meaning in another version of the original.
    UnclearText(String),
    /// Adjacent pieces of a value; only until all names are resolved.
    Pieces(Vec<ConfigNode>),
    /// Substitution `${name}`, or `${?name}` if optional; only until all names are resolved.
    Variable {
        path: String,
        optional: bool,
    },
    /// Values of one key, the latest last. An earlier value counts if the latest is an undefined
    /// name. Only until all names are resolved.
    Override(Vec<ConfigNode>),
}

impl ConfigNode {
    pub(super) fn text_at(place: &SourceLocation, text: &str) -> ConfigNode {
        ConfigNode { place: place.clone(), tree: ConfigTree::Text(text.to_string()) }
    }

    /// Marks a text as `UnclearText`: versions of the original read it differently.
    pub(super) fn make_unclear(&mut self) {
        if let ConfigTree::Text(text) = &mut self.tree {
            self.tree = ConfigTree::UnclearText(std::mem::take(text));
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            ConfigTree::Text(text) | ConfigTree::UnclearText(text) => Some(text),
            _ => None,
        }
    }

    /// Whether any text below contains bytes that were not UTF-8 in the file.
    pub(super) fn has_invalid_utf8(&self) -> bool {
        self.any_node(&|node| {
            node.text().is_some_and(|text| text.contains(char::REPLACEMENT_CHARACTER))
        })
    }

    /// Whether any text below is `UnclearText`.
    pub(super) fn has_unclear_text(&self) -> bool {
        self.any_node(&|node| matches!(node.tree, ConfigTree::UnclearText(_)))
    }

    fn any_node(&self, holds: &impl Fn(&ConfigNode) -> bool) -> bool {
        let inside = match &self.tree {
            ConfigTree::List(nodes) | ConfigTree::Pieces(nodes) | ConfigTree::Override(nodes) => {
                nodes.iter().any(|node| node.any_node(holds))
            }
            ConfigTree::Object(fields) => fields.iter().any(|(_, node)| node.any_node(holds)),
            ConfigTree::Null
            | ConfigTree::Text(_)
            | ConfigTree::UnclearText(_)
            | ConfigTree::Variable { .. } => false,
        };
        inside || holds(self)
    }

    pub(super) fn field(&self, name: &str) -> Option<&ConfigNode> {
        match &self.tree {
            ConfigTree::Object(fields) => {
                fields.iter().find(|(key, _)| key == name).map(|(_, node)| node)
            }
            _ => None,
        }
    }

    pub(super) fn field_mut(&mut self, name: &str) -> Option<&mut ConfigNode> {
        self.fields_mut()?.iter_mut().find(|(key, _)| key == name).map(|(_, node)| node)
    }

    /// Returns the fields of an object; `None` for other values.
    pub(super) fn fields_mut(&mut self) -> Option<&mut ConfigFields> {
        match &mut self.tree {
            ConfigTree::Object(fields) => Some(fields),
            _ => None,
        }
    }

    pub(super) fn field_text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(ConfigNode::text)
    }

    /// Returns a text, or each text of a list.
    pub(super) fn texts(&self) -> Option<Vec<&str>> {
        match &self.tree {
            ConfigTree::Text(text) | ConfigTree::UnclearText(text) => Some(vec![text]),
            ConfigTree::List(nodes) => nodes.iter().map(ConfigNode::text).collect(),
            _ => None,
        }
    }
}

/// A key and its value, as passed to an `ImportRow`.
pub(super) struct ConfigEntry<'a> {
    /// The full key: `listeners.tcp.default.bind`.
    pub(super) key: String,
    /// Names in the place of each `*` of the row.
    pub(super) names: Vec<String>,
    pub(super) node: &'a ConfigNode,
}

impl ConfigEntry<'_> {
    pub(super) fn text(&self) -> Result<&str, String> {
        self.node.text().ok_or_else(|| "this is a list or in braces, use one value".to_string())
    }

    /// Returns the name in the place of the row's first `*`; empty without one.
    pub(super) fn first_wildcard(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Whether the last word, or any key below, may decide about access.
    pub(super) fn may_decide_about_access(&self) -> bool {
        fn any_key(node: &ConfigNode) -> bool {
            match &node.tree {
                ConfigTree::Object(fields) => {
                    fields.iter().any(|(key, node)| may_decide_about_access(key) || any_key(node))
                }
                ConfigTree::List(nodes) => nodes.iter().any(any_key),
                _ => false,
            }
        }
        may_decide_about_access(self.last_word()) || any_key(self.node)
    }

    /// Whether the value is a word for off.
    pub(super) fn is_switched_off(&self) -> bool {
        self.node
            .text()
            .is_some_and(|text| ["", "disabled", "false", "no", "off"].contains(&text.trim()))
    }

    /// Returns the last word of the key.
    pub(super) fn last_word(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or_default()
    }

    pub(super) fn note(&self) -> String {
        format!("{} {}", self.node.place, self.key)
    }
}

/// The folder of the first file. Files elsewhere are not read.
#[derive(Clone)]
pub(super) struct ConfigFolder {
    root: PathBuf,
}

/// Names of the projects' configuration files in their usual folders.
const FILES_IN_FOLDERS: [&str; 6] = [
    "mosquitto.conf",
    "nanomq.conf",
    "emqx.conf",
    "etc/emqx.conf",
    "cluster.hocon",
    "data/configs/cluster.hocon",
];

/// Largest size of a configuration file in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl ConfigFolder {
    pub(super) fn of_file(file: &Path) -> ConfigFolder {
        let root = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        ConfigFolder { root: root.to_path_buf() }
    }

    /// Finds a file named in the configuration. Configurations are often copied to another host
    /// first, so a file from a usual folder may also be next to the first file.
    pub(super) fn find(&self, named: &str) -> Result<PathBuf, String> {
        let named = named.replace("${EMQX_ETC_DIR}", ".");
        let path = Path::new(&named);
        let parent = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let is_usual = parent.is_none_or(|parent| FOLDERS_OF_FILES.contains(&parent.as_ref()));
        let beside = path.file_name().filter(|_| is_usual);
        let tried = [self.inside(path), beside.and_then(|name| self.inside(Path::new(name)))];
        tried.into_iter().flatten().next().ok_or_else(|| {
            format!("{named:?} is not in the folder of the first file, put it there")
        })
    }

    /// Finds an included file, first in the folder of the including file.
    pub(super) fn find_beside(&self, file: &str, named: &str) -> Result<PathBuf, String> {
        let beside = Path::new(file).parent().map(|folder| folder.join(named));
        let beside = beside.filter(|path| !Path::new(named).is_absolute() && self.is_here(path));
        beside.map_or_else(|| self.find(named), Ok)
    }

    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let is_outside = path.components().any(|part| part == Component::ParentDir);
        Some(self.root.join(path)).filter(|path| !is_outside && self.is_here(path))
    }

    /// Whether the path exists within the folder, with symbolic links resolved.
    fn is_here(&self, path: &Path) -> bool {
        let (root, path) = (self.root.canonicalize().ok(), path.canonicalize().ok());
        root.zip(path).is_some_and(|(root, path)| path.starts_with(root))
    }

    pub(super) fn read(&self, named: &str) -> Result<(Rc<str>, String), String> {
        read_included(&self.find(named)?)
    }
}

/// Folders in which the projects and their images keep configurations.
const FOLDERS_OF_FILES: [&str; 7] = ["", "conf", "config", "emqx", "etc", "mosquitto", "nanomq"];

/// Returns the name and the text of an included file, with `\n` as line ends.
pub(super) fn read_included(path: &Path) -> Result<(Rc<str>, String), String> {
    let text = read(path)?.replace("\r\n", "\n");
    Ok((path.display().to_string().into(), text))
}

/// Reads a file of at most `FILE_BYTES_MAX`; line ends stay as in the file.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let there =
        std::fs::metadata(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if there.is_dir() {
        let likely = FILES_IN_FOLDERS.iter().map(|file| path.join(file));
        let likely = likely.filter(|file| file.is_file()).map(|file| file.display().to_string());
        let found: Vec<String> = likely.collect();
        let files = if found.is_empty() { FILES_IN_FOLDERS.join(", ") } else { found.join(" or ") };
        return Err(wrong(format!("this is a folder: use a file, such as {files}")));
    }
    if !there.is_file() || there.len() > FILE_BYTES_MAX {
        return Err(wrong("no file of a configuration: use one of at most 4 MiB".into()));
    }
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    decode(&bytes).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
}

/// Decodes text as editors save it: UTF-8 with or without a byte order mark, UTF-16, line ends of
/// Windows. Invalid bytes become U+FFFD, which comments may have. Characters that only some
/// programs treat as line ends are refused, since a comment might end there.
fn decode(bytes: &[u8]) -> Result<String, (usize, String)> {
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => decode_utf16(rest, u16::from_le_bytes)?,
        [0xfe, 0xff, rest @ ..] => decode_utf16(rest, u16::from_be_bytes)?,
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
                let why = "a NUL character: no text file has any, save it as UTF-8";
                return Err((config::source::line_at(bytes, at), why.to_string()));
            }
            String::from_utf8_lossy(bytes).into_owned()
        }
    };
    let is_unclear = |(at, char): &(usize, char)| match char {
        '\r' => !text[at + 1..].starts_with('\n'),
        char => ['\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'].contains(char),
    };
    if let Some((at, char)) = text.char_indices().find(is_unclear) {
        let why = format!("{char:?} ends a line for some programs only, use a newline");
        return Err((config::source::line_at(text.as_bytes(), at), why));
    }
    Ok(text)
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, (usize, String)> {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    match String::from_utf16(&units) {
        Ok(text) if bytes.len().is_multiple_of(2) => Ok(text),
        _ => Err((1, "neither UTF-16, as its first bytes say, nor UTF-8: save it as UTF-8".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_editors_save_it() {
        let utf16 = |text: &str, bytes: fn(u16) -> [u8; 2]| {
            "\u{feff}"
                .chars()
                .chain(text.chars())
                .collect::<String>()
                .encode_utf16()
                .flat_map(bytes)
                .collect::<Vec<u8>>()
        };
        for bytes in [
            b"a 1\nb 2".to_vec(),
            b"\xef\xbb\xbfa 1\nb 2".to_vec(),
            b"a 1\r\nb 2".to_vec(),
            utf16("a 1\nb 2", u16::to_le_bytes),
            utf16("a 1\r\nb 2", u16::to_be_bytes),
        ] {
            let text = decode(&bytes).map(|text| text.replace("\r\n", "\n"));
            assert_eq!(text.as_deref(), Ok("a 1\nb 2"), "{bytes:?}");
        }
        assert_eq!(decode(b"# gr\xfc\xdfe").as_deref(), Ok("# gr\u{fffd}\u{fffd}e"));
        assert_eq!(decode(b"a\n\0b").unwrap_err().0, 2);
        for unclear in ["\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"] {
            let (line, why) = decode(format!("a\r\n# {unclear}b").as_bytes()).unwrap_err();
            assert_eq!(line, 2, "{why}");
        }
        assert!(decode(b"\xff\xfea").is_err() && decode(b"\xff\xfe\x00\xd8").is_err());
    }
}
