//! All violations of the protocol by a peer. The connection ends with the reason given here.
//!
//! Both matches are exhaustive without `_`: a new violation does not compile without a reason code
//! and a text for the log.

use crate::reason_code::ReasonCode;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Violation {
    AckMismatched,
    AliasOutOfRange,
    AliasUnknown,
    AuthExpected,
    AuthMethodChanged,
    AuthOutOfTurn,
    AuthWithoutMethod,
    ConnAckFlagsInvalid,
    ConnectExpected,
    ConnectFlagsReserved,
    DupWithoutQoS,
    KeepAliveTimeout,
    MalformedFlags,
    MalformedIntegerPadded,
    MalformedIntegerTooLong,
    MalformedNul,
    MalformedPacketType,
    MalformedTrailingBytes,
    MalformedTruncated,
    MalformedUtf8,
    NoLocalOnShared,
    OffControlStream,
    PacketFromServerOnly,
    PacketIdZero,
    PacketTooLarge,
    PasswordWithoutUserName,
    PropertyForbidden,
    PropertyRepeated,
    PropertyUnknown,
    PropertyValueInvalid,
    ProtocolNameUnknown,
    ProtocolVersionUnknown,
    QoSInvalid,
    ReasonNotAllowed,
    ReceiveMaximumExceeded,
    ResponseTopicInvalid,
    RetainHandlingInvalid,
    SecondConnect,
    SessionExpiryRaised,
    SubscribeOptionsReserved,
    SubscribeQoSInvalid,
    SubscribeWithoutFilter,
    SubscriptionIdFromClient,
    TopicFilterInvalid,
    TopicMissing,
    TopicNameInvalid,
    UnsubscribeWithoutFilter,
    WillFlagsInconsistent,
}

impl Violation {
    /// Returns the reason code for the peer, in a DISCONNECT, or in a CONNACK before the connection
    /// is established. Only MQTT 5.0 transmits the code.
    pub fn reason(self) -> ReasonCode {
        match self {
            Violation::ConnAckFlagsInvalid
            | Violation::ConnectFlagsReserved
            | Violation::DupWithoutQoS
            | Violation::MalformedFlags
            | Violation::MalformedIntegerPadded
            | Violation::MalformedIntegerTooLong
            | Violation::MalformedNul
            | Violation::MalformedPacketType
            | Violation::MalformedTrailingBytes
            | Violation::MalformedTruncated
            | Violation::MalformedUtf8
            | Violation::PasswordWithoutUserName
            | Violation::PropertyForbidden
            | Violation::PropertyUnknown
            | Violation::QoSInvalid
            | Violation::SubscribeOptionsReserved
            | Violation::WillFlagsInconsistent => ReasonCode::MalformedPacket,

            Violation::AckMismatched
            | Violation::AliasUnknown
            | Violation::AuthExpected
            | Violation::AuthMethodChanged
            | Violation::AuthOutOfTurn
            | Violation::AuthWithoutMethod
            | Violation::ConnectExpected
            | Violation::NoLocalOnShared
            | Violation::OffControlStream
            | Violation::PacketFromServerOnly
            | Violation::PacketIdZero
            | Violation::PropertyRepeated
            | Violation::PropertyValueInvalid
            | Violation::ReasonNotAllowed
            | Violation::ResponseTopicInvalid
            | Violation::RetainHandlingInvalid
            | Violation::SecondConnect
            | Violation::SessionExpiryRaised
            | Violation::SubscribeQoSInvalid
            | Violation::SubscribeWithoutFilter
            | Violation::SubscriptionIdFromClient
            | Violation::TopicMissing
            | Violation::UnsubscribeWithoutFilter => ReasonCode::ProtocolError,

            Violation::AliasOutOfRange => ReasonCode::TopicAliasInvalid,
            Violation::KeepAliveTimeout => ReasonCode::KeepAliveTimeout,
            Violation::PacketTooLarge => ReasonCode::PacketTooLarge,
            Violation::ProtocolNameUnknown => ReasonCode::UnsupportedProtocolVersion,
            Violation::ProtocolVersionUnknown => ReasonCode::UnsupportedProtocolVersion,
            Violation::ReceiveMaximumExceeded => ReasonCode::ReceiveMaximumExceeded,
            Violation::TopicFilterInvalid => ReasonCode::TopicFilterInvalid,
            Violation::TopicNameInvalid => ReasonCode::TopicNameInvalid,
        }
    }

    /// Returns a phrase to follow "the client ...", for logs and reason strings.
    pub fn description(self) -> &'static str {
        match self {
            Violation::AckMismatched => {
                "acknowledged a message as its QoS or its state does not allow"
            }
            Violation::AliasOutOfRange => "used a topic alias of 0 or above the maximum",
            Violation::AliasUnknown => "used a topic alias before giving it a topic",
            Violation::AuthExpected => "sent another packet before its authentication was over",
            Violation::AuthMethodChanged => "changed the authentication method",
            Violation::AuthOutOfTurn => "sent AUTH out of turn",
            Violation::AuthWithoutMethod => "sent authentication without a method",
            Violation::ConnAckFlagsInvalid => "sent CONNACK flags that contradict it",
            Violation::ConnectExpected => "sent another packet before CONNECT",
            Violation::ConnectFlagsReserved => "set the reserved connect flag",
            Violation::DupWithoutQoS => "set DUP on a QoS 0 PUBLISH",
            Violation::KeepAliveTimeout => "was silent for longer than its keep alive",
            Violation::MalformedFlags => "set reserved flags of a fixed header",
            Violation::MalformedIntegerPadded => "encoded an integer in more bytes than needed",
            Violation::MalformedIntegerTooLong => "encoded an integer in more than four bytes",
            Violation::MalformedNul => "sent text with the character U+0000",
            Violation::MalformedPacketType => "sent a packet type that is reserved",
            Violation::MalformedTrailingBytes => "sent a packet with bytes after its last field",
            Violation::MalformedTruncated => "sent a packet that ends inside a field",
            Violation::MalformedUtf8 => "sent text that is not UTF-8",
            Violation::NoLocalOnShared => "asked for No Local on a shared subscription",
            Violation::OffControlStream => "sent a packet of the connection on a data stream",
            Violation::PacketFromServerOnly => "sent a packet that only servers send",
            Violation::PacketIdZero => "used packet id 0",
            Violation::PacketTooLarge => "sent a packet above the maximum size",
            Violation::PasswordWithoutUserName => "sent a password without a user name",
            Violation::PropertyForbidden => "sent a property that this packet cannot have",
            Violation::PropertyRepeated => "sent a property twice",
            Violation::PropertyUnknown => "sent a property that does not exist",
            Violation::PropertyValueInvalid => "sent a property with a value out of its range",
            Violation::ProtocolNameUnknown => "named another protocol",
            Violation::ProtocolVersionUnknown => "asked for an unknown protocol version",
            Violation::QoSInvalid => "used QoS 3",
            Violation::ReasonNotAllowed => "sent a reason code that this packet cannot have",
            Violation::ReceiveMaximumExceeded => "sent more QoS 1 and 2 messages than agreed",
            Violation::ResponseTopicInvalid => "sent a response topic that is not a topic name",
            Violation::RetainHandlingInvalid => "used retain handling 3",
            Violation::SecondConnect => "sent a second CONNECT",
            Violation::SessionExpiryRaised => "raised a session expiry of 0 in DISCONNECT",
            Violation::SubscribeOptionsReserved => "set reserved subscription options",
            Violation::SubscribeQoSInvalid => "subscribed with QoS 3",
            Violation::SubscribeWithoutFilter => "sent SUBSCRIBE without a filter",
            Violation::SubscriptionIdFromClient => "sent a subscription identifier in PUBLISH",
            Violation::TopicFilterInvalid => "sent a topic filter that is not valid",
            Violation::TopicMissing => "sent PUBLISH with neither topic nor alias",
            Violation::TopicNameInvalid => "sent a topic name that is not valid",
            Violation::UnsubscribeWithoutFilter => "sent UNSUBSCRIBE without a filter",
            Violation::WillFlagsInconsistent => "set will QoS or will retain without a will",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketType;

    const ALL: &[Violation] = &[
        Violation::AckMismatched,
        Violation::AliasOutOfRange,
        Violation::AliasUnknown,
        Violation::AuthExpected,
        Violation::AuthMethodChanged,
        Violation::AuthOutOfTurn,
        Violation::AuthWithoutMethod,
        Violation::ConnAckFlagsInvalid,
        Violation::ConnectExpected,
        Violation::ConnectFlagsReserved,
        Violation::DupWithoutQoS,
        Violation::KeepAliveTimeout,
        Violation::MalformedFlags,
        Violation::MalformedIntegerPadded,
        Violation::MalformedIntegerTooLong,
        Violation::MalformedNul,
        Violation::MalformedPacketType,
        Violation::MalformedTrailingBytes,
        Violation::MalformedTruncated,
        Violation::MalformedUtf8,
        Violation::NoLocalOnShared,
        Violation::OffControlStream,
        Violation::PacketFromServerOnly,
        Violation::PacketIdZero,
        Violation::PacketTooLarge,
        Violation::PasswordWithoutUserName,
        Violation::PropertyForbidden,
        Violation::PropertyRepeated,
        Violation::PropertyUnknown,
        Violation::PropertyValueInvalid,
        Violation::ProtocolNameUnknown,
        Violation::ProtocolVersionUnknown,
        Violation::QoSInvalid,
        Violation::ReasonNotAllowed,
        Violation::ReceiveMaximumExceeded,
        Violation::ResponseTopicInvalid,
        Violation::RetainHandlingInvalid,
        Violation::SecondConnect,
        Violation::SessionExpiryRaised,
        Violation::SubscribeOptionsReserved,
        Violation::SubscribeQoSInvalid,
        Violation::SubscribeWithoutFilter,
        Violation::SubscriptionIdFromClient,
        Violation::TopicFilterInvalid,
        Violation::TopicMissing,
        Violation::TopicNameInvalid,
        Violation::UnsubscribeWithoutFilter,
        Violation::WillFlagsInconsistent,
    ];

    #[test]
    fn variants_are_in_alphabetical_order_and_listed_here() {
        assert_eq!(ALL.len(), Violation::WillFlagsInconsistent as usize + 1);
        assert!(ALL.is_sorted_by_key(|violation| format!("{violation:?}")));
    }

    #[test]
    fn each_has_a_reason_that_ends_a_connection_and_words_of_its_own() {
        for violation in ALL {
            let reason = violation.reason();
            assert!(reason.is_error(), "{violation:?}");
            let ends = [PacketType::ConnAck, PacketType::Disconnect];
            assert!(ends.iter().any(|&packet| reason.is_allowed_in(packet)), "{violation:?}");
            assert_eq!(
                ALL.iter().filter(|v| v.description() == violation.description()).count(),
                1
            );
            assert_eq!(violation.to_string(), violation.description());
        }
    }
}
