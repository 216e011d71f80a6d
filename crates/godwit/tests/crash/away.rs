//! Messages that are acknowledged while the subscriber of a session is away, or leaves one message
//! unacknowledged: every message arrives, whatever the default limits, also after a kill.

use crate::broker::CrashBroker;
use crate::patient::PatientClient;

/// Number of missed messages: several times the part of a queue that is in memory.
const MISSED: u32 = 25_000;
/// Number of messages, more than there are packet ids.
const ROUND: u32 = 66_500;

#[test]
fn a_session_that_is_away_loses_nothing_that_was_acknowledged() {
    let mut broker = CrashBroker::new("away", Vec::new());
    broker.start(2);
    let address = broker.address;
    PatientClient::connect(address, "away", u32::MAX).subscribe("kept");
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    publisher.publish_many("kept", 0..MISSED / 2);
    broker.kill();
    broker.start(2);
    // The client has not come since the start, and then it is there and away again.
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    publisher.publish_many("kept", MISSED / 2..MISSED / 2 + 100);
    let mut away = PatientClient::come_back(address, "away");
    for number in 0..100 {
        assert_eq!(away.take(), u32::to_be_bytes(number));
    }
    drop(away);
    publisher.publish_many("kept", MISSED / 2 + 100..MISSED);
    let mut away = PatientClient::come_back(address, "away");
    // What was on its way when it went may come twice.
    let mut last = None;
    while last != Some(MISSED - 1) {
        let number = away.take().try_into().map(u32::from_be_bytes).expect("a number");
        let next = last.map_or(100, |last| last + 1);
        assert!(number <= next, "{number} came after {last:?}");
        last = Some(number).max(last);
    }
}

/// A long queue is read in pieces, and all messages of the first pieces have expired. The next
/// piece must be read without an acknowledgement of the client.
#[test]
fn a_long_queue_whose_front_is_too_old_goes_on_behind_it() {
    let mut broker = CrashBroker::new("stale", vec!["queue.age_s_max=5".to_string()]);
    broker.start(1);
    let address = broker.address;
    drop({
        let mut away = PatientClient::connect(address, "away", u32::MAX);
        away.subscribe("t");
        away
    });
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    publisher.publish_many("t", 0..5_000);
    std::thread::sleep(std::time::Duration::from_secs(6));
    publisher.publish_many("t", 5_000..5_010);
    let mut away = PatientClient::come_back(address, "away");
    for number in 5_000..5_010 {
        assert_eq!(away.take(), u32::to_be_bytes(number));
    }
}

#[test]
fn a_message_that_is_not_acknowledged_stops_no_other_and_comes_back_under_its_id() {
    let mut broker = CrashBroker::new("overdue", vec!["durability=lazy".to_string()]);
    broker.start(1);
    let address = broker.address;
    let mut subscriber = PatientClient::connect(address, "subscriber", u32::MAX);
    subscriber.subscribe("t");
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    publisher.publish_many("t", 0..1);
    let overdue = subscriber.keep_waiting();
    for first in (1..ROUND).step_by(50) {
        publisher.publish_many("t", first..first + 50);
        for number in first..first + 50 {
            assert_eq!(subscriber.take(), u32::to_be_bytes(number));
        }
    }
    // Long enough for what nobody waits for to be written.
    std::thread::sleep(std::time::Duration::from_secs(3));
    broker.kill();
    broker.start(1);
    let mut subscriber = PatientClient::come_back(address, "subscriber");
    assert_eq!(subscriber.keep_waiting(), overdue);
    let mut publisher = PatientClient::connect(address, "publisher", 0);
    publisher.publish_many("t", ROUND..ROUND + 10);
    for number in ROUND..ROUND + 10 {
        let (id, payload) = subscriber.keep_waiting();
        assert_eq!(payload, u32::to_be_bytes(number));
        assert_ne!(id, overdue.0);
    }
}
