//! Decodes frames into packets. Strict: every flag, length, value and trailing byte is checked.
//!
//! Each packet's `decode` expects a frame of its own type: the caller has checked the type.

mod connect;
mod outline;
mod publish;
mod session;
mod subscribe;

use crate::frame::PacketFrame;
use crate::packet::*;
use crate::property::{self, Properties, PropertySet};
use crate::text::PacketReader;
use crate::violation::Violation;

impl<'a> Packet<'a> {
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<Packet<'a>, Violation> {
        let kind = PacketType::from_byte(frame.first).ok_or(Violation::MalformedPacketType)?;
        Ok(match kind {
            PacketType::Connect => Packet::Connect(Connect::decode(frame)?),
            PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(frame, version)?),
            PacketType::Publish => Packet::Publish(Publish::decode(frame, version)?),
            PacketType::PubAck => Packet::PubAck(PublishAck::decode(frame, version)?),
            PacketType::PubRec => Packet::PubRec(PublishAck::decode(frame, version)?),
            PacketType::PubRel => Packet::PubRel(PublishAck::decode(frame, version)?),
            PacketType::PubComp => Packet::PubComp(PublishAck::decode(frame, version)?),
            PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(frame, version)?),
            PacketType::SubAck => Packet::SubAck(SubAck::decode(frame, version)?),
            PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(frame, version)?),
            PacketType::UnsubAck => Packet::UnsubAck(UnsubAck::decode(frame, version)?),
            PacketType::PingReq => ping(frame, PacketType::PingReq, Packet::PingReq)?,
            PacketType::PingResp => ping(frame, PacketType::PingResp, Packet::PingResp)?,
            PacketType::Disconnect => Packet::Disconnect(Disconnect::decode(frame, version)?),
            PacketType::Auth => Packet::Auth(Auth::decode(frame, version)?),
        })
    }
}

fn ping<'a>(
    frame: PacketFrame<'a>,
    kind: PacketType,
    packet: Packet<'a>,
) -> Result<Packet<'a>, Violation> {
    check_flags(frame, kind, ProtocolVersion::V5)?;
    PacketReader::new(frame.body).finish()?;
    Ok(packet)
}

/// Checks the fixed flags of every packet but PUBLISH.
#[inline]
fn check_flags(
    frame: PacketFrame<'_>,
    kind: PacketType,
    version: ProtocolVersion,
) -> Result<(), Violation> {
    // [MQTT-2.1.3-1] [3.1.1:MQTT-2.2.2-1] [3.1.1:MQTT-2.2.2-2]
    let expected = kind.first_byte();
    // In 3.1 the three packets with flags 0010 were ordinary QoS 1 packets, repeated with DUP.
    let is_repeat =
        version == ProtocolVersion::V31 && expected & 0x0F != 0 && frame.first & 0x08 != 0;
    let first = if is_repeat { frame.first & !0x08 } else { frame.first };
    if first == expected { Ok(()) } else { Err(Violation::MalformedFlags) }
}

impl<'a> PacketReader<'a> {
    /// Reads the properties of `owner`, preceded by their length; empty in 3.x, where neither
    /// exists.
    #[inline]
    fn properties(
        &mut self,
        owner: u16,
        version: ProtocolVersion,
    ) -> Result<Properties<'a>, Violation> {
        self.properties_and_set(owner, version).map(|(properties, _)| properties)
    }

    #[inline]
    fn properties_and_set(
        &mut self,
        owner: u16,
        version: ProtocolVersion,
    ) -> Result<(Properties<'a>, PropertySet), Violation> {
        if !version.is_v5() {
            return Ok((Properties::default(), PropertySet::NONE));
        }
        let len = self.varint()?;
        if len == 0 {
            return Ok((Properties::default(), PropertySet::NONE));
        }
        let bytes = self.bytes(len as usize)?;
        let seen = property::check(bytes, owner)?;
        Ok((Properties::trusted(bytes), seen))
    }
}
