//! The real program under attack, and a healthy client at the same time.

use crate::peer::{RawMqttPeer, hello};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) struct HostileTestBroker {
    child: Child,
    /// Address of the plain TCP listener.
    pub(crate) address: SocketAddr,
    /// URLs of all listeners.
    urls: Vec<String>,
    /// Lock by which attacks run one at a time, because each measures memory and latency.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// Memory limit of the broker in all attacks that do not set another.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 << 20;

impl HostileTestBroker {
    pub(crate) fn start(options: &[&str]) -> HostileTestBroker {
        HostileTestBroker::start_with(&[], options)
    }

    /// Starts a broker with the listeners of a configuration file.
    pub(crate) fn start_from(file: &Path, options: &[&str]) -> HostileTestBroker {
        HostileTestBroker::start_with(&["--config".as_ref(), file.as_os_str()], options)
    }

    fn start_with(arguments: &[&OsStr], options: &[&str]) -> HostileTestBroker {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut command = Command::new(env!("CARGO_BIN_EXE_godwit"));
        let memory = format!("memory.bytes_max={MEMORY_BYTES_MAX}");
        command.args(arguments);
        command.args(["--listen", "tcp://127.0.0.1:0", "--shards", "2", "--memory"]);
        command.args(["--set", &memory]);
        // A line for each of a hundred thousand refusals is not what is measured here.
        command.args(["--set", "log.level=error"]);
        for option in options {
            command.args(["--set", option]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be run");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let mut next = || lines.next().expect("the banner goes on").expect("it is text");
        let mut urls = Vec::new();
        loop {
            let line = next();
            match line.split_once("listening on") {
                Some((_, url)) => urls.push(url.trim().to_string()),
                None if urls.is_empty() => {}
                None => break,
            }
        }
        thread::spawn(move || lines.for_each(drop));
        let address = address_of(&urls, "tcp://");
        HostileTestBroker { child, address, urls, _turn: turn }
    }

    /// Returns the address of the listener whose URL starts with `beginning`.
    pub(crate) fn address_of(&self, beginning: &str) -> SocketAddr {
        address_of(&self.urls, beginning)
    }

    /// Returns the resident memory of the broker, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Returns the largest resident memory of the broker so far, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).expect("the broker runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("Linux tells it");
        let kb: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kb * 1024
    }

    /// Runs an attack together with a healthy client. The latency of the client and the memory of
    /// the process must stay within their limits.
    pub(crate) fn withstand(&self, name: &str, attack: impl FnOnce(&HostileTestBroker)) {
        self.withstand_latency(name, attack);
        let peak = self.peak();
        assert!(peak <= MEMORY_BYTES_MAX, "{name}: {peak} bytes resident");
    }

    /// Runs an attack like [`HostileTestBroker::withstand`], without the check of the memory.
    pub(crate) fn withstand_latency(&self, name: &str, attack: impl FnOnce(&HostileTestBroker)) {
        let quiet = LatencyProbe::start(self.address, "quiet");
        thread::sleep(QUIET);
        let quiet = quiet.stop();
        let healthy = LatencyProbe::start(self.address, "healthy");
        let began = Instant::now();
        attack(self);
        let lasted = began.elapsed();
        thread::sleep(AFTER);
        let attacked = healthy.stop();
        let (before, during, peak) = (p99(&quiet), p99(&attacked), self.peak());
        println!(
            "{name}: p99 {before:?} of {} before, {during:?} of {} in {lasted:?} of attack, \
             at most {} KB resident",
            quiet.len(),
            attacked.len(),
            peak / 1024
        );
        let bound = (before * P99_RATIO_MAX).max(P99_FLOOR);
        assert!(during <= bound, "{name}: p99 {during:?} under attack, {before:?} before");
    }
}

fn address_of(urls: &[String], beginning: &str) -> SocketAddr {
    let url = urls.iter().find(|url| url.starts_with(beginning)).expect("it listens there");
    url.rsplit('/').next().expect("an address").parse().expect("an address")
}

impl Drop for HostileTestBroker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Duration of the measurement without an attack.
const QUIET: Duration = Duration::from_millis(700);
const AFTER: Duration = Duration::from_millis(300);
/// Largest ratio of the 99th percentiles with and without an attack. Attackers and broker share the
/// processors of the test, so some increase is normal; a stalled shard causes a much larger one.
const P99_RATIO_MAX: u32 = 50;
const P99_FLOOR: Duration = Duration::from_millis(60);

/// A client of MQTT 3.1.1 that sends QoS 1 messages to itself, one after another, and measures each
/// round trip. A refusal would close its connection, and so fail the test.
struct LatencyProbe {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl LatencyProbe {
    fn start(address: SocketAddr, id: &str) -> LatencyProbe {
        let stops = Arc::new(AtomicBool::new(false));
        let mut peer = RawMqttPeer::connect(
            address,
            mqtt::Connect { version: mqtt::ProtocolVersion::V311, ..hello(id) },
        );
        let topic = format!("healthy/{id}");
        peer.subscribe(&[&topic], mqtt::QoS::AtLeastOnce);
        let stop = stops.clone();
        let thread = thread::spawn(move || {
            let mut times = Vec::new();
            while !stop.load(SeqCst) {
                let began = Instant::now();
                peer.round_trip(&topic);
                times.push(began.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            times
        });
        LatencyProbe { stops, thread }
    }

    fn stop(self) -> Vec<Duration> {
        self.stops.store(true, SeqCst);
        self.thread.join().expect("the healthy client lost nothing and was not disconnected")
    }
}

fn p99(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}
