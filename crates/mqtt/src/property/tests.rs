//! Every property in every packet: allowed, forbidden, repeated, and its range of values.

use super::*;
use crate::packet::PacketType;

const OWNERS: u16 = u16::MAX;

/// A legal value of each property, in the order of [`PROPERTIES`].
const SAMPLES: [Property<'static>; 27] = [
    Property::PayloadFormatIndicator(1),
    Property::MessageExpiryInterval(0),
    Property::ContentType("text/plain"),
    Property::ResponseTopic("answers/1"),
    Property::CorrelationData(b"\x00\xFF"),
    Property::SubscriptionIdentifier(268_435_455),
    Property::SessionExpiryInterval(u32::MAX),
    Property::AssignedClientIdentifier("auto-1"),
    Property::ServerKeepAlive(0),
    Property::AuthenticationMethod("SCRAM-SHA-256"),
    Property::AuthenticationData(b"n,,n=user"),
    Property::RequestProblemInformation(0),
    Property::WillDelayInterval(30),
    Property::RequestResponseInformation(1),
    Property::ResponseInformation("answers/"),
    Property::ServerReference("other:1883"),
    Property::ReasonString(""),
    Property::ReceiveMaximum(1),
    Property::TopicAliasMaximum(0),
    Property::TopicAlias(65_535),
    Property::MaximumQoS(1),
    Property::RetainAvailable(0),
    Property::UserProperty("", "\u{1F980}"),
    Property::MaximumPacketSize(u32::MAX),
    Property::WildcardSubscriptionAvailable(1),
    Property::SubscriptionIdentifierAvailable(0),
    Property::SharedSubscriptionAvailable(1),
];

/// The lists of the packets' own chapters, which turn the rows of [`PROPERTIES`] into columns.
const IDS_OF_OWNERS: [(u16, &[u8]); 14] = [
    (CONNECT, &[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27]),
    (WILL, &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26]),
    (
        CONNACK,
        &[
            0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27,
            0x28, 0x29, 0x2A,
        ],
    ),
    (PUBLISH, &[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26]),
    (PacketType::PubAck.bit(), &[0x1F, 0x26]),
    (PacketType::PubRec.bit(), &[0x1F, 0x26]),
    (PacketType::PubRel.bit(), &[0x1F, 0x26]),
    (PacketType::PubComp.bit(), &[0x1F, 0x26]),
    (SUBSCRIBE, &[0x0B, 0x26]),
    (SUBACK, &[0x1F, 0x26]),
    (UNSUBSCRIBE, &[0x26]),
    (UNSUBACK, &[0x1F, 0x26]),
    (DISCONNECT, &[0x11, 0x1C, 0x1F, 0x26]),
    (AUTH, &[0x15, 0x16, 0x1F, 0x26]),
];

fn encoded(properties: &[Property<'_>]) -> Vec<u8> {
    let mut buf = PropertiesBuf::default();
    for &property in properties {
        buf.push(property);
    }
    buf.as_properties().as_bytes().to_vec()
}

fn check(properties: &[Property<'_>], owner: u16) -> Result<(), Violation> {
    Properties::check(&encoded(properties), owner).map(|_| ())
}

/// Returns the sample, preceded by the method where authentication data requires a method.
fn complete(sample: Property<'static>) -> Vec<Property<'static>> {
    match sample {
        Property::AuthenticationData(_) => {
            vec![Property::AuthenticationMethod("M"), sample]
        }
        _ => vec![sample],
    }
}

#[test]
fn every_property_stands_in_its_packets_and_nowhere_else() {
    for (row, &sample) in PROPERTIES.iter().zip(&SAMPLES) {
        for bit in 0..16 {
            let owner = 1 << bit;
            let ids = IDS_OF_OWNERS.iter().find(|(other, _)| *other == owner);
            let is_allowed = ids.is_some_and(|(_, ids)| ids.contains(&row.id));
            assert_eq!(row.packets & owner != 0, is_allowed, "{} {bit}", row.name);
            let expected = match is_allowed {
                true => Ok(()),
                false => Err(Violation::PropertyForbidden),
            };
            assert_eq!(check(&complete(sample), owner), expected, "{} {bit}", row.name);
        }
    }
}

#[test]
fn only_user_properties_and_delivered_subscription_identifiers_repeat() {
    for (row, &sample) in PROPERTIES.iter().zip(&SAMPLES) {
        for owner in (0..16).map(|bit| 1 << bit).filter(|owner| row.packets & owner != 0) {
            let may_repeat = match sample {
                Property::UserProperty(..) => true,
                Property::SubscriptionIdentifier(_) => owner == PUBLISH,
                _ => false,
            };
            let expected = if may_repeat { Ok(()) } else { Err(Violation::PropertyRepeated) };
            let mut properties = complete(sample);
            properties.extend([Property::UserProperty("between", ""), sample]);
            assert_eq!(check(&properties, owner), expected, "{} {owner}", row.name);
        }
    }
}

#[test]
fn every_property_comes_back_as_it_went() {
    for (row, &sample) in PROPERTIES.iter().zip(&SAMPLES) {
        let bytes = encoded(&[sample]);
        assert_eq!(bytes[0], row.id);
        let properties = Properties::check(&bytes, row.packets).unwrap_or_default();
        let expected = match sample {
            Property::AuthenticationData(_) => vec![],
            _ => vec![(sample, &bytes[..])],
        };
        assert_eq!(properties.iter_with_bytes().collect::<Vec<_>>(), expected);
        let kind = match sample.encoding().1 {
            PropertyEncoding::U8(_) => PropertyKind::Flag,
            PropertyEncoding::U16(_) => PropertyKind::U16,
            PropertyEncoding::U32(_) => PropertyKind::U32,
            PropertyEncoding::Varint(_) => PropertyKind::Varint,
            PropertyEncoding::Text(_) => PropertyKind::Text,
            PropertyEncoding::TextPair(..) => PropertyKind::TextPair,
            PropertyEncoding::Binary(_) => PropertyKind::Binary,
        };
        assert_eq!(kind, row.kind, "{}", row.name);
    }
}

#[test]
fn properties_keep_their_order_and_their_bytes() {
    // [MQTT-3.3.2-18]
    let sent = [
        Property::UserProperty("a", "1"),
        Property::TopicAlias(7),
        Property::UserProperty("a", "2"),
        Property::SubscriptionIdentifier(128),
        Property::SubscriptionIdentifier(1),
    ];
    let bytes = encoded(&sent);
    let properties = Properties::check(&bytes, PUBLISH).unwrap();
    assert_eq!(properties.iter().collect::<Vec<_>>(), sent);
    let copied: Vec<u8> =
        properties.iter_with_bytes().flat_map(|(_, bytes)| bytes).copied().collect();
    assert_eq!(copied, bytes);
    assert_eq!(Properties::trusted(&copied), properties);
}

#[test]
fn every_cut_property_is_malformed() {
    for &sample in &SAMPLES {
        let bytes = encoded(&[sample]);
        for len in 1..bytes.len() {
            let cut = Properties::check(&bytes[..len], OWNERS);
            assert_eq!(cut, Err(Violation::MalformedTruncated), "{sample:?} {len}");
        }
    }
}

#[test]
fn identifiers_without_a_property_are_malformed() {
    for id in 0..=u8::MAX {
        let is_known = PROPERTIES.iter().any(|row| row.id == id);
        let bytes = [id];
        let result = Properties::check(&bytes, OWNERS);
        assert_eq!(result == Err(Violation::PropertyUnknown), !is_known, "{id:#x}");
    }
}

#[test]
fn flags_are_0_or_1() {
    for row in PROPERTIES.iter().filter(|row| row.kind == PropertyKind::Flag) {
        for value in 0..=u8::MAX {
            let result = Properties::check(&[row.id, value], row.packets).map(|_| ());
            let expected = if value < 2 { Ok(()) } else { Err(Violation::PropertyValueInvalid) };
            assert_eq!(result, expected, "{} {value}", row.name);
        }
    }
}

#[test]
fn counts_and_identifiers_are_not_zero() {
    // [MQTT-3.3.2-8]
    let result = check(&[Property::TopicAlias(0)], PUBLISH);
    assert_eq!(result, Err(Violation::AliasOutOfRange));
    for (property, owner) in [
        (Property::MaximumPacketSize(0), CONNECT),
        (Property::ReceiveMaximum(0), CONNECT),
        (Property::SubscriptionIdentifier(0), SUBSCRIBE),
    ] {
        assert_eq!(check(&[property], owner), Err(Violation::PropertyValueInvalid));
    }
}

#[test]
fn response_topic_is_a_topic_name() {
    // [MQTT-3.3.2-14]
    for owner in [PUBLISH, WILL] {
        for name in ["", "a/+", "#", "a#"] {
            let result = check(&[Property::ResponseTopic(name)], owner);
            assert_eq!(result, Err(Violation::ResponseTopicInvalid), "{name}");
        }
    }
}

#[test]
fn authentication_data_needs_a_method() {
    let data = Property::AuthenticationData(b"x");
    let method = Property::AuthenticationMethod("m");
    for owner in [CONNECT, CONNACK, AUTH] {
        assert_eq!(check(&[data], owner), Err(Violation::AuthWithoutMethod));
        assert_eq!(check(&[data, method], owner), Ok(()));
        assert_eq!(check(&[method], owner), Ok(()));
    }
}

#[test]
fn text_in_properties_is_strict() {
    // [MQTT-1.5.7-1] [MQTT-3.3.2-13] [MQTT-3.3.2-19]
    for (id, rest) in [(0x03, &b""[..]), (0x08, b""), (0x26, b"\0\x01v"), (0x1F, b"")] {
        let with = |text: &[u8]| [&[id, 0, 1], text, rest].concat();
        assert!(Properties::check(&with(b"a"), OWNERS).is_ok());
        assert_eq!(Properties::check(&with(b"\xff"), OWNERS), Err(Violation::MalformedUtf8));
        assert_eq!(Properties::check(&with(b"\0"), OWNERS), Err(Violation::MalformedNul));
    }
    let value = b"\x26\0\x01k\0\x01\xff";
    assert_eq!(Properties::check(value, OWNERS), Err(Violation::MalformedUtf8));
}

#[test]
fn subscription_identifier_is_encoded_minimally() {
    // [MQTT-1.5.5-1]
    let padded = Properties::check(b"\x0b\x81\x00", SUBSCRIBE);
    assert_eq!(padded, Err(Violation::MalformedIntegerPadded));
    let long = Properties::check(b"\x0b\xff\xff\xff\xff\x01", SUBSCRIBE);
    assert_eq!(long, Err(Violation::MalformedIntegerTooLong));
}
