//! Servers of other projects for tests: each on a free port, with files in a scratch folder. No
//! server outlives the test, however the test ends.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

pub(super) struct ServerProcess {
    child: Child,
}

/// Shell script that runs a server as its child. The script stops the server with `signal` when
/// stdin is closed, by the test or by the end of the test process; when the server ends, so does
/// the script.
const GUARD: &str = r#"
    signal=$1; shift; exec 3<&0; "$@" </dev/null 3<&- & server=$!
    { read -r _ <&3; kill -"$signal" $server; } >/dev/null 2>&1 &
    exec 3<&-; wait $server"#;

impl ServerProcess {
    /// Starts a server and waits for a line with `ready`. `signal` stops the server in an orderly
    /// way.
    pub(super) fn new(command: &[&str], user: &str, signal: &str, ready: &str) -> ServerProcess {
        let mut guard = as_user(user, "sh");
        guard.args(["-c", GUARD, "sh", signal]).args(command).current_dir("/");
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = guard.spawn().expect("a shell");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut seen = String::new();
        while !seen.contains(ready) {
            let read = lines.read_line(&mut seen).expect("its lines are text");
            assert!(read > 0, "{command:?} did not start:\n{seen}");
        }
        thread::spawn(move || read_away(lines));
        ServerProcess { child }
    }

    pub(super) fn stop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads the remaining output: a full pipe would block the server.
fn read_away(mut lines: BufReader<ChildStderr>) {
    let _ = std::io::copy(&mut lines, &mut std::io::sink());
}

/// Returns a command that runs as `user` if the test runs as root: some servers refuse to run as
/// root.
pub(super) fn as_user(user: &str, program: &str) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", user, "--", program]);
    command
}

pub(super) fn run(mut command: Command, input: &str) {
    let piped = command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().expect("a program that is installed");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {said}");
}

/// Creates an empty folder that belongs to `user`.
pub(super) fn folder(name: &str, user: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("godwit-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a scratch folder");
    give(&path, user);
    path
}

pub(super) fn give(path: &Path, user: &str) {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("chown");
        command.arg(user).arg(path);
        run(command, "");
    }
}

/// Installs an empty MariaDB; as root, the server runs as `mysql`.
pub(super) fn install_mariadb(files: &Path) {
    let mut install = Command::new("mariadb-install-db");
    install.arg(format!("--datadir={}", files.display()));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    install.args(["--skip-test-db", "--innodb-log-file-size=4M"]);
    if rustix::process::geteuid().is_root() {
        install.arg("--user=mysql");
    }
    run(install, "");
}
