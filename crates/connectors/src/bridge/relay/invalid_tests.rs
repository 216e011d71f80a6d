//! Tests of invalid messages from the remote broker, one for each kind of violation.

use super::tests::{ack, lost, pipe, publish, terms};
use super::*;

/// Encodes a PUBLISH byte by byte: topic, properties, payload.
fn raw(qos: u8, id: u16, topic: &[u8], properties: Option<&[u8]>, payload: &[u8]) -> Vec<u8> {
    let mut body = (topic.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(topic);
    if qos > 0 {
        body.extend_from_slice(&id.to_be_bytes());
    }
    if let Some(properties) = properties {
        body.push(properties.len() as u8);
        body.extend_from_slice(properties);
    }
    body.extend_from_slice(payload);
    let mut packet = vec![0x30 | qos << 1];
    mqtt::encode_remaining_len(body.len(), &mut packet);
    packet.extend_from_slice(&body);
    packet
}

/// Sends an invalid message between two valid messages, which must pass.
fn passes_by(version: ProtocolVersion, what: &str, qos: u8, wrong: &[u8]) {
    let mut pipe = pipe(terms(version));
    pipe.far(Packet::Publish(publish("far/in/a", 1, 1))).unwrap();
    assert_eq!(pipe.read_remote(wrong), Ok(wrong.len()), "{what}");
    pipe.far(Packet::Publish(publish("far/in/b", 1, 2))).unwrap();
    let said = pipe.near_heard();
    assert_eq!(
        said,
        ["PUBLISH 1 \"in/a\" qos=1 \"x\"", "PUBLISH 2 \"in/b\" qos=1 \"x\""],
        "{what}"
    );
    assert_eq!(lost(&pipe, "invalid_publish"), 1, "{what}");
    let answers: [&[&str]; 3] = [&[], &["PUBACK 9"], &["PUBREC 9"]];
    assert_eq!(pipe.far_heard(), answers[usize::from(qos)], "{what}");
    if qos == 2 {
        pipe.far(Packet::PubRel(ack(9, ReasonCode::Success))).unwrap();
        assert_eq!((pipe.far_heard(), pipe.near_heard()), (vec!["PUBCOMP 9".to_string()], vec![]));
    }
}

#[test]
fn a_message_whose_topic_is_not_valid_is_passed_by_and_acknowledged() {
    for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
        let none = version.is_v5().then_some(&b""[..]);
        let topics: [&[u8]; 6] =
            [b"bad/\xff\xfe", b"far/in/\xed\xa0\x80", b"far/in/\0", b"far/+/a", b"far/#", b""];
        for (topic, qos) in topics.iter().flat_map(|topic| [0, 1, 2].map(|qos| (topic, qos))) {
            passes_by(version, &printed(topic), qos, &raw(qos, 9, topic, none, b"x"));
        }
    }
}

fn printed(topic: &[u8]) -> String {
    String::from_utf8_lossy(topic).into_owned()
}

#[test]
fn a_message_with_a_property_that_is_not_valid_is_passed_by_and_acknowledged() {
    let all: [(&str, &[u8]); 13] = [
        ("payload format 2", b"\x01\x02"),
        ("a property twice", b"\x01\x01\x01\x01"),
        ("a property of CONNECT", b"\x21\x00\x05"),
        ("an unknown property", b"\x7f"),
        ("a content type that is not UTF-8", b"\x03\x00\x01\xff"),
        ("a response topic that is not UTF-8", b"\x08\x00\x01\xff"),
        ("a response topic with a wildcard", b"\x08\x00\x03a/#"),
        ("an empty response topic", b"\x08\x00\x00"),
        ("a user property that is not UTF-8", b"\x26\x00\x01k\x00\x01\xff"),
        ("a user property with U+0000", b"\x26\x00\x01k\x00\x01\x00"),
        ("a property that ends too early", b"\x02\x00"),
        ("subscription identifier 0", b"\x0b\x00"),
        ("topic alias 0", b"\x23\x00\x00"),
    ];
    for ((what, properties), qos) in all.iter().flat_map(|one| [0, 1, 2].map(|qos| (one, qos))) {
        let wrong = raw(qos, 9, b"far/in/c", Some(properties), b"x");
        passes_by(ProtocolVersion::V5, what, qos, &wrong);
    }
    passes_by(
        ProtocolVersion::V5,
        "an alias for nothing",
        1,
        &raw(1, 9, b"", Some(b"\x23\x00\x09"), b"x"),
    );
    passes_by(ProtocolVersion::V5, "DUP with QoS 0", 0, b"\x38\x0c\x00\x08far/in/c\x00x");
}

#[test]
fn an_alias_outlives_the_message_that_was_not_valid() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    // First a valid topic with an invalid property, then an invalid topic.
    pipe.read_remote(&raw(1, 9, b"far/in/c", Some(b"\x23\x00\x03\x01\x02"), b"x")).unwrap();
    pipe.read_remote(&raw(1, 10, b"far/in/\xff", Some(b"\x23\x00\x04"), b"x")).unwrap();
    pipe.read_remote(&raw(1, 11, b"", Some(b"\x23\x00\x03"), b"x")).unwrap();
    pipe.read_remote(&raw(1, 12, b"", Some(b"\x23\x00\x04"), b"x")).unwrap();
    assert_eq!(pipe.near_heard(), ["PUBLISH 11 \"in/c\" qos=1 \"x\""]);
    assert_eq!(pipe.far_heard(), ["PUBACK 9", "PUBACK 10", "PUBACK 12"]);
    assert_eq!(lost(&pipe, "invalid_publish"), 3);
}

#[test]
fn a_name_that_becomes_too_long_is_counted_and_acknowledged() {
    let mut pipe = pipe(terms(ProtocolVersion::V5));
    let rule = tests::rule("long/#", &format!("{}${{topic}}", "y".repeat(60_000)));
    pipe.rules = BridgeRules { outward: Vec::new(), inward: vec![rule] }.into();
    let topic = format!("long/{}", "x".repeat(10_000));
    pipe.far(Packet::Publish(publish(&topic, 1, 9))).unwrap();
    assert_eq!((pipe.near_heard(), pipe.far_heard()), (vec![], vec!["PUBACK 9".to_string()]));
    assert_eq!(lost(&pipe, "no_name"), 1);
}

#[test]
fn framing_that_is_not_valid_ends_the_connection() {
    for wrong in [
        &b"\x00\x00"[..],
        b"\x32\x80\x80\x80\x80",
        b"\x32\x81\x00",
        b"\x36\x05\x00\x01a\x00\x07",
        b"\x32\x05\x00\x01a\x00\x00",
        b"\x30\x03\x00\x09a",
        b"\x30\x04\x00\x01a\x09",
        b"\x41\x02\x00\x01",
    ] {
        let mut pipe = pipe(terms(ProtocolVersion::V5));
        assert!(matches!(pipe.read_remote(wrong), Err(RelayEnd::Remote(_))), "{wrong:x?}");
        assert_eq!(lost(&pipe, "invalid_publish"), 0);
    }
}
