//! `cargo x soak`: runs the release build for a long time under sessions that come and go. Its
//! memory and its folder must not grow.

use crate::shell::{cargo, run_to_end};

const MINUTES: u64 = 30;

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let minutes = match args {
        [] => MINUTES,
        [flag, number] if flag == "--minutes" => {
            number.parse().map_err(|_| format!("soak: {number} is not a number of minutes"))?
        }
        _ => return Err("soak: takes --minutes N".into()),
    };
    let mut command = cargo();
    command.env("GODWIT_SOAK_S", (60 * minutes).to_string());
    command.args(["test", "--release", "--package", "godwit", "--test", "crash"]);
    run_to_end(command.args(["--", "--nocapture", "soak::"]))
}
