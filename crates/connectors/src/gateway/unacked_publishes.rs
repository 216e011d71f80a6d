//! What the session here was told and this broker has not acknowledged, as it is said again.

use super::peer_message::SessionReceipt;
use mqtt::PacketId;
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct UnackedPublishes {
    publishes: VecDeque<UnackedPublish>,
    bytes: usize,
    last_id: u16,
}

struct UnackedPublish {
    packet_id: PacketId,
    packet: Vec<u8>,
    /// Receipt of the request that the message answers.
    receipt: Option<SessionReceipt>,
}

/// Largest number of messages, and of their bytes, that wait for this broker's acknowledgement.
const MESSAGES_MAX: usize = 1024;
const BYTES_MAX: usize = 4 << 20;

impl UnackedPublishes {
    pub(super) fn is_full(&self) -> bool {
        self.publishes.len() >= MESSAGES_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.publishes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.publishes.len()
    }

    pub(super) fn push(
        &mut self,
        packet_id: PacketId,
        packet: Vec<u8>,
        receipt: Option<SessionReceipt>,
    ) {
        self.bytes += packet.len();
        self.publishes.push_back(UnackedPublish { packet_id, packet, receipt });
    }

    /// Acknowledges a message. Returns the receipt of the request that it answers.
    pub(super) fn acknowledge(&mut self, packet_id: PacketId) -> Option<Option<SessionReceipt>> {
        let at = self.publishes.iter().position(|told| told.packet_id == packet_id)?;
        let told = self.publishes.remove(at)?;
        self.bytes -= told.packet.len();
        Some(told.receipt)
    }

    pub(super) fn resend_all(&mut self, out: &mut Vec<u8>) {
        for told in &mut self.publishes {
            // DUP [MQTT-3.3.1-1].
            told.packet[0] |= 0x08;
            out.extend_from_slice(&told.packet);
        }
    }

    /// An id that is not in use: there are far fewer of those than ids.
    pub(super) fn next_packet_id(&mut self) -> PacketId {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let id = PacketId::new(self.last_id).unwrap_or(PacketId::MIN);
            if self.publishes.iter().all(|told| told.packet_id != id) {
                return id;
            }
        }
    }
}
