//! Messages of the local session for which sockets have no room, in order. Holding them lets the
//! gateway read the acknowledgements behind them: a peer which sends until it is acknowledged, and
//! reads only then, would wait forever otherwise.
//!
//! A message with QoS for which there is no room here either is left to the session, with all
//! following messages, and is sent again over the next connection. The next connection begins when
//! earlier messages are acknowledged, so a socket gets no duplicates.
//!
//! Invariant: beyond `HELD_BYTES_MAX` only the rest of one packet is held.

use std::collections::VecDeque;

/// Held PUBLISH packets, and the state that decides about further packets.
#[derive(Default)]
pub(super) struct OverflowQueue {
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Number of accepted messages with QoS, not yet acknowledged to the session.
    unacknowledged: usize,
    /// Whether new messages are left in the local session, because this queue was full.
    leaves_to_session: bool,
}

const HELD_BYTES_MAX: usize = 256 * 1024;
/// Memory of a frame in addition to its bytes.
const FRAME_BYTES: usize = 32;

impl OverflowQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether incoming packets should stay in the socket.
    pub(super) fn is_full(&self) -> bool {
        !self.leaves_to_session && self.bytes >= HELD_BYTES_MAX
    }

    /// Decides about a new message: true holds or forwards it. A refused message with QoS leaves
    /// all later ones to the session too.
    pub(super) fn admits(&mut self, has_qos: bool) -> bool {
        let is_taken = !self.leaves_to_session && !self.is_full();
        self.leaves_to_session |= has_qos && !is_taken;
        self.unacknowledged += usize::from(has_qos && is_taken);
        is_taken
    }

    pub(super) fn on_acknowledged(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// Whether all accepted messages are acknowledged and only messages left to the session remain.
    pub(super) fn is_finished(&self) -> bool {
        self.leaves_to_session && self.unacknowledged == 0 && self.is_empty()
    }

    /// Holds a whole packet.
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.bytes += cost(frame);
        self.frames.push_back(frame.into());
    }

    pub(super) fn pop(&mut self) -> Option<Box<[u8]>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= cost(&frame);
        Some(frame)
    }

    /// Drops messages with QoS, which the session sends again. QoS 0 messages stay.
    pub(super) fn drop_resendable(&mut self) {
        (self.unacknowledged, self.leaves_to_session) = (0, false);
        self.frames.retain(|frame| !has_qos(frame));
        self.bytes = self.frames.iter().map(|frame| cost(frame)).sum();
    }

    /// Drops all messages. Returns the number of lost QoS 0 messages.
    pub(super) fn drop_all(&mut self) -> usize {
        self.drop_resendable();
        self.bytes = 0;
        std::mem::take(&mut self.frames).len()
    }
}

fn cost(frame: &[u8]) -> usize {
    frame.len() + FRAME_BYTES
}

/// Whether bits 2 and 1 of a PUBLISH's first byte give a QoS above 0 [MQTT-3.3.1].
fn has_qos(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 0x06 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::peer::GatewayShared;
    use super::super::peer_message::PeerId;
    use super::super::peer_set::PeerSet;
    use super::super::session::GatewaySession;
    use super::super::tests::gateway;
    use super::*;
    use crate::LinkKind;
    use crate::local_session::encode_ack;
    use crate::metrics::LinkMetrics;
    use mqtt::client::ServerLimits;
    use mqtt::{
        Packet, PacketId, PacketType, Properties, ProtocolVersion, Publish, QoS, ReasonCode,
    };
    use std::sync::Arc;
    use zmtp_sp::MultipartMessage;

    const TERMS: ServerLimits =
        ServerLimits { qos_max: QoS::AtLeastOnce, ..ServerLimits::UNSTATED };
    /// Number of messages: more than may wait for this broker's acknowledgement.
    const TALK: usize = 1500;
    const LARGE: usize = 30_000;

    /// The local session in a test: unacknowledged packets in both directions.
    #[derive(Default)]
    struct OverflowTestSession {
        owed: VecDeque<u16>,
        heard: VecDeque<PacketId>,
        unread: Vec<u8>,
    }

    impl OverflowTestSession {
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
            publish.encode(ProtocolVersion::V5, &mut self.unread);
        }

        fn is_told(&mut self, gateway_session: &mut GatewaySession) {
            let said = std::mem::take(&mut gateway_session.to_near);
            let mut rest = &said[..];
            while let Some(frame) = mqtt::split_frame(rest, u32::MAX).unwrap() {
                let len = frame.len;
                match Packet::decode(frame, ProtocolVersion::V5).unwrap() {
                    Packet::PubAck(ack) => self.owed.retain(|id| *id != ack.packet_id.get()),
                    Packet::Publish(publish) => self.heard.extend(publish.packet_id),
                    _ => {}
                }
                rest = &rest[len..];
            }
            let taken = gateway_session.read_session(&self.unread).unwrap();
            self.unread.drain(..taken);
        }

        fn acknowledges(&mut self) {
            for id in self.heard.drain(..) {
                encode_ack(PacketType::PubAck, id, ReasonCode::Success, &mut self.unread);
            }
        }
    }

    /// Returns a pair whose peer sends messages, none of which this broker has acknowledged.
    fn talks() -> (GatewaySession, GatewayShared, PeerId, VecDeque<MultipartMessage>) {
        let own = [("pattern", "pair"), ("listen", "tcp://127.0.0.1:1")];
        let inside: &[(&str, &str)] = &[("filter", "in/a"), ("qos", "1")];
        let own = [&own[..], &[("peer.queue_messages_max", "2")]].concat();
        let settings = Arc::new(gateway(&own, &[&[("filter", "out/#")]], &[inside]).unwrap());
        let (peers, metrics) =
            (Arc::new(PeerSet::default()), Arc::new(LinkMetrics::for_kind(LinkKind::Gateway)));
        let shared = GatewayShared { settings: settings.clone(), peers, metrics };
        let peer = shared.peers.add_peer(&settings, Arc::default()).unwrap();
        let mut gateway_session = GatewaySession::new(shared.clone(), TERMS);
        gateway_session.begin_connection(TERMS);
        let frames = vec![b"in/a".to_vec(), b"x".to_vec()];
        let said = vec![MultipartMessage { envelope: Vec::new(), frames }; TALK];
        (gateway_session, shared, peer, said.into())
    }

    #[test]
    fn what_has_no_room_is_the_sessions_until_what_came_before_it_is_done() {
        const COUNT: u16 = 60;
        let (mut gateway_session, shared, peer, mut said) = talks();
        let (mut session, mut taken, mut connections) =
            (OverflowTestSession::default(), Vec::new(), 1);
        session.owed = (1..=COUNT).collect();
        (1..=COUNT).for_each(|id| session.sends(id, QoS::AtLeastOnce));
        while !session.owed.is_empty() {
            shared.peers.accept_inbound(peer, &mut said);
            gateway_session.take_inbound();
            session.is_told(&mut gateway_session);
            assert!(
                gateway_session.overflow.bytes < HELD_BYTES_MAX + 2 * LARGE,
                "{}",
                gateway_session.overflow.bytes
            );
            // The peer sends half of its messages before it reads any.
            if said.len() < TALK / 2
                && let Some(message) = shared.peers.next_for_peer(peer, &shared.settings)
            {
                taken.push(message.message.frames[1][0]);
                shared.peers.record_arrival(peer, Some(message.receipt.expect("it has QoS 1")));
            }
            session.acknowledges();
            gateway_session.on_peers_changed();
            if gateway_session.needs_reconnect() {
                assert!(session.heard.is_empty());
                connections += 1;
                session.is_told(&mut gateway_session);
                session.unread.clear();
                gateway_session.begin_connection(TERMS);
                session.owed.clone().into_iter().for_each(|id| session.sends(id, QoS::AtLeastOnce));
            }
        }
        assert_eq!(taken, (1..=COUNT as u8).collect::<Vec<_>>());
        assert!(said.is_empty() && connections > 1, "{connections}");
    }

    #[test]
    fn what_has_no_room_and_no_qos_is_counted() {
        let (mut gateway_session, shared, peer, mut said) = talks();
        let mut session = OverflowTestSession::default();
        shared.peers.accept_inbound(peer, &mut said);
        gateway_session.take_inbound();
        (1..=60).for_each(|id| session.sends(id, QoS::AtMostOnce));
        session.is_told(&mut gateway_session);
        assert!(gateway_session.overflow.bytes < HELD_BYTES_MAX + 2 * LARGE);
        session.acknowledges();
        session.is_told(&mut gateway_session);
        let mut count = shared
            .metrics
            .drop_counts()
            .filter(|(_, count)| *count > 0)
            .map(|(_, count)| count)
            .sum::<u64>();
        while shared.peers.next_for_peer(peer, &shared.settings).is_some() {
            count += 1;
            gateway_session.on_peers_changed();
        }
        assert!(count == 60 && !gateway_session.needs_reconnect(), "{count}");
    }
}
