//! The protocol of a gateway, without I/O: packets of the local session and messages of sockets.
//!
//! ```text
//!   local session          session task                       sockets
//!   PUBLISH 7 "t"  ---->   name, form          ---->  all, one, or the requester
//!   PUBACK 7       <----   on arrival          <----
//!   PUBLISH 3      <----   rule, form          <----  a message
//!   PUBACK 3       ---->   removed from `unacked`
//! ```

mod requests;

use super::formats::{self, InboundMessage};
use super::overflow::OverflowQueue;
use super::peer::GatewayShared;
use super::peer_message::{PeerId, PeerMessage, SessionReceipt, named, parcel};
use super::peer_set::PeerSet;
use super::pending_requests::{InboundRequest, PendingRequests};
use super::settings::GatewaySettings;
use super::unacked_publishes::UnackedPublishes;
use crate::local_session::{
    FilterRefusal, PreparedSession, encode_ack, encode_subscribe, refused_filters, row_name,
};
use crate::metrics::LinkDropReason;
use crate::new_filters::NewLinkFilters;
use mqtt::client::ServerLimits;
use mqtt::{
    Packet, PacketId, PacketType, Property, ProtocolVersion, Publish, PublishAck, QoS, ReasonCode,
    SubscribeOptions,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use zmtp_sp::{MultipartMessage, RoutingStrategy};

/// State of a gateway across connections to the local session.
pub(super) struct GatewaySession {
    shared: GatewayShared,
    pub(super) terms: ServerLimits,
    pub(super) to_near: Vec<u8>,
    unacked: UnackedPublishes,
    requests: PendingRequests,
    pub(super) overflow: OverflowQueue,
    /// Number of the connection to the local session.
    epoch: u64,
    response_topic: String,
    refused: Vec<FilterRefusal>,
    /// Filters whose retained messages have not begun to arrive.
    pub(super) new_filters: NewLinkFilters,
    /// Time of the next request for refused subscriptions.
    ask_again: Option<Instant>,
    /// Whether messages for sockets are left to the session, which sends them again over the next
    /// connection.
    passes_over: bool,
}

/// Bytes waiting for the local session above which no message is added.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// Interval at which refused subscriptions are requested again.
const REFUSED_RETRY: Duration = Duration::from_secs(10);

impl GatewaySession {
    pub(super) fn new(shared: GatewayShared, terms: ServerLimits) -> GatewaySession {
        let answers_at = shared.settings.response_topic();
        GatewaySession {
            shared,
            terms,
            to_near: Vec::new(),
            unacked: UnackedPublishes::default(),
            requests: PendingRequests::default(),
            overflow: OverflowQueue::default(),
            epoch: 0,
            response_topic: answers_at,
            refused: Vec::new(),
            new_filters: NewLinkFilters::default(),
            ask_again: None,
            passes_over: false,
        }
    }

    fn settings(&self) -> &GatewaySettings {
        &self.shared.settings
    }

    fn crowd(&self) -> &PeerSet {
        &self.shared.peers
    }

    /// Starts a new connection to the local session. Both sides send unacknowledged messages again.
    pub(super) fn begin_connection(&mut self, terms: ServerLimits) {
        self.terms = terms;
        self.epoch += 1;
        self.crowd().drop_receipts();
        self.requests.forget_receipts();
        self.overflow.drop_resendable();
        self.to_near.clear();
        self.passes_over = false;
        self.unacked.resend_all(&mut self.to_near);
    }

    /// Subscribes again if the broker's decision may differ: with an identity, or after a refusal.
    pub(super) fn subscribe_again(&mut self) {
        let is_judged = self.settings().identity().is_some() || !self.refused.is_empty();
        if !is_judged || self.unacked.awaits_suback() {
            return;
        }
        let wanted = without_retained(self.settings().subscriptions(self.terms.qos_max));
        if wanted.is_empty() {
            return;
        }
        let filters = wanted.iter().map(|(filter, options)| (filter.as_str(), *options));
        let Some(id) = self.unacked.next_packet_id() else { return };
        encode_subscribe(id, filters, ProtocolVersion::V5, &mut self.to_near);
        self.unacked.push_subscribe(wanted.into_iter().map(|(filter, _)| filter).collect());
    }

    /// Handles the result of the preparation of the local session.
    pub(super) fn on_prepared(&mut self, prepared: PreparedSession) {
        self.new_filters = prepared.new_filters;
        self.on_refused_filters(prepared.refused);
    }

    /// Records refused subscriptions for the log and the retry; the other subscriptions are in
    /// force.
    fn on_refused_filters(&mut self, refused: Vec<FilterRefusal>) {
        self.ask_again = (!refused.is_empty()).then(|| Instant::now() + REFUSED_RETRY);
        if refused == self.refused {
            return;
        }
        let GatewayShared { settings, metrics, .. } = &self.shared;
        match refused.is_empty() {
            true => metrics.set_error(String::new()),
            false => metrics.record_failure(&settings.name, refused.join("; ")),
        }
        self.refused = refused;
    }

    /// Handles bytes of the local session. Returns the number of consumed bytes, or the reason for
    /// the end of the connection.
    pub(super) fn read_session(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let wrong = |violation: mqtt::Violation| violation.description().to_string();
        let mut taken = 0;
        while let Some(frame) = mqtt::split_frame(&bytes[taken..], u32::MAX).map_err(wrong)? {
            let is_publish = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
            if is_publish && self.has_backpressure() {
                break;
            }
            let whole = &bytes[taken..taken + frame.len];
            taken += frame.len;
            match Packet::decode(frame, ProtocolVersion::V5).map_err(wrong)? {
                Packet::Publish(publish) if !self.passes_over => {
                    self.accept_publish(&publish, whole)
                }
                Packet::Publish(publish) if publish.packet_id.is_none() => {
                    self.count_drop(LinkDropReason::NoPeer, publish.topic);
                }
                Packet::SubAck(ack) => {
                    let asked_for = self.unacked.take_subscribe(ack.packet_id);
                    self.on_refused_filters(refused_filters(
                        asked_for.iter().map(String::as_str),
                        ack.codes,
                    ));
                }
                Packet::PubAck(ack) => self.on_broker_ack(&ack),
                Packet::Disconnect(goodbye) => {
                    return Err(format!("this broker ended the connection: {}", goodbye.reason));
                }
                _ => {}
            }
        }
        Ok(taken)
    }

    /// Whether PUBLISH packets stay in the socket until the overflow queue has room. Not while the
    /// bound of unacknowledged publishes is reached: acknowledgements come after the packets.
    pub(super) fn has_backpressure(&self) -> bool {
        !self.passes_over && self.overflow.is_full() && !self.unacked.is_full()
    }

    /// Forwards a message if there is room, or else adds it to the overflow queue, in order.
    fn accept_publish(&mut self, publish: &Publish<'_>, whole: &[u8]) {
        let has_qos = publish.packet_id.is_some();
        if !self.overflow.admits(has_qos) {
            if !has_qos {
                let loss = if self.is_request_limit_reached() {
                    LinkDropReason::NoRoom
                } else {
                    LinkDropReason::PeerSlow
                };
                self.count_drop(loss, publish.topic);
            }
        } else if self.overflow.is_empty() && self.has_room() {
            self.publish(publish);
        } else {
            self.overflow.push(whole);
        }
    }

    fn deliver_held(&mut self) {
        while !self.overflow.is_empty()
            && self.has_room()
            && let Some(whole) = self.overflow.pop()
        {
            // Only PUBLISH packets are pushed.
            if let Ok(Some(frame)) = mqtt::split_frame(&whole, u32::MAX)
                && let Ok(Packet::Publish(publish)) = Packet::decode(frame, ProtocolVersion::V5)
            {
                self.publish(&publish);
            }
        }
    }

    /// Stops giving messages to sockets. Requests not yet sent are dropped: their responses could
    /// not be delivered.
    pub(super) fn stop_delivering(&mut self) {
        self.discard_held();
        if self.settings().pattern.sends_requests() {
            self.crowd().recall_queued();
        }
    }

    fn discard_held(&mut self) {
        self.passes_over = true;
        let lost = self.overflow.drop_all();
        self.count_drops(LinkDropReason::NoPeer, "it waited for a socket", lost);
    }

    /// Whether one more message could be sent now, of any kind.
    fn has_room(&self) -> bool {
        let settings = self.settings();
        if self.to_near.len() >= UNSENT_BYTES_MAX {
            return false;
        }
        if self.is_request_limit_reached() {
            return false;
        }
        match settings.pattern.routing() {
            RoutingStrategy::One => self.crowd().has_room(settings),
            RoutingStrategy::All => !self.has_no_peer(),
            RoutingStrategy::Requester | RoutingStrategy::None => true,
        }
    }

    fn is_request_limit_reached(&self) -> bool {
        self.settings().pattern.sends_requests()
            && self.requests.is_full(self.settings().requests_bytes_max())
    }

    fn publish(&mut self, publish: &Publish<'_>) {
        if self.settings().pattern.sends_replies() {
            return self.send_response(publish);
        }
        let name = match self.outward_name(publish.topic) {
            Ok(name) => name,
            Err(loss) => {
                self.count_drop(loss, publish.topic);
                return self.acknowledge_publish(publish.packet_id);
            }
        };
        let frames = formats::encode_outbound(self.settings(), &name, publish);
        if frames.iter().map(Vec::len).sum::<usize>() > self.settings().message_bytes_max as usize {
            self.count_drop(LinkDropReason::TooLarge, publish.topic);
            return self.acknowledge_publish(publish.packet_id);
        }
        match self.settings().pattern.sends_requests() {
            true => self.send_request(publish, frames),
            false => self.send(publish, MultipartMessage { envelope: Vec::new(), frames }),
        }
    }

    /// Returns the topic for sockets. A row of a rule already has its topic.
    fn outward_name(&self, topic: &str) -> Result<String, LinkDropReason> {
        if let Some(name) = row_name(topic) {
            return Ok(name.into());
        }
        let matching = self.settings().rules.outward.iter().find(|rule| rule.map.matches(topic));
        matching.ok_or(LinkDropReason::NoRule)?.map.apply(topic).ok_or(LinkDropReason::NoName)
    }

    fn send(&mut self, publish: &Publish<'_>, message: MultipartMessage) {
        match self.settings().pattern.routing() {
            RoutingStrategy::One => {
                let receipt = publish.packet_id.map(|id| (self.epoch, id));
                self.crowd().assign(named(publish.topic, message, receipt), self.settings());
            }
            _ => {
                self.broadcast(&parcel(message, None), publish.topic);
                self.acknowledge_publish(publish.packet_id);
            }
        }
    }

    fn broadcast(&self, message: &Arc<PeerMessage>, topic: &str) {
        let (_, slow) = self.crowd().broadcast(message, self.settings());
        self.count_drops(LinkDropReason::PeerSlow, topic, slow);
    }

    fn count_drop(&self, loss: LinkDropReason, about: &str) {
        self.count_drops(loss, about, 1);
    }

    fn count_drops(&self, loss: LinkDropReason, about: &str, times: usize) {
        self.shared.metrics.count_drops(&self.settings().name, loss, about, times as u64);
    }

    /// Acknowledges a message of the local session.
    fn acknowledge_publish(&mut self, packet_id: Option<PacketId>) {
        if let Some(id) = packet_id {
            self.overflow.on_acknowledged();
            encode_ack(PacketType::PubAck, id, ReasonCode::Success, &mut self.to_near);
        }
    }

    /// Acknowledges the messages which have arrived at sockets since the last call.
    pub(super) fn take_receipts(&mut self) {
        for (epoch, id) in self.crowd().take_receipts() {
            self.acknowledge_receipt(Some((epoch, id)));
        }
    }

    /// Acknowledges a message if its receipt belongs to this connection.
    fn acknowledge_receipt(&mut self, receipt: Option<SessionReceipt>) {
        if let Some((epoch, id)) = receipt
            && epoch == self.epoch
        {
            self.acknowledge_publish(Some(id));
        }
    }

    /// Handles an acknowledgement of the broker. A response ends its request, whatever the reason
    /// code is.
    fn on_broker_ack(&mut self, ack: &PublishAck<'_>) {
        let Some(receipt) = self.unacked.acknowledge(ack) else { return };
        if ack.reason.is_error() {
            self.count_drop(LinkDropReason::RefusedHere, &ack.reason.to_string());
        }
        self.acknowledge_receipt(receipt);
    }

    /// Whether received messages may be published. With `passes_over`, messages of new peers wait
    /// for the next connection.
    fn accepts_inbound(&self) -> bool {
        (!self.passes_over || self.crowd().is_quiet())
            && !self.overflow.is_finished()
            && !self.unacked.is_full()
            && self.to_near.len() < UNSENT_BYTES_MAX
    }

    /// Handles changes of the peers: assigns returned and held messages, and collects receipts.
    /// Without a peer which needs the session, held messages are dropped and later ones left to the
    /// session, so its acknowledgements are not delayed.
    pub(super) fn on_peers_changed(&mut self) {
        if self.has_no_peer() {
            self.discard_held();
        }
        if !self.passes_over {
            for (number, peer) in self.crowd().redistribute(self.settings()) {
                self.requests.assign_peer(number, peer);
            }
            self.deliver_held();
        }
        self.take_receipts();
    }

    /// Whether the pattern waits for peers and none is connected.
    fn has_no_peer(&self) -> bool {
        self.settings().waits_for_peers() && self.crowd().len() == 0
    }

    /// Whether the connection to the session is not needed: no such peer is connected, and the
    /// session has all received messages.
    pub(super) fn is_idle(&self) -> bool {
        self.settings().waits_for_peers()
            && self.crowd().is_drained()
            && self.is_fully_acknowledged()
    }

    /// Whether a new connection should make the session send the messages left to it: a peer is
    /// connected, and the session has all received messages.
    pub(super) fn needs_reconnect(&self) -> bool {
        let is_wanted = self.passes_over && self.crowd().len() > 0;
        (is_wanted || self.overflow.is_finished()) && self.is_fully_acknowledged()
    }

    /// Whether this broker has acknowledged all published messages.
    pub(super) fn is_fully_acknowledged(&self) -> bool {
        self.unacked.is_empty() && self.to_near.is_empty()
    }

    /// Returns the number of published messages without an acknowledgement.
    pub(super) fn unacknowledged_count(&self) -> usize {
        self.unacked.len()
    }

    /// Publishes received messages while there is room. Returns whether bytes were added.
    pub(super) fn take_inbound(&mut self) -> bool {
        let before = self.to_near.len();
        while self.accepts_inbound()
            && let Some((peer, message)) = self.next_inbound()
        {
            if self.settings().pattern.sends_requests() {
                self.on_peer_response(peer, message);
            } else {
                self.on_peer_message(peer, message);
            }
        }
        self.to_near.len() > before
    }

    fn next_inbound(&mut self) -> Option<(PeerId, MultipartMessage)> {
        let GatewayShared { settings, peers, .. } = &self.shared;
        if !settings.pattern.sends_replies() {
            return peers.take_inbound(|_| true);
        }
        let bytes_max = settings.requests_bytes_max();
        self.requests.make_room(bytes_max, peers);
        peers.take_inbound(|peer| self.requests.has_room_for_peer(peer, bytes_max))
    }

    fn on_peer_message(&mut self, peer: PeerId, message: MultipartMessage) {
        let mut inward = match formats::decode_inbound(self.settings(), message.frames) {
            Ok(inward) => inward,
            Err((loss, about)) => return self.count_drop(loss, &about),
        };
        if self.settings().pattern.sends_replies() {
            let due = Instant::now() + self.settings().answer_timeout();
            let told = InboundRequest { peer, envelope: message.envelope, due };
            let number = self.requests.add_inbound(told);
            if !self.crowd().has(peer) {
                self.requests.mark_requester_gone(number);
            }
            inward.properties.push(Property::ResponseTopic(&self.response_topic));
            inward.properties.push(Property::CorrelationData(&number.to_be_bytes()));
        }
        self.publish_inbound(&inward, None);
    }

    /// Publishes a message at this broker. The `receipt` of a request is due when this broker
    /// acknowledges the response: after an earlier crash the session repeats the request.
    fn publish_inbound(&mut self, inward: &InboundMessage, receipt: Option<SessionReceipt>) {
        let qos = inward.qos.min(self.terms.qos_max);
        let packet_id = match qos {
            QoS::AtMostOnce => None,
            _ => self.unacked.next_packet_id(),
        };
        let mut packet = Vec::with_capacity(inward.payload.len() + inward.topic.len() + 16);
        let publish = Publish {
            dup: false,
            qos,
            retain: inward.retain && self.terms.retain_available,
            topic: &inward.topic,
            packet_id,
            properties: inward.properties.as_properties(),
            payload: &inward.payload,
        };
        publish.encode(ProtocolVersion::V5, &mut packet);
        let most = self.terms.packet_bytes_max.min(self.settings().limits.packet_bytes_max);
        if packet.len() > most as usize {
            self.count_drop(LinkDropReason::TooLarge, &inward.topic);
            return self.acknowledge_receipt(receipt);
        }
        self.to_near.extend_from_slice(&packet);
        self.shared.metrics.count_in(inward.payload.len());
        match packet_id {
            Some(_) => self.unacked.push_publish(packet, receipt),
            None => self.acknowledge_receipt(receipt),
        }
    }

    /// Returns the time at which refused filters are requested again; `None` without such filters.
    pub(super) fn next_resubscribe_at(&self) -> Option<Instant> {
        self.ask_again
    }

    /// Returns the next time at which `check_timeouts` or [`PeerSet::redistribute`] has work.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let relieves_at = (!self.passes_over).then(|| self.crowd().next_relief_at(self.settings()));
        let others = self.ask_again.into_iter().chain(relieves_at.flatten());
        self.requests.next_deadline().into_iter().chain(others).min()
    }

    pub(super) fn check_timeouts(&mut self) {
        if self.ask_again.is_some_and(|at| at <= Instant::now()) {
            self.ask_again = None;
            self.subscribe_again();
        }
        let is_survey = self.settings().pattern.routing() == RoutingStrategy::All;
        for (topic, receipt) in self.requests.expire(Instant::now()) {
            if !is_survey {
                self.count_drop(LinkDropReason::NoAnswer, &topic);
            }
            self.acknowledge_receipt(receipt);
        }
    }
}

/// Limits subscriptions to retained messages of new filters.
pub(super) fn without_retained(
    mut wanted: Vec<(String, SubscribeOptions)>,
) -> Vec<(String, SubscribeOptions)> {
    for (_, options) in &mut wanted {
        options.retain_handling = options.retain_handling.max(1);
    }
    wanted
}
