//! `cargo x`: everything that is done to this project, in one program without dependencies.

mod certs;
mod crash;
mod docs;
mod fuzz;
mod idle;
mod judge;
mod layers;
mod licences;
mod shell;
mod soak;
mod source;
mod tidy;
mod tools;
mod tree;

use std::process::ExitCode;

/// One `cargo x` command.
struct Task {
    name: &'static str,
    does: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("usage: cargo x COMMAND [ARGUMENTS]\n");
        for task in TASKS {
            eprintln!("  {:<9} {}", task.name, task.does);
        }
        return ExitCode::from(2);
    };
    match (task.run)(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

const TASKS: &[Task] = &[
    Task { name: "up", does: "build and run the broker: up [SERVE ARGUMENTS]", run: shell::up },
    Task { name: "test", does: "install what tests need and run every layer", run: layers::run },
    Task { name: "ci", does: "what CI runs: the same as test", run: layers::run },
    Task {
        name: "certs",
        does: "write a test CA and its certificates: certs [FOLDER]",
        run: certs::run,
    },
    Task { name: "tidy", does: "check the house rules: tidy [--list]", run: tidy::run },
    Task { name: "gen", does: "write generated documents: gen [--check]", run: docs::run },
    Task {
        name: "licences",
        does: "check licences and bans against deny.toml",
        run: licences::run,
    },
    Task {
        name: "judge",
        does: "run the benchmark: judge [--shards N] [JUDGE ARGUMENTS]",
        run: judge::run,
    },
    Task {
        name: "crash",
        does: "kill the broker, cut its power: crash [--rounds|--images|--shards|--seed N]...",
        run: crash::run,
    },
    Task {
        name: "soak",
        does: "let sessions come and go, and see that nothing grows: soak [--minutes N]",
        run: soak::run,
    },
    Task { name: "fuzz", does: "fuzz with nightly: fuzz [TARGET] [SECONDS]", run: fuzz::run },
];
