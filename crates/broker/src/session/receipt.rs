//! Acknowledgements from the client, and the messages that go on after them.

use crate::durability::pending_acks::AckPacket;
use crate::ids::{SessionId, SlotState};
use crate::interface::outbox::Outbox;
use crate::session::flight::{Flight, FlightSlot};
use crate::session::session_table::{Session, SessionTable};
use mqtt::{PacketId, PacketType, Properties, PublishAck, QoS, ReasonCode, Violation};

impl SessionTable {
    /// Handles a run of PUBACKs without reason code, the usual traffic of a busy subscriber.
    /// Returns the number of bytes handled; the first different packet is left to the codec.
    pub(crate) fn pubacks(&mut self, id: SessionId, bytes: &[u8], out: &mut Outbox) -> usize {
        let mut taken = self.pubacks_in_order(id, bytes);
        while let Some(packet_id) = ack_id(PUBACK, &bytes[taken..])
            && !out.is_full()
            && self.puback(id, packet_id, out).is_ok()
        {
            taken += 4;
        }
        self.counters.messages_received += taken as u64 / 4;
        self.counters.bytes_received += taken as u64;
        taken
    }

    /// Handles PUBACKs in the order of the messages, with one lookup of the session for the whole
    /// run. Returns 0 unless `in_order_flight` finds a flight without waiting messages.
    fn pubacks_in_order(&mut self, id: SessionId, bytes: &[u8]) -> usize {
        if self.event_queue.filter.acked {
            return 0;
        }
        let (session, messages) = self.with_messages(id);
        let Some(flight) = in_order_flight(session) else { return 0 };
        let mut taken = 0;
        while let Some(packet_id) = ack_id(PUBACK, &bytes[taken..])
            && let Some(message) = flight.finish_oldest(packet_id)
        {
            taken += 4;
            messages.release(message);
        }
        taken
    }

    /// Answers a run of PUBRECs without reason code by PUBRELs, as long as each is for a QoS 2
    /// message in state `SlotState::Sent`. Returns 0 for a persistent session, whose PUBRELs may
    /// wait for the store.
    pub(crate) fn pubrecs(&mut self, id: SessionId, bytes: &[u8], out: &mut Outbox) -> usize {
        if self.event_queue.filter.acked {
            return 0;
        }
        let (session, messages) = self.with_messages(id);
        let (Some(conn), None) = (session.conn(), &session.persistent) else { return 0 };
        let Some(flight) = &mut session.flight else { return 0 };
        let mut next = |bytes| {
            let packet_id = ack_id(PUBREC, bytes)?;
            Some((packet_id, flight.release_sent(packet_id)?))
        };
        let Some(mut released) = next(bytes) else { return 0 };
        let own = &mut out.write(conn, &mut session.write).own;
        let mut taken = 0;
        loop {
            let (packet_id, message) = released;
            messages.release(message);
            let [high, low] = packet_id.get().to_be_bytes();
            own.extend_from_slice(&[PUBREL, 2, high, low]);
            taken += 4;
            match next(&bytes[taken..]) {
                Some(more) => released = more,
                None => break,
            }
        }
        out.count_bytes(taken);
        let (count, bytes) = (taken as u64 / 4, taken as u64);
        self.counters.messages_received += count;
        self.counters.bytes_received += bytes;
        self.counters.messages_sent += count;
        self.counters.bytes_sent += bytes;
        taken
    }

    /// Handles a run of PUBCOMPs without reason code, in the order of the messages. Returns the
    /// number of bytes, and 0 unless `in_order_flight` finds a flight without waiting messages.
    pub(crate) fn pubcomps(&mut self, id: SessionId, bytes: &[u8]) -> usize {
        let Some(flight) = in_order_flight(self.get_mut(id)) else { return 0 };
        let mut taken = 0;
        while let Some(packet_id) = ack_id(PUBCOMP, &bytes[taken..])
            && flight.finish_oldest_released(packet_id)
        {
            taken += 4;
        }
        self.counters.messages_received += taken as u64 / 4;
        self.counters.bytes_received += taken as u64;
        taken
    }

    /// Ends the handshake of a QoS 1 message, which is unacknowledged until here [MQTT-4.3.2-3] and
    /// done whatever the reason code [MQTT-4.4.0-2] [MQTT-4.8.2-6].
    #[inline]
    pub(crate) fn puback(
        &mut self,
        id: SessionId,
        packet_id: PacketId,
        out: &mut Outbox,
    ) -> Result<(), Violation> {
        self.finish(id, packet_id, SlotState::Sent, QoS::AtLeastOnce, out)
    }

    /// Handles PUBREC: the message is not sent again [MQTT-4.3.3-3] [MQTT-4.3.3-6]. A reason code
    /// of 0x80 or above ends the exchange [MQTT-4.4.0-2] [MQTT-4.8.2-6]. Returns the reason code of
    /// PUBREL, if due, and whether PUBREL waits for the store: after PUBREL the client treats the
    /// id as new, so a restart must not send the message again.
    pub(crate) fn pubrec(
        &mut self,
        id: SessionId,
        ack: &PublishAck<'_>,
        out: &mut Outbox,
    ) -> Result<Option<(ReasonCode, bool)>, Violation> {
        let flight = &mut self.get_mut(id).flight;
        let slot = flight.as_ref().and_then(|flight| flight.find(ack.packet_id));
        let (Some(slot), Some(flight)) = (slot, flight) else {
            return Ok(Some((ReasonCode::PacketIdentifierNotFound, false)));
        };
        if slot.qos != QoS::ExactlyOnce {
            return match flight.has_seen(ack.packet_id) {
                true => Err(Violation::AckMismatched),
                false => Ok(Some((ReasonCode::PacketIdentifierNotFound, false))),
            };
        }
        if ack.reason.is_error() {
            self.finish(id, ack.packet_id, SlotState::Sent, QoS::ExactlyOnce, out)?;
            return Ok(None);
        }
        let mut waits = false;
        if slot.state == SlotState::Sent {
            flight.release(ack.packet_id);
            let released = FlightSlot { state: SlotState::Released, ..slot };
            waits = self.release_stored(id, &released);
            self.on_slot_acked(id, &slot);
            self.messages.release(slot.message);
        }
        Ok(Some((ReasonCode::Success, waits))) // [MQTT-4.3.3-4]
    }

    /// Ends the handshake of a QoS 2 message: PUBREL is unacknowledged until here [MQTT-4.3.3-5].
    pub(crate) fn pubcomp(
        &mut self,
        id: SessionId,
        packet_id: PacketId,
        out: &mut Outbox,
    ) -> Result<(), Violation> {
        self.finish(id, packet_id, SlotState::Released, QoS::ExactlyOnce, out)
    }

    /// Handles PUBREL: the client discards the id of a QoS 2 message, so the next PUBLISH with this
    /// id is new [MQTT-4.3.3-11] [MQTT-4.3.3-12], even if the old message has expired
    /// [MQTT-4.3.3-13]. Returns the reason code of PUBCOMP, and whether PUBCOMP waits for the
    /// store: a restart must not take a new message for a duplicate.
    pub(crate) fn pubrel(&mut self, id: SessionId, packet_id: PacketId) -> (ReasonCode, bool) {
        let flight = self.get_mut(id).flight();
        if !flight.received.remove(packet_id) {
            return (ReasonCode::PacketIdentifierNotFound, false);
        }
        (ReasonCode::Success, self.erase_received(id, packet_id))
    }

    /// Frees the slot of a message in the given state and drains the queue into the window. An
    /// unused id changes nothing, since an acknowledgement may arrive twice;
    /// `Violation::AckMismatched` for an acknowledgement that does not fit the state or QoS of the
    /// message.
    #[inline]
    fn finish(
        &mut self,
        id: SessionId,
        packet_id: PacketId,
        state: SlotState,
        qos: QoS,
        out: &mut Outbox,
    ) -> Result<(), Violation> {
        let session = self.get_mut(id);
        let Some(flight) = &mut session.flight else { return Ok(()) };
        let Some(slot) = flight.finish(packet_id, state, qos) else {
            let is_mistaken = flight.find(packet_id).is_some() && flight.has_seen(packet_id);
            return if is_mistaken { Err(Violation::AckMismatched) } else { Ok(()) };
        };
        let persistent = session.persistent.as_ref();
        let old = persistent.is_some_and(|it| it.has_barrier() || it.stored_from.is_some());
        let waits = !flight.waiting.is_empty() || flight.has_unseen() || old;
        let feeds = session.extras.as_ref().is_some_and(|extras| !extras.cursors.is_empty());
        if session.is_member {
            self.room_changes.push(id);
        }
        if state == SlotState::Sent {
            self.on_slot_acked(id, &slot);
        }
        self.remove_record(id, &slot);
        self.release_slot(slot);
        if waits || feeds {
            self.drain_queue(id, out);
        }
        Ok(())
    }

    #[inline]
    fn on_slot_acked(&mut self, id: SessionId, slot: &FlightSlot) {
        if self.event_queue.filter.acked {
            let message = self.messages.message(slot.message);
            let mut draft = message.draft();
            draft.qos = slot.qos;
            self.on_message_acked(id, &mut draft);
        }
    }

    /// Writes one of the four acknowledgements in the shortest form, with the packet id of the
    /// answered packet [MQTT-2.2.1-5]. 3.x has no reason codes.
    #[inline]
    pub(crate) fn acknowledge(&mut self, id: SessionId, ack: AckPacket, out: &mut Outbox) {
        let session = self.get_mut(id);
        let version = session.version;
        let Some(conn) = session.conn() else { return };
        let own = &mut out.write(conn, &mut session.write).own;
        let before = own.len();
        let AckPacket { kind, packet_id, reason } = ack;
        let ack = PublishAck { packet_id, reason, properties: Properties::default() };
        ack.encode(kind, version, own);
        let bytes = own.len() - before;
        out.count_bytes(bytes);
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += bytes as u64;
    }
}

pub(crate) const PUBACK: u8 = (PacketType::PubAck as u8) << 4;

pub(crate) const PUBREC: u8 = (PacketType::PubRec as u8) << 4;

pub(crate) const PUBCOMP: u8 = (PacketType::PubComp as u8) << 4;

pub(crate) const PUBREL: u8 = (PacketType::PubRel as u8) << 4 | 2;

/// Returns the flight of a session in which an acknowledgement only frees a slot: no waiting
/// message, no shared group, no retained messages still to send, no persistence. `None` for other
/// sessions.
#[inline]
pub(crate) fn in_order_flight(session: &mut Session) -> Option<&mut Flight> {
    let feeds = session.extras.as_ref().is_some_and(|extras| !extras.cursors.is_empty());
    let is_bound = session.is_member || session.persistent.is_some() || feeds;
    session.flight.as_deref_mut().filter(|flight| !is_bound && flight.waiting.is_empty())
}

/// Returns the packet id if the next four bytes are the acknowledgement `first` without a reason
/// code.
#[inline]
pub(crate) fn ack_id(first: u8, bytes: &[u8]) -> Option<PacketId> {
    let [kind, 2, high, low, ..] = *bytes else { return None };
    if kind == first { PacketId::new(u16::from_be_bytes([high, low])) } else { None }
}
