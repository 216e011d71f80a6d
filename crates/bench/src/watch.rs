//! Watches the broker's process and its host through `/proc`.
//!
//! A process in its own pid namespace stands for all processes of that namespace
//! (pid_namespaces(7)), which is a container of any runtime. A container with the host's pids is
//! known by its control group (cgroups(7)). Network figures are those of the container's network
//! namespace.
//!
//! A figure is a difference between two samples, or a state at one; a figure that cannot be read
//! (another user's descriptors, say) is absent rather than zero.

use serde_json::Value;
use std::fs;
use std::time::Instant;

/// The process or container to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchTarget {
    /// All processes of the container whose first process this is.
    Container(u32),
    Process(u32),
}

/// Watches the processes of a `WatchTarget`, or the host only.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    target: Option<WatchTarget>,
    last: ProcSnapshot,
    last_at: Instant,
}

/// Figures between two snapshots, by `ProcessFigure`; `None` for figures that cannot be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProcessSample {
    values: [Option<f64>; FIGURES.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessFigure {
    /// Processor time, in processors.
    Cpu,
    MemoryKb,
    Threads,
    Descriptors,
    Switches,
    DiskRead,
    DiskWritten,
    /// Load of all processors, 0 to 1.
    HostCpu,
    /// Share of all processors' time taken by a hypervisor (steal), 0 to 1.
    HostStolen,
    /// Share of all processors' time used by other processes than the broker and this process, 0 to
    /// 1. Absent if the broker is not watched, since its time would be included.
    HostOthers,
    HostMemoryKb,
    NetIn,
    NetOut,
    PacketsIn,
    PacketsOut,
}

/// Names of the figures in reports.
pub(crate) const FIGURES: &[(ProcessFigure, &str)] = &[
    (ProcessFigure::Cpu, "cpu"),
    (ProcessFigure::MemoryKb, "memory_kb"),
    (ProcessFigure::Threads, "threads"),
    (ProcessFigure::Descriptors, "descriptors"),
    (ProcessFigure::Switches, "switches_per_s"),
    (ProcessFigure::DiskRead, "disk_read_per_s"),
    (ProcessFigure::DiskWritten, "disk_written_per_s"),
    (ProcessFigure::HostCpu, "host_cpu"),
    (ProcessFigure::HostStolen, "host_stolen"),
    (ProcessFigure::HostOthers, "host_others"),
    (ProcessFigure::HostMemoryKb, "host_memory_kb"),
    (ProcessFigure::NetIn, "net_in_per_s"),
    (ProcessFigure::NetOut, "net_out_per_s"),
    (ProcessFigure::PacketsIn, "packets_in_per_s"),
    (ProcessFigure::PacketsOut, "packets_out_per_s"),
];

impl WatchTarget {
    pub(crate) fn pid(self) -> u32 {
        match self {
            WatchTarget::Container(pid) | WatchTarget::Process(pid) => pid,
        }
    }
}

impl ProcessSample {
    pub(crate) fn figure(&self, figure: ProcessFigure) -> Option<f64> {
        self.values[figure as usize]
    }

    pub(crate) fn to_json(&self) -> Value {
        let rows =
            FIGURES.iter().map(|(figure, name)| ((*name).into(), self.figure(*figure).into()));
        Value::Object(rows.collect())
    }

    pub(crate) fn from_json(value: &Value) -> ProcessSample {
        let values = std::array::from_fn(|at| value[FIGURES[at].1].as_f64());
        ProcessSample { values }
    }
}

/// Monotonic counters, read at one time.
#[derive(Clone, Debug, Default)]
struct ProcSnapshot {
    ticks: Option<u64>,
    /// Processor time of this process, which is the tester or an agent.
    own_ticks: Option<u64>,
    switches: Option<u64>,
    disk: Option<(u64, u64)>,
    host: Option<HostTicks>,
    /// Bytes in, packets in, bytes out, packets out.
    net: Option<[u64; 4]>,
}

impl ProcessWatch {
    pub(crate) fn new(whom: Option<WatchTarget>) -> ProcessWatch {
        ProcessWatch { target: whom, last: ProcSnapshot::read(whom), last_at: Instant::now() }
    }

    pub(crate) fn sample(&mut self) -> ProcessSample {
        let (now, at) = (ProcSnapshot::read(self.target), Instant::now());
        let elapsed = (at - self.last_at).as_secs_f64().max(0.001);
        let last = std::mem::replace(&mut self.last, now.clone());
        self.last_at = at;
        let per_s =
            |now: Option<u64>, last: Option<u64>| Some(now?.saturating_sub(last?) as f64 / elapsed);
        let net = |at: usize| per_s(now.net.map(|net| net[at]), last.net.map(|net| net[at]));
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        let processes = self.target.map(processes).unwrap_or_default();
        let of_status = |key: &str| {
            sum_over(&processes, |pid| number_after_key(&read_proc(pid, "status")?, key))
        };
        let mut sample = ProcessSample::default();
        let of_host = |ticks: fn(&HostTicks) -> u64| {
            let (now, last) = (now.host.as_ref()?, last.host.as_ref()?);
            let all = now.all.saturating_sub(last.all).max(1);
            Some(ticks(now).saturating_sub(ticks(last)) as f64 / all as f64)
        };
        let count = |n: Option<u64>| n.map(|n| n as f64);
        for (figure, value) in [
            (ProcessFigure::Cpu, per_s(now.ticks, last.ticks).map(|ticks| ticks / ticks_per_s)),
            (ProcessFigure::MemoryKb, count(of_status("VmRSS:"))),
            (ProcessFigure::Threads, count(of_status("Threads:"))),
            (ProcessFigure::Descriptors, count(sum_over(&processes, descriptors))),
            (ProcessFigure::Switches, per_s(now.switches, last.switches)),
            (
                ProcessFigure::DiskRead,
                per_s(now.disk.map(|disk| disk.0), last.disk.map(|disk| disk.0)),
            ),
            (
                ProcessFigure::DiskWritten,
                per_s(now.disk.map(|disk| disk.1), last.disk.map(|disk| disk.1)),
            ),
            (ProcessFigure::HostCpu, of_host(|ticks| ticks.busy)),
            (ProcessFigure::HostStolen, of_host(|ticks| ticks.stolen)),
            (ProcessFigure::HostOthers, others_share(&now, &last)),
            (ProcessFigure::HostMemoryKb, count(host_memory_kb())),
            (ProcessFigure::NetIn, net(0)),
            (ProcessFigure::PacketsIn, net(1)),
            (ProcessFigure::NetOut, net(2)),
            (ProcessFigure::PacketsOut, net(3)),
        ] {
            sample.values[figure as usize] = value;
        }
        sample
    }
}

impl ProcSnapshot {
    fn read(whom: Option<WatchTarget>) -> ProcSnapshot {
        let processes = whom.map(processes).unwrap_or_default();
        let of_disk =
            |key: &str| sum_over(&processes, |pid| number_after_key(&read_proc(pid, "io")?, key));
        let devices = match whom {
            Some(whom) => read_proc(whom.pid(), "net/dev"),
            None => fs::read_to_string("/proc/net/dev").ok(),
        };
        ProcSnapshot {
            ticks: sum_over(&processes, |pid| cpu_ticks(&read_proc(pid, "stat")?)),
            own_ticks: read_proc(std::process::id(), "stat").and_then(|stat| cpu_ticks(&stat)),
            switches: sum_over(&processes, switches),
            disk: of_disk("read_bytes:").zip(of_disk("write_bytes:")),
            host: fs::read_to_string("/proc/stat").ok().and_then(|stat| host_ticks(&stat)),
            net: devices.map(|devices| device_totals(&devices)),
        }
    }
}

/// Returns the share of all processors' time used by other processes between two snapshots, from 0
/// to 1; `None` if a snapshot lacks a figure.
fn others_share(now: &ProcSnapshot, last: &ProcSnapshot) -> Option<f64> {
    let (host, before) = (now.host.as_ref()?, last.host.as_ref()?);
    let since = |now: u64, last: u64| now.saturating_sub(last);
    let broker = since(now.ticks?, last.ticks?);
    let own = since(now.own_ticks?, last.own_ticks?);
    let all = since(host.all, before.all).max(1);
    let others = since(host.processes, before.processes).saturating_sub(broker + own);
    Some(others as f64 / all as f64)
}

/// Returns the process itself, or all processes of its container.
fn processes(whom: WatchTarget) -> Vec<u32> {
    let namespace = |process: u32| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let groups = |process: u32| read_proc(process, "cgroup").unwrap_or_default();
    let (pid, ours) = (whom.pid(), std::process::id());
    let apart = namespace(pid).filter(|own| Some(own) != namespace(ours).as_ref());
    let group = match whom {
        WatchTarget::Container(_) => separate_cgroup(&groups(pid), &groups(ours)),
        WatchTarget::Process(_) => None,
    };
    if apart.is_none() && group.is_none() {
        return vec![pid];
    }
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|process| process.file_name().to_str()?.parse().ok());
    all.filter(|process: &u32| {
        apart.is_some() && namespace(*process) == apart
            || group.as_ref().is_some_and(|group| is_in_cgroup(&groups(*process), group))
    })
    .collect()
}

/// Returns the control group of `theirs` (lines of `/proc/PID/cgroup`) that does not contain this
/// process; `None` if no group separates the container from other processes.
fn separate_cgroup(theirs: &str, ours: &str) -> Option<String> {
    theirs.lines().find(|group| !is_in_cgroup(ours, group)).map(String::from)
}

/// Whether `group`, or a group below, is among the groups of a process.
fn is_in_cgroup(groups: &str, group: &str) -> bool {
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/') || group.ends_with('/');
    groups.lines().filter_map(|line| line.strip_prefix(group)).any(is_below)
}

/// Returns the sum over all processes that have the figure; `None` if no process has the figure.
fn sum_over(processes: &[u32], figure: impl Fn(u32) -> Option<u64>) -> Option<u64> {
    processes.iter().filter_map(|process| figure(*process)).reduce(|a, b| a + b)
}

/// Returns the process that listens on a port of this host, if visible to this user.
pub(crate) fn listening_pid(port: u16, is_udp: bool) -> Option<u32> {
    let (tables, state) = match is_udp {
        true => (["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED),
        false => (["/proc/net/tcp", "/proc/net/tcp6"], LISTENS),
    };
    let tables: String = tables.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let socket = format!("socket:[{}]", listening_inode(&tables, port, state)?);
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let mut targets = descriptors.flatten().filter_map(|one| fs::read_link(one.path()).ok());
        if targets.any(|target| target.as_os_str() == socket.as_str()) {
            return Some(pid);
        }
    }
    None
}

/// Finds the inode of a listening socket: in proc_pid_net(5) the local address is the second field,
/// the state the fourth, the inode the tenth.
fn listening_inode(tables: &str, port: u16, state: &str) -> Option<u64> {
    let wanted = format!(":{port:04X}");
    tables.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&wanted) && *fields.get(3)? == state;
        if listens { fields.get(9)?.parse().ok() } else { None }
    })
}

const LISTENS: &str = "0A";
/// State of a UDP socket without a remote address.
const UNCONNECTED: &str = "07";

fn read_proc(pid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

/// Returns the number of a process's descriptors. Since Linux 6.2 the size of `/proc/PID/fd` holds
/// the number [proc_pid_fd(5)]; a listing of thousands costs milliseconds of a processor that
/// tester or broker may need.
fn descriptors(pid: u32) -> Option<u64> {
    let folder = format!("/proc/{pid}/fd");
    match fs::metadata(&folder).ok()?.len() {
        0 => Some(fs::read_dir(folder).ok()?.count() as u64),
        said => Some(said),
    }
}

/// Returns the first number after `key` at the beginning of a line.
fn number_after_key(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns user plus system time: proc_pid_stat(5), fields 14 and 15. The name in field 2 may hold
/// spaces and brackets, so fields are counted from the last bracket.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Returns the context switches of all threads of a process; each thread has its own counter.
fn switches(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let statuses = threads.flatten().filter_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let asked = number_after_key(&status, "voluntary_ctxt_switches:")?;
        Some(asked + number_after_key(&status, "nonvoluntary_ctxt_switches:")?)
    });
    Some(statuses.sum())
}

/// Processor time of all processors together since the start of the host.
#[derive(Clone, Debug, PartialEq)]
struct HostTicks {
    busy: u64,
    stolen: u64,
    /// User, nice and system time, used by processes. Time of interrupts belongs to no process.
    processes: u64,
    all: u64,
}

/// Reads proc_stat(5). Stolen time counts as busy: no process of this host could run.
fn host_ticks(stat: &str) -> Option<HostTicks> {
    let cpu = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = cpu.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are counted in user already.
    let all: u64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let processes = ticks.iter().take(3).sum();
    Some(HostTicks { busy: all - idle, stolen: *ticks.get(7)?, processes, all })
}

fn host_memory_kb() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(
        number_after_key(&text, "MemTotal:")?
            .saturating_sub(number_after_key(&text, "MemAvailable:")?),
    )
}

/// Sums bytes and packets over all devices of proc_pid_net(5), `dev`.
fn device_totals(devices: &str) -> [u64; 4] {
    let mut sums = [0; 4];
    for line in devices.lines() {
        let Some((_, counters)) = line.split_once(':') else { continue };
        let counters: Vec<u64> =
            counters.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        for (sum, at) in sums.iter_mut().zip([0, 1, 8, 9]) {
            *sum += counters.get(at).unwrap_or(&0);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn counters_are_read_where_proc_has_them() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 2200 0 0 0 40 2 0 0 20 0 3 0";
        assert_eq!(cpu_ticks(stat), Some(42));
        let host = host_ticks("cpu  10 1 5 80 4 0 0 7 0 0\ncpu0 1");
        assert_eq!(host, Some(HostTicks { busy: 23, stolen: 7, processes: 16, all: 107 }));
        let devices =
            "Inter-| x\n face |bytes\n lo: 5 2 0 0 0 0 0 0 6 3 0\neth0: 10 1 0 0 0 0 0 0 1 1";
        assert_eq!(device_totals(devices), [15, 3, 7, 4]);
        assert_eq!(number_after_key("Name: x\nThreads:\t4\n", "Threads:"), Some(4));
    }

    #[test]
    fn a_container_is_told_from_others_by_a_group_that_we_are_not_in() {
        let ours = "2:cpu:/\n1:name=systemd:/user/7\n0::/user/7";
        assert_eq!(separate_cgroup("2:cpu:/\n1:name=systemd:/\n0::/user", ours), None);
        assert_eq!(separate_cgroup(ours, ours), None);
        let container = "2:cpu:/\n1:name=systemd:/user/7/box\n0::/";
        let group = separate_cgroup(container, ours).expect("one is its own");
        assert_eq!(group, "1:name=systemd:/user/7/box");
        assert!(is_in_cgroup(container, &group));
        assert!(is_in_cgroup("1:name=systemd:/user/7/box/init.scope", &group));
        assert!(!is_in_cgroup("1:name=systemd:/user/7/boxes", &group));
        assert!(!is_in_cgroup(ours, &group));
        assert!(is_in_cgroup("11:cpu:/a", "11:cpu:/") && !is_in_cgroup("11:cpu:/a", "1:cpu:/"));
    }

    #[test]
    fn our_own_process_can_be_watched_and_found_by_its_port() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let port = socket.local_addr().expect("it is bound").port();
        assert_eq!(listening_pid(port, false), Some(std::process::id()));
        let sample = ProcessWatch::new(Some(WatchTarget::Process(std::process::id()))).sample();
        assert!(sample.figure(ProcessFigure::MemoryKb) > Some(100.0));
        assert!(sample.figure(ProcessFigure::Threads) >= Some(1.0));
        assert!(sample.figure(ProcessFigure::Descriptors) > Some(2.0));
        assert!(
            sample.figure(ProcessFigure::Cpu).is_some()
                && sample.figure(ProcessFigure::HostCpu).is_some()
        );
        assert_eq!(ProcessSample::from_json(&sample.to_json()), sample);
    }

    #[test]
    fn what_others_used_is_what_the_broker_and_the_tester_did_not() {
        let look = |broker, own, processes, all| ProcSnapshot {
            ticks: Some(broker),
            own_ticks: Some(own),
            host: Some(HostTicks { busy: 0, stolen: 0, processes, all }),
            ..ProcSnapshot::default()
        };
        let before = look(100, 50, 1_000, 5_000);
        assert_eq!(others_share(&look(130, 60, 1_090, 5_200), &before), Some(0.25));
        // The kernel counts in ticks, so a negative difference counts as zero.
        assert_eq!(others_share(&look(130, 60, 1_030, 5_200), &before), Some(0.0));
        let unwatched = ProcSnapshot { ticks: None, ..look(0, 60, 1_090, 5_200) };
        assert_eq!(others_share(&unwatched, &before), None);
    }

    #[test]
    fn figures_stand_in_the_order_of_their_variants() {
        assert!(FIGURES.iter().enumerate().all(|(at, (figure, _))| *figure as usize == at));
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures() {
        let sample = ProcessWatch::new(Some(WatchTarget::Process(u32::MAX))).sample();
        assert!(
            sample.figure(ProcessFigure::Cpu).is_none()
                && sample.figure(ProcessFigure::MemoryKb).is_none()
        );
        assert!(sample.figure(ProcessFigure::HostCpu).is_some());
    }
}
