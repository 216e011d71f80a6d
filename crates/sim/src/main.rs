//! Random runs against the oracle: `cargo run -p sim -- SEED [--count N]`. `--power` cuts the power
//! at random moments, `--every-cut` after every batch of a run. `--shards N` is the largest number
//! of shards for these two modes.
#![forbid(unsafe_code)]

use sim::random_actions::SimFailure;
use std::process::ExitCode;

/// The kind of runs, chosen by an argument.
enum SimMode {
    EveryCut,
    Life,
    Power,
}

fn main() -> ExitCode {
    let (mut first, mut count, mut shards, mut mode) = (1, 1000, 3, SimMode::Life);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
        let known = match argument.as_str() {
            "--count" => number().map(|n| count = n).is_some(),
            "--every-cut" | "--power" => {
                let every = argument == "--every-cut";
                mode = if every { SimMode::EveryCut } else { SimMode::Power };
                true
            }
            "--shards" => number().filter(|n| *n > 0).map(|n| shards = n as usize).is_some(),
            seed => seed.parse().map(|seed| first = seed).is_ok(),
        };
        if !known {
            eprintln!("sim [--power | --every-cut] SEED [--count N] [--shards N]");
            return ExitCode::FAILURE;
        }
    }
    let mut cuts = 0;
    for seed in first..first + count {
        let outcome: Result<(), SimFailure> = match mode {
            SimMode::EveryCut => sim::power::check_every_cut(seed, shards).map(|n| cuts += n),
            SimMode::Life => sim::random_actions::check_seed(seed),
            SimMode::Power => sim::power::check_seed(seed, shards),
        };
        if let Err(failure) = outcome {
            println!("{}", failure.log);
            println!("seed {seed}, {} actions left: {}", failure.actions, failure.why);
            return ExitCode::FAILURE;
        }
    }
    if cuts > 0 {
        println!("the power was cut {cuts} times");
    }
    println!("{count} seeds from {first}: nothing lost, doubled or out of order");
    ExitCode::SUCCESS
}
