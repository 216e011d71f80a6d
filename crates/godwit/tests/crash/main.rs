//! The real program, killed at any moment: what it acknowledged is there when it is back. So it is
//! when the power goes, which a kill does not show: what was written and not synced outlives it.
//! And what nobody wants any more is gone, however long it runs.

mod away;
mod broker;
mod chance;
mod full;
mod images;
mod judge;
mod line;
mod patient;
mod peer;
mod platter;
mod publisher;
mod reader;
mod round;
mod soak;
mod start;
mod subscriber;
mod trace;
mod witness;

use round::CrashRound;
use std::hash::{BuildHasher, RandomState};

/// Ten rounds, or as many as `GODWIT_CRASH_ROUNDS` says; from the seed that `GODWIT_CRASH_SEED`
/// says, where chance is to be had again.
#[test]
fn killed_at_random_moments_nothing_acknowledged_is_lost() {
    let seed = seed();
    for round in 0..said("GODWIT_CRASH_ROUNDS").unwrap_or(10) {
        let seed = seed + round;
        print!("round {round}: GODWIT_CRASH_SEED={seed}: ");
        CrashRound::new("kill", seed, shards(seed)).run();
    }
}

fn seed() -> u64 {
    let drawn = RandomState::new().hash_one(0) >> 32;
    said("GODWIT_CRASH_SEED").unwrap_or(drawn)
}

/// One or two in turn, or as many as `GODWIT_CRASH_SHARDS` says.
fn shards(seed: u64) -> usize {
    said("GODWIT_CRASH_SHARDS").unwrap_or(1 + seed % 2) as usize
}

fn said(name: &str) -> Option<u64> {
    let said = std::env::var(name).ok()?;
    Some(said.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}
