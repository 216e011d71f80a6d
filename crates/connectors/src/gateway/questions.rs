//! Tests of requests to sockets and of their responses, at the level of [`GatewaySession`].

use super::peer::GatewayShared;
use super::peer_message::PeerId;
use super::peer_set::PeerSet;
use super::session::GatewaySession;
use super::tests::gateway;
use crate::LinkKind;
use crate::local_session::encode_ack;
use crate::metrics::LinkMetrics;
use mqtt::client::ServerLimits;
use mqtt::{
    Packet, PacketId, PacketType, PropertiesBuf, Property, ProtocolVersion, Publish, QoS,
    ReasonCode,
};
use std::iter;
use std::sync::Arc;
use zmtp_sp::MultipartMessage;

const OUT: &[(&str, &str)] = &[("filter", "out/#")];
const IN: &[(&str, &str)] = &[("topic", "questions")];

/// A gateway session without connections: tests act as peers and as the local session.
struct RequestTestbed {
    shared: GatewayShared,
    gateway_session: GatewaySession,
}

const TERMS: ServerLimits = ServerLimits { qos_max: QoS::AtLeastOnce, ..ServerLimits::UNSTATED };

impl RequestTestbed {
    fn new(protocol: &str, pattern: &str, more: &[(&str, &str)]) -> RequestTestbed {
        let own = [("protocol", protocol), ("pattern", pattern), ("listen", "tcp://127.0.0.1:1")];
        let (out, inside) =
            if pattern == "rep" { (&[][..], &[IN][..]) } else { (&[OUT][..], &[][..]) };
        let settings = gateway(&[&own, more].concat(), out, inside).expect("it is right");
        let (peers, metrics) = (PeerSet::default(), LinkMetrics::for_kind(LinkKind::Gateway));
        let (settings, peers, metrics) = (Arc::new(settings), Arc::new(peers), Arc::new(metrics));
        let shared = GatewayShared { settings, peers, metrics };
        let mut gateway_session = GatewaySession::new(shared.clone(), TERMS);
        gateway_session.begin_connection(TERMS);
        RequestTestbed { shared, gateway_session }
    }

    fn enter(&self) -> PeerId {
        self.shared.peers.add_peer(&self.shared.settings, Arc::default()).expect("there is room")
    }

    /// Disconnects a peer. Messages given to the peer are not returned.
    fn leave(&mut self, peer: PeerId) {
        self.shared.peers.remove_peer(peer, iter::empty(), true);
        self.gateway_session.on_peers_changed();
    }

    /// Sends a request of a client; a packet id means QoS 1.
    fn asks(&mut self, packet_id: u16, payload: &str, properties: &[Property<'_>]) {
        let (mut own, mut packet) = (PropertiesBuf::default(), Vec::new());
        for property in properties {
            own.push(*property);
        }
        let packet_id = PacketId::new(packet_id);
        let qos = if packet_id.is_some() { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        let (properties, payload) = (own.as_properties(), payload.as_bytes());
        let (dup, retain, topic) = (false, false, "out/a");
        let publish = Publish { dup, qos, retain, topic, packet_id, properties, payload };
        publish.encode(ProtocolVersion::V5, &mut packet);
        assert_eq!(self.gateway_session.read_session(&packet), Ok(packet.len()));
        self.gateway_session.on_peers_changed();
    }

    fn asks_for_answers(&mut self, packet_id: u16, payload: &str) {
        self.asks(packet_id, payload, &[Property::ResponseTopic("answers")]);
    }

    /// Returns the next request to this peer.
    fn given(&self, peer: PeerId) -> MultipartMessage {
        self.next(peer).expect("it is asked")
    }

    fn answers(&mut self, peer: PeerId, question: &MultipartMessage, text: &str) {
        let (envelope, frames) = (question.envelope.clone(), vec![text.as_bytes().to_vec()]);
        self.shared.peers.accept_inbound(peer, &mut [MultipartMessage { envelope, frames }].into());
        self.gateway_session.take_inbound();
    }

    /// Returns the payloads and acknowledgements sent to the local session since the last call.
    fn said(&mut self) -> Vec<String> {
        let (bytes, mut said) = (std::mem::take(&mut self.gateway_session.to_near), Vec::new());
        let mut rest = &bytes[..];
        while let Some(frame) = mqtt::split_frame(rest, u32::MAX).expect("it is right") {
            rest = &rest[frame.len..];
            said.push(match Packet::decode(frame, ProtocolVersion::V5).expect("it is right") {
                Packet::Publish(publish) => String::from_utf8_lossy(publish.payload).into(),
                Packet::PubAck(ack) => format!("PUBACK {}", ack.packet_id),
                other => format!("{other:?}"),
            });
        }
        said
    }

    /// Returns the correlation data of the last request of a socket.
    fn correlation(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.gateway_session.to_near);
        let frame = mqtt::split_frame(&bytes, u32::MAX).expect("it is right").expect("it is whole");
        let Ok(Packet::Publish(publish)) = Packet::decode(frame, ProtocolVersion::V5) else {
            panic!("no PUBLISH");
        };
        let found = publish.properties.iter().find_map(|property| match property {
            Property::CorrelationData(data) => Some(data.to_vec()),
            _ => None,
        });
        found.expect("a question has it")
    }

    /// Acknowledges a message of the gateway with a reason code.
    fn acknowledges(&mut self, packet_id: u16, reason: ReasonCode) {
        let (packet_id, mut packet) = (PacketId::new(packet_id).expect("it is none"), Vec::new());
        encode_ack(PacketType::PubAck, packet_id, reason, &mut packet);
        assert_eq!(self.gateway_session.read_session(&packet), Ok(packet.len()));
    }

    /// Waits until every request made so far has timed out.
    fn waits_in_vain(&mut self) {
        while self.gateway_session.next_deadline().is_some() {
            self.gateway_session.check_timeouts();
            std::thread::yield_now();
        }
    }

    fn next(&self, peer: PeerId) -> Option<MultipartMessage> {
        self.shared
            .peers
            .next_for_peer(peer, &self.shared.settings)
            .map(|message| message.message.clone())
    }

    fn losses(&self) -> Vec<(&'static str, u64)> {
        self.shared.metrics.drop_counts().filter(|(_, count)| *count > 0).collect()
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn an_answer_that_a_gateway_before_asked_for_is_nobodys() {
    for pattern in ["req", "surveyor"] {
        let (mut before, mut now) =
            (RequestTestbed::new("sp", pattern, &[]), RequestTestbed::new("sp", pattern, &[]));
        let (at_first, then) = (before.enter(), now.enter());
        before.asks_for_answers(0, "what has Alice?");
        now.asks_for_answers(0, "what has Bob?");
        let (of_alice, of_bob) = (before.given(at_first), now.given(then));
        now.answers(then, &of_alice, "Alice has it");
        assert_eq!(now.said(), NOTHING, "{pattern}");
        now.answers(then, &of_bob, "Bob has it");
        assert_eq!(now.said(), ["Bob has it"]);
    }
}

#[test]
fn who_was_asked_and_nobody_else_answers() {
    for protocol in ["sp", "zmq"] {
        let mut table = RequestTestbed::new(protocol, "req", &[]);
        let asked = table.enter();
        table.asks_for_answers(0, "who?");
        let (question, other) = (table.given(asked), table.enter());
        table.answers(other, &question, "I");
        assert_eq!(table.said(), NOTHING);
        assert_eq!(table.losses(), [("no_question", 1)]);
        table.answers(asked, &question, "me");
        assert_eq!(table.said(), ["me"]);
    }
}

#[test]
fn who_has_a_question_in_the_place_of_another_answers_it() {
    let mut table = RequestTestbed::new("sp", "req", &[]);
    let (first, other) = (table.enter(), table.enter());
    table.asks_for_answers(0, "who?");
    // The request was not yet written to the first peer.
    table.leave(first);
    let question = table.given(other);
    table.answers(other, &question, "I");
    assert_eq!(table.said(), ["I"]);
}

#[test]
fn a_socket_of_zeromq_that_is_back_answers_what_it_was_asked() {
    for (protocol, expected) in [("zmq", &["me"][..]), ("sp", &NOTHING)] {
        let mut table = RequestTestbed::new(protocol, "req", &[]);
        let asked = table.enter();
        table.enter();
        table.asks_for_answers(0, "who?");
        let question = table.given(asked);
        table.leave(asked);
        // A request id may be guessed; the proof in front of it may not.
        let (back, mut guessed) = (table.enter(), question.clone());
        for before in [None, Some(vec![0; 8])] {
            guessed.envelope.drain(..guessed.envelope.len() - 1);
            guessed.envelope.splice(..0, before);
            table.answers(back, &guessed, "I");
            assert_eq!(table.said(), NOTHING, "{protocol}");
        }
        table.answers(back, &question, "me");
        assert_eq!(table.said(), expected, "{protocol}");
    }
}

#[test]
fn who_came_behind_a_survey_has_no_answer_to_it() {
    let mut table = RequestTestbed::new("sp", "surveyor", &[]);
    let all = [table.enter(), table.enter()];
    table.asks_for_answers(0, "who is there?");
    let (question, late) = (table.given(all[0]), table.enter());
    table.answers(late, &question, "late");
    assert_eq!(table.said(), NOTHING);
    all.iter().for_each(|peer| table.answers(*peer, &question, "here"));
    assert_eq!(table.said(), ["here", "here"]);
}

#[test]
fn a_question_and_an_answer_that_miss_each_other_are_counted_once_each() {
    let mut table = RequestTestbed::new("sp", "req", &[("answer_timeout_ms", "1")]);
    let peer = table.enter();
    table.asks_for_answers(7, "when?");
    let question = table.given(peer);
    table.waits_in_vain();
    assert_eq!((table.losses(), table.said()), (vec![("no_answer", 1)], vec!["PUBACK 7".into()]));
    table.answers(peer, &question, "now");
    assert_eq!(table.losses(), [("no_answer", 1), ("no_question", 1)]);
    assert_eq!(table.said(), NOTHING);
}

#[test]
fn an_answer_for_a_socket_that_has_gone_finds_nobody() {
    let mut table = RequestTestbed::new("sp", "rep", &[]);
    let peer = table.enter();
    let (envelope, frames) = (vec![vec![0x80, 0, 0, 1]], vec![b"1+1".to_vec()]);
    table.shared.peers.accept_inbound(peer, &mut [MultipartMessage { envelope, frames }].into());
    table.gateway_session.take_inbound();
    let number = table.correlation();
    table.leave(peer);
    table.asks(7, "2", &[Property::CorrelationData(&number)]);
    assert_eq!((table.losses(), table.said()), (vec![("no_peer", 1)], vec!["PUBACK 7".into()]));
}

/// A peer which sends requests over ever new connections gets no more memory than a lasting peer.
#[test]
fn what_sockets_asked_that_have_gone_is_forgotten_before_it_costs_too_much() {
    const SOCKETS: usize = 1000;
    const EACH: usize = 16;
    // The largest accepted envelope.
    let (envelope, most) = (vec![vec![b'i'; 255]; 15], (2 << 20) / 4);
    let mut table = RequestTestbed::new("zmq", "rep", &[("peers_bytes_max", "2MiB")]);
    let mut numbers = Vec::new();
    for _ in 0..SOCKETS {
        let peer = table.enter();
        for _ in 0..EACH {
            let (envelope, frames) = (envelope.clone(), vec![b"?".to_vec()]);
            table
                .shared
                .peers
                .accept_inbound(peer, &mut [MultipartMessage { envelope, frames }].into());
            assert!(table.gateway_session.take_inbound(), "there is room after {}", numbers.len());
            numbers.push(table.correlation());
            table.acknowledges(numbers.len() as u16, ReasonCode::Success);
        }
        table.leave(peer);
    }
    let last = numbers.last().expect("they asked").clone();
    table.asks(0, "late", &[Property::CorrelationData(&last)]);
    assert_eq!(table.losses(), [("no_peer", 1)], "the last are known");
    numbers.iter().for_each(|own| table.asks(0, "late", &[Property::CorrelationData(own)]));
    let known = table.losses().iter().find(|(reason, _)| *reason == "no_peer").map(|own| own.1);
    let bytes = known.unwrap_or_default() as usize * 15 * 255;
    assert!(bytes > 0 && bytes <= most, "{bytes} bytes of {most}");
}

#[test]
fn questions_that_wait_cost_no_more_than_is_allowed() {
    const LONG: &[u8] = &[0; 60_000];
    let (asker, back) = (Property::ResponseTopic("answers"), Property::CorrelationData(LONG));
    let mut table = RequestTestbed::new("sp", "req", &[("peers_bytes_max", "2MiB")]);
    let peer = table.enter();
    // Responses wait for this broker's acknowledgements, so messages for sockets are still read.
    for _ in 0..1024 {
        table.asks(0, "short", &[asker]);
        let question = table.given(peer);
        table.answers(peer, &question, "so");
    }
    table.said();
    (0..30).for_each(|_| table.asks(0, "long", &[asker, back]));
    let given = iter::from_fn(|| table.next(peer)).count();
    // A quarter of `peers_bytes_max` holds nine requests of 60,000 bytes; 256 KiB more wait in the
    // overflow queue.
    assert_eq!(given, 9);
    assert_eq!(table.losses(), [("no_room", 30 - 9 - 5)]);
}

#[test]
fn a_question_is_done_with_when_this_broker_has_its_answer_or_refuses_it() {
    for (reason, losses) in
        [(ReasonCode::Success, &[][..]), (ReasonCode::NotAuthorized, &[("refused_here", 1)])]
    {
        let mut table = RequestTestbed::new("sp", "req", &[]);
        let peer = table.enter();
        table.asks_for_answers(7, "what?");
        let question = table.given(peer);
        table.answers(peer, &question, "that");
        assert_eq!(table.said(), ["that"]);
        table.acknowledges(1, reason);
        assert_eq!(table.said(), ["PUBACK 7"]);
        assert_eq!(table.losses(), losses);
    }
}

#[test]
fn a_question_whose_answer_nobody_acknowledges_is_done_with_at_once() {
    const LONG: &str = "that, and a hundred words more";
    for (qos_max, packet_bytes_max, form, asker, expected) in [
        (QoS::AtMostOnce, u32::MAX, "raw", Some("answers"), &[LONG, "PUBACK 7"][..]),
        (QoS::AtLeastOnce, 30, "raw", Some("answers"), &["PUBACK 7"]),
        (QoS::AtLeastOnce, u32::MAX, "json", Some("answers"), &["PUBACK 7"]),
        (QoS::AtLeastOnce, u32::MAX, "raw", None, &["PUBACK 7"]),
    ] {
        let mut table = RequestTestbed::new("sp", "req", &[("form", form)]);
        table.gateway_session.terms =
            ServerLimits { qos_max, packet_bytes_max, ..ServerLimits::UNSTATED };
        let peer = table.enter();
        let asker = asker.map(Property::ResponseTopic);
        table.asks(7, "what?", asker.as_slice());
        let question = table.given(peer);
        table.answers(peer, &question, LONG);
        assert_eq!(table.said(), expected);
    }
}

#[test]
fn a_question_of_a_connection_before_is_not_acknowledged_to_this_one() {
    let mut table = RequestTestbed::new("sp", "req", &[]);
    let peer = table.enter();
    table.asks_for_answers(7, "what?");
    let question = table.given(peer);
    table.answers(peer, &question, "that");
    table.said();
    table.gateway_session.begin_connection(TERMS);
    assert_eq!(table.said(), ["that"]);
    table.acknowledges(1, ReasonCode::Success);
    assert_eq!(table.said(), NOTHING);
}
