//! The reason codes of MQTT 5 in one table: code, name, and the packets in which each is allowed.

use crate::packet::PacketType;
use std::fmt;

/// Result of an operation, or reason of a refusal or a disconnection. Codes from 0x80 on are
/// errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReasonCode {
    /// Also [`ReasonCode::NormalDisconnection`] and Granted QoS 0.
    #[default]
    Success = 0x00,
    GrantedQoS1 = 0x01,
    GrantedQoS2 = 0x02,
    DisconnectWithWillMessage = 0x04,
    NoMatchingSubscribers = 0x10,
    NoSubscriptionExisted = 0x11,
    ContinueAuthentication = 0x18,
    ReAuthenticate = 0x19,
    UnspecifiedError = 0x80,
    MalformedPacket = 0x81,
    ProtocolError = 0x82,
    ImplementationSpecificError = 0x83,
    UnsupportedProtocolVersion = 0x84,
    ClientIdentifierNotValid = 0x85,
    BadUserNameOrPassword = 0x86,
    NotAuthorized = 0x87,
    ServerUnavailable = 0x88,
    ServerBusy = 0x89,
    Banned = 0x8A,
    ServerShuttingDown = 0x8B,
    BadAuthenticationMethod = 0x8C,
    KeepAliveTimeout = 0x8D,
    SessionTakenOver = 0x8E,
    TopicFilterInvalid = 0x8F,
    TopicNameInvalid = 0x90,
    PacketIdentifierInUse = 0x91,
    PacketIdentifierNotFound = 0x92,
    ReceiveMaximumExceeded = 0x93,
    TopicAliasInvalid = 0x94,
    PacketTooLarge = 0x95,
    MessageRateTooHigh = 0x96,
    QuotaExceeded = 0x97,
    AdministrativeAction = 0x98,
    PayloadFormatInvalid = 0x99,
    RetainNotSupported = 0x9A,
    QoSNotSupported = 0x9B,
    UseAnotherServer = 0x9C,
    ServerMoved = 0x9D,
    SharedSubscriptionsNotSupported = 0x9E,
    ConnectionRateExceeded = 0x9F,
    MaximumConnectTime = 0xA0,
    SubscriptionIdentifiersNotSupported = 0xA1,
    WildcardSubscriptionsNotSupported = 0xA2,
}

#[expect(non_upper_case_globals, reason = "a second name of a variant reads like a variant")]
impl ReasonCode {
    /// The name of 0x00 in a DISCONNECT.
    pub const NormalDisconnection: ReasonCode = ReasonCode::Success;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonCodeRow {
    pub reason: ReasonCode,
    /// Name in the notation of the specification.
    pub name: &'static str,
    pub code: u8,
    /// The [`PacketType::bit`]s of the packets in which the code is allowed.
    pub packets: u16,
}

impl ReasonCode {
    #[inline]
    pub fn from_byte(byte: u8) -> Option<ReasonCode> {
        REASON_OF_CODE[usize::from(byte)]
    }

    #[inline]
    pub fn code(self) -> u8 {
        self as u8
    }

    pub fn name(self) -> &'static str {
        REASONS.iter().find(|row| row.reason == self).map_or("", |row| row.name)
    }

    #[inline]
    pub fn is_allowed_in(self, packet: PacketType) -> bool {
        PACKETS_OF_CODE[usize::from(self.code())] & packet.bit() != 0
    }

    #[inline]
    pub fn is_error(self) -> bool {
        self.code() >= 0x80
    }

    /// Returns the return code of a 3.x CONNACK; `None` if no code fits, and the connection has to
    /// be closed without a CONNACK.
    pub fn connack_v3(self) -> Option<u8> {
        match self {
            ReasonCode::Success => Some(0),
            ReasonCode::UnsupportedProtocolVersion => Some(1),
            ReasonCode::ClientIdentifierNotValid => Some(2),
            ReasonCode::ServerUnavailable
            | ReasonCode::ServerBusy
            | ReasonCode::QuotaExceeded
            | ReasonCode::UseAnotherServer
            | ReasonCode::ServerMoved
            | ReasonCode::ConnectionRateExceeded => Some(3),
            ReasonCode::BadUserNameOrPassword => Some(4),
            ReasonCode::NotAuthorized
            | ReasonCode::Banned
            | ReasonCode::BadAuthenticationMethod => Some(5),
            _ => None, // [3.1.1:MQTT-3.2.2-6]
        }
    }

    pub fn from_connack_v3(code: u8) -> Option<ReasonCode> {
        match code {
            0 => Some(ReasonCode::Success),
            1 => Some(ReasonCode::UnsupportedProtocolVersion),
            2 => Some(ReasonCode::ClientIdentifierNotValid),
            3 => Some(ReasonCode::ServerUnavailable),
            4 => Some(ReasonCode::BadUserNameOrPassword),
            5 => Some(ReasonCode::NotAuthorized),
            _ => None,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const CONNACK: u16 = PacketType::ConnAck.bit();
const PUBACK: u16 = PacketType::PubAck.bit();
const PUBREC: u16 = PacketType::PubRec.bit();
const PUBREL: u16 = PacketType::PubRel.bit();
const PUBCOMP: u16 = PacketType::PubComp.bit();
const SUBACK: u16 = PacketType::SubAck.bit();
const UNSUBACK: u16 = PacketType::UnsubAck.bit();
const DISCONNECT: u16 = PacketType::Disconnect.bit();
const AUTH: u16 = PacketType::Auth.bit();

const PUBLISH_ACKS: u16 = PUBACK | PUBREC;
const SUBSCRIBE_ACKS: u16 = SUBACK | UNSUBACK;
const CONNECTION_ENDS: u16 = CONNACK | DISCONNECT;

const fn row(reason: ReasonCode, packets: u16, name: &'static str) -> ReasonCodeRow {
    ReasonCodeRow { reason, name, code: reason as u8, packets }
}

/// Every reason code in the order of codes: table 2-6 of the specification.
// [MQTT-3.2.2-8] [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1] [MQTT-3.9.3-2]
// [MQTT-3.11.3-2] [MQTT-3.14.2-1] [MQTT-3.15.2-1]
pub const REASONS: &[ReasonCodeRow] = &[
    row(
        ReasonCode::Success,
        CONNACK | PUBLISH_ACKS | PUBREL | PUBCOMP | SUBSCRIBE_ACKS | DISCONNECT | AUTH,
        "Success",
    ),
    row(ReasonCode::GrantedQoS1, SUBACK, "Granted QoS 1"),
    row(ReasonCode::GrantedQoS2, SUBACK, "Granted QoS 2"),
    row(ReasonCode::DisconnectWithWillMessage, DISCONNECT, "Disconnect with Will Message"),
    row(ReasonCode::NoMatchingSubscribers, PUBLISH_ACKS, "No matching subscribers"),
    row(ReasonCode::NoSubscriptionExisted, UNSUBACK, "No subscription existed"),
    row(ReasonCode::ContinueAuthentication, AUTH, "Continue authentication"),
    row(ReasonCode::ReAuthenticate, AUTH, "Re-authenticate"),
    row(
        ReasonCode::UnspecifiedError,
        CONNECTION_ENDS | PUBLISH_ACKS | SUBSCRIBE_ACKS,
        "Unspecified error",
    ),
    row(ReasonCode::MalformedPacket, CONNECTION_ENDS, "Malformed Packet"),
    row(ReasonCode::ProtocolError, CONNECTION_ENDS, "Protocol Error"),
    row(
        ReasonCode::ImplementationSpecificError,
        CONNECTION_ENDS | PUBLISH_ACKS | SUBSCRIBE_ACKS,
        "Implementation specific error",
    ),
    row(ReasonCode::UnsupportedProtocolVersion, CONNACK, "Unsupported Protocol Version"),
    row(ReasonCode::ClientIdentifierNotValid, CONNACK, "Client Identifier not valid"),
    row(ReasonCode::BadUserNameOrPassword, CONNACK, "Bad User Name or Password"),
    row(
        ReasonCode::NotAuthorized,
        CONNECTION_ENDS | PUBLISH_ACKS | SUBSCRIBE_ACKS,
        "Not authorized",
    ),
    row(ReasonCode::ServerUnavailable, CONNACK, "Server unavailable"),
    row(ReasonCode::ServerBusy, CONNECTION_ENDS, "Server busy"),
    row(ReasonCode::Banned, CONNACK, "Banned"),
    row(ReasonCode::ServerShuttingDown, DISCONNECT, "Server shutting down"),
    row(ReasonCode::BadAuthenticationMethod, CONNECTION_ENDS, "Bad authentication method"),
    row(ReasonCode::KeepAliveTimeout, DISCONNECT, "Keep Alive timeout"),
    row(ReasonCode::SessionTakenOver, DISCONNECT, "Session taken over"),
    row(ReasonCode::TopicFilterInvalid, SUBSCRIBE_ACKS | DISCONNECT, "Topic Filter invalid"),
    row(ReasonCode::TopicNameInvalid, CONNECTION_ENDS | PUBLISH_ACKS, "Topic Name invalid"),
    row(
        ReasonCode::PacketIdentifierInUse,
        PUBLISH_ACKS | SUBSCRIBE_ACKS,
        "Packet Identifier in use",
    ),
    row(ReasonCode::PacketIdentifierNotFound, PUBREL | PUBCOMP, "Packet Identifier not found"),
    row(ReasonCode::ReceiveMaximumExceeded, DISCONNECT, "Receive Maximum exceeded"),
    row(ReasonCode::TopicAliasInvalid, DISCONNECT, "Topic Alias invalid"),
    row(ReasonCode::PacketTooLarge, CONNECTION_ENDS, "Packet too large"),
    row(ReasonCode::MessageRateTooHigh, DISCONNECT, "Message rate too high"),
    row(ReasonCode::QuotaExceeded, CONNECTION_ENDS | PUBLISH_ACKS | SUBACK, "Quota exceeded"),
    row(ReasonCode::AdministrativeAction, DISCONNECT, "Administrative action"),
    row(ReasonCode::PayloadFormatInvalid, CONNECTION_ENDS | PUBLISH_ACKS, "Payload format invalid"),
    row(ReasonCode::RetainNotSupported, CONNECTION_ENDS, "Retain not supported"),
    row(ReasonCode::QoSNotSupported, CONNECTION_ENDS, "QoS not supported"),
    row(ReasonCode::UseAnotherServer, CONNECTION_ENDS, "Use another server"),
    row(ReasonCode::ServerMoved, CONNECTION_ENDS, "Server moved"),
    row(
        ReasonCode::SharedSubscriptionsNotSupported,
        SUBACK | DISCONNECT,
        "Shared Subscriptions not supported",
    ),
    row(ReasonCode::ConnectionRateExceeded, CONNECTION_ENDS, "Connection rate exceeded"),
    row(ReasonCode::MaximumConnectTime, DISCONNECT, "Maximum connect time"),
    row(
        ReasonCode::SubscriptionIdentifiersNotSupported,
        SUBACK | DISCONNECT,
        "Subscription Identifiers not supported",
    ),
    row(
        ReasonCode::WildcardSubscriptionsNotSupported,
        SUBACK | DISCONNECT,
        "Wildcard Subscriptions not supported",
    ),
];

const REASON_OF_CODE: [Option<ReasonCode>; 256] = {
    let mut reasons = [None; 256];
    let mut i = 0;
    while i < REASONS.len() {
        reasons[REASONS[i].code as usize] = Some(REASONS[i].reason);
        i += 1;
    }
    reasons
};

const PACKETS_OF_CODE: [u16; 256] = {
    let mut packets = [0; 256];
    let mut i = 0;
    while i < REASONS.len() {
        packets[REASONS[i].code as usize] = REASONS[i].packets;
        i += 1;
    }
    packets
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_in_order() {
        assert_eq!(REASONS.len(), 43);
        assert!(REASONS.is_sorted_by(|a, b| a.code < b.code));
        for row in REASONS {
            assert_eq!(row.reason.code(), row.code);
            assert_eq!(ReasonCode::from_byte(row.code), Some(row.reason));
            assert_eq!(row.reason.name(), row.name);
            assert_eq!(REASONS.iter().filter(|other| other.name == row.name).count(), 1);
        }
        let known = (0..=u8::MAX).filter_map(ReasonCode::from_byte).count();
        assert_eq!(known, REASONS.len());
    }

    /// The tables of the packets' own chapters, which turn the rows of [`REASONS`] into columns.
    const CODES_OF_PACKETS: [(PacketType, &[u8]); 9] = [
        // [MQTT-3.2.2-8]
        (
            PacketType::ConnAck,
            &[
                0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90,
                0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
            ],
        ),
        // [MQTT-3.4.2-1]
        (PacketType::PubAck, &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
        // [MQTT-3.5.2-1]
        (PacketType::PubRec, &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
        // [MQTT-3.6.2-1]
        (PacketType::PubRel, &[0x00, 0x92]),
        // [MQTT-3.7.2-1]
        (PacketType::PubComp, &[0x00, 0x92]),
        // [MQTT-3.9.3-2]
        (
            PacketType::SubAck,
            &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2],
        ),
        // [MQTT-3.11.3-2]
        (PacketType::UnsubAck, &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
        // [MQTT-3.14.2-1]; 0x8C is in table 2-6 only.
        (
            PacketType::Disconnect,
            &[
                0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90,
                0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0,
                0xA1, 0xA2,
            ],
        ),
        // [MQTT-3.15.2-1]
        (PacketType::Auth, &[0x00, 0x18, 0x19]),
    ];

    #[test]
    fn each_packet_has_the_codes_of_its_chapter_and_no_others() {
        for first in (0x10..=0xF0).step_by(0x10) {
            let packet = PacketType::from_byte(first).unwrap();
            let codes = CODES_OF_PACKETS.iter().find(|(kind, _)| *kind == packet);
            let codes = codes.map_or(&[][..], |(_, codes)| codes);
            for row in REASONS {
                let expected = codes.contains(&row.code);
                assert_eq!(row.reason.is_allowed_in(packet), expected, "{row:?} {packet:?}");
            }
        }
    }

    #[test]
    fn return_codes_of_3x_come_back_as_they_went() {
        for code in 0..=5 {
            let reason = ReasonCode::from_connack_v3(code).unwrap();
            assert_eq!(reason.connack_v3(), Some(code));
        }
        assert_eq!(ReasonCode::from_connack_v3(6), None);
        // [3.1.1:MQTT-3.2.2-6]
        assert_eq!(ReasonCode::ProtocolError.connack_v3(), None);
    }
}
