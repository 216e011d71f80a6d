//! The program as users run it: with a broker of known faults, with real brokers, and its command
//! line.

mod agents;
mod bad_broker;
mod brokers;
mod command_line;
mod faults;
mod gateway;
#[allow(dead_code, reason = "tests of programs use the rest")]
#[path = "../../../auth/src/contract/installed.rs"]
mod installed;
mod pages;
mod program;
mod quic;
mod signals;
