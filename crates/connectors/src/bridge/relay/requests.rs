//! Requests of a relay to both brokers at the start of a connection.

use super::{BridgeRule, Relay, RetainedPolicy};
use crate::local_session::{encode_subscribe, encode_unsubscribe};
use mqtt::{PacketId, PacketType, ProtocolVersion, ReasonCode, SubscribeOptions};

/// Filters of a SUBSCRIBE; none of an UNSUBSCRIBE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WantedFilters(Vec<(String, SubscribeOptions)>);

/// Maximum number of filters in one SUBSCRIBE. AWS IoT Core closes the connection above this number
/// (its quotas of the message broker).
const FILTERS_MAX: usize = 8;

/// Packet id of requests to this broker. Messages use packet ids of the remote broker, and this
/// broker accepts a request with the packet id of a message.
const OF_REQUESTS_HERE: PacketId = PacketId::MIN;

impl Relay {
    /// Sends the requests: releases stale ids, subscribes the inward rules, and unsubscribes the
    /// filters in `gone`. `left` is the note about open exchanges, removed when no stale id
    /// remains.
    pub fn send_requests(&mut self, gone: &[String], left: Option<String>) {
        self.left_note = left;
        for id in self.failover.stale().clone() {
            self.push_remote_receipt(PacketType::PubRel, id);
        }
        self.clear_left_note();
        self.request_retained();
        let options = |rule: &BridgeRule| rule.subscribe_options(self.local_limits.qos_max);
        let wanted = self.rules.inward.iter();
        let wanted = wanted.map(|rule| (rule.map.filter.clone(), options(rule)));
        let wanted: Vec<_> = wanted.collect();
        for part in wanted.chunks(FILTERS_MAX) {
            self.push_subscribe(part.to_vec());
        }
        for part in gone.chunks(FILTERS_MAX) {
            let none = WantedFilters::default();
            let Some(id) = self.pending_requests.add(PacketType::UnsubAck, none) else { return };
            encode_unsubscribe(id, part, self.remote_limits.version, &mut self.to_remote);
        }
    }

    /// Requests the local retained messages again, for rules with [`RetainedPolicy::Always`].
    fn request_retained(&mut self) {
        let options = |rule: &BridgeRule| rule.subscribe_options(self.local_limits.qos_max);
        let outward = self.rules.outward.iter();
        let wanted = outward.filter(|rule| rule.retained == RetainedPolicy::Always);
        let mut wanted = wanted.map(|rule| (&*rule.map.filter, options(rule))).peekable();
        if wanted.peek().is_some() {
            encode_subscribe(OF_REQUESTS_HERE, wanted, ProtocolVersion::V5, &mut self.to_local);
        }
    }

    /// Records the release of a stale packet id.
    pub(super) fn on_id_released(&mut self) {
        self.last_answer = self.now;
        self.clear_left_note();
    }

    /// Removes the note once no stale id remains.
    fn clear_left_note(&mut self) {
        if self.failover.stale().is_empty()
            && let Some(left) = self.left_note.take()
        {
            encode_unsubscribe(OF_REQUESTS_HERE, &[left], ProtocolVersion::V5, &mut self.to_local);
        }
    }

    fn push_subscribe(&mut self, wanted: Vec<(String, SubscribeOptions)>) {
        // Requests are far fewer than packet ids.
        let Some(id) = self.pending_requests.next_id() else { return };
        let filters = wanted.iter().map(|(filter, options)| (&**filter, *options));
        encode_subscribe(id, filters, self.remote_limits.version, &mut self.to_remote);
        self.pending_requests.add(PacketType::SubAck, WantedFilters(wanted));
    }

    /// Counts an UNSUBACK only if it was expected: otherwise responses to nothing would keep the
    /// connection alive for ever.
    pub(super) fn on_unsuback(&mut self, packet_id: PacketId) {
        if self.pending_requests.answer_request(PacketType::UnsubAck, packet_id).is_some() {
            self.last_answer = self.now;
        }
    }

    pub(super) fn on_suback(&mut self, packet_id: PacketId, codes: &[u8]) {
        let request = self.pending_requests.answer_request(PacketType::SubAck, packet_id);
        let Some(WantedFilters(wanted)) = request else { return };
        if codes.first() == Some(&ReasonCode::PacketIdentifierInUse.code()) {
            return self.push_subscribe(wanted);
        }
        self.last_answer = self.now;
        for ((filter, _), code) in wanted.iter().zip(codes).filter(|(_, code)| **code >= 0x80) {
            let why = ReasonCode::from_byte(*code).map_or("", ReasonCode::name);
            self.metrics.record_failure(
                &self.name,
                format!("it does not let us subscribe to {filter}: {why}"),
            );
        }
    }
}
