//! The fuzzer's corpora, as tests.

use godwit::probes;
use std::path::Path;

fn replay(corpus: &str, probe: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        probe(&std::fs::read(path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 10, "{inputs} inputs");
}

#[test]
fn acl_rules_takes_its_corpus() {
    replay("acl_rules", probes::acl);
}

#[test]
fn jwt_takes_its_corpus() {
    replay("jwt", probes::token);
}

#[test]
fn jwt_keys_takes_its_corpus() {
    replay("jwt_keys", probes::keys);
}
