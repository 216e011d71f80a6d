//! The store that keeps: a log for what is new, sorted tables for what is old, and in memory what
//! is in no table yet. Handles put batches into memory and into the inbox, the writer carries the
//! inbox to the log, the keeper makes tables of what has grown. Nobody holds the lock across a disk
//! call, so whoever commits waits for no disk.

use crate::fault::is_full;
use crate::files::{Folder, Host};
use crate::keeper::Keeper;
use crate::recover::{self, Report};
use crate::table::{Merge, Source, Table};
use crate::writer::Writer;
use crate::{Batch, Fault, Seq, Space, Store, Visit, record};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of log and tables; above it the store is full. Merging needs up to as much again for
    /// as long as it runs.
    pub bytes_max: u64,
    /// What is kept in memory before it becomes a table.
    pub memory_bytes: usize,
    /// What may wait for the disk before the store is crowded; it is full at twice as much.
    pub inbox_bytes: usize,
    /// How long batches wait for the disk that nobody waits for.
    pub lazy: Duration,
    /// Open although something is missing, and go on without it.
    pub repair: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bytes_max: u64::MAX,
            memory_bytes: 1 << 20,
            inbox_bytes: 1 << 20,
            lazy: Duration::from_secs(1),
            repair: false,
        }
    }
}

/// What the owner of a store hears, on one of the store's threads.
#[derive(Debug)]
pub enum Event {
    /// Everything up to here survives whatever happens now.
    Durable(Seq),
    /// The disk refused; what waits for it is kept, and tried again until it goes.
    Failing(Fault),
    Recovered,
    /// What cannot be read was come upon by who merges tables.
    Damaged(Fault),
    /// The store is crowded no longer.
    Roomy,
}

pub type Notify = Box<dyn Fn(Event) + Send + Sync>;

/// An open store. Dropping it writes what waits and ends its threads.
pub struct Disk {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What commits and reads: as many as there are shards.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Disk {
    /// Makes the folder if it is not there.
    pub fn open(path: &Path, options: Options, notify: Notify) -> Result<(Disk, Report), Fault> {
        Disk::open_in(Arc::new(Host::lock(path)?), options, notify)
    }

    pub fn open_in(
        folder: Arc<dyn Folder>,
        options: Options,
        notify: Notify,
    ) -> Result<(Disk, Report), Fault> {
        let opened = recover::open(&*folder, options.repair)?;
        let table_bytes = opened.tables.iter().map(|table| table.bytes).sum();
        let state = State {
            last: opened.report.seq.0,
            sealed: opened.replayed.into_iter().map(Arc::new).collect(),
            tables: Arc::new(opened.tables),
            table_bytes,
            segments: opened.segments.into(),
            ..State::default()
        };
        let shared = Arc::new(Shared {
            folder,
            id: opened.manifest.id,
            options,
            notify,
            durable: AtomicU64::new(state.last),
            crowded: AtomicBool::new(false),
            tight: AtomicBool::new(false),
            log_bytes: AtomicU64::new(0),
            state: Mutex::new(state),
            to_write: Condvar::new(),
            to_keep: Condvar::new(),
        });
        let writer = Writer::new(Arc::clone(&shared), opened.log_number_next)?;
        let keeper = Keeper::new(Arc::clone(&shared), opened.manifest);
        let mut disk = Disk { shared, threads: Vec::new() };
        disk.spawn("store-write", move || writer.run())?;
        disk.spawn("store-keep", move || keeper.run())?;
        Ok((disk, opened.report))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(Fault::Disk)?);
        Ok(())
    }

    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Bytes of log and tables.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes(&self.shared.lock())
    }

    /// Writes what waits, and ends. The Seq is the last that is durable.
    pub fn close(self) -> Seq {
        let shared = Arc::clone(&self.shared);
        drop(self);
        Seq(shared.durable.load(Ordering::Acquire))
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("durable", &self.shared.durable).finish_non_exhaustive()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.to_write.notify_all();
        self.shared.to_keep.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("the threads of the store do not panic");
        }
    }
}

impl Handle {
    /// So little is left of the quota that whoever sees this should not promise anybody more. What
    /// is on its way still has room.
    pub fn is_tight(&self) -> bool {
        let shared = &*self.shared;
        // Only what a commit has found is looked at again, so that nobody pays for it otherwise.
        if !shared.tight.load(Ordering::Relaxed) {
            return false;
        }
        let tight = shared.is_tight(&shared.lock());
        shared.tight.store(tight, Ordering::Relaxed);
        tight
    }

    /// The same as `commit`, but what is refused stays with the caller.
    pub fn offer(&mut self, batch: &mut Batch) -> Result<Seq, Fault> {
        let mut state = self.shared.lock();
        self.shared.admit(&mut state, batch)?;
        Ok(self.take(state, batch))
    }

    /// Nothing is refused: for what a process begins with, which may not come after anything else.
    pub fn begin(&mut self, mut batch: Batch) -> Seq {
        let state = self.shared.lock();
        self.take(state, &mut batch)
    }

    fn take(&self, mut state: MutexGuard<'_, State>, batch: &mut Batch) -> Seq {
        let shared = &*self.shared;
        state.last += 1;
        let seq = state.last;
        let durable = shared.durable.load(Ordering::Acquire);
        record::write(&mut state.inbox, shared.id, seq, durable, batch);
        state.urgent |= !batch.lazy;
        state.apply(std::mem::take(batch));
        if state.seal_if_grown(&shared.options) {
            shared.to_keep.notify_one();
        }
        if shared.is_crowded(&state) {
            shared.crowded.store(true, Ordering::Relaxed);
        }
        if shared.is_tight(&state) {
            shared.tight.store(true, Ordering::Relaxed);
            state.refused = true;
            shared.to_keep.notify_one();
        }
        if state.writer_waits {
            state.writer_waits = false;
            shared.to_write.notify_one();
        }
        Seq(seq)
    }
}

impl Store for Handle {
    fn commit(&mut self, mut batch: Batch) -> Result<Seq, Fault> {
        self.offer(&mut batch)
    }

    fn durable(&self) -> Seq {
        Seq(self.shared.durable.load(Ordering::Acquire))
    }

    fn crowded(&self) -> bool {
        self.shared.crowded.load(Ordering::Relaxed)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let key = space.key(key);
        let tables = {
            let state = self.shared.lock();
            let sealed = state.sealed.iter().rev().map(|sealed| &sealed.pairs);
            if let Some(value) =
                std::iter::once(&state.active).chain(sealed).find_map(|pairs| pairs.get(&key))
            {
                return Ok(value.clone());
            }
            Arc::clone(&state.tables)
        };
        for table in tables.iter().rev() {
            if let Some(value) = table.find(&key)? {
                return Ok(value);
            }
        }
        Ok(None)
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        let prefix = space.key(prefix);
        let mut start = space.key(from).max(prefix.clone());
        loop {
            let view = self.shared.lock().view(&prefix, &start);
            let upto = view.upto();
            for pair in view.pairs(&start)? {
                let (key, value) = pair?;
                // Asked first: where the view knows no more, the prefix may go on all the same.
                if upto.as_ref().is_some_and(|upto| key > *upto) {
                    break;
                }
                if !key.starts_with(&prefix) {
                    return Ok(());
                }
                if value.is_some_and(|value| !visit(&key[1..], &value)) {
                    return Ok(());
                }
            }
            match upto {
                // The next key in the order of bytes.
                Some(upto) => start = [&upto[..], &[0]].concat(),
                None => return Ok(()),
            }
        }
    }
}

/// Changes that are in no table yet and no longer change.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub pairs: Pairs,
    /// The last batch in it.
    pub upto: u64,
}

pub(crate) type Pairs = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A file of the log that is not written any more.
#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u64,
    /// No batch after this one stands in it.
    pub last: u64,
    pub bytes: u64,
}

/// What the handles, the writer and the keeper have in common.
pub(crate) struct Shared {
    pub folder: Arc<dyn Folder>,
    pub id: u64,
    pub options: Options,
    pub notify: Notify,
    pub durable: AtomicU64,
    crowded: AtomicBool,
    tight: AtomicBool,
    /// Of the segment that is being written.
    pub log_bytes: AtomicU64,
    state: Mutex<State>,
    pub to_write: Condvar,
    pub to_keep: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// The last batch that was taken.
    pub last: u64,
    active: Pairs,
    active_bytes: usize,
    /// Oldest first.
    pub sealed: VecDeque<Arc<Sealed>>,
    /// Oldest first.
    pub tables: Arc<Vec<Arc<Table>>>,
    pub table_bytes: u64,
    pub segments: VecDeque<Segment>,
    /// Records that the writer has not taken yet.
    pub inbox: Vec<u8>,
    /// Somebody waits for one of them.
    pub urgent: bool,
    pub writer_waits: bool,
    /// The keeper wants the segment closed that is being written, to be rid of it.
    pub end_segment: bool,
    /// The writer cannot write.
    pub failing: Option<io::ErrorKind>,
    /// The quota refused a batch since the keeper looked last.
    pub refused: bool,
    pub stop: bool,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the state")
    }

    fn bytes(&self, state: &State) -> u64 {
        let closed: u64 = state.segments.iter().map(|segment| segment.bytes).sum();
        state.table_bytes + closed + self.log_bytes.load(Ordering::Relaxed)
    }

    /// A batch that only removes is taken as long as memory allows: it is what makes room.
    fn admit(&self, state: &mut State, batch: &Batch) -> Result<(), Fault> {
        let options = &self.options;
        if state.stop {
            return Err(Fault::Closed);
        }
        if state.inbox.len() > 2 * options.inbox_bytes
            || state.active_bytes > SEALED_MAX * options.memory_bytes
        {
            return Err(Fault::Full);
        }
        if !batch.grows() {
            return Ok(());
        }
        match state.failing {
            Some(kind) if is_full(kind) => return Err(Fault::Full),
            Some(kind) => return Err(Fault::Disk(kind.into())),
            None => {}
        }
        let bytes = self.bytes(state) + (state.inbox.len() + batch.bytes()) as u64;
        if bytes > options.bytes_max {
            state.refused = true;
            self.to_keep.notify_one();
            return Err(Fault::Full);
        }
        Ok(())
    }

    fn is_tight(&self, state: &State) -> bool {
        let options = &self.options;
        let left = options.bytes_max.saturating_sub(self.bytes(state) + state.inbox.len() as u64);
        left < (2 * options.inbox_bytes as u64).min(options.bytes_max / 4)
    }

    fn is_crowded(&self, state: &State) -> bool {
        state.inbox.len() > self.options.inbox_bytes
            || state.sealed.len() >= SEALED_MAX && state.active_bytes > self.options.memory_bytes
    }

    /// True if the store was crowded and is no longer; whoever is told that may be asleep.
    pub(crate) fn set_crowded(&self, state: &State) -> bool {
        let crowded = self.is_crowded(state);
        self.crowded.swap(crowded, Ordering::Relaxed) && !crowded
    }
}

impl State {
    fn apply(&mut self, batch: Batch) {
        for change in batch.changes {
            let key = change.space.key(&change.key);
            let size = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
            self.active_bytes += key.len() + PAIR_BYTES + size(&change.value);
            let key_len = key.len();
            if let Some(old) = self.active.insert(key, change.value) {
                self.active_bytes -= key_len + PAIR_BYTES + size(&old);
            }
        }
    }

    pub(crate) fn seal(&mut self) {
        if !self.active.is_empty() {
            let pairs = std::mem::take(&mut self.active);
            self.sealed.push_back(Arc::new(Sealed { pairs, upto: self.last }));
            self.active_bytes = 0;
        }
    }

    pub(crate) fn seal_if_grown(&mut self, options: &Options) -> bool {
        let grown = self.active_bytes >= options.memory_bytes && self.sealed.len() < SEALED_MAX;
        if grown {
            self.seal();
        }
        grown
    }

    /// Whether a removal is in memory.
    pub(crate) fn removes(&self) -> bool {
        self.active.values().any(Option::is_none)
    }

    fn view(&self, prefix: &[u8], start: &[u8]) -> View {
        let active = self.active.range(start.to_vec()..);
        let active = active.take_while(|(key, _)| key.starts_with(prefix));
        View {
            active: active.take(VIEW).map(|(key, value)| (key.clone(), value.clone())).collect(),
            sealed: self.sealed.clone(),
            tables: Arc::clone(&self.tables),
        }
    }
}

/// What a scan sees of one moment. What can change is copied, so it holds only so much of it.
struct View {
    active: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    sealed: VecDeque<Arc<Sealed>>,
    tables: Arc<Vec<Arc<Table>>>,
}

impl View {
    /// The last key that it knows everything about; None if it knows all keys.
    fn upto(&self) -> Option<Vec<u8>> {
        (self.active.len() == VIEW).then(|| self.active.last().map(|pair| pair.0.clone()))?
    }

    fn pairs(&self, start: &[u8]) -> Result<Merge<'_>, Fault> {
        let mut sources: Vec<Source<'_>> = vec![Box::new(self.active.iter().cloned().map(Ok))];
        for sealed in self.sealed.iter().rev() {
            sources.push(sealed.source(start));
        }
        for table in self.tables.iter().rev() {
            sources.push(Box::new(table.from(start)));
        }
        Merge::new(sources)
    }
}

impl Sealed {
    pub(crate) fn source(&self, start: &[u8]) -> Source<'_> {
        let pairs = self.pairs.range(start.to_vec()..);
        Box::new(pairs.map(|(key, value)| Ok((key.clone(), value.clone()))))
    }
}

/// What a pair costs beside its bytes: two vectors, and its share of a node.
const PAIR_BYTES: usize = 64;

/// Parts of the memory that may wait for the keeper.
const SEALED_MAX: usize = 4;

/// Pairs that a scan copies at a time.
const VIEW: usize = 256;
