//! Runs the fuzz targets of this crate on the stored corpora, without a fuzzer.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use auth::fuzz_targets;
use replay::replay;

#[test]
fn acl_rules_takes_its_corpus() {
    replay("acl_rules", fuzz_targets::check_acl);
}

#[test]
fn jwt_takes_its_corpus() {
    replay("jwt", fuzz_targets::check_token);
}

#[test]
fn jwt_keys_takes_its_corpus() {
    replay("jwt_keys", fuzz_targets::check_keys);
}
