//! A shard's way to the store: its records go down at the end of a tick, and what the store holds
//! comes up when the shard asks.
//!
//! What the store refuses is not lost: it waits here, and with it the answers that promise it,
//! until there is room. Removals go past it, since they are what makes room.

use crate::body::Body;
use broker::{Change, Input, Note, Stored, Unreadable};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use store::{Batch, Handle, Space, Store};

pub(crate) struct Shelf {
    handle: Handle,
    log: Arc<dyn Fn(&Note) + Send + Sync>,
    /// What the store has refused makes this of each key, ...
    parked: BTreeMap<(Space, Vec<u8>), Option<Vec<u8>>>,
    /// ... takes so much memory, ...
    parked_bytes: usize,
    /// ... and is waited for.
    parked_urgent: bool,
    tried: Option<Instant>,
    /// What `refuses` said last, ...
    refused: bool,
    /// ... and how many of all shards' shelves said that they do: the log hears of the first and
    /// of the last.
    refusing: Arc<AtomicUsize>,
}

/// How long after a refusal the store is asked again.
const RETRY: Duration = Duration::from_millis(100);

/// What a parked pair costs beside its bytes: two vectors, and its share of a node.
const PAIR_BYTES: usize = 64;

/// What became of a tick's records.
enum Committed {
    /// The store's number for them; 0 where there were none.
    Under(u64),
    /// Not yet.
    Parked,
}

impl Shelf {
    pub(crate) fn new(
        handle: Handle,
        log: Arc<dyn Fn(&Note) + Send + Sync>,
        refusing: Arc<AtomicUsize>,
    ) -> Shelf {
        Shelf {
            refusing,
            handle,
            log,
            parked: BTreeMap::new(),
            parked_bytes: 0,
            parked_urgent: false,
            tried: None,
            refused: false,
        }
    }

    pub(crate) fn durable(&self) -> u64 {
        self.handle.durable().0
    }

    /// More waits for the disk than it likes: who reads on adds to it.
    pub(crate) fn is_crowded(&self) -> bool {
        self.handle.crowded()
    }

    /// The store refused something, and has not yet taken it.
    fn is_full(&self) -> bool {
        !self.parked.is_empty()
    }

    fn has_parked(&self, of: broker::Space, key: &[u8]) -> bool {
        self.parked.contains_key(&(space(of), key.to_vec()))
    }

    /// Whether nobody is to be promised more. Says so in the log when it begins and when it ends.
    pub(crate) fn refuses(&mut self) -> bool {
        let refuses = self.is_full() || self.handle.is_tight();
        if refuses != self.refused {
            self.refused = refuses;
            if refuses && self.refusing.fetch_add(1, SeqCst) == 0 {
                (self.log)(&Note::StoreFull);
            } else if !refuses && self.refusing.fetch_sub(1, SeqCst) == 1 {
                (self.log)(&Note::StoreRoomy);
            }
        }
        refuses
    }

    /// When to try again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let tried = self.tried.filter(|_| self.is_full())?;
        Some(RETRY.saturating_sub(tried.elapsed()))
    }

    /// What a start writes, under the store's number. Refused, and written later, it would take
    /// the place of what the shards have written meanwhile. It is hardly more than it replaces.
    pub(crate) fn begin(&mut self, changes: Vec<Change>) -> u64 {
        self.handle.begin(batch_of(changes, true)).0
    }

    fn commit(&mut self, changes: Vec<Change>, urgent: bool) -> Committed {
        let mut batch = batch_of(changes, urgent);
        if self.is_full() {
            return self.commit_behind(batch);
        }
        if batch.is_empty() {
            return Committed::Under(0);
        }
        match self.handle.offer(&mut batch) {
            Ok(seq) => Committed::Under(seq.0),
            Err(_) => {
                self.park(batch);
                Committed::Parked
            }
        }
    }

    /// With something parked: removals go past it where they do not concern it.
    fn commit_behind(&mut self, mut batch: Batch) -> Committed {
        let concerns =
            |(space, key, _): (Space, &[u8], _)| self.parked.contains_key(&(space, key.to_vec()));
        let passes = !batch.grows() && !batch.changes().any(concerns);
        if passes && !batch.is_empty() {
            // What is taken leaves nothing behind, and what is refused stays to be parked.
            let _ = self.handle.offer(&mut batch);
        }
        if !batch.is_empty() {
            self.park(batch);
        }
        if self.retry_after().is_some_and(|wait| !wait.is_zero()) {
            return Committed::Parked;
        }
        self.tried = None;
        let mut parked = self.unpark();
        match self.handle.offer(&mut parked) {
            Ok(seq) => Committed::Under(seq.0),
            Err(_) => {
                self.park(parked);
                Committed::Parked
            }
        }
    }

    fn park(&mut self, batch: Batch) {
        self.tried.get_or_insert_with(Instant::now);
        self.parked_urgent |= !batch.is_lazy();
        for (space, key, value) in batch.into_changes() {
            self.parked_bytes += PAIR_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
            let key_len = key.len();
            if let Some(old) = self.parked.insert((space, key), value) {
                self.parked_bytes -= PAIR_BYTES + key_len + old.map_or(0, |old| old.len());
            }
        }
    }

    fn unpark(&mut self) -> Batch {
        self.parked_bytes = 0;
        let pairs = std::mem::take(&mut self.parked).into_iter();
        let changes = pairs.map(|((space, key), value)| (space, key, value));
        batch(changes, std::mem::take(&mut self.parked_urgent))
    }

    fn said(&self, fault: &store::Fault) -> Unreadable {
        (self.log)(&Note::StoreUnreadable { fault: fault.to_string().into() });
        Unreadable
    }
}

fn space(space: broker::Space) -> Space {
    match space {
        broker::Space::Messages => Space::Messages,
        broker::Space::Queues => Space::Queues,
        broker::Space::Retained => Space::Retained,
        broker::Space::Sessions => Space::Sessions,
    }
}

fn batch_of(changes: Vec<Change>, urgent: bool) -> Batch {
    let change = |Change { space: of, key, value }| (space(of), key, value);
    batch(changes.into_iter().map(change), urgent)
}

fn batch(changes: impl Iterator<Item = (Space, Vec<u8>, Option<Vec<u8>>)>, urgent: bool) -> Batch {
    let mut batch = Batch::default();
    for (space, key, value) in changes {
        match value {
            Some(value) => batch.put(space, key, value),
            None => batch.remove(space, key),
        }
    }
    if !urgent {
        batch.lazy();
    }
    batch
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("parked", &self.parked.len()).finish_non_exhaustive()
    }
}

/// What is parked is there for its own shard.
impl Stored for Shelf {
    fn get(&self, of: broker::Space, key: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
        if self.is_full()
            && let Some(value) = self.parked.get(&(space(of), key.to_vec()))
        {
            return Ok(value.clone());
        }
        self.handle.get(space(of), key).map_err(|fault| self.said(&fault))
    }

    fn scan(
        &self,
        of: broker::Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Unreadable> {
        let start = (space(of), from.max(prefix).to_vec());
        let parked = self.parked.range(start..).map(|((of, key), value)| (*of, key, value));
        let mut parked = parked
            .take_while(|(found, key, _)| *found == space(of) && key.starts_with(prefix))
            .map(|(_, key, value)| (key, value))
            .peekable();
        let mut goes_on = true;
        let scanned = self.handle.scan(space(of), prefix, from, &mut |key, value| {
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
        scanned.map_err(|fault| self.said(&fault))?;
        let mut rest = parked.filter_map(|(key, new)| Some((key, new.as_ref()?)));
        if goes_on {
            rest.all(|(key, new)| visit(key, new));
        }
        Ok(())
    }
}

impl Body {
    /// The tick's records go down before anything that says so goes out.
    pub(crate) fn store(&mut self) {
        let Some(shelf) = &mut self.shelf else { return };
        if self.clock.claim_record(self.now, self.shard.has_records()) {
            self.shard.keep_clock(&self.clock.reading());
        }
        // What is paid at once may write more: a message whose turn came may have expired.
        while self.shard.has_records() || shelf.is_full() {
            let (changes, urgent) = self.shard.take_records();
            let Committed::Under(seq) = shelf.commit(changes, urgent) else {
                self.shard.set_store_full(true);
                return self.out.hold_back(|of, key| shelf.has_parked(of, key));
            };
            self.out.let_go(|cross| self.shard.say_late(cross));
            let durable = shelf.durable();
            self.shard.handle(self.now, Input::Committed { seq, durable }, &mut self.out);
        }
    }

    pub(crate) fn awaits_disk(&self) -> bool {
        // Whom it holds it lets go when it sees that there is room, and not when there is.
        self.shelf
            .as_ref()
            .is_some_and(|shelf| self.shard.waits_for_disk() || self.crowded || shelf.is_crowded())
    }

    pub(crate) fn disk_has_more(&self) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| {
            shelf.durable() > self.shard.durable_seen() || self.crowded && !shelf.is_crowded()
        })
    }

    pub(crate) fn look_at_disk(&mut self) {
        let Some(shelf) = &mut self.shelf else { return };
        self.crowded = shelf.is_crowded();
        self.shard.set_store_full(shelf.refuses());
        self.shard.hold_for_store(shelf.parked_bytes);
        self.shard.set_store_crowded(self.now, self.crowded, &mut self.out);
        let seq = shelf.durable();
        if self.shard.waits_for_disk() && seq > self.shard.durable_seen() {
            self.shard.handle(self.now, Input::Durable { seq }, &mut self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Disk, Options};

    fn change(key: u64, len: usize) -> Change {
        let space = broker::Space::Sessions;
        Change { space, key: key.to_be_bytes().to_vec(), value: Some(vec![1; len]) }
    }

    #[test]
    fn what_is_refused_takes_memory_once_a_key() {
        let path = std::env::temp_dir().join(format!("shelf-{}", std::process::id()));
        let options = Options { bytes_max: 100, ..Options::default() };
        let (disk, _) = Disk::open(&path, options, Box::new(|_| {})).expect("it is new");
        let mut shelf = Shelf::new(disk.handle(), Arc::new(|_| {}), Arc::default());
        for round in 0..100 {
            let changes = (0..10).map(|key| change(key, 1000 + round)).collect();
            assert!(matches!(shelf.commit(changes, true), Committed::Parked));
        }
        assert_eq!(shelf.parked_bytes, 10 * (PAIR_BYTES + 8 + 1099));
        let key = 3_u64.to_be_bytes();
        let read = shelf.get(broker::Space::Sessions, &key).expect("it can be read");
        assert_eq!(read.map(|value| value.len()), Some(1099));
        let batch = shelf.unpark();
        assert_eq!((batch.changes().count(), batch.is_lazy(), shelf.parked_bytes), (10, false, 0));
        drop(disk);
        std::fs::remove_dir_all(path).expect("it was made");
    }
}
