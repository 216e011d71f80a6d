//! Runs other programs, and finds paths and tools.

use std::env;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::tree::root;

/// `cargo x up`: runs the release build in place of this process, so signals reach the broker.
pub(crate) fn run_broker(args: &[String]) -> Result<(), String> {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "godwit", "--", "serve"]).args(args);
    Err(format!("up: cargo cannot be run: {}", command.exec()))
}

pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Set by the calling cargo, and wrong for the packages of a nested cargo.
    command.env_remove("CARGO_MANIFEST_DIR");
    command
}

pub(crate) fn new_command(name: &str) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs `command` to its end with inherited output. A nonzero exit status is an error.
pub(crate) fn run_to_end(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(e) => Err(format!("{name} cannot be run: {e}")),
    }
}

/// Runs `command` to its end and returns its standard output; the error contains standard error.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name} cannot be run: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} ended with {}: {}", output.status, why.trim()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{name} printed what is not UTF-8"))
}

/// Whether a program is in `PATH` or in the `sbin` folders, where Debian installs some programs.
pub(crate) fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.into_iter().any(|folder: PathBuf| folder.join(name).is_file())
}

pub(crate) fn is_root() -> bool {
    output(new_command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Returns the folder that cargo builds to, respecting `CARGO_TARGET_DIR`.
pub(crate) fn target_folder() -> PathBuf {
    let named = env::var_os("CARGO_TARGET_DIR").or_else(|| env::var_os("CARGO_BUILD_TARGET_DIR"));
    root().join(named.map_or_else(|| "target".into(), PathBuf::from))
}

/// Returns the path of the release build, made by [`build_release`].
pub(crate) fn release_binary() -> PathBuf {
    target_folder().join("release/godwit")
}

pub(crate) fn build_release() -> Result<(), String> {
    run_to_end(cargo().args(["build", "--release", "--package", "godwit"]))
}

/// Returns a TCP port of the loopback interface, free a moment ago.
pub(crate) fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|e| format!("no free port: {e}"))
}
