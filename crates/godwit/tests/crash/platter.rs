//! What a disk could hold when the power goes. A write is certain once a sync of its file that
//! began after it has ended; a name, once its folder is synced. Of everything else chance keeps
//! some, of writes each sector by itself.

use crate::chance::Chance;
use crate::trace::{Call, NEVER, Step};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub(crate) struct Platter {
    /// Whatever is outside of it is not looked at.
    folder: PathBuf,
    open: HashMap<u32, Open>,
    /// As the process sees them.
    names: Names,
    certain: Files,
    /// Oldest first.
    uncertain: Vec<Uncertain>,
}

struct Uncertain {
    change: Change,
    ended: usize,
}

enum Change {
    Cut(Node, usize),
    Gone(PathBuf),
    Here(PathBuf, Node),
    Moved(PathBuf, PathBuf, Node),
    Write(Node, usize, Vec<u8>),
}

enum Open {
    File(Node),
    Folder(PathBuf),
}

/// A file or a folder, whatever its name: a place among the bodies.
type Node = usize;
type Names = BTreeMap<PathBuf, Node>;

#[derive(Clone, Default)]
struct Files {
    names: Names,
    /// None is a folder's.
    bodies: Vec<Option<Vec<u8>>>,
}

/// How much of what is not certain an image has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keeps {
    Everything,
    Half,
    Most,
    Nothing,
}

impl Platter {
    /// Of a folder that is not there yet.
    pub(crate) fn new(folder: &Path) -> Platter {
        Platter {
            folder: folder.to_path_buf(),
            open: HashMap::new(),
            names: Names::new(),
            certain: Files::default(),
            uncertain: Vec::new(),
        }
    }

    pub(crate) fn see(&mut self, step: &Step) {
        match &step.call {
            Call::Accepted { .. } | Call::Heard { .. } => {}
            Call::Closed { fd } => drop(self.open.remove(fd)),
            Call::Cut { fd, len, ended } => {
                if let Some(Open::File(node)) = self.open.get(fd) {
                    self.change(Change::Cut(*node, *len), *ended);
                }
            }
            Call::FolderMade { path, ended } => {
                if path.starts_with(&self.folder) {
                    let node = self.node(None);
                    self.change(Change::Here(path.clone(), node), *ended);
                }
            }
            Call::Killed { left } => {
                self.open.clear();
                self.settle(left, step.at);
            }
            Call::Opened { fd, path, creates, empties, ended } => {
                self.opened(*fd, path, *creates, *empties, *ended);
            }
            Call::Removed { path, ended } => {
                if self.names.contains_key(path) {
                    self.change(Change::Gone(path.clone()), *ended);
                }
            }
            Call::Renamed { from, to, ended } => {
                if let Some(&node) = self.names.get(from) {
                    self.change(Change::Moved(from.clone(), to.clone(), node), *ended);
                }
            }
            Call::Said { fd, .. } => {
                assert!(!self.open.contains_key(fd), "a file was written without saying where");
            }
            Call::Synced { fd, began } => self.synced(*fd, *began),
            Call::Wrote { fd, at, bytes, ended } => {
                if let Some(Open::File(node)) = self.open.get(fd) {
                    self.change(Change::Write(*node, *at, bytes.clone()), *ended);
                }
            }
        }
    }

    fn opened(&mut self, fd: u32, path: &Path, creates: bool, empties: bool, ended: usize) {
        let known = self.names.get(path).copied();
        let is_folder = known.is_some_and(|node| self.certain.bodies[node].is_none());
        if is_folder || self.folder.starts_with(path) {
            self.open.insert(fd, Open::Folder(path.to_path_buf()));
        } else if path.starts_with(&self.folder) {
            assert!(creates || known.is_some(), "{} was never made", path.display());
            let node = known.unwrap_or_else(|| {
                let node = self.node(Some(Vec::new()));
                self.change(Change::Here(path.to_path_buf(), node), ended);
                node
            });
            self.open.insert(fd, Open::File(node));
            if empties && known.is_some() {
                self.change(Change::Cut(node, 0), ended);
            }
        }
    }

    fn node(&mut self, body: Option<Vec<u8>>) -> Node {
        self.certain.bodies.push(body);
        self.certain.bodies.len() - 1
    }

    fn change(&mut self, change: Change, ended: usize) {
        change.name(&mut self.names);
        self.uncertain.push(Uncertain { change, ended });
    }

    fn synced(&mut self, fd: u32, began: usize) {
        let Some(open) = self.open.get(&fd) else { return };
        let certain = &mut self.certain;
        self.uncertain.retain(|Uncertain { change, ended }| {
            let is_covered = *ended < began && change.is_of(open);
            if is_covered {
                certain.apply(change);
            }
            !is_covered
        });
    }

    /// A call that the end of the process cut short was made or was not, whichever agrees with
    /// the files that are left. That one of them does shows that no call is missing in the trace.
    fn settle(&mut self, left: &HashMap<PathBuf, Vec<u8>>, at: usize) {
        let endless: Vec<_> =
            (0..self.uncertain.len()).filter(|&n| self.uncertain[n].ended == NEVER).collect();
        assert!(endless.len() < 8, "each of its threads makes one call at a time");
        for choice in 0..1 << endless.len() {
            let is_made = |n| match endless.iter().position(|&other| other == n) {
                Some(bit) => choice >> bit & 1 == 1,
                None => true,
            };
            let mut files = self.certain.clone();
            for (n, Uncertain { change, .. }) in self.uncertain.iter().enumerate() {
                if is_made(n) {
                    files.apply(change);
                }
            }
            if files.is(left) {
                let mut n = 0..;
                self.uncertain.retain(|_| n.next().is_some_and(is_made));
                for uncertain in &mut self.uncertain {
                    uncertain.ended = uncertain.ended.min(at);
                }
                self.names = files.names;
                return;
            }
        }
        panic!("the files that are left are not what the trace says");
    }

    /// What is left, by path.
    pub(crate) fn image(&self, keeps: Keeps, chance: &mut Chance) -> Image {
        let mut files = self.certain.clone();
        for Uncertain { change, .. } in &self.uncertain {
            match change {
                Change::Write(node, at, bytes) => {
                    for (at, sector) in sectors(*at, bytes) {
                        if keeps.one(chance) {
                            files.write(*node, at, sector);
                        }
                    }
                }
                _ if keeps.one(chance) => files.apply(change),
                _ => {}
            }
        }
        let Files { names, mut bodies } = files;
        let is_folder = |path: &Path| names.get(path).is_some_and(|&node| bodies[node].is_none());
        let is_found = |path: &Path| {
            let above = path.ancestors().skip(1);
            above.take_while(|path| path.starts_with(&self.folder)).all(is_folder)
        };
        let found: Vec<_> = names.iter().filter(|(path, _)| is_found(path)).collect();
        found.into_iter().map(|(path, &node)| (path.clone(), bodies[node].take())).collect()
    }
}

/// Files and their bytes; folders without any.
pub(crate) type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

impl Files {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Cut(node, len) => self.body(*node).resize(*len, 0),
            Change::Write(node, at, bytes) => self.write(*node, *at, bytes),
            Change::Gone(_) | Change::Here(..) | Change::Moved(..) => change.name(&mut self.names),
        }
    }

    fn write(&mut self, node: Node, at: usize, bytes: &[u8]) {
        let (body, end) = (self.body(node), at + bytes.len());
        body.resize(body.len().max(end), 0);
        body[at..end].copy_from_slice(bytes);
    }

    fn body(&mut self, node: Node) -> &mut Vec<u8> {
        self.bodies[node].as_mut().expect("nobody writes into a folder")
    }

    fn is(&self, left: &HashMap<PathBuf, Vec<u8>>) -> bool {
        let named = self.names.iter().map(|(path, &node)| (path, &self.bodies[node]));
        let mut files = named.filter_map(|(path, body)| Some((path, body.as_ref()?)));
        files.clone().count() == left.len()
            && files.all(|(path, body)| left.get(path) == Some(body))
    }
}

impl Change {
    fn name(&self, names: &mut Names) {
        match self {
            Change::Cut(..) | Change::Write(..) => {}
            Change::Gone(path) => drop(names.remove(path)),
            Change::Here(path, node) => drop(names.insert(path.clone(), *node)),
            Change::Moved(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    /// Whether a sync of this covers it.
    fn is_of(&self, open: &Open) -> bool {
        match (self, open) {
            (Change::Cut(node, _) | Change::Write(node, ..), Open::File(file)) => node == file,
            (
                Change::Gone(path) | Change::Here(path, _) | Change::Moved(_, path, _),
                Open::Folder(folder),
            ) => path.parent() == Some(folder),
            _ => false,
        }
    }
}

impl Keeps {
    pub(crate) const ALL: [Keeps; 4] =
        [Keeps::Everything, Keeps::Half, Keeps::Most, Keeps::Nothing];

    fn one(self, chance: &mut Chance) -> bool {
        match self {
            Keeps::Everything => true,
            Keeps::Half => chance.once_in(2),
            Keeps::Most => !chance.once_in(8),
            Keeps::Nothing => false,
        }
    }
}

/// What of a write goes to each sector of the disk, and at which byte of the file.
fn sectors(at: usize, bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let first = (SECTOR - at % SECTOR).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let rest = rest.chunks(SECTOR).enumerate();
    let rest = rest.map(|(n, sector)| (at + first + n * SECTOR, sector));
    std::iter::once((at, head)).chain(rest).collect()
}

const SECTOR: usize = 512;
