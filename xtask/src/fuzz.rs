//! `cargo x fuzz`: runs the fuzz targets under cargo-fuzz to find new inputs. `cargo test` replays
//! the known inputs of their corpora.

use std::fs;

use crate::shell::{has_program, new_command, run_to_end, target_folder};
use crate::tree::root;

const SECONDS: &str = "60";

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if !has_program("cargo-fuzz") || !has_program("rustup") {
        return Err("fuzz: needs nightly Rust and cargo-fuzz: \
                    rustup toolchain install nightly && cargo install cargo-fuzz --locked"
            .into());
    }
    let seconds = args.get(1).map_or(SECONDS, String::as_str);
    seconds.parse::<u32>().map_err(|_| format!("fuzz: {seconds} is not a number of seconds"))?;
    let targets = match args.first() {
        Some(target) => vec![target.clone()],
        None => fuzz_targets()?,
    };
    for name in targets {
        println!("== fuzz {name}, {seconds} s");
        // New inputs go to the first corpus; inputs for the repository are chosen by hand.
        let (found, kept) =
            (target_folder().join("fuzz").join(&name), format!("fuzz/corpus/{name}"));
        fs::create_dir_all(&found).map_err(|e| format!("fuzz: {}: {e}", found.display()))?;
        let limit = format!("-max_total_time={seconds}");
        let mut command = new_command("cargo");
        // The variables of the calling cargo would override `+nightly`.
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command.args(["+nightly", "fuzz", "run", &name]).arg(found).arg(kept);
        run_to_end(command.args(["--", &limit]))?;
    }
    Ok(())
}

/// Returns the names of the files in `fuzz/fuzz_targets`, which are the targets.
fn fuzz_targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|e| format!("fuzz: {}: {e}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut targets: Vec<_> =
        names.filter_map(|name| name.strip_suffix(".rs").map(str::to_string)).collect();
    targets.sort();
    Ok(targets)
}
