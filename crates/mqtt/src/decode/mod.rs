//! Frames to packets. Strict: every flag, length, value and trailing byte is checked.
//!
//! Each packet's `decode` expects a frame of its own type: whoever calls one has read the type.

mod connect;
mod outline;
mod publish;
mod session;
mod subscribe;

use crate::frame::Frame;
use crate::packet::*;
use crate::property::{self, Properties, Seen};
use crate::text::Reader;
use crate::violation::Violation;

impl<'a> Packet<'a> {
    pub fn decode(frame: Frame<'a>, version: Version) -> Result<Packet<'a>, Violation> {
        let kind = PacketType::from_byte(frame.first).ok_or(Violation::MalformedPacketType)?;
        Ok(match kind {
            PacketType::Connect => Packet::Connect(Connect::decode(frame)?),
            PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(frame, version)?),
            PacketType::Publish => Packet::Publish(Publish::decode(frame, version)?),
            PacketType::PubAck => Packet::PubAck(Ack::decode(frame, version)?),
            PacketType::PubRec => Packet::PubRec(Ack::decode(frame, version)?),
            PacketType::PubRel => Packet::PubRel(Ack::decode(frame, version)?),
            PacketType::PubComp => Packet::PubComp(Ack::decode(frame, version)?),
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
    frame: Frame<'a>,
    kind: PacketType,
    packet: Packet<'a>,
) -> Result<Packet<'a>, Violation> {
    check_flags(frame, kind, Version::V5)?;
    Reader::new(frame.body).end()?;
    Ok(packet)
}

/// The fixed flags of every packet but PUBLISH.
#[inline]
fn check_flags(frame: Frame<'_>, kind: PacketType, version: Version) -> Result<(), Violation> {
    // [MQTT-2.1.3-1] [3.1.1:MQTT-2.2.2-1] [3.1.1:MQTT-2.2.2-2]
    let expected = kind.first_byte();
    // In 3.1 the three packets with flags 0010 were ordinary QoS 1 packets, repeated with DUP.
    let is_repeat = version == Version::V31 && expected & 0x0F != 0 && frame.first & 0x08 != 0;
    let first = if is_repeat { frame.first & !0x08 } else { frame.first };
    if first == expected { Ok(()) } else { Err(Violation::MalformedFlags) }
}

impl<'a> Reader<'a> {
    /// Length and properties; in 3.x neither is there.
    #[inline]
    fn properties(&mut self, owner: u16, version: Version) -> Result<Properties<'a>, Violation> {
        self.properties_seen(owner, version).map(|(properties, _)| properties)
    }

    #[inline]
    fn properties_seen(
        &mut self,
        owner: u16,
        version: Version,
    ) -> Result<(Properties<'a>, Seen), Violation> {
        if !version.is_v5() {
            return Ok((Properties::default(), Seen::NONE));
        }
        let len = self.varint()?;
        if len == 0 {
            return Ok((Properties::default(), Seen::NONE));
        }
        let bytes = self.bytes(len as usize)?;
        let seen = property::check(bytes, owner)?;
        Ok((Properties::trusted(bytes), seen))
    }
}
