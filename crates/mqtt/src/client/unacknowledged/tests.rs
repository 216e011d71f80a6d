//! Packet ids, acknowledgements and repetition, clause by clause.

use super::*;
use crate::{Properties, ReasonCode};
use std::collections::BTreeMap;

const PUBACK: PacketType = PacketType::PubAck;
const PUBREC: PacketType = PacketType::PubRec;
const PUBCOMP: PacketType = PacketType::PubComp;

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

fn ack(packet_id: u16, reason: ReasonCode) -> PublishAck<'static> {
    PublishAck { packet_id: id(packet_id), reason, properties: Properties::default() }
}

fn accept<T>(
    packets: &mut UnacknowledgedPackets<T>,
    kind: PacketType,
    packet_id: u16,
) -> AckOutcome<T> {
    packets.acknowledge(kind, &ack(packet_id, ReasonCode::Success))
}

fn resent<T>(packets: &mut UnacknowledgedPackets<T>, window: u16) -> Vec<(u16, PacketType)> {
    let next = || packets.next_resend(window).map(|packet| (packet.packet_id.get(), packet.awaits));
    std::iter::from_fn(next).collect()
}

#[test]
fn ids_count_up_from_1_and_around() {
    let mut packets = UnacknowledgedPackets::default();
    for turn in 0..2 * u32::from(u16::MAX) {
        let expected = (turn % u32::from(u16::MAX)) as u16 + 1;
        assert_eq!(packets.add(PUBACK, turn), Some(id(expected)));
        assert_eq!(accept(&mut packets, PUBACK, expected), AckOutcome::Complete(turn));
    }
    let mut packets = UnacknowledgedPackets::starting_at(PacketId::MAX);
    assert_eq!([(); 2].map(|()| packets.add(PUBACK, ())), [Some(PacketId::MAX), Some(id(1))]);
}

#[test]
fn an_id_in_use_is_passed_over() {
    // [MQTT-2.2.1-3] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
    let mut packets = UnacknowledgedPackets::default();
    for turn in 1..=3 {
        packets.add(PacketType::SubAck, turn);
    }
    assert_eq!(packets.answer_request(PacketType::SubAck, id(2)), Some(2));
    for turn in 4..=u32::from(u16::MAX) {
        packets.add(PUBREC, turn);
        accept(&mut packets, PUBREC, turn as u16);
        accept(&mut packets, PUBCOMP, turn as u16);
    }
    assert_eq!(packets.next_id(), Some(id(2)), "1 and 3 are in use");
    assert_eq!(packets.add(PUBACK, 102), Some(id(2)));
    assert_eq!(packets.add(PUBACK, 104), Some(id(4)));
    // Every packet is found, in any lap of the packet ids.
    assert_eq!(packets.answer_request(PacketType::SubAck, id(3)), Some(3));
    assert_eq!(accept(&mut packets, PUBACK, 4), AckOutcome::Complete(104));
    assert_eq!(accept(&mut packets, PUBACK, 2), AckOutcome::Complete(102));
    assert_eq!(packets.answer_request(PacketType::SubAck, id(1)), Some(1));
    assert_eq!(packets.iter().count(), 0);
}

#[test]
fn without_a_free_id_nothing_is_added() {
    let mut packets = UnacknowledgedPackets::default();
    for turn in 1..=u16::MAX {
        assert_eq!(packets.add(PUBACK, turn), Some(id(turn)));
    }
    assert_eq!(packets.add(PUBACK, 0), None);
    assert_eq!(accept(&mut packets, PUBACK, 777), AckOutcome::Complete(777));
    assert_eq!(packets.add(PUBACK, 0), Some(id(777)));
    assert_eq!(packets.add(PUBACK, 0), None);
}

#[test]
fn qos_1_is_unacknowledged_until_puback() {
    // [MQTT-4.3.2-3]
    let mut packets = UnacknowledgedPackets::default();
    packets.add(PUBACK, 'a');
    for kind in [PUBREC, PUBCOMP, PacketType::SubAck] {
        assert_eq!(accept(&mut packets, kind, 1), AckOutcome::Unexpected);
    }
    assert_eq!(accept(&mut packets, PUBACK, 2), AckOutcome::Unexpected);
    assert_eq!(accept(&mut packets, PUBACK, 1), AckOutcome::Complete('a'));
    assert_eq!(accept(&mut packets, PUBACK, 1), AckOutcome::Unexpected);
}

#[test]
fn qos_2_is_released_after_pubrec_and_over_with_pubcomp() {
    // [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5]
    let mut packets = UnacknowledgedPackets::default();
    packets.add(PUBREC, 'a');
    assert_eq!(accept(&mut packets, PUBCOMP, 1), AckOutcome::Unexpected, "before PUBREC");
    assert_eq!(accept(&mut packets, PUBACK, 1), AckOutcome::Unexpected);
    assert_eq!(accept(&mut packets, PUBREC, 1), AckOutcome::Release);
    assert_eq!(accept(&mut packets, PUBREC, 1), AckOutcome::Release, "it asks again");
    assert_eq!(packets.publish_count(), 1);
    assert_eq!(accept(&mut packets, PUBCOMP, 1), AckOutcome::Complete('a'));
    assert_eq!(accept(&mut packets, PUBREC, 1), AckOutcome::Unexpected);
}

#[test]
fn a_refusal_is_an_acknowledgement() {
    // [MQTT-4.4.0-2]
    let mut packets = UnacknowledgedPackets::default();
    [PUBACK, PUBREC, PUBREC].into_iter().zip('a'..).for_each(|(awaits, value)| {
        packets.add(awaits, value);
    });
    let refused = |packets: &mut UnacknowledgedPackets<char>, kind, id| {
        packets.acknowledge(kind, &ack(id, ReasonCode::NotAuthorized))
    };
    assert_eq!(refused(&mut packets, PUBACK, 1), AckOutcome::Complete('a'));
    assert_eq!(refused(&mut packets, PUBREC, 2), AckOutcome::Complete('b'));
    // After PUBREC without an error a reason code does not end the message, but the server may not
    // know the id.
    assert_eq!(accept(&mut packets, PUBREC, 3), AckOutcome::Release);
    assert_eq!(refused(&mut packets, PUBREC, 3), AckOutcome::Unexpected);
    let unknown = ack(3, ReasonCode::PacketIdentifierNotFound);
    assert_eq!(packets.acknowledge(PUBCOMP, &unknown), AckOutcome::Complete('c'));
}

#[test]
fn a_request_is_answered_by_its_own_kind() {
    let mut packets = UnacknowledgedPackets::default();
    packets.add(PacketType::SubAck, 's');
    packets.add(PacketType::UnsubAck, 'u');
    packets.add(PUBACK, 'p');
    assert_eq!((packets.request_count(), packets.publish_count()), (2, 1));
    assert_eq!(packets.answer_request(PacketType::UnsubAck, id(1)), None);
    assert_eq!(packets.answer_request(PUBACK, id(3)), None);
    assert_eq!(packets.answer_request(PacketType::SubAck, id(1)), Some('s'));
    assert_eq!(packets.answer_request(PacketType::SubAck, id(1)), None);
    assert_eq!(packets.answer_request(PacketType::UnsubAck, id(2)), Some('u'));
    assert_eq!((packets.request_count(), packets.publish_count()), (0, 1));
}

#[test]
fn receive_maximum_bounds_messages_and_not_requests() {
    // [MQTT-3.3.4-7] [MQTT-4.9.0-1] [MQTT-4.9.0-2]
    let mut packets = UnacknowledgedPackets::default();
    packets.add(PacketType::SubAck, ());
    packets.add(PUBREC, ());
    assert!(packets.has_room(2));
    packets.add(PUBACK, ());
    assert!(!packets.has_room(2));
    accept(&mut packets, PUBREC, 2);
    assert!(!packets.has_room(2), "PUBREL is not the end of it");
    accept(&mut packets, PUBCOMP, 2);
    assert!(packets.has_room(2));
}

#[test]
fn messages_are_sent_again_in_their_order() {
    // [MQTT-3.3.1-1] [MQTT-4.4.0-1] [MQTT-4.3.3-6] [MQTT-4.6.0-1]
    let mut packets = UnacknowledgedPackets::starting_at(id(u16::MAX - 1));
    for awaits in [PUBACK, PUBREC, PacketType::SubAck, PUBACK, PUBREC] {
        packets.add(awaits, ());
    }
    accept(&mut packets, PUBREC, u16::MAX);
    assert_eq!(resent(&mut packets, u16::MAX), [], "the connection is the same");
    packets.start_resending();
    let again = [(u16::MAX - 1, PUBACK), (u16::MAX, PUBCOMP), (2, PUBACK), (3, PUBREC)];
    assert_eq!(resent(&mut packets, u16::MAX), again);
    assert_eq!(resent(&mut packets, u16::MAX), []);
    assert_eq!(packets.request_count(), 0, "who asked has gone");
    assert_eq!(packets.add(PUBACK, ()), Some(id(4)), "ids go on");
}

#[test]
fn receive_maximum_bounds_what_is_sent_again() {
    // [MQTT-3.3.4-7]
    let mut packets = UnacknowledgedPackets::default();
    (1..=5).for_each(|value| _ = packets.add(PUBACK, value));
    packets.start_resending();
    assert!(!packets.has_room(100), "what waits goes first");
    assert_eq!(resent(&mut packets, 2), [(1, PUBACK), (2, PUBACK)]);
    accept(&mut packets, PUBACK, 2);
    assert_eq!(resent(&mut packets, 2), [(3, PUBACK)]);
    // The server acknowledges a message that this connection has not sent.
    accept(&mut packets, PUBACK, 5);
    assert_eq!(resent(&mut packets, 2), []);
    assert!(!packets.has_room(100));
    accept(&mut packets, PUBACK, 4);
    assert!(packets.has_room(3), "nothing is left to be sent again");
    // The next connection starts at the front.
    packets.start_resending();
    assert_eq!(resent(&mut packets, 2), [(1, PUBACK), (3, PUBACK)]);
    assert!(packets.has_room(3));
    packets.clear();
    packets.start_resending();
    assert!(packets.has_room(1));
    assert_eq!(resent(&mut packets, 2), []);
}

/// Compares with a map, for a server that answers in any order and leaves a few packets unanswered
/// for long.
#[test]
fn any_order_of_answers_finds_its_packets() {
    let (mut packets, mut naive) = (UnacknowledgedPackets::default(), BTreeMap::new());
    let mut draw = 7_u64;
    for turn in 0..400_000_u32 {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        if naive.len() < 40 {
            let awaits = if draw.is_multiple_of(2) { PUBACK } else { PUBREC };
            let id = packets.add(awaits, turn).expect("there are free ids");
            assert_eq!(naive.insert(id, (awaits, turn)), None, "{id} was in use");
            continue;
        }
        // The oldest dozen by id is answered rarely.
        let place = if draw.is_multiple_of(40_000) { 0 } else { 12 + (draw >> 20) as usize % 28 };
        let (&id, &(awaits, value)) = naive.iter().nth(place).expect("there are 40");
        match packets.acknowledge(awaits, &ack(id.get(), ReasonCode::Success)) {
            AckOutcome::Release => _ = naive.insert(id, (PUBCOMP, value)),
            outcome => {
                assert_eq!(outcome, AckOutcome::Complete(value));
                naive.remove(&id);
            }
        }
        assert_eq!(packets.publish_count(), naive.len());
    }
}
