//! PUBLISHes of the session here that find no room among sockets, in their order. They stand aside
//! so that what this broker acknowledges behind them is heard: sockets that talk until they are
//! heard, and read only then, would wait for it.
//!
//! What finds no room here either is left to the session where it has a QoS, with all that comes
//! behind it, and comes again over the next connection. That one begins once what was taken up
//! before is acknowledged, so that no socket has anything twice.
//!
//! Invariant: beyond `HELD_BYTES_MAX` nothing is held but the rest of one packet.

use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Held {
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// So many with a QoS were taken up, and are not acknowledged.
    owed: usize,
    /// What comes is left to the session.
    leaves: bool,
}

const HELD_BYTES_MAX: usize = 256 * 1024;
/// What one costs beside its bytes.
const FRAME_BYTES: usize = 32;

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether what comes had better wait where it is.
    pub(super) fn is_full(&self) -> bool {
        !self.leaves && self.bytes >= HELD_BYTES_MAX
    }

    /// Whether one that comes now is taken up.
    pub(super) fn takes_up(&mut self, has_qos: bool) -> bool {
        let is_taken = !self.leaves && !self.is_full();
        self.leaves |= has_qos && !is_taken;
        self.owed += usize::from(has_qos && is_taken);
        is_taken
    }

    pub(super) fn acknowledged(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    /// Nothing but what was left is to be done.
    pub(super) fn is_over(&self) -> bool {
        self.leaves && self.owed == 0 && self.is_empty()
    }

    /// A whole packet.
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.bytes += cost(frame);
        self.frames.push_back(frame.into());
    }

    pub(super) fn pop(&mut self) -> Option<Box<[u8]>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= cost(&frame);
        Some(frame)
    }

    /// The session sends again what has a QoS; the others nobody else has.
    pub(super) fn forget_what_comes_again(&mut self) {
        (self.owed, self.leaves) = (0, false);
        self.frames.retain(|frame| !has_qos(frame));
        self.bytes = self.frames.iter().map(|frame| cost(frame)).sum();
    }

    /// Says how many of them nobody has now.
    pub(super) fn forget(&mut self) -> usize {
        self.forget_what_comes_again();
        self.bytes = 0;
        std::mem::take(&mut self.frames).len()
    }
}

fn cost(frame: &[u8]) -> usize {
    frame.len() + FRAME_BYTES
}

/// [MQTT-3.3.1]: bits 2 and 1 of a PUBLISH's first byte.
fn has_qos(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 0x06 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::crowd::Crowd;
    use super::super::desk::Desk;
    use super::super::parcel::PeerId;
    use super::super::peer::Shared;
    use super::super::tests::gateway;
    use super::*;
    use crate::links::LinkKind;
    use crate::links::near::{NearTerms, acknowledge};
    use crate::links::tally::Tally;
    use mqtt::{Packet, PacketId, PacketType, Properties, Publish, QoS, Reason, Version};
    use patterns::Message;
    use std::sync::Arc;

    const TERMS: NearTerms =
        NearTerms { qos_max: QoS::AtLeastOnce, takes_retain: true, packet_bytes_max: u32::MAX };
    /// More than may wait for this broker's acknowledgement.
    const TALK: usize = 1500;
    const LARGE: usize = 30_000;

    /// The session's side: what was not acknowledged to it, and what it did not acknowledge.
    #[derive(Default)]
    struct Session {
        owed: VecDeque<u16>,
        heard: VecDeque<PacketId>,
        unread: Vec<u8>,
    }

    impl Session {
        fn sends(&mut self, id: u16, qos: QoS) {
            let packet_id = PacketId::new(id).filter(|_| qos > QoS::AtMostOnce);
            let (payload, properties) = (vec![id as u8; LARGE], Properties::default());
            let topic = "out/a";
            let publish = Publish {
                dup: false,
                qos,
                retain: false,
                topic,
                packet_id,
                properties,
                payload: &payload,
            };
            publish.encode(Version::V5, &mut self.unread);
        }

        fn is_told(&mut self, desk: &mut Desk) {
            let said = std::mem::take(&mut desk.to_near);
            let mut rest = &said[..];
            while let Some(frame) = mqtt::cut(rest, u32::MAX).unwrap() {
                let len = frame.len;
                match Packet::decode(frame, Version::V5).unwrap() {
                    Packet::PubAck(ack) => self.owed.retain(|id| *id != ack.packet_id.get()),
                    Packet::Publish(publish) => self.heard.extend(publish.packet_id),
                    _ => {}
                }
                rest = &rest[len..];
            }
            let taken = desk.hear(&self.unread).unwrap();
            self.unread.drain(..taken);
        }

        fn acknowledges(&mut self) {
            for id in self.heard.drain(..) {
                acknowledge(PacketType::PubAck, id, Reason::Success, &mut self.unread);
            }
        }
    }

    /// A pair whose socket talks, and has not heard that anything was published.
    fn talks() -> (Desk, Shared, PeerId, VecDeque<Message>) {
        let own = [("pattern", "pair"), ("listen", "tcp://127.0.0.1:1")];
        let inside: &[(&str, &str)] = &[("filter", "in/a"), ("qos", "1")];
        let own = [&own[..], &[("peer.queue_messages_max", "2")]].concat();
        let settings = Arc::new(gateway(&own, &[&[("filter", "out/#")]], &[inside]).unwrap());
        let (crowd, tally) = (Arc::new(Crowd::default()), Arc::new(Tally::of(LinkKind::Gateway)));
        let shared = Shared { settings: settings.clone(), crowd, tally };
        let peer = shared.crowd.enter(&settings, Arc::default()).unwrap();
        let mut desk = Desk::new(shared.clone(), TERMS);
        desk.begin(TERMS);
        let frames = vec![b"in/a".to_vec(), b"x".to_vec()];
        let said = vec![Message { envelope: Vec::new(), frames }; TALK];
        (desk, shared, peer, said.into())
    }

    #[test]
    fn what_has_no_room_is_the_sessions_until_what_came_before_it_is_done() {
        const COUNT: u16 = 60;
        let (mut desk, shared, peer, mut said) = talks();
        let (mut session, mut taken, mut connections) = (Session::default(), Vec::new(), 1);
        session.owed = (1..=COUNT).collect();
        (1..=COUNT).for_each(|id| session.sends(id, QoS::AtLeastOnce));
        while !session.owed.is_empty() {
            shared.crowd.hand_in(peer, &mut said);
            desk.take_in();
            session.is_told(&mut desk);
            assert!(desk.held.bytes < HELD_BYTES_MAX + 2 * LARGE, "{}", desk.held.bytes);
            // A socket that talks before it reads.
            if said.len() < TALK / 2
                && let Some(parcel) = shared.crowd.next(peer, &shared.settings)
            {
                taken.push(parcel.message.frames[1][0]);
                shared.crowd.arrived(peer, Some(parcel.receipt.expect("it has QoS 1")));
            }
            session.acknowledges();
            desk.heed_crowd();
            if desk.is_parted() {
                assert!(session.heard.is_empty());
                connections += 1;
                session.is_told(&mut desk);
                session.unread.clear();
                desk.begin(TERMS);
                session.owed.clone().into_iter().for_each(|id| session.sends(id, QoS::AtLeastOnce));
            }
        }
        assert_eq!(taken, (1..=COUNT as u8).collect::<Vec<_>>());
        assert!(said.is_empty() && connections > 1, "{connections}");
    }

    #[test]
    fn what_has_no_room_and_no_qos_is_counted() {
        let (mut desk, shared, peer, mut said) = talks();
        let mut session = Session::default();
        shared.crowd.hand_in(peer, &mut said);
        desk.take_in();
        (1..=60).for_each(|id| session.sends(id, QoS::AtMostOnce));
        session.is_told(&mut desk);
        assert!(desk.held.bytes < HELD_BYTES_MAX + 2 * LARGE);
        session.acknowledges();
        session.is_told(&mut desk);
        let mut count = shared
            .tally
            .losses()
            .filter(|(_, count)| *count > 0)
            .map(|(_, count)| count)
            .sum::<u64>();
        while shared.crowd.next(peer, &shared.settings).is_some() {
            count += 1;
            desk.heed_crowd();
        }
        assert!(count == 60 && !desk.is_parted(), "{count}");
    }
}
