//! Creates a new store atomically. The store is built in a folder within the data folder. `finish`
//! moves its files into the data folder, the manifest last: without a manifest there is no store.

use crate::files::{LOCK, LockedFolder, StoreFolder};
use crate::manifest::MANIFEST;
use crate::recovery::{RecoveryReport, check_in};
use crate::{BatchSeq, DiskStore, Fault, KeyValueStore, StoreBatch, StoreEvent, StoreOptions};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A store under construction. Dropped before `finish`, the data folder returns to its previous
/// state; in a folder which existed before, an empty `lock` stays.
pub struct StoreBuilder {
    path: PathBuf,
    host: LockedFolder,
    /// Folders which `begin` had to create, the innermost first.
    made: Vec<PathBuf>,
    disk: Option<DiskStore>,
    failing: Receiver<Fault>,
    last: BatchSeq,
    is_finished: bool,
}

impl StoreBuilder {
    /// Starts a new store. Returns `None` if the folder already holds a store.
    pub fn begin(path: &Path) -> Result<Option<StoreBuilder>, Fault> {
        let is_missing = |folder: &&Path| folder.components().next().is_some() && !folder.exists();
        let made = path.ancestors().take_while(is_missing).map(Path::to_path_buf).collect();
        let host = LockedFolder::lock(path)?;
        let (say, failing) = channel();
        let (path, last) = (path.to_path_buf(), BatchSeq(0));
        let mut build =
            StoreBuilder { path, host, made, disk: None, failing, last, is_finished: false };
        if check_in(&build.host)? != RecoveryReport::default() {
            return Ok(None);
        }
        build.remove_partial()?;
        let notify = move |event| {
            if let StoreEvent::Failing(fault) = event {
                // The receiver is gone if the builder was dropped.
                let _ = say.send(fault);
            }
        };
        let (disk, _) =
            DiskStore::open(&build.path.join(BUILDING), StoreOptions::default(), Box::new(notify))?;
        build.disk = Some(disk);
        Ok(Some(build))
    }

    /// Commits a batch, and waits while the disk is behind. A failing disk ends the import.
    pub fn commit(&mut self, batch: StoreBatch) -> Result<(), Fault> {
        let mut handle = self.disk.as_ref().map(DiskStore::handle).ok_or(Fault::Closed)?;
        while handle.is_backlogged() {
            self.check_failure()?;
            std::thread::sleep(POLL_INTERVAL);
        }
        self.last = handle.commit(batch)?;
        self.check_failure()
    }

    fn check_failure(&self) -> Result<(), Fault> {
        self.failing.try_recv().map_or(Ok(()), Err)
    }

    /// Completes the store. On return it exists and survives a power cut.
    pub fn finish(mut self) -> Result<(), Fault> {
        let disk = self.disk.take().ok_or(Fault::Closed)?;
        if disk.close() < self.last {
            self.check_failure()?;
            return Err(Fault::Full);
        }
        let within = |name: &str| format!("{BUILDING}/{name}");
        for entry in fs::read_dir(self.path.join(BUILDING))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != LOCK && name != MANIFEST {
                self.host.rename(&within(&name), &name)?;
            }
        }
        // The manifest must not exist before the files it names.
        self.host.sync()?;
        self.host.rename(&within(MANIFEST), MANIFEST)?;
        self.is_finished = true;
        self.remove_partial()?;
        Ok(self.host.sync()?)
    }

    /// Removes the folder `BUILDING`, also that of a killed process.
    fn remove_partial(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.path.join(BUILDING)) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

impl Drop for StoreBuilder {
    fn drop(&mut self) {
        self.disk = None;
        if self.is_finished {
            return;
        }
        // Leftovers do no harm: the next `begin` removes them first.
        let _ = self.remove_partial();
        if !self.made.is_empty() {
            let _ = fs::remove_file(self.path.join(LOCK));
        }
        for folder in &self.made {
            let _ = fs::remove_dir(folder);
        }
    }
}

const BUILDING: &str = "building";
const POLL_INTERVAL: Duration = Duration::from_millis(1);
