//! Tests of loop detection: messages which count as a loop, and messages which never do.

use super::*;
use mqtt::PropertiesBuf;

const SECOND: Duration = Duration::from_secs(1);

/// A bridge in a test, with the state and the clock of its loop detection.
struct LoopTestBridge {
    detection: LoopDetection,
    carried: CarriedMessages,
    now: Instant,
    is_v5: bool,
}

fn bridge(name: &str, is_v5: bool) -> LoopTestBridge {
    let detection = LoopDetection::new(name, name, "far.example:1883", true);
    LoopTestBridge { detection, carried: CarriedMessages::default(), now: Instant::now(), is_v5 }
}

impl LoopTestBridge {
    fn pass(
        &mut self,
        direction: BridgeDirection,
        payload: &str,
        path: &str,
    ) -> Result<Option<String>, LoopFound> {
        let mut properties = PropertiesBuf::default();
        if !path.is_empty() {
            properties.push(Property::UserProperty(PATH, path));
        }
        let message = PassingMessage {
            direction,
            is_v5: self.is_v5,
            topic: "t",
            remote_topic: "t",
            payload: payload.as_bytes(),
            qos: QoS::AtLeastOnce,
            dup: false,
            properties: properties.as_properties(),
            now: self.now,
        };
        self.detection.check_and_mark(&message, &mut self.carried)
    }

    fn out(&mut self, payload: &str, path: &str) -> Result<Option<String>, LoopFound> {
        self.pass(BridgeDirection::Out, payload, path)
    }
}

#[test]
fn the_third_equal_message_has_a_path_and_the_bridge_knows_it_again() {
    let (mut one, mut other) = (bridge("one", true), bridge("other", true));
    assert_eq!(one.out("x", ""), Ok(None));
    assert_eq!(one.out("x", ""), Ok(None));
    let path = one.out("x", "").unwrap().expect("it is the third");
    assert!(path.starts_with("one@") && !path.contains(' '), "{path}");
    let longer = other.out("x", &path).unwrap().expect("it has one");
    assert!(longer.starts_with(&format!("{path} other@")), "{longer}");
    assert_eq!(one.out("x", &longer), Err(LoopFound(longer.clone())));
    assert_eq!(one.pass(BridgeDirection::In, "x", &longer), Err(LoopFound(longer)));
    assert_eq!(one.out("y", ""), Ok(None), "another message has no path");
}

#[test]
fn a_path_that_is_too_long_is_a_loop() {
    let path = |hops: usize| vec!["b@00000003"; hops].join(" ");
    assert!(bridge("one", true).out("x", &path(31)).is_ok());
    assert!(bridge("one", true).out("x", &path(32)).is_err());
}

#[test]
fn what_clients_here_publish_passes_however_often_it_is_equal() {
    for is_v5 in [true, false] {
        let mut one = bridge("one", is_v5);
        for _ in 0..100_000 {
            assert!(one.out("0", "").is_ok());
        }
        // Also after a loop of the same message was found.
        (0..100).for_each(|_| _ = one.out("0", "other@0"));
        assert!((0..100_000).all(|_| one.out("0", "").is_ok()));
    }
}

#[test]
fn what_comes_one_way_only_passes_however_often_it_is_equal() {
    let mut one = bridge("one", false);
    assert!((0..100_000).all(|_| one.out("0", "other@0").is_ok()));
    assert!((0..100_000).all(|_| one.pass(BridgeDirection::In, "1", "").is_ok()));
    let mut one = bridge("one", true);
    assert!((0..100_000).all(|_| one.pass(BridgeDirection::In, "1", "").is_ok()));
    assert!((0..100_000).all(|_| one.out("1", "").is_ok()), "both ways, in 5.0");
}

#[test]
fn what_3_1_1_brings_back_passes_a_few_times() {
    for direction in [BridgeDirection::Out, BridgeDirection::In] {
        let mut one = bridge("one", false);
        one.out("x", "").unwrap();
        one.out("x", "").unwrap();
        let path = if direction == BridgeDirection::Out { "third@0" } else { "" };
        let came = (0..100).filter(|_| one.pass(direction, "x", path).is_ok()).count();
        assert_eq!(came, 2 + 3, "so many more than were published here");
        let names = one.pass(direction, "x", path).unwrap_err();
        let expected =
            if direction == BridgeDirection::Out { "third@0" } else { "far.example:1883@0" };
        assert_eq!(names, LoopFound(expected.into()));
        assert!(one.pass(direction, "y", path).is_ok(), "another message");
        one.now += 11 * SECOND;
        assert!(one.pass(direction, "x", path).is_ok(), "the memory is over");
    }
}

/// A local client publishes the message, and a bridge with only inward rules brings it back.
#[test]
fn what_a_watching_bridge_fetches_back_is_stopped_after_more_rounds() {
    let mut one = bridge("one", false);
    let properties = PropertiesBuf::default();
    let publish = |path: &PropertiesBuf, one: &mut LoopTestBridge| {
        let published = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "t",
            packet_id: None,
            properties: path.as_properties(),
            payload: b"x",
        };
        one.carried.record_local_publish(&published, one.now);
    };
    publish(&properties, &mut one);
    let came = (0..100).filter(|_| one.pass(BridgeDirection::In, "x", "").is_ok()).count();
    assert_eq!(came, 1 + 32, "so many more than were published here");
    // Equal messages of a remote client, with few or no publications at this broker, are not a
    // loop.
    let mut fetching = bridge("fetching", false);
    let mut brought = PropertiesBuf::default();
    brought.push(Property::UserProperty(PATH, "other@0"));
    publish(&brought, &mut fetching);
    assert!((0..1000).all(|_| fetching.pass(BridgeDirection::In, "x", "").is_ok()));
    let mut site = bridge("site", false);
    for _ in 0..1000 {
        publish(&properties, &mut site);
        assert!((0..3).all(|_| site.pass(BridgeDirection::In, "x", "").is_ok()));
        site.now += SECOND;
    }
}

/// Two sites may report the same status once per second in equal messages.
#[test]
fn equal_messages_of_two_sites_pass_while_neither_has_many_more() {
    let mut hub = bridge("hub", false);
    for _ in 0..1000 {
        assert!(hub.out("alive", "").is_ok());
        assert!(hub.out("alive", "site@0").is_ok());
        hub.now += SECOND;
    }
}

/// The publisher is a client of a broker in the ring whose bridges do not detect loops.
#[test]
fn of_two_ways_from_strangers_the_one_that_was_first_goes_on() {
    let mut one = bridge("one", false);
    let (mut first, mut second) = (0, 0);
    for _ in 0..1000 {
        first += usize::from(one.pass(BridgeDirection::In, "x", "").is_ok());
        second += usize::from(one.out("x", "other@0").is_ok());
    }
    assert_eq!((first, second), (1000, 16));
    one.now += 3 * SECOND;
    assert!(one.out("x", "other@0").is_ok(), "nothing comes the first way any more");
}

/// Every bridge of the ring saw the same direction first, so only a probe ends the ring. A client
/// which continues to publish equal messages loses few of them.
#[test]
fn where_one_way_goes_on_alone_a_message_is_stopped_now_and_then() {
    let mut one = bridge("one", false);
    for _ in 0..16 {
        assert!(one.pass(BridgeDirection::In, "x", "").is_ok());
        assert!(one.out("x", "other@0").is_ok());
    }
    let mut pass = || one.pass(BridgeDirection::In, "x", "").is_err();
    let stopped: Vec<usize> = (0..2000).filter(|_| pass()).collect();
    assert_eq!(stopped, [32, 97, 226, 483, 996]);
    assert!(one.out("y", "other@0").is_ok(), "another message");
}

/// Three brokers with a bridge between each two: two brokers of this kind, and one without loop
/// marks.
struct LoopTestTriangle {
    first_to_strange: LoopTestBridge,
    second_to_first: LoopTestBridge,
    second_to_strange: LoopTestBridge,
    /// Copies in flight: the bridge, the direction, and the path set by the broker.
    on_the_way: Vec<(usize, BridgeDirection, &'static str)>,
    random: fastrand::Rng,
}

impl LoopTestTriangle {
    fn new(seed: u64) -> LoopTestTriangle {
        LoopTestTriangle {
            first_to_strange: bridge("one", false),
            second_to_first: bridge("two", false),
            second_to_strange: bridge("three", false),
            on_the_way: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Passes a message from a broker to its bridges, except the bridge which brought the message.
    fn arrive(&mut self, broker: usize, by: Option<usize>, path: &'static str) {
        use BridgeDirection::{In, Out};
        let bridges = match broker {
            0 => [(0, Out), (1, In)],
            1 => [(1, Out), (2, Out)],
            _ => [(0, In), (2, In)],
        };
        let others = bridges.into_iter().filter(|(bridge, _)| Some(*bridge) != by);
        self.on_the_way.extend(others.map(|(bridge, direction)| (bridge, direction, path)));
    }

    /// Passes a random copy in flight through its bridge.
    fn step(&mut self) {
        let at = self.random.usize(..self.on_the_way.len());
        let (by, direction, path) = self.on_the_way.remove(at);
        let bridge = match by {
            0 => &mut self.first_to_strange,
            1 => &mut self.second_to_first,
            _ => &mut self.second_to_strange,
        };
        // In 3.1.1 no path arrives from the remote broker.
        let path = if direction == BridgeDirection::In { "" } else { path };
        if bridge.pass(direction, "x", path).is_err() {
            return;
        }
        // Brokers of this kind know which of their clients are bridges of 3.1.1.
        match (by, direction) {
            (0, BridgeDirection::Out) | (2, BridgeDirection::Out) => self.arrive(2, Some(by), ""),
            (0, BridgeDirection::In) => self.arrive(0, Some(by), "strange@0"),
            (1, BridgeDirection::Out) => self.arrive(0, Some(by), "two@0"),
            (1, BridgeDirection::In) => self.arrive(1, Some(by), "first@0"),
            (_, BridgeDirection::In) => self.arrive(1, Some(by), "strange@0"),
            (_, BridgeDirection::Out) => unreachable!("a triangle has three bridges"),
        }
    }
}

#[test]
fn a_triangle_with_a_broker_that_marks_nothing_falls_silent_in_any_order() {
    for seed in 0..3_000 {
        for broker in 0..3 {
            let mut triangle = LoopTestTriangle::new(seed * 3 + broker as u64);
            triangle.arrive(broker, None, "");
            let mut steps = 0;
            while !triangle.on_the_way.is_empty() {
                triangle.step();
                steps += 1;
                assert!(steps < 1_000, "{seed}: from broker {broker} it goes round for ever");
            }
        }
    }
}

#[test]
fn what_5_0_brought_counts_where_3_1_1_goes_on() {
    let mut one = bridge("one", false);
    one.out("x", "").unwrap();
    let came = (0..100).filter(|_| one.out("x", "other@00000003").is_ok()).count();
    assert_eq!(came, 1 + 3);
}

#[test]
fn what_is_said_again_is_not_counted() {
    let mut one = bridge("one", true);
    let message = PassingMessage {
        direction: BridgeDirection::Out,
        is_v5: true,
        topic: "t",
        remote_topic: "t",
        payload: b"x",
        qos: QoS::AtLeastOnce,
        dup: true,
        properties: Properties::default(),
        now: one.now,
    };
    for _ in 0..10 {
        assert_eq!(one.detection.check_and_mark(&message, &mut one.carried), Ok(None));
    }
}

/// The encoder would cut the path, and the bridge's own name with it.
#[test]
fn a_forged_path_without_room_for_a_hop_goes_round_no_ring() {
    for forged in ["x".repeat(65_530), "\u{1F980}".repeat(16_000)] {
        let LoopFound(names) = bridge("one", true).out("x", &forged).expect_err("it is too long");
        assert!(forged.starts_with(&names) && names.chars().count() <= PATH_BYTES_MAX);
    }
    let longest = format!("{}@ffffffff", "\u{1F980}".repeat(16));
    let path = vec![&*longest; HOPS_MAX - 1].join(" ");
    assert!(bridge("one", true).out("x", &path).is_ok(), "that many bridges may be in a row");
}

#[test]
fn forged_paths_stop_nothing_that_clients_publish() {
    for forged in ["x@0", "x@1", "@", " ", "x", "\u{1F980} @0 ", &"a@0 ".repeat(40)] {
        let mut one = bridge("one", true);
        for turn in 0..50 {
            let _ = one.out("same", forged);
            let _ = one.pass(BridgeDirection::In, "same", forged);
            assert!(one.out("same", "").is_ok(), "{forged:?}, {turn}");
        }
    }
}
