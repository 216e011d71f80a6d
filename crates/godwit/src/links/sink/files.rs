//! A sink that writes lines into files.

use super::far::Setback;
use super::message::Message;
use super::rotation::Appended;
use super::settings::{FileFormat, FileSettings};
use super::worker::Blocking;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) struct Files {
    settings: Arc<FileSettings>,
    /// Those that were written lately.
    open: BTreeMap<PathBuf, Open>,
    /// Counts batches.
    now: u64,
}

struct Open {
    file: Appended,
    used: u64,
}

/// Names may come from topics, and descriptors are few.
const OPEN_MAX: usize = 64;

impl Files {
    pub(super) fn new(settings: &FileSettings) -> Files {
        Files { settings: Arc::new(settings.clone()), open: BTreeMap::new(), now: 0 }
    }

    fn write(&mut self, path: PathBuf, messages: &[&Message]) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
        let (settings, mut lines) = (self.settings.clone(), Vec::new());
        if self.open.get(&path).is_some_and(|open| open.file.is_elsewhere()) {
            self.open.remove(&path);
        }
        for message in messages {
            let before = lines.len();
            self.line(message, &mut lines);
            let file = self.file(&path).map_err(wrong)?;
            if file.is_over(before, lines.len() - before, &settings) {
                // What came before this one fits still.
                let line = lines.split_off(before);
                self.append(&path, &lines).map_err(wrong)?;
                if let Some(full) = self.open.remove(&path) {
                    full.file.retire(&settings).map_err(wrong)?;
                }
                lines = line;
            }
        }
        self.append(&path, &lines).map_err(wrong)
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

    fn append(&mut self, path: &PathBuf, lines: &[u8]) -> std::io::Result<()> {
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

    fn file(&mut self, path: &PathBuf) -> std::io::Result<&mut Appended> {
        if !self.open.contains_key(path) {
            if self.open.len() >= OPEN_MAX {
                let oldest = self.open.iter().min_by_key(|(_, open)| open.used);
                let oldest = oldest.map(|(path, _)| path.clone());
                oldest.map(|path| self.open.remove(&path));
            }
            let file = Appended::open(path, &self.settings)?;
            self.open.insert(path.clone(), Open { file, used: 0 });
        }
        let open = self.open.get_mut(path).expect("it was put there");
        open.used = self.now;
        Ok(&mut open.file)
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

    /// After trouble nothing is believed of what was open.
    fn open(&mut self) -> Result<(), String> {
        self.open.clear();
        match self.settings.path.only_text() {
            Some(path) => {
                let wrong = |error| format!("{path}: {error}");
                self.file(&PathBuf::from(&path)).map(drop).map_err(wrong)
            }
            None => Ok(()),
        }
    }

    fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        self.now += 1;
        for (path, messages) in by_path(&self.settings, batch) {
            // Of several files some may have been written: what comes again is there twice.
            self.write(path, &messages).map_err(Setback::down)?;
        }
        Ok(())
    }
}
