//! A disk in memory for tests. After a power cut, synced data is left, and a random choice of
//! unsynced sectors and renames. The disk can also lose power at any operation, be full, fail,
//! block, and ignore syncs.

use crate::chance::StoreRng;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use store::{StoreFile, StoreFolder};

/// Contents of files by name.
pub(crate) type DiskImage = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Default)]
pub(crate) struct ForgetfulDisk(Arc<(Mutex<ForgetfulState>, Condvar)>);

#[derive(Default)]
pub(crate) struct ForgetfulState {
    nodes: Vec<ForgetfulNode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names that no sync has covered, grouped by operation; a power cut may keep the
    /// first steps of an operation.
    pending_names: Vec<Vec<NameChange>>,
    /// Largest number of bytes written to one file between two syncs.
    pub(crate) unsynced_max: usize,
    /// Number of operations until the power is cut; `None` for no cut.
    pub(crate) power: Option<u64>,
    /// Capacity of the disk in bytes; `None` for no limit.
    pub(crate) space: Option<usize>,
    /// Name of a file that cannot be created.
    pub(crate) barred: Option<&'static str>,
    /// Number of attempts to create the file `barred`.
    pub(crate) barred_tries: u32,
    /// Errors of the next syncs, in order.
    pub(crate) sync_faults: Vec<io::ErrorKind>,
    /// Whether writes block until this is false.
    pub(crate) held: bool,
    /// Whether syncs succeed without any effect.
    pub(crate) lies: bool,
}

/// A name, and the node that has the name from now on; `None` for a removed name.
type NameChange = (String, Option<usize>);

#[derive(Default)]
struct ForgetfulNode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<ForgetfulChange>,
}

enum ForgetfulChange {
    Cut(usize),
    Write { at: usize, bytes: Vec<u8> },
}

impl ForgetfulChange {
    fn bytes(&self) -> usize {
        match self {
            ForgetfulChange::Cut(_) => 0,
            ForgetfulChange::Write { bytes, .. } => bytes.len(),
        }
    }
}

struct ForgetfulFile {
    disk: ForgetfulDisk,
    node: usize,
}

impl ForgetfulDisk {
    pub(crate) fn of(image: &DiskImage) -> ForgetfulDisk {
        let disk = ForgetfulDisk::default();
        let mut state = disk.state();
        for (n, (name, bytes)) in image.iter().enumerate() {
            let (bytes, durable) = (bytes.clone(), bytes.clone());
            state.nodes.push(ForgetfulNode { bytes, durable, pending: Vec::new() });
            state.names.insert(name.clone(), n);
        }
        state.durable_names = state.names.clone();
        drop(state);
        disk
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ForgetfulState> {
        self.0.0.lock().expect("no panic while the disk is locked")
    }

    pub(crate) fn release(&self) {
        self.state().held = false;
        self.0.1.notify_all();
    }

    /// Returns the files as a reader sees them, which is also the state after the process alone has
    /// ended.
    pub(crate) fn seen(&self) -> DiskImage {
        let state = self.state();
        state.names.iter().map(|(name, n)| (name.clone(), state.nodes[*n].bytes.clone())).collect()
    }

    /// Returns the files after a power cut.
    pub(crate) fn left(&self, rng: &mut StoreRng) -> DiskImage {
        let state = self.state();
        let mut names = state.durable_names.clone();
        for steps in &state.pending_names {
            let kept = rng.below(steps.len() as u64 + 1) as usize;
            steps[..kept].iter().for_each(|step| apply(&mut names, step));
        }
        let left = |node: &ForgetfulNode, rng: &mut StoreRng| {
            let mut bytes = node.durable.clone();
            for change in &node.pending {
                match change {
                    ForgetfulChange::Cut(len) if rng.below(2) == 0 => bytes.truncate(*len),
                    ForgetfulChange::Cut(_) => {}
                    ForgetfulChange::Write { at, bytes: written } => {
                        for (n, sector) in written.chunks(SECTOR).enumerate() {
                            if rng.below(2) == 0 {
                                put(&mut bytes, at + n * SECTOR, sector);
                            }
                        }
                    }
                }
            }
            bytes
        };
        names.iter().map(|(name, n)| (name.clone(), left(&state.nodes[*n], rng))).collect()
    }

    /// Counts an operation that changes the disk. Fails once the power is cut.
    fn step(&self) -> io::Result<MutexGuard<'_, ForgetfulState>> {
        let mut state = self.state();
        while state.held {
            state = self.0.1.wait(state).expect("no panic while the disk is locked");
        }
        match &mut state.power {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(state)
            }
            None => Ok(state),
        }
    }
}

impl ForgetfulState {
    fn rename(&mut self, steps: Vec<NameChange>) {
        steps.iter().for_each(|step| apply(&mut self.names, step));
        self.pending_names.push(steps);
    }

    fn used(&self) -> usize {
        self.names.values().map(|n| self.nodes[*n].bytes.len()).sum()
    }

    fn sync_fault(&mut self) -> io::Result<()> {
        self.sync_faults.pop().map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl StoreFolder for ForgetfulDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let mut state = self.step()?;
        if state.barred == Some(name) {
            state.barred_tries += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let node = state.nodes.len();
        state.nodes.push(ForgetfulNode::default());
        state.rename(vec![(name.into(), Some(node))]);
        Ok(Box::new(ForgetfulFile { disk: self.clone(), node }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let node = self.state().names.get(name).copied();
        let node = node.ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(ForgetfulFile { disk: self.clone(), node }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.step()?;
        let node = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.rename(vec![(to.into(), Some(node)), (from.into(), None)]);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.step()?;
        state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        state.rename(vec![(name.into(), None)]);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.step()?;
        if !state.lies {
            state.durable_names = state.names.clone();
            state.pending_names.clear();
        }
        Ok(())
    }
}

impl StoreFile for ForgetfulFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state().nodes[self.node].bytes.len() as u64)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let bytes = state.nodes[self.node].bytes.get(at as usize..).unwrap_or_default();
        let bytes = bytes.get(..into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.step()?;
        let at = at as usize;
        let grows = (at + bytes.len()).saturating_sub(state.nodes[self.node].bytes.len());
        if state.space.is_some_and(|space| state.used() + grows > space) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let node = &mut state.nodes[self.node];
        put(&mut node.bytes, at, bytes);
        node.pending.push(ForgetfulChange::Write { at, bytes: bytes.to_vec() });
        let unsynced = node.pending.iter().map(ForgetfulChange::bytes).sum();
        state.unsynced_max = state.unsynced_max.max(unsynced);
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.step()?;
        let node = &mut state.nodes[self.node];
        node.bytes.truncate(len as usize);
        node.pending.push(ForgetfulChange::Cut(len as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.step()?;
        state.sync_fault()?;
        if !state.lies {
            let node = &mut state.nodes[self.node];
            node.durable = node.bytes.clone();
            node.pending.clear();
        }
        Ok(())
    }
}

fn apply(names: &mut BTreeMap<String, usize>, (name, node): &NameChange) {
    match node {
        Some(node) => names.insert(name.clone(), *node),
        None => names.remove(name),
    };
}

fn put(bytes: &mut Vec<u8>, at: usize, written: &[u8]) {
    let end = at + written.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[at..end].copy_from_slice(written);
}

const SECTOR: usize = 512;
