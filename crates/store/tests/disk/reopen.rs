//! All committed batches can be read, before and after the store is opened again.

use crate::chance::StoreRng;
use crate::forgetful::ForgetfulDisk;
use crate::model::{StoreModel, all, open, small, until};
use store::{KeyValueStore, StoreOptions};

#[test]
fn a_store_holds_what_the_model_holds_across_opens() {
    for seed in 0..10 {
        let (disk, mut rng) = (ForgetfulDisk::default(), StoreRng::new(seed));
        let mut model = StoreModel::default();
        for _ in 0..6 {
            let (store, report, _) = open(&disk, small()).expect("the store opens");
            assert_eq!((report.seq, report.torn_bytes), (model.seq(), 0));
            let mut handle = store.handle();
            for n in 0..rng.below(300) {
                model.commit_in_turn(&mut handle, &mut rng);
                if n % 50 == 0 {
                    assert_eq!(all(&handle).expect("readable"), model.at(model.seq()));
                }
            }
            assert_eq!(all(&handle).expect("readable"), model.at(model.seq()));
            assert_eq!(store.close(), model.seq());
        }
    }
}

#[test]
fn what_is_left_when_the_process_ends_at_any_moment_is_a_prefix_with_all_that_was_durable() {
    let mut rng = StoreRng::new(7);
    let (mut disk, mut model) = (ForgetfulDisk::default(), StoreModel::default());
    for _ in 0..30 {
        let (store, _, heard) = open(&disk, small()).expect("the store opens");
        let mut handle = store.handle();
        for _ in 0..rng.below(100) {
            model.commit_in_turn(&mut handle, &mut rng);
        }
        let promised = heard.durable();
        let left = ForgetfulDisk::of(&disk.seen());
        drop(store);
        let (store, report, _) = open(&left, small()).expect("an end is not a damage");
        assert!(report.seq >= promised);
        model.forget_after(report.seq);
        assert_eq!(all(&store.handle()).expect("readable"), model.at(report.seq));
        drop(store);
        disk = left;
    }
}

#[test]
fn a_lazy_batch_becomes_durable_without_another() {
    let disk = ForgetfulDisk::default();
    let (store, _, heard) = open(&disk, small()).expect("the store opens");
    let mut batch = store::StoreBatch::default();
    batch.put(store::KeySpace::Queues, b"k".to_vec(), b"v".to_vec());
    batch.set_lazy();
    let seq = store.handle().commit(batch).expect("there is room");
    until("the lazy batch is durable", || heard.durable() == seq);
}

#[test]
fn tables_stay_few() {
    let disk = ForgetfulDisk::default();
    let options = StoreOptions { memory_bytes: 2 << 10, ..small() };
    let (store, ..) = open(&disk, options).expect("the store opens");
    let (mut model, mut rng, mut handle) =
        (StoreModel::default(), StoreRng::new(3), store.handle());
    for _ in 0..2000 {
        model.commit_in_turn(&mut handle, &mut rng);
    }
    let tables = || disk.seen().keys().filter(|name| name.starts_with("table.")).count();
    until("the keeper has merged", || tables() <= 12);
    assert_eq!(all(&handle).expect("readable"), model.at(model.seq()));
}

/// On some file systems a sync of the log also waits for unsynced data of other files, so a table
/// must be synced in small parts.
#[test]
fn a_table_is_synced_in_small_parts() {
    let disk = ForgetfulDisk::default();
    let options = StoreOptions { memory_bytes: 512 << 10, ..small() };
    let (store, ..) = open(&disk, options).expect("the store opens");
    let mut handle = store.handle();
    for key in 0..700_u64 {
        let mut batch = store::StoreBatch::default();
        // Keys as long as topics may be: half of the table is its index.
        let key = [&key.to_be_bytes()[..], &[0; 8000]].concat();
        batch.put(store::KeySpace::Queues, key, vec![1; 10]);
        let seq = handle.commit(batch).expect("there is room");
        until("the batch is durable", || handle.durable() == seq && !handle.is_backlogged());
    }
    let large =
        |(name, bytes): (&String, &Vec<u8>)| name.starts_with("table.") && bytes.len() > 1 << 20;
    until("tables are merged", || disk.seen().iter().any(large));
    assert!(disk.state().unsynced_max <= 160 << 10, "{}", disk.state().unsynced_max);
}

#[test]
fn each_of_several_handles_reads_what_it_wrote_at_once() {
    let disk = ForgetfulDisk::default();
    let (store, _, heard) = open(&disk, small()).expect("the store opens");
    std::thread::scope(|scope| {
        for shard in 0..4_u64 {
            let mut handle = store.handle();
            scope.spawn(move || {
                for n in 0..300_u64 {
                    until("the store is not crowded", || !handle.is_backlogged());
                    let key = [shard.to_be_bytes(), n.to_be_bytes()].concat();
                    let mut batch = store::StoreBatch::default();
                    batch.put(store::KeySpace::Queues, key.clone(), vec![shard as u8; 100]);
                    handle.commit(batch).expect("there is room");
                    let value = handle.get(store::KeySpace::Queues, &key).expect("readable");
                    assert_eq!(value, Some(vec![shard as u8; 100]));
                    let (prefix, mut count) = (shard.to_be_bytes(), 0);
                    let mut visit = |_: &[u8], _: &[u8]| {
                        count += 1;
                        true
                    };
                    handle
                        .scan(store::KeySpace::Queues, &prefix, b"", &mut visit)
                        .expect("readable");
                    assert_eq!(count, n + 1);
                }
            });
        }
    });
    until("all of it is durable", || heard.durable().0 == 1200);
}
