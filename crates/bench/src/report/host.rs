//! The host and the network of a test, for the disclosure of its report.

use super::{number, text};
use crate::plan::LoadPlan;
use serde_json::{Value, json};
use std::fs;

pub(super) fn host_facts(plan: &LoadPlan) -> Value {
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let model = line("/proc/cpuinfo").and_then(|text| {
        let model = text.lines().find(|line| line.starts_with("model name"))?;
        Some(model.split_once(':')?.1.trim().to_string())
    });
    let system = line("/etc/os-release").and_then(|text| {
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(name.trim_matches('"').to_string())
    });
    let memory = line("/proc/meminfo").and_then(|text| {
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        total.split_whitespace().next()?.parse::<u64>().ok()
    });
    json!({
        "processor": model,
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_kb": memory,
        "system": system,
        "kernel": line("/proc/sys/kernel/osrelease"),
        "local_ports": line("/proc/sys/net/ipv4/ip_local_port_range"),
        "network": network(plan),
        "backlog_max": line("/proc/sys/net/core/somaxconn"),
    })
}

pub(super) fn command_of(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    Some(text.trim().to_string())
}

/// Describes the network to the broker as seen from this host: loopback, or the devices with their
/// speed.
fn network(plan: &LoadPlan) -> String {
    if plan.targets.iter().all(|target| target.address.ip().is_loopback()) {
        return "loopback".into();
    }
    let devices = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let speeds = devices.filter_map(|device| {
        let speed = fs::read_to_string(device.path().join("speed")).ok()?;
        Some(format!("{} {} Mbit/s", device.file_name().to_string_lossy(), speed.trim()))
    });
    speeds.collect::<Vec<_>>().join(", ")
}

/// Returns the lines `Name: value` about the host, for all forms of a report.
pub(crate) fn host_lines(report: &Value) -> Vec<String> {
    let processors = number(report, "/host/processors");
    let lines = [
        ("Tool", format!("{} {}", text(report, "/tool"), text(report, "/version"))),
        ("Processor", format!("{processors:.0} x {}", text(report, "/host/processor"))),
        ("Memory", format!("{:.1} GiB", number(report, "/host/memory_kb") / 1_048_576.0)),
        ("System", text(report, "/host/system").into()),
        ("Kernel", text(report, "/host/kernel").into()),
        ("Network", text(report, "/host/network").into()),
        ("Local ports", text(report, "/host/local_ports").replace('\t', " to ")),
        ("Listen backlog at most", text(report, "/host/backlog_max").into()),
    ];
    let known = lines.iter().filter(|(_, value)| !value.trim().is_empty());
    known.map(|(name, value)| format!("{name}: {value}")).collect()
}
