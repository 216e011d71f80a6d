//! `cargo x test`: runs every layer of tests in turn. A failed layer does not stop the run; the
//! table at the end shows all layers, and the exit code is a failure if any layer failed.

use std::process::Command;
use std::time::Instant;

use crate::shell::{
    build_release, cargo, has_program, is_root, new_command, output, release_binary, run_to_end,
};
use crate::tree::root;
use crate::{docs, idle, licences, start_order, tidy, tools};

/// A kind of test. A layer is skipped, and does not fail, where `needs` returns a missing
/// requirement.
struct TestLayer {
    name: &'static str,
    needs: fn() -> Option<String>,
    run: fn() -> Result<(), String>,
}

enum LayerOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if let Some(argument) = args.first() {
        return Err(format!("{argument}: every layer runs, and nothing can be chosen"));
    }
    let begun = Instant::now();
    let mut rows = Vec::new();
    for layer in LAYERS {
        print_heading(layer.name);
        let started = Instant::now();
        let end = match (layer.needs)() {
            Some(why) => LayerOutcome::Skipped(why),
            None => (layer.run)().map_or_else(LayerOutcome::Failed, |()| LayerOutcome::Passed),
        };
        match &end {
            LayerOutcome::Passed => {}
            LayerOutcome::Failed(why) => println!("{}: FAILED: {why}", layer.name),
            LayerOutcome::Skipped(why) => println!("{}: left out: {why}", layer.name),
        }
        let seconds = started.elapsed().as_secs_f32();
        println!("{}: {seconds:.1} s", layer.name);
        rows.push((layer.name, end, seconds));
    }
    print_heading("all layers");
    for (name, end, seconds) in &rows {
        let (word, why) = match end {
            LayerOutcome::Passed => ("passed", ""),
            LayerOutcome::Failed(why) => ("FAILED", why.as_str()),
            LayerOutcome::Skipped(why) => ("left out", why.as_str()),
        };
        let why = why.lines().next().unwrap_or("");
        println!("{name:<14} {word:<9} {seconds:>7.1} s  {why}");
    }
    let all = begun.elapsed().as_secs_f32();
    let failed = rows.iter().filter(|row| matches!(row.1, LayerOutcome::Failed(_))).count();
    println!("{:<14} {:<9} {all:>7.1} s", "together", "");
    if failed > 0 { Err(format!("{failed} layers failed")) } else { Ok(()) }
}

fn print_heading(name: &str) {
    println!("\n== {name}");
}

fn needs_nothing() -> Option<String> {
    None
}

fn needs_release_build() -> Option<String> {
    (!release_binary().is_file()).then(|| "no release build to run".to_string())
}

fn install_tools() -> Result<(), String> {
    let missing = tools::install_all();
    if missing.is_empty() || !requires_all() { Ok(()) } else { Err(missing.join("; ")) }
}

/// Whether a missing tool is a failure: root can install tools, and CI has to. For all remaining
/// users the layer is skipped.
fn requires_all() -> bool {
    is_root() || std::env::var_os("CI").is_some()
}

/// Makes tests fail if a server is missing, where [`requires_all`] holds.
fn require_all_servers(command: &mut Command) {
    if requires_all() {
        command.env("TEST_ALL_SERVERS", "1");
    }
}

fn run_clippy() -> Result<(), String> {
    let clippy = |of: &[&str]| {
        let mut command = cargo();
        command.args(["clippy", "--quiet", "--all-targets"]).args(of);
        run_to_end(command.args(["--", "-D", "warnings"]))
    };
    clippy(&["--workspace"])?;
    clippy(&["-p", "godwit", "--no-default-features"])?;
    match psk_features() {
        [] => Ok(()),
        features => clippy(&[&["-p", "engine", "-p", "godwit"], features].concat()),
    }
}

/// Returns the features for tests and clippy of code with OpenSSL, where OpenSSL is installed.
fn psk_features() -> &'static [&'static str] {
    if tools::has_static_openssl() { &["--features", "engine/psk,godwit/psk"] } else { &[] }
}

fn run_tests() -> Result<(), String> {
    // Built first and apart, so that compiling is visible and the lines of the tests stand
    // together. The PSK features only add code, so one build serves all tests.
    if psk_features().is_empty() {
        println!("without OpenSSL's libraries its tests are left out: psk");
    }
    run_to_end(cargo().args(["test", "--workspace", "--no-run"]).args(psk_features()))?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--quiet", "--no-fail-fast"]).args(psk_features());
    // Most of the time of tests is waiting: for a timer, a process, a second of `$SYS`.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (2 * cores).to_string());
    require_all_servers(&mut command);
    if !has_program("strace") && !requires_all() {
        println!("without strace nobody sees what a disk could hold: images are left out");
        command.args(["--", "--skip", "images::"]);
    }
    run_to_end(&mut command)
}

fn check_generated() -> Result<(), String> {
    let godwit = release_binary().to_string_lossy().into_owned();
    docs::run(&["--check".into(), "--godwit".into(), godwit])
}

/// Checks that the default build contains no OpenSSL, and that its error names the feature to build
/// with.
fn check_without_psk() -> Result<(), String> {
    let bytes = std::fs::read(release_binary()).map_err(|e| format!("release build: {e}"))?;
    if bytes.windows(OPENSSL.len()).any(|window| window == OPENSSL) {
        return Err("the release build has OpenSSL in it".into());
    }
    let mut command = new_command(&release_binary().to_string_lossy());
    let refused = output(command.args(["check", "--set", "tls.psk_file=keys"]));
    match refused {
        Err(why) if why.contains("not in this build") && why.contains("--features psk") => Ok(()),
        Err(why) => Err(format!("tls.psk_file is refused without a way out: {why}")),
        Ok(_) => Err("tls.psk_file is taken by a build that knows no keys".into()),
    }
}

/// Name of a variable read only by OpenSSL, as a mark in the binary.
const OPENSSL: &[u8] = b"OPENSSL_CONF";

fn needs_clients() -> Option<String> {
    if !root().join(CLIENTS).is_file() {
        return Some(format!("{CLIENTS} is not there"));
    }
    if !has_program("mosquitto_sub") || !tools::python_path().is_file() {
        return Some("clients of others are missing, see `install`".into());
    }
    needs_release_build()
}

fn run_real_clients() -> Result<(), String> {
    let python = tools::python_path().to_string_lossy().into_owned();
    let mut command = new_command(&python);
    command.env("NODE_PATH", tools::clients_folder().join("node_modules"));
    require_all_servers(&mut command);
    run_to_end(command.arg(CLIENTS).arg("--godwit").arg(release_binary()))
}

const CLIENTS: &str = "tests/clients/run.py";

const LAYERS: &[TestLayer] = &[
    TestLayer { name: "install", needs: needs_nothing, run: install_tools },
    TestLayer {
        name: "fmt",
        needs: needs_nothing,
        run: || run_to_end(cargo().args(["fmt", "--all", "--check"])),
    },
    TestLayer { name: "tidy", needs: needs_nothing, run: || tidy::run(&[]) },
    TestLayer { name: "licences", needs: needs_nothing, run: || licences::run(&[]) },
    TestLayer { name: "clippy", needs: needs_nothing, run: run_clippy },
    TestLayer { name: "tests", needs: needs_nothing, run: run_tests },
    TestLayer { name: "release build", needs: needs_nothing, run: build_release },
    TestLayer { name: "generated", needs: needs_nothing, run: check_generated },
    TestLayer { name: "without psk", needs: needs_release_build, run: check_without_psk },
    TestLayer { name: "real clients", needs: needs_clients, run: run_real_clients },
    TestLayer { name: "start order", needs: needs_release_build, run: start_order::check },
    TestLayer { name: "idle memory", needs: needs_release_build, run: idle::check_idle_memory },
];
