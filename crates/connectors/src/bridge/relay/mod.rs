//! The protocol of a bridge, without I/O: forwards packets between the local session and the remote
//! session.
//!
//! ```text
//!   local session                    relay                    remote session
//!   PUBLISH 7 "t"     ---->    name, QoS, properties   ---->  PUBLISH 7 "site/t"
//!   PUBACK 7          <----                            <----  PUBACK 7
//! ```
//!
//! Packet ids stay the same on both sides, so the relay holds no state of a message: both sessions
//! know the open exchanges and repeat them after a lost connection [MQTT-4.4.0-1]. A message is
//! acknowledged only when the receiving broker has acknowledged it. If the next connection may lead
//! to another server, see `failover`.

mod failover;
mod inflight_topics;
mod inward;
mod loop_guard;
mod loops;
mod poison_guard;
mod properties;
mod requests;
mod rewritten_topics;
mod rules;

pub use self::failover::FailoverState;
use self::failover::PubCompKind;
use self::inflight_topics::InflightTopics;
use self::loop_guard::MARK;
pub use self::loops::LoopDetection;
use self::loops::{BridgeDirection, LoopFound, PATH, PassingMessage};
pub use self::poison_guard::{PoisonCandidates, PoisonGuard};
use self::properties::copy_properties;
use self::requests::WantedFilters;
pub use self::rules::{BridgeRule, BridgeRules, RetainedPolicy, WATCH_OPTIONS};
use crate::local_session::{encode_ack, row_name};
use crate::metrics::{LinkDropReason, LinkMetrics};
use mqtt::client::{
    IncomingAliases, OutgoingAliases, ServerLimits, TopicAliasChoice, UnacknowledgedPackets,
};
use mqtt::{
    Packet, PacketFrame, PacketId, PacketType, Properties, PropertiesBuf, Property,
    ProtocolVersion, Publish, PublishAck, QoS, ReasonCode, filter_matches,
};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Limits that the remote broker announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBrokerLimits {
    pub version: ProtocolVersion,
    pub server: ServerLimits,
    /// Whether the remote broker omits messages of this bridge from its subscriptions.
    pub spares_own: bool,
}

/// Side which prevents a bridge from continuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeSide {
    Local,
    Remote,
    /// No response arrived in time.
    NoResponse,
}

/// Reason for the end of a [`Relay`].
#[derive(Debug, PartialEq, Eq)]
pub enum RelayEnd {
    /// This broker closed the local session: the process stops, or options changed.
    Closed(ReasonCode),
    Remote(String),
    /// A side answered "Quota exceeded". The message stays unacknowledged, and the bridge retries
    /// later.
    NoRoom(BridgeSide),
}

impl RelayEnd {
    pub fn side(&self) -> BridgeSide {
        match self {
            RelayEnd::Closed(_) => BridgeSide::Local,
            RelayEnd::Remote(_) => BridgeSide::Remote,
            RelayEnd::NoRoom(side) => *side,
        }
    }
}

impl fmt::Display for RelayEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayEnd::Closed(reason) => write!(f, "this broker closed the session: {reason}"),
            RelayEnd::Remote(why) => f.write_str(why),
            RelayEnd::NoRoom(BridgeSide::Local) => {
                f.write_str("this broker has no room for what comes in")
            }
            RelayEnd::NoRoom(_) => f.write_str("the other broker has no room"),
        }
    }
}

pub struct Relay {
    name: Arc<str>,
    rules: Arc<BridgeRules>,
    remote_limits: RemoteBrokerLimits,
    local_limits: ServerLimits,
    metrics: Arc<LinkMetrics>,
    pub to_local: Vec<u8>,
    pub to_remote: Vec<u8>,
    /// Outstanding requests to the remote broker: until their answers no message is published
    /// there.
    pending_requests: UnacknowledgedPackets<WantedFilters>,
    /// Time of the last answer to a request, or of the start.
    pub last_answer: Instant,
    /// Note in the local session of packet ids to release at the remote broker.
    left_note: Option<String>,
    /// Packet ids of local QoS 2 messages that are sent with a lower QoS.
    lowered: HashSet<PacketId>,
    /// Packet ids of discarded messages from the remote broker, until their PUBREL.
    unwanted: HashSet<PacketId>,
    /// Packet ids released for an ended remote session, whose PUBCOMP is not forwarded.
    closed: HashSet<PacketId>,
    aliases_out: OutgoingAliases,
    aliases_in: IncomingAliases,
    /// Log texts of incoming aliases that were assigned to an invalid topic.
    invalid_aliases: HashMap<u16, String>,
    /// Topics of messages without an acknowledgement, as named at the receiver.
    inflight_out: InflightTopics,
    inflight_in: InflightTopics,
    failover: FailoverState,
    suspects: PoisonCandidates,
    /// Loop detection; `None` if the option `loop_detection` is off.
    pub loops: Option<LoopDetection>,
    /// Filters of messages which are counted for [`Relay::loops`] and not forwarded.
    pub watched_filters: Vec<String>,
    /// Whether the relay stops forwarding from the local session, see [`Relay::drain`].
    is_ending: bool,
    /// The current time. The caller sets it before each call.
    pub now: Instant,
    properties: PropertiesBuf,
}

/// Largest topic alias which the remote broker may use.
pub const ALIASES_IN_MAX: u16 = 64;
/// Largest number of topic aliases towards the remote broker; further topics are sent in full.
const ALIASES_OUT_MAX: u16 = 1024;

impl Relay {
    /// `seed` is the first packet id of requests: a random id is unlikely to be in use by a
    /// message.
    pub fn new(
        name: Arc<str>,
        rules: Arc<BridgeRules>,
        terms: RemoteBrokerLimits,
        near: ServerLimits,
        metrics: Arc<LinkMetrics>,
        past: FailoverState,
        seed: u16,
    ) -> Relay {
        let now = Instant::now();
        let first_id = PacketId::new(seed).unwrap_or(PacketId::MAX);
        let aliases_out = OutgoingAliases::new(terms.server.topic_alias_max.min(ALIASES_OUT_MAX));
        Relay {
            name,
            rules,
            remote_limits: terms,
            local_limits: near,
            metrics,
            to_local: Vec::new(),
            to_remote: Vec::new(),
            pending_requests: UnacknowledgedPackets::starting_at(first_id),
            last_answer: now,
            left_note: None,
            lowered: HashSet::new(),
            unwanted: HashSet::new(),
            closed: HashSet::new(),
            aliases_out,
            aliases_in: IncomingAliases::new(ALIASES_IN_MAX),
            invalid_aliases: HashMap::new(),
            inflight_out: InflightTopics::default(),
            inflight_in: InflightTopics::default(),
            failover: past,
            suspects: PoisonCandidates::default(),
            loops: None,
            watched_filters: Vec::new(),
            is_ending: false,
            now,
            properties: PropertiesBuf::default(),
        }
    }

    /// Publishes the status of the bridge to `topic` at the remote broker, retained. An empty topic
    /// is off.
    pub fn publish_status(&mut self, topic: &str, is_up: bool) {
        if topic.is_empty() {
            return;
        }
        let packet = Publish {
            dup: false,
            // QoS 0, because a message without an acknowledgement is not repeated: the next
            // connection publishes the status anew, and the will publishes the opposite.
            qos: QoS::AtMostOnce,
            retain: self.remote_limits.server.retain_available,
            topic,
            packet_id: None,
            properties: Properties::default(),
            payload: if is_up { b"1" } else { b"0" },
        };
        packet.encode(self.remote_limits.version, &mut self.to_remote);
    }

    /// Handles bytes of the local session. Returns the number of consumed bytes; a PUBLISH waits
    /// until the relay is ready.
    pub fn read_local(&mut self, bytes: &[u8]) -> Result<usize, RelayEnd> {
        let mut taken = 0;
        while let Some(frame) = cut(&bytes[taken..])? {
            let kind = PacketType::from_byte(frame.first);
            let waits = match kind {
                Some(PacketType::Publish) => !self.is_ready(),
                // Exchanges in flight continue while the relay ends.
                Some(PacketType::PubRel) => !self.is_answered(),
                _ => false,
            };
            if waits {
                break;
            }
            taken += frame.len;
            match decode(frame, ProtocolVersion::V5)? {
                Packet::Publish(publish) => self.relay_outbound_publish(&publish),
                Packet::PubRel(ack) if self.take_lowered_qos(ack.packet_id) => {
                    self.push_local_ack(
                        PacketType::PubComp,
                        PublishAck { reason: ReasonCode::Success, ..ack },
                    );
                }
                Packet::PubRel(ack) => self.push_remote_ack(PacketType::PubRel, ack),
                Packet::PubAck(ack) | Packet::PubRec(ack) if is_quota_exceeded(ack) => {
                    return Err(RelayEnd::NoRoom(BridgeSide::Local));
                }
                Packet::PubAck(ack) => self.on_local_ack(PacketType::PubAck, ack),
                Packet::PubRec(ack) => self.on_local_ack(PacketType::PubRec, ack),
                Packet::PubComp(ack) if self.closed.remove(&ack.packet_id) => {}
                Packet::PubComp(ack) => self.push_remote_ack(PacketType::PubComp, ack),
                Packet::Disconnect(goodbye) => return Err(RelayEnd::Closed(goodbye.reason)),
                _ => {}
            }
        }
        Ok(taken)
    }

    fn relay_outbound_publish(&mut self, publish: &Publish<'_>) {
        let OutboundMapping { name, qos, keeps_retain } = match self.map_outbound(publish.topic) {
            Ok(outward) => outward,
            Err(LinkDropReason::NoRule) if self.is_watched(publish) => {
                return self.failover.carried.record_local_publish(publish, self.now);
            }
            Err(loss) => return self.drop_outbound(publish, loss),
        };
        let qos = publish.qos.min(qos).min(self.remote_limits.server.qos_max);
        let comes_back = self.is_echoed_back(&name);
        let is_v5 = self.remote_limits.version.is_v5();
        let path = match self.loop_path(BridgeDirection::Out, publish.topic, &name, publish) {
            Ok(path) => path,
            Err(found) => return self.drop_looping(publish, &found),
        };
        if self.is_already_remote(publish, qos) {
            return self.record_expected_echo(comes_back && !is_v5, &name, publish);
        }
        let retain = publish.retain && keeps_retain && self.remote_limits.server.retain_available;
        let rules = self.rules.clone();
        let mut properties = std::mem::take(&mut self.properties);
        properties.clear();
        // An inward rule brings the response: the Response Topic is mapped to the remote name.
        let response = |topic: &str| rules.inward.iter().find_map(|rule| rule.map.invert(topic));
        copy_properties(publish.properties, &mut properties, response);
        if comes_back && is_v5 {
            let mark = loop_guard::loop_mark(&name, publish.payload);
            properties.push(Property::UserProperty(MARK, &mark));
        }
        if let Some(path) = &path {
            properties.push(Property::UserProperty(PATH, path));
        }
        let alias = self.aliases_out.assign(&name);
        if let TopicAliasChoice::Known(number) | TopicAliasChoice::New(number) = alias {
            properties.push(Property::TopicAlias(number));
        }
        let packet_id = publish.packet_id.filter(|_| qos > QoS::AtMostOnce);
        let packet = Publish {
            dup: publish.dup && qos > QoS::AtMostOnce,
            qos,
            retain,
            topic: if matches!(alias, TopicAliasChoice::Known(_)) { "" } else { &name },
            packet_id,
            properties: properties.as_properties(),
            payload: publish.payload,
        };
        let RemoteBrokerLimits { version, server, .. } = self.remote_limits;
        let bytes = server.encode_publish(&packet, version, &mut self.to_remote);
        self.properties = properties;
        let Some(bytes) = bytes else {
            if matches!(alias, TopicAliasChoice::New(_)) {
                self.aliases_out.revoke(&name);
            }
            return self.drop_outbound(publish, LinkDropReason::TooLarge);
        };
        if let Some(id) = packet_id {
            self.suspects.record_sent(id, &name, bytes);
        }
        self.metrics.count_out(publish.payload.len());
        self.record_expected_echo(comes_back && !is_v5, &name, publish);
        self.inflight_out.record_sent(packet_id, name);
        self.complete_lowered_qos(publish, qos);
    }

    /// Whether the remote broker already has the message. Sends the missing PUBREL then.
    fn is_already_remote(&mut self, publish: &Publish<'_>, qos: QoS) -> bool {
        let Some(id) = publish.packet_id.filter(|_| qos == QoS::ExactlyOnce) else { return false };
        let is_there = self.failover.record_sent(id, publish.dup);
        if is_there {
            self.push_remote_receipt(PacketType::PubRel, id);
        }
        is_there
    }

    fn record_expected_echo(&mut self, is_needed: bool, name: &str, publish: &Publish<'_>) {
        if is_needed {
            self.failover.loop_guard().record_sent(name, publish.payload, publish.dup, self.now);
        }
    }

    /// Maps the topic of an outgoing message. A row of a rule already has its topic.
    fn map_outbound(&self, topic: &str) -> Result<OutboundMapping, LinkDropReason> {
        if let Some(name) = row_name(topic) {
            let qos = QoS::ExactlyOnce;
            return Ok(OutboundMapping { name: name.into(), qos, keeps_retain: true });
        }
        let matching = self.rules.outward.iter().find(|rule| rule.map.matches(topic));
        let rule = matching.ok_or(LinkDropReason::NoRule)?;
        let name = rule.map.apply(topic).ok_or(LinkDropReason::NoName)?;
        Ok(OutboundMapping { name, qos: rule.qos, keeps_retain: rule.keeps_retain })
    }

    /// Whether the message is only counted, see [`WATCH_OPTIONS`].
    fn is_watched(&self, publish: &Publish<'_>) -> bool {
        publish.packet_id.is_none()
            && self.watched_filters.iter().any(|filter| filter_matches(filter, publish.topic))
    }

    /// Whether the remote broker will send this message back. Shared subscriptions cannot use No
    /// Local.
    fn is_echoed_back(&self, name: &str) -> bool {
        let sends = |rule: &BridgeRule| !self.remote_limits.spares_own || rule.map.is_shared();
        self.rules.inward.iter().any(|rule| sends(rule) && rule.map.matches(name))
    }

    /// Completes the exchange with the local session for a message sent with a lower QoS.
    fn complete_lowered_qos(&mut self, publish: &Publish<'_>, qos: QoS) {
        let Some(packet_id) = publish.packet_id else { return };
        match (publish.qos, qos) {
            (QoS::AtLeastOnce, QoS::AtMostOnce) => {
                encode_ack(PacketType::PubAck, packet_id, ReasonCode::Success, &mut self.to_local);
            }
            (QoS::ExactlyOnce, QoS::AtMostOnce) => {
                self.lowered.insert(packet_id);
                self.finish_local(PacketType::PubRec, packet_id, ReasonCode::Success);
            }
            (QoS::ExactlyOnce, QoS::AtLeastOnce) => _ = self.lowered.insert(packet_id),
            _ => {}
        }
    }

    /// Returns whether the remote exchange has a lower QoS than 2, and forgets the packet id.
    fn take_lowered_qos(&mut self, packet_id: PacketId) -> bool {
        self.lowered.remove(&packet_id) || self.remote_limits.server.qos_max < QoS::ExactlyOnce
    }

    /// Returns the loop path that a message has after this bridge, by its topics here and at the
    /// remote broker. `None` without a path, and for rows of rules.
    fn loop_path(
        &mut self,
        direction: BridgeDirection,
        topic: &str,
        remote_topic: &str,
        publish: &Publish<'_>,
    ) -> Result<Option<String>, LoopFound> {
        let Some(loops) = self.loops.as_ref().filter(|_| row_name(topic).is_none()) else {
            return Ok(None);
        };
        let Publish { payload, qos, dup, properties, .. } = *publish;
        let (is_v5, now) = (self.remote_limits.version.is_v5(), self.now);
        let message = PassingMessage {
            direction,
            is_v5,
            topic,
            remote_topic,
            payload,
            qos,
            dup,
            properties,
            now,
        };
        loops.check_and_mark(&message, &mut self.failover.carried)
    }

    fn count_loop(&self, topic: &str, LoopFound(names): &LoopFound) {
        self.metrics.count_drop(
            &self.name,
            LinkDropReason::Loop,
            &format!("{topic}: it came round by {names}"),
        );
    }

    fn drop_looping(&mut self, publish: &Publish<'_>, found: &LoopFound) {
        self.count_loop(publish.topic, found);
        self.discard_local(publish);
    }

    /// Counts and acknowledges a message which the bridge drops.
    fn drop_outbound(&mut self, publish: &Publish<'_>, loss: LinkDropReason) {
        self.metrics.count_drop(&self.name, loss, publish.topic);
        self.discard_local(publish);
    }

    fn discard_local(&mut self, publish: &Publish<'_>) {
        let Some(packet_id) = publish.packet_id else { return };
        let reason = ReasonCode::ImplementationSpecificError;
        let kind = match publish.qos {
            QoS::ExactlyOnce => PacketType::PubRec,
            _ => PacketType::PubAck,
        };
        self.finish_local(kind, packet_id, reason);
    }

    /// Handles an acknowledgement of the remote broker for a message of this bridge.
    fn on_remote_ack(&mut self, kind: PacketType, ack: PublishAck<'_>) {
        if let Some(about) = self.inflight_out.record_ack(ack) {
            self.metrics.count_drop(&self.name, LinkDropReason::Refused, &about);
        }
        let is_taken = kind == PacketType::PubRec && !ack.reason.is_error();
        if is_taken && self.failover.record_pubrec(ack.packet_id) {
            return match self.failover.has_several_servers() {
                true => self.push_remote_receipt(PacketType::PubRel, ack.packet_id),
                false => self.push_local_ack(PacketType::PubRec, ack),
            };
        }
        let is_lowered = self.lowered.contains(&ack.packet_id);
        if is_lowered && ack.reason.is_error() {
            self.lowered.remove(&ack.packet_id);
        }
        let kind = if is_lowered { PacketType::PubRec } else { kind };
        self.finish_local(kind, ack.packet_id, ack.reason);
    }

    /// Handles PUBCOMP of the remote broker.
    fn on_pubcomp(&mut self, ack: PublishAck<'_>) {
        match self.failover.record_pubcomp(ack.packet_id) {
            PubCompKind::Stale => self.on_id_released(),
            PubCompKind::Whole => {
                self.lowered.insert(ack.packet_id);
                self.finish_local(PacketType::PubRec, ack.packet_id, ReasonCode::Success);
            }
            PubCompKind::Release => self.push_local_ack(PacketType::PubComp, ack),
        }
    }

    /// Sends the final acknowledgement of a message to the local session.
    fn finish_local(&mut self, kind: PacketType, packet_id: PacketId, reason: ReasonCode) {
        self.failover.record_done(packet_id);
        encode_ack(kind, packet_id, reason, &mut self.to_local);
    }

    fn push_local_ack(&mut self, kind: PacketType, ack: PublishAck<'_>) {
        encode_ack(kind, ack.packet_id, ack.reason, &mut self.to_local);
    }

    fn push_remote_receipt(&mut self, kind: PacketType, packet_id: PacketId) {
        let (reason, properties) = (ReasonCode::Success, Properties::default());
        self.push_remote_ack(kind, PublishAck { packet_id, reason, properties });
    }

    fn push_remote_ack(&mut self, kind: PacketType, ack: PublishAck<'_>) {
        let ack = PublishAck { properties: Properties::default(), ..ack };
        ack.encode(kind, self.remote_limits.version, &mut self.to_remote);
    }

    /// Releases messages received from a remote session which has ended: no PUBREL will arrive for
    /// them, and a new session uses their ids for other messages.
    pub fn release_received(&mut self, received: &[PacketId]) {
        for id in received {
            encode_ack(PacketType::PubRel, *id, ReasonCode::Success, &mut self.to_local);
        }
        self.closed.extend(received);
    }

    /// Returns the state for the next connection.
    pub fn into_failover_state(self) -> FailoverState {
        self.failover
    }

    /// Returns the messages which may have made the remote broker disconnect.
    pub fn poison_candidates(&self) -> &PoisonCandidates {
        &self.suspects
    }

    /// Whether the relay forwards messages of the local session.
    pub fn is_ready(&self) -> bool {
        self.is_answered() && !self.is_ending
    }

    /// Returns whether the remote broker has answered all requests.
    pub fn is_answered(&self) -> bool {
        self.pending_requests.request_count() == 0 && self.failover.stale().is_empty()
    }

    /// Stops forwarding from the local session. Returns whether all exchanges are complete.
    pub fn drain(&mut self) -> bool {
        self.is_ending = true;
        !self.failover.has_unfinished() && self.to_local.is_empty()
    }
}

/// Topic and QoS of an outgoing message at the remote broker.
struct OutboundMapping {
    name: String,
    /// Maximum QoS.
    qos: QoS,
    keeps_retain: bool,
}

fn is_quota_exceeded(ack: PublishAck<'_>) -> bool {
    ack.reason == ReasonCode::QuotaExceeded
}

fn cut(bytes: &[u8]) -> Result<Option<PacketFrame<'_>>, RelayEnd> {
    mqtt::split_frame(bytes, u32::MAX)
        .map_err(|violation| RelayEnd::Remote(violation.description().into()))
}

fn decode(frame: PacketFrame<'_>, version: ProtocolVersion) -> Result<Packet<'_>, RelayEnd> {
    Packet::decode(frame, version)
        .map_err(|violation| RelayEnd::Remote(violation.description().into()))
}

#[cfg(test)]
mod invalid_tests;
#[cfg(test)]
mod tests;
