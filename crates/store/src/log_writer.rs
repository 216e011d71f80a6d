//! The thread which writes the inbox to the log: all waiting records in one write and one sync.
//! Unsynced records stay in memory, so a failed write is repeated in a new file. A file is not used
//! again after a failure: after a failed fsync(2) the content of the file is unknown.

use crate::disk::{LogSegment, StoreCore, StoreEvent};
use crate::files::StoreFile;
use crate::manifest::{DurableMark, MARK};
use crate::{BatchSeq, Fault};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The state of the writer thread. Only this thread writes the log and the durable mark.
pub(crate) struct LogWriter {
    shared: Arc<StoreCore>,
    file: Option<Box<dyn StoreFile>>,
    number_next: u64,
    /// Length of the file in bytes, and the length which is synced.
    written: u64,
    synced: u64,
    /// Records which are not synced, and the number of their bytes already written to the file.
    unsynced: Vec<u8>,
    unsynced_written: usize,
    /// The last batch taken from the inbox.
    upto: u64,
    /// Time at which the first unsynced batch arrived.
    lazy_since: Option<Instant>,
    failing: bool,
    mark: Box<dyn StoreFile>,
    marked: u64,
    marked_at: Instant,
    turn: u64,
}

/// Requests which `take_inbox` returns in addition to the records.
struct WriterWork {
    urgent: bool,
    end_segment: bool,
    stop: bool,
}

impl LogWriter {
    pub(crate) fn new(shared: Arc<StoreCore>, number_next: u64) -> io::Result<LogWriter> {
        let upto = shared.lock().last;
        Ok(LogWriter {
            file: None,
            number_next,
            written: 0,
            synced: 0,
            unsynced: Vec::new(),
            unsynced_written: 0,
            upto,
            lazy_since: None,
            failing: false,
            mark: shared.folder.open(MARK)?,
            marked: 0,
            marked_at: Instant::now(),
            turn: 0,
            shared,
        })
    }

    pub(crate) fn run(mut self) {
        loop {
            let WriterWork { urgent, end_segment, stop } = self.take_inbox();
            let lazy_over = self.lazy_since.is_some_and(|at| at.elapsed() >= self.lazy_delay());
            let sync =
                urgent || end_segment || stop || lazy_over || self.unsynced.len() > UNSYNCED_MAX;
            let done = self.write_unsynced(sync).and_then(|()| self.write_mark(stop));
            match done {
                Ok(()) if end_segment => self.end_segment(),
                Ok(()) => self.note_success(),
                Err(fault) => self.note_failure(fault),
            }
            if stop {
                return;
            }
        }
    }

    /// Waits for work and takes the inbox. While failing, waits for `RETRY` and takes only the
    /// request to stop.
    fn take_inbox(&mut self) -> WriterWork {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if self.failing {
            let wait = |state| shared.to_write.wait_timeout(state, RETRY);
            if !state.stop {
                state = wait(state).expect("nobody panics while holding the state").0;
            }
            return WriterWork { urgent: true, end_segment: false, stop: state.stop };
        }
        while state.inbox.is_empty() && !state.end_segment && !state.stop {
            let due = self.time_until_due();
            if due == Some(Duration::ZERO) {
                break;
            }
            state.writer_waits = true;
            let due = due.unwrap_or(FOREVER);
            let woken = shared.to_write.wait_timeout(state, due);
            state = woken.expect("nobody panics while holding the state").0;
            state.writer_waits = false;
        }
        if !state.inbox.is_empty() && self.lazy_since.is_none() {
            self.lazy_since = Some(Instant::now());
        }
        match self.unsynced.is_empty() {
            true => std::mem::swap(&mut self.unsynced, &mut state.inbox),
            false => self.unsynced.append(&mut state.inbox),
        }
        self.upto = state.last;
        let roomy = shared.update_backlogged(&state);
        let taken = WriterWork {
            urgent: std::mem::take(&mut state.urgent),
            end_segment: std::mem::take(&mut state.end_segment),
            stop: state.stop,
        };
        drop(state);
        if roomy {
            (shared.notify)(StoreEvent::BacklogCleared);
        }
        taken
    }

    /// Returns the time until a lazy batch is synced or the durable mark is written; `None` if
    /// neither waits.
    fn time_until_due(&self) -> Option<Duration> {
        let sync = self.lazy_since.map(|at| self.lazy_delay().saturating_sub(at.elapsed()));
        let behind = self.marked < self.durable();
        let mark = behind.then(|| MARK_EVERY.saturating_sub(self.marked_at.elapsed()));
        sync.into_iter().chain(mark).min()
    }

    fn write_unsynced(&mut self, sync: bool) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = self.shared.folder.create(&log_file_name(self.number_next))?;
                self.number_next += 1;
                (self.written, self.synced, self.unsynced_written) = (0, 0, 0);
                self.file.insert(file)
            }
        };
        let fresh = &self.unsynced[self.unsynced_written..];
        file.write_at(self.written, fresh)?;
        self.written += fresh.len() as u64;
        self.unsynced_written = self.unsynced.len();
        self.shared.log_bytes.store(self.written, Ordering::Relaxed);
        if !sync {
            return Ok(());
        }
        file.sync()?;
        if self.synced == 0 {
            // A file whose name is not synced is lost after a power cut.
            self.shared.folder.sync()?;
        }
        self.synced = self.written;
        self.unsynced.clear();
        self.unsynced.shrink_to(UNSYNCED_MAX);
        self.unsynced_written = 0;
        self.lazy_since = None;
        self.shared.durable.store(self.upto, Ordering::Release);
        (self.shared.notify)(StoreEvent::Durable(BatchSeq(self.upto)));
        if self.written >= SEGMENT * self.shared.options.memory_bytes as u64 {
            self.end_segment();
        }
        Ok(())
    }

    fn end_segment(&mut self) {
        if self.file.take().is_some() {
            let number = self.number_next - 1;
            let segment = LogSegment { number, last: self.upto, bytes: self.written };
            self.shared.lock().segments.push_back(segment);
            self.shared.log_bytes.store(0, Ordering::Relaxed);
            self.shared.to_keep.notify_one();
        }
    }

    /// Writes the durable mark once a second, synced only at the end. An older mark after a power
    /// cut does little harm, since each record also contains the last durable batch before it.
    fn write_mark(&mut self, stop: bool) -> io::Result<()> {
        let durable = self.durable();
        let due = stop || self.marked_at.elapsed() >= MARK_EVERY;
        if durable > self.marked && due {
            DurableMark { id: self.shared.id, seq: durable }.write(&*self.mark, self.turn)?;
            self.turn += 1;
            self.marked = durable;
            self.marked_at = Instant::now();
        }
        if stop { self.mark.sync() } else { Ok(()) }
    }

    fn note_success(&mut self) {
        if self.failing {
            self.failing = false;
            self.shared.lock().failing = None;
            (self.shared.notify)(StoreEvent::Recovered);
        }
    }

    fn note_failure(&mut self, fault: io::Error) {
        if let Some(file) = &self.file {
            // A failed truncate does no harm: a batch with two records is applied once.
            let _ = file.truncate(self.synced);
            self.written = self.synced;
            if self.synced == 0
                && self.shared.folder.remove(&log_file_name(self.number_next - 1)).is_ok()
            {
                self.file = None;
                self.shared.log_bytes.store(0, Ordering::Relaxed);
            }
            self.end_segment();
        }
        self.shared.lock().failing = Some(fault.kind());
        if !self.failing {
            self.failing = true;
            (self.shared.notify)(StoreEvent::Failing(Fault::from(fault)));
        }
    }

    fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    fn lazy_delay(&self) -> Duration {
        self.shared.options.lazy
    }
}

pub(crate) fn log_file_name(number: u64) -> String {
    format!("{KIND}.{number}")
}

pub(crate) const KIND: &str = "log";

/// Size of a log segment in units of `StoreOptions::memory_bytes`. A segment is removed as a whole,
/// once its batches are in tables.
const SEGMENT: u64 = 4;

/// Bytes of unsynced lazy records which force a sync.
const UNSYNCED_MAX: usize = 1 << 20;

const MARK_EVERY: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(100);
const FOREVER: Duration = Duration::from_secs(1 << 30);
