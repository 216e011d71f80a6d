//! What every store promises. Each implementation runs the same tests.

use store::{Batch, Fault, Memory, Seq, Space, Store};

fn put(store: &mut dyn Store, space: Space, pairs: &[(&str, &str)]) -> Seq {
    let mut batch = Batch::default();
    for (key, value) in pairs {
        batch.put(space, key.as_bytes().to_vec(), value.as_bytes().to_vec());
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

#[test]
fn memory_keeps_the_contract() {
    let mut store = Memory::new(1024);
    batches_are_numbered_in_order(&mut store);
    a_later_change_of_one_batch_wins(&mut store);
    a_scan_is_ordered_and_stays_within_prefix_and_space(&mut store);
    a_scan_stops_when_told(&mut store);
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
