//! `cargo x test`: every layer of tests in turn. A layer that fails stops nothing; the table at
//! the end tells all, and the exit code is the worst of them.

use std::process::Command;
use std::time::Instant;

use crate::shell::{build_release, cargo, finish, has, is_root, output, program, release_binary};
use crate::tree::root;
use crate::{docs, idle, licences, tidy, tools};

/// One kind of test. It is left out, not failed, where `needs` names something that is not here.
struct Layer {
    name: &'static str,
    needs: fn() -> Option<String>,
    run: fn() -> Result<(), String>,
}

enum End {
    Passed,
    Failed(String),
    LeftOut(String),
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if let Some(argument) = args.first() {
        return Err(format!("{argument}: every layer runs, and nothing can be chosen"));
    }
    let begun = Instant::now();
    let mut rows = Vec::new();
    for layer in LAYERS {
        heading(layer.name);
        let started = Instant::now();
        let end = match (layer.needs)() {
            Some(why) => End::LeftOut(why),
            None => (layer.run)().map_or_else(End::Failed, |()| End::Passed),
        };
        match &end {
            End::Passed => {}
            End::Failed(why) => println!("{}: FAILED: {why}", layer.name),
            End::LeftOut(why) => println!("{}: left out: {why}", layer.name),
        }
        let seconds = started.elapsed().as_secs_f32();
        println!("{}: {seconds:.1} s", layer.name);
        rows.push((layer.name, end, seconds));
    }
    heading("all layers");
    for (name, end, seconds) in &rows {
        let (word, why) = match end {
            End::Passed => ("passed", ""),
            End::Failed(why) => ("FAILED", why.as_str()),
            End::LeftOut(why) => ("left out", why.as_str()),
        };
        let why = why.lines().next().unwrap_or("");
        println!("{name:<14} {word:<9} {seconds:>7.1} s  {why}");
    }
    let all = begun.elapsed().as_secs_f32();
    let failed = rows.iter().filter(|row| matches!(row.1, End::Failed(_))).count();
    println!("{:<14} {:<9} {all:>7.1} s", "together", "");
    if failed > 0 { Err(format!("{failed} layers failed")) } else { Ok(()) }
}

fn heading(name: &str) {
    println!("\n== {name}");
}

fn nothing() -> Option<String> {
    None
}

fn release_is_built() -> Option<String> {
    (!release_binary().is_file()).then(|| "no release build to run".to_string())
}

fn install() -> Result<(), String> {
    let missing = tools::install();
    if missing.is_empty() || !wants_all() { Ok(()) } else { Err(missing.join("; ")) }
}

/// Root can install what tests need, and CI has to: there what is missing is a failure. With others
/// it is left out.
fn wants_all() -> bool {
    is_root() || std::env::var_os("CI").is_some()
}

/// What is missing is no reason for a test to pass.
fn want_all(command: &mut Command) {
    if wants_all() {
        command.env("TEST_ALL_SERVERS", "1");
    }
}

fn clippy() -> Result<(), String> {
    let clippy = |of: &[&str]| {
        let mut command = cargo();
        command.args(["clippy", "--quiet", "--all-targets"]).args(of);
        finish(command.args(["--", "-D", "warnings"]))
    };
    clippy(&["--workspace"])?;
    clippy(&["-p", "godwit", "--no-default-features"])?;
    match psk() {
        [] => Ok(()),
        features => clippy(&[&["-p", "engine", "-p", "godwit"], features].concat()),
    }
}

/// What has tests and clippy see the code that needs OpenSSL, too, where it is.
fn psk() -> &'static [&'static str] {
    if tools::openssl_is_there() { &["--features", "engine/psk,godwit/psk"] } else { &[] }
}

fn tests() -> Result<(), String> {
    // Built first and apart, so that compiling is seen and the tests' own lines stand together.
    // Keys in the place of certificates add to the code, so one build serves all tests.
    if psk().is_empty() {
        println!("without OpenSSL's libraries its tests are left out: psk");
    }
    finish(cargo().args(["test", "--workspace", "--no-run"]).args(psk()))?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--quiet", "--no-fail-fast"]).args(psk());
    // Most of the time of tests is waiting: for a timer, a process, a second of `$SYS`.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (2 * cores).to_string());
    want_all(&mut command);
    if !has("strace") && !wants_all() {
        println!("without strace nobody sees what a disk could hold: images are left out");
        command.args(["--", "--skip", "images::"]);
    }
    finish(&mut command)
}

fn generated() -> Result<(), String> {
    let godwit = release_binary().to_string_lossy().into_owned();
    docs::run(&["--check".into(), "--godwit".into(), godwit])
}

/// What users get has nothing of OpenSSL, and says how to have it.
fn without_psk() -> Result<(), String> {
    let bytes = std::fs::read(release_binary()).map_err(|e| format!("release build: {e}"))?;
    if bytes.windows(OPENSSL.len()).any(|window| window == OPENSSL) {
        return Err("the release build has OpenSSL in it".into());
    }
    let mut command = program(&release_binary().to_string_lossy());
    let refused = output(command.args(["check", "--set", "tls.psk_file=keys"]));
    match refused {
        Err(why) if why.contains("not in this build") && why.contains("--features psk") => Ok(()),
        Err(why) => Err(format!("tls.psk_file is refused without a way out: {why}")),
        Ok(_) => Err("tls.psk_file is taken by a build that knows no keys".into()),
    }
}

/// The name of a variable that nobody but OpenSSL looks for.
const OPENSSL: &[u8] = b"OPENSSL_CONF";

fn needs_clients() -> Option<String> {
    if !root().join(CLIENTS).is_file() {
        return Some(format!("{CLIENTS} is not there"));
    }
    if !has("mosquitto_sub") || !tools::python().is_file() {
        return Some("clients of others are missing, see `install`".into());
    }
    release_is_built()
}

fn real_clients() -> Result<(), String> {
    let python = tools::python().to_string_lossy().into_owned();
    let mut command = program(&python);
    command.env("NODE_PATH", tools::clients().join("node_modules"));
    want_all(&mut command);
    finish(command.arg(CLIENTS).arg("--godwit").arg(release_binary()))
}

const CLIENTS: &str = "tests/clients/run.py";

const LAYERS: &[Layer] = &[
    Layer { name: "install", needs: nothing, run: install },
    Layer {
        name: "fmt",
        needs: nothing,
        run: || finish(cargo().args(["fmt", "--all", "--check"])),
    },
    Layer { name: "tidy", needs: nothing, run: || tidy::run(&[]) },
    Layer { name: "licences", needs: nothing, run: || licences::run(&[]) },
    Layer { name: "clippy", needs: nothing, run: clippy },
    Layer { name: "tests", needs: nothing, run: tests },
    Layer { name: "release build", needs: nothing, run: build_release },
    Layer { name: "generated", needs: nothing, run: generated },
    Layer { name: "without psk", needs: release_is_built, run: without_psk },
    Layer { name: "real clients", needs: needs_clients, run: real_clients },
    Layer { name: "idle memory", needs: release_is_built, run: idle::check },
];
