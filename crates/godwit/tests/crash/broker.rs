//! The real program on one data folder, killed and restarted on the same address.

use crate::trace;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct CrashBroker {
    /// Contains the data folder, the log of each process, and the history of the judge.
    pub(crate) folder: PathBuf,
    pub(crate) address: SocketAddr,
    options: Vec<String>,
    /// Whether strace traces the next process, and how.
    pub(crate) traced: TraceMode,
    lives: u32,
    child: Option<Child>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceMode {
    No,
    Yes,
    /// Trace, and let every fdatasync succeed without effect.
    WithoutSync,
}

impl CrashBroker {
    /// Creates an empty folder and chooses an address; [`CrashBroker::start`] starts the process.
    pub(crate) fn new(name: &str, options: Vec<String>) -> CrashBroker {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder can be made");
        // An address of its own: its port stays free while the program is down.
        let host = HOSTS.fetch_add(1, Ordering::Relaxed) % 250;
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, high.max(1), low, 2 + host as u8));
        CrashBroker {
            folder,
            address: SocketAddr::new(address, PORT),
            options,
            traced: TraceMode::No,
            lives: 0,
            child: None,
        }
    }

    pub(crate) fn start(&mut self, shards: usize) {
        self.lives += 1;
        let log = File::options().create(true).append(true).open(self.folder.join("log"));
        let mut command = match self.traced {
            TraceMode::No => Command::new(PROGRAM),
            TraceMode::Yes | TraceMode::WithoutSync => {
                let mut command = Command::new("strace");
                let lies = self.traced == TraceMode::WithoutSync;
                command.args(trace::arguments(&self.trace(), lies)).arg(PROGRAM);
                command
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GODWIT_") {
                command.env_remove(name);
            }
        }
        command.args(["serve", "--listen", &format!("tcp://{}", self.address)]);
        command.arg("--data").arg(self.store());
        command.args(["--shards", &shards.to_string()]);
        if self.traced != TraceMode::No {
            // What is written by io_uring is no call that strace sees, and it is the same writes.
            command.args(["--set", "io_uring=false"]);
        }
        for option in &self.options {
            command.args(["--set", option]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a log"));
        let child = command.spawn();
        let child = child.unwrap_or_else(|fault| panic!("{:?}: {fault}", command.get_program()));
        self.child = Some(child);
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.look();
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            let ended = child.wait().expect("it ran");
            assert_eq!(ended.signal(), Some(9), "{}", self.last_words());
        }
    }

    /// Kills the process and returns the complete output of strace.
    pub(crate) fn end_trace(&mut self) -> String {
        let pid = self.child.as_ref().expect("it was started").id();
        self.kill();
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(self.trace()).expect("strace has written");
            if trace::is_whole(&text, pid) {
                return text;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "strace does not come to an end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn resident_kb(&self) -> u64 {
        let pid = self.child.as_ref().expect("it was started").id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        line.split_whitespace().next().and_then(|kb| kb.parse().ok()).expect("a number")
    }

    /// Returns the path of the trace of the current process.
    fn trace(&self) -> PathBuf {
        self.folder.join(format!("trace.{}", self.lives))
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Panics if the process has ended by itself.
    pub(crate) fn look(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("it was started"));
        if let Some(status) = ended {
            panic!("the broker ended with {status}:\n{}", self.last_words());
        }
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let from = log.lines().count().saturating_sub(20);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for CrashBroker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            println!("what is left is in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

static HOSTS: AtomicU32 = AtomicU32::new(0);

const PORT: u16 = 1883;
const PROGRAM: &str = env!("CARGO_BIN_EXE_godwit");
