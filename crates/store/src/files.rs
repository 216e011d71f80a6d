//! The interface to the file system. All files of the store are accessed by [`StoreFolder`], so
//! that a test can use a simulated disk which loses unsynced data, fills up or fails.

use crate::Fault;
use crate::manifest::MANIFEST;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A flat folder of files. The simulator has an implementation of its own.
pub trait StoreFolder: Send + Sync {
    fn names(&self) -> io::Result<Vec<String>>;

    /// Creates a file, or empties an existing file of the same name.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>>;

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>>;

    /// Renames a file, and replaces `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the folder: files created, renamed and removed before survive a power cut.
    fn sync(&self) -> io::Result<()>;
}

/// An open file of a [`StoreFolder`], shared by the threads of the store and its readers.
pub trait StoreFile: Send + Sync {
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `into` from the position `at`, or fails with `UnexpectedEof`.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file off behind the first `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Syncs the file: bytes written before survive a power cut.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of the operating system, locked for this process by the file `LOCK`.
#[derive(Debug)]
pub(crate) struct LockedFolder {
    path: PathBuf,
    /// The operating system releases the lock when the file is closed, however the process ends.
    _lock: fs::File,
}

impl LockedFolder {
    pub(crate) fn lock(path: &Path) -> Result<LockedFolder, Fault> {
        create_folder(path).map_err(Fault::Disk)?;
        let lock = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(Fault::Disk)?;
        match lock.try_lock() {
            Ok(()) => Ok(LockedFolder { path: path.to_path_buf(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(Fault::Locked(path.to_path_buf())),
            Err(fs::TryLockError::Error(fault)) => Err(Fault::Disk(fault)),
        }
    }
}

impl StoreFolder for LockedFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let mut options = fs::File::options();
        options.create(true).truncate(true).read(true).write(true);
        Ok(Box::new(options.open(self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let mut options = fs::File::options();
        Ok(Box::new(options.read(true).write(true).open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }
}

impl StoreFile for fs::File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Creates a folder with all missing parents, and syncs them against a power cut.
fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_file() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "a file, and no folder"));
    }
    let missing = path.ancestors().take_while(|folder| !exists_or_empty(folder)).count();
    fs::create_dir_all(path)?;
    if exists_or_empty(&path.join(MANIFEST)) {
        return Ok(());
    }
    // Sync above a new store even if the folder exists: its creator may have ended before the sync.
    for made in path.ancestors().take(missing.max(1)) {
        let above = made.parent().filter(|above| above.components().next().is_some());
        let synced = fs::File::open(above.unwrap_or(Path::new("."))).and_then(|it| it.sync_all());
        if missing > 0 {
            // Folders created by another user may refuse a sync.
            synced?;
        }
    }
    Ok(())
}

fn exists_or_empty(path: &Path) -> bool {
    path.components().next().is_none() || path.exists()
}

/// Reads a whole file.
pub(crate) fn read_file(folder: &dyn StoreFolder, name: &str) -> io::Result<Vec<u8>> {
    let file = folder.open(name)?;
    let len = usize::try_from(file.bytes()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Returns the number of a file named `kind.number`.
pub(crate) fn file_number(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.strip_prefix('.')?.parse().ok()
}

pub(crate) const LOCK: &str = "lock";
