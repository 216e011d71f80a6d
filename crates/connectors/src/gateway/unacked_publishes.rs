//! PUBLISH and SUBSCRIBE packets of a gateway that this broker has not acknowledged, for
//! repetition.

use super::peer_message::SessionReceipt;
use mqtt::client::{AckOutcome, UnacknowledgedPackets};
use mqtt::{PacketId, PacketType, PublishAck};

#[derive(Default)]
pub(super) struct UnackedPublishes {
    packets: UnacknowledgedPackets<UnackedPacket>,
    /// Bytes of the messages.
    bytes: usize,
}

enum UnackedPacket {
    Publish {
        packet: Vec<u8>,
        /// Receipt of the request that this message answers.
        receipt: Option<SessionReceipt>,
    },
    /// Filters of a SUBSCRIBE.
    Subscribe(Vec<String>),
}

/// Limits of the messages that wait for this broker's acknowledgement: their number and bytes.
const MESSAGES_MAX: u16 = 1024;
const BYTES_MAX: usize = 4 << 20;

impl UnackedPublishes {
    pub(super) fn is_full(&self) -> bool {
        self.len() >= usize::from(MESSAGES_MAX) || self.bytes >= BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.packets.publish_count()
    }

    /// Returns the packet id of the next packet. `None` does not occur in practice, since
    /// unacknowledged packets are far fewer than packet ids.
    pub(super) fn next_packet_id(&mut self) -> Option<PacketId> {
        self.packets.next_id()
    }

    pub(super) fn push_publish(&mut self, packet: Vec<u8>, receipt: Option<SessionReceipt>) {
        self.bytes += packet.len();
        self.packets.add(PacketType::PubAck, UnackedPacket::Publish { packet, receipt });
    }

    pub(super) fn push_subscribe(&mut self, filters: Vec<String>) {
        self.packets.add(PacketType::SubAck, UnackedPacket::Subscribe(filters));
    }

    pub(super) fn awaits_suback(&self) -> bool {
        self.packets.request_count() > 0
    }

    /// Handles PUBACK. Returns `None` if no message has this packet id; otherwise the receipt of
    /// the request that sent the message, if there is one.
    pub(super) fn acknowledge(&mut self, ack: &PublishAck<'_>) -> Option<Option<SessionReceipt>> {
        match self.packets.acknowledge(PacketType::PubAck, ack) {
            AckOutcome::Complete(UnackedPacket::Publish { packet, receipt }) => {
                self.bytes -= packet.len();
                Some(receipt)
            }
            _ => None,
        }
    }

    /// Handles SUBACK. Returns the filters of the SUBSCRIBE.
    pub(super) fn take_subscribe(&mut self, packet_id: PacketId) -> Vec<String> {
        match self.packets.answer_request(PacketType::SubAck, packet_id) {
            Some(UnackedPacket::Subscribe(filters)) => filters,
            _ => Vec::new(),
        }
    }

    /// Starts a new connection: appends the unacknowledged messages with DUP, and drops a SUBSCRIBE
    /// of the connection before.
    pub(super) fn resend_all(&mut self, out: &mut Vec<u8>) {
        self.packets.start_resending();
        while let Some(unacked) = self.packets.next_resend(u16::MAX) {
            if let UnackedPacket::Publish { packet, .. } = &mut unacked.value {
                // DUP [MQTT-3.3.1-1].
                packet[0] |= 0x08;
                out.extend_from_slice(packet);
            }
        }
    }
}
