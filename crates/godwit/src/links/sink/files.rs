//! A sink that writes lines into files.

use super::far::Setback;
use super::message::Message;
use super::rotation::{Appended, Left};
use super::settings::{FileFormat, FileSettings};
use super::worker::Blocking;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) struct Files {
    settings: Arc<FileSettings>,
    /// Those that were written lately.
    open: BTreeMap<PathBuf, Open>,
    /// How those were left that had to make room for others.
    left: BTreeMap<PathBuf, Left>,
    /// Counts batches.
    now: u64,
}

struct Open {
    file: Appended,
    used: u64,
}

/// Names may come from topics, and descriptors are few.
const OPEN_MAX: usize = 64;
/// Some hundred bytes each.
const LEFT_MAX: usize = 4096;

impl Files {
    pub(super) fn new(settings: &FileSettings) -> Files {
        let (open, left) = (BTreeMap::new(), BTreeMap::new());
        Files { settings: Arc::new(settings.clone()), open, left, now: 0 }
    }

    /// After trouble nothing is believed of the file that had it, and everything of the others:
    /// where each trouble cost all their ends, a disk would be busy looking for them.
    fn write(&mut self, path: &PathBuf, messages: &[&Message]) -> Result<(), String> {
        let written = self.follow(path).and_then(|()| self.write_lines(path, messages));
        written.map_err(|error| {
            self.open.remove(path);
            format!("{}: {error}", path.display())
        })
    }

    /// Opens it, also where it was open and is not as we left it.
    fn follow(&mut self, path: &PathBuf) -> io::Result<()> {
        if self.open.get(path).is_some_and(|open| open.file.is_elsewhere()) {
            self.open.remove(path);
        }
        self.file(path).map(drop)
    }

    fn write_lines(&mut self, path: &PathBuf, messages: &[&Message]) -> io::Result<()> {
        let (settings, mut lines) = (self.settings.clone(), Vec::new());
        for message in messages {
            let before = lines.len();
            self.line(message, &mut lines);
            if self.file(path)?.is_over(before, lines.len() - before, &settings) {
                // What came before this one fits still.
                let line = lines.split_off(before);
                self.append(path, &lines)?;
                if let Some(full) = self.open.remove(path) {
                    full.file.retire(&settings)?;
                }
                lines = line;
            }
        }
        self.append(path, &lines)
    }

    fn line(&self, message: &Message, out: &mut Vec<u8>) {
        match self.settings.format {
            FileFormat::Csv => self.settings.columns.write_csv(message, out),
            FileFormat::Json => {
                self.settings.columns.write_json(message, out);
                out.push(b'\n');
            }
        }
    }

    fn append(&mut self, path: &PathBuf, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut header = Vec::new();
        if self.file(path)?.is_empty() && self.settings.format == FileFormat::Csv {
            self.settings.columns.write_header(&mut header);
        }
        let sync = self.settings.sync;
        self.file(path)?.append(&[&header, lines].concat(), sync)
    }

    fn file(&mut self, path: &PathBuf) -> io::Result<&mut Appended> {
        if !self.open.contains_key(path) {
            if self.open.len() >= OPEN_MAX {
                self.close_oldest();
            }
            let left = self.left.remove(path);
            let file = Appended::open(path, &self.settings, left)?;
            self.open.insert(path.clone(), Open { file, used: 0 });
        }
        let open = self.open.get_mut(path).expect("it was put there");
        open.used = self.now;
        Ok(&mut open.file)
    }

    fn close_oldest(&mut self) {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.used);
        let oldest = oldest.map(|(path, _)| path.clone());
        let Some((path, open)) = oldest.and_then(|path| self.open.remove_entry(&path)) else {
            return;
        };
        // Paths that nobody comes back to, as with a date in them, would stay for good.
        if self.left.len() >= LEFT_MAX {
            self.left.clear();
        }
        if let Ok(left) = open.file.close() {
            self.left.insert(path, left);
        }
    }
}

/// Messages in the order of each file.
pub(super) fn by_path<'a>(
    settings: &FileSettings,
    batch: &'a [Arc<Message>],
) -> BTreeMap<PathBuf, Vec<&'a Message>> {
    let mut by_path: BTreeMap<PathBuf, Vec<&Message>> = BTreeMap::new();
    for message in batch {
        let path = PathBuf::from(settings.path.fill_path(message));
        by_path.entry(path).or_default().push(message);
    }
    by_path
}

/// Without what is open: its thread opens its own.
impl Clone for Files {
    fn clone(&self) -> Files {
        Files::new(&self.settings)
    }
}

impl Blocking for Files {
    const NAME: &'static str = "sink-files";

    fn open(&mut self) -> Result<(), String> {
        match self.settings.path.only_text() {
            Some(path) => {
                let wrong = |error| format!("{path}: {error}");
                self.follow(&PathBuf::from(&path)).map_err(wrong)
            }
            None => Ok(()),
        }
    }

    fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        self.now += 1;
        for (path, messages) in by_path(&self.settings, batch) {
            // Of several files some may have been written: what comes again is there twice.
            self.write(&path, &messages).map_err(Setback::down)?;
        }
        Ok(())
    }
}
