//! The 27 properties of MQTT 5 in one table: identifier, encoding, packets and repetition.

use crate::packet::PacketType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyRow {
    pub id: u8,
    /// Name in the notation of the specification.
    pub name: &'static str,
    pub kind: PropertyKind,
    /// The [`PacketType::bit`]s of the packets in which the property is allowed, and [`WILL`].
    pub packets: u16,
    pub repeats: PropertyRepeats,
}

/// Encoding of a property's value [MQTT 5.0, 2.2.2.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyKind {
    /// A byte, 0 or 1: no property of one byte allows more values.
    Flag,
    U16,
    U32,
    Varint,
    Text,
    TextPair,
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyRepeats {
    Once,
    Many,
    /// Subscription Identifier: once in SUBSCRIBE, any number of times in a PUBLISH from the
    /// server.
    ManyInPublish,
}

/// Owner of the properties of a will: bit 0, which is not the bit of a packet type.
pub const WILL: u16 = 1 << 0;

pub(crate) const CONNECT: u16 = PacketType::Connect.bit();
pub(crate) const CONNACK: u16 = PacketType::ConnAck.bit();
pub(crate) const PUBLISH: u16 = PacketType::Publish.bit();
pub(crate) const SUBSCRIBE: u16 = PacketType::Subscribe.bit();
pub(crate) const SUBACK: u16 = PacketType::SubAck.bit();
pub(crate) const UNSUBSCRIBE: u16 = PacketType::Unsubscribe.bit();
pub(crate) const UNSUBACK: u16 = PacketType::UnsubAck.bit();
pub(crate) const DISCONNECT: u16 = PacketType::Disconnect.bit();
pub(crate) const AUTH: u16 = PacketType::Auth.bit();

const ACKS: u16 = PacketType::PubAck.bit()
    | PacketType::PubRec.bit()
    | PacketType::PubRel.bit()
    | PacketType::PubComp.bit();
const RESPONSE_PACKETS: u16 = CONNACK | ACKS | SUBACK | UNSUBACK | DISCONNECT | AUTH;
const ALL: u16 = RESPONSE_PACKETS | CONNECT | PUBLISH | SUBSCRIBE | UNSUBSCRIBE | WILL;
const MESSAGE: u16 = PUBLISH | WILL;
const CONNECT_PACKETS: u16 = CONNECT | CONNACK;

const fn row(id: u8, kind: PropertyKind, packets: u16, name: &'static str) -> PropertyRow {
    PropertyRow { id, name, kind, packets, repeats: PropertyRepeats::Once }
}

/// Every property in the order of identifiers: table 2-4 of the specification.
#[rustfmt::skip]
pub const PROPERTIES: &[PropertyRow] = &[
    row(0x01, PropertyKind::Flag, MESSAGE, "Payload Format Indicator"),
    row(0x02, PropertyKind::U32, MESSAGE, "Message Expiry Interval"),
    row(0x03, PropertyKind::Text, MESSAGE, "Content Type"),
    row(0x08, PropertyKind::Text, MESSAGE, "Response Topic"),
    row(0x09, PropertyKind::Binary, MESSAGE, "Correlation Data"),
    PropertyRow { repeats: PropertyRepeats::ManyInPublish,
        ..row(0x0B, PropertyKind::Varint, PUBLISH | SUBSCRIBE, "Subscription Identifier") },
    row(0x11, PropertyKind::U32, CONNECT_PACKETS | DISCONNECT, "Session Expiry Interval"),
    row(0x12, PropertyKind::Text, CONNACK, "Assigned Client Identifier"),
    row(0x13, PropertyKind::U16, CONNACK, "Server Keep Alive"),
    row(0x15, PropertyKind::Text, CONNECT_PACKETS | AUTH, "Authentication Method"),
    row(0x16, PropertyKind::Binary, CONNECT_PACKETS | AUTH, "Authentication Data"),
    row(0x17, PropertyKind::Flag, CONNECT, "Request Problem Information"),
    row(0x18, PropertyKind::U32, WILL, "Will Delay Interval"),
    row(0x19, PropertyKind::Flag, CONNECT, "Request Response Information"),
    row(0x1A, PropertyKind::Text, CONNACK, "Response Information"),
    row(0x1C, PropertyKind::Text, CONNACK | DISCONNECT, "Server Reference"),
    row(0x1F, PropertyKind::Text, RESPONSE_PACKETS, "Reason String"),
    row(0x21, PropertyKind::U16, CONNECT_PACKETS, "Receive Maximum"),
    row(0x22, PropertyKind::U16, CONNECT_PACKETS, "Topic Alias Maximum"),
    row(0x23, PropertyKind::U16, PUBLISH, "Topic Alias"),
    row(0x24, PropertyKind::Flag, CONNACK, "Maximum QoS"),
    row(0x25, PropertyKind::Flag, CONNACK, "Retain Available"),
    PropertyRow { repeats: PropertyRepeats::Many,
        ..row(0x26, PropertyKind::TextPair, ALL, "User Property") },
    row(0x27, PropertyKind::U32, CONNECT_PACKETS, "Maximum Packet Size"),
    row(0x28, PropertyKind::Flag, CONNACK, "Wildcard Subscription Available"),
    row(0x29, PropertyKind::Flag, CONNACK, "Subscription Identifier Available"),
    row(0x2A, PropertyKind::Flag, CONNACK, "Shared Subscription Available"),
];

/// The parts of a [`PropertyRow`] for the decoder, indexed by property identifier.
#[derive(Clone, Copy)]
pub(crate) struct PropertyRule {
    pub(crate) packets: u16,
    /// The packets in which the property may occur more than once.
    pub(crate) many: u16,
}

/// Returns the rule of an identifier; `None` for an unknown identifier.
#[inline]
pub(crate) fn property_rule(id: u8) -> Option<PropertyRule> {
    PROPERTY_RULES.get(usize::from(id)).copied().filter(|place| place.packets != 0)
}

const PROPERTY_RULES: [PropertyRule; ID_MAX + 1] = {
    let mut places = [PropertyRule { packets: 0, many: 0 }; ID_MAX + 1];
    let mut i = 0;
    while i < PROPERTIES.len() {
        let PropertyRow { id, packets, repeats, .. } = PROPERTIES[i];
        let many = match repeats {
            PropertyRepeats::Once => 0,
            PropertyRepeats::Many => packets,
            PropertyRepeats::ManyInPublish => PUBLISH,
        };
        places[id as usize] = PropertyRule { packets, many };
        i += 1;
    }
    places
};

const ID_MAX: usize = 0x2A;
