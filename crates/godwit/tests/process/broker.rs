//! Test processes: a running `godwit`, and other programs.

use crate::ports::free_port;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const GODWIT: &str = env!("CARGO_BIN_EXE_godwit");

/// A process whose stderr is read line by line.
pub(crate) struct TestProgram {
    child: Child,
    lines: Receiver<String>,
    /// All lines of stderr so far.
    seen: Vec<String>,
    /// Number of lines of `seen` that `wait_for` has passed.
    looked_at: usize,
}

pub(crate) struct TestBroker {
    pub(crate) program: TestProgram,
    pub(crate) address: SocketAddr,
}

impl TestBroker {
    pub(crate) fn start(arguments: &[&str]) -> TestBroker {
        TestBroker::start_with(&[], arguments)
    }

    /// Starts a broker with these environment variables, in memory unless the arguments contain
    /// `--data`.
    pub(crate) fn start_with(environment: &[(&str, &str)], arguments: &[&str]) -> TestBroker {
        let mut command = godwit(arguments);
        if !arguments.contains(&"--data") {
            command.arg("--memory");
        }
        // Some come back where they were.
        let url = format!("tcp://127.0.0.1:{}", free_port());
        command.args(["--listen", &url]).envs(environment.iter().copied());
        TestBroker::announced(TestProgram::start(command))
    }

    /// Waits for the banner of a started broker, and reads the address of the listener from it.
    pub(crate) fn announced(mut program: TestProgram) -> TestBroker {
        let line = program.wait_for("listening on  tcp://");
        let address = line.split("tcp://").nth(1).expect("the banner names the address");
        let address = address.trim().parse().expect("an address");
        program.wait_for("memory limit");
        // Links may have connected before.
        program.looked_at = 0;
        TestBroker { program, address }
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }
}

impl TestProgram {
    pub(crate) fn start(mut command: Command) -> TestProgram {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be run");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        TestProgram { child, lines, seen: Vec::new(), looked_at: 0 }
    }

    /// Waits for the next line of stderr that contains `text`, and returns the line. Panics after
    /// `PATIENCE`.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait_within(PATIENCE, text)
    }

    /// Does the work of [`TestProgram::wait_for`] with another timeout. Lines without `text` are
    /// skipped.
    fn wait_within(&mut self, patience: Duration, text: &str) -> String {
        let until = Instant::now() + patience;
        loop {
            if let Some(line) = self.seen.get(self.looked_at) {
                self.looked_at += 1;
                if line.contains(text) {
                    return line.clone();
                }
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if !left.is_zero() => self.seen.push(line),
                _ => break,
            }
        }
        panic!("no line with {text:?} came, but\n{}", self.seen.join("\n"));
    }

    /// Returns whether any line of stderr so far contains `text`.
    pub(crate) fn has_said(&mut self, text: &str) -> bool {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().any(|line| line.contains(text))
    }

    /// Returns all lines of stderr that were read so far.
    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(kill.expect("sh can be run").success());
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("the program was started").code()
    }

    /// Waits for the process to end by itself. Returns the exit code and stdout.
    pub(crate) fn finish(self) -> (Option<i32>, String) {
        let (code, printed) = self.finish_bytes();
        (code, String::from_utf8(printed).expect("stdout is text"))
    }

    pub(crate) fn finish_bytes(mut self) -> (Option<i32>, Vec<u8>) {
        drop(self.child.stdin.take());
        let mut printed = Vec::new();
        let mut stdout = self.child.stdout.take().expect("stdout is piped");
        stdout.read_to_end(&mut printed).expect("stdout is piped");
        (self.exit_code(), printed)
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(text.as_bytes()).expect("the program reads");
    }
}

impl Drop for TestProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that runs `godwit` without the `GODWIT_*` variables of the environment.
pub(crate) fn godwit<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(GODWIT);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GODWIT_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

/// Runs `godwit` to its end. Returns exit code, stdout and stderr.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        godwit(arguments).stdin(Stdio::null()).output().expect("godwit can be run");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    (status.code(), text(stdout), text(stderr))
}

/// Creates an empty folder for a test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the scratch folder can be made");
    folder
}

/// Timeout of every wait, long enough for a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

#[test]
#[should_panic(expected = "no line with \"never\" came")]
fn whoever_waits_for_a_line_gives_up_though_others_come() {
    let mut talkative = Command::new("sh");
    talkative.args(["-c", "while :; do echo again >&2; sleep 0.01; done"]);
    let mut talkative = TestProgram::start(talkative);
    talkative.wait_for("again");
    talkative.wait_within(Duration::from_millis(300), "never");
}
