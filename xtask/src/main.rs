//! `cargo x`: all development tasks of this project, in one program without dependencies.

mod certs;
mod crash;
mod docs;
mod fuzz;
mod idle;
mod judge;
mod licences;
mod publish_path;
mod shell;
mod soak;
mod source;
mod start_order;
mod test_layers;
mod tidy;
mod tools;
mod tree;

use std::process::ExitCode;

/// A command of `cargo x`, a row of [`COMMANDS`].
struct XtaskCommand {
    name: &'static str,
    summary: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let Some(task) = COMMANDS.iter().find(|task| task.name == name) else {
        eprintln!("usage: cargo x COMMAND [ARGUMENTS]\n");
        for task in COMMANDS {
            eprintln!("  {:<9} {}", task.name, task.summary);
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

const COMMANDS: &[XtaskCommand] = &[
    XtaskCommand {
        name: "up",
        summary: "build and run the broker: up [SERVE ARGUMENTS]",
        run: shell::run_broker,
    },
    XtaskCommand {
        name: "test",
        summary: "install what tests need and run every layer",
        run: test_layers::run,
    },
    XtaskCommand { name: "ci", summary: "what CI runs: the same as test", run: test_layers::run },
    XtaskCommand {
        name: "certs",
        summary: "write a test CA and its certificates: certs [FOLDER]",
        run: certs::run,
    },
    XtaskCommand { name: "tidy", summary: "check the house rules: tidy [--list]", run: tidy::run },
    XtaskCommand {
        name: "gen",
        summary: "write generated documents: gen [--check]",
        run: docs::run,
    },
    XtaskCommand {
        name: "licences",
        summary: "check licences and bans against deny.toml",
        run: licences::run,
    },
    XtaskCommand {
        name: "judge",
        summary: "run the benchmark: judge [--shards N] [JUDGE ARGUMENTS]",
        run: judge::run,
    },
    XtaskCommand {
        name: "crash",
        summary: "kill the broker, cut its power: crash [--rounds|--images|--shards|--seed N]...",
        run: crash::run,
    },
    XtaskCommand {
        name: "soak",
        summary: "let sessions come and go, and see that nothing grows: soak [--minutes N]",
        run: soak::run,
    },
    XtaskCommand {
        name: "publish-path",
        summary: "count the files of one PUBLISH and write docs/publish-path.md",
        run: publish_path::run,
    },
    XtaskCommand {
        name: "start-order",
        summary: "write the linker script of what a start runs: start-order [--check]",
        run: start_order::run,
    },
    XtaskCommand {
        name: "fuzz",
        summary: "fuzz with nightly: fuzz [TARGET] [SECONDS]",
        run: fuzz::run,
    },
];
