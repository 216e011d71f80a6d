//! What this host gives the test: descriptors and local ports. A test that cannot fit is refused
//! before it begins, with the command that makes room.

use crate::plan::Plan;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of descriptors to what the plan needs, and checks that ports suffice.
pub(crate) fn make_room(plan: &Plan) -> Result<(), String> {
    let clients = clients_here(plan);
    let needed = clients + DESCRIPTORS_OWN + 4 * plan.threads as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        // Root may raise the hard limit too; for others the soft one rises as far as that.
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
    enough_ports(plan, local_ports())
}

/// A connection is told apart by both addresses and both ports, so each pair of addresses has all
/// local ports for itself (ip(7), ip_local_port_range).
fn enough_ports(plan: &Plan, (first, last): (u64, u64)) -> Result<(), String> {
    let ports = last - first + 1;
    let (clients, pairs) = (clients_here(plan), pairs(plan));
    let room = pairs * ports;
    if clients <= room {
        return Ok(());
    }
    let targets = pairs / plan.local.len().max(1) as u64;
    let addresses = clients.div_ceil(ports * targets);
    let example: Vec<String> = (1..=addresses.min(5)).map(|n| format!("127.0.0.{n}")).collect();
    Err(format!(
        "{clients} connections need more local ports than there are: {room} from {pairs} pair(s) \
         of addresses. Connect from {addresses} local addresses with --ifaddr (on loopback: \
         --ifaddr {}), or widen the range: sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"",
        example.join(",")
    ))
}

/// Whether connecting is a search for ports: Linux tries every other port of the range before the
/// rest (`__inet_hash_connect` in net/ipv4/inet_hashtables.c), so from half of them on each
/// connection walks past all of that half.
pub(crate) fn searches_for_ports(plan: &Plan) -> bool {
    is_above_half(plan, local_ports())
}

fn is_above_half(plan: &Plan, (first, last): (u64, u64)) -> bool {
    clients_here(plan) > pairs(plan) * (last - first + 1) / 2
}

fn clients_here(plan: &Plan) -> u64 {
    plan.clients().div_ceil(plan.share.of as u64)
}

/// Of a local address and one of a broker.
fn pairs(plan: &Plan) -> u64 {
    let mut targets: Vec<_> = plan.targets.iter().map(|target| target.address).collect();
    targets.sort();
    targets.dedup();
    plan.local.len().max(1) as u64 * targets.len() as u64
}

fn local_ports() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let mut numbers = text.iter().flat_map(|text| text.split_whitespace());
    let mut number = || numbers.next().and_then(|number| number.parse().ok());
    (number().unwrap_or(32_768), number().unwrap_or(60_999))
}

/// Standard streams, pollers, timers, files under /proc.
const DESCRIPTORS_OWN: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Group;
    use crate::target::from_url;

    #[test]
    fn a_test_that_needs_more_ports_is_told_how_to_get_them() {
        let target = from_url("127.0.0.1").expect("an address");
        let groups = vec![Group { clients: 300, ..Group::default() }];
        let mut plan = Plan { targets: vec![target], groups, ..Plan::default() };
        let why = enough_ports(&plan, (1_000, 1_099)).expect_err("too many");
        assert!(why.contains("--ifaddr 127.0.0.1,127.0.0.2,127.0.0.3)"), "{why}");
        plan.local = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
            .map(|address| address.parse().expect("an address"))
            .to_vec();
        assert_eq!(enough_ports(&plan, (1_000, 1_099)), Ok(()));
        assert!(is_above_half(&plan, (1_000, 1_099)));
        assert!(!is_above_half(&plan, (1_000, 1_199)));
    }
}
