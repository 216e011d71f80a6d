//! What waits for a bridge, and how long.

use crate::bridges::{edge, servers, wait_for_value};
use crate::clients;
use std::net::SocketAddr;

const OUT: &str = "[[bridge.out]]\nfilter = \"up/#\"\n";

fn nowhere() -> SocketAddr {
    let port = clients::unused_port().parse().expect("a port");
    ([127, 0, 0, 1], port).into()
}

#[test]
fn what_has_waited_too_long_goes_though_nobody_publishes() {
    let bridge = servers(nowhere()) + "queue.age_s_max = 2\n" + OUT;
    let (mut near, _) = edge("bridge-age", &bridge, &[]);
    near.program.wait_for("not connected");
    clients::publish(&near.port(), &["-t", "up/x", "-m", "%", "-q", "1", "--repeat", "5"]);
    wait_for_value(&near, "queue/messages", |value| value == "5");
    wait_for_value(&near, "dropped/expired", |value| value == "5");
    assert_eq!(wait_for_value(&near, "queue/oldest_ms", |value| !value.is_empty()), "0");
}
