//! The store folder on the real file system: lock, version, and contents after a close.

use crate::model::{ModelPairs, all};
use std::fs;
use std::path::PathBuf;
use store::{DiskStore, Fault, KeySpace, KeyValueStore, StoreBatch, StoreOptions, check};

struct RealFolder(PathBuf);

impl RealFolder {
    fn new(name: &str) -> RealFolder {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{name}"));
        drop(fs::remove_dir_all(&path));
        RealFolder(path)
    }

    fn open(&self) -> Result<DiskStore, Fault> {
        Ok(DiskStore::open(&self.0, StoreOptions::default(), Box::new(|_| {}))?.0)
    }
}

impl Drop for RealFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_folder_has_one_owner_at_a_time() {
    let folder = RealFolder::new("owner");
    let first = folder.open().expect("the folder is free");
    let refused = folder.open().map(drop).expect_err("the folder is taken");
    let words = format!("another process uses the data folder {}", folder.0.display());
    assert_eq!(refused.to_string(), words);
    assert!(matches!(check(&folder.0), Err(Fault::Locked(_))));
    drop(first);
    folder.open().expect("the folder is free again");
}

#[test]
fn an_unknown_format_is_refused_in_words() {
    let folder = RealFolder::new("version");
    drop(folder.open().expect("the folder is free"));
    let manifest = folder.0.join("store");
    let mut bytes = fs::read(&manifest).expect("it is there");
    bytes[8] = 9;
    fs::write(&manifest, &bytes).expect("writable");
    let refused = folder.open().map(drop).expect_err("nobody knows format 9");
    assert_eq!(
        refused.to_string(),
        "the store has format 9, and this program knows format 1 alone: use the program that \
         wrote it to export the data"
    );
    assert_eq!(fs::read(&manifest).expect("it is there"), bytes, "and nothing was touched");
}

/// Reads a folder written by an earlier version of the store: a manifest, its mark, three tables,
/// and the log of a store that was not closed.
#[test]
fn a_stored_folder_is_read_whole() {
    let folder = RealFolder::new("stored");
    fs::create_dir_all(&folder.0).expect("writable");
    let stored = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/disk/stored");
    for file in fs::read_dir(stored).expect("it is there") {
        let file = file.expect("readable");
        fs::copy(file.path(), folder.0.join(file.file_name())).expect("writable");
    }
    let report = check(&folder.0).expect("readable");
    assert_eq!((report.seq.0, report.torn_bytes, report.damage.len()), (80, 0, 0));
    let mut pairs = ModelPairs::new();
    for n in 0..80_u32 {
        let value = vec![n as u8; (n * 7 % 150) as usize];
        pairs.insert((KeySpace::ALL[n as usize % 4], n.to_be_bytes().to_vec()), value);
        if n % 5 == 4 {
            let before = n - 1;
            pairs.remove(&(KeySpace::ALL[before as usize % 4], before.to_be_bytes().to_vec()));
        }
    }
    let store = folder.open().expect("the folder is free");
    assert_eq!(all(&store.handle()).expect("readable"), pairs);
}

#[test]
fn a_check_of_a_folder_that_is_not_there_makes_none() {
    let folder = RealFolder::new("nowhere");
    assert!(matches!(check(&folder.0), Err(Fault::Disk(_))));
    assert!(!folder.0.exists());
}

#[test]
fn a_handle_that_outlives_its_store_takes_nothing() {
    let folder = RealFolder::new("outlived");
    let store = folder.open().expect("the folder is free");
    let mut handle = store.handle();
    drop(store);
    let mut batch = StoreBatch::default();
    batch.put(KeySpace::Queues, b"k".to_vec(), b"v".to_vec());
    assert!(matches!(handle.commit(batch), Err(Fault::Closed)));
}
