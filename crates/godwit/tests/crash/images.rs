//! Power cuts: the broker runs under strace, the possible contents of the disk at a random moment
//! are computed from the trace, and the broker is started on those contents. The clients of that
//! moment check for loss.

use crate::broker::TraceMode;
use crate::chance::CrashRng;
use crate::platter::{CrashDiskImage, SimulatedDisk, UnsyncedShare};
use crate::round::CrashRound;
use crate::trace::{self, TraceStep, TracedCall};
use crate::witness::TraceWitness;
use crate::{said, seed, shards};
use std::collections::HashMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

/// Tests 20 disk images, or `GODWIT_CRASH_IMAGES`.
#[test]
fn without_power_at_random_moments_nothing_acknowledged_is_lost() {
    let (seed, images) = (seed(), said("GODWIT_CRASH_IMAGES").unwrap_or(20));
    for first in (0..images).step_by(IMAGES) {
        let seed = seed + first / IMAGES as u64;
        let recording = RecordedRound::of("power", seed, shards(seed), TraceMode::Yes);
        let mut rng = CrashRng::new(seed);
        for image in first..images.min(first + IMAGES as u64) {
            print!("image {image}: GODWIT_CRASH_SEED={seed}: ");
            recording.judge("image", rng.of(&UnsyncedShare::ALL), &mut rng);
        }
    }
}

/// Proves that the test above can fail: with syncs that do nothing, acknowledged messages are lost.
#[test]
fn a_store_whose_syncs_do_nothing_loses_what_it_acknowledged() {
    let seed = seed();
    let recording = RecordedRound::of("lies", seed, 1, TraceMode::WithoutSync);
    let mut rng = CrashRng::new(seed);
    let mut is_lost = |keeps| {
        let judge = || recording.judge("lost", keeps, &mut rng);
        panic::catch_unwind(panic::AssertUnwindSafe(judge)).is_err()
    };
    // At the very beginning of the recording there is nothing to lose.
    let keeps = [UnsyncedShare::Half, UnsyncedShare::Nothing].into_iter().cycle().take(10);
    assert!(keeps.into_iter().any(&mut is_lost), "GODWIT_CRASH_SEED={seed}");
}

struct RecordedRound {
    seed: u64,
    shards: usize,
    /// The traced round. The trace stays in its folder if an image fails.
    round: CrashRound,
    steps: Vec<TraceStep>,
}

impl RecordedRound {
    fn of(name: &str, seed: u64, shards: usize, traced: TraceMode) -> RecordedRound {
        let mut round = CrashRound::new(name, seed, shards);
        round.broker.traced = traced;
        let (mut steps, mut next) = (Vec::new(), 0);
        for life in 0..LIVES {
            let is_last = life + 1 == LIVES;
            round.live_traced(life == 0, is_last);
            let text = round.broker.end_trace();
            let (life, end) = trace::read(&text, next);
            steps.extend(life);
            let left = read(&round.broker.store());
            steps.push(TraceStep { at: end, call: TracedCall::Killed { left } });
            next = end + 1;
        }
        RecordedRound { seed, shards, round, steps }
    }

    /// Starts the broker on a possible disk image of a random moment of the recording, and checks
    /// for loss.
    fn judge(&self, name: &str, keeps: UnsyncedShare, rng: &mut CrashRng) {
        let cut = self.moment(rng);
        println!("after {cut} of {} steps, with {keeps:?} of what is unsynced", self.steps.len());
        let mut round = CrashRound::new(name, self.seed, self.shards);
        let store = self.round.broker.store();
        let (mut platter, mut witness) = (SimulatedDisk::new(&store), TraceWitness::default());
        for step in &self.steps[..cut] {
            platter.see(step);
            round.see(step, &mut witness);
        }
        let image = platter.image(keeps, rng);
        // The broker changes the one; the other stays for whoever has to find out why it failed.
        write(&image, &store, &round.broker.folder.join("image"));
        write(&image, &store, &round.broker.store());
        round.stand();
    }

    /// Chooses the number of steps before the power cut: any, just behind a write to a client, with
    /// unsynced data, or during a start.
    fn moment(&self, rng: &mut CrashRng) -> usize {
        let any = |rng: &mut CrashRng| rng.below(self.steps.len() as u64) as usize;
        let from = any(rng);
        let next = |wanted: fn(&TracedCall) -> bool| {
            let found = self.steps[from..].iter().position(|step| wanted(&step.call));
            found.map_or(self.steps.len(), |found| from + found + 1)
        };
        match rng.below(4) {
            0 => from,
            1 => next(|call| matches!(call, TracedCall::Said { .. })),
            2 => next(|call| !matches!(call, TracedCall::Said { .. } | TracedCall::Heard { .. })),
            _ => {
                let killed = |step: &TraceStep| matches!(step.call, TracedCall::Killed { .. });
                let start = self.steps.iter().position(killed).expect("it was killed");
                let start = if rng.once_in(4) { 0 } else { start };
                (start + rng.below(START) as usize).min(self.steps.len())
            }
        }
    }
}

fn read(folder: &Path) -> HashMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).expect("the store is there");
    let paths = files.map(|file| file.expect("the store can be read").path());
    paths.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

/// Writes the files of an image below `to`; their paths in the image are below `from`.
fn write(image: &CrashDiskImage, from: &Path, to: &Path) {
    for (path, body) in image {
        let below = path.strip_prefix(from).expect("it is in the store");
        let path = if below == Path::new("") { to.to_path_buf() } else { to.join(below) };
        match body {
            None => fs::create_dir(path).expect("a folder can be made"),
            Some(bytes) => fs::write(path, bytes).expect("a file can be made"),
        }
    }
}

/// Number of images that are tested for one recording.
const IMAGES: usize = 10;

const LIVES: usize = 2;

/// Upper bound of the number of steps of a start.
const START: u64 = 60;
