//! The store on a disk: a log of recent batches, sorted tables of older ones, and memtables with
//! the changes which are in no table yet. A [`StoreHandle`] adds batches to the memtable and the
//! inbox, the log writer writes the inbox to the log, the compactor writes grown memtables to
//! tables. The lock is never held across a disk call, so a commit does not wait for a disk.

use crate::compactor::Compactor;
use crate::fault::is_full;
use crate::files::{LockedFolder, StoreFolder};
use crate::log_writer::LogWriter;
use crate::recovery::{self, RecoveryReport};
use crate::table::{MergeIterator, PairSource, SortedTable};
use crate::{BatchSeq, Fault, KeySpace, KeyValueStore, PairVisitor, StoreBatch, log_record};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bounds and delays of a [`DiskStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bound of log and tables in bytes, beyond which commits fail with [`Fault::Full`]. A merge
    /// temporarily needs up to the same space again.
    pub bytes_max: u64,
    /// Bytes of the memtable at which it is sealed and written as a table.
    pub memory_bytes: usize,
    /// Bytes of records waiting for the disk at which the store is backlogged. Commits fail with
    /// [`Fault::Full`] at twice this number.
    pub inbox_bytes: usize,
    /// Longest delay before a lazy batch is synced: see [`StoreBatch::set_lazy`].
    pub lazy: Duration,
    /// Open a damaged store, and continue without the damaged parts.
    pub repair: bool,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            bytes_max: u64::MAX,
            memory_bytes: 1 << 20,
            inbox_bytes: 1 << 20,
            lazy: Duration::from_secs(1),
            repair: false,
        }
    }
}

/// An event for the owner of a store. The handler runs on a thread of the store.
#[derive(Debug)]
pub enum StoreEvent {
    /// Every batch up to this one is on the disk.
    Durable(BatchSeq),
    /// The disk refused a write. Unsynced batches stay in memory, and the store retries until a
    /// write succeeds.
    Failing(Fault),
    Recovered,
    /// A merge found a block that cannot be read.
    Damaged(Fault),
    /// The store is no longer backlogged: see [`KeyValueStore::is_backlogged`].
    BacklogCleared,
}

pub type StoreEventHandler = Box<dyn Fn(StoreEvent) + Send + Sync>;

/// An open store. Dropping it writes the waiting batches and ends the store's threads.
pub struct DiskStore {
    shared: Arc<StoreCore>,
    threads: Vec<JoinHandle<()>>,
}

/// Access to the store for commits and reads; each shard has its own handle.
#[derive(Clone)]
pub struct StoreHandle {
    shared: Arc<StoreCore>,
}

impl DiskStore {
    /// Opens the store in a folder, and creates both if missing.
    pub fn open(
        path: &Path,
        options: StoreOptions,
        notify: StoreEventHandler,
    ) -> Result<(DiskStore, RecoveryReport), Fault> {
        DiskStore::open_in(Arc::new(LockedFolder::lock(path)?), options, notify)
    }

    pub fn open_in(
        folder: Arc<dyn StoreFolder>,
        options: StoreOptions,
        notify: StoreEventHandler,
    ) -> Result<(DiskStore, RecoveryReport), Fault> {
        let opened = recovery::open_store(&*folder, options.repair)?;
        let table_bytes = opened.tables.iter().map(|table| table.bytes).sum();
        let state = StoreState {
            last: opened.report.seq.0,
            sealed: opened.replayed.into_iter().map(Arc::new).collect(),
            tables: Arc::new(opened.tables),
            table_bytes,
            segments: opened.segments.into(),
            ..StoreState::default()
        };
        let shared = Arc::new(StoreCore {
            folder,
            id: opened.manifest.id,
            options,
            notify,
            durable: AtomicU64::new(state.last),
            backlogged: AtomicBool::new(false),
            nearly_full: AtomicBool::new(false),
            log_bytes: AtomicU64::new(0),
            state: Mutex::new(state),
            to_write: Condvar::new(),
            to_keep: Condvar::new(),
        });
        let writer = LogWriter::new(Arc::clone(&shared), opened.log_number_next)?;
        let keeper = Compactor::new(Arc::clone(&shared), opened.manifest);
        let mut disk = DiskStore { shared, threads: Vec::new() };
        disk.spawn("store-write", move || writer.run())?;
        disk.spawn("store-keep", move || keeper.run())?;
        Ok((disk, opened.report))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(Fault::Disk)?);
        Ok(())
    }

    pub fn handle(&self) -> StoreHandle {
        StoreHandle { shared: Arc::clone(&self.shared) }
    }

    /// Bytes of log and tables, as compared with `StoreOptions::bytes_max`.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes(&self.shared.lock())
    }

    /// Writes the waiting batches, ends the threads and returns the last durable batch.
    pub fn close(self) -> BatchSeq {
        let shared = Arc::clone(&self.shared);
        drop(self);
        BatchSeq(shared.durable.load(Ordering::Acquire))
    }
}

impl std::fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("durable", &self.shared.durable).finish_non_exhaustive()
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.to_write.notify_all();
        self.shared.to_keep.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("the threads of the store do not panic");
        }
    }
}

impl StoreHandle {
    /// Whether less than `2 * inbox_bytes` (at most a quarter) of the quota is left. The broker
    /// should then make no further promises; batches already in preparation still have room.
    pub fn is_nearly_full(&self) -> bool {
        let shared = &*self.shared;
        // Only a flag set by a commit is checked again, so that other calls do not lock.
        if !shared.nearly_full.load(Ordering::Relaxed) {
            return false;
        }
        let tight = shared.is_nearly_full(&shared.lock());
        shared.nearly_full.store(tight, Ordering::Relaxed);
        tight
    }

    /// Commits a batch. On a fault the batch is unchanged and stays with the caller.
    pub fn try_commit(&mut self, batch: &mut StoreBatch) -> Result<BatchSeq, Fault> {
        let mut state = self.shared.lock();
        self.shared.admit(&mut state, batch)?;
        Ok(self.apply_batch(state, batch))
    }

    /// Commits a batch without a check of the quota. For the first batch of a process, which must
    /// precede all others.
    pub fn commit_initial(&mut self, mut batch: StoreBatch) -> BatchSeq {
        let state = self.shared.lock();
        self.apply_batch(state, &mut batch)
    }

    fn apply_batch(
        &self,
        mut state: MutexGuard<'_, StoreState>,
        batch: &mut StoreBatch,
    ) -> BatchSeq {
        let shared = &*self.shared;
        state.last += 1;
        let seq = state.last;
        let durable = shared.durable.load(Ordering::Acquire);
        log_record::write_record(&mut state.inbox, shared.id, seq, durable, batch);
        state.urgent |= !batch.lazy;
        state.apply(std::mem::take(batch));
        if state.seal_if_grown(&shared.options) {
            shared.to_keep.notify_one();
        }
        if shared.is_backlogged(&state) {
            shared.backlogged.store(true, Ordering::Relaxed);
        }
        if shared.is_nearly_full(&state) {
            shared.nearly_full.store(true, Ordering::Relaxed);
            state.quota_refused = true;
            shared.to_keep.notify_one();
        }
        if state.writer_waits {
            state.writer_waits = false;
            shared.to_write.notify_one();
        }
        BatchSeq(seq)
    }
}

impl KeyValueStore for StoreHandle {
    fn commit(&mut self, mut batch: StoreBatch) -> Result<BatchSeq, Fault> {
        self.try_commit(&mut batch)
    }

    fn durable(&self) -> BatchSeq {
        BatchSeq(self.shared.durable.load(Ordering::Acquire))
    }

    fn is_backlogged(&self) -> bool {
        self.shared.backlogged.load(Ordering::Relaxed)
    }

    fn get(&self, space: KeySpace, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let key = space.prefixed_key(key);
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
        space: KeySpace,
        prefix: &[u8],
        from: &[u8],
        visit: &mut PairVisitor<'_>,
    ) -> Result<(), Fault> {
        let prefix = space.prefixed_key(prefix);
        let mut start = space.prefixed_key(from).max(prefix.clone());
        loop {
            let view = self.shared.lock().snapshot(&prefix, &start);
            let upto = view.known_upto();
            for pair in view.merge_pairs(&start)? {
                let (key, value) = pair?;
                // Compared first: beyond `upto` the snapshot is incomplete, though the prefix may
                // continue.
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
                // The smallest key above `upto`.
                Some(upto) => start = [&upto[..], &[0]].concat(),
                None => return Ok(()),
            }
        }
    }
}

/// An immutable memtable whose changes are in no table yet.
#[derive(Debug)]
pub(crate) struct SealedMemtable {
    pub pairs: Memtable,
    /// The last batch in it: batches up to this one need no log once the memtable is in a table.
    pub upto: u64,
}

pub(crate) type Memtable = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A complete file of the log, which is no longer written.
#[derive(Debug)]
pub(crate) struct LogSegment {
    pub number: u64,
    /// Sequence number that no batch in the file exceeds. Once tables hold all batches up to it,
    /// the file can be deleted.
    pub last: u64,
    pub bytes: u64,
}

/// The state that the handles, the `LogWriter` and the `Compactor` share.
pub(crate) struct StoreCore {
    pub folder: Arc<dyn StoreFolder>,
    pub id: u64,
    pub options: StoreOptions,
    pub notify: StoreEventHandler,
    pub durable: AtomicU64,
    backlogged: AtomicBool,
    nearly_full: AtomicBool,
    /// Bytes of the log segment that is being written, which is not yet in `StoreState::segments`.
    pub log_bytes: AtomicU64,
    state: Mutex<StoreState>,
    pub to_write: Condvar,
    pub to_keep: Condvar,
}

/// The state below the lock of [`StoreCore`].
#[derive(Default)]
pub(crate) struct StoreState {
    /// Sequence number of the last committed batch, which may not be on the disk yet.
    pub last: u64,
    active: Memtable,
    active_bytes: usize,
    /// Memtables to write as tables, oldest first.
    pub sealed: VecDeque<Arc<SealedMemtable>>,
    /// Tables, oldest first.
    pub tables: Arc<Vec<Arc<SortedTable>>>,
    pub table_bytes: u64,
    pub segments: VecDeque<LogSegment>,
    /// Records which the log writer has not taken yet.
    pub inbox: Vec<u8>,
    /// Whether an inbox record belongs to a batch that is not lazy.
    pub urgent: bool,
    pub writer_waits: bool,
    /// Whether the compactor requests the end of the present segment, so that it can be removed.
    pub end_segment: bool,
    /// Error of the log writer's last write, until a write succeeds.
    pub failing: Option<io::ErrorKind>,
    /// Whether the quota refused a batch, or nearly did, since the compactor last checked.
    pub quota_refused: bool,
    pub stop: bool,
}

impl StoreCore {
    pub(crate) fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().expect("nobody panics while holding the state")
    }

    fn bytes(&self, state: &StoreState) -> u64 {
        let closed: u64 = state.segments.iter().map(|segment| segment.bytes).sum();
        state.table_bytes + closed + self.log_bytes.load(Ordering::Relaxed)
    }

    /// Checks whether a batch may be committed. A batch of removals only is refused for lack of
    /// memory, never for the quota: removals make room.
    fn admit(&self, state: &mut StoreState, batch: &StoreBatch) -> Result<(), Fault> {
        let options = &self.options;
        if state.stop {
            return Err(Fault::Closed);
        }
        if state.inbox.len() > 2 * options.inbox_bytes
            || state.active_bytes > SEALED_MAX * options.memory_bytes
        {
            return Err(Fault::Full);
        }
        if !batch.has_puts() {
            return Ok(());
        }
        match state.failing {
            Some(kind) if is_full(kind) => return Err(Fault::Full),
            Some(kind) => return Err(Fault::Disk(kind.into())),
            None => {}
        }
        let bytes = self.bytes(state) + (state.inbox.len() + batch.bytes()) as u64;
        if bytes > options.bytes_max {
            state.quota_refused = true;
            self.to_keep.notify_one();
            return Err(Fault::Full);
        }
        Ok(())
    }

    fn is_nearly_full(&self, state: &StoreState) -> bool {
        let options = &self.options;
        let left = options.bytes_max.saturating_sub(self.bytes(state) + state.inbox.len() as u64);
        left < (2 * options.inbox_bytes as u64).min(options.bytes_max / 4)
    }

    fn is_backlogged(&self, state: &StoreState) -> bool {
        state.inbox.len() > self.options.inbox_bytes
            || state.sealed.len() >= SEALED_MAX && state.active_bytes > self.options.memory_bytes
    }

    /// Updates the flag `backlogged`. Returns `true` if it was cleared: then the owner, which may
    /// be idle, needs a [`StoreEvent::BacklogCleared`].
    pub(crate) fn update_backlogged(&self, state: &StoreState) -> bool {
        let crowded = self.is_backlogged(state);
        self.backlogged.swap(crowded, Ordering::Relaxed) && !crowded
    }
}

impl StoreState {
    fn apply(&mut self, batch: StoreBatch) {
        for change in batch.changes {
            let key = change.space.prefixed_key(&change.key);
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
            self.sealed.push_back(Arc::new(SealedMemtable { pairs, upto: self.last }));
            self.active_bytes = 0;
        }
    }

    pub(crate) fn seal_if_grown(&mut self, options: &StoreOptions) -> bool {
        let grown = self.active_bytes >= options.memory_bytes && self.sealed.len() < SEALED_MAX;
        if grown {
            self.seal();
        }
        grown
    }

    /// Whether the active memtable contains a removal.
    pub(crate) fn has_removals(&self) -> bool {
        self.active.values().any(Option::is_none)
    }

    fn snapshot(&self, prefix: &[u8], start: &[u8]) -> ScanSnapshot {
        let active = self.active.range(start.to_vec()..);
        let active = active.take_while(|(key, _)| key.starts_with(prefix));
        ScanSnapshot {
            active: active
                .take(SNAPSHOT_PAIRS)
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            sealed: self.sealed.clone(),
            tables: Arc::clone(&self.tables),
        }
    }
}

/// A consistent view for a scan. The active memtable is copied, `SNAPSHOT_PAIRS` at a time, so a
/// snapshot covers a bounded range of keys.
struct ScanSnapshot {
    active: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    sealed: VecDeque<Arc<SealedMemtable>>,
    tables: Arc<Vec<Arc<SortedTable>>>,
}

impl ScanSnapshot {
    /// Returns the last key up to which the snapshot is complete, or `None` if all keys are
    /// covered.
    fn known_upto(&self) -> Option<Vec<u8>> {
        (self.active.len() == SNAPSHOT_PAIRS)
            .then(|| self.active.last().map(|pair| pair.0.clone()))?
    }

    fn merge_pairs(&self, start: &[u8]) -> Result<MergeIterator<'_>, Fault> {
        let mut sources: Vec<PairSource<'_>> = vec![Box::new(self.active.iter().cloned().map(Ok))];
        for sealed in self.sealed.iter().rev() {
            sources.push(sealed.pairs_from(start));
        }
        for table in self.tables.iter().rev() {
            sources.push(Box::new(table.pairs_from(start)));
        }
        MergeIterator::new(sources)
    }
}

impl SealedMemtable {
    pub(crate) fn pairs_from(&self, start: &[u8]) -> PairSource<'_> {
        let pairs = self.pairs.range(start.to_vec()..);
        Box::new(pairs.map(|(key, value)| Ok((key.clone(), value.clone()))))
    }
}

/// Memory of a pair in addition to its bytes: two vectors, and a share of a tree node.
const PAIR_BYTES: usize = 64;

/// Number of sealed memtables which may wait for the compactor.
const SEALED_MAX: usize = 4;

/// Pairs of the active memtable that a scan copies at a time.
const SNAPSHOT_PAIRS: usize = 256;
