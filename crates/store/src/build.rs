//! A new store that is there as a whole or not at all. It grows in a folder within the data folder
//! and comes out of it when it is complete, the manifest last: without that there is no store.

use crate::files::{Folder, Host, LOCK};
use crate::manifest::MANIFEST;
use crate::recover::{Report, check_in};
use crate::{Batch, Disk, Event, Fault, Options, Seq, Store};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Dropped before `finish`, it leaves the data folder as it was; only an empty `lock` stays.
pub struct Build {
    path: PathBuf,
    host: Host,
    /// Folders that were not there before, the innermost first.
    made: Vec<PathBuf>,
    disk: Option<Disk>,
    failing: Receiver<Fault>,
    last: Seq,
    is_finished: bool,
}

impl Build {
    /// `None` if there is a store already.
    pub fn begin(path: &Path) -> Result<Option<Build>, Fault> {
        let is_missing = |folder: &&Path| folder.components().next().is_some() && !folder.exists();
        let made = path.ancestors().take_while(is_missing).map(Path::to_path_buf).collect();
        let host = Host::lock(path)?;
        let (say, failing) = channel();
        let (path, last) = (path.to_path_buf(), Seq(0));
        let mut build = Build { path, host, made, disk: None, failing, last, is_finished: false };
        if check_in(&build.host)? != Report::default() {
            return Ok(None);
        }
        build.clear()?;
        let notify = move |event| {
            if let Event::Failing(fault) = event {
                // Nobody listens where the store is given up.
                let _ = say.send(fault);
            }
        };
        let (disk, _) =
            Disk::open(&build.path.join(BUILDING), Options::default(), Box::new(notify))?;
        build.disk = Some(disk);
        Ok(Some(build))
    }

    /// Waits where the disk is behind. A disk that fails ends it.
    pub fn commit(&mut self, batch: Batch) -> Result<(), Fault> {
        let mut handle = self.disk.as_ref().map(Disk::handle).ok_or(Fault::Closed)?;
        while handle.crowded() {
            self.fails()?;
            std::thread::sleep(LOOK);
        }
        self.last = handle.commit(batch)?;
        self.fails()
    }

    fn fails(&self) -> Result<(), Fault> {
        self.failing.try_recv().map_or(Ok(()), Err)
    }

    /// After this the store is there, and survives a power cut.
    pub fn finish(mut self) -> Result<(), Fault> {
        let disk = self.disk.take().ok_or(Fault::Closed)?;
        if disk.close() < self.last {
            self.fails()?;
            return Err(Fault::Full);
        }
        let within = |name: &str| format!("{BUILDING}/{name}");
        for entry in fs::read_dir(self.path.join(BUILDING))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != LOCK && name != MANIFEST {
                self.host.rename(&within(&name), &name)?;
            }
        }
        // The manifest must not be there before what it names.
        self.host.sync()?;
        self.host.rename(&within(MANIFEST), MANIFEST)?;
        self.is_finished = true;
        self.clear()?;
        Ok(self.host.sync()?)
    }

    /// Removes what grew, also that of a process that was killed.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.path.join(BUILDING)) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.disk = None;
        if self.is_finished {
            return;
        }
        // What cannot be removed is in nobody's way: the next one removes it first.
        let _ = self.clear();
        if !self.made.is_empty() {
            let _ = fs::remove_file(self.path.join(LOCK));
        }
        for folder in &self.made {
            let _ = fs::remove_dir(folder);
        }
    }
}

const BUILDING: &str = "building";
const LOOK: Duration = Duration::from_millis(1);
