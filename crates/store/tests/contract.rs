//! The contract of every [`KeyValueStore`](store::KeyValueStore). Each implementation runs the same
//! tests.

use store::{
    BatchSeq, DiskStore, Fault, KeySpace, KeyValueStore, MemoryStore, StoreBatch, StoreOptions,
};

fn put(store: &mut dyn KeyValueStore, space: KeySpace, pairs: &[(&str, &str)]) -> BatchSeq {
    let mut batch = StoreBatch::default();
    for (key, value) in pairs {
        batch.put(space, key.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    while store.is_backlogged() {
        std::thread::yield_now();
    }
    store.commit(batch).expect("there is room")
}

fn keys(store: &dyn KeyValueStore, space: KeySpace, prefix: &str, from: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        keys.push(String::from_utf8_lossy(key).into_owned());
        true
    };
    store.scan(space, prefix.as_bytes(), from.as_bytes(), &mut visit).expect("readable");
    keys
}

fn batches_are_numbered_in_order(store: &mut dyn KeyValueStore) {
    let first = put(store, KeySpace::Sessions, &[("a", "1")]);
    let second = put(store, KeySpace::Sessions, &[("b", "2")]);
    assert!(second > first);
    assert!(store.durable() <= second);
}

fn a_later_change_of_one_batch_wins(store: &mut dyn KeyValueStore) {
    let mut batch = StoreBatch::default();
    batch.put(KeySpace::Queues, b"k".to_vec(), b"one".to_vec());
    batch.remove(KeySpace::Queues, b"k".to_vec());
    batch.put(KeySpace::Queues, b"k".to_vec(), b"two".to_vec());
    store.commit(batch).expect("there is room");
    assert_eq!(store.get(KeySpace::Queues, b"k").expect("readable"), Some(b"two".to_vec()));
}

fn a_scan_is_ordered_and_stays_within_prefix_and_space(store: &mut dyn KeyValueStore) {
    put(
        store,
        KeySpace::Messages,
        &[("s/2", ""), ("s/1", ""), ("t/1", ""), ("s", ""), ("s/3", "")],
    );
    put(store, KeySpace::Retained, &[("s/4", "")]);
    assert_eq!(keys(store, KeySpace::Messages, "s/", ""), ["s/1", "s/2", "s/3"]);
    assert_eq!(keys(store, KeySpace::Messages, "s/", "s/2"), ["s/2", "s/3"]);
    assert_eq!(keys(store, KeySpace::Messages, "s/", "t"), [""; 0]);
}

fn a_scan_stops_when_told(store: &mut dyn KeyValueStore) {
    put(store, KeySpace::Sessions, &[("x1", ""), ("x2", ""), ("x3", "")]);
    let mut seen = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        seen += 1;
        seen < 2
    };
    store.scan(KeySpace::Sessions, b"x", b"", &mut visit).expect("readable");
    assert_eq!(seen, 2);
}

fn a_removed_key_is_gone_from_get_and_scan(store: &mut dyn KeyValueStore) {
    put(store, KeySpace::Retained, &[("r1", "1"), ("r2", "2")]);
    let mut batch = StoreBatch::default();
    batch.remove(KeySpace::Retained, b"r1".to_vec());
    store.commit(batch).expect("a removal needs no room");
    assert_eq!(store.get(KeySpace::Retained, b"r1").expect("readable"), None);
    assert_eq!(keys(store, KeySpace::Retained, "r", ""), ["r2"]);
}

/// A scan of a prefix with more new keys in memory than one piece of the scan, and with other keys
/// in tables behind the prefix.
fn a_scan_of_many_new_keys_before_old_ones_misses_none(store: &mut dyn KeyValueStore) {
    let large = "v".repeat(48 << 10);
    for old in ["many2", "many3", "many4"] {
        put(store, KeySpace::Queues, &[(old, &large)]);
    }
    let names: Vec<String> = (0..1000).map(|n| format!("many1/{n:04}")).collect();
    for name in &names {
        put(store, KeySpace::Queues, &[(name, "")]);
    }
    let found = keys(store, KeySpace::Queues, "many1/", "");
    assert_eq!((found.len(), found == names), (names.len(), true));
}

fn a_scan_of_many_keys_misses_none(store: &mut dyn KeyValueStore) {
    let names: Vec<_> = (0..1000).map(|n| format!("many/{n:04}")).collect();
    for some in names.chunks(100) {
        let pairs: Vec<_> = some.iter().map(|name| (&name[..], "")).collect();
        put(store, KeySpace::Queues, &pairs);
    }
    assert_eq!(keys(store, KeySpace::Queues, "many/", ""), names);
    assert_eq!(keys(store, KeySpace::Queues, "many/", "many/0500"), names[500..]);
}

fn keeps_the_contract(store: &mut dyn KeyValueStore) {
    batches_are_numbered_in_order(store);
    a_later_change_of_one_batch_wins(store);
    a_scan_is_ordered_and_stays_within_prefix_and_space(store);
    a_scan_stops_when_told(store);
    a_removed_key_is_gone_from_get_and_scan(store);
    a_scan_of_many_new_keys_before_old_ones_misses_none(store);
    a_scan_of_many_keys_misses_none(store);
}

#[test]
fn memory_keeps_the_contract() {
    keeps_the_contract(&mut MemoryStore::new(1 << 20));
}

#[test]
fn disk_keeps_the_contract_before_and_after_its_memory_became_tables() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-contract");
    for memory_bytes in [1 << 10, 128 << 10, 1 << 20] {
        drop(std::fs::remove_dir_all(&path));
        let options = StoreOptions { memory_bytes, ..StoreOptions::default() };
        let (store, _) =
            DiskStore::open(&path, options, Box::new(|_| {})).expect("the store opens");
        keeps_the_contract(&mut store.handle());
    }
    drop(std::fs::remove_dir_all(&path));
}

#[test]
fn a_full_store_refuses_the_whole_batch_and_takes_removals() {
    let mut store = MemoryStore::new(10);
    put(&mut store, KeySpace::Queues, &[("12345", "12345")]);
    let mut batch = StoreBatch::default();
    batch.put(KeySpace::Queues, b"a".to_vec(), Vec::new());
    assert!(matches!(store.commit(batch), Err(Fault::Full)));
    assert_eq!(keys(&store, KeySpace::Queues, "", ""), ["12345"]);
    let mut batch = StoreBatch::default();
    batch.remove(KeySpace::Queues, b"12345".to_vec());
    store.commit(batch).expect("a removal needs no room");
    assert_eq!(store.bytes(), 0);
}
