//! Reads the fields of a PUBLISH by their lengths alone, for a receiver that has to skip a message
//! that it cannot accept: the contents of the fields are not checked.

use crate::frame::PacketFrame;
use crate::packet::{ProtocolVersion, PublishOutline, QoS};
use crate::property::{PROPERTIES, PropertyKind, TOPIC_ALIAS};
use crate::text::PacketReader;
use crate::violation::Violation;

impl<'a> PublishOutline<'a> {
    /// Decodes a PUBLISH without checking the contents of its fields. Fails if the lengths of the
    /// fields do not fit the packet, or if there is no valid packet id for an acknowledgement: peer
    /// and receiver may then disagree about the end of the packet.
    pub fn decode(
        frame: PacketFrame<'a>,
        version: ProtocolVersion,
    ) -> Result<PublishOutline<'a>, Violation> {
        let qos = QoS::from_bits(frame.first >> 1 & 0b11).ok_or(Violation::QoSInvalid)?;
        let mut body = PacketReader::new(frame.body);
        let topic = body.binary()?;
        let packet_id = match qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce | QoS::ExactlyOnce => Some(body.packet_id()?),
        };
        let properties = match version.is_v5() {
            true => {
                let len = body.varint()?;
                body.bytes(len as usize)?
            }
            false => &[],
        };
        Ok(PublishOutline { qos, topic, packet_id, properties })
    }

    /// Returns the Topic Alias; `None` if absent, or behind an unknown property, whose length is
    /// unknown.
    pub fn topic_alias(&self) -> Option<u16> {
        let mut rest = PacketReader::new(self.properties);
        loop {
            let id = rest.u8().ok()?;
            if id == TOPIC_ALIAS {
                return rest.u16().ok();
            }
            let kind = PROPERTIES.iter().find(|row| row.id == id)?.kind;
            skip(&mut rest, kind).ok()?;
        }
    }
}

fn skip(rest: &mut PacketReader<'_>, kind: PropertyKind) -> Result<(), Violation> {
    match kind {
        PropertyKind::Flag => rest.u8().map(drop),
        PropertyKind::U16 => rest.u16().map(drop),
        PropertyKind::U32 => rest.u32().map(drop),
        PropertyKind::Varint => rest.varint().map(drop),
        PropertyKind::Text | PropertyKind::Binary => rest.binary().map(drop),
        PropertyKind::TextPair => {
            rest.binary()?;
            rest.binary().map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::split_frame;
    use crate::packet::{PacketId, Publish};

    fn outline(bytes: &[u8], version: ProtocolVersion) -> Result<PublishOutline<'_>, Violation> {
        let frame = split_frame(bytes, u32::MAX).unwrap().unwrap();
        assert!(Publish::decode(frame, version).is_err(), "it is one that nobody takes");
        PublishOutline::decode(frame, version)
    }

    #[test]
    fn contents_that_are_not_valid_leave_the_topic_and_the_id() {
        let packet_id = PacketId::new(7);
        for (bytes, version, topic) in [
            (&b"\x32\x06\x00\x02\xff/\x00\x07"[..], ProtocolVersion::V311, &b"\xff/"[..]),
            (b"\x32\x06\x00\x02a\x00\x00\x07", ProtocolVersion::V311, b"a\0"),
            (b"\x32\x06\x00\x02a#\x00\x07", ProtocolVersion::V311, b"a#"),
            (b"\x32\x04\x00\x00\x00\x07", ProtocolVersion::V311, b""),
            (b"\x32\x08\x00\x01a\x00\x07\x02\x01\x02", ProtocolVersion::V5, b"a"),
            (b"\x32\x07\x00\x01a\x00\x07\x01\x7f", ProtocolVersion::V5, b"a"),
            (b"\x32\x09\x00\x01a\x00\x07\x03\x03\x00\x09", ProtocolVersion::V5, b"a"),
        ] {
            let found = outline(bytes, version).unwrap();
            assert_eq!(
                (found.topic, found.packet_id, found.qos),
                (topic, packet_id, QoS::AtLeastOnce)
            );
        }
    }

    #[test]
    fn lengths_that_do_not_fit_and_ids_that_nobody_answers_are_no_message() {
        for (bytes, version, wrong) in [
            (&b"\x30\x03\x00\x02a"[..], ProtocolVersion::V311, Violation::MalformedTruncated),
            (b"\x32\x04\x00\x02aa", ProtocolVersion::V311, Violation::MalformedTruncated),
            (b"\x32\x05\x00\x01\xff\x00\x00", ProtocolVersion::V311, Violation::PacketIdZero),
            (b"\x36\x05\x00\x01a\x00\x07", ProtocolVersion::V311, Violation::QoSInvalid),
            (b"\x30\x05\x00\x01a\x02\x01", ProtocolVersion::V5, Violation::MalformedTruncated),
            (b"\x30\x05\x00\x01a\x80\x00", ProtocolVersion::V5, Violation::MalformedIntegerPadded),
        ] {
            assert_eq!(outline(bytes, version), Err(wrong), "{bytes:x?}");
        }
    }

    #[test]
    fn the_alias_is_found_behind_properties_of_every_kind() {
        let packet =
            b"\x30\x20\x00\x01a\x1c\x01\x02\x02\x00\x00\x00\x01\x03\x00\x01\xff\x09\x00\x01x\
                       \x0b\x01\x26\x00\x00\x00\x01\xff\x23\x00\x05\x7f\x00";
        assert_eq!(outline(packet, ProtocolVersion::V5).unwrap().topic_alias(), Some(5));
        let behind = b"\x30\x08\x00\x01a\x04\x7f\x23\x00\x05";
        assert_eq!(outline(behind, ProtocolVersion::V5).unwrap().topic_alias(), None);
    }
}
