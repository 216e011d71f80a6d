//! `cargo x crash`: the crash tests of the program with more rounds and images than in `cargo
//! test`: rounds kill a process, images are possible contents of a disk after a power cut.

use crate::shell::{cargo, run_to_end};

const ROUNDS: &str = "100";
const IMAGES: &str = "1000";

/// Runs both kinds of crash tests, or the kind named by `--rounds` or `--images`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let mut command = cargo();
    command.args(["test", "--package", "godwit", "--test", "crash", "--", "--nocapture"]);
    let (mut rounds, mut images) = (None, None);
    for pair in args.chunks(2) {
        match pair {
            [flag, number] if number.parse::<u64>().is_err() => {
                return Err(format!("crash: {flag} {number}: not a number"));
            }
            [flag, number] if flag == "--rounds" => rounds = Some(number.as_str()),
            [flag, number] if flag == "--images" => images = Some(number.as_str()),
            [flag, number] if flag == "--seed" => _ = command.env("GODWIT_CRASH_SEED", number),
            [flag, number] if flag == "--shards" => _ = command.env("GODWIT_CRASH_SHARDS", number),
            _ => return Err("crash: takes --rounds, --images, --shards and --seed N".into()),
        }
    }
    command.env("GODWIT_CRASH_ROUNDS", rounds.unwrap_or(ROUNDS));
    command.env("GODWIT_CRASH_IMAGES", images.unwrap_or(IMAGES));
    command.args(["--skip", "soak::"]);
    match (rounds, images) {
        (Some(_), None) => _ = command.args(["--skip", "images::"]),
        (None, Some(_)) => _ = command.arg("images::"),
        _ => {}
    }
    run_to_end(&mut command)
}
