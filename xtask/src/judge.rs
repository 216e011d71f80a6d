//! `cargo x judge`: runs the project's benchmark, `judge/judge.py`, against the release build. The
//! benchmark has defaults for `--peers`, `--only`, `--rounds` and `--json`.

use crate::shell::{build_release, has_program, new_command, release_binary, run_to_end};
use crate::tools;

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if !has_program("cc") {
        return Err(
            "judge: no C compiler; the load generator needs one: apt-get install gcc".into()
        );
    }
    let (shards, rest) = take_shards(args)?;
    if rest.iter().any(|arg| arg.contains("mosquitto")) {
        tools::install_debian(&["mosquitto"]).map_err(|why| format!("judge: {why}"))?;
    }
    build_release()?;
    let mut broker =
        format!("{} serve --memory --listen tcp://127.0.0.1:{{port}}", release_binary().display());
    if let Some(shards) = shards {
        broker.push_str(&format!(" --shards {shards}"));
    }
    run_to_end(new_command("python3").arg("judge/judge.py").args(["--broker", &broker]).args(rest))
}

/// Splits off `--shards N`, an option of the broker; all remaining arguments are for `judge.py`.
fn take_shards(args: &[String]) -> Result<(Option<u16>, Vec<String>), String> {
    let Some(at) = args.iter().position(|arg| arg == "--shards") else {
        return Ok((None, args.to_vec()));
    };
    let shards = args.get(at + 1).and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let shards = shards.ok_or("judge: --shards wants a number above 0")?;
    Ok((Some(shards), [&args[..at], &args[at + 2..]].concat()))
}

#[cfg(test)]
mod tests {
    use super::take_shards;

    #[test]
    fn shards_go_to_the_broker_and_the_rest_to_the_judge() {
        let args = ["--only", "A", "--shards", "2", "--rounds", "1"].map(String::from);
        let (shards, rest) = take_shards(&args).expect("a good line");
        assert_eq!(shards, Some(2));
        assert_eq!(rest, ["--only", "A", "--rounds", "1"]);
        assert!(take_shards(&["--shards".to_string()]).is_err());
    }
}
