//! Possible contents of the disk after a power cut. A write is durable once a sync of the file,
//! begun after the write, has ended; a name is durable once its folder is synced. Of the other
//! changes a random part survives, and of a write any of its sectors.

use crate::chance::CrashRng;
use crate::trace::{NEVER, TraceStep, TracedCall};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub(crate) struct SimulatedDisk {
    /// The data folder. Calls on paths outside of this folder are ignored.
    folder: PathBuf,
    open: HashMap<u32, OpenDescriptor>,
    /// Paths as the process sees them.
    names: PathNames,
    certain: DiskFiles,
    /// Changes that no sync has made durable, oldest first.
    uncertain: Vec<UnsyncedChange>,
}

struct UnsyncedChange {
    change: DiskChange,
    ended: usize,
}

enum DiskChange {
    Cut(BodyIndex, usize),
    Gone(PathBuf),
    Here(PathBuf, BodyIndex),
    Moved(PathBuf, PathBuf, BodyIndex),
    Write(BodyIndex, usize, Vec<u8>),
}

enum OpenDescriptor {
    File(BodyIndex),
    Folder(PathBuf),
}

/// Index of a file or folder in `DiskFiles::bodies`.
type BodyIndex = usize;
type PathNames = BTreeMap<PathBuf, BodyIndex>;

#[derive(Clone, Default)]
struct DiskFiles {
    names: PathNames,
    /// Contents of files; `None` for a folder.
    bodies: Vec<Option<Vec<u8>>>,
}

/// Share of the changes made without a sync that an image of the disk contains.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnsyncedShare {
    Everything,
    Half,
    Most,
    Nothing,
}

impl SimulatedDisk {
    /// Creates the disk before the process creates `folder`.
    pub(crate) fn new(folder: &Path) -> SimulatedDisk {
        SimulatedDisk {
            folder: folder.to_path_buf(),
            open: HashMap::new(),
            names: PathNames::new(),
            certain: DiskFiles::default(),
            uncertain: Vec::new(),
        }
    }

    pub(crate) fn see(&mut self, step: &TraceStep) {
        match &step.call {
            TracedCall::Accepted { .. } | TracedCall::Heard { .. } => {}
            TracedCall::Closed { fd } => drop(self.open.remove(fd)),
            TracedCall::Cut { fd, len, ended } => {
                if let Some(OpenDescriptor::File(node)) = self.open.get(fd) {
                    self.change(DiskChange::Cut(*node, *len), *ended);
                }
            }
            TracedCall::FolderMade { path, ended } => {
                if path.starts_with(&self.folder) {
                    let node = self.node(None);
                    self.change(DiskChange::Here(path.clone(), node), *ended);
                }
            }
            TracedCall::Killed { left } => {
                self.open.clear();
                self.settle(left, step.at);
            }
            TracedCall::Opened { fd, path, creates, empties, ended } => {
                self.opened(*fd, path, *creates, *empties, *ended);
            }
            TracedCall::Removed { path, ended } => {
                if self.names.contains_key(path) {
                    self.change(DiskChange::Gone(path.clone()), *ended);
                }
            }
            TracedCall::Renamed { from, to, ended } => {
                if let Some(&node) = self.names.get(from) {
                    self.change(DiskChange::Moved(from.clone(), to.clone(), node), *ended);
                }
            }
            TracedCall::Said { fd, .. } => {
                assert!(!self.open.contains_key(fd), "a file was written without saying where");
            }
            TracedCall::Synced { fd, began } => self.synced(*fd, *began),
            TracedCall::Wrote { fd, at, bytes, ended } => {
                if let Some(OpenDescriptor::File(node)) = self.open.get(fd) {
                    self.change(DiskChange::Write(*node, *at, bytes.clone()), *ended);
                }
            }
        }
    }

    fn opened(&mut self, fd: u32, path: &Path, creates: bool, empties: bool, ended: usize) {
        let known = self.names.get(path).copied();
        let is_folder = known.is_some_and(|node| self.certain.bodies[node].is_none());
        if is_folder || self.folder.starts_with(path) {
            self.open.insert(fd, OpenDescriptor::Folder(path.to_path_buf()));
        } else if path.starts_with(&self.folder) {
            assert!(creates || known.is_some(), "{} was never made", path.display());
            let node = known.unwrap_or_else(|| {
                let node = self.node(Some(Vec::new()));
                self.change(DiskChange::Here(path.to_path_buf(), node), ended);
                node
            });
            self.open.insert(fd, OpenDescriptor::File(node));
            if empties && known.is_some() {
                self.change(DiskChange::Cut(node, 0), ended);
            }
        }
    }

    fn node(&mut self, body: Option<Vec<u8>>) -> BodyIndex {
        self.certain.bodies.push(body);
        self.certain.bodies.len() - 1
    }

    fn change(&mut self, change: DiskChange, ended: usize) {
        change.name(&mut self.names);
        self.uncertain.push(UnsyncedChange { change, ended });
    }

    fn synced(&mut self, fd: u32, began: usize) {
        let Some(open) = self.open.get(&fd) else { return };
        let certain = &mut self.certain;
        self.uncertain.retain(|UnsyncedChange { change, ended }| {
            let is_covered = *ended < began && change.is_of(open);
            if is_covered {
                certain.apply(change);
            }
            !is_covered
        });
    }

    /// Decides for each call that the end of the process interrupted whether the call took effect,
    /// so that the result agrees with the files that are left. If no decision agrees, the trace
    /// misses a call, and the test fails.
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
            for (n, UnsyncedChange { change, .. }) in self.uncertain.iter().enumerate() {
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

    /// Returns the files and folders that are left after a power cut, by path.
    pub(crate) fn image(&self, keeps: UnsyncedShare, rng: &mut CrashRng) -> CrashDiskImage {
        let mut files = self.certain.clone();
        for UnsyncedChange { change, .. } in &self.uncertain {
            match change {
                DiskChange::Write(node, at, bytes) => {
                    for (at, sector) in sectors(*at, bytes) {
                        if keeps.one(rng) {
                            files.write(*node, at, sector);
                        }
                    }
                }
                _ if keeps.one(rng) => files.apply(change),
                _ => {}
            }
        }
        let DiskFiles { names, mut bodies } = files;
        let is_folder = |path: &Path| names.get(path).is_some_and(|&node| bodies[node].is_none());
        let is_found = |path: &Path| {
            let above = path.ancestors().skip(1);
            above.take_while(|path| path.starts_with(&self.folder)).all(is_folder)
        };
        let found: Vec<_> = names.iter().filter(|(path, _)| is_found(path)).collect();
        found.into_iter().map(|(path, &node)| (path.clone(), bodies[node].take())).collect()
    }
}

/// Files with their bytes, and folders with `None`, by path.
pub(crate) type CrashDiskImage = BTreeMap<PathBuf, Option<Vec<u8>>>;

impl DiskFiles {
    fn apply(&mut self, change: &DiskChange) {
        match change {
            DiskChange::Cut(node, len) => self.body(*node).resize(*len, 0),
            DiskChange::Write(node, at, bytes) => self.write(*node, *at, bytes),
            DiskChange::Gone(_) | DiskChange::Here(..) | DiskChange::Moved(..) => {
                change.name(&mut self.names)
            }
        }
    }

    fn write(&mut self, node: BodyIndex, at: usize, bytes: &[u8]) {
        let (body, end) = (self.body(node), at + bytes.len());
        body.resize(body.len().max(end), 0);
        body[at..end].copy_from_slice(bytes);
    }

    fn body(&mut self, node: BodyIndex) -> &mut Vec<u8> {
        self.bodies[node].as_mut().expect("nobody writes into a folder")
    }

    fn is(&self, left: &HashMap<PathBuf, Vec<u8>>) -> bool {
        let named = self.names.iter().map(|(path, &node)| (path, &self.bodies[node]));
        let mut files = named.filter_map(|(path, body)| Some((path, body.as_ref()?)));
        files.clone().count() == left.len()
            && files.all(|(path, body)| left.get(path) == Some(body))
    }
}

impl DiskChange {
    fn name(&self, names: &mut PathNames) {
        match self {
            DiskChange::Cut(..) | DiskChange::Write(..) => {}
            DiskChange::Gone(path) => drop(names.remove(path)),
            DiskChange::Here(path, node) => drop(names.insert(path.clone(), *node)),
            DiskChange::Moved(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    /// Whether a sync of this descriptor makes the change durable.
    fn is_of(&self, open: &OpenDescriptor) -> bool {
        match (self, open) {
            (
                DiskChange::Cut(node, _) | DiskChange::Write(node, ..),
                OpenDescriptor::File(file),
            ) => node == file,
            (
                DiskChange::Gone(path) | DiskChange::Here(path, _) | DiskChange::Moved(_, path, _),
                OpenDescriptor::Folder(folder),
            ) => path.parent() == Some(folder),
            _ => false,
        }
    }
}

impl UnsyncedShare {
    pub(crate) const ALL: [UnsyncedShare; 4] = [
        UnsyncedShare::Everything,
        UnsyncedShare::Half,
        UnsyncedShare::Most,
        UnsyncedShare::Nothing,
    ];

    fn one(self, rng: &mut CrashRng) -> bool {
        match self {
            UnsyncedShare::Everything => true,
            UnsyncedShare::Half => rng.once_in(2),
            UnsyncedShare::Most => !rng.once_in(8),
            UnsyncedShare::Nothing => false,
        }
    }
}

/// Splits a write into the sectors of the disk. Returns the position in the file and the bytes of
/// each.
fn sectors(at: usize, bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let first = (SECTOR - at % SECTOR).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let rest = rest.chunks(SECTOR).enumerate();
    let rest = rest.map(|(n, sector)| (at + first + n * SECTOR, sector));
    std::iter::once((at, head)).chain(rest).collect()
}

const SECTOR: usize = 512;
