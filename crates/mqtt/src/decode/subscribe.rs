//! Decodes SUBSCRIBE, UNSUBSCRIBE and their acknowledgements.

use super::check_flags;
use crate::frame::PacketFrame;
use crate::packet::*;
use crate::property::{Properties, SUBACK, SUBSCRIBE, UNSUBACK, UNSUBSCRIBE};
use crate::reason_code::ReasonCode;
use crate::text::PacketReader;
use crate::violation::Violation;

impl<'a> Subscribe<'a> {
    /// Checks filters as text only; the broker checks their syntax with `check_filter`.
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<Subscribe<'a>, Violation> {
        check_flags(frame, PacketType::Subscribe, version)?; // [MQTT-3.8.1-1]
        let mut body = PacketReader::new(frame.body);
        Ok(Subscribe {
            packet_id: body.packet_id()?,
            properties: body.properties(SUBSCRIBE, version)?,
            filters: SubscriptionList::check(body.rest(), version)?,
        })
    }
}

impl<'a> Unsubscribe<'a> {
    /// Checks filters as text only; the broker checks their syntax with `check_filter`.
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<Unsubscribe<'a>, Violation> {
        check_flags(frame, PacketType::Unsubscribe, version)?; // [MQTT-3.10.1-1]
        let mut body = PacketReader::new(frame.body);
        Ok(Unsubscribe {
            packet_id: body.packet_id()?,
            properties: body.properties(UNSUBSCRIBE, version)?,
            filters: FilterList::check(body.rest())?,
        })
    }
}

impl<'a> SubAck<'a> {
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<SubAck<'a>, Violation> {
        check_flags(frame, PacketType::SubAck, version)?;
        let mut body = PacketReader::new(frame.body);
        let packet_id = body.packet_id()?;
        let properties = body.properties(SUBACK, version)?;
        let codes = body.rest();
        check_codes(codes, PacketType::SubAck)?; // [MQTT-3.9.3-2]
        // [3.1.1:MQTT-3.9.3-2]
        if !version.is_v5() && codes.iter().any(|&code| code > 0x80) {
            return Err(Violation::ReasonNotAllowed);
        }
        Ok(SubAck { packet_id, properties, codes })
    }
}

impl<'a> UnsubAck<'a> {
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<UnsubAck<'a>, Violation> {
        check_flags(frame, PacketType::UnsubAck, version)?;
        let mut body = PacketReader::new(frame.body);
        let packet_id = body.packet_id()?;
        if !version.is_v5() {
            body.finish()?;
            return Ok(UnsubAck { packet_id, properties: Properties::default(), codes: &[] });
        }
        let properties = body.properties(UNSUBACK, version)?;
        let codes = body.rest();
        check_codes(codes, PacketType::UnsubAck)?; // [MQTT-3.11.3-2]
        Ok(UnsubAck { packet_id, properties, codes })
    }
}

/// Checks that there is at least one code, since a request has at least one filter, and that all
/// codes are allowed in `kind`.
fn check_codes(codes: &[u8], kind: PacketType) -> Result<(), Violation> {
    if codes.is_empty() {
        return Err(Violation::MalformedTruncated);
    }
    let allowed =
        |&code: &u8| ReasonCode::from_byte(code).is_some_and(|reason| reason.is_allowed_in(kind));
    if codes.iter().all(allowed) { Ok(()) } else { Err(Violation::ReasonNotAllowed) }
}
