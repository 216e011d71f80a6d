//! Tests of the relay: packets in from one side, and the packets that go out on the other.

use super::*;
use crate::topic_map::TopicMap;
use mqtt::{PropertiesBuf, SubAck, UnsubAck};
use std::time::Duration;

pub(super) fn terms(version: ProtocolVersion) -> RemoteBrokerLimits {
    RemoteBrokerLimits { version, server: ServerLimits::default(), spares_own: true }
}

/// Returns terms of MQTT 5.0 with limits of the remote broker.
fn limited_terms(server: ServerLimits) -> RemoteBrokerLimits {
    RemoteBrokerLimits { server, ..terms(ProtocolVersion::V5) }
}

pub(super) fn rule(filter: &str, template: &str) -> BridgeRule {
    BridgeRule {
        map: TopicMap::parse(filter, template, ("bridge", "b")).unwrap(),
        qos: QoS::ExactlyOnce,
        keeps_retain: true,
        retained: RetainedPolicy::Once,
    }
}

pub(super) fn pipe(terms: RemoteBrokerLimits) -> Relay {
    let outward = vec![rule("out/#", "far/${topic}"), rule("both/#", "")];
    let inward = vec![rule("far/in/+", "in/${1}"), rule("both/#", "")];
    let near = ServerLimits { packet_bytes_max: 64 * 1024, ..ServerLimits::default() };
    let rules = BridgeRules { outward, inward };
    Relay::new(
        "b".into(),
        rules.into(),
        terms,
        near,
        Arc::default(),
        FailoverState::for_servers(1),
        7,
    )
}

pub(super) fn publish(topic: &str, qos: u8, id: u16) -> Publish<'_> {
    Publish {
        dup: false,
        qos: QoS::from_bits(qos).unwrap(),
        retain: false,
        topic,
        packet_id: PacketId::new(id),
        properties: Properties::default(),
        payload: b"x",
    }
}

fn bytes(packet: Packet<'_>, version: ProtocolVersion) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes);
    bytes
}

pub(super) fn ack(id: u16, reason: ReasonCode) -> PublishAck<'static> {
    PublishAck { packet_id: PacketId::new(id).unwrap(), reason, properties: Properties::default() }
}

pub(super) fn lost(pipe: &Relay, reason: &str) -> u64 {
    pipe.metrics.drop_counts().find(|(name, _)| *name == reason).expect("there is such a reason").1
}

/// Decodes all packets in `out`, in the notation of transcripts, and clears `out`.
fn said(out: &mut Vec<u8>, version: ProtocolVersion) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), &out[..]);
    while let Some(frame) = mqtt::split_frame(rest, u32::MAX).unwrap() {
        words.push(Packet::decode(frame, version).unwrap().to_string());
        rest = &rest[frame.len..];
    }
    assert!(rest.is_empty());
    out.clear();
    words
}

impl Relay {
    pub(super) fn near(&mut self, packet: Packet<'_>) -> Result<usize, RelayEnd> {
        self.read_local(&bytes(packet, ProtocolVersion::V5))
    }

    pub(super) fn far(&mut self, packet: Packet<'_>) -> Result<usize, RelayEnd> {
        let version = self.remote_limits.version;
        self.read_remote(&bytes(packet, version))
    }

    pub(super) fn near_heard(&mut self) -> Vec<String> {
        said(&mut self.to_local, ProtocolVersion::V5)
    }

    pub(super) fn far_heard(&mut self) -> Vec<String> {
        let version = self.remote_limits.version;
        said(&mut self.to_remote, version)
    }
}

#[test]
fn ids_and_answers_go_through_as_they_are() {
    for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
        let mut pipe = pipe(terms(version));
        pipe.near(Packet::Publish(publish("out/a", 2, 5))).unwrap();
        assert_eq!(pipe.far_heard(), ["PUBLISH 5 \"far/out/a\" qos=2 \"x\""]);
        pipe.far(Packet::PubRec(ack(5, ReasonCode::Success))).unwrap();
        assert_eq!(pipe.near_heard(), ["PUBREC 5"]);
        pipe.near(Packet::PubRel(ack(5, ReasonCode::Success))).unwrap();
        assert_eq!(pipe.far_heard(), ["PUBREL 5"]);
        pipe.far(Packet::PubComp(ack(5, ReasonCode::Success))).unwrap();
        assert_eq!(pipe.near_heard(), ["PUBCOMP 5"]);
        pipe.far(Packet::Publish(publish("far/in/a", 1, 9))).unwrap();
        assert_eq!(pipe.near_heard(), ["PUBLISH 9 \"in/a\" qos=1 \"x\""]);
        pipe.near(Packet::PubAck(ack(9, ReasonCode::Success))).unwrap();
        assert_eq!(pipe.far_heard(), ["PUBACK 9"]);
    }
}

#[test]
fn a_message_of_which_half_is_there_waits() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    let whole = bytes(Packet::Publish(publish("out/a", 1, 5)), ProtocolVersion::V5);
    for len in 0..whole.len() {
        assert_eq!(pipe.read_local(&whole[..len]), Ok(0));
    }
    assert_eq!(pipe.read_local(&whole), Ok(whole.len()));
    assert_eq!(pipe.far_heard().len(), 1);
}

#[test]
fn nothing_is_published_before_our_requests_are_answered() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.send_requests(&["old/#".to_string()], None);
    let asked = pipe.far_heard();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(pipe.near(Packet::Publish(publish("out/a", 1, 7))), Ok(0), "7 is in use");
    // Incoming messages and their acknowledgements are not delayed.
    pipe.far(Packet::Publish(publish("far/in/a", 1, 1))).unwrap();
    assert_eq!(pipe.near(Packet::PubAck(ack(1, ReasonCode::Success))), Ok(4));
    let (properties, id) = (Properties::default(), |id| PacketId::new(id).unwrap());
    let answer = mqtt::UnsubAck { packet_id: id(8), properties, codes: &[0] };
    pipe.far(Packet::UnsubAck(answer)).unwrap();
    let answer = mqtt::SubAck { packet_id: id(7), properties, codes: &[2, 0x87] };
    pipe.far(Packet::SubAck(answer)).unwrap();
    assert!(pipe.metrics.last_error().contains("both/#: Not authorized"));
    pipe.to_remote.clear();
    assert!(pipe.near(Packet::Publish(publish("out/a", 1, 7))).unwrap() > 0);
    assert_eq!(pipe.far_heard().len(), 1);
}

#[test]
fn an_id_that_is_in_use_there_is_not_asked_with() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.send_requests(&[], None);
    pipe.to_remote.clear();
    let in_use = ReasonCode::PacketIdentifierInUse.code();
    let (packet_id, properties) = (PacketId::new(7).unwrap(), Properties::default());
    let answer = mqtt::SubAck { packet_id, properties, codes: &[in_use, in_use] };
    pipe.far(Packet::SubAck(answer)).unwrap();
    assert!(pipe.far_heard()[0].starts_with("SUBSCRIBE 8 "));
}

/// Without a response to an outstanding request, the pair gives up after the response timeout.
#[test]
fn an_answer_that_ends_nothing_is_none() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.send_requests(&["old/#".to_string()], None);
    let began = pipe.last_answer;
    let mut later = |packet: Packet<'_>| {
        pipe.now += Duration::from_secs(1);
        pipe.far(packet).unwrap();
        pipe.last_answer > began
    };
    let in_use = [ReasonCode::PacketIdentifierInUse.code(); 2];
    let subscribed = |id, codes| {
        let (packet_id, properties) = (PacketId::new(id).unwrap(), Properties::default());
        Packet::SubAck(mqtt::SubAck { packet_id, properties, codes })
    };
    let unsubscribed = |id| {
        let (packet_id, properties) = (PacketId::new(id).unwrap(), Properties::default());
        Packet::UnsubAck(mqtt::UnsubAck { packet_id, properties, codes: &[0] })
    };
    assert!(!later(subscribed(7, &in_use)), "it is asked under another id");
    assert!(!later(subscribed(9, &in_use)) && !later(subscribed(99, &[2, 2])));
    assert!(!later(unsubscribed(99)), "nobody asked with it");
    assert!(later(unsubscribed(8)));
}

#[test]
fn a_broker_with_less_qos_gets_less_and_the_session_here_its_own() {
    let mut pipe =
        pipe(limited_terms(ServerLimits { qos_max: QoS::AtLeastOnce, ..Default::default() }));
    pipe.near(Packet::Publish(publish("out/a", 2, 5))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBLISH 5 \"far/out/a\" qos=1 \"x\""]);
    pipe.far(Packet::PubAck(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!(pipe.near_heard(), ["PUBREC 5"]);
    pipe.near(Packet::PubRel(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.far_heard()), (vec!["PUBCOMP 5".to_string()], vec![]));
    pipe.remote_limits.server.qos_max = QoS::AtMostOnce;
    pipe.near(Packet::Publish(publish("out/a", 1, 6))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBLISH \"far/out/a\" qos=0 \"x\""]);
    assert_eq!(pipe.near_heard(), ["PUBACK 6"]);
    pipe.near(Packet::Publish(publish("out/a", 2, 7))).unwrap();
    assert_eq!(pipe.near_heard(), ["PUBREC 7"]);
}

#[test]
fn what_has_no_rule_or_is_too_large_is_counted_and_let_go() {
    let mut pipe = pipe(limited_terms(ServerLimits { packet_bytes_max: 20, ..Default::default() }));
    pipe.near(Packet::Publish(publish("gone", 1, 5))).unwrap();
    pipe.near(Packet::Publish(publish("out/that-is-too-long", 2, 6))).unwrap();
    assert!(pipe.far_heard().is_empty());
    let said = pipe.near_heard();
    assert_eq!(said.len(), 2);
    assert!(said[0].starts_with("PUBACK 5") && said[1].starts_with("PUBREC 6"), "{said:?}");
    pipe.far(Packet::Publish(publish("far/other", 2, 9))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBREC 9"]);
    pipe.far(Packet::PubRel(ack(9, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.far_heard(), pipe.near_heard()), (vec!["PUBCOMP 9".to_string()], vec![]));
    let payload = vec![b'x'; 65 * 1024];
    let large = Publish { payload: &payload, ..publish("far/in/a", 1, 10) };
    pipe.far(Packet::Publish(large)).unwrap();
    assert_eq!((pipe.far_heard(), pipe.near_heard()), (vec!["PUBACK 10".to_string()], vec![]));
    let losses: Vec<u64> = pipe.metrics.drop_counts().map(|(_, count)| count).collect();
    assert_eq!(losses, [2, 0, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn what_there_is_no_room_for_is_kept_where_it_is() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    let full = pipe.far(Packet::PubAck(ack(5, ReasonCode::QuotaExceeded)));
    assert_eq!(full, Err(RelayEnd::NoRoom(BridgeSide::Remote)));
    assert!(pipe.near_heard().is_empty());
    let full = pipe.near(Packet::PubRec(ack(5, ReasonCode::QuotaExceeded)));
    assert_eq!(full, Err(RelayEnd::NoRoom(BridgeSide::Local)));
    assert!(pipe.far_heard().is_empty());
}

#[test]
fn properties_go_along_and_a_response_topic_leads_back() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    let mut properties = PropertiesBuf::default();
    properties
        .push(Property::SubscriptionIdentifier(3))
        .push(Property::ResponseTopic("in/answers"))
        .push(Property::CorrelationData(b"7"))
        .push(Property::UserProperty("k", "v"))
        .push(Property::MessageExpiryInterval(60));
    let packet = Publish { properties: properties.as_properties(), ..publish("out/a", 0, 0) };
    pipe.near(Packet::Publish(packet)).unwrap();
    let said = pipe.far_heard();
    assert!(said[0].contains("far/in/answers") && said[0].contains("60"), "{said:?}");
    let mut properties = PropertiesBuf::default();
    properties.push(Property::ResponseTopic("far/out/answers"));
    let packet = Publish { properties: properties.as_properties(), ..publish("far/in/a", 0, 0) };
    pipe.far(Packet::Publish(packet)).unwrap();
    let said = pipe.near_heard();
    assert!(said[0].contains("response_topic=out/answers"), "{said:?}");
}

#[test]
fn aliases_are_used_where_they_are_known() {
    let mut pipe = pipe(limited_terms(ServerLimits { topic_alias_max: 1, ..Default::default() }));
    for topic in ["out/a", "out/b", "out/a"] {
        pipe.near(Packet::Publish(publish(topic, 0, 0))).unwrap();
    }
    let said = pipe.far_heard();
    assert!(said[0].contains("far/out/a") && said[0].contains("alias"), "{said:?}");
    assert!(said[1].contains("far/out/b") && !said[1].contains("alias"), "{said:?}");
    assert!(!said[2].contains("far/out/a") && said[2].contains("alias"), "{said:?}");
    let alias = |topic, alias| {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::TopicAlias(alias));
        let packet = Publish { properties: properties.as_properties(), ..publish(topic, 0, 0) };
        bytes(Packet::Publish(packet), ProtocolVersion::V5)
    };
    pipe.read_remote(&alias("far/in/a", 3)).unwrap();
    pipe.read_remote(&alias("", 3)).unwrap();
    assert_eq!(pipe.near_heard(), ["PUBLISH \"in/a\" qos=0 \"x\""; 2]);
}

#[test]
fn what_comes_back_from_a_broker_without_no_local_is_dropped_once() {
    let mut pipe = pipe(RemoteBrokerLimits { spares_own: false, ..terms(ProtocolVersion::V311) });
    pipe.near(Packet::Publish(publish("both/a", 1, 5))).unwrap();
    pipe.to_remote.clear();
    pipe.far(Packet::Publish(publish("both/a", 1, 9))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.far_heard()), (vec![], vec!["PUBACK 9".to_string()]));
    pipe.far(Packet::Publish(publish("both/a", 1, 10))).unwrap();
    assert_eq!(pipe.near_heard().len(), 1, "somebody else said the same");
}

#[test]
fn what_an_ended_session_there_left_open_here_is_closed() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.release_received(&[PacketId::new(3).unwrap()]);
    assert_eq!(pipe.near_heard(), ["PUBREL 3"]);
    pipe.near(Packet::PubComp(ack(3, ReasonCode::Success))).unwrap();
    assert!(pipe.far_heard().is_empty(), "nobody there has asked");
    pipe.near(Packet::PubComp(ack(3, ReasonCode::Success))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBCOMP 3"]);
}

#[test]
fn topics_beyond_the_aliases_are_named_in_full() {
    let mut pipe =
        pipe(limited_terms(ServerLimits { topic_alias_max: u16::MAX, ..Default::default() }));
    for number in 0..70_000 {
        let topic = format!("out/{number}");
        pipe.near(Packet::Publish(publish(&topic, 0, 0))).unwrap();
        pipe.to_remote.clear();
    }
    let last = format!("out/{}", ALIASES_OUT_MAX - 1);
    pipe.near(Packet::Publish(publish(&last, 0, 0))).unwrap();
    assert!(!pipe.far_heard()[0].contains("far/out"), "it has the last alias");
    pipe.near(Packet::Publish(publish("out/69999", 0, 0))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBLISH \"far/out/69999\" qos=0 \"x\""]);
}

/// Returns a relay whose messages may be echoed, or go to another member of a shared subscription.
fn sharing() -> Relay {
    let rules = BridgeRules {
        outward: vec![rule("both/#", "")],
        inward: vec![rule("$share/g/both/#", "")],
    };
    Relay { rules: rules.into(), ..pipe(terms(ProtocolVersion::V5)) }
}

#[test]
fn what_comes_back_by_a_shared_subscription_is_told_by_its_mark_in_5_0() {
    let mut pipe = sharing();
    pipe.near(Packet::Publish(publish("both/a", 1, 5))).unwrap();
    let sent = std::mem::take(&mut pipe.to_remote);
    assert!(said(&mut sent.clone(), ProtocolVersion::V5)[0].contains("godwit-bridge"));
    // Another member received that message. An equal message of another publisher is not an echo.
    pipe.far(Packet::Publish(publish("both/a", 1, 9))).unwrap();
    assert_eq!(pipe.near_heard(), ["PUBLISH 9 \"both/a\" qos=1 \"x\""]);
    pipe.read_remote(&sent).unwrap();
    assert_eq!((pipe.near_heard(), pipe.far_heard()), (vec![], vec!["PUBACK 5".to_string()]));
    assert_eq!(lost(&pipe, "echo"), 1);
    // A client which responds with the properties of the request sends another payload.
    let mark = loop_guard::loop_mark("both/a", b"x");
    let mut properties = PropertiesBuf::default();
    properties.push(Property::UserProperty(MARK, &mark));
    let answer = Publish { properties: properties.as_properties(), ..publish("both/b", 1, 6) };
    pipe.far(Packet::Publish(answer)).unwrap();
    assert_eq!(pipe.near_heard(), ["PUBLISH 6 \"both/b\" qos=1 \"x\""], "without the mark");
}

#[test]
fn equal_messages_beyond_the_memory_of_echoes_are_told_apart() {
    let mut pipe = pipe(RemoteBrokerLimits { spares_own: false, ..terms(ProtocolVersion::V311) });
    for _ in 0..3 {
        // As many messages as may be in flight; their echoes arrive before the next messages.
        (0..16_000).for_each(|_| _ = pipe.near(Packet::Publish(publish("both/a", 0, 0))));
        pipe.to_remote.clear();
        (0..16_000).for_each(|_| _ = pipe.far(Packet::Publish(publish("both/a", 0, 0))));
        assert!(pipe.to_local.is_empty());
    }
    pipe.far(Packet::Publish(publish("both/a", 0, 0))).unwrap();
    assert_eq!(pipe.near_heard().len(), 1, "somebody else said the same");
}

#[test]
fn what_does_not_come_back_is_not_awaited_for_ever() {
    let mut pipe = pipe(RemoteBrokerLimits { spares_own: false, ..terms(ProtocolVersion::V311) });
    pipe.near(Packet::Publish(publish("both/a", 0, 0))).unwrap();
    pipe.now += loop_guard::LIFETIME;
    pipe.far(Packet::Publish(publish("both/a", 0, 0))).unwrap();
    assert_eq!(pipe.near_heard().len(), 1);
}

#[test]
fn a_broker_without_qos_2_is_asked_to_release_nothing() {
    let mut pipe =
        pipe(limited_terms(ServerLimits { qos_max: QoS::AtLeastOnce, ..Default::default() }));
    pipe.near(Packet::PubRel(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.far_heard()), (vec!["PUBCOMP 5".to_string()], vec![]));
}

#[test]
fn only_a_server_says_that_nobody_subscribes() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.near(Packet::PubAck(ack(9, ReasonCode::NoMatchingSubscribers))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBACK 9"]);
}

/// Responses that match no request do not keep a connection alive.
#[test]
fn a_request_is_answered_by_its_own_kind_and_id() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.send_requests(&["gone".to_string()], None);
    assert_eq!(pipe.far_heard().len(), 2, "SUBSCRIBE 7 and UNSUBSCRIBE 8");
    let properties = Properties::default();
    let suback = |id| {
        let packet_id = PacketId::new(id).unwrap();
        Packet::SubAck(SubAck { packet_id, properties, codes: &[2, 2] })
    };
    let unsuback = |id| {
        let packet_id = PacketId::new(id).unwrap();
        Packet::UnsubAck(UnsubAck { packet_id, properties, codes: &[0] })
    };
    pipe.now += Duration::from_secs(1);
    let began = pipe.last_answer;
    for wrong in [suback(8), unsuback(7), suback(1), unsuback(9)] {
        pipe.far(wrong).unwrap();
        assert!(!pipe.is_answered() && pipe.last_answer == began, "{wrong}");
    }
    pipe.far(suback(7)).unwrap();
    assert!(!pipe.is_answered() && pipe.last_answer > began);
    pipe.far(unsuback(8)).unwrap();
    assert!(pipe.is_answered());
}

#[test]
fn many_filters_are_asked_for_a_few_at_a_time() {
    let near = ServerLimits { packet_bytes_max: 64 * 1024, ..ServerLimits::default() };
    let inward = (0..20).map(|at| rule(&format!("in/{at}"), "")).collect();
    let rules = BridgeRules { outward: Vec::new(), inward };
    let mut pipe = Relay::new(
        "b".into(),
        rules.into(),
        terms(ProtocolVersion::V311),
        near,
        Arc::default(),
        FailoverState::for_servers(1),
        7,
    );
    let gone: Vec<String> = (0..9).map(|at| format!("gone/{at}")).collect();
    pipe.send_requests(&gone, None);
    let counts: Vec<(usize, usize)> = pipe
        .far_heard()
        .iter()
        .map(|said| (said.matches("in/").count(), said.matches("gone/").count()))
        .collect();
    assert_eq!(counts, [(8, 0), (8, 0), (4, 0), (0, 8), (0, 1)]);
}

impl Relay {
    /// Returns the relay of the next connection, to one of two servers.
    fn again(self, server: usize, is_present: bool) -> Relay {
        let terms = self.remote_limits;
        let mut past = self.into_failover_state();
        past.connect_to(server, is_present, false);
        Relay { failover: past, ..pipe(terms) }
    }

    fn sends(&mut self, id: u16, dup: bool) -> Vec<String> {
        self.near(Packet::Publish(Publish { dup, ..publish("out/a", 2, id) })).unwrap();
        self.far_heard()
    }

    fn completes(&mut self, id: u16) -> Vec<String> {
        self.far(Packet::PubComp(ack(id, ReasonCode::Success))).unwrap();
        self.near_heard()
    }
}

/// Returns a relay to two servers, after PUBREC of the first for message 5.
fn taken() -> Relay {
    let mut pipe =
        Relay { failover: FailoverState::for_servers(2), ..pipe(terms(ProtocolVersion::V311)) };
    pipe.sends(5, false);
    pipe.far(Packet::PubRec(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.far_heard(), pipe.near_heard()), (vec!["PUBREL 5".to_string()], vec![]));
    pipe
}

const WHOLE: [&str; 1] = ["PUBLISH 5 \"far/out/a\" qos=2 \"x\""];
const AGAIN: [&str; 1] = ["PUBLISH 5 \"far/out/a\" qos=2 dup \"x\""];

#[test]
fn of_several_servers_one_has_a_message_once_it_is_complete() {
    let mut pipe = taken();
    assert_eq!(pipe.completes(5), ["PUBREC 5"]);
    pipe.near(Packet::PubRel(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.far_heard()), (vec!["PUBCOMP 5".to_string()], vec![]));
    // The local session repeats PUBREL if PUBCOMP was lost.
    let mut pipe = pipe.again(0, true);
    pipe.near(Packet::PubRel(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!(pipe.far_heard(), ["PUBREL 5"]);
    assert_eq!(pipe.completes(5), ["PUBCOMP 5"]);
    assert_eq!(pipe.sends(5, false), WHOLE, "another one");
}

#[test]
fn a_server_that_has_a_message_is_not_sent_it_again() {
    let mut pipe = taken().again(0, true);
    assert_eq!(pipe.sends(5, true), ["PUBREL 5"]);
    assert_eq!(pipe.completes(5), ["PUBREC 5"]);
    assert_eq!(taken().again(0, false).sends(5, true), AGAIN, "it has forgotten");
}

#[test]
fn a_message_half_way_at_one_server_goes_whole_to_the_next() {
    let mut pipe = taken().again(1, true);
    assert_eq!(pipe.sends(5, true), AGAIN);
    // At the first server the exchange is still open.
    let mut back = pipe.again(0, true);
    back.send_requests(&[], None);
    assert_eq!(back.far_heard().len(), 1, "SUBSCRIBE");
    back.pending_requests.clear();
    assert_eq!(back.sends(5, true), ["PUBREL 5"]);
}

#[test]
fn an_id_that_a_server_keeps_of_a_message_that_another_has_is_released() {
    let mut pipe = taken().again(1, true);
    pipe.sends(5, true);
    pipe.far(Packet::PubRec(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!(pipe.completes(5), ["PUBREC 5"]);
    let mut back = pipe.again(0, true);
    back.send_requests(&[], None);
    let asked = back.far_heard();
    assert_eq!((asked.len(), asked[0].as_str()), (2, "PUBREL 5"));
    back.pending_requests.clear();
    let other = Packet::Publish(publish("out/a", 2, 5));
    assert_eq!(back.near(other), Ok(0), "it would be taken for the first one");
    assert!(back.completes(5).is_empty(), "that was the first one");
    assert_eq!(back.sends(5, false), WHOLE);
    back.far(Packet::PubRec(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!(back.completes(5), ["PUBREC 5"]);
    // Nothing is released again.
    let mut back = back.again(0, true);
    back.send_requests(&[], None);
    assert_eq!(back.far_heard().len(), 1);
}

#[test]
fn ids_of_a_session_here_that_is_gone_are_no_messages_of_the_next() {
    let mut pipe = taken();
    pipe.failover.reset_local();
    let mut pipe = pipe.again(0, true);
    pipe.send_requests(&[], None);
    assert_eq!(pipe.far_heard()[0], "PUBREL 5");
    pipe.pending_requests.clear();
    assert!(pipe.completes(5).is_empty());
    assert_eq!(pipe.sends(5, true), AGAIN);
}

/// An earlier process may have left open exchanges with unknown packet ids.
#[test]
fn every_id_is_released_at_a_server_that_another_process_left() {
    (1..=2).for_each(every_id_is_released);
}

fn every_id_is_released(servers: usize) {
    let mut pipe = Relay {
        failover: FailoverState::for_servers(servers),
        ..pipe(terms(ProtocolVersion::V311))
    };
    pipe.failover.connect_to(0, true, true);
    pipe.send_requests(&[], Some("left".to_string()));
    let asked = pipe.far_heard();
    assert_eq!(asked.len(), 65_535 + 1);
    assert_eq!(asked.iter().filter(|said| said.starts_with("PUBREL")).count(), 65_535);
    pipe.pending_requests.clear();
    for id in 1..=u16::MAX {
        assert_eq!(pipe.near(Packet::Publish(publish("out/a", 2, 5))), Ok(0));
        assert!(pipe.to_local.is_empty(), "it may be cut off yet");
        pipe.far(Packet::PubComp(ack(id, ReasonCode::Success))).unwrap();
    }
    assert_eq!(pipe.near_heard(), ["UNSUBSCRIBE 1 \"left\""]);
    assert_eq!(pipe.sends(5, false), WHOLE);
    // A process which was connected to the server knows the ids, and a new session has none.
    for (knows, is_present) in [(true, true), (false, false)] {
        let mut past = FailoverState::for_servers(2);
        if knows {
            past.connect_to(0, true, false);
        }
        past.connect_to(0, is_present, true);
        assert!(past.stale().is_empty());
    }
}

/// Another server would not know the exchange, and an unacknowledged message might arrive twice.
#[test]
fn what_one_server_was_sent_comes_to_its_end_there_before_the_bridge_does() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.sends(5, false);
    pipe.sends(6, false);
    pipe.far(Packet::PubRec(ack(6, ReasonCode::QuotaExceeded))).unwrap_err();
    pipe.far(Packet::PubRec(ack(6, ReasonCode::NotAuthorized))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.drain()), (vec!["PUBREC 6 NotAuthorized".into()], false));
    pipe.far(Packet::PubRec(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.drain()), (vec!["PUBREC 5".to_string()], false));
    assert_eq!(pipe.near(Packet::Publish(publish("out/a", 2, 7))), Ok(0), "nothing new");
    pipe.near(Packet::PubRel(ack(5, ReasonCode::Success))).unwrap();
    assert_eq!((pipe.far_heard(), pipe.drain()), (vec!["PUBREL 5".to_string()], false));
    assert_eq!(pipe.completes(5), ["PUBCOMP 5"]);
    assert!(pipe.drain());
}

/// The local session was lost while a message was in flight; a new session uses the packet id
/// again.
#[test]
fn what_one_server_may_have_of_a_session_here_that_is_gone_is_released() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    pipe.sends(5, false);
    pipe.failover.reset_local();
    assert_eq!(pipe.failover.stale().len(), 1);
}

#[test]
fn what_comes_back_after_a_new_connection_is_known_still() {
    for is_said_again in [false, true] {
        let mut pipe =
            Relay { failover: FailoverState::for_servers(2), ..pipe(terms(ProtocolVersion::V311)) };
        pipe.remote_limits.spares_own = false;
        pipe.near(Packet::Publish(publish("both/a", 1, 5))).unwrap();
        let mut elsewhere = pipe.again(1, true);
        elsewhere.far(Packet::Publish(publish("both/a", 1, 9))).unwrap();
        assert_eq!(elsewhere.near_heard().len(), 1, "nothing was sent there");
        let mut back = elsewhere.again(0, true);
        if is_said_again {
            back.near(Packet::Publish(Publish { dup: true, ..publish("both/a", 1, 5) })).unwrap();
        }
        // One echo is expected, even if the message was sent twice.
        for (id, comes) in [(9, 0), (10, 1)] {
            back.far(Packet::Publish(publish("both/a", 1, id))).unwrap();
            assert_eq!(back.near_heard().len(), comes, "{id}");
        }
    }
}
