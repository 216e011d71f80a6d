//! The fuzzer's corpus, as a test.

use std::path::Path;

#[test]
fn proxy_header_takes_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy_header");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        engine::proxy::probe(&std::fs::read(path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 10, "{inputs} inputs");
}
