//! The fuzzer's corpora, as tests.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use godwit::probes;
use replay::replay;

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
