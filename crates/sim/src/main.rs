//! Random lives against the oracle: `cargo run -p sim -- SEED [--count N]`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut first, mut count) = (1, 1000);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = match argument.as_str() {
            "--count" => arguments.next().and_then(|text| text.parse().ok()).map(|n| count = n),
            seed => seed.parse().ok().map(|seed| first = seed),
        };
        if number.is_none() {
            eprintln!("sim SEED [--count N]");
            return ExitCode::FAILURE;
        }
    }
    for seed in first..first + count {
        if let Err(failure) = sim::play::check_seed(seed) {
            println!("{}", failure.log);
            println!("seed {seed}, {} actions left: {}", failure.actions, failure.why);
            return ExitCode::FAILURE;
        }
    }
    println!("{count} seeds from {first}: nothing lost, doubled or out of order");
    ExitCode::SUCCESS
}
