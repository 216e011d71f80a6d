//! A shard's way to the store: its records go down at the end of a tick, and what the store holds
//! comes up when the shard asks.
//!
//! What the store refuses is not lost: it waits here, and with it the answers that promise it,
//! until there is room. Removals go past it, since they are what makes room.

use crate::body::Body;
use broker::{Change, Input, Note, Stored, Unreadable};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Batch, Handle, Space, Store};

pub(crate) struct Shelf {
    handle: Handle,
    log: Arc<dyn Fn(&Note) + Send + Sync>,
    /// Refused by the store, in order.
    parked: Batch,
    parked_keys: BTreeSet<(Space, Vec<u8>)>,
    tried: Option<Instant>,
    /// What `refuses` said last.
    refused: bool,
}

/// How long after a refusal the store is asked again.
const RETRY: Duration = Duration::from_millis(100);

/// What became of a tick's records.
pub(crate) enum Committed {
    /// The store's number for them; 0 where there were none.
    Under(u64),
    /// Not yet.
    Parked,
}

impl Shelf {
    pub(crate) fn new(handle: Handle, log: Arc<dyn Fn(&Note) + Send + Sync>) -> Shelf {
        Shelf {
            handle,
            log,
            parked: Batch::default(),
            parked_keys: BTreeSet::new(),
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

    /// Whether nobody is to be promised more. Says so in the log when it begins and when it ends.
    pub(crate) fn refuses(&mut self) -> bool {
        let refuses = self.is_full() || self.handle.is_tight();
        if refuses != self.refused {
            self.refused = refuses;
            (self.log)(&if refuses { Note::StoreFull } else { Note::StoreRoomy });
        }
        refuses
    }

    /// When to try again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let tried = self.tried.filter(|_| self.is_full())?;
        Some(RETRY.saturating_sub(tried.elapsed()))
    }

    pub(crate) fn commit(&mut self, changes: Vec<Change>, urgent: bool) -> Committed {
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
            |(space, key): (Space, &[u8])| self.parked_keys.contains(&(space, key.to_vec()));
        let passes = !batch.grows() && !batch.keys().any(concerns);
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
        self.tried = Some(Instant::now());
        match self.handle.offer(&mut self.parked) {
            Ok(seq) => {
                self.parked_keys = BTreeSet::new();
                Committed::Under(seq.0)
            }
            Err(_) => Committed::Parked,
        }
    }

    fn park(&mut self, batch: Batch) {
        self.parked_keys.extend(batch.keys().map(|(space, key)| (space, key.to_vec())));
        if self.is_full() {
            return self.parked.extend(batch);
        }
        self.tried = Some(Instant::now());
        self.parked = batch;
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
    let mut batch = Batch::default();
    for Change { space: of, key, value } in changes {
        match value {
            Some(value) => batch.put(space(of), key, value),
            None => batch.remove(space(of), key),
        }
    }
    if !urgent {
        batch.lazy();
    }
    batch
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("parked", &self.parked.bytes()).finish_non_exhaustive()
    }
}

impl Stored for Shelf {
    fn get(&self, of: broker::Space, key: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
        self.handle.get(space(of), key).map_err(|fault| self.said(&fault))
    }

    fn scan(
        &self,
        of: broker::Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Unreadable> {
        self.handle.scan(space(of), prefix, from, visit).map_err(|fault| self.said(&fault))
    }
}

impl Body {
    /// The tick's records go down before anything that says so goes out.
    pub(crate) fn store(&mut self) {
        let Some(shelf) = &mut self.shelf else { return };
        // What is paid at once may write more: a message whose turn came may have expired.
        while self.shard.has_records() || shelf.is_full() {
            let (changes, urgent) = self.shard.take_records();
            let Committed::Under(seq) = shelf.commit(changes, urgent) else { return };
            let durable = shelf.durable();
            self.shard.handle(self.now, Input::Committed { seq, durable }, &mut self.out);
        }
    }

    pub(crate) fn awaits_disk(&self) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| self.shard.waits_for_disk() || shelf.is_crowded())
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
        let seq = shelf.durable();
        if self.shard.waits_for_disk() && seq > self.shard.durable_seen() {
            self.shard.handle(self.now, Input::Durable { seq }, &mut self.out);
        }
    }
}
