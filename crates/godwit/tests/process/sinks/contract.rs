//! The contract of every sink: correct rows in order; a destination that starts late, restarts, is
//! slow, or is down until the queue is full; kills of the broker; unusual topics and payloads;
//! changed options.

use super::relay::TcpRelay;
use crate::bridges::wait_for_round;
use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit, run, scratch};
use crate::clients;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Panic text for operations on the files, servers and locks of the test.
pub(super) const OURS: &str = "it is the test's own";

/// Topic and payload of a row.
pub(super) type SinkRow = (String, String);

/// A destination of a sink, started and stopped by the test.
pub(super) trait SinkPlace {
    const NAME: &'static str;
    /// Returns the options of `[[sink]]` that select the destination; name and filters are not
    /// included.
    fn options(&self) -> String;
    /// Returns the rows in the order of their arrival.
    fn rows(&self) -> Vec<SinkRow>;
    fn stop(&mut self);
    fn start(&mut self);
    fn clear(&mut self);
    /// Whether the destination stores a text with NUL. Otherwise the destination refuses such a
    /// text.
    fn takes_nul(&self) -> bool {
        true
    }
    /// Returns the TCP relay to the server, if any. A destination without a relay is made slow by
    /// stopping and starting it in turn.
    fn relay(&self) -> Option<&TcpRelay> {
        None
    }
    /// Returns the delay of each response of a slow server, in milliseconds.
    fn late_ms(&self) -> u64 {
        150
    }
}

pub(super) fn stands(place: &mut impl SinkPlace) {
    rows_are_right_and_in_order(place);
    what_is_written_stays_a_value(place);
    who_is_not_there_yet_gets_it_later(place);
    who_goes_and_comes_back_loses_nothing(place);
    who_is_slow_gets_all_of_it_in_larger_batches(place);
    who_is_away_when_the_queue_is_full_gets_what_the_options_keep(place);
    let text = sink(place, "\"a\"", "");
    a_broker_that_is_killed_loses_nothing(place, &text);
    rows_of_rules_come_like_messages(place);
    options_change_live(place);
}

pub(super) struct SinkRig {
    pub(super) broker: TestBroker,
    pub(super) file: PathBuf,
}

impl SinkRig {
    pub(super) fn start(name: &str, text: &str, more: &[&str]) -> SinkRig {
        let file = scratch(name).join("godwit.toml");
        std::fs::write(&file, text).expect("the file can be written");
        SinkRig::again(file, more)
    }

    fn again(file: PathBuf, more: &[&str]) -> SinkRig {
        let named = file.display().to_string();
        let fixed = ["--config", &named, "--set", "sys.interval_s=1"];
        SinkRig { broker: TestBroker::start(&[&fixed, more].concat()), file }
    }

    pub(super) fn reload(&mut self, text: &str) {
        std::fs::write(&self.file, text).expect("the file can be written");
        self.broker.program.signal("HUP");
        self.broker.program.wait_for("options read again");
    }

    pub(super) fn publish(&self, arguments: &[&str]) {
        clients::publish(&self.broker.port(), &[&["-V", "5"], arguments].concat());
    }

    /// Publishes each line of a file as a message.
    pub(super) fn publish_lines(&self, arguments: &[&str], file: &Path) {
        let port = self.broker.port();
        let mut publisher =
            TestProgram::start(godwit(&[&["pub", "-p", &port, "-l"], arguments].concat()));
        publisher.write(&std::fs::read_to_string(file).expect(OURS));
        assert_eq!(publisher.finish().0, Some(0));
    }

    /// Publishes the numbers as payloads, and waits for their acknowledgements. Returns the time
    /// spent.
    pub(super) fn count(&self, topic: &str, qos: &str, numbers: Range<u32>) -> Duration {
        count(&self.broker.port(), topic, qos, numbers)
    }

    /// Waits until the sink has neither queued messages nor messages in flight.
    pub(super) fn wait_until_done(&self) {
        wait_for_round(&self.broker);
        self.wait_for_value("queue/messages", |value| value == "0");
        self.wait_for_value("queue/in_flight", |value| value == "0");
    }

    pub(super) fn wait_for_value(&self, value: &str, mut is_right: impl FnMut(&str) -> bool) {
        let (port, topic) = (self.broker.port(), format!("$SYS/broker/sink/s/{value}"));
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, found, _) = run(&["sub", "-p", &port, "-t", &topic, "-C", "1", "-W", "2"]);
            if is_right(found.trim()) {
                return;
            }
            assert!(Instant::now() < until, "{value} stays {found:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a name that is unique for the destination, since tests of several destinations run at
/// the same time.
fn own<P: SinkPlace>(_: &P, name: &str) -> String {
    format!("{name}-{}", P::NAME)
}

fn count(port: &str, topic: &str, qos: &str, numbers: Range<u32>) -> Duration {
    count_at(port, topic, qos, numbers, Duration::ZERO)
}

/// Publishes numbers with a pause of `pace` after each, and waits for their acknowledgements.
/// Returns the time spent.
fn count_at(port: &str, topic: &str, qos: &str, numbers: Range<u32>, pace: Duration) -> Duration {
    let begun = Instant::now();
    let arguments = ["pub", "-p", port, "-V", "5", "-t", topic, "-q", qos, "-l"];
    let mut publisher = TestProgram::start(godwit(&arguments));
    for number in numbers {
        publisher.write(&format!("{number}\n"));
        thread::sleep(pace);
    }
    assert_eq!(publisher.finish().0, Some(0));
    begun.elapsed()
}

pub(super) fn sink(place: &impl SinkPlace, filters: &str, more: &str) -> String {
    let pace = "retry_min_ms = 50\nretry_max_s = 1\nbatch.wait_ms = 20\n";
    let options = place.options();
    format!("[[sink]]\nname = \"s\"\nfilters = [{filters}]\n{pace}{more}{options}")
}

/// Waits until `is_right` accepts the rows of the destination.
pub(super) fn wait_for(place: &impl SinkPlace, what: &str, is_right: impl Fn(&[SinkRow]) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let rows = place.rows();
        if is_right(&rows) {
            return;
        }
        assert!(Instant::now() < until, "{what}: {} rows, {:?}", rows.len(), rows.last());
        thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn numbers(topic: &str, numbers: Range<u32>) -> Vec<SinkRow> {
    numbers.map(|number| (topic.to_string(), number.to_string())).collect()
}

/// Waits until the destination has each of the wanted rows at least once; their first occurrences
/// must be in order.
fn wait_for_all(place: &impl SinkPlace, what: &str, wanted: &[SinkRow]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let (rows, mut seen) = (place.rows(), HashSet::new());
        let firsts: Vec<&SinkRow> = rows.iter().filter(|row| seen.insert(*row)).collect();
        let firsts: Vec<&SinkRow> = firsts.into_iter().filter(|row| wanted.contains(row)).collect();
        if firsts.iter().copied().eq(wanted) {
            return;
        }
        let missing: Vec<&SinkRow> = wanted.iter().filter(|row| !rows.contains(row)).collect();
        let late = firsts.iter().zip(wanted).find(|(found, wanted)| **found != *wanted);
        assert!(Instant::now() < until, "{what}: missing {missing:?}, out of order {late:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn rows_are_right_and_in_order(place: &mut impl SinkPlace) {
    place.clear();
    let edge = SinkRig::start(&own(place, "sink-order"), &sink(place, "\"a/+\", \"b\"", ""), &[]);
    edge.wait_for_value("state", |value| value == "1");
    let mut wanted = Vec::new();
    for (qos, from) in [("0", 0), ("1", 1000), ("2", 2000)] {
        edge.count("a/x", qos, from..from + 700);
        wanted.extend(numbers("a/x", from..from + 700));
    }
    edge.publish(&["-t", "elsewhere", "-m", "not ours"]);
    edge.publish(&["-t", "b", "-m", "last", "-q", "1"]);
    wanted.push(("b".into(), "last".into()));
    wait_for(place, "in order", |rows| rows == wanted);
    edge.wait_for_value("out/messages", |value| value == "2101");
    edge.wait_until_done();
}

fn what_is_written_stays_a_value(place: &mut impl SinkPlace) {
    place.clear();
    let topics = [
        "a/'; DROP TABLE m; --",
        "a/\"},{\"x\":\"",
        "a/${payload}",
        "a/../../etc",
        "a/%s%n\\u0000\\",
        "a/$1 ?",
    ];
    let mut edge = SinkRig::start(
        &own(place, "sink-hostile"),
        &sink(place, "\"a/#\"", "refused_tries = 1\n"),
        &[],
    );
    edge.wait_for_value("state", |value| value == "1");
    let mut wanted: Vec<SinkRow> = Vec::new();
    for topic in topics {
        let payload = format!("'{topic}\", \r\n\t\\ `$(x)` \u{1f426}\n");
        let file = edge.file.with_file_name("payload");
        std::fs::write(&file, &payload).expect(OURS);
        edge.publish(&["-t", topic, "-q", "1", "-f", &file.display().to_string()]);
        wanted.push((topic.into(), payload));
    }
    let file = edge.file.with_file_name("payload");
    std::fs::write(&file, "nul\0nul").expect(OURS);
    edge.publish(&["-t", "a/nul", "-q", "1", "-f", &file.display().to_string()]);
    if place.takes_nul() {
        wanted.push(("a/nul".into(), "nul\0nul".into()));
    }
    let huge = "\"huge\\\n".repeat(200_000);
    std::fs::write(&file, &huge).expect(OURS);
    edge.publish(&["-t", "a/huge", "-q", "1", "-f", &file.display().to_string()]);
    wanted.push(("a/huge".into(), huge));
    wait_for(place, "hostile", |rows| rows == wanted);
    if !place.takes_nul() {
        let line = edge.broker.program.wait_for("not passed on");
        assert!(line.contains("reason=refused") && line.contains("a/nul"), "{line}");
        edge.wait_for_value("dropped/refused", |value| value == "1");
    }
}

const PUBLISHED: u32 = 600;
const PACE: Duration = Duration::from_millis(3);

fn who_is_slow_gets_all_of_it_in_larger_batches(place: &mut impl SinkPlace) {
    place.clear();
    let (relay, late_ms) = (place.relay(), place.late_ms());
    let text = sink(place, "\"a\"", "");
    let text = relay.map_or(text.clone(), |relay| relay.instead(&text));
    let edge = SinkRig::start(&own(place, "sink-slow"), &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let has_relay = relay.is_some_and(|relay| {
        relay.late(late_ms);
        true
    });
    let port = edge.broker.port();
    let publishing = thread::spawn(move || count_at(&port, "a", "1", 0..PUBLISHED, PACE));
    while !has_relay && !publishing.is_finished() {
        place.stop();
        thread::sleep(Duration::from_millis(120));
        place.start();
        thread::sleep(Duration::from_millis(60));
    }
    let took = publishing.join().expect("it publishes");
    assert!(took < PACE * PUBLISHED * 3, "the publisher lost its pace: {took:?}");
    wait_for_all(place, "slow", &numbers("a", 0..PUBLISHED));
    edge.wait_for_value("out/messages", |value| value == PUBLISHED.to_string());
    edge.wait_for_value("dropped/queue_full", |value| value == "0");
    if let Some(relay) = place.relay() {
        // Batches as small as those of a quick one would take a minute.
        let is_few = |value: &str| value.parse::<u32>().is_ok_and(|all| all < PUBLISHED / 10);
        edge.wait_for_value("out/batches", is_few);
        edge.wait_for_value("out/failures", |value| value == "0");
        relay.late(0);
    }
}

/// With `drop_oldest`, the oldest messages are dropped while the destination is down; with
/// `drop_newest`, the newest.
fn who_is_away_when_the_queue_is_full_gets_what_the_options_keep(place: &mut impl SinkPlace) {
    place.clear();
    place.stop();
    let data = scratch(&own(place, "sink-full-data")).display().to_string();
    let limits = |bytes_max: &str, policy: &str| {
        let limits = format!("queue.bytes_max = \"{bytes_max}\"\nqueue.policy = \"{policy}\"\n");
        sink(place, "\"a\"", &limits)
    };
    let (oldest, newest) = (limits("64KiB", "drop_oldest"), limits("96KiB", "drop_newest"));
    let more = ["--data", &data, "--set", "connection.packet_bytes_max=64KiB"];
    let mut edge = SinkRig::start(&own(place, "sink-full"), &oldest, &more);
    // Its session is there when it has looked for somebody.
    edge.wait_for_value("last_error", |value| !value.is_empty());
    let padded = |number: u32| format!("number {number:0>250}");
    let file = edge.file.with_file_name("payloads");
    let publish = |edge: &SinkRig, numbers: Range<u32>| {
        let lines: Vec<String> = numbers.map(padded).collect();
        std::fs::write(&file, lines.join("\n")).expect(OURS);
        let begun = Instant::now();
        edge.publish_lines(&["-t", "a", "-q", "1"], &file);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "the publisher waited: {took:?}");
    };
    let value = |edge: &SinkRig, name: &str| -> u32 {
        let mut found = 0;
        edge.wait_for_value(name, |value| value.parse().map(|value| found = value).is_ok());
        found
    };
    publish(&edge, 0..1000);
    edge.wait_for_value("dropped/queue_full", |value| value != "0");
    let first = 1000 - value(&edge, "queue/messages");
    assert!((700..800).contains(&first), "{first} of the oldest are gone");
    edge.wait_for_value("dropped/queue_full", |value| value == first.to_string());
    edge.reload(&newest);
    publish(&edge, 1000..2000);
    edge.wait_for_value("dropped/queue_full", |value| value != first.to_string());
    let end = first + value(&edge, "queue/messages");
    assert!((1090..1150).contains(&end), "{end} is the first that was dropped");
    let dropped = first + 2000 - end;
    edge.wait_for_value("dropped/queue_full", |value| value == dropped.to_string());
    place.start();
    let wanted: Vec<SinkRow> = (first..end).map(|number| ("a".into(), padded(number))).collect();
    wait_for(place, "full", |rows| rows == wanted);
    edge.wait_for_value("queue/bytes", |value| value == "0");
    edge.wait_for_value("dropped/queue_full", |value| value == dropped.to_string());
}

fn who_is_not_there_yet_gets_it_later(place: &mut impl SinkPlace) {
    place.clear();
    place.stop();
    let data = scratch(&own(place, "sink-absent-data")).display().to_string();
    let edge =
        SinkRig::start(&own(place, "sink-absent"), &sink(place, "\"a\"", ""), &["--data", &data]);
    edge.wait_for_value("state", |value| value == "0");
    edge.wait_for_value("last_error", |value| !value.is_empty());
    let took = edge.count("a", "1", 0..2000);
    assert!(took < Duration::from_secs(10), "the publisher waited: {took:?}");
    edge.wait_for_value("queue/messages", |value| value == "2000");
    edge.wait_for_value("queue/oldest_ms", |value| !value.is_empty());
    place.start();
    let wanted = numbers("a", 0..2000);
    wait_for(place, "later", |rows| rows == wanted);
    edge.wait_for_value("queue/messages", |value| value == "0");
    edge.wait_for_value("state", |value| value == "1");
}

fn who_goes_and_comes_back_loses_nothing(place: &mut impl SinkPlace) {
    place.clear();
    let edge = SinkRig::start(&own(place, "sink-returns"), &sink(place, "\"a\"", ""), &[]);
    edge.wait_for_value("state", |value| value == "1");
    for round in 0..3 {
        let from = round * 1000;
        thread::scope(|scope| {
            let port = edge.broker.port();
            let publishing = scope.spawn(move || count(&port, "a", "1", from..from + 500));
            thread::sleep(Duration::from_millis(10 + 15 * u64::from(round)));
            place.stop();
            publishing.join().expect("nothing keeps a publisher");
        });
        // It finds out by these that nobody is there.
        edge.count("a", "1", from + 500..from + 1000);
        edge.wait_for_value("state", |value| value == "0");
        place.start();
        edge.wait_for_value("state", |value| value == "1");
    }
    let wanted = numbers("a", 0..3000);
    wait_for_all(place, "returns", &wanted);
    edge.wait_until_done();
}

/// Returns a sink without filters, and a rule that sends the payload of each message below `a` to
/// the sink.
pub(super) fn sink_of_rows(place: &impl SinkPlace) -> String {
    let rule = "[[rule]]\nname = \"r\"\nsql = 'SELECT payload AS p FROM \"a\"'\n\
                send.to = [\"sink/s\"]\nsend.payload = \"${p}\"\n";
    sink(place, "", "") + rule
}

fn rows_of_rules_come_like_messages(place: &mut impl SinkPlace) {
    place.clear();
    let text = sink_of_rows(place);
    let edge = SinkRig::start(&own(place, "sink-rows"), &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    edge.count("a", "1", 0..500);
    edge.publish(&["-t", "b", "-m", "no rule sees it", "-q", "1"]);
    edge.count("a", "2", 500..600);
    let wanted = numbers("a", 0..600);
    wait_for(place, "rows", |rows| rows == wanted);
    edge.wait_for_value("out/messages", |value| value == "600");
}

pub(super) fn a_broker_that_is_killed_loses_nothing(place: &mut impl SinkPlace, text: &str) {
    place.clear();
    let data = scratch(&own(place, "sink-killed-data")).display().to_string();
    let mut edge = SinkRig::start(&own(place, "sink-killed"), text, &["--data", &data]);
    // From now on its session is there.
    edge.wait_for_value("state", |value| value == "1");
    let mut wanted = Vec::new();
    for round in 0..4 {
        let port = edge.broker.port();
        let publishing = thread::spawn(move || {
            let message = |number: &u32| {
                let text = number.to_string();
                let wants = ["pub", "-p", &port, "-V", "5", "-t", "a", "-q", "1", "-m", &text];
                run(&wants).0 == Some(0)
            };
            (round * 1000..round * 1000 + 60).take_while(message).collect::<Vec<u32>>()
        });
        thread::sleep(Duration::from_millis(300 + 70 * u64::from(round)));
        edge.broker.program.signal("KILL");
        wanted.extend(publishing.join().expect("it counts"));
        let file = edge.file.clone();
        drop(edge);
        edge = SinkRig::again(file, &["--data", &data]);
    }
    assert!(wanted.len() > 20, "{}", wanted.len());
    let wanted: Vec<SinkRow> =
        wanted.iter().map(|number| ("a".to_string(), number.to_string())).collect();
    wait_for_all(place, "killed", &wanted);
}

fn options_change_live(place: &mut impl SinkPlace) {
    place.clear();
    let other = |text: &str, folder: &Path| {
        let path = folder.join("other.jsonl");
        let more = format!(
            "[[sink]]\nname = \"other\"\nfilters = [\"#\"]\nfile.path = {:?}\n",
            path.display().to_string()
        );
        text.to_string() + "\n" + &more
    };
    let folder = scratch(&own(place, "sink-live-other"));
    let text = other(&sink(place, "\"a\"", ""), &folder);
    let mut edge = SinkRig::start(&own(place, "sink-live"), &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    edge.reload(&other(&sink(place, "\"b\"", ""), &folder));
    edge.wait_for_value("connects", |value| value == "2");
    let port = edge.broker.port();
    let connects = "$SYS/broker/sink/other/connects";
    let (_, found, _) = run(&["sub", "-p", &port, "-t", connects, "-C", "1", "-W", "5"]);
    assert_eq!(found, "1\n", "the other one goes on");
    edge.publish(&["-t", "a", "-m", "no more", "-q", "1"]);
    edge.publish(&["-t", "b", "-m", "now", "-q", "1"]);
    wait_for(place, "changed", |rows| rows == [("b".to_string(), "now".to_string())]);
    // Limits of the queue change without a new connection.
    edge.reload(&other(&sink(place, "\"b\"", "queue.messages_max = 7\n"), &folder));
    edge.wait_for_value("connects", |value| value == "2");
    // Taken out, it goes with its session, and what it said of itself goes too.
    std::fs::write(&edge.file, other("", &folder)).expect(OURS);
    edge.broker.program.signal("HUP");
    edge.broker.program.wait_for("gone, with what it had queued");
    edge.wait_for_value("state", str::is_empty);
    edge.publish(&["-t", "b", "-m", "nobody", "-q", "1"]);
    std::fs::write(&edge.file, "[[sink]]\nname = \"s\"\nfilters = [\"a\"]\n").expect(OURS);
    edge.broker.program.signal("HUP");
    let line = edge.broker.program.wait_for("not reloaded");
    assert!(line.contains("godwit.toml:1: a sink leads to one place"), "{line}");
    assert_eq!(place.rows().len(), 1);
}
