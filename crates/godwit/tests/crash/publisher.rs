//! A publisher that follows the protocol: after each new connection, unacknowledged messages are
//! sent again in order, with DUP, and PUBREL for messages with PUBREC [MQTT-4.4.0-1].

use crate::chance::CrashRng;
use crate::judge::{DeliveryJudge, MessageName, number_in};
use crate::line::BrokerPacket;
use crate::peer::CrashPeer;
use mqtt::{Packet, PacketId, PacketType, Properties, ProtocolVersion, Publish, QoS, ReasonCode};
use std::collections::VecDeque;
use std::net::SocketAddr;

pub(crate) struct CrashPublisher {
    pub(crate) peer: CrashPeer,
    qos: QoS,
    retain: bool,
    topics: Vec<usize>,
    window: usize,
    flight: VecDeque<InflightMessage>,
    /// Last packet id used. Ids go up to `ids`; with a small `ids` they are soon used again.
    id: u16,
    ids: u16,
    /// Number of messages to publish before the next kill of the broker.
    pub(crate) left: u32,
}

struct InflightMessage {
    packet_id: PacketId,
    name: MessageName,
    payload: Vec<u8>,
    /// Whether PUBREC was received.
    received: bool,
}

impl CrashPublisher {
    pub(crate) fn new(
        id: String,
        version: ProtocolVersion,
        qos: QoS,
        retain: bool,
        judge: &mut DeliveryJudge,
        rng: &mut CrashRng,
    ) -> CrashPublisher {
        let (kind, count) = if retain { ("r", 6) } else { ("c", 2) };
        let topics =
            (0..count).map(|at| judge.topic(format!("{kind}/{id}/{at}"), qos, retain)).collect();
        let window = rng.of(&[1, 4, 16]);
        let ids = rng.of(&[window, u16::MAX]);
        let peer = CrashPeer::new(id, version, u16::MAX);
        CrashPublisher {
            peer,
            qos,
            retain,
            topics,
            window: window.into(),
            flight: VecDeque::new(),
            id: 0,
            ids,
            left: 1,
        }
    }

    /// Whether all messages of this round are published and completely acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.flight.is_empty()
    }

    /// Connects, reads and publishes. Returns whether there was any progress.
    pub(crate) fn turn(
        &mut self,
        address: SocketAddr,
        judge: &mut DeliveryJudge,
        rng: &mut CrashRng,
    ) -> bool {
        let heard = self.peer.turn(address);
        let mut moved = !heard.is_empty();
        for heard in heard {
            self.hear(heard, judge);
        }
        if self.peer.is_here() && self.left > 0 && rng.once_in(4) {
            for _ in 0..1 + rng.below(8) {
                moved |= self.make(judge, rng);
            }
        }
        self.peer.flush();
        moved
    }

    pub(crate) fn hear(&mut self, heard: BrokerPacket, judge: &mut DeliveryJudge) {
        let (kind, packet_id) = match heard {
            BrokerPacket::Welcome { .. } => return self.send_again(judge),
            BrokerPacket::Ack { kind, packet_id, reason } => {
                // The broker may have been killed after it forgot the id and before it said so.
                let forgotten =
                    kind == PacketType::PubComp && reason == ReasonCode::PacketIdentifierNotFound;
                assert!(
                    (reason as u8) < 0x80 || forgotten,
                    "{}: {kind:?} {reason:?}",
                    self.peer.id
                );
                (kind, packet_id)
            }
            other => panic!("{}: nobody asked for {other:?}", self.peer.id),
        };
        let place = self.flight.iter().position(|flying| flying.packet_id == packet_id);
        let Some(place) = place else {
            panic!("{}: {kind:?} {packet_id} of nothing", self.peer.id);
        };
        let flying = &mut self.flight[place];
        match (kind, self.qos) {
            (PacketType::PubAck, QoS::AtLeastOnce) => {
                judge.acknowledged(flying.name);
                self.peer.is_known = true;
                self.flight.remove(place);
            }
            (PacketType::PubRec, QoS::ExactlyOnce) => {
                if !flying.received {
                    flying.received = true;
                    judge.acknowledged(flying.name);
                }
                self.peer.is_known = true;
                self.peer.acknowledge(PacketType::PubRel, packet_id);
            }
            (PacketType::PubComp, QoS::ExactlyOnce) => {
                assert!(flying.received, "{}: PUBCOMP before PUBREC", self.peer.id);
                self.flight.remove(place);
            }
            _ => panic!("{}: {kind:?} for {:?}", self.peer.id, self.qos),
        }
    }

    fn send_again(&mut self, judge: &mut DeliveryJudge) {
        let flight = std::mem::take(&mut self.flight);
        for flying in &flight {
            let packet_id = flying.packet_id;
            judge.note(|judge| {
                let what = if flying.received { "PubRel" } else { "again" };
                format!("{} {what} {packet_id}", judge.say(flying.name))
            });
            match flying.received {
                true => self.peer.acknowledge(PacketType::PubRel, flying.packet_id),
                false => self.send(flying, true, judge),
            }
        }
        self.flight = flight;
    }

    /// Publishes a new message if the window has room.
    fn make(&mut self, judge: &mut DeliveryJudge, rng: &mut CrashRng) -> bool {
        if self.flight.len() >= self.window || self.left == 0 {
            return false;
        }
        self.left -= 1;
        let topic = rng.of(&self.topics);
        let clears = self.retain && rng.once_in(4);
        let packet_id = self.free_id();
        let name = judge.sent(topic, clears, packet_id.get());
        let mut payload = Vec::new();
        if !clears {
            payload.extend_from_slice(&name.number.to_be_bytes());
            let len = if rng.once_in(10) { 1 << rng.below(15) } else { rng.below(60) };
            payload.resize(4 + len as usize, b'.');
        }
        let flying = InflightMessage { packet_id, name, payload, received: false };
        self.send(&flying, false, judge);
        self.flight.push_back(flying);
        true
    }

    /// Returns a free packet id. One is free, because there are at least as many ids as places in
    /// the window.
    fn free_id(&mut self) -> PacketId {
        loop {
            self.id = self.id % self.ids + 1;
            let packet_id = PacketId::new(self.id).expect("above 0");
            if self.flight.iter().all(|flying| flying.packet_id != packet_id) {
                return packet_id;
            }
        }
    }

    /// Records a message that a trace contains, as the publisher would have sent it.
    pub(crate) fn made(&mut self, publish: &Publish<'_>, judge: &mut DeliveryJudge) {
        let clears = publish.payload.is_empty();
        let packet_id = publish.packet_id.expect("QoS above 0");
        let mut topics = self.topics.iter().copied();
        let topic = topics.find(|&topic| judge.name_of(topic) == publish.topic);
        let name = judge.sent(topic.expect("a topic of its own"), clears, packet_id.get());
        assert!(clears || number_in(publish.payload) == Some(name.number), "in its order");
        let payload = publish.payload.to_vec();
        self.flight.push_back(InflightMessage { packet_id, name, payload, received: false });
        self.id = packet_id.get();
    }

    fn send(&mut self, flying: &InflightMessage, dup: bool, judge: &DeliveryJudge) {
        self.peer.say(Packet::Publish(Publish {
            dup,
            qos: self.qos,
            retain: self.retain,
            topic: judge.name_of(flying.name.topic),
            packet_id: Some(flying.packet_id),
            properties: Properties::default(),
            payload: &flying.payload,
        }));
    }
}
