//! Full, failing and slow disks. No accepted batch is lost, a refused batch is refused as a whole,
//! and the store recovers by itself.

use crate::chance::StoreRng;
use crate::forgetful::ForgetfulDisk;
use crate::model::{StoreModel, all, open, small, until};
use std::io;
use std::sync::atomic::Ordering;
use store::{Fault, KeySpace, KeyValueStore, StoreBatch, StoreOptions};

fn put(key: u64, len: usize) -> StoreBatch {
    let mut batch = StoreBatch::default();
    batch.put(KeySpace::Queues, key.to_be_bytes().to_vec(), vec![7; len]);
    batch
}

#[test]
fn the_quota_refuses_a_batch_whole_and_removals_make_room_again() {
    let disk = ForgetfulDisk::default();
    let options = StoreOptions { bytes_max: 200 << 10, memory_bytes: 8 << 10, ..small() };
    let (store, ..) = open(&disk, options.clone()).expect("the store opens");
    let mut handle = store.handle();
    for round in 0..3 {
        let mut taken = 0;
        loop {
            if handle.is_backlogged() {
                std::thread::yield_now();
                continue;
            }
            match handle.commit(put(taken, 1000)) {
                Ok(_) => taken += 1,
                Err(Fault::Full) => break,
                Err(fault) => panic!("{fault}"),
            }
        }
        // How often a batch stands there at once, in logs and in tables that are being made, is a
        // matter of who runs when.
        assert!(taken > 25, "round {round}: {taken} batches of the quota's 200");
        assert_eq!(handle.get(KeySpace::Queues, &taken.to_be_bytes()).expect("readable"), None);
        for key in 0..taken {
            let mut batch = StoreBatch::default();
            batch.remove(KeySpace::Queues, key.to_be_bytes().to_vec());
            handle.commit(batch).expect("a removal is always taken");
        }
        until("there is room again", || handle.commit(put(0, 1000)).is_ok());
        until("the disk is almost empty", || {
            drop(handle.commit(put(0, 1 << 20)));
            store.bytes() < 50 << 10
        });
    }
}

/// The store makes room for the first removal while more removals arrive, and no later commit makes
/// the store look again.
#[test]
fn who_asks_without_a_commit_hears_of_room() {
    for pause_us in (0..400).step_by(10) {
        let disk = ForgetfulDisk::default();
        let options = StoreOptions { bytes_max: 200 << 10, memory_bytes: 64 << 10, ..small() };
        let (store, ..) = open(&disk, options).expect("the store opens");
        let mut handle = store.handle();
        let mut taken = 0;
        // A table may fill it at a stroke, while the log has the same still.
        while !handle.is_nearly_full() && handle.commit(put(taken, 1000)).is_ok() {
            taken += 1;
            until("the store is not crowded", || !handle.is_backlogged());
        }
        assert!(taken > 50, "{taken} batches of the quota's 200");
        for key in 0..taken {
            let mut batch = StoreBatch::default();
            batch.remove(KeySpace::Queues, key.to_be_bytes().to_vec());
            handle.commit(batch).expect("a removal is always taken");
            std::thread::sleep(std::time::Duration::from_micros(pause_us));
        }
        until("there is room again", || !handle.is_nearly_full());
    }
}

#[test]
fn what_was_removed_leaves_the_disk_though_nothing_more_is_committed() {
    let disk = ForgetfulDisk::default();
    let options = StoreOptions { memory_bytes: 8 << 10, ..small() };
    let (store, ..) = open(&disk, options).expect("the store opens");
    let mut handle = store.handle();
    let mut commit = |batch| {
        until("the store is not crowded", || !handle.is_backlogged());
        handle.commit(batch).expect("there is room")
    };
    for key in 0..2000 {
        commit(put(key, 1000));
    }
    for key in 0..2000_u64 {
        let mut batch = StoreBatch::default();
        batch.remove(KeySpace::Queues, key.to_be_bytes().to_vec());
        commit(batch);
    }
    until("the disk is almost empty", || store.bytes() < 200 << 10);
}

#[test]
fn a_full_disk_refuses_keeps_what_it_took_and_recovers() {
    let (disk, mut model, mut rng) =
        (ForgetfulDisk::default(), StoreModel::default(), StoreRng::new(2));
    let (store, _, heard) = open(&disk, small()).expect("the store opens");
    let mut handle = store.handle();
    for _ in 0..50 {
        model.commit_in_turn(&mut handle, &mut rng);
    }
    disk.state().space = Some(0);
    until("the store is full", || matches!(model.commit(&mut handle, &mut rng), Err(Fault::Full)));
    assert_eq!(all(&handle).expect("it still reads"), model.at(model.seq()));
    let mut removal = StoreBatch::default();
    removal.remove(KeySpace::Sessions, b"nothing".to_vec());
    handle.commit(removal).expect("a removal waits for the room");
    disk.state().space = None;
    let seq = store::BatchSeq(model.seq().0 + 1);
    until("everything that was taken is durable", || handle.durable() == seq);
    assert!(heard.failing.load(Ordering::SeqCst) > 0);
    until("the owner knows", || heard.recovered.load(Ordering::SeqCst) > 0);
    until("the store takes more", || handle.commit(put(0, 10)).is_ok());
    drop(store);
    let (_store, report, _) = open(&disk, small()).expect("the store opens");
    assert_eq!(report.damage, []);
    assert!(report.seq > seq);
}

#[test]
fn a_sync_that_failed_is_not_trusted_and_nothing_is_lost() {
    for count in 1..6 {
        let (disk, mut model, mut rng) =
            (ForgetfulDisk::default(), StoreModel::default(), StoreRng::new(count));
        let (store, _, heard) = open(&disk, small()).expect("the store opens");
        let mut handle = store.handle();
        for n in 0..60 {
            if n == 20 {
                disk.state().sync_faults = vec![io::ErrorKind::Other; count as usize];
            }
            until("the store takes the batch", || match model.commit(&mut handle, &mut rng) {
                Ok(_) => true,
                Err(Fault::Disk(_) | Fault::Full) => false,
                Err(fault) => panic!("{fault}"),
            });
        }
        until("everything is durable", || heard.durable() == model.seq());
        let left = ForgetfulDisk::of(&disk.left(&mut rng));
        let (again, report, _) = open(&left, small()).expect("a failed sync is not a damage");
        assert_eq!(report.seq, model.seq());
        assert_eq!(all(&again.handle()).expect("readable"), model.at(model.seq()));
    }
}

#[test]
fn the_log_stays_until_a_manifest_says_that_the_tables_have_it() {
    let disk = ForgetfulDisk::default();
    let (store, _, heard) = open(&disk, small()).expect("the store opens");
    let mut handle = store.handle();
    // A sync that fails ends the first log, however little is in it.
    handle.commit(put(0, 10)).expect("there is room");
    until("the batch is durable", || handle.durable().0 == 1);
    disk.state().sync_faults = vec![io::ErrorKind::Other];
    handle.commit(put(1, 10)).expect("there is room");
    until("the batch is durable", || handle.durable().0 == 2);
    disk.state().barred = Some("store.new");
    for key in 2..7 {
        handle.commit(put(key, 1000)).expect("there is room");
    }
    until("everything is durable", || heard.durable().0 == 7);
    until("the keeper has tried it twice", || disk.state().barred_tries == 2);
    let tables = || disk.seen().keys().filter(|name| name.starts_with("table.")).count();
    until("what it made for nothing is gone", || tables() == 0);
    let (_again, report, _) =
        open(&ForgetfulDisk::of(&disk.seen()), small()).expect("nothing is lost");
    assert_eq!(report.seq.0, 7);
}

#[test]
fn a_disk_that_does_not_move_makes_the_store_crowded_then_full_and_never_waits() {
    let disk = ForgetfulDisk::default();
    let options = StoreOptions { inbox_bytes: 16 << 10, ..small() };
    let (store, _, heard) = open(&disk, options).expect("the store opens");
    let mut handle = store.handle();
    disk.state().held = true;
    let (mut crowded_at, mut key) = (None, 0);
    let refused = loop {
        if handle.is_backlogged() {
            crowded_at.get_or_insert(key);
        }
        match handle.commit(put(key, 500)) {
            Ok(_) => key += 1,
            Err(fault) => break fault,
        }
    };
    assert!(matches!(refused, Fault::Full), "{refused}");
    assert!(crowded_at.is_some_and(|at| at < key), "crowded comes before full");
    assert_eq!(
        handle.get(KeySpace::Queues, &0_u64.to_be_bytes()).expect("readable").map(|v| v.len()),
        Some(500)
    );
    disk.release();
    until("the disk has caught up", || handle.durable().0 == key && !handle.is_backlogged());
    until("whoever waits is told", || heard.roomy.load(Ordering::SeqCst) > 0);
    handle.commit(put(key, 500)).expect("there is room again");
}
