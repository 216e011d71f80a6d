//! Resources of this host for a test: descriptors and local ports. A test that does not fit is
//! refused before its start, with the command that raises the limit.

use crate::plan::{BrokerTarget, LoadPlan};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashSet;
use std::net::{IpAddr, TcpListener};
use std::os::fd::RawFd;

/// Raises the limit of descriptors (`RLIMIT_NOFILE`) for the plan, and checks that the local ports
/// suffice and that `LoadPlan::local_addresses` belong to this host.
pub(crate) fn reserve_resources(plan: &LoadPlan) -> Result<(), String> {
    check_local_addresses(&plan.local_addresses)?;
    let clients = local_socket_count(plan);
    let needed = clients + DESCRIPTORS_OWN + 4 * plan.threads as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        // Root may raise the hard limit too; for other users the soft limit is raised up to the
        // hard limit.
        let maximum = limit.maximum.map(|maximum| maximum.max(needed));
        let both = Rlimit { current: Some(needed), maximum };
        let _ = setrlimit(Resource::Nofile, both);
    }
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = limit.current.filter(|current| *current < needed) {
        return Err(format!(
            "{clients} connections need {needed} file descriptors and the limit is {current}: \
             run `ulimit -n {needed}` first (as root, or after raising nofile in \
             /etc/security/limits.conf), or use fewer clients or a smaller --scale"
        ));
    }
    let (first, last) = local_ports();
    check_ports(plan, first, last)?;
    grow_descriptor_table(needed);
    Ok(())
}

/// Grows the process's table of descriptors before the load begins. The kernel doubles a full table
/// and, if threads share the table, waits for all processors each time (`expand_fdtable` in
/// fs/file.c): 10 to 20 ms that would count in connect times.
fn grow_descriptor_table(descriptors: u64) {
    let last = RawFd::try_from(descriptors.saturating_sub(1)).unwrap_or(0);
    // Without the large descriptor the test still runs.
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last));
}

fn check_local_addresses(local: &[IpAddr]) -> Result<(), String> {
    let not_ours = |address: &&IpAddr| TcpListener::bind((**address, 0)).is_err();
    match local.iter().find(not_ours) {
        None => Ok(()),
        Some(address) => Err(format!(
            "ifaddr: {address} is not an address of this host; `ip address` lists those that are"
        )),
    }
}

/// Checks that local ports suffice. A connection is identified by both addresses and both ports, so
/// each target address may use all local ports (ip(7), ip_local_port_range). A socket bound to a
/// local address takes its port before the target is known, so there a port serves one connection.
fn check_ports(plan: &LoadPlan, first: u64, last: u64) -> Result<(), String> {
    let ports = last - first + 1;
    let (clients, ranges) = (local_socket_count(plan), port_range_count(plan));
    let room = ranges * ports;
    if clients <= room {
        return Ok(());
    }
    let addresses = clients.div_ceil(ports);
    let example: Vec<String> = (1..=addresses.min(5)).map(|n| format!("127.0.0.{n}")).collect();
    Err(format!(
        "{clients} connections need more local ports than there are: {room} for {ranges} \
         address(es). Connect from {addresses} local addresses with --ifaddr (on loopback: \
         --ifaddr {}), or widen the range: sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"",
        example.join(",")
    ))
}

/// Returns `PORTS_SEARCHED` if connecting includes a search for ports: Linux tries every second
/// port of the range first (`__inet_hash_connect` in net/ipv4/inet_hashtables.c), so beyond half of
/// the range each connection steps through that half.
pub(crate) fn ports_warning(plan: &LoadPlan) -> Option<&'static str> {
    let (first, last) = local_ports();
    is_above_half(plan, first, last).then_some(PORTS_SEARCHED)
}

fn is_above_half(plan: &LoadPlan, first: u64, last: u64) -> bool {
    local_socket_count(plan) > port_range_count(plan) * (last - first + 1) / 2
}

/// Returns the number of local sockets of this process. With QUIC the clients of a thread share a
/// socket per pair of local and target address.
fn local_socket_count(plan: &LoadPlan) -> u64 {
    if !plan.targets.is_empty() && plan.targets.iter().all(BrokerTarget::is_quic) {
        return (plan.targets.len() * plan.local_addresses.len().max(1) * plan.threads) as u64;
    }
    plan.clients().div_ceil(plan.share.count as u64)
}

/// Returns how often the range of local ports is available: once per address of
/// `LoadPlan::local_addresses`, or, without any, once per target address.
fn port_range_count(plan: &LoadPlan) -> u64 {
    if !plan.local_addresses.is_empty() {
        return plan.local_addresses.iter().collect::<HashSet<_>>().len() as u64;
    }
    plan.targets.iter().map(|target| target.address).collect::<HashSet<_>>().len() as u64
}

fn local_ports() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let mut numbers = text.iter().flat_map(|text| text.split_whitespace());
    let mut number = || numbers.next().and_then(|number| number.parse().ok());
    (number().unwrap_or(32_768), number().unwrap_or(60_999))
}

const PORTS_SEARCHED: &str = "More than half of the local ports are in use: connect times hold the \
    kernel's search for a free one. More local addresses (--ifaddr) avoid it.";

/// Descriptors of the tester itself: standard streams, pollers, timers, files under `/proc`.
const DESCRIPTORS_OWN: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanGroup;
    use crate::target::from_url;

    #[test]
    fn a_test_that_needs_more_ports_is_told_how_to_get_them() {
        let target = from_url("127.0.0.1").expect("an address");
        let groups = vec![PlanGroup { clients: 300, ..PlanGroup::default() }];
        let mut plan = LoadPlan { targets: vec![target], groups, ..LoadPlan::default() };
        let why = check_ports(&plan, 1_000, 1_099).expect_err("too many");
        assert!(why.contains("--ifaddr 127.0.0.1,127.0.0.2,127.0.0.3)"), "{why}");
        plan.local_addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
            .map(|address| address.parse().expect("an address"))
            .to_vec();
        assert_eq!(check_ports(&plan, 1_000, 1_099), Ok(()));
        assert!(is_above_half(&plan, 1_000, 1_099));
        // A bound port is in use, regardless of the target broker.
        plan.targets.push(from_url("127.0.0.2").expect("an address"));
        plan.local_addresses.pop();
        assert!(check_ports(&plan, 1_000, 1_099).is_err());
        plan.local_addresses.clear();
        assert_eq!(check_ports(&plan, 1_000, 1_149), Ok(()));
        plan.local_addresses = vec!["127.0.0.2".parse().expect("an address"); 2];
        assert!(check_ports(&plan, 1_000, 1_149).is_err(), "one address, however often");
        plan.local_addresses[1] = "127.0.0.3".parse().expect("an address");
        assert!(!is_above_half(&plan, 1_000, 1_299));
    }

    /// FDSize of proc_pid_status(5).
    #[test]
    fn the_table_of_descriptors_is_as_wide_as_the_test_before_it_begins() {
        let size = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").expect("it is ours");
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.and_then(|size| size.trim().parse().ok()).expect("it has a size")
        };
        let target = from_url("127.0.0.1").expect("an address");
        let groups = vec![PlanGroup { clients: 700, ..PlanGroup::default() }];
        let plan = LoadPlan { targets: vec![target], groups, ..LoadPlan::default() };
        assert_eq!(reserve_resources(&plan), Ok(()));
        assert!(size() > 700 + DESCRIPTORS_OWN, "{}", size());
    }

    #[test]
    fn an_address_of_another_host_is_named() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(check_local_addresses(&[address("127.0.0.1"), address("127.0.0.77")]), Ok(()));
        // For documentation only (RFC 5737), so no host has this address.
        let why = check_local_addresses(&[address("127.0.0.1"), address("192.0.2.1")])
            .expect_err("not ours");
        assert!(why.starts_with("ifaddr: 192.0.2.1 is not an address of this host"), "{why}");
    }
}
