//! What a file of another broker says, with the line of everything, and which files may be read
//! on the way: those in the folder of the first one, and no others.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// Where something stands. Shown as `FILE:LINE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Rc<str>,
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) tree: Tree,
}

pub(super) type Fields = Vec<(String, Node)>;

#[derive(Clone, Debug)]
pub(super) enum Tree {
    List(Vec<Node>),
    Object(Fields),
    Text(String),
    /// Pieces that stand side by side; only until all names are resolved.
    Pieces(Vec<Node>),
    /// `${name}`, or `${?name}`; only until then, too.
    Named {
        path: String,
        optional: bool,
    },
}

impl Node {
    pub(super) fn text_at(place: &Place, text: &str) -> Node {
        Node { place: place.clone(), tree: Tree::Text(text.to_string()) }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        match &self.tree {
            Tree::Object(fields) => {
                fields.iter().find(|(key, _)| key == name).map(|(_, node)| node)
            }
            _ => None,
        }
    }

    pub(super) fn field_text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(Node::text)
    }

    /// One text, or each of a list.
    pub(super) fn texts(&self) -> Option<Vec<&str>> {
        match &self.tree {
            Tree::Text(text) => Some(vec![text]),
            Tree::List(nodes) => nodes.iter().map(Node::text).collect(),
            _ => None,
        }
    }
}

/// A key with what it says, as a row of a table meets it.
pub(super) struct Entry<'a> {
    /// The whole of it: `listeners.tcp.default.bind`.
    pub(super) key: String,
    /// What stands where the row has a `*`.
    pub(super) names: Vec<String>,
    pub(super) node: &'a Node,
}

impl Entry<'_> {
    pub(super) fn text(&self) -> Result<&str, String> {
        self.node.text().ok_or_else(|| "this is a list or in braces, use one value".to_string())
    }

    /// What stands where the row has its first `*`; empty without one.
    pub(super) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    pub(super) fn note(&self) -> String {
        format!("{} {}", self.node.place, self.key)
    }
}

/// The folder of the file that is read. Files elsewhere are not looked at.
pub(super) struct Folder {
    root: PathBuf,
}

/// Nobody writes a configuration that is longer.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl Folder {
    pub(super) fn of(file: &Path) -> Folder {
        let root = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Folder { root: root.to_path_buf() }
    }

    /// A file that another one names. Configurations are often copied to another host before they
    /// are read, so one that is named with its whole path may also stand beside the first.
    pub(super) fn find(&self, named: &str) -> Result<PathBuf, String> {
        let named = named.replace("${EMQX_ETC_DIR}", ".");
        let path = Path::new(&named);
        let beside = path.file_name().map(|name| self.root.join(name));
        let inside = self.root.join(path);
        let outside = path.components().any(|part| part == Component::ParentDir);
        let is_here = |path: &PathBuf| {
            let (root, path) = (self.root.canonicalize().ok(), path.canonicalize().ok());
            root.zip(path).is_some_and(|(root, path)| path.starts_with(root))
        };
        let tried = [(!outside).then_some(inside), beside];
        tried.into_iter().flatten().find(is_here).ok_or_else(|| {
            format!("{named:?} is not in the folder of the first file, put it there")
        })
    }

    pub(super) fn read(&self, named: &str) -> Result<(Rc<str>, String), String> {
        let path = self.find(named)?;
        read(&path).map(|text| (path.display().to_string().into(), text))
    }
}

/// The text of a file.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let there =
        std::fs::metadata(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if !there.is_file() || there.len() > FILE_BYTES_MAX {
        return Err(wrong("no file of a configuration: use one of at most 4 MiB".into()));
    }
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let text = crate::source::text_of(&bytes, "it has to be");
    text.map(str::to_string).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
}
