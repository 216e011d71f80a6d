//! A subscriber that reads all retained messages once.

use crate::judge::{DeliveryJudge, number_in};
use crate::line::{BrokerPacket, CrashConnection};
use mqtt::ProtocolVersion;
use mqtt::{
    Connect, Packet, PacketId, Properties, Subscribe, SubscribeOptions, SubscriptionListBuf,
};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct RetainedReader {
    line: Option<CrashConnection>,
    began: Option<Instant>,
    /// Least message of each retained topic, by index of the topic, as of the moment before the
    /// SUBSCRIBE.
    least: Vec<(usize, Option<u32>)>,
    found: HashSet<usize>,
    /// Whether all expected retained messages have arrived.
    pub(crate) is_done: bool,
}

impl RetainedReader {
    pub(crate) fn turn(&mut self, address: SocketAddr, judge: &DeliveryJudge) -> bool {
        if self.is_done {
            return false;
        }
        if self.line.is_none() {
            *self = RetainedReader {
                line: CrashConnection::open(address, ProtocolVersion::V5),
                ..RetainedReader::default()
            };
            self.greet();
        }
        let Some(line) = &mut self.line else { return false };
        let (heard, lives) = line.listen();
        let moved = !heard.is_empty();
        for heard in heard {
            self.hear(heard, judge);
        }
        self.look(judge);
        if !lives || self.line.as_mut().is_some_and(|line| !line.flush()) {
            self.line = None;
        }
        moved
    }

    fn greet(&mut self) {
        let Some(line) = &mut self.line else { return };
        line.say(Packet::Connect(Connect {
            is_bridge: false,
            version: ProtocolVersion::V5,
            clean_start: true,
            keep_alive_s: 0,
            client_id: "reader",
            will: None,
            user_name: None,
            password: None,
            properties: Properties::default(),
        }));
        line.flush();
    }

    fn hear(&mut self, heard: BrokerPacket, judge: &DeliveryJudge) {
        match heard {
            BrokerPacket::Welcome { .. } => {
                self.least = judge.retained();
                self.began = Some(Instant::now());
                let mut filters = SubscriptionListBuf::default();
                filters.push("r/#", SubscribeOptions::default());
                let (packet_id, properties) = (PacketId::MIN, Properties::default());
                let filters = filters.as_subscriptions();
                let subscribe = Subscribe { packet_id, properties, filters };
                if let Some(line) = &mut self.line {
                    line.say(Packet::Subscribe(subscribe));
                }
            }
            BrokerPacket::Message { retain: true, topic, payload, .. } => {
                self.found.insert(judge.was_retained(&topic, number_in(&payload), &self.least));
            }
            BrokerPacket::Message { .. } | BrokerPacket::Subscribed { .. } => {}
            other => panic!("the reader did not ask for {other:?}"),
        }
    }

    fn look(&mut self, judge: &DeliveryJudge) {
        let Some(began) = self.began else { return };
        let missing = self.least.iter().find(|(topic, least)| {
            judge.must_be_retained(*topic, *least) && !self.found.contains(topic)
        });
        match missing {
            None => self.is_done = true,
            Some((topic, number)) => assert!(
                began.elapsed() < PATIENCE,
                "{} {number:?} was acknowledged and is not retained",
                judge.name_of(*topic)
            ),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
