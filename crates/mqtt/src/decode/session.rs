//! Decodes DISCONNECT and AUTH, which carry little more than a reason.

use super::check_flags;
use crate::frame::PacketFrame;
use crate::packet::{Auth, Disconnect, PacketType, ProtocolVersion};
use crate::property::{AUTH, AUTHENTICATION_METHOD, DISCONNECT, Properties};
use crate::reason_code::ReasonCode;
use crate::text::PacketReader;
use crate::violation::Violation;

impl<'a> Disconnect<'a> {
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<Disconnect<'a>, Violation> {
        // [MQTT-3.14.1-1]
        check_flags(frame, PacketType::Disconnect, version)?;
        let mut body = PacketReader::new(frame.body);
        if !version.is_v5() {
            body.finish()?;
        }
        let mut disconnect = Disconnect {
            reason: ReasonCode::NormalDisconnection,
            properties: Properties::default(),
        };
        if !body.is_empty() {
            disconnect.reason = reason(&mut body, PacketType::Disconnect)?; // [MQTT-3.14.2-1]
        }
        if !body.is_empty() {
            disconnect.properties = body.properties(DISCONNECT, version)?;
        }
        body.finish()?;
        Ok(disconnect)
    }
}

impl<'a> Auth<'a> {
    pub fn decode(frame: PacketFrame<'a>, version: ProtocolVersion) -> Result<Auth<'a>, Violation> {
        if !version.is_v5() {
            return Err(Violation::MalformedPacketType);
        }
        check_flags(frame, PacketType::Auth, version)?; // [MQTT-3.15.1-1]
        let mut body = PacketReader::new(frame.body);
        if body.is_empty() {
            return Ok(Auth { reason: ReasonCode::Success, properties: Properties::default() });
        }
        let reason = reason(&mut body, PacketType::Auth)?; // [MQTT-3.15.2-1]
        let (properties, seen) = body.properties_and_set(AUTH, version)?;
        body.finish()?;
        if !seen.has(AUTHENTICATION_METHOD) {
            return Err(Violation::AuthWithoutMethod);
        }
        Ok(Auth { reason, properties })
    }
}

fn reason(body: &mut PacketReader<'_>, kind: PacketType) -> Result<ReasonCode, Violation> {
    let reason = ReasonCode::from_byte(body.u8()?).filter(|reason| reason.is_allowed_in(kind));
    reason.ok_or(Violation::ReasonNotAllowed)
}
