//! What every store promises. Each implementation runs the same tests.

use store::{Batch, Disk, Fault, Memory, Options, Seq, Space, Store};

fn put(store: &mut dyn Store, space: Space, pairs: &[(&str, &str)]) -> Seq {
    let mut batch = Batch::default();
    for (key, value) in pairs {
        batch.put(space, key.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    while store.crowded() {
        std::thread::yield_now();
    }
    store.commit(batch).expect("there is room")
}

fn keys(store: &dyn Store, space: Space, prefix: &str, from: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        keys.push(String::from_utf8_lossy(key).into_owned());
        true
    };
    store.scan(space, prefix.as_bytes(), from.as_bytes(), &mut visit).expect("readable");
    keys
}

fn batches_are_numbered_in_order(store: &mut dyn Store) {
    let first = put(store, Space::Sessions, &[("a", "1")]);
    let second = put(store, Space::Sessions, &[("b", "2")]);
    assert!(second > first);
    assert!(store.durable() <= second);
}

fn a_later_change_of_one_batch_wins(store: &mut dyn Store) {
    let mut batch = Batch::default();
    batch.put(Space::Queues, b"k".to_vec(), b"one".to_vec());
    batch.remove(Space::Queues, b"k".to_vec());
    batch.put(Space::Queues, b"k".to_vec(), b"two".to_vec());
    store.commit(batch).expect("there is room");
    assert_eq!(store.get(Space::Queues, b"k").expect("readable"), Some(b"two".to_vec()));
}

fn a_scan_is_ordered_and_stays_within_prefix_and_space(store: &mut dyn Store) {
    put(store, Space::Messages, &[("s/2", ""), ("s/1", ""), ("t/1", ""), ("s", ""), ("s/3", "")]);
    put(store, Space::Retained, &[("s/4", "")]);
    assert_eq!(keys(store, Space::Messages, "s/", ""), ["s/1", "s/2", "s/3"]);
    assert_eq!(keys(store, Space::Messages, "s/", "s/2"), ["s/2", "s/3"]);
    assert_eq!(keys(store, Space::Messages, "s/", "t"), [""; 0]);
}

fn a_scan_stops_when_told(store: &mut dyn Store) {
    put(store, Space::Sessions, &[("x1", ""), ("x2", ""), ("x3", "")]);
    let mut seen = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        seen += 1;
        seen < 2
    };
    store.scan(Space::Sessions, b"x", b"", &mut visit).expect("readable");
    assert_eq!(seen, 2);
}

fn a_removed_key_is_gone_from_get_and_scan(store: &mut dyn Store) {
    put(store, Space::Retained, &[("r1", "1"), ("r2", "2")]);
    let mut batch = Batch::default();
    batch.remove(Space::Retained, b"r1".to_vec());
    store.commit(batch).expect("a removal needs no room");
    assert_eq!(store.get(Space::Retained, b"r1").expect("readable"), None);
    assert_eq!(keys(store, Space::Retained, "r", ""), ["r2"]);
}

/// What is in tables goes on behind the prefix, while memory has more of it than is looked at in
/// one piece.
fn a_scan_of_many_new_keys_before_old_ones_misses_none(store: &mut dyn Store) {
    let large = "v".repeat(48 << 10);
    for old in ["many2", "many3", "many4"] {
        put(store, Space::Queues, &[(old, &large)]);
    }
    let names: Vec<String> = (0..1000).map(|n| format!("many1/{n:04}")).collect();
    for name in &names {
        put(store, Space::Queues, &[(name, "")]);
    }
    let found = keys(store, Space::Queues, "many1/", "");
    assert_eq!((found.len(), found == names), (names.len(), true));
}

fn a_scan_of_many_keys_misses_none(store: &mut dyn Store) {
    let names: Vec<_> = (0..1000).map(|n| format!("many/{n:04}")).collect();
    for some in names.chunks(100) {
        let pairs: Vec<_> = some.iter().map(|name| (&name[..], "")).collect();
        put(store, Space::Queues, &pairs);
    }
    assert_eq!(keys(store, Space::Queues, "many/", ""), names);
    assert_eq!(keys(store, Space::Queues, "many/", "many/0500"), names[500..]);
}

fn keeps_the_contract(store: &mut dyn Store) {
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
    keeps_the_contract(&mut Memory::new(1 << 20));
}

#[test]
fn disk_keeps_the_contract_before_and_after_its_memory_became_tables() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-contract");
    for memory_bytes in [1 << 10, 128 << 10, 1 << 20] {
        drop(std::fs::remove_dir_all(&path));
        let options = Options { memory_bytes, ..Options::default() };
        let (store, _) = Disk::open(&path, options, Box::new(|_| {})).expect("the store opens");
        keeps_the_contract(&mut store.handle());
    }
    drop(std::fs::remove_dir_all(&path));
}

#[test]
fn a_full_store_refuses_the_whole_batch_and_takes_removals() {
    let mut store = Memory::new(10);
    put(&mut store, Space::Queues, &[("12345", "12345")]);
    let mut batch = Batch::default();
    batch.put(Space::Queues, b"a".to_vec(), Vec::new());
    assert!(matches!(store.commit(batch), Err(Fault::Full)));
    assert_eq!(keys(&store, Space::Queues, "", ""), ["12345"]);
    let mut batch = Batch::default();
    batch.remove(Space::Queues, b"12345".to_vec());
    store.commit(batch).expect("a removal needs no room");
    assert_eq!(store.bytes(), 0);
}
