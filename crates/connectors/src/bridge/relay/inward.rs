//! Inward direction of a relay: packets of the remote broker.
//!
//! An invalid PUBLISH does not end the connection: the remote broker would repeat the message over
//! the next connection, and block all messages after it.

use super::{
    BridgeDirection, BridgeSide, PATH, Relay, RelayEnd, copy_properties, cut, is_quota_exceeded,
    loop_guard,
};
use crate::metrics::LinkDropReason;
use mqtt::topic::check_topic;
use mqtt::{
    Packet, PacketFrame, PacketId, PacketType, Property, ProtocolVersion, Publish, PublishAck,
    PublishOutline, QoS, ReasonCode, TextExcerpt, Violation,
};

impl Relay {
    /// Handles bytes from the remote broker. Returns the number of consumed bytes: whole packets
    /// only.
    pub fn read_remote(&mut self, bytes: &[u8]) -> Result<usize, RelayEnd> {
        let mut taken = 0;
        while let Some(frame) = cut(&bytes[taken..])? {
            taken += frame.len;
            let packet = match Packet::decode(frame, self.remote_limits.version) {
                Ok(packet) => packet,
                Err(violation) => {
                    self.skip_invalid(frame, violation)?;
                    continue;
                }
            };
            if matches!(packet, Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_)) {
                self.suspects.record_answer();
            }
            match packet {
                Packet::Publish(publish) => self.relay_inbound_publish(&publish),
                Packet::PubRel(ack) if self.unwanted.remove(&ack.packet_id) => {
                    self.push_remote_receipt(PacketType::PubComp, ack.packet_id);
                }
                Packet::PubRel(ack) => self.push_local_ack(PacketType::PubRel, ack),
                Packet::PubAck(ack) | Packet::PubRec(ack) if is_quota_exceeded(ack) => {
                    return Err(RelayEnd::NoRoom(BridgeSide::Remote));
                }
                Packet::PubAck(ack) => self.on_remote_ack(PacketType::PubAck, ack),
                Packet::PubRec(ack) => self.on_remote_ack(PacketType::PubRec, ack),
                Packet::PubComp(ack) => self.on_pubcomp(ack),
                Packet::SubAck(ack) => self.on_suback(ack.packet_id, ack.codes),
                Packet::UnsubAck(ack) => self.on_unsuback(ack.packet_id),
                Packet::PingResp => {}
                Packet::Disconnect(goodbye) => {
                    return Err(RelayEnd::Remote(format!("it said goodbye: {}", goodbye.reason)));
                }
                _ => {
                    return Err(RelayEnd::Remote("it sent a packet that a server must not".into()));
                }
            }
        }
        Ok(taken)
    }

    fn relay_inbound_publish(&mut self, publish: &Publish<'_>) {
        let topic = match self.resolve_topic(publish) {
            Ok(topic) => topic,
            Err((name, violation)) => {
                self.count_invalid(&name, violation.description());
                return self.acknowledge_dropped(publish.qos, publish.packet_id);
            }
        };
        if self.is_echo(&topic, publish) {
            self.metrics.count_echo();
            return self.acknowledge_dropped(publish.qos, publish.packet_id);
        }
        let matching = self.rules.inward.iter().find(|rule| rule.map.matches(&topic));
        let named = matching.and_then(|rule| Some((rule, rule.map.apply(&topic)?)));
        let Some((rule, name)) = named else {
            let loss =
                if matching.is_some() { LinkDropReason::NoName } else { LinkDropReason::NoRule };
            self.metrics.count_drop(&self.name, loss, &topic);
            return self.acknowledge_dropped(publish.qos, publish.packet_id);
        };
        let retain = publish.retain && rule.keeps_retain && self.local_limits.retain_available;
        let path = match self.loop_path(BridgeDirection::In, &name, &topic, publish) {
            Ok(path) => path,
            Err(found) => {
                self.count_loop(&name, &found);
                return self.acknowledge_dropped(publish.qos, publish.packet_id);
            }
        };
        let rules = self.rules.clone();
        let response = |topic: &str| rules.outward.iter().find_map(|rule| rule.map.invert(topic));
        let mut properties = std::mem::take(&mut self.properties);
        properties.clear();
        copy_properties(publish.properties, &mut properties, response);
        if let Some(path) = &path {
            properties.push(Property::UserProperty(PATH, path));
        }
        let packet =
            Publish { retain, topic: &name, properties: properties.as_properties(), ..*publish };
        let out = &mut self.to_local;
        let bytes = self.local_limits.encode_publish(&packet, ProtocolVersion::V5, out);
        self.properties = properties;
        if bytes.is_none() {
            self.metrics.count_drop(&self.name, LinkDropReason::TooLarge, &topic);
            return self.acknowledge_dropped(publish.qos, publish.packet_id);
        }
        self.metrics.count_in(publish.payload.len());
        self.inflight_in.record_sent(publish.packet_id, name);
    }

    fn is_echo(&mut self, topic: &str, publish: &Publish<'_>) -> bool {
        if !self.remote_limits.version.is_v5() {
            return self.failover.loop_guard().take_echo(topic, publish.payload, self.now);
        }
        // With No Local only a shared filter returns the bridge's own messages.
        self.is_echoed_back(topic)
            && loop_guard::is_marked(publish.properties, topic, publish.payload)
    }

    /// Skips an invalid PUBLISH and acknowledges it, or the remote broker would send it again with
    /// each connection. An invalid packet of another type ends the connection.
    fn skip_invalid(
        &mut self,
        frame: PacketFrame<'_>,
        violation: Violation,
    ) -> Result<(), RelayEnd> {
        let end = RelayEnd::Remote(violation.description().into());
        if PacketType::from_byte(frame.first) != Some(PacketType::Publish) {
            return Err(end);
        }
        let Ok(outline) = PublishOutline::decode(frame, self.remote_limits.version) else {
            return Err(end);
        };
        let topic = mqtt::text::check_text(outline.topic).ok().filter(|name| is_topic(name));
        let alias = outline.topic_alias().filter(|_| self.remote_limits.version.is_v5());
        if let Some(alias) = alias.filter(|_| !outline.topic.is_empty()) {
            self.note_alias(alias, topic.ok_or(outline.topic));
        }
        let known = alias.filter(|_| outline.topic.is_empty());
        let known = known.and_then(|alias| {
            self.aliases_in.topic(alias).or(self.invalid_aliases.get(&alias).map(String::as_str))
        });
        let name = known.map_or_else(|| TextExcerpt(outline.topic).to_string(), str::to_string);
        self.count_invalid(&name, violation.description());
        self.acknowledge_dropped(outline.qos, outline.packet_id);
        Ok(())
    }

    /// Stores the alias of an invalid topic too, so that the log names later messages with this
    /// alias.
    fn note_alias(&mut self, alias: u16, topic: Result<&str, &[u8]>) {
        match topic {
            Ok(topic) => self.aliases_in.set(alias, topic),
            Err(invalid) if self.aliases_in.allows(alias) => {
                self.aliases_in.forget(alias);
                self.invalid_aliases.insert(alias, TextExcerpt(invalid).to_string());
            }
            Err(_) => {}
        }
    }

    fn count_invalid(&self, name: &str, why: &str) {
        self.metrics.count_drop(
            &self.name,
            LinkDropReason::InvalidPublish,
            &format!("{name}: it {why}"),
        );
    }

    /// Returns the topic, or the log text and the violation of a message without a topic.
    fn resolve_topic(&mut self, publish: &Publish<'_>) -> Result<String, (String, Violation)> {
        match self.aliases_in.resolve(publish) {
            Ok(topic) => Ok(topic.into()),
            Err(violation) => {
                let alias = publish.properties.iter().find_map(|property| match property {
                    Property::TopicAlias(alias) => Some(alias),
                    _ => None,
                });
                let alias = alias.unwrap_or_default();
                Err(match self.invalid_aliases.get(&alias) {
                    Some(invalid) => (invalid.clone(), Violation::TopicNameInvalid),
                    None => (format!("topic alias {alias}"), violation),
                })
            }
        }
    }

    /// Acknowledges a dropped message, so that the remote broker can discard it.
    fn acknowledge_dropped(&mut self, qos: QoS, packet_id: Option<PacketId>) {
        let Some(packet_id) = packet_id else { return };
        let kind = match qos {
            QoS::ExactlyOnce => {
                self.unwanted.insert(packet_id);
                PacketType::PubRec
            }
            _ => PacketType::PubAck,
        };
        self.push_remote_receipt(kind, packet_id);
    }

    /// Passes an acknowledgement of this broker to the remote broker. A refusal is counted as
    /// [`LinkDropReason::RefusedHere`].
    pub(super) fn on_local_ack(&mut self, kind: PacketType, ack: PublishAck<'_>) {
        if let Some(about) = self.inflight_in.record_ack(ack) {
            self.metrics.count_drop(&self.name, LinkDropReason::RefusedHere, &about);
            return self.push_remote_ack(kind, ack);
        }
        // Only a server may send the reason code "No matching subscribers".
        self.push_remote_ack(kind, PublishAck { reason: ReasonCode::Success, ..ack });
    }
}

fn is_topic(name: &str) -> bool {
    check_topic(name).is_ok()
}
