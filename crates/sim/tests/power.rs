//! Power cuts at random moments, and after every batch of a run. `cargo run -p sim -- --power SEED
//! --count N` and `--every-cut SEED --count N` run more of them.

use sim::random_actions::SimFailure;

/// Largest number of shards. The number changes after a power cut.
const SHARDS_MAX: usize = 3;

fn check<T>(seed: u64, outcome: Result<T, SimFailure>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{}\nseed {seed}: {}", failure.log, failure.why))
}

#[test]
fn what_was_acknowledged_survives_power_cuts_at_random_moments() {
    for seed in 1..=500 {
        check(seed, sim::power::check_seed(seed, SHARDS_MAX));
    }
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_after_every_batch() {
    let cuts = |seed| check(seed, sim::power::check_every_cut(seed, SHARDS_MAX));
    let cuts: usize = (1..=20).map(cuts).sum();
    assert!(cuts > 1000, "only {cuts} cuts");
}
