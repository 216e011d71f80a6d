//! Damaged files: a flipped bit, a truncated file, a missing file. An open or a read reports the
//! damage; the store continues only with `repair`, and then reports the lost parts.

use crate::chance::StoreRng;
use crate::forgetful::{DiskImage, ForgetfulDisk};
use crate::model::{ModelPairs, StoreModel, all, open, small, until};
use std::sync::atomic::Ordering;
use store::{BatchSeq, Fault, KeyValueStore, RecoveryReport, StoreDamage, StoreOptions, check_in};

/// Returns the files of a closed store with tables, and with batches that are only in the log.
fn closed() -> (DiskImage, StoreModel) {
    let (disk, mut model, mut rng) =
        (ForgetfulDisk::default(), StoreModel::default(), StoreRng::new(11));
    let (store, ..) = open(&disk, small()).expect("the store opens");
    let mut handle = store.handle();
    for _ in 0..120 {
        model.commit_in_turn(&mut handle, &mut rng);
    }
    assert_eq!(store.close(), model.seq());
    let image = disk.seen();
    assert!(image.keys().any(|name| name.starts_with("table.")), "{:?}", image.keys());
    assert!(image.keys().any(|name| name.starts_with("log.")), "{:?}", image.keys());
    (image, model)
}

fn read(image: &DiskImage, repair: bool) -> Result<(ModelPairs, RecoveryReport), Fault> {
    let (store, report, _) = open(&ForgetfulDisk::of(image), StoreOptions { repair, ..small() })?;
    Ok((all(&store.handle())?, report))
}

/// Opens and reads a damaged store, which must report the damage or have all pairs, and then
/// repairs the store.
fn tells(image: &DiskImage, model: &StoreModel, what: &str) {
    let whole = model.at(model.seq());
    match read(image, false) {
        Ok((pairs, _)) => {
            assert!(pairs == whole, "{what}: opened, read, and something is missing");
            return;
        }
        Err(Fault::Damaged(damage)) => assert!(!damage.is_empty(), "{what}"),
        Err(Fault::Version(_)) => return,
        Err(fault) => panic!("{what}: {fault}"),
    }
    let checked = check_in(&ForgetfulDisk::of(image));
    match checked {
        Ok(report) => assert_ne!(report.damage, [], "{what}: the check found nothing"),
        Err(fault) => assert!(matches!(fault, Fault::Damaged(_)), "{what}: {fault}"),
    }
    let disk = ForgetfulDisk::of(image);
    let (store, report, _) = match open(&disk, StoreOptions { repair: true, ..small() }) {
        Ok(opened) => opened,
        Err(fault) => panic!("{what}: repair: {fault}"),
    };
    assert_ne!(report.damage, [], "{what}: repaired without a word");
    let left = all(&store.handle()).expect("a repaired store can be read");
    for ((space, key), value) in &left {
        assert!(model.had(*space, key, value), "{what}: a pair that never was");
    }
    assert!(report.seq >= model.seq(), "{what}: a Seq would be given twice");
    drop(store);
    let again = open(&disk, small()).expect("a repaired store is whole").0;
    assert_eq!(all(&again.handle()).expect("readable"), left, "{what}");
}

#[test]
fn a_flipped_bit_is_told_wherever_it_is() {
    let (image, model) = closed();
    for (name, bytes) in &image {
        let step = (bytes.len() / 150).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut image = image.clone();
            image.get_mut(name).expect("it is there")[at] ^= 1 << (at % 8);
            tells(&image, &model, &format!("{name}, bit flipped in byte {at}"));
        }
    }
}

#[test]
fn a_file_that_lost_its_end_is_told_wherever_it_ends() {
    let (image, model) = closed();
    for (name, bytes) in &image {
        let step = (bytes.len() / 100).max(1);
        for len in (0..bytes.len()).step_by(step) {
            let mut image = image.clone();
            image.get_mut(name).expect("it is there").truncate(len);
            tells(&image, &model, &format!("{name}, cut to {len} bytes"));
        }
    }
}

#[test]
fn a_file_that_is_gone_is_told() {
    let (image, model) = closed();
    for name in image.keys() {
        let mut image = image.clone();
        image.remove(name);
        tells(&image, &model, &format!("{name}, removed"));
    }
}

/// Returns the name of a table, and the position of its index.
fn a_table(image: &DiskImage) -> (String, usize) {
    let (name, bytes) =
        image.iter().find(|(name, _)| name.starts_with("table.")).expect("there is one");
    let foot = &bytes[bytes.len() - 48..];
    let index_at = u64::from_le_bytes(foot[8..16].try_into().expect("8 bytes"));
    (name.clone(), index_at as usize)
}

#[test]
fn a_table_without_its_index_is_read_block_by_block() {
    let (image, model) = closed();
    let (name, index_at) = a_table(&image);
    let bytes = image[&name].len();
    for at in [index_at + 9, bytes - 3] {
        let mut image = image.clone();
        image.get_mut(&name).expect("it is there")[at] ^= 1;
        let Err(Fault::Damaged(damage)) = read(&image, false) else { panic!("it is damaged") };
        assert!(matches!(damage[..], [StoreDamage::Index { blocks: 1.., .. }]), "{damage:?}");
        let (pairs, report) = read(&image, true).expect("it can be repaired");
        assert_eq!(report.damage, damage);
        assert_eq!(pairs, model.at(model.seq()), "all of its blocks are whole");
    }
}

#[test]
fn a_damaged_table_stays_and_the_others_are_merged() {
    let (mut image, _) = closed();
    let (name, _) = a_table(&image);
    image.get_mut(&name).expect("it is there")[100] ^= 1;
    let disk = ForgetfulDisk::of(&image);
    let (store, _, heard) = open(&disk, small()).expect("blocks are looked at when they are read");
    let mut handle = store.handle();
    for key in 0..600_u64 {
        let mut batch = store::StoreBatch::default();
        batch.put(store::KeySpace::Queues, key.to_be_bytes().to_vec(), vec![7; 1000]);
        until("there is room", || !handle.is_backlogged());
        handle.commit(batch).expect("there is room");
    }
    let tables = || disk.seen().keys().filter(|name| name.starts_with("table.")).count();
    until("the others are merged", || tables() < 20);
    assert!(disk.seen().contains_key(&name));
    let (damaged, failing) = (&heard.damaged, &heard.failing);
    let counts = (damaged.load(Ordering::SeqCst), failing.load(Ordering::SeqCst));
    assert_eq!(counts, (1, 0), "its owner hears of it, once, and of no disk that fails");
}

#[test]
fn a_mark_alone_is_what_is_left_of_a_store() {
    let (mut image, model) = closed();
    image.retain(|name, _| name == "mark");
    let Err(Fault::Damaged(damage)) = read(&image, false) else { panic!("it is damaged") };
    let all = StoreDamage::Batches { from: BatchSeq(1), to: model.seq() };
    assert_eq!(damage, [StoreDamage::Manifest, all]);
}

#[test]
fn what_is_missing_is_not_called_torn() {
    let (mut image, _) = ended(20);
    let (_, log) = image.iter_mut().find(|(name, _)| name.starts_with("log.")).expect("a log");
    let middle = log.len() / 2;
    log[middle] ^= 1;
    let (_, report) = read(&image, true).expect("it can be repaired");
    assert!(matches!(report.damage[..], [StoreDamage::Batches { .. }]), "{report:?}");
    assert_eq!(report.torn_bytes, 0);
}

#[test]
fn without_the_manifest_and_the_mark_nothing_can_be_repaired_and_nothing_is_made_anew() {
    let (mut image, _) = closed();
    image.remove("store");
    image.remove("mark");
    let fault = read(&image, true).expect_err("no id is left");
    assert_eq!(
        fault.to_string(),
        "the store is damaged: the file store is missing or unreadable; the file mark is missing \
         or unreadable"
    );
}

/// Returns the files of a store that was not closed, with `count` batches in one log and an
/// outdated durable mark.
fn ended(count: u64) -> (DiskImage, StoreModel) {
    let (disk, mut model, mut rng) =
        (ForgetfulDisk::default(), StoreModel::default(), StoreRng::new(5));
    let (store, _, heard) = open(&disk, StoreOptions::default()).expect("the store opens");
    let mut handle = store.handle();
    for _ in 0..count {
        let seq = model.commit_in_turn(&mut handle, &mut rng);
        until("the batch is durable", || heard.durable() == seq || handle.durable() == seq);
    }
    let image = disk.seen();
    (image, model)
}

#[test]
fn a_torn_tail_is_cut_and_reported() {
    let (mut image, model) = ended(6);
    let log = image.get_mut("log.1").expect("everything is in the first log");
    log.truncate(log.len() - 3);
    let disk = ForgetfulDisk::of(&image);
    let (store, report, _) = open(&disk, small()).expect("a torn tail is not a damage");
    assert_eq!((report.seq, report.damage), (BatchSeq(5), vec![]));
    assert!(report.torn_bytes > 0);
    assert_eq!(all(&store.handle()).expect("readable"), model.at(BatchSeq(5)));
    drop(store);
    let (_store, report, _) = open(&disk, small()).expect("it was cut");
    assert_eq!((report.seq, report.torn_bytes), (BatchSeq(5), 0));
}

#[test]
fn a_record_in_the_middle_is_missed_because_later_ones_knew_it_durable() {
    let (mut image, _) = ended(6);
    let log = image.get_mut("log.1").expect("everything is in the first log");
    let len = log.len();
    log[len / 3] ^= 1;
    let fault = read(&image, false).expect_err("a batch is missing");
    let Fault::Damaged(damage) = &fault else { panic!("{fault}") };
    let [StoreDamage::Batches { from, to }] = damage[..] else { panic!("{fault}") };
    assert_eq!(from, to);
    assert_eq!(
        fault.to_string(),
        format!("the store is damaged: batch {} is missing", from.0),
        "what is missing is told"
    );
    let (_, report) = read(&image, true).expect("repair goes on without it");
    assert_eq!((report.seq, report.batches), (BatchSeq(6), 5));
}

#[test]
fn a_batch_that_a_failed_write_left_in_parts_counts_where_it_stands_whole() {
    let (mut image, model) = ended(6);
    let log = image.remove("log.1").expect("everything is in the first log");
    let mut records = Vec::new();
    let mut rest = &log[..];
    while !rest.is_empty() {
        // docs/store-format.md: the length of the changes, behind 24 of 28 bytes.
        let len = u32::from_le_bytes(rest[24..28].try_into().expect("four bytes"));
        records.push(rest.split_off(..28 + len as usize).expect("a whole record"));
    }
    let hole = vec![0; records[3].len()];
    image.insert("log.1".into(), [records[..3].concat(), hole, records[4].to_vec()].concat());
    image.insert("log.2".into(), records[3..].concat());
    let (pairs, report) = read(&image, false).expect("nothing is missing");
    assert_eq!((report.seq, report.batches), (BatchSeq(6), 6));
    assert_eq!(pairs, model.at(BatchSeq(6)));
}

#[test]
fn a_log_that_ends_below_the_mark_is_damage() {
    let (disk, mut model, mut rng) =
        (ForgetfulDisk::default(), StoreModel::default(), StoreRng::new(5));
    let (store, ..) = open(&disk, StoreOptions::default()).expect("the store opens");
    for _ in 0..4 {
        model.commit_in_turn(&mut store.handle(), &mut rng);
    }
    store.close();
    let mut image = disk.seen();
    let log = image.get_mut("log.1").expect("everything is in the first log");
    log.truncate(log.len() - 3);
    let fault = read(&image, false).expect_err("the mark knows better");
    assert_eq!(fault.to_string(), "the store is damaged: batch 4 is missing");
}
