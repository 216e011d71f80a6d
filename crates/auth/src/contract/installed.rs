//! Programs that a test needs and this host may lack. Such a test is skipped with a message; with
//! `TEST_ALL_SERVERS`, as in `cargo x test` as root and in CI, it fails.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the path of a program, given by path or by name; `None` if the program is not installed.
pub(super) fn installed(what: &str, program: impl AsRef<Path>) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // Servers are where only root looks.
    let more = ["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin"].map(PathBuf::from);
    let mut paths = std::env::split_paths(&folders).chain(more).map(|one| one.join(&program));
    let path = paths.find(|path| path.exists());
    if path.is_none() {
        leave_out(&format!("{what} is not installed, `cargo x test` does it"));
    }
    path
}

pub(super) fn is_installed(what: &str, program: impl AsRef<Path>) -> bool {
    installed(what, program).is_some()
}

/// Reports a skipped test.
pub(super) fn leave_out(why: &str) {
    let is_wanted = std::env::var_os("TEST_ALL_SERVERS").is_some();
    assert!(!is_wanted, "{why}, and TEST_ALL_SERVERS wants it");
    // Not `eprintln`, whose output is hidden for a test that passes.
    let _ = std::io::stderr().write_all(format!("left out: {why}\n").as_bytes());
}
