//! Encodes packets as bytes appended to a buffer. No function here can fail or panic.
//!
//! Parts that a version does not have are left out: properties and reason codes in 3.x, and whole
//! packets that do not exist there. Text or binary data above 65,535 bytes is truncated, and a
//! packet above the protocol's maximum is not written; callers hold neither, since both come out of
//! checks.

use crate::frame::VARINT_MAX;
use crate::packet::*;
use crate::property::Properties;
use crate::reason_code::ReasonCode;

pub const PINGREQ: [u8; 2] = [PacketType::PingReq.first_byte(), 0];
pub const PINGRESP: [u8; 2] = [PacketType::PingResp.first_byte(), 0];

/// Bit of the protocol level with which a bridge marks its CONNECT in 3.x, see
/// [`Connect::is_bridge`].
pub(crate) const BRIDGE: u8 = 0x80;

impl Packet<'_> {
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        match self {
            Packet::Connect(packet) => packet.encode(version, out),
            Packet::ConnAck(packet) => packet.encode(version, out),
            Packet::Publish(packet) => packet.encode(version, out),
            Packet::PubAck(packet) => packet.encode(PacketType::PubAck, version, out),
            Packet::PubRec(packet) => packet.encode(PacketType::PubRec, version, out),
            Packet::PubRel(packet) => packet.encode(PacketType::PubRel, version, out),
            Packet::PubComp(packet) => packet.encode(PacketType::PubComp, version, out),
            Packet::Subscribe(packet) => packet.encode(version, out),
            Packet::SubAck(packet) => packet.encode(version, out),
            Packet::Unsubscribe(packet) => packet.encode(version, out),
            Packet::UnsubAck(packet) => packet.encode(version, out),
            Packet::PingReq => out.extend_from_slice(&PINGREQ),
            Packet::PingResp => out.extend_from_slice(&PINGRESP),
            Packet::Disconnect(packet) => packet.encode(version, out),
            Packet::Auth(packet) => packet.encode(version, out),
        }
    }
}

impl Connect<'_> {
    /// Encodes as `version`, which differs from the packet's own if a client tries an older
    /// version.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        // [3.1.1:MQTT-3.1.2-22]
        let password = self.password.filter(|_| version.is_v5() || self.user_name.is_some());
        let mut flags = u8::from(self.clean_start) << 1
            | u8::from(password.is_some()) << 6
            | u8::from(self.user_name.is_some()) << 7;
        if let Some(will) = &self.will {
            flags |= 1 << 2 | (will.qos as u8) << 3 | u8::from(will.retain) << 5;
        }
        write_framed(PacketType::Connect, out, |out| {
            text(if version == ProtocolVersion::V31 { "MQIsdp" } else { "MQTT" }, out);
            let mark = if self.is_bridge && !version.is_v5() { BRIDGE } else { 0 };
            out.extend_from_slice(&[version as u8 | mark, flags]);
            u16(self.keep_alive_s, out);
            properties(self.properties, version, out);
            text(self.client_id, out);
            if let Some(will) = &self.will {
                properties(will.properties, version, out);
                text(will.topic, out);
                binary(will.payload, out);
            }
            if let Some(user_name) = self.user_name {
                text(user_name, out);
            }
            if let Some(password) = password {
                binary(password, out);
            }
        });
    }
}

impl ConnAck<'_> {
    /// Appends no bytes if 3.x has no return code for the reason ([`ReasonCode::connack_v3`]): the
    /// connection is then closed without a CONNACK.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        let code = match version {
            ProtocolVersion::V5 => Some(self.reason.code()),
            // [3.1.1:MQTT-3.2.2-6]
            ProtocolVersion::V31 | ProtocolVersion::V311 => self.reason.connack_v3(),
        };
        let Some(code) = code else { return };
        // [MQTT-3.2.2-1] [MQTT-3.2.2-6]
        let has_session = self.session_present && !self.reason.is_error();
        let flags = u8::from(has_session && version != ProtocolVersion::V31);
        write_framed(PacketType::ConnAck, out, |out| {
            out.extend_from_slice(&[flags, code]);
            properties(self.properties, version, out);
        });
    }
}

impl Publish<'_> {
    #[inline]
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        let topic = truncate_text(self.topic);
        let has_id = self.qos != QoS::AtMostOnce;
        let properties_len = properties_len(self.properties, version);
        let len = 2 + topic.len() + 2 * usize::from(has_id) + properties_len + self.payload.len();
        if len > VARINT_MAX as usize {
            return;
        }
        // [MQTT-3.3.1-2]
        let flags =
            u8::from(self.dup && has_id) << 3 | (self.qos as u8) << 1 | u8::from(self.retain);
        out.reserve(FIXED_HEADER_BYTES_MAX + len);
        out.push(PacketType::Publish.first_byte() | flags);
        encode_remaining_len(len, out);
        text(topic, out);
        if has_id {
            // A missing id is a mistake of the caller; 1 keeps the packet valid.
            u16(self.packet_id.map_or(1, PacketId::get), out);
        }
        properties(self.properties, version, out);
        out.extend_from_slice(self.payload);
    }
}

impl PublishAck<'_> {
    /// Encodes PUBACK, PUBREC, PUBREL or PUBCOMP, as `kind` says.
    #[inline]
    pub fn encode(&self, kind: PacketType, version: ProtocolVersion, out: &mut Vec<u8>) {
        let [high, low] = self.packet_id.get().to_be_bytes();
        let is_short = self.reason == ReasonCode::Success && self.properties.is_empty();
        if is_short || !version.is_v5() {
            out.extend_from_slice(&[kind.first_byte(), 2, high, low]);
            return;
        }
        write_framed(kind, out, |out| {
            out.extend_from_slice(&[high, low, self.reason.code()]);
            if !self.properties.is_empty() {
                properties(self.properties, version, out);
            }
        });
    }
}

impl Subscribe<'_> {
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        write_framed(PacketType::Subscribe, out, |out| {
            u16(self.packet_id.get(), out);
            properties(self.properties, version, out);
            for (filter, options) in self.filters {
                text(filter, out);
                out.push(options.to_byte(version));
            }
        });
    }
}

impl SubAck<'_> {
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        write_framed(PacketType::SubAck, out, |out| {
            u16(self.packet_id.get(), out);
            properties(self.properties, version, out);
            if version.is_v5() {
                out.extend_from_slice(self.codes);
            } else {
                // 3.x has one code for every failure. [3.1.1:MQTT-3.9.3-2]
                out.extend(self.codes.iter().map(|&code| code.min(0x80)));
            }
        });
    }
}

impl Unsubscribe<'_> {
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        write_framed(PacketType::Unsubscribe, out, |out| {
            u16(self.packet_id.get(), out);
            properties(self.properties, version, out);
            out.extend_from_slice(self.filters.bytes);
        });
    }
}

impl UnsubAck<'_> {
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        write_framed(PacketType::UnsubAck, out, |out| {
            u16(self.packet_id.get(), out);
            properties(self.properties, version, out);
            if version.is_v5() {
                out.extend_from_slice(self.codes);
            }
        });
    }
}

impl Disconnect<'_> {
    /// Appends the packet, but no bytes for a 3.x version and a reason other than
    /// [`ReasonCode::NormalDisconnection`]: such a server or client closes the connection without a
    /// DISCONNECT.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        if !version.is_v5() && self.reason != ReasonCode::NormalDisconnection {
            return;
        }
        write_framed(PacketType::Disconnect, out, |out| {
            let has_properties = version.is_v5() && !self.properties.is_empty();
            if has_properties || self.reason != ReasonCode::NormalDisconnection {
                out.push(self.reason.code());
            }
            if has_properties {
                properties(self.properties, version, out);
            }
        });
    }
}

impl Auth<'_> {
    /// Appends the packet; no bytes in 3.x, which has no AUTH.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        if !version.is_v5() {
            return;
        }
        write_framed(PacketType::Auth, out, |out| {
            if self.reason != ReasonCode::Success || !self.properties.is_empty() {
                out.push(self.reason.code());
                properties(self.properties, version, out);
            }
        });
    }
}

/// Appends a fixed header and the output of `body`, or no bytes if the body exceeds [`VARINT_MAX`].
fn write_framed(kind: PacketType, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // One byte of length is enough for nearly every such packet; larger packets move their body.
    out.extend_from_slice(&[kind.first_byte(), 0]);
    body(out);
    let (len_bytes, len_len) = varint_bytes(out.len() - start - 2);
    if out.len() - start - 2 > VARINT_MAX as usize {
        out.truncate(start);
        return;
    }
    out.splice(start + 1..start + 2, len_bytes.into_iter().take(len_len));
}

/// Appends the remaining length of a fixed header; values above [`VARINT_MAX`] are written as
/// [`VARINT_MAX`].
#[inline]
pub fn encode_remaining_len(len: usize, out: &mut Vec<u8>) {
    if len < 0x80 {
        return out.push(len as u8);
    }
    if len < 0x4000 {
        return out.extend_from_slice(&[len as u8 | 0x80, (len >> 7) as u8]);
    }
    let (bytes, len_len) = varint_bytes(len);
    out.extend(bytes.into_iter().take(len_len));
}

/// Returns the number of bytes of `n` as a variable byte integer, 1 to 4.
#[inline]
pub fn varint_len(n: u32) -> usize {
    match n {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Returns the encoding and its number of bytes. [MQTT-1.5.5-1]
fn varint_bytes(len: usize) -> ([u8; 4], usize) {
    let value = u32::try_from(len).map_or(VARINT_MAX, |len| len.min(VARINT_MAX));
    let len_len = varint_len(value);
    let byte = |i: usize| {
        let more = if i + 1 < len_len { 0x80 } else { 0 };
        (value >> (7 * i)) as u8 & 0x7F | more
    };
    ([byte(0), byte(1), byte(2), byte(3)], len_len)
}

#[inline]
pub(crate) fn varint(value: u32, out: &mut Vec<u8>) {
    encode_remaining_len(value as usize, out);
}

#[inline]
fn u16(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn text(value: &str, out: &mut Vec<u8>) {
    binary(truncate_text(value).as_bytes(), out);
}

#[inline]
pub(crate) fn binary(value: &[u8], out: &mut Vec<u8>) {
    let value = value.get(..FIELD_BYTES_MAX).unwrap_or(value);
    u16(value.len() as u16, out);
    out.extend_from_slice(value);
}

/// Appends the length and the properties; no bytes in 3.x. [MQTT-2.2.2-1]
#[inline]
fn properties(properties: Properties<'_>, version: ProtocolVersion, out: &mut Vec<u8>) {
    if version.is_v5() {
        encode_remaining_len(properties.as_bytes().len(), out);
        out.extend_from_slice(properties.as_bytes());
    }
}

#[inline]
fn properties_len(properties: Properties<'_>, version: ProtocolVersion) -> usize {
    if !version.is_v5() {
        return 0;
    }
    let len = properties.as_bytes().len();
    len + u32::try_from(len).map_or(4, varint_len)
}

/// Truncates a text to at most 65,535 bytes, at a character boundary.
#[inline]
fn truncate_text(text: &str) -> &str {
    if text.len() <= FIELD_BYTES_MAX {
        return text;
    }
    let ends = (0..=FIELD_BYTES_MAX).rev();
    ends.flat_map(|end| text.get(..end)).next().unwrap_or_default()
}

const FIELD_BYTES_MAX: usize = u16::MAX as usize;
const FIXED_HEADER_BYTES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::{PropertiesBuf, Property};

    fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
        Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic,
            packet_id: None,
            properties: Properties::default(),
            payload,
        }
    }

    #[test]
    fn length_is_patched_whatever_its_size() {
        for value_len in [0, 100, 120, 130, 16_370, 16_400, 65_535] {
            let value = "v".repeat(value_len);
            let mut buf = PropertiesBuf::default();
            buf.push(Property::ReasonString(&value));
            let ack = PublishAck {
                packet_id: PacketId::MIN,
                reason: ReasonCode::Success,
                properties: buf.as_properties(),
            };
            let mut out = vec![0xEE];
            ack.encode(PacketType::PubRel, ProtocolVersion::V5, &mut out);
            let frame = crate::split_frame(&out[1..], u32::MAX).unwrap().unwrap();
            assert_eq!(frame.len, out.len() - 1);
            assert_eq!(PublishAck::decode(frame, ProtocolVersion::V5), Ok(ack));
        }
    }

    #[test]
    fn properties_stay_behind_in_3x() {
        let mut buf = PropertiesBuf::default();
        buf.push(Property::TopicAlias(1));
        let message = Publish { properties: buf.as_properties(), ..publish("t", b"x") };
        let mut out = Vec::new();
        message.encode(ProtocolVersion::V311, &mut out);
        assert_eq!(out, b"\x30\x04\x00\x01tx");
    }

    #[test]
    fn text_that_is_too_long_ends_at_a_character() {
        let long = "\u{1F980}".repeat(16_384);
        let mut out = Vec::new();
        text(&long, &mut out);
        assert_eq!(out[..2], 65_532_u16.to_be_bytes());
        assert_eq!(out.len(), 2 + 65_532);
        out.clear();
        binary(&[7; 70_000], &mut out);
        assert_eq!(out.len(), 2 + 65_535);
    }

    #[test]
    fn packet_above_the_maximum_is_not_written() {
        let payload = vec![0; VARINT_MAX as usize - 2];
        let mut out = vec![0xEE];
        publish("t", &payload).encode(ProtocolVersion::V311, &mut out);
        assert_eq!(out, [0xEE]);
        publish("", &payload).encode(ProtocolVersion::V311, &mut out);
        assert_eq!(out.len(), 1 + 5 + VARINT_MAX as usize);
    }

    #[test]
    fn what_3x_cannot_say_is_not_sent() {
        let mut out = Vec::new();
        let properties = Properties::default();
        Disconnect { reason: ReasonCode::ServerBusy, properties }
            .encode(ProtocolVersion::V311, &mut out);
        Auth { reason: ReasonCode::ReAuthenticate, properties }
            .encode(ProtocolVersion::V31, &mut out);
        // [3.1.1:MQTT-3.2.2-6]
        let refusal =
            ConnAck { session_present: false, reason: ReasonCode::PacketTooLarge, properties };
        refusal.encode(ProtocolVersion::V311, &mut out);
        assert_eq!(out, []);
        Disconnect { reason: ReasonCode::NormalDisconnection, properties }
            .encode(ProtocolVersion::V31, &mut out);
        assert_eq!(out, [0xE0, 0]);
    }

    #[test]
    fn refusal_never_promises_a_session() {
        // [MQTT-3.2.2-6]
        let refusal = ConnAck {
            session_present: true,
            reason: ReasonCode::NotAuthorized,
            properties: Properties::default(),
        };
        let mut out = Vec::new();
        refusal.encode(ProtocolVersion::V5, &mut out);
        assert_eq!(out, [0x20, 3, 0, 0x87, 0]);
    }

    #[test]
    fn qos_0_has_neither_dup_nor_id() {
        // [MQTT-2.2.1-2] [MQTT-3.3.1-2]
        let message = Publish { dup: true, packet_id: Some(PacketId::MAX), ..publish("t", b"") };
        let mut out = Vec::new();
        message.encode(ProtocolVersion::V311, &mut out);
        assert_eq!(out, b"\x30\x03\x00\x01t");
    }
}
