//! The real program, killed at any moment: what it acknowledged is there when it is back.

mod broker;
mod chance;
mod judge;
mod line;
mod peer;
mod publisher;
mod reader;
mod round;
mod subscriber;

use round::Round;
use std::hash::{BuildHasher, RandomState};

/// Ten rounds, or as many as `GODWIT_CRASH_ROUNDS` says; from the seed that `GODWIT_CRASH_SEED`
/// says, where chance is to be had again.
#[test]
fn killed_at_random_moments_nothing_acknowledged_is_lost() {
    let drawn = RandomState::new().hash_one(0) >> 32;
    let seed = said("GODWIT_CRASH_SEED").unwrap_or(drawn);
    for round in 0..said("GODWIT_CRASH_ROUNDS").unwrap_or(10) {
        print!("round {round}: GODWIT_CRASH_SEED={}: ", seed + round);
        Round::new("kill", seed + round).run();
    }
}

fn said(name: &str) -> Option<u64> {
    let said = std::env::var(name).ok()?;
    Some(said.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}
