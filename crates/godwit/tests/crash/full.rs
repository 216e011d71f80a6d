//! A store that has reached its quota: the broker refuses messages and sessions that need the
//! store, and no others, until there is room again.

use crate::broker::CrashBroker;
use crate::patient::PatientClient;
use mqtt::ReasonCode;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_full_store_refuses_says_so_once_serves_others_and_recovers_by_itself() {
    let options = ["store.bytes_max=16MiB", "store.memory_bytes=64KiB"];
    let mut broker = CrashBroker::new("full", options.map(String::from).to_vec());
    // Between shards even what nobody keeps might need the disk.
    broker.start(1);
    let address = broker.address;
    PatientClient::connect(address, "away", u32::MAX).subscribe("kept");
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    let payload = vec![7; 64 << 10];
    let (mut kept, mut refused) = (0, 0);
    while refused < 50 {
        match publisher.publish("kept", &payload) {
            ReasonCode::Success => kept += 1,
            reason => {
                assert_eq!(reason as u8, 0x97);
                refused += 1;
            }
        }
        assert!(kept < 256, "16 MiB hold no more than that");
    }
    assert!(kept > 64, "{kept} are too few");

    let mut other = PatientClient::connect(address, "other", 0);
    other.subscribe("other");
    let reason = other.publish_to_itself("other", b"here");
    assert_eq!(reason, ReasonCode::Success);

    let mut away = PatientClient::come_back(address, "away");
    for _ in 0..kept {
        assert_eq!(away.take(), payload);
    }
    let began = Instant::now();
    while publisher.publish("kept", &payload) != ReasonCode::Success {
        assert!(began.elapsed() < Duration::from_secs(20), "no room is left again");
        thread::sleep(Duration::from_millis(20));
    }
    broker.kill();
    let log = fs::read_to_string(broker.folder.join("log")).expect("it was written");
    let said: Vec<bool> = log
        .lines()
        .filter_map(|line| match line {
            _ if line.contains("the store is full") => Some(true),
            _ if line.contains("the store has room again") => Some(false),
            _ => None,
        })
        .collect();
    assert!(said.windows(2).all(|two| two[0] != two[1]), "{log}");
    // What was taken since may have filled it again.
    assert_eq!((said.first(), said.contains(&false)), (Some(&true), true), "{log}");
    assert!(said.len() < 10, "one line for each of {refused} refusals\n{log}");
}
