//! Packets of a client that wait for an acknowledgement, by their packet ids.
//!
//! ```text
//!   PUBLISH QoS 1  -->  PubAck  ------------------------------- PUBACK -->  gone
//!   PUBLISH QoS 2  -->  PubRec  -- PUBREC -->  PubComp  ------ PUBCOMP -->  gone
//!                         +-- PUBREC with a reason from 0x80 on ---------->  gone
//!   SUBSCRIBE      -->  SubAck  ------------------------------- SUBACK -->  gone
//!   UNSUBSCRIBE    -->  UnsubAck  --------------------------- UNSUBACK -->  gone
//! ```
//!
//! Packets are stored in the order of transmission, with consecutive numbers that advance together
//! with the packet ids. A server that acknowledges in order finds the packet at the front; an
//! answer out of order needs a binary search. A linear search is needed only if a packet stays
//! unacknowledged while the packet ids wrap around.

use crate::{PacketId, PacketType, PublishAck};
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug)]
pub struct UnacknowledgedPackets<T> {
    packets: VecDeque<UnacknowledgedPacket<T>>,
    /// Next packet id to try, and the number of the next packet.
    next_id: PacketId,
    next: u64,
    /// Number of SUBSCRIBE and UNSUBSCRIBE packets in `packets`.
    requests: usize,
    /// Numbers of the messages that the present connection has still to send again.
    resends: Range<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnacknowledgedPacket<T> {
    number: u64,
    /// Value that the caller stores for the packet.
    pub value: T,
    pub packet_id: PacketId,
    /// Type of the outstanding acknowledgement: PUBACK, PUBREC, PUBCOMP, SUBACK or UNSUBACK.
    pub awaits: PacketType,
}

/// Result of a PUBACK, PUBREC or PUBCOMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome<T> {
    /// The message is complete: the server accepted or rejected it, by the reason code.
    Complete(T),
    /// PUBREC: the client sends PUBREL.
    Release,
    /// No outstanding message matches the acknowledgement.
    Unexpected,
}

impl<T> Default for UnacknowledgedPackets<T> {
    fn default() -> UnacknowledgedPackets<T> {
        UnacknowledgedPackets::starting_at(PacketId::MIN)
    }
}

impl<T> UnacknowledgedPackets<T> {
    /// Creates an empty set; the first packet gets the id `first`.
    pub fn starting_at(first: PacketId) -> UnacknowledgedPackets<T> {
        UnacknowledgedPackets {
            packets: VecDeque::new(),
            next_id: first,
            next: IDS,
            requests: 0,
            resends: 0..0,
        }
    }

    /// Adds a packet before its transmission. Returns its packet id, or `None` if all ids are in
    /// use.
    #[inline]
    pub fn add(&mut self, awaits: PacketType, value: T) -> Option<PacketId> {
        let packet_id = self.next_id()?;
        let number = self.next;
        self.advance();
        self.requests += usize::from(is_request(awaits));
        self.packets.push_back(UnacknowledgedPacket { number, value, packet_id, awaits });
        Some(packet_id)
    }

    /// Returns the packet id that [`Self::add`] assigns next, or `None` if all ids are in use.
    #[inline]
    pub fn next_id(&mut self) -> Option<PacketId> {
        if self.packets.len() >= IDS as usize {
            return None;
        }
        // [MQTT-2.2.1-3] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
        while self.has_lapped() && self.packets.iter().any(|it| it.packet_id == self.next_id) {
            self.advance();
        }
        Some(self.next_id)
    }

    /// Handles an acknowledgement of a PUBLISH; `kind` is PUBACK, PUBREC or PUBCOMP. An
    /// acknowledgement that does not match the state of its packet returns
    /// [`AckOutcome::Unexpected`] and changes no packet.
    #[inline]
    pub fn acknowledge(&mut self, kind: PacketType, ack: &PublishAck<'_>) -> AckOutcome<T> {
        // Fast path: nearly all acknowledgements arrive in order. [MQTT-4.3.2-3] [MQTT-4.4.0-2]
        if matches!(kind, PacketType::PubAck | PacketType::PubComp)
            && self.resends.is_empty()
            && let Some(front) = self.packets.front()
            && (front.packet_id, front.awaits) == (ack.packet_id, kind)
            && let Some(packet) = self.packets.pop_front()
        {
            return AckOutcome::Complete(packet.value);
        }
        self.acknowledge_in_any_order(kind, ack.packet_id, !ack.reason.is_error())
    }

    /// Acknowledges a packet that is not the oldest one. This slow path is not inlined, so that
    /// [`Self::acknowledge`] stays small.
    #[inline(never)]
    fn acknowledge_in_any_order(
        &mut self,
        kind: PacketType,
        packet_id: PacketId,
        is_accepted: bool,
    ) -> AckOutcome<T> {
        let Some(at) = self.position(packet_id) else { return AckOutcome::Unexpected };
        let Some(packet) = self.packets.get_mut(at) else { return AckOutcome::Unexpected };
        match (packet.awaits, kind) {
            // [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6]
            (PacketType::PubRec | PacketType::PubComp, PacketType::PubRec) if is_accepted => {
                packet.awaits = PacketType::PubComp;
                AckOutcome::Release
            }
            // [MQTT-4.3.3-3] [MQTT-4.4.0-2]
            (PacketType::PubAck, PacketType::PubAck)
            | (PacketType::PubRec, PacketType::PubRec)
            | (PacketType::PubComp, PacketType::PubComp) => {
                self.remove(at).map_or(AckOutcome::Unexpected, AckOutcome::Complete)
            }
            _ => AckOutcome::Unexpected,
        }
    }

    /// Handles SUBACK or UNSUBACK. Returns the value of the request, or `None` without a match.
    pub fn answer_request(&mut self, kind: PacketType, packet_id: PacketId) -> Option<T> {
        let at = self.position(packet_id)?;
        let is_answer = is_request(kind) && self.packets[at].awaits == kind;
        if is_answer { self.remove(at) } else { None }
    }

    /// Returns whether one more PUBLISH may be sent within `receive_maximum` unacknowledged
    /// messages. [MQTT-4.9.0-1] [MQTT-4.9.0-2]
    #[inline]
    pub fn has_room(&self, receive_maximum: u16) -> bool {
        self.publish_count() < usize::from(receive_maximum) && self.resends.is_empty()
    }

    #[inline]
    pub fn publish_count(&self) -> usize {
        self.packets.len() - self.requests
    }

    pub fn request_count(&self) -> usize {
        self.requests
    }

    /// Returns the packets in the order of transmission.
    pub fn iter(&self) -> impl Iterator<Item = &UnacknowledgedPacket<T>> {
        self.packets.iter()
    }

    /// Removes all packets. Their packet ids are not used again soon.
    pub fn clear(&mut self) {
        self.packets.clear();
        (self.requests, self.resends) = (0, 0..0);
    }

    /// Starts a new connection of the session: messages are to be sent again, and requests of the
    /// earlier connection are removed.
    pub fn start_resending(&mut self) {
        self.packets.retain(|packet| !is_request(packet.awaits));
        (self.requests, self.resends) = (0, 0..self.next);
        self.end_resending();
    }

    /// Returns the next message to send again: PUBREL if the packet awaits PUBCOMP, or else PUBLISH
    /// with DUP. Returns `None` at the end, or while `receive_maximum` messages are unacknowledged
    /// in this connection. [MQTT-3.3.1-1] [MQTT-4.4.0-1] [MQTT-4.6.0-1]
    pub fn next_resend(&mut self, receive_maximum: u16) -> Option<&mut UnacknowledgedPacket<T>> {
        let at = self.packets.partition_point(|packet| packet.number < self.resends.start);
        let until = self.packets.partition_point(|packet| packet.number < self.resends.end);
        let sent = self.publish_count() - (until - at);
        if self.resends.is_empty() || sent >= usize::from(receive_maximum) {
            return None;
        }
        self.resends.start = self.packets.get(at)?.number + 1;
        self.end_resending();
        self.packets.get_mut(at)
    }

    /// Ends the repetition if no message is left to send again.
    fn end_resending(&mut self) {
        let at = self.packets.partition_point(|packet| packet.number < self.resends.start);
        if self.packets.get(at).is_none_or(|packet| packet.number >= self.resends.end) {
            self.resends = 0..0;
        }
    }

    /// Returns whether the packet ids have wrapped around, so that an old packet may have the id of
    /// a later number.
    #[inline]
    fn has_lapped(&self) -> bool {
        self.packets.front().is_some_and(|front| front.number + IDS <= self.next)
    }

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
        self.next_id = self.next_id.checked_add(1).unwrap_or(PacketId::MIN);
    }

    fn position(&self, packet_id: PacketId) -> Option<usize> {
        let front = self.packets.front()?;
        let (next, id) = (u64::from(self.next_id.get()), u64::from(packet_id.get()));
        let number = self.next - if next > id { next - id } else { next + IDS - id };
        // Without removals between, the offset of the number is the index.
        let place = number.saturating_sub(front.number) as usize;
        if self.packets.get(place).is_some_and(|packet| packet.number == number) {
            return Some(place);
        }
        let found = self.packets.binary_search_by_key(&number, |packet| packet.number).ok();
        found.or_else(|| {
            let is_old = |packet: &UnacknowledgedPacket<T>| packet.packet_id == packet_id;
            self.has_lapped().then(|| self.packets.iter().position(is_old)).flatten()
        })
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let packet = match at {
            0 => self.packets.pop_front(),
            _ => self.packets.remove(at),
        }?;
        self.requests -= usize::from(is_request(packet.awaits));
        if !self.resends.is_empty() {
            self.end_resending();
        }
        Some(packet.value)
    }
}

#[inline]
fn is_request(awaits: PacketType) -> bool {
    matches!(awaits, PacketType::SubAck | PacketType::UnsubAck)
}

/// Number of packet ids.
const IDS: u64 = u16::MAX as u64;

#[cfg(test)]
mod tests;
