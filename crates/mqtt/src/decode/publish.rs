//! Decodes PUBLISH and its acknowledgements, the packets of most traffic.

use super::check_flags;
use crate::frame::PacketFrame;
use crate::packet::{PacketId, PacketType, ProtocolVersion, Publish, PublishAck, QoS};
use crate::property::{PUBLISH, Properties, TOPIC_ALIAS};
use crate::reason_code::ReasonCode;
use crate::text::PacketReader;
use crate::violation::Violation;

impl<'a> Publish<'a> {
    #[inline]
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<Publish<'a>, Violation> {
        // [MQTT-3.3.1-4]
        let qos = QoS::from_bits(frame.first >> 1 & 0b11).ok_or(Violation::QoSInvalid)?;
        let dup = frame.first & 0b1000 != 0;
        if dup && qos == QoS::AtMostOnce {
            return Err(Violation::DupWithoutQoS); // [MQTT-3.3.1-2]
        }
        let mut body = PacketReader::new(frame.body);
        let topic = body.topic()?; // [MQTT-3.3.2-1] [MQTT-3.3.2-2]
        let packet_id = match qos {
            QoS::AtMostOnce => None, // [MQTT-2.2.1-2]
            QoS::AtLeastOnce | QoS::ExactlyOnce => Some(body.packet_id()?),
        };
        let (properties, seen) = body.properties_and_set(PUBLISH, version)?;
        if topic.is_empty() && !seen.has(TOPIC_ALIAS) {
            return Err(Violation::TopicMissing); // [MQTT-4.7.3-1]
        }
        Ok(Publish {
            dup,
            qos,
            retain: frame.first & 1 != 0,
            topic,
            packet_id,
            properties,
            payload: body.rest(),
        })
    }
}

impl<'a> PublishAck<'a> {
    /// Decodes PUBACK, PUBREC, PUBREL or PUBCOMP; the first byte of the frame tells which.
    #[inline]
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<PublishAck<'a>, Violation> {
        let kind = PacketType::from_byte(frame.first).ok_or(Violation::MalformedPacketType)?;
        check_flags(frame, kind, version)?; // [MQTT-3.6.1-1]
        if let &[high, low] = frame.body {
            let packet_id = PacketId::new(u16::from_be_bytes([high, low]));
            let packet_id = packet_id.ok_or(Violation::PacketIdZero)?;
            return Ok(PublishAck {
                packet_id,
                reason: ReasonCode::Success,
                properties: Properties::default(),
            });
        }
        PublishAck::decode_long(frame, kind, version)
    }

    fn decode_long(
        frame: PacketFrame<'a>,
        kind: PacketType,
        version: ProtocolVersion,
    ) -> Result<PublishAck<'a>, Violation> {
        let mut body = PacketReader::new(frame.body);
        let packet_id = body.packet_id()?;
        if !version.is_v5() {
            body.finish()?;
        }
        let reason = ReasonCode::from_byte(body.u8()?).filter(|reason| reason.is_allowed_in(kind));
        // [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]
        let reason = reason.ok_or(Violation::ReasonNotAllowed)?;
        let properties = match body.is_empty() {
            true => Properties::default(),
            false => body.properties(kind.bit(), version)?,
        };
        body.finish()?;
        Ok(PublishAck { packet_id, reason, properties })
    }
}
