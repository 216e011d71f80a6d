//! Decodes CONNECT and CONNACK.

use super::check_flags;
use crate::encode::BRIDGE;
use crate::frame::PacketFrame;
use crate::packet::{ConnAck, Connect, PacketType, ProtocolVersion, QoS, Will};
use crate::property::{CONNACK, CONNECT, WILL};
use crate::reason_code::ReasonCode;
use crate::text::PacketReader;
use crate::violation::Violation;

const RESERVED: u8 = 0b0000_0001;
const CLEAN_START: u8 = 0b0000_0010;
const WILL_FLAG: u8 = 0b0000_0100;
const WILL_QOS: u8 = 0b0001_1000;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USER_NAME: u8 = 0b1000_0000;

impl<'a> Connect<'a> {
    pub fn decode(frame: PacketFrame<'a>) -> Result<Connect<'a>, Violation> {
        let mut body = PacketReader::new(frame.body);
        let (version, is_bridge) = version(&mut body)?;
        check_flags(frame, PacketType::Connect, version)?;
        let flags = body.u8()?;
        check_connect_flags(flags, version)?;
        let keep_alive_s = body.u16()?;
        let properties = body.properties(CONNECT, version)?;
        // The payload, in its fixed order. [MQTT-3.1.3-1] [MQTT-3.1.3-3] [MQTT-3.1.3-4]
        let client_id = body.text()?;
        let will = match flags & WILL_FLAG {
            0 => None,                                   // [3.1.1:MQTT-3.1.2-11]
            _ => Some(will(&mut body, flags, version)?), // [MQTT-3.1.2-9]
        };
        // 3.1 permits both to be missing in spite of their flags, for clients older than 3.1.
        let may_miss = version == ProtocolVersion::V31;
        let user_name = match flags & USER_NAME {
            0 => None, // [MQTT-3.1.2-16]
            _ if may_miss && body.is_empty() => None,
            _ => Some(body.text()?), // [MQTT-3.1.2-17] [MQTT-3.1.3-12]
        };
        let password = match flags & PASSWORD {
            0 => None, // [MQTT-3.1.2-18]
            _ if may_miss && body.is_empty() => None,
            _ => Some(body.binary()?), // [MQTT-3.1.2-19]
        };
        body.finish()?;
        Ok(Connect {
            version,
            is_bridge,
            clean_start: flags & CLEAN_START != 0,
            keep_alive_s,
            client_id,
            will,
            user_name,
            password,
            properties,
        })
    }
}

/// Reads the protocol name and level. The second value is true for a bridge.
fn version(body: &mut PacketReader<'_>) -> Result<(ProtocolVersion, bool), Violation> {
    let name = body.binary()?;
    if name != b"MQTT" && name != b"MQIsdp" {
        return Err(Violation::ProtocolNameUnknown); // [MQTT-3.1.2-1]
    }
    let level = body.u8()?;
    match (name, level & !BRIDGE, level & BRIDGE != 0) {
        (b"MQIsdp", 3, is_bridge) => Ok((ProtocolVersion::V31, is_bridge)),
        (b"MQTT", 4, is_bridge) => Ok((ProtocolVersion::V311, is_bridge)),
        (b"MQTT", 5, false) => Ok((ProtocolVersion::V5, false)),
        _ => Err(Violation::ProtocolVersionUnknown), // [MQTT-3.1.2-2]
    }
}

fn check_connect_flags(flags: u8, version: ProtocolVersion) -> Result<(), Violation> {
    if flags & RESERVED != 0 {
        return Err(Violation::ConnectFlagsReserved); // [MQTT-3.1.2-3]
    }
    if flags & WILL_FLAG == 0 && flags & (WILL_QOS | WILL_RETAIN) != 0 {
        return Err(Violation::WillFlagsInconsistent); // [MQTT-3.1.2-11] [MQTT-3.1.2-13]
    }
    if !version.is_v5() && flags & (USER_NAME | PASSWORD) == PASSWORD {
        return Err(Violation::PasswordWithoutUserName); // [3.1.1:MQTT-3.1.2-22]
    }
    Ok(())
}

fn will<'a>(
    body: &mut PacketReader<'a>,
    flags: u8,
    version: ProtocolVersion,
) -> Result<Will<'a>, Violation> {
    let qos = QoS::from_bits((flags & WILL_QOS) >> 3).ok_or(Violation::QoSInvalid)?;
    let properties = body.properties(WILL, version)?;
    let topic = body.topic()?; // [MQTT-3.1.3-11]
    if topic.is_empty() {
        return Err(Violation::TopicNameInvalid); // [MQTT-4.7.3-1]
    }
    Ok(Will {
        qos, // [MQTT-3.1.2-12]
        retain: flags & WILL_RETAIN != 0,
        topic,
        payload: body.binary()?,
        properties,
    })
}

impl<'a> ConnAck<'a> {
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<ConnAck<'a>, Violation> {
        check_flags(frame, PacketType::ConnAck, version)?;
        let mut body = PacketReader::new(frame.body);
        let flags = match (version, body.u8()?) {
            // 3.1 has no flags here and leaves the byte undefined.
            (ProtocolVersion::V31, _) => 0,
            (ProtocolVersion::V311 | ProtocolVersion::V5, flags) => flags,
        };
        let code = body.u8()?;
        let reason = match version {
            ProtocolVersion::V5 => ReasonCode::from_byte(code)
                .filter(|reason| reason.is_allowed_in(PacketType::ConnAck)),
            ProtocolVersion::V31 | ProtocolVersion::V311 => ReasonCode::from_connack_v3(code),
        };
        let reason = reason.ok_or(Violation::ReasonNotAllowed)?; // [MQTT-3.2.2-8]
        let session_present = flags & 1 != 0;
        // [MQTT-3.2.2-1] [MQTT-3.2.2-6]
        if flags & !1 != 0 || session_present && reason.is_error() {
            return Err(Violation::ConnAckFlagsInvalid);
        }
        let properties = body.properties(CONNACK, version)?;
        body.finish()?;
        Ok(ConnAck { session_present, reason, properties })
    }
}
