//! Random runs compared with the oracle. `cargo run -p sim -- SEED --count N` does more of them.

#[test]
fn a_thousand_seeds_lose_double_and_reorder_nothing() {
    for seed in 1..=1000 {
        if let Err(failure) = sim::random_actions::check_seed(seed) {
            panic!("{}\nseed {seed}: {}", failure.log, failure.why);
        }
    }
}
