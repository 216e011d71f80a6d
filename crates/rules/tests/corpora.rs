//! The fuzzer's corpora, as tests.

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
fn rules_text_takes_its_corpus() {
    replay("rules_text", rules::fuzz::text);
}

#[test]
fn rules_run_takes_its_corpus() {
    replay("rules_run", rules::fuzz::run);
}
