//! Nanoseconds per packet for decoding and encoding frequent packets: `cargo bench -p mqtt`.

use mqtt::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() {
    let topic = "fleet/7/car/1234/speed";
    for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            let name = format!("cut and decode PUBLISH {version:?} {qos:?}");
            decode(&name, version, &publish(topic, qos, version));
        }
    }
    decode("cut and decode PUBLISH with an alias", ProtocolVersion::V5, &aliased());
    decode("cut and decode PUBACK", ProtocolVersion::V5, &[0x40, 2, 0, 1]);
    encode(topic);
}

const ROUNDS: usize = 7;
const PACKETS: usize = 1000;

/// Measures decoding of a stream of equal packets, as a read buffer contains them.
fn decode(name: &str, version: ProtocolVersion, packet: &[u8]) {
    let stream = black_box(packet.repeat(PACKETS));
    let version = black_box(version);
    measure(name, || {
        let mut rest = stream.as_slice();
        let mut sum = 0;
        while let Ok(Some(frame)) = split_frame(rest, 1 << 20) {
            rest = &rest[frame.len..];
            match frame.packet_type() {
                3 => {
                    let packet = Publish::decode(frame, version).expect("legal");
                    sum += packet.topic.len() + packet.payload.len();
                }
                _ => {
                    let packet = PublishAck::decode(frame, version).expect("legal");
                    sum += usize::from(packet.packet_id.get());
                }
            }
        }
        sum
    });
}

fn encode(topic: &str) {
    let mut out = Vec::with_capacity(1 << 20);
    let packet = Publish { qos: QoS::AtLeastOnce, packet_id: PacketId::new(9), ..message(topic) };
    measure("encode PUBLISH V5 AtLeastOnce", || {
        out.clear();
        for _ in 0..PACKETS {
            black_box(&packet).encode(ProtocolVersion::V5, &mut out);
        }
        out.len()
    });
    let ack = PublishAck {
        packet_id: PacketId::MIN,
        reason: ReasonCode::Success,
        properties: Properties::default(),
    };
    measure("encode PUBACK", || {
        out.clear();
        for _ in 0..PACKETS {
            black_box(&ack).encode(PacketType::PubAck, ProtocolVersion::V5, &mut out);
        }
        out.len()
    });
}

fn message(topic: &str) -> Publish<'_> {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: Properties::default(),
        payload: &[b'x'; 64],
    }
}

fn publish(topic: &str, qos: QoS, version: ProtocolVersion) -> Vec<u8> {
    let mut out = Vec::new();
    Publish { qos, packet_id: PacketId::new(9), ..message(topic) }.encode(version, &mut out);
    out
}

fn aliased() -> Vec<u8> {
    let mut buf = PropertiesBuf::default();
    buf.push(Property::TopicAlias(3));
    let mut out = Vec::new();
    Publish { properties: buf.as_properties(), ..message("") }
        .encode(ProtocolVersion::V5, &mut out);
    out
}

fn measure(name: &str, mut work: impl FnMut() -> usize) {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..100 {
            black_box(work());
        }
        best = best.min(start.elapsed());
    }
    let packets = (PACKETS * 100) as f64;
    println!("{name:44} {:6.2} ns", best.as_secs_f64() * 1e9 / packets);
}
