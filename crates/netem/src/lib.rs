//! A bad network line for tests and measurements: IP packets are delayed, lost, reordered, slowed
//! down or cut off, so that TCP and QUIC themselves have to recover.
//!
//! Works on kernels without netem, by a network namespace and one tun device:
//!
//! ```text
//!   client at HERE                                          server at THERE
//!   connects to ACROSS                                      sees BACK
//!        |                                                       ^
//!        v  HERE -> ACROSS                       BACK -> THERE   |
//!   [ tun ] ------> shuttle: late? lost? turned? ----------> [ tun ]
//! ```
//!
//! Both ends are on one host. A client of `IMPAIRED_SERVER_ADDRESS` (ACROSS) reaches the server
//! listening at `SERVER_ADDRESS` (THERE) through the line; a client of `SERVER_ADDRESS` reaches it
//! directly. The shuttle is the forwarder: it gives each packet the addresses of the other end, and
//! the addresses are chosen so that no checksum changes.
#![forbid(unsafe_code)]

mod forwarder;
mod rng;

use crate::forwarder::PacketForwarder;
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

/// Source address of connections through the line (`HERE` in the picture above).
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Address on which a server listens (`THERE`). A connection to it bypasses the line.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
/// Address of the same server through the line (`ACROSS`).
pub const IMPAIRED_SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 3, 1);

/// Conditions of the line, the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkConditions {
    pub delay: Duration,
    /// Percentage of packets that are lost.
    pub loss_percent: f64,
    /// Percentage of packets that are delayed by `reorder_delay` in addition.
    pub reorder_percent: f64,
    /// Additional delay of reordered packets, during which later packets overtake them.
    pub reorder_delay: Duration,
    /// Bytes per second in each direction; 0 is no limit.
    pub bytes_per_s: u64,
    /// The line drops every packet without an error to either side.
    pub is_cut: bool,
}

/// An impaired line; dropping the value stops its forwarder.
#[derive(Debug)]
pub struct ImpairedNetwork {
    conditions: Arc<Mutex<NetworkConditions>>,
    counts: Arc<PacketCounts>,
    stops: Arc<AtomicBool>,
    forwarder: Option<JoinHandle<()>>,
}

/// Number of packets by their result, over both directions.
#[derive(Debug, Default)]
pub struct PacketCounts {
    pub carried: AtomicU64,
    pub lost: AtomicU64,
    pub late: AtomicU64,
}

/// Returns why this host cannot run an [`ImpairedNetwork`]: root, the tun device or `ip` is
/// missing. `None` if the host can.
pub fn unavailable_reason() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("bad lines need root".to_string());
    }
    if !Path::new(TUN).exists() {
        return Some(format!("bad lines need {TUN}: modprobe tun"));
    }
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ip.is_err().then(|| "bad lines need the program ip, of iproute2".to_string())
}

impl ImpairedNetwork {
    /// Moves the calling thread, and all threads and processes started by this thread later, into a
    /// new network namespace with a loopback device and the line. The namespace goes with the last
    /// of the processes.
    pub fn open(weather: NetworkConditions, seed: u64) -> Result<ImpairedNetwork, String> {
        // Unsharing is unsafe only for the flag that unshares file descriptors, not used here.
        #[expect(deprecated, reason = "its successor is unsafe, for flags that are not used here")]
        let own = rustix::thread::unshare(UnshareFlags::NEWNET);
        own.map_err(|error| format!("no network of its own: {error}"))?;
        let wrong = |error: std::io::Error| format!("{TUN}: {error}");
        let device = Interface::new(DEVICE).map_err(wrong)?;
        let tun = Tun::create_named(device).map_err(wrong)?;
        tun.set_nonblocking(true).map_err(wrong)?;
        configure_addresses()?;
        let (weather, counts) = (Arc::new(Mutex::new(weather)), Arc::<PacketCounts>::default());
        let ends = Arc::new(AtomicBool::new(false));
        let shuttle = PacketForwarder::new(tun, weather.clone(), counts.clone(), seed);
        let told = ends.clone();
        let shuttle = std::thread::Builder::new().name("line".into()).spawn(move || {
            let mut shuttle = shuttle;
            while !told.load(Relaxed) {
                shuttle.forward_packets();
            }
        });
        let shuttle = shuttle.map_err(|error| format!("no thread for the line: {error}"))?;
        Ok(ImpairedNetwork { conditions: weather, counts, stops: ends, forwarder: Some(shuttle) })
    }

    /// Replaces the conditions, for all packets from now on.
    pub fn set_conditions(&self, weather: NetworkConditions) {
        *lock_conditions(&self.conditions) = weather;
    }

    pub fn cut(&self) {
        lock_conditions(&self.conditions).is_cut = true;
    }

    pub fn restore(&self) {
        lock_conditions(&self.conditions).is_cut = false;
    }

    pub fn counts(&self) -> &PacketCounts {
        &self.counts
    }
}

impl Drop for ImpairedNetwork {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        if let Some(shuttle) = self.forwarder.take() {
            let _ = shuttle.join();
        }
    }
}

fn configure_addresses() -> Result<(), String> {
    let plan = format!(
        "link set lo up\n\
         address add {CLIENT_ADDRESS}/32 dev {DEVICE}\n\
         address add {SERVER_ADDRESS}/32 dev {DEVICE}\n\
         link set {DEVICE} up\n\
         route add {IMPAIRED_SUBNET} dev {DEVICE} src {CLIENT_ADDRESS}\n"
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

/// Locks the conditions. A panic of another thread cannot leave them half-written, so a poisoned
/// lock is taken as well.
fn lock_conditions(weather: &Mutex<NetworkConditions>) -> MutexGuard<'_, NetworkConditions> {
    weather.lock().unwrap_or_else(PoisonError::into_inner)
}

const TUN: &str = "/dev/net/tun";
const DEVICE: &str = "line";
/// Subnet of [`IMPAIRED_SERVER_ADDRESS`], and of the client's address as seen by the server.
const IMPAIRED_SUBNET: &str = "198.18.2.0/23";
