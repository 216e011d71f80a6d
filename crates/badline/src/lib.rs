//! A bad line, for tests and measurements: IP packets are late, lost, out of order, slowed down or
//! cut off, so that TCP and QUIC themselves have to make up for it.
//!
//! A kernel without netem can still do that with a network of its own and one tun device:
//!
//! ```text
//!   client at HERE                                          server at THERE
//!   connects to ACROSS                                      sees BACK
//!        |                                                       ^
//!        v  HERE -> ACROSS                       BACK -> THERE   |
//!   [ tun ] ------> shuttle: late? lost? turned? ----------> [ tun ]
//! ```
//!
//! Both ends are on one host. Whoever connects to `ACROSS` meets the server that listens at
//! `THERE`, by the line; whoever connects to `THERE` meets it without the line. The shuttle gives
//! each packet the addresses of the other end, and the four are such that no checksum changes.
#![forbid(unsafe_code)]

mod chance;
mod shuttle;

use crate::shuttle::Shuttle;
use rustix::thread::UnshareFlags;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tappers::Interface;
use tappers::linux::Tun;

/// Where connections through the line come from, ...
pub const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// ... where a server listens, ...
pub const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
/// ... and what it is called from here.
pub const ACROSS: Ipv4Addr = Ipv4Addr::new(198, 18, 3, 1);

/// What the line does to packets, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weather {
    pub delay: Duration,
    /// So many of a hundred packets are lost, ...
    pub loss_percent: f64,
    /// ... and so many are later than the others, ...
    pub late_percent: f64,
    /// ... by so much: those behind them overtake them.
    pub late_by: Duration,
    /// 0 is no limit.
    pub bytes_per_s: u64,
    /// Nothing passes, and nobody is told.
    pub is_cut: bool,
}

/// The line, for as long as this is kept.
#[derive(Debug)]
pub struct BadLine {
    weather: Arc<Mutex<Weather>>,
    counts: Arc<Counts>,
    ends: Arc<AtomicBool>,
    shuttle: Option<JoinHandle<()>>,
}

/// Packets.
#[derive(Debug, Default)]
pub struct Counts {
    pub carried: AtomicU64,
    pub lost: AtomicU64,
    pub late: AtomicU64,
}

/// Why this host cannot have one, if it cannot.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("bad lines need root".to_string());
    }
    if !Path::new(TUN).exists() {
        return Some(format!("bad lines need {TUN}: modprobe tun"));
    }
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ip.is_err().then(|| "bad lines need the program ip, of iproute2".to_string())
}

impl BadLine {
    /// The calling thread, and every thread and process that it starts from then on, is in a
    /// network of its own, whose loopback is up, and in which there is this line. That network goes
    /// with the last of them.
    pub fn open(weather: Weather, seed: u64) -> Result<BadLine, String> {
        // What is unsafe about it is only to share no descriptors, which this does not ask for.
        #[expect(deprecated, reason = "its successor is unsafe, for flags that are not used here")]
        let own = rustix::thread::unshare(UnshareFlags::NEWNET);
        own.map_err(|error| format!("no network of its own: {error}"))?;
        let wrong = |error: std::io::Error| format!("{TUN}: {error}");
        let device = Interface::new(DEVICE).map_err(wrong)?;
        let tun = Tun::create_named(device).map_err(wrong)?;
        tun.set_nonblocking(true).map_err(wrong)?;
        plan_addresses()?;
        let (weather, counts) = (Arc::new(Mutex::new(weather)), Arc::<Counts>::default());
        let ends = Arc::new(AtomicBool::new(false));
        let shuttle = Shuttle::new(tun, weather.clone(), counts.clone(), seed);
        let told = ends.clone();
        let shuttle = std::thread::Builder::new().name("line".into()).spawn(move || {
            let mut shuttle = shuttle;
            while !told.load(Relaxed) {
                shuttle.turn();
            }
        });
        let shuttle = shuttle.map_err(|error| format!("no thread for the line: {error}"))?;
        Ok(BadLine { weather, counts, ends, shuttle: Some(shuttle) })
    }

    /// From now on it is like this.
    pub fn turn(&self, weather: Weather) {
        *lock(&self.weather) = weather;
    }

    pub fn cut(&self) {
        lock(&self.weather).is_cut = true;
    }

    pub fn mend(&self) {
        lock(&self.weather).is_cut = false;
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for BadLine {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(shuttle) = self.shuttle.take() {
            let _ = shuttle.join();
        }
    }
}

fn plan_addresses() -> Result<(), String> {
    let plan = format!(
        "link set lo up\n\
         address add {HERE}/32 dev {DEVICE}\n\
         address add {THERE}/32 dev {DEVICE}\n\
         link set {DEVICE} up\n\
         route add {BEYOND} dev {DEVICE} src {HERE}\n"
    );
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ip.spawn().map_err(|error| format!("ip, of iproute2: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(plan.as_bytes()).map_err(|error| format!("ip: {error}"))?;
    }
    let output = child.wait_with_output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// What it guards is whole between any two statements.
fn lock(weather: &Mutex<Weather>) -> MutexGuard<'_, Weather> {
    weather.lock().unwrap_or_else(PoisonError::into_inner)
}

const TUN: &str = "/dev/net/tun";
const DEVICE: &str = "line";
/// `ACROSS`, and what a server sees as the other end.
const BEYOND: &str = "198.18.2.0/23";
