//! A model of the store: the accepted batches, and the pairs that result from them.

use crate::chance::StoreRng;
use crate::forgetful::ForgetfulDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{
    BatchSeq, DiskStore, Fault, KeySpace, KeyValueStore, RecoveryReport, StoreBatch, StoreEvent,
    StoreOptions,
};

pub(crate) type ModelPairs = BTreeMap<(KeySpace, Vec<u8>), Vec<u8>>;

type ModelChanges = Vec<(KeySpace, Vec<u8>, Option<Vec<u8>>)>;

/// The accepted batches in order; the first one has the number 1.
#[derive(Default)]
pub(crate) struct StoreModel {
    batches: Vec<ModelChanges>,
}

impl StoreModel {
    pub(crate) fn seq(&self) -> BatchSeq {
        BatchSeq(self.batches.len() as u64)
    }

    /// Commits a random batch, and adds the batch to the model if the store accepts it.
    pub(crate) fn commit(
        &mut self,
        store: &mut dyn KeyValueStore,
        rng: &mut StoreRng,
    ) -> Result<BatchSeq, Fault> {
        let mut changes = Vec::new();
        let mut batch = StoreBatch::default();
        for _ in 0..=rng.below(8) {
            let space = KeySpace::ALL[rng.below(4) as usize];
            let key = format!("key/{}", rng.below(60)).into_bytes();
            if rng.below(5) < 2 {
                batch.remove(space, key.clone());
                changes.push((space, key, None));
            } else {
                let value = vec![rng.below(256) as u8; rng.below(300) as usize];
                batch.put(space, key.clone(), value.clone());
                changes.push((space, key, Some(value)));
            }
        }
        if rng.below(4) == 0 {
            batch.set_lazy();
        }
        let seq = store.commit(batch)?;
        self.batches.push(changes);
        assert_eq!(seq, self.seq(), "batches are numbered without a gap");
        Ok(seq)
    }

    /// Waits until the store is not backlogged, and then commits a random batch.
    pub(crate) fn commit_in_turn(
        &mut self,
        store: &mut dyn KeyValueStore,
        rng: &mut StoreRng,
    ) -> BatchSeq {
        until("the store is not crowded", || !store.is_backlogged());
        self.commit(store, rng).expect("there is room")
    }

    /// Returns the pairs after the first `seq` batches.
    pub(crate) fn at(&self, seq: BatchSeq) -> ModelPairs {
        let mut pairs = ModelPairs::new();
        for (space, key, value) in self.batches[..seq.0 as usize].iter().flatten() {
            let key = (*space, key.clone());
            match value {
                Some(value) => pairs.insert(key, value.clone()),
                None => pairs.remove(&key),
            };
        }
        pairs
    }

    /// Removes the batches after `seq`, which were lost and had not been reported as durable.
    pub(crate) fn forget_after(&mut self, seq: BatchSeq) {
        self.batches.truncate(seq.0 as usize);
    }

    /// Whether any batch has put this pair.
    pub(crate) fn had(&self, space: KeySpace, key: &[u8], value: &[u8]) -> bool {
        let found = |change: &(KeySpace, Vec<u8>, Option<Vec<u8>>)| {
            change.0 == space && change.1 == key && change.2.as_deref() == Some(value)
        };
        self.batches.iter().flatten().any(found)
    }
}

/// Returns all pairs of a store.
pub(crate) fn all(store: &dyn KeyValueStore) -> Result<ModelPairs, Fault> {
    let mut pairs = ModelPairs::new();
    for space in KeySpace::ALL {
        let mut visit = |key: &[u8], value: &[u8]| {
            pairs.insert((space, key.to_vec()), value.to_vec());
            true
        };
        store.scan(space, b"", b"", &mut visit)?;
    }
    for ((space, key), value) in &pairs {
        assert_eq!(store.get(*space, key)?.as_ref(), Some(value), "scan and get agree");
    }
    Ok(pairs)
}

/// Returns options with bounds so small that tests use tables, merges and several logs.
pub(crate) fn small() -> StoreOptions {
    StoreOptions {
        memory_bytes: 4 << 10,
        lazy: Duration::from_millis(2),
        ..StoreOptions::default()
    }
}

/// Events that the store has reported: the last durable batch, and the number of other events.
#[derive(Default)]
pub(crate) struct EventCounts {
    pub(crate) durable: AtomicU64,
    pub(crate) failing: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) recovered: AtomicU64,
    pub(crate) roomy: AtomicU64,
}

impl EventCounts {
    pub(crate) fn durable(&self) -> BatchSeq {
        BatchSeq(self.durable.load(Ordering::SeqCst))
    }
}

pub(crate) fn open(
    disk: &ForgetfulDisk,
    options: StoreOptions,
) -> Result<(DiskStore, RecoveryReport, Arc<EventCounts>), Fault> {
    let heard = Arc::new(EventCounts::default());
    let ears = Arc::clone(&heard);
    let notify = move |event| match event {
        StoreEvent::Durable(seq) => ears.durable.store(seq.0, Ordering::SeqCst),
        StoreEvent::Failing(_) => _ = ears.failing.fetch_add(1, Ordering::SeqCst),
        StoreEvent::Damaged(_) => _ = ears.damaged.fetch_add(1, Ordering::SeqCst),
        StoreEvent::Recovered => _ = ears.recovered.fetch_add(1, Ordering::SeqCst),
        StoreEvent::BacklogCleared => _ = ears.roomy.fetch_add(1, Ordering::SeqCst),
    };
    let (store, report) = DiskStore::open_in(Arc::new(disk.clone()), options, Box::new(notify))?;
    Ok((store, report, heard))
}

/// Waits until `holds` returns true, for up to 30 seconds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
