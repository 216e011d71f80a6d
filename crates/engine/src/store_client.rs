//! A shard's access to the store: records are committed at the end of a tick, and read when the
//! shard asks.
//!
//! Records that the store refuses are not lost: they are parked here, and with them the
//! acknowledgements that promise them, until there is room. Removals go past parked records, since
//! removals make room.

use crate::shard_turn::{EventLogger, ShardTurn};
use broker::{
    BrokerEvent, RecordChange, ShardInput, StoreReadError, StoreReadRequest, StoreReader,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use store::{KeySpace, KeyValueStore, StoreBatch, StoreHandle};

pub(crate) struct StoreClient {
    handle: StoreHandle,
    log: EventLogger,
    /// Changes refused by the store, by key.
    parked: BTreeMap<(KeySpace, Vec<u8>), Option<Vec<u8>>>,
    /// Memory of `parked` in bytes.
    parked_bytes: usize,
    /// Whether a parked batch was urgent, so the retry has to be synced at once.
    parked_urgent: bool,
    first_refused_at: Option<Instant>,
    /// Last result of [`StoreClient::refuses_writes`].
    refused: bool,
    /// Number of shards whose `refused` is true, shared by all shards: the first one logs that the
    /// store is full, and the last one that the store has room again.
    refusing: Arc<AtomicUsize>,
    /// More records wait for the disk than the store allows, so publishers are held.
    was_backlogged: bool,
    /// Reads of the store requested by the shard, answered after the outbox is performed.
    readings: Vec<StoreReadRequest>,
}

/// Delay after a refusal before the store is asked again.
const RETRY: Duration = Duration::from_millis(100);

/// Memory of a parked pair in addition to its bytes: two vectors, and a share of a tree node.
const PAIR_BYTES: usize = 64;

/// Result of committing the records of a turn.
enum CommitOutcome {
    /// Sequence number of the batch in the store; 0 for an empty batch.
    Accepted(u64),
    /// The store refused, and the changes wait in `StoreClient::parked`.
    Parked,
}

impl StoreClient {
    pub(crate) fn new(
        handle: StoreHandle,
        log: EventLogger,
        refusing: Arc<AtomicUsize>,
    ) -> StoreClient {
        StoreClient {
            refusing,
            handle,
            log,
            parked: BTreeMap::new(),
            parked_bytes: 0,
            parked_urgent: false,
            first_refused_at: None,
            refused: false,
            was_backlogged: false,
            readings: Vec::new(),
        }
    }

    fn durable_seq(&self) -> u64 {
        self.handle.durable().0
    }

    /// Whether refused changes are still parked.
    fn has_refused(&self) -> bool {
        !self.parked.is_empty()
    }

    fn is_parked(&self, of: broker::RecordSpace, key: &[u8]) -> bool {
        self.parked.contains_key(&(key_space(of), key.to_vec()))
    }

    /// Whether clients must be refused requests that need a write: changes are parked, or the store
    /// is nearly full. The process logs when the first shard refuses and when the last shard stops
    /// refusing.
    fn refuses_writes(&mut self) -> bool {
        let refuses = self.has_refused() || self.handle.is_nearly_full();
        if refuses != self.refused {
            self.refused = refuses;
            if refuses && self.refusing.fetch_add(1, SeqCst) == 0 {
                (self.log)(&BrokerEvent::StoreFull);
            } else if !refuses && self.refusing.fetch_sub(1, SeqCst) == 1 {
                (self.log)(&BrokerEvent::StoreHasRoom);
            }
        }
        refuses
    }

    /// Returns the time until the next attempt, if changes are parked.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let tried = self.first_refused_at.filter(|_| self.has_refused())?;
        Some(RETRY.saturating_sub(tried.elapsed()))
    }

    /// Commits the changes of a start past the store's bounds, and returns the batch number. A
    /// refused batch, written later, would overwrite newer values of the shards. The batch is
    /// hardly larger than the records replaced.
    pub(crate) fn commit_initial(&mut self, changes: Vec<RecordChange>) -> u64 {
        self.handle.commit_initial(batch_of(changes, true)).0
    }

    fn commit(&mut self, changes: Vec<RecordChange>, urgent: bool) -> CommitOutcome {
        let mut batch = batch_of(changes, urgent);
        if self.has_refused() {
            return self.commit_past_parked(batch);
        }
        if batch.is_empty() {
            return CommitOutcome::Accepted(0);
        }
        match self.handle.try_commit(&mut batch) {
            Ok(seq) => CommitOutcome::Accepted(seq.0),
            Err(_) => {
                self.park(batch);
                CommitOutcome::Parked
            }
        }
    }

    /// Commits while changes are parked: removals of keys not parked go past, then a due retry
    /// commits the parked changes.
    fn commit_past_parked(&mut self, mut batch: StoreBatch) -> CommitOutcome {
        let concerns = |(space, key, _): (KeySpace, &[u8], _)| {
            self.parked.contains_key(&(space, key.to_vec()))
        };
        let passes = !batch.has_puts() && !batch.changes().any(concerns);
        if passes && !batch.is_empty() {
            // A commit empties the batch, and a refused batch stays to be parked.
            let _ = self.handle.try_commit(&mut batch);
        }
        if !batch.is_empty() {
            self.park(batch);
        }
        if self.retry_after().is_some_and(|wait| !wait.is_zero()) {
            return CommitOutcome::Parked;
        }
        self.first_refused_at = None;
        let mut parked = self.unpark();
        match self.handle.try_commit(&mut parked) {
            Ok(seq) => CommitOutcome::Accepted(seq.0),
            Err(_) => {
                self.park(parked);
                CommitOutcome::Parked
            }
        }
    }

    fn park(&mut self, batch: StoreBatch) {
        self.first_refused_at.get_or_insert_with(Instant::now);
        self.parked_urgent |= !batch.is_lazy();
        for (space, key, value) in batch.into_changes() {
            self.parked_bytes += PAIR_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
            let key_len = key.len();
            if let Some(old) = self.parked.insert((space, key), value) {
                self.parked_bytes -= PAIR_BYTES + key_len + old.map_or(0, |old| old.len());
            }
        }
    }

    fn unpark(&mut self) -> StoreBatch {
        self.parked_bytes = 0;
        let pairs = std::mem::take(&mut self.parked).into_iter();
        let changes = pairs.map(|((space, key), value)| (space, key, value));
        batch(changes, std::mem::take(&mut self.parked_urgent))
    }

    fn log_unreadable(&self, fault: &store::Fault) -> StoreReadError {
        (self.log)(&BrokerEvent::StoreUnreadable { fault: fault.to_string().into() });
        StoreReadError
    }
}

fn key_space(space: broker::RecordSpace) -> KeySpace {
    match space {
        broker::RecordSpace::Messages => KeySpace::Messages,
        broker::RecordSpace::Queues => KeySpace::Queues,
        broker::RecordSpace::Retained => KeySpace::Retained,
        broker::RecordSpace::Sessions => KeySpace::Sessions,
    }
}

fn batch_of(changes: Vec<RecordChange>, urgent: bool) -> StoreBatch {
    let change = |RecordChange { space: of, key, value }| (key_space(of), key, value);
    batch(changes.into_iter().map(change), urgent)
}

fn batch(
    changes: impl Iterator<Item = (KeySpace, Vec<u8>, Option<Vec<u8>>)>,
    urgent: bool,
) -> StoreBatch {
    let mut batch = StoreBatch::default();
    for (space, key, value) in changes {
        match value {
            Some(value) => batch.put(space, key, value),
            None => batch.remove(space, key),
        }
    }
    if !urgent {
        batch.set_lazy();
    }
    batch
}

impl std::fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("parked", &self.parked.len()).finish_non_exhaustive()
    }
}

/// Reads see parked values of their own shard first.
impl StoreReader for StoreClient {
    fn get(&self, of: broker::RecordSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
        if self.has_refused()
            && let Some(value) = self.parked.get(&(key_space(of), key.to_vec()))
        {
            return Ok(value.clone());
        }
        self.handle.get(key_space(of), key).map_err(|fault| self.log_unreadable(&fault))
    }

    fn scan(
        &self,
        of: broker::RecordSpace,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreReadError> {
        let start = (key_space(of), from.max(prefix).to_vec());
        let parked = self.parked.range(start..).map(|((of, key), value)| (*of, key, value));
        let mut parked = parked
            .take_while(|(found, key, _)| *found == key_space(of) && key.starts_with(prefix))
            .map(|(_, key, value)| (key, value))
            .peekable();
        let mut goes_on = true;
        let scanned = self.handle.scan(key_space(of), prefix, from, &mut |key, value| {
            while let Some((before, new)) = parked.next_if(|(parked, _)| parked[..] < *key) {
                goes_on = new.as_ref().is_none_or(|new| visit(before, new));
                if !goes_on {
                    return false;
                }
            }
            goes_on = match parked.next_if(|(parked, _)| parked[..] == *key) {
                Some((_, new)) => new.as_ref().is_none_or(|new| visit(key, new)),
                None => visit(key, value),
            };
            goes_on
        });
        scanned.map_err(|fault| self.log_unreadable(&fault))?;
        let mut rest = parked.filter_map(|(key, new)| Some((key, new.as_ref()?)));
        if goes_on {
            rest.all(|(key, new)| visit(key, new));
        }
        Ok(())
    }
}

impl StoreClient {
    /// Commits the records of the turn before any message or packet that depends on them is sent.
    pub(crate) fn commit_records(&mut self, turn: &mut ShardTurn) {
        turn.keep_due_clock();
        // An accepted commit may create records: a message whose turn comes may have expired.
        while turn.shard().has_records() || self.has_refused() {
            let (changes, urgent) = turn.take_records();
            let CommitOutcome::Accepted(seq) = self.commit(changes, urgent) else {
                turn.set_store_full(true);
                return turn.hold_unwritten(|of, key| self.is_parked(of, key));
            };
            turn.release_held();
            let durable = self.durable_seq();
            turn.handle(ShardInput::Committed { seq, durable });
        }
    }

    /// Whether the shard waits for progress of the store.
    pub(crate) fn is_awaited(&self, turn: &ShardTurn) -> bool {
        // A backlogged shard releases its publishers when a turn sees room, not when room appears:
        // the store has to wake it.
        turn.shard().waits_for_disk() || self.was_backlogged || self.handle.is_backlogged()
    }

    /// Whether the store has made progress since the last [`StoreClient::update_shard`].
    pub(crate) fn has_progress(&self, turn: &ShardTurn) -> bool {
        self.durable_seq() > turn.shard().durable_seen()
            || self.was_backlogged && !self.handle.is_backlogged()
    }

    /// Reports the backlog, the room and the progress of the store to the shard.
    pub(crate) fn update_shard(&mut self, turn: &mut ShardTurn) {
        self.was_backlogged = self.handle.is_backlogged();
        turn.set_store_full(self.refuses_writes());
        turn.note_backlog(self.was_backlogged, self.parked_bytes);
        let seq = self.durable_seq();
        if turn.shard().waits_for_disk() && seq > turn.shard().durable_seen() {
            turn.handle(ShardInput::Durable { seq });
        }
    }

    /// Queues a read for [`StoreClient::answer_reads`].
    pub(crate) fn queue_read(&mut self, reading: StoreReadRequest) {
        self.readings.push(reading);
    }

    /// Answers the reads which the shard has requested, after the outbox is performed.
    pub(crate) fn answer_reads(&mut self, turn: &mut ShardTurn) {
        for reading in std::mem::take(&mut self.readings) {
            turn.handle(ShardInput::StoreReady { reading, stored: self });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{DiskStore, StoreOptions};

    fn change(key: u64, len: usize) -> RecordChange {
        let space = broker::RecordSpace::Sessions;
        RecordChange { space, key: key.to_be_bytes().to_vec(), value: Some(vec![1; len]) }
    }

    #[test]
    fn what_is_refused_takes_memory_once_a_key() {
        let path = std::env::temp_dir().join(format!("shelf-{}", std::process::id()));
        let options = StoreOptions { bytes_max: 100, ..StoreOptions::default() };
        let (disk, _) = DiskStore::open(&path, options, Box::new(|_| {})).expect("it is new");
        let mut store_client = StoreClient::new(disk.handle(), Arc::new(|_| {}), Arc::default());
        for round in 0..100 {
            let changes = (0..10).map(|key| change(key, 1000 + round)).collect();
            assert!(matches!(store_client.commit(changes, true), CommitOutcome::Parked));
        }
        assert_eq!(store_client.parked_bytes, 10 * (PAIR_BYTES + 8 + 1099));
        let key = 3_u64.to_be_bytes();
        let read = store_client.get(broker::RecordSpace::Sessions, &key).expect("it can be read");
        assert_eq!(read.map(|value| value.len()), Some(1099));
        let batch = store_client.unpark();
        assert_eq!(
            (batch.changes().count(), batch.is_lazy(), store_client.parked_bytes),
            (10, false, 0)
        );
        drop(disk);
        std::fs::remove_dir_all(path).expect("it was made");
    }
}
