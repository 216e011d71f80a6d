//! Requests and responses of the patterns REQ, REP, SURVEYOR and RESPONDENT.

use super::super::formats::{self, InboundMessage};
use super::super::peer_message::{PeerId, named, parcel};
use super::super::pending_requests::OutboundRequest;
use super::*;
use crate::metrics::LinkDropReason;
use mqtt::{Property, Publish, QoS};
use tokio::time::Instant;
use zmtp_sp::{MultipartMessage, ProtocolFamily, RoutingStrategy};

impl GatewaySession {
    /// Sends a request of an MQTT client to sockets. Responses go to the Response Topic of the
    /// request.
    pub(super) fn send_request(&mut self, publish: &Publish<'_>, frames: Vec<Vec<u8>>) {
        let mut asked = OutboundRequest {
            topic: publish.topic.into(),
            response: None,
            correlation: None,
            receipt: publish.packet_id.map(|id| (self.epoch, id)),
            due: Instant::now() + self.settings().answer_timeout(),
            assigned_peer: None,
        };
        for property in publish.properties.iter() {
            match property {
                // A socket must not make the gateway publish to topics with "$".
                Property::ResponseTopic(topic) if !topic.starts_with('$') => {
                    asked.response = Some(topic.into());
                }
                Property::CorrelationData(data) => asked.correlation = Some(data.into()),
                _ => {}
            }
        }
        let is_survey = self.settings().pattern.routing() == RoutingStrategy::All;
        if is_survey {
            asked.receipt = None;
            self.acknowledge_publish(publish.packet_id);
        }
        let number = self.requests.add_outbound(asked);
        let mut question = MultipartMessage::new_request(number, frames);
        if self.settings().family == ProtocolFamily::Zmq {
            question.envelope.insert(0, self.requests.proof(number).to_vec());
        }
        let given_to = if is_survey {
            self.broadcast(&parcel(question, None), publish.topic);
            Some(self.crowd().newest())
        } else {
            let receipt = publish.packet_id.map(|id| (self.epoch, id));
            self.crowd().assign(named(publish.topic, question, receipt), self.settings())
        };
        given_to.into_iter().for_each(|peer| self.requests.assign_peer(number, peer));
    }

    /// Sends a client's response to the socket which sent the request. The Correlation Data names
    /// the request.
    pub(super) fn send_response(&mut self, publish: &Publish<'_>) {
        let correlation = publish.properties.iter().find_map(|property| match property {
            Property::CorrelationData(data) => <[u8; 8]>::try_from(data).ok(),
            _ => None,
        });
        let told =
            correlation.and_then(|data| self.requests.take_inbound(u64::from_be_bytes(data)));
        match told {
            None => self.count_drop(LinkDropReason::NoRule, publish.topic),
            Some(told) => {
                let frames = formats::encode_response(self.settings(), publish);
                let message = MultipartMessage { envelope: told.envelope, frames };
                let peer_message = parcel(message, None);
                if let Err(loss) = self.crowd().send_to(told.peer, peer_message, self.settings()) {
                    self.count_drop(loss, publish.topic);
                }
            }
        }
        self.acknowledge_publish(publish.packet_id);
    }

    /// Whether the peer may respond to the request. A ZeroMQ socket which reconnects is a new peer,
    /// and proves by the envelope that it got the request.
    pub(super) fn may_answer(&self, peer: PeerId, number: u32, envelope: &[Vec<u8>]) -> bool {
        let Some(asked) = self.requests.assigned_peer(number) else { return false };
        let proof = self.requests.proof(number);
        let is_back = || {
            let shows = envelope.len() == 2 && envelope[0] == proof;
            shows && peer > asked && !self.crowd().has(asked)
        };
        match self.settings().pattern.routing() {
            RoutingStrategy::One => {
                peer == asked || self.settings().family == ProtocolFamily::Zmq && is_back()
            }
            _ => peer <= asked,
        }
    }

    pub(super) fn on_peer_response(&mut self, peer: PeerId, message: MultipartMessage) {
        let is_last = self.settings().pattern.routing() == RoutingStrategy::One;
        let envelope = &message.envelope;
        let number = message.request_id().filter(|own| self.may_answer(peer, *own, envelope));
        let asked = number.and_then(|number| self.requests.take_outbound(number, is_last));
        let Some(asked) = asked else {
            let about = "it came too late, or another socket was asked";
            return self.count_drop(LinkDropReason::NoQuestion, about);
        };
        let Some(topic) = asked.response else { return self.acknowledge_receipt(asked.receipt) };
        let (payload, mut properties) =
            match formats::decode_response(self.settings(), message.frames) {
                Ok(answer) => answer,
                Err((loss, about)) => {
                    self.count_drop(loss, &about);
                    return self.acknowledge_receipt(asked.receipt);
                }
            };
        if let Some(correlation) = &asked.correlation {
            properties.push(Property::CorrelationData(correlation));
        }
        let (qos, retain) = (QoS::AtLeastOnce, false);
        let inward = InboundMessage { topic: topic.into(), payload, qos, retain, properties };
        self.publish_inbound(&inward, asked.receipt);
    }
}
