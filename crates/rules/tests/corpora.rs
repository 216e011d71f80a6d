//! Runs the fuzz targets of this crate on the stored corpora, without a fuzzer.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn rules_text_takes_its_corpus() {
    replay("rules_text", rules::fuzz::text);
}

#[test]
fn rules_run_takes_its_corpus() {
    replay("rules_run", rules::fuzz::run);
}
