//! Starts programs, and parses the reports of `godwit-bench`.

use serde_json::Value;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Result of a complete run of `godwit-bench`.
pub(crate) struct BenchRun {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn bench(arguments: &[&str]) -> BenchRun {
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit-bench"));
    command.env_remove("GODWIT_BENCH_TOKEN");
    let Output { status, stdout, stderr } =
        command.args(arguments).stdin(Stdio::null()).output().expect("godwit-bench can be run");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    BenchRun { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs a scenario. Returns the report, and the result of the run.
pub(crate) fn report(scenario: &str, target: SocketAddr, more: &[&str]) -> (Value, BenchRun) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let file = scratch().join(format!("scenario-{nth}.toml"));
    std::fs::write(&file, scenario).expect("the scratch folder is ours");
    let target = target.to_string();
    let file = file.to_str().expect("the path is text");
    let line = [&["run", file, "--target", &target, "--json", "-"], more].concat();
    let run = bench(&line);
    let report = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr));
    (report, run)
}

pub(crate) fn scratch() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&folder).expect("the scratch folder can be made");
    folder
}

/// Returns a number of the report. Panics if the path is not a number.
pub(crate) fn number(report: &Value, path: &str) -> f64 {
    let value = report.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} is not a number in {report:#}"))
}

pub(crate) fn sampler(report: &Value, name: &str, key: &str) -> f64 {
    let rows = report["samplers"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == name);
    row.and_then(|row| row[key].as_f64()).unwrap_or_else(|| panic!("no {name} {key}"))
}

pub(crate) fn failure(report: &Value, what: &str) -> u64 {
    let rows = report["failures"].as_array().expect("a list");
    let rows = rows.iter().filter(|row| row["what"].as_str().is_some_and(|is| is.contains(what)));
    rows.filter_map(|row| row["count"].as_u64()).sum()
}

/// A broker process: godwit or another broker.
pub(crate) struct TestBrokerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl TestBrokerProcess {
    /// Starts a broker on a free port. Returns `None` if the program is not installed.
    pub(crate) fn start(
        program: &Path,
        arguments: impl Fn(u16) -> Vec<String>,
    ) -> Option<TestBrokerProcess> {
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let mut command = Command::new(program);
        command.args(arguments(address.port())).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let broker = TestBrokerProcess { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{program:?} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(broker)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for TestBrokerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
