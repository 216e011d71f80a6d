//! `cargo x crash`: the crash tests of the program with more rounds than `cargo test` runs.

use crate::shell::{cargo, finish};

const ROUNDS: &str = "100";

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let mut command = cargo();
    let mut rounds = ROUNDS;
    for pair in args.chunks(2) {
        match pair {
            [flag, number] if number.parse::<u64>().is_err() => {
                return Err(format!("crash: {flag} {number}: not a number"));
            }
            [flag, number] if flag == "--rounds" => rounds = number,
            [flag, number] if flag == "--seed" => _ = command.env("GODWIT_CRASH_SEED", number),
            _ => return Err("crash: takes --rounds N and --seed N".into()),
        }
    }
    command.env("GODWIT_CRASH_ROUNDS", rounds);
    finish(command.args(["test", "--package", "godwit", "--test", "crash", "--", "--nocapture"]))
}
