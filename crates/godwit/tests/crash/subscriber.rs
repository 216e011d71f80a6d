//! A subscriber with a persistent session, which handles messages as specified and acknowledges
//! them after random delays.

use crate::chance::CrashRng;
use crate::judge::{DeliveryJudge, number_in};
use crate::line::BrokerPacket;
use crate::peer::CrashPeer;
use mqtt::{Disconnect, Packet, PacketId, PacketType, Properties, QoS, ReasonCode, Subscribe};
use mqtt::{ProtocolVersion, SubscribeOptions, SubscriptionListBuf};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(crate) struct CrashSubscriber {
    pub(crate) peer: CrashPeer,
    filters: &'static [&'static str],
    qos: QoS,
    /// Receiver of the arrivals in the judge: the session or its shared group.
    claim: usize,
    habit: SubscriberHabit,
    away: bool,
    /// Time at which the subscriber connects or disconnects next.
    turns_at: Instant,
    answers: VecDeque<(PacketType, PacketId)>,
    subscribed: bool,
    /// Whether acknowledgements are sent without delay.
    pub(crate) eager: bool,
    pings: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriberHabit {
    /// Reconnects at once after a kill.
    Steady,
    /// Connects and disconnects at random.
    Fickle,
    /// Stays disconnected until the end of the round.
    Sleeper,
}

impl CrashSubscriber {
    pub(crate) fn new(
        id: String,
        version: ProtocolVersion,
        (filters, qos): (&'static [&'static str], QoS),
        claim: usize,
        habit: SubscriberHabit,
        rng: &mut CrashRng,
    ) -> CrashSubscriber {
        CrashSubscriber {
            peer: CrashPeer::new(id, version, rng.of(&[1, 5, 20, u16::MAX])),
            filters,
            qos,
            claim,
            habit,
            away: false,
            turns_at: Instant::now(),
            answers: VecDeque::new(),
            subscribed: false,
            eager: true,
            pings: 0,
        }
    }

    /// Lets the subscriber follow its habit from now on, or, if `stays` is set, stay connected.
    pub(crate) fn live(&mut self, stays: bool) {
        self.eager = stays;
        self.turns_at = Instant::now();
        if stays {
            (self.habit, self.away) = (SubscriberHabit::Steady, false);
        }
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscribed
    }

    /// Whether all received messages are completely acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.peer.is_here() && self.answers.is_empty() && self.peer.session.has_released_all()
    }

    /// Sends PINGREQ; `pings_left` is the number of outstanding PINGRESP.
    pub(crate) fn ping(&mut self) {
        self.pings += 1;
        self.peer.say(Packet::PingReq);
    }

    pub(crate) fn pings_left(&self) -> u32 {
        self.pings
    }

    pub(crate) fn turn(
        &mut self,
        address: SocketAddr,
        judge: &mut DeliveryJudge,
        rng: &mut CrashRng,
    ) -> bool {
        if self.subscribed && !self.comes(rng) {
            return false;
        }
        let heard = self.peer.turn(address);
        let moved = !heard.is_empty();
        for heard in heard {
            self.hear(heard, judge);
        }
        if !self.peer.is_here() {
            self.answers.clear();
            self.pings = 0;
        }
        self.answer(judge, rng);
        self.peer.flush();
        moved
    }

    /// Whether the subscriber is to be connected now, according to its habit. Disconnects when the
    /// time has come.
    fn comes(&mut self, rng: &mut CrashRng) -> bool {
        match self.habit {
            SubscriberHabit::Steady => return true,
            SubscriberHabit::Sleeper => self.leave(rng),
            SubscriberHabit::Fickle if Instant::now() < self.turns_at => {}
            SubscriberHabit::Fickle => {
                self.turns_at = Instant::now() + Duration::from_millis(1 + rng.below(100));
                if self.away {
                    self.away = false;
                } else {
                    self.leave(rng);
                }
            }
        }
        !self.away
    }

    fn leave(&mut self, rng: &mut CrashRng) {
        if self.peer.is_here() && rng.once_in(2) {
            let (reason, properties) = (ReasonCode::Success, Properties::default());
            self.peer.say(Packet::Disconnect(Disconnect { reason, properties }));
            self.peer.flush();
        }
        self.peer.cut();
        self.answers.clear();
        self.away = true;
    }

    pub(crate) fn hear(&mut self, heard: BrokerPacket, judge: &mut DeliveryJudge) {
        match heard {
            BrokerPacket::Welcome { .. } => {
                judge.note(|_| format!("{} is here", self.peer.id));
                if !self.subscribed {
                    self.subscribe();
                }
            }
            BrokerPacket::Subscribed { codes } => {
                assert!(codes.iter().all(|&code| code == self.qos as u8), "{codes:?}");
                self.subscribed = true;
                self.peer.is_known = true;
            }
            BrokerPacket::Pong => self.pings -= 1,
            BrokerPacket::Ack { kind: PacketType::PubRel, packet_id, .. } => {
                judge.note(|_| format!("{} <- PubRel {packet_id}", self.peer.id));
                self.peer.session.on_pubrel(packet_id);
                self.answers.push_back((PacketType::PubComp, packet_id));
            }
            BrokerPacket::Message { qos, packet_id, topic, payload, .. } => {
                assert!(qos > QoS::AtMostOnce && qos <= self.qos, "{}: {qos:?}", self.peer.id);
                // More of the same id before its release is the same [MQTT-4.3.3-10].
                let is_new = self.peer.session.on_publish(qos, packet_id);
                let packet_id = packet_id.expect("QoS above 0");
                self.answers.push_back(match qos {
                    QoS::ExactlyOnce => (PacketType::PubRec, packet_id),
                    _ => (PacketType::PubAck, packet_id),
                });
                if !is_new {
                    return judge.note(|_| format!("{} {packet_id} {topic} known", self.peer.id));
                }
                judge.note(|_| {
                    let number = number_in(&payload);
                    format!("{} <- {topic} {number:?} as {packet_id}", self.peer.id)
                });
                judge.arrived(self.claim, &self.peer.id, &topic, number_in(&payload));
            }
            other => panic!("{}: nobody asked for {other:?}", self.peer.id),
        }
    }

    fn subscribe(&mut self) {
        let mut filters = SubscriptionListBuf::default();
        for filter in self.filters {
            filters.push(filter, SubscribeOptions { qos: self.qos, ..Default::default() });
        }
        let (packet_id, properties) = (PacketId::MIN, Properties::default());
        let filters = filters.as_subscriptions();
        self.peer.say(Packet::Subscribe(Subscribe { packet_id, properties, filters }));
    }

    /// Sends some or all outstanding acknowledgements, in the order of the packets [MQTT-4.6.0-2]
    /// [MQTT-4.6.0-3].
    fn answer(&mut self, judge: &mut DeliveryJudge, rng: &mut CrashRng) {
        let count = match self.eager {
            true => self.answers.len(),
            false => self.answers.len().min(rng.below(8) as usize),
        };
        for (kind, packet_id) in self.answers.drain(..count) {
            judge.note(|_| format!("{} {kind:?} {packet_id}", self.peer.id));
            self.peer.acknowledge(kind, packet_id);
        }
    }
}
