//! Tests of the real program from outside: options, signals, listeners, links and command-line
//! clients. One binary with a module for each area.

mod backends;
mod bad_lines;
mod bridge_clouds;
mod bridge_invalid;
mod bridge_peers;
mod bridge_queues;
mod bridge_returns;
mod bridge_rings;
mod bridge_rules;
mod bridge_servers;
mod bridge_state;
mod bridges;
mod broker;
mod caches;
mod carriers;
mod certs;
mod client_peers;
mod clients;
mod descriptors;
mod documents;
mod doors;
mod folder;
mod import;
mod import_access;
mod import_table;
#[path = "../../../auth/src/contract/installed.rs"]
mod installed;
mod limits;
mod line;
mod listener_access;
mod log_lines;
mod mixed;
mod namespaces;
mod options;
mod pauses;
mod permits;
#[path = "../../../auth/src/contract/ports.rs"]
mod ports;
#[cfg(feature = "psk")]
mod psk;
mod rule_links;
mod rules;
mod salvo;
mod security;
#[path = "../../../auth/src/contract/servers.rs"]
mod servers;
mod signals;
mod sinks;
mod storms;
#[allow(dead_code, reason = "the contract of backends uses the rest")]
#[path = "../../../auth/src/contract/web.rs"]
mod stub;
mod tap;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod times;
mod tls;
mod tls_forms;
mod topics;
mod trials;
mod web;
mod wire;
