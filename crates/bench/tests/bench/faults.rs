//! The report contains every fault of [`BadBroker`](crate::bad_broker::BadBroker), with the right
//! count.

use crate::bad_broker::{BadBroker, InjectedFault};
use crate::program::{BenchRun, bench, failure, number, report, sampler};
use serde_json::Value;

/// Returns a scenario of 4 publishers with their own topics, 5 subscribers of all topics, and 400
/// messages: 2,000 deliveries.
fn scenario(qos: u8) -> String {
    format!(
        "connects_per_s = 1000\nmeasure_s = 20\ndrain_s = 1\n\
         [[group]]\nname = \"sub\"\nclients = 5\nsubscribe = [\"t/#\"]\nqos = {qos}\n\
         [[group]]\nname = \"pub\"\nclients = 4\npublish = \"t/%i\"\nqos = {qos}\n\
         per_s = 100\nmessages = 400\n"
    )
}

fn run(fault: InjectedFault, qos: u8) -> (BadBroker, Value, BenchRun) {
    let broker = BadBroker::start(fault);
    let (report, run) = report(&scenario(qos), broker.address, &[]);
    (broker, report, run)
}

/// Returns the numbers of sent, lost, duplicate and reordered messages in a report.
fn messages_of(report: &Value) -> [f64; 4] {
    ["sent", "lost", "duplicates", "reordered"]
        .map(|name| number(report, &format!("/messages/{name}")))
}

#[test]
fn a_good_broker_passes_and_everything_is_counted_once() {
    for qos in [0, 1] {
        let (_, report, run) = run(InjectedFault::None, qos);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(messages_of(&report), [400.0, 0.0, 0.0, 0.0]);
        assert_eq!(number(&report, "/messages/expected"), 2_000.0);
        for (counter, count) in [("pub", 400.0), ("pub_succ", 400.0), ("recv", 2_000.0)] {
            assert_eq!(number(&report, &format!("/counts/{counter}")), count, "{counter}");
        }
        assert_eq!(sampler(&report, "Pub", "hits"), 400.0);
        assert_eq!(sampler(&report, "Sub", "hits"), 2_000.0);
        assert_eq!(sampler(&report, "Connect", "hits"), 9.0);
    }
}

#[test]
fn loss_is_counted_by_publisher_and_topic() {
    let (broker, report, run) = run(InjectedFault::DropEvery(10), 0);
    assert_eq!(broker.injected(), 200);
    assert_eq!(messages_of(&report), [400.0, 200.0, 0.0, 0.0]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("200 deliveries were lost"), "{}", run.stderr);
    let streams = report["streams"].as_array().expect("a list");
    assert!(streams.iter().all(|stream| stream["lost"] == 50 && stream["expected"] == 500));
}

/// One read contains many messages of a topic, which the load tester does not decode one by one.
#[test]
fn faults_among_equal_messages_are_counted() {
    for (fault, messages) in [
        (InjectedFault::DropEvery(1_000), [4_000.0, 20.0, 0.0, 0.0]),
        (InjectedFault::DuplicateEvery(20), [4_000.0, 0.0, 1_000.0, 0.0]),
        (InjectedFault::ReorderEvery(30), [4_000.0, 0.0, 0.0, 665.0]),
    ] {
        let broker = BadBroker::start(fault);
        let scenario = "connects_per_s = 1000\nmeasure_s = 20\ndrain_s = 1\nwindow = 20000\n\
             [[group]]\nname = \"sub\"\nclients = 5\nsubscribe = [\"t\"]\n\
             [[group]]\nname = \"pub\"\nclients = 1\npublish = \"t\"\nas_taken = true\n\
             messages = 4000\n";
        let (report, run) = report(scenario, broker.address, &[]);
        assert_eq!(messages_of(&report), messages, "{fault:?}: {}", run.stderr);
        assert_eq!(broker.injected() as f64, messages[1..].iter().sum::<f64>());
    }
}

#[test]
fn the_last_messages_are_missed_too() {
    let (broker, report, _) = run(InjectedFault::DropEvery(100), 0);
    assert_eq!((broker.injected(), messages_of(&report)[1]), (20, 20.0));
}

#[test]
fn duplicates_are_counted() {
    let (broker, report, run) = run(InjectedFault::DuplicateEvery(20), 1);
    assert_eq!(broker.injected(), 100);
    assert_eq!(messages_of(&report), [400.0, 0.0, 100.0, 0.0]);
    assert_eq!(number(&report, "/counts/recv"), 2_100.0);
    assert_eq!(run.code, Some(1));
}

#[test]
fn reordering_is_counted_and_is_not_loss() {
    let (broker, report, run) = run(InjectedFault::ReorderEvery(30), 0);
    assert_eq!(broker.injected(), 60);
    assert_eq!(messages_of(&report), [400.0, 0.0, 0.0, 60.0]);
    assert_eq!(run.code, Some(1));
}

/// The broker takes 5 ms per message, and a message is due every 2.5 ms. Latency is measured from
/// the due time: measured from the actual sending of a blocked publisher, every message would take
/// 5 ms.
#[test]
fn a_slow_broker_does_not_hide_its_queue() {
    let (_, report, run) = run(InjectedFault::DelayMs(5), 1);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let (mean, max) = (sampler(&report, "Sub", "mean"), sampler(&report, "Sub", "max"));
    assert!(mean > 300.0 && max > 700.0, "mean {mean} ms, max {max} ms");
}

/// Each of four publishers waits for its PUBACK, so at most four messages are in flight.
#[test]
fn latency_from_the_sending_leaves_out_what_waited_to_be_sent() {
    let broker = BadBroker::start(InjectedFault::DelayMs(5));
    let scenario = format!("latency_from = \"sent\"\n{}", scenario(1)) + "inflight = 1\n";
    let (report, run) = report(&scenario, broker.address, &[]);
    let (sent, late) = (sampler(&report, "Sub", "p50"), sampler(&report, "Lateness", "p50"));
    assert!(sent < 100.0 && late > 200.0, "{sent} ms, {late} ms later than due: {}", run.stderr);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("counts from the sending"), "{warnings}");
}

#[test]
fn a_stall_is_in_the_latency_of_all_that_waited() {
    let broker = BadBroker::start(InjectedFault::StallMs(30, 100));
    let scenario = scenario(0).replace("drain_s = 1", "drain_s = 10");
    let (report, run) = report(&scenario, broker.address, &[]);
    // Once a subscriber and topic: the broker stands still for 2 s in all.
    assert_eq!(broker.injected(), 20);
    // The broker's lock decides whose messages go on first after a pause. In the best order three
    // of ten wait for nothing, two for less than half a second, and the others for 0.3 s or more.
    let p50 = sampler(&report, "Sub", "p50");
    assert!(p50 > 250.0, "{p50} ms");
    assert_eq!(messages_of(&report)[1], 0.0, "{}", run.stderr);
}

/// The broker stalls for 3.2 s, beginning after half a second, so two whole seconds have no
/// delivery.
#[test]
fn a_silence_is_told_in_seconds() {
    let broker = BadBroker::start(InjectedFault::StallMs(50, 3_200));
    let scenario = "connects_per_s = 1000\nmeasure_s = 5\ndrain_s = 5\n\
         [[group]]\nname = \"sub\"\nclients = 1\nsubscribe = [\"t\"]\n\
         [[group]]\nname = \"pub\"\nclients = 1\npublish = \"t\"\nper_s = 100\n";
    let (report, run) = report(scenario, broker.address, &[]);
    assert_eq!(broker.injected(), 1);
    assert_eq!(number(&report, "/silent_s"), 2.0, "{}", run.stderr);
    let says = "FAULT: 2 seconds passed without any delivery";
    assert!(run.stderr.contains(says), "{}", run.stderr);
    assert_eq!(messages_of(&report), [500.0, 0.0, 0.0, 0.0]);
    assert!(sampler(&report, "Sub", "max") > 3_000.0, "{}", run.stderr);
    assert_eq!(run.code, Some(1));
}

#[test]
fn a_death_is_told_with_all_that_it_cost() {
    let (broker, report, run) = run(InjectedFault::DieAfter(1_000), 0);
    assert_eq!(broker.deliveries(), 1_000);
    assert_eq!(number(&report, "/counts/connection_lost"), 9.0);
    let [sent, lost, ..] = messages_of(&report);
    let missed = number(&report, "/counts/pub_missed");
    assert_eq!(lost, sent * 5.0 - 1_000.0);
    assert!(missed > 0.0, "the schedule went on without connections");
    assert_eq!(run.code, Some(1));
}

#[test]
fn refused_connections_are_told_with_their_reason() {
    let (broker, report, run) = run(InjectedFault::RefuseEvery(3), 0);
    assert_eq!(broker.injected(), 3);
    assert_eq!(failure(&report, "CONNACK 0x87 Not authorized"), 3);
    assert_eq!(number(&report, "/counts/connect_fail"), 3.0);
    assert_eq!(number(&report, "/clients/live_at_start"), 6.0);
    assert!(run.stderr.contains("3 clients were never connected"), "{}", run.stderr);
}

#[test]
fn refused_subscriptions_are_told() {
    let (broker, report, run) = run(InjectedFault::RefuseSubscriptions, 0);
    assert_eq!(broker.injected(), 5);
    assert_eq!(number(&report, "/counts/sub_fail"), 5.0);
    assert_eq!(failure(&report, "SUBACK 0x80"), 5);
    assert_eq!(run.code, Some(1));
}

#[test]
fn missing_acknowledgements_are_counted() {
    let (broker, report, run) = run(InjectedFault::ForgetAckEvery(40), 1);
    assert_eq!(broker.injected(), 10);
    assert_eq!(number(&report, "/messages/unanswered"), 10.0);
    assert_eq!(number(&report, "/counts/pub_succ"), 390.0);
    assert_eq!(run.code, Some(1));
}

#[test]
fn a_cut_connection_comes_back_and_its_delay_is_measured() {
    let broker = BadBroker::start(InjectedFault::CutAt(20));
    let scenario = scenario(0).replace("clients = 5", "clients = 5\nreconnects = 3");
    let (report, run) = report(&scenario, broker.address, &[]);
    assert_eq!(broker.injected(), 1);
    assert_eq!(number(&report, "/counts/connection_lost"), 1.0);
    assert_eq!(number(&report, "/counts/reconnect_succ"), 1.0);
    assert_eq!(sampler(&report, "Reconnect", "hits"), 1.0);
    assert_eq!(number(&report, "/clients/live_at_start"), 9.0);
    assert_eq!(run.code, Some(1));
}

#[test]
fn bytes_that_are_no_packet_end_the_connection_with_a_name() {
    let (broker, report, _) = run(InjectedFault::GarbageAt(20), 0);
    assert_eq!(broker.injected(), 1);
    assert_eq!(failure(&report, "the broker broke the protocol"), 1);
}

/// Two members of a shared subscription take turns, and one is late each time: the order among
/// members is not a fault.
#[test]
fn order_among_members_of_a_shared_subscription_is_no_fault_and_loss_is() {
    let scenario = "connects_per_s = 1000\nmeasure_s = 20\ndrain_s = 1\n\
         [[group]]\nname = \"sub\"\nclients = 2\nsubscribe = [\"$share/g/t/#\"]\n\
         [[group]]\nname = \"pub\"\nclients = 4\npublish = \"t/%i\"\nper_s = 100\n\
         messages = 400\n";
    for (fault, messages) in [
        (InjectedFault::ReorderEvery(7), [400.0, 0.0, 0.0, 0.0]),
        (InjectedFault::DropEvery(10), [400.0, 40.0, 0.0, 0.0]),
    ] {
        let broker = BadBroker::start(fault);
        let (report, run) = report(scenario, broker.address, &[]);
        assert!(broker.injected() > 0);
        assert_eq!(messages_of(&report), messages, "{fault:?}: {}", run.stderr);
        assert_eq!(run.code, Some(i32::from(messages[1] > 0.0)), "{}", run.stderr);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("order is not judged"), "{warnings}");
    }
}

fn published(fault: InjectedFault, publish: &str) -> (BadBroker, Value, BenchRun) {
    let scenario = format!(
        "connects_per_s = 1000\nmeasure_s = 1\ndrain_s = 1\n\
         [[group]]\nname = \"sub\"\nclients = 9\nsubscribe = [\"t/%i\"]\nqos = 1\n\
         [[group]]\nname = \"pub\"\nclients = 1\nqos = 1\nper_s = 90\n{publish}\n"
    );
    let broker = BadBroker::start(fault);
    let (report, run) = report(&scenario, broker.address, &[]);
    (broker, report, run)
}

/// The arrival of a message without a stamp cannot be checked, which is not a fault of the broker.
#[test]
fn what_has_no_stamp_is_not_lost() {
    for publish in ["publish = \"t/5\"\npayload = \"hello\"", "publish = \"t/5\"\nsize = 15"] {
        let (_, report, run) = published(InjectedFault::None, publish);
        assert_eq!(messages_of(&report)[1..], [0.0; 3], "{}", run.stderr);
        assert_eq!(number(&report, "/counts/recv"), number(&report, "/counts/pub"));
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("Payloads without our 16 byte stamp"), "{warnings}");
    }
}

/// A publisher with a random topic sends each message to another subscriber.
#[test]
fn what_cannot_be_known_of_topics_that_change_is_said() {
    let publish = "publish = \"t/%rand_8\"\nsize = 16";
    let (_, report, run) = published(InjectedFault::None, publish);
    assert_eq!(messages_of(&report)[1..], [0.0; 3], "{}", run.stderr);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("Topics that change from message to message"), "{warnings}");
    assert!(!warnings.contains("overlap"), "{warnings}");
}

#[test]
fn a_ramp_ends_where_something_is_lost() {
    let broker = BadBroker::start(InjectedFault::DropEvery(30));
    let target = broker.address.to_string();
    let line = ["ramp", "p2p-1k-1k-1k-1k", "--scale", "0.01", "--from", "10", "--to", "80"];
    let more = ["--factor", "2", "--duration", "1s", "--warm", "0s", "--cpu", "100"];
    let from = ["--ifaddr", "127.0.0.6", "--target", &target];
    let run = bench(&[&line[..], &more[..], &from].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(broker.peers(), ["127.0.0.6"]);
    // Ten messages a topic, then twenty, then forty: one of those is dropped.
    let last = run.stdout.lines().find(|row| row.starts_with("| 40.000 | "));
    assert!(last.is_some_and(|row| row.contains("| 10 deliveries lost")), "{}", run.stdout);
    assert!(!run.stdout.contains("| 80.000 | "), "{}", run.stdout);
    let recommended = run.stdout.lines().find(|line| line.starts_with("Recommended load: "));
    assert!(recommended.is_some_and(|line| !line.contains("40.000")), "{}", run.stdout);
    let run = bench(&["ramp", "conn-tcp-10k-100", "--target", &target]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("publishes at no rate"), "{}", run.stderr);
}

/// The broker stops reading for a while, so messages are sent later than intended.
#[test]
fn what_the_tester_could_not_send_in_time_is_a_warning() {
    let (_, report, run) = run(InjectedFault::DelayMs(20), 1);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("later than intended"), "{warnings}");
    let lateness = number(&report, "/own/lateness_ms/p99");
    assert!(lateness > 10.0, "{lateness}: {}", run.stderr);
    let busiest = number(&report, "/own/thread_cpu_max");
    assert!((0.0..=1.0).contains(&busiest), "{busiest}");
}
