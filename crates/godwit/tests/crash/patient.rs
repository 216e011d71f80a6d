//! A client that performs one action after another, and waits for the response to each.

use crate::line::BrokerPacket;
use crate::peer::CrashPeer;
use mqtt::{Packet, PacketId, PacketType, Properties, Publish, QoS, ReasonCode};
use mqtt::{ProtocolVersion, Subscribe, SubscribeOptions, SubscriptionListBuf};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct PatientClient {
    peer: CrashPeer,
    address: SocketAddr,
    heard: VecDeque<BrokerPacket>,
}

impl PatientClient {
    /// Connects with a session that expires after `expiry_s` seconds. Waits until the broker
    /// listens.
    pub(crate) fn connect(address: SocketAddr, id: &str, expiry_s: u32) -> PatientClient {
        let mut peer = peer(id);
        peer.expiry_s = expiry_s;
        PatientClient::greet(address, peer)
    }

    /// Connects to an existing session, which the broker must still have.
    pub(crate) fn come_back(address: SocketAddr, id: &str) -> PatientClient {
        let mut peer = peer(id);
        peer.is_known = true;
        PatientClient::greet(address, peer)
    }

    fn greet(address: SocketAddr, peer: CrashPeer) -> PatientClient {
        let mut patient = PatientClient { peer, address, heard: VecDeque::new() };
        let heard = patient.hear();
        assert!(matches!(heard, BrokerPacket::Welcome { .. }), "{heard:?}");
        patient
    }

    fn hear(&mut self) -> BrokerPacket {
        let began = Instant::now();
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return heard;
            }
            self.heard.extend(self.peer.turn(self.address));
            self.peer.flush();
            if self.heard.is_empty() {
                assert!(began.elapsed() < PATIENCE, "{} hears nothing", self.peer.id);
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    pub(crate) fn subscribe(&mut self, filter: &str) {
        let mut filters = SubscriptionListBuf::default();
        filters.push(filter, SubscribeOptions { qos: QoS::AtLeastOnce, ..Default::default() });
        let (packet_id, properties) = (PacketId::MIN, Properties::default());
        let filters = filters.as_subscriptions();
        self.peer.say(Packet::Subscribe(Subscribe { packet_id, properties, filters }));
        let heard = self.hear();
        assert!(matches!(&heard, BrokerPacket::Subscribed { codes } if codes == &[1]), "{heard:?}");
    }

    /// Publishes at QoS 1. Returns the reason code of PUBACK.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8]) -> ReasonCode {
        self.say_publish(topic, payload);
        match self.hear() {
            BrokerPacket::Ack { kind: PacketType::PubAck, reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    fn say_publish(&mut self, topic: &str, payload: &[u8]) {
        self.peer.say(Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic,
            packet_id: Some(PacketId::MIN),
            properties: Properties::default(),
            payload,
        }));
        self.peer.flush();
    }

    /// Publishes at QoS 1 to a topic to which the client itself is subscribed, and waits for PUBACK
    /// and for the message, in any order. Returns the reason code.
    pub(crate) fn publish_to_itself(&mut self, topic: &str, payload: &[u8]) -> ReasonCode {
        self.say_publish(topic, payload);
        let (mut came, mut reason) = (false, None);
        while !came || reason.is_none() {
            match self.hear() {
                BrokerPacket::Ack { reason: said, .. } => reason = Some(said),
                BrokerPacket::Message { payload: said, .. } => came = said == payload,
                other => panic!("{other:?}"),
            }
        }
        reason.expect("it was waited for")
    }

    /// Publishes each number as a payload at QoS 1, `AT_A_TIME` messages at a time.
    pub(crate) fn publish_many(&mut self, topic: &str, numbers: std::ops::Range<u32>) {
        for first in numbers.clone().step_by(AT_A_TIME as usize) {
            let some = first..numbers.end.min(first + AT_A_TIME);
            for number in some.clone() {
                self.peer.say(Packet::Publish(Publish {
                    dup: false,
                    qos: QoS::AtLeastOnce,
                    retain: false,
                    topic,
                    packet_id: PacketId::new(1 + (number - first) as u16),
                    properties: Properties::default(),
                    payload: &number.to_be_bytes(),
                }));
            }
            self.peer.flush();
            for _ in some {
                match self.hear() {
                    BrokerPacket::Ack { kind: PacketType::PubAck, reason, .. } => {
                        assert_eq!(reason, ReasonCode::Success);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Returns packet id and payload of the next message, without an acknowledgement.
    pub(crate) fn keep_waiting(&mut self) -> (PacketId, Vec<u8>) {
        match self.hear() {
            BrokerPacket::Message { packet_id, payload, .. } => {
                (packet_id.expect("QoS 1 has an id"), payload)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the payload of the next message, and acknowledges the message.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match self.hear() {
            BrokerPacket::Message { packet_id, payload, .. } => {
                self.peer.acknowledge(PacketType::PubAck, packet_id.expect("QoS 1 has an id"));
                self.peer.flush();
                payload
            }
            other => panic!("{other:?}"),
        }
    }
}

fn peer(id: &str) -> CrashPeer {
    CrashPeer::new(id.to_string(), ProtocolVersion::V5, 100)
}

/// Timeout of every wait, long enough for a busy host.
const PATIENCE: Duration = Duration::from_secs(20);
const AT_A_TIME: u32 = 500;
