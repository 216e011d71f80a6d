//! The fifteen packets, with the field names of the specification.
//!
//! Packets borrow from the received bytes, or from the bytes to send. Properties stay in their
//! encoded form, checked once by `decode`: a reader iterates over the bytes, and a forwarder copies
//! a slice.

use crate::property::Properties;
use crate::reason_code::ReasonCode;
use std::num::NonZeroU16;

/// The protocol level of CONNECT [MQTT 5.0, 3.1.2.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// MQTT 3.1, protocol name `MQIsdp`.
    V31 = 3,
    V311 = 4,
    V5 = 5,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl ProtocolVersion {
    #[inline]
    pub const fn is_v5(self) -> bool {
        matches!(self, ProtocolVersion::V5)
    }
}

impl std::fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ProtocolVersion::V31 => "3.1",
            ProtocolVersion::V311 => "3.1.1",
            ProtocolVersion::V5 => "5.0",
        })
    }
}

impl QoS {
    /// Returns the QoS of two bits; `None` for 3, which is invalid in every packet.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<QoS> {
        match bits {
            0 => Some(QoS::AtMostOnce),
            1 => Some(QoS::AtLeastOnce),
            2 => Some(QoS::ExactlyOnce),
            _ => None,
        }
    }
}

pub type PacketId = NonZeroU16;

/// The type of a [`Packet`], the upper half of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// Returns the type in a packet's first byte, ignoring the flags; `None` for the reserved type
    /// 0.
    #[inline]
    pub const fn from_byte(first: u8) -> Option<PacketType> {
        Some(match first >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::ConnAck,
            3 => PacketType::Publish,
            4 => PacketType::PubAck,
            5 => PacketType::PubRec,
            6 => PacketType::PubRel,
            7 => PacketType::PubComp,
            8 => PacketType::Subscribe,
            9 => PacketType::SubAck,
            10 => PacketType::Unsubscribe,
            11 => PacketType::UnsubAck,
            12 => PacketType::PingReq,
            13 => PacketType::PingResp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// Returns the first byte: the type and its fixed flags. PUBLISH has no fixed flags, so its
    /// flags are 0 here.
    #[inline]
    pub const fn first_byte(self) -> u8 {
        // [MQTT-2.1.3-1]
        let flags = match self {
            PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 0b0010,
            _ => 0,
        };
        (self as u8) << 4 | flags
    }

    /// Returns the bit of the type in a set such as `ReasonCodeRow::packets`.
    #[inline]
    pub const fn bit(self) -> u16 {
        1 << self as u16
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(PublishAck<'a>),
    PubRec(PublishAck<'a>),
    PubRel(PublishAck<'a>),
    PubComp(PublishAck<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(UnsubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    pub version: ProtocolVersion,
    /// The highest bit of the protocol level is set, an extension of mosquitto for bridges in 3.x,
    /// where a subscription has no No Local option.
    pub is_bridge: bool,
    /// Clean Start of MQTT 5.0; Clean Session in 3.x.
    pub clean_start: bool,
    pub keep_alive_s: u16,
    pub client_id: &'a str,
    pub will: Option<Will<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    pub properties: Properties<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    pub qos: QoS,
    pub retain: bool,
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub properties: Properties<'a>,
}

/// CONNACK. In 3.x `reason` is encoded as the return code of [`ReasonCode::connack_v3`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    pub session_present: bool,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// Topic name; empty only if a topic alias replaces the topic (5.0).
    pub topic: &'a str,
    /// Packet id, present exactly when `qos` is above 0.
    pub packet_id: Option<PacketId>,
    pub properties: Properties<'a>,
    pub payload: &'a [u8],
}

/// The fields of a PUBLISH which may be invalid: their lengths fit the packet, and their contents
/// are not checked. See [`Publish`] for a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishOutline<'a> {
    pub qos: QoS,
    pub topic: &'a [u8],
    /// Packet id, present exactly when `qos` is above 0.
    pub packet_id: Option<PacketId>,
    pub properties: &'a [u8],
}

/// PUBACK, PUBREC, PUBREL and PUBCOMP. 3.x transmits only `packet_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishAck<'a> {
    pub packet_id: PacketId,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// Topic filters with their options, at least one.
    pub filters: SubscriptionList<'a>,
}

/// Subscription options of one filter of a SUBSCRIBE [MQTT 5.0, 3.8.3.1]. MQTT 3.x transmits only
/// `qos`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// 0 sends retained messages, 1 only for a new subscription, 2 never.
    pub retain_handling: u8,
}

/// The payload of SUBSCRIBE: checked bytes, read by iteration over `(filter, options)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionList<'a> {
    pub(crate) bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// Reason codes in the order of the filters, as in MQTT 5.0; 3.x has a single code for every
    /// failure.
    pub codes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// Topic filters, at least one.
    pub filters: FilterList<'a>,
}

/// The payload of UNSUBSCRIBE: checked bytes, read by iteration over filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterList<'a> {
    pub(crate) bytes: &'a [u8],
}

/// UNSUBACK. 3.x transmits no `codes`: decoding gives none, and encoding writes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    pub codes: &'a [u8],
}

/// DISCONNECT. In 3.x a client sends two bytes without a reason, and a server sends none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}
