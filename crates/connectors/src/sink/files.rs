//! A sink which appends lines of JSON or CSV to files.

use super::delivered_ahead::DeliveredAhead;
use super::destination::{BatchError, SinkError};
use super::message::SinkMessage;
use super::rotation::{AppendFile, ClosedFileMark, describe_file_error};
use super::settings::{FileFormat, FileSinkSettings};
use super::template::SinkTemplate;
use super::worker::BlockingSink;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The file sink, on the thread of a `SinkWorker`.
pub(super) struct FileSink {
    settings: Arc<FileSinkSettings>,
    /// Recently used files, at most `OPEN_MAX`.
    open: BTreeMap<PathBuf, OpenAppendFile>,
    /// Marks of files which were closed to make room for others: see [`ClosedFileMark`].
    left: BTreeMap<PathBuf, ClosedFileMark>,
    ahead: DeliveredAhead,
    /// Number of batches so far; orders `open` by last use.
    now: u64,
}

struct OpenAppendFile {
    file: AppendFile,
    used: u64,
}

/// Bound of open files: paths may come from topics, and file descriptors are scarce.
const OPEN_MAX: usize = 64;
/// Largest number of marks in `left`, of some hundred bytes each.
const LEFT_MAX: usize = 4096;

impl FileSink {
    pub(super) fn new(settings: &FileSinkSettings) -> FileSink {
        let (open, left, ahead) = (BTreeMap::new(), BTreeMap::new(), DeliveredAhead::default());
        FileSink { settings: Arc::new(settings.clone()), open, left, ahead, now: 0 }
    }

    /// Appends messages to one file. The error has the number of written messages. After an error
    /// only this file is closed and checked again: checking all files would slow down a disk in
    /// trouble.
    fn write(
        &mut self,
        path: &PathBuf,
        messages: &[&SinkMessage],
    ) -> Result<(), (usize, SinkError)> {
        let mut written = 0;
        let lines = self
            .reopen_if_changed(path)
            .and_then(|()| self.append_all(path, messages, &mut written));
        lines.map_err(|error| {
            self.open.remove(path);
            (written, SinkError::transient(describe_file_error(path, &error)))
        })
    }

    /// Opens the file, again if another process has replaced or changed it.
    fn reopen_if_changed(&mut self, path: &PathBuf) -> io::Result<()> {
        if self.open.get(path).is_some_and(|open| open.file.was_replaced()) {
            self.open.remove(path);
        }
        self.open_file(path).map(drop)
    }

    fn append_all(
        &mut self,
        path: &PathBuf,
        messages: &[&SinkMessage],
        written: &mut usize,
    ) -> io::Result<()> {
        let (settings, mut lines) = (self.settings.clone(), Vec::new());
        for (at, message) in messages.iter().enumerate() {
            let before = lines.len();
            self.write_line(message, &mut lines);
            if self.open_file(path)?.must_rotate(before, lines.len() - before, &settings) {
                // The lines before this one still fit into the file.
                let line = lines.split_off(before);
                self.append(path, &lines)?;
                *written = at;
                if let Some(full) = self.open.remove(path) {
                    full.file.rotate(&settings)?;
                }
                lines = line;
            }
        }
        self.append(path, &lines)
    }

    fn write_line(&self, message: &SinkMessage, out: &mut Vec<u8>) {
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
        if self.open_file(path)?.is_empty() && self.settings.format == FileFormat::Csv {
            self.settings.columns.write_header(&mut header);
        }
        let sync = self.settings.sync;
        self.open_file(path)?.append(&[&header, lines].concat(), sync)
    }

    fn open_file(&mut self, path: &PathBuf) -> io::Result<&mut AppendFile> {
        if !self.open.contains_key(path) {
            if self.open.len() >= OPEN_MAX {
                self.close_oldest();
            }
            let left = self.left.remove(path);
            let file = AppendFile::open(path, &self.settings, left)?;
            self.open.insert(path.clone(), OpenAppendFile { file, used: 0 });
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
        // Paths with a date would otherwise stay for good.
        if self.left.len() >= LEFT_MAX {
            self.left.clear();
        }
        if let Ok(left) = open.file.close() {
            self.left.insert(path, left);
        }
    }
}

/// Writes each message to its file. `write` gets the messages of one file in order, and returns how
/// many are written if an error occurs. Returns a result for each message.
pub(super) fn write_by_path(
    path_of: &SinkTemplate,
    sent: &[&Arc<SinkMessage>],
    mut write: impl FnMut(&PathBuf, &[&SinkMessage]) -> Result<(), (usize, SinkError)>,
) -> Vec<Result<(), SinkError>> {
    let mut by_path: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    for (at, message) in sent.iter().enumerate() {
        by_path.entry(path_of.fill_path(message).into()).or_default().push(at);
    }
    let mut said = vec![Ok(()); sent.len()];
    for (path, all) in by_path {
        let messages: Vec<&SinkMessage> = all.iter().map(|at| &**sent[*at]).collect();
        if let Err((written, what)) = write(&path, &messages) {
            all[written..].iter().for_each(|at| said[*at] = Err(what.clone()));
        }
    }
    said
}

/// A clone has no open files, since the worker thread opens its own.
impl Clone for FileSink {
    fn clone(&self) -> FileSink {
        FileSink::new(&self.settings)
    }
}

impl BlockingSink for FileSink {
    const NAME: &'static str = "sink-files";

    fn open(&mut self) -> Result<(), String> {
        match self.settings.path.only_text() {
            Some(path) => {
                let path = PathBuf::from(path);
                self.reopen_if_changed(&path).map_err(|error| describe_file_error(&path, &error))
            }
            None => Ok(()),
        }
    }

    /// Writes a batch. An error in one file does not repeat messages in other files: see
    /// [`DeliveredAhead`].
    fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        self.now += 1;
        let (sent, settings) = (self.ahead.undelivered(batch), self.settings.clone());
        let write = |path: &PathBuf, messages: &[&SinkMessage]| self.write(path, messages);
        let said = write_by_path(&settings.path, &sent, write);
        self.ahead.record_results(batch, &sent, said)
    }
}
