//! A fuzzer's corpus without the fuzzer, for tests of the crates that have targets.

use std::path::Path;

pub(crate) fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        run(&std::fs::read(path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 10, "{inputs} inputs in {}", folder.display());
}
