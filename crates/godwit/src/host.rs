//! Facts about the host: memory, cores, and the service manager's socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Returns the value of `memory.bytes_max = "auto"` in bytes: half of the host's memory, or of the
/// control group's limit if that is smaller.
pub(crate) fn memory_bytes_default() -> u64 {
    let host = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = group_limits(&groups)
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    let least = limits.chain(host).min();
    least.map_or(broker::limits::MEMORY_BYTES_MAX_DEFAULT, |bytes| bytes / 2)
}

pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Notifies systemd, or another listener at `NOTIFY_SOCKET`, of a state: `READY=1`, `STOPPING=1`. A
/// failure is only logged.
pub(crate) fn notify_init_system(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!(target: "godwit::serve", %error, "the service manager was not reached");
    }
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the files with memory limits of the process's control group and of all groups above, in
/// both versions of control groups.
fn group_limits(groups: &str) -> impl Iterator<Item = String> + '_ {
    groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next(), fields.next());
        let (root, file) = match controllers {
            Some("") => ("/sys/fs/cgroup", "memory.max"),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let path = path.unwrap_or("/");
        std::path::Path::new(path)
            .ancestors()
            .map(|group| {
                format!("{root}{}/{file}", group.display().to_string().trim_end_matches('/'))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_host_and_the_control_group() {
        assert_eq!(mem_total("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(mem_total("MemTotal: much"), None);
        let files: Vec<String> = group_limits("12:cpu:/x\n4:memory:/a/b\n0::/c\n").collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/c/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert!(memory_bytes_default() > 0);
    }
}
