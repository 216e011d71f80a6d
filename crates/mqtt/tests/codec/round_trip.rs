//! Property test: every valid packet is unchanged after encoding and decoding.

use mqtt::property::{PROPERTIES, PropertyKind, PropertyRepeats, WILL};
use mqtt::reason_code::REASONS;
use mqtt::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Checks that the encoded packet is one complete frame, and is decoded to the same packet.
fn check(packet: Packet<'_>, version: ProtocolVersion) {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes);
    let frame = split_frame(&bytes, u32::MAX).expect("well formed").expect("complete");
    assert_eq!(frame.len, bytes.len());
    assert_eq!(Packet::decode(frame, version), Ok(packet), "{}", bytes.escape_ascii());
}

fn version() -> impl Strategy<Value = ProtocolVersion> {
    select(&[ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5][..])
}

fn qos() -> impl Strategy<Value = QoS> {
    select(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][..])
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| PacketId::new(id).expect("above 0"))
}

/// Generates topic names with characters of every length in UTF-8, without NUL and wildcards.
fn name() -> impl Strategy<Value = String> {
    let letters =
        select(&['a', 'Z', '/', ' ', '$', '\u{7F}', '\u{E9}', '\u{FEFF}', '\u{1F980}'][..]);
    vec(letters, 0..40).prop_map(String::from_iter)
}

fn topic() -> impl Strategy<Value = String> {
    name().prop_map(|name| name + "t")
}

fn binary() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn reason(packet: PacketType) -> impl Strategy<Value = ReasonCode> {
    let reasons =
        REASONS.iter().map(|row| row.reason).filter(|reason| reason.is_allowed_in(packet));
    select(reasons.collect::<Vec<_>>())
}

/// Generates the encoded value of a property.
fn property(row: &'static property::PropertyRow) -> BoxedStrategy<Vec<u8>> {
    let text = || topic().prop_map(|text| prefixed(text.as_bytes()));
    let value = match row.kind {
        PropertyKind::Flag => (0..=1_u8).prop_map(|value| vec![value]).boxed(),
        PropertyKind::U16 => (1..=u16::MAX).prop_map(|value| value.to_be_bytes().to_vec()).boxed(),
        PropertyKind::U32 => (1..=u32::MAX).prop_map(|value| value.to_be_bytes().to_vec()).boxed(),
        PropertyKind::Varint => (1..=frame::VARINT_MAX)
            .prop_map(|value| {
                let mut bytes = Vec::new();
                encode_remaining_len(value as usize, &mut bytes);
                bytes
            })
            .boxed(),
        PropertyKind::Text => text().boxed(),
        PropertyKind::TextPair => (text(), text()).prop_map(|(a, b)| [a, b].concat()).boxed(),
        PropertyKind::Binary => binary().prop_map(|bytes| prefixed(&bytes)).boxed(),
    };
    value.prop_map(|value| [vec![row.id], value].concat()).boxed()
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

/// Generates some of the properties that the packets in `owner` may have, in any order; none in
/// 3.x.
fn properties(owner: u16, version: ProtocolVersion) -> BoxedStrategy<Vec<u8>> {
    if !version.is_v5() {
        return Just(Vec::new()).boxed();
    }
    let rows = PROPERTIES.iter().filter(move |row| row.packets & owner != 0);
    let copies = rows.map(move |row| {
        let many = match row.repeats {
            PropertyRepeats::Once => 1,
            PropertyRepeats::Many => 3,
            PropertyRepeats::ManyInPublish if owner == PacketType::Publish.bit() => 3,
            PropertyRepeats::ManyInPublish => 1,
        };
        // Authentication data alone is a violation; here the method is always with it.
        let least = usize::from(row.name == "Authentication Method");
        vec(property(row), least..=many)
    });
    copies
        .collect::<Vec<_>>()
        .prop_map(|copies| copies.into_iter().flatten().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|properties| properties.concat())
        .boxed()
}

/// Generates a version and, in 5.0, properties of a packet.
fn versioned(kind: PacketType) -> impl Strategy<Value = (ProtocolVersion, Vec<u8>)> {
    version().prop_flat_map(move |version| (Just(version), properties(kind.bit(), version)))
}

fn ack(kind: PacketType) -> impl Strategy<Value = (ProtocolVersion, Vec<u8>, ReasonCode)> {
    (versioned(kind), reason(kind)).prop_map(|((version, properties), reason)| {
        (version, properties, if version.is_v5() { reason } else { ReasonCode::Success })
    })
}

proptest! {
    #[test]
    fn connect(
        (version, properties, will_properties) in version().prop_flat_map(|version| (
            Just(version),
            properties(PacketType::Connect.bit(), version),
            properties(WILL, version),
        )),
        (clean_start, keep_alive_s) in any::<(bool, u16)>(),
        client_id in name(),
        will in option::of((qos(), any::<bool>(), topic(), binary())),
        user_name in option::of(name()),
        password in option::of(binary()),
    ) {
        let password = password.as_deref().filter(|_| version.is_v5() || user_name.is_some());
        check(Packet::Connect(Connect {
            is_bridge: false,
            version,
            clean_start,
            keep_alive_s,
            client_id: &client_id,
            will: will.as_ref().map(|(qos, retain, topic, payload)| Will {
                qos: *qos,
                retain: *retain,
                topic,
                payload,
                properties: Properties::trusted(&will_properties),
            }),
            user_name: user_name.as_deref(),
            password,
            properties: Properties::trusted(&properties),
        }), version);
    }

    #[test]
    fn connack(
        (version, properties) in versioned(PacketType::ConnAck),
        reason in reason(PacketType::ConnAck),
        code in 0..=5_u8,
        session_present in any::<bool>(),
    ) {
        let reason = match version {
            ProtocolVersion::V5 => reason,
            _ => ReasonCode::from_connack_v3(code).expect("one of six"),
        };
        check(Packet::ConnAck(ConnAck {
            session_present: session_present
                && !reason.is_error()
                && version != ProtocolVersion::V31,
            reason,
            properties: Properties::trusted(&properties),
        }), version);
    }

    #[test]
    fn publish(
        (version, properties) in versioned(PacketType::Publish),
        qos in qos(),
        (dup, retain) in any::<(bool, bool)>(),
        packet_id in packet_id(),
        topic in topic(),
        payload in binary(),
    ) {
        let has_id = qos != QoS::AtMostOnce;
        check(Packet::Publish(Publish {
            dup: dup && has_id,
            qos,
            retain,
            topic: &topic,
            packet_id: has_id.then_some(packet_id),
            properties: Properties::trusted(&properties),
            payload: &payload,
        }), version);
    }

    #[test]
    fn acks(
        packet_id in packet_id(),
        (kind, (version, properties, reason)) in select(&[
            PacketType::PubAck, PacketType::PubRec, PacketType::PubRel, PacketType::PubComp,
        ][..]).prop_flat_map(|kind| (Just(kind), ack(kind))),
    ) {
        let ack = PublishAck { packet_id, reason, properties: Properties::trusted(&properties) };
        let packet = match kind {
            PacketType::PubAck => Packet::PubAck(ack),
            PacketType::PubRec => Packet::PubRec(ack),
            PacketType::PubRel => Packet::PubRel(ack),
            _ => Packet::PubComp(ack),
        };
        check(packet, version);
    }

    #[test]
    fn subscribe(
        (version, properties) in versioned(PacketType::Subscribe),
        packet_id in packet_id(),
        filters in vec((name(), qos(), any::<(bool, bool)>(), 0..=2_u8), 1..9),
    ) {
        let mut buf = SubscriptionListBuf::default();
        for (filter, qos, (no_local, retain_as_published), retain_handling) in &filters {
            let options = match version {
                ProtocolVersion::V5 => SubscribeOptions {
                    qos: *qos,
                    no_local: *no_local,
                    retain_as_published: *retain_as_published,
                    retain_handling: *retain_handling,
                },
                _ => SubscribeOptions { qos: *qos, ..Default::default() },
            };
            buf.push(filter, options);
        }
        let properties = Properties::trusted(&properties);
        let filters = buf.as_subscriptions();
        check(Packet::Subscribe(Subscribe { packet_id, properties, filters }), version);
    }

    #[test]
    fn suback(
        (version, properties) in versioned(PacketType::SubAck),
        packet_id in packet_id(),
        reasons in vec(reason(PacketType::SubAck), 1..9),
    ) {
        // 3.x has one code for every failure.
        let highest = if version == ProtocolVersion::V5 { u8::MAX } else { 0x80 };
        let codes: Vec<u8> = reasons.iter().map(|reason| reason.code().min(highest)).collect();
        let properties = Properties::trusted(&properties);
        check(Packet::SubAck(SubAck { packet_id, properties, codes: &codes }), version);
    }

    #[test]
    fn unsubscribe(
        (version, properties) in versioned(PacketType::Unsubscribe),
        packet_id in packet_id(),
        filters in vec(name(), 1..9),
    ) {
        let mut buf = FilterListBuf::default();
        for filter in &filters {
            buf.push(filter);
        }
        let properties = Properties::trusted(&properties);
        let filters = buf.as_filters();
        check(Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters }), version);
    }

    #[test]
    fn unsuback(
        (version, properties) in versioned(PacketType::UnsubAck),
        packet_id in packet_id(),
        reasons in vec(reason(PacketType::UnsubAck), 1..9),
    ) {
        let codes: Vec<u8> = match version {
            ProtocolVersion::V5 => reasons.iter().map(|reason| reason.code()).collect(),
            _ => Vec::new(),
        };
        let properties = Properties::trusted(&properties);
        check(Packet::UnsubAck(UnsubAck { packet_id, properties, codes: &codes }), version);
    }

    #[test]
    fn disconnect((version, properties, reason) in ack(PacketType::Disconnect)) {
        let properties = Properties::trusted(&properties);
        check(Packet::Disconnect(Disconnect { reason, properties }), version);
    }

    #[test]
    fn auth(
        properties in properties(PacketType::Auth.bit(), ProtocolVersion::V5),
        reason in reason(PacketType::Auth),
    ) {
        let properties = Properties::trusted(&properties);
        check(Packet::Auth(Auth { reason, properties }), ProtocolVersion::V5);
    }

    #[test]
    fn pings(version in version()) {
        check(Packet::PingReq, version);
        check(Packet::PingResp, version);
    }

    #[test]
    fn any_legal_properties_pass_their_check(
        (owner, bytes) in (0..16_u16).prop_flat_map(|bit| {
            (Just(1 << bit), properties(1 << bit, ProtocolVersion::V5))
        }),
    ) {
        let checked = Properties::check(&bytes, owner).expect("legal");
        let mut buf = PropertiesBuf::default();
        for property in checked.iter() {
            buf.push(property);
        }
        prop_assert_eq!(buf.as_properties(), checked);
    }
}
