//! Crash tests of the real program. After a kill at any moment, and after a power cut, which also
//! loses unsynced data, all acknowledged messages are there. Expired sessions leave nothing behind
//! in memory or on disk.

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

/// Runs ten rounds, or `GODWIT_CRASH_ROUNDS`, with random numbers from the seed
/// `GODWIT_CRASH_SEED`.
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

/// Returns the number of shards: one or two in turn, or `GODWIT_CRASH_SHARDS`.
fn shards(seed: u64) -> usize {
    said("GODWIT_CRASH_SHARDS").unwrap_or(1 + seed % 2) as usize
}

fn said(name: &str) -> Option<u64> {
    let said = std::env::var(name).ok()?;
    Some(said.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}
