//! Sending of waiting messages: from a session's queue, and again to a client that has reconnected.

use crate::counters::DropReason;
use crate::durability::pending_acks::AckPacket;
use crate::ids::{SessionId, SlotState, SubscriptionFlags};
use crate::interface::outbox::Outbox;
use crate::limits::NONE;
use crate::message::IncomingPublish;
use crate::session::alias::AliasChoice;
use crate::session::deliver::{Delivery, DeliveryHeader, waited_s};
use crate::session::encoded_publish::{EncodedPublish, NamespaceStrip};
use crate::session::flight::{FlightSlot, SlotMarks};
use crate::session::send_gate::SendGate;
use crate::session::session_table::SessionTable;
use mqtt::{PacketId, PacketType, QoS, ReasonCode};

impl SessionTable {
    /// Sends queued messages, bounded by the window, the socket's backlog, the rate limit and the
    /// tick.
    pub(crate) fn drain_queue(&mut self, id: SessionId, out: &mut Outbox) {
        self.resend(id, out);
        self.read_stored_if_connected(id, out);
        let mut has_taken = false;
        loop {
            let session = self.get_mut(id);
            let window = session.window;
            if session.conn == NONE || session.gate.is_shut() {
                break;
            }
            let metered = session.gate.has(SendGate::METERED);
            if metered && self.is_rate_limited(id) {
                break;
            }
            let session = self.get_mut(id);
            let Some(flight) = &session.flight else { break };
            let Some(&front) = flight.waiting.front() else { break };
            if front.qos != QoS::AtMostOnce {
                if !flight.has_room(window) {
                    break;
                }
                if !self.can_send(id, &front) {
                    // The commit of the record calls this function again.
                    if self.is_committed(id, &front) {
                        self.free_front_id(id);
                    }
                    break;
                }
            }
            if out.is_full() {
                return self.postpone(id);
            }
            let Some(slot) = self.take_waiting(id, 0) else { break };
            has_taken = true;
            let before = self.counters.bytes_sent;
            self.send_waiting(id, slot, out);
            if metered {
                self.charge_sent(id, self.counters.bytes_sent - before);
            }
        }
        // A message dropped here brings no acknowledgement that would continue the reading.
        if has_taken {
            self.read_stored_if_connected(id, out);
        }
        self.lift_barrier(id);
        self.wake_cursors(id);
        if self.get(id).is_member {
            self.room_changes.push(id);
        }
        self.get_mut(id).free_idle_flight();
    }

    #[inline]
    fn read_stored_if_connected(&mut self, id: SessionId, out: &mut Outbox) {
        let session = self.get(id);
        if session.persistent.is_some() && session.conn != NONE {
            self.request_stored_queue(id, out);
        }
    }

    /// Whether the store has committed the record of the slot, if necessary, and the packet id is
    /// free.
    #[inline]
    fn can_send(&self, id: SessionId, slot: &FlightSlot) -> bool {
        let session = self.get(id);
        let Some(persistent) = &session.persistent else { return true };
        let position = persistent.positions.full_position(slot.position);
        let at = persistent.shifts.id_of(position);
        let reaches = session.flight.as_ref().is_none_or(|flight| flight.can_use_id(at));
        reaches && persistent.is_before_barrier(position) && self.is_committed(id, slot)
    }

    /// Whether a message has waited beyond the Message Expiry Interval or `queue_age_s_max`.
    pub(crate) fn is_stale(&self, id: SessionId, slot: &FlightSlot) -> bool {
        let message = self.messages.get(slot.message);
        let age_s_max = self.context.options.options_of_session(self.get(id)).queue_age_s_max;
        message.is_expired(self.context.now) || message.is_older(age_s_max, self.context.now)
    }

    /// Sends a message taken from the queue, or only PUBREL for a released slot of the store. An
    /// expired message is dropped.
    fn send_waiting(&mut self, id: SessionId, mut slot: FlightSlot, out: &mut Outbox) {
        // A restored slot after PUBREC: PUBREL is left, and the window had no place.
        if slot.marks.has(SlotMarks::RELEASED) {
            let packet_id = self.get_mut(id).number_slot(slot);
            return self.acknowledge(
                id,
                AckPacket::new(PacketType::PubRel, packet_id, ReasonCode::Success),
                out,
            );
        }
        // [MQTT-3.3.2-5]
        if slot.may_be_dropped() && self.is_stale(id, &slot) {
            return self.drop_slot(id, slot, DropReason::Expired, out);
        }
        let (bytes, before) = (self.messages.lend(slot.message), self.sent_counts());
        let mut draft = bytes.view().draft();
        draft.pooled = Some(slot.message);
        if slot.qos == QoS::AtMostOnce {
            let hit = Delivery {
                session: id,
                options: SubscriptionFlags::default(),
                ids: slot.ids,
                group: slot.group,
                from_retained: false,
                alone: true,
            };
            self.send_qos0(hit, slot.retain, &mut draft, out);
            self.messages.release(slot.message);
        } else {
            slot.state = SlotState::Sent;
            let packet_id = self.get_mut(id).number_slot(slot);
            let (qos, retain, ids) = (slot.qos, slot.retain, slot.ids);
            let dup = slot.marks.has(SlotMarks::WAS_SENT);
            let numbered = DeliveryHeader { id: packet_id, qos, retain, dup, ids };
            self.send_numbered(id, numbered, true, &mut draft, out);
        }
        self.on_delivered(id, slot.qos, before, &mut draft);
        self.messages.restore(slot.message, bytes);
    }

    /// Continues the retained messages of this session, for which the window may have room now.
    pub(crate) fn wake_cursors(&mut self, id: SessionId) {
        let waits = self.get(id).extras.as_ref().is_some_and(|extras| !extras.cursors.is_empty());
        if waits {
            self.cursors_ready.push(id);
        }
    }

    /// Continues with this session in the next tick.
    pub(crate) fn postpone(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        if !session.unfinished {
            session.unfinished = true;
            self.unfinished.push(id);
        }
    }

    /// Sends all unfinished messages again after a reconnect, in order [MQTT-4.4.0-1] and within
    /// the new window.
    pub(crate) fn resend(&mut self, id: SessionId, out: &mut Outbox) {
        let session = self.get_mut(id);
        let window = session.window;
        let suspended = session.persistent.as_ref().is_some_and(|persistent| persistent.suspended);
        if session.conn == NONE || session.gate.is_shut() || suspended {
            return;
        }
        loop {
            let Some(flight) = &mut self.get_mut(id).flight else { return };
            if out.is_full() && flight.has_unseen() {
                return self.postpone(id);
            }
            let Some((packet_id, slot)) = flight.resend(window) else { return };
            match slot.state {
                SlotState::Released => {
                    self.acknowledge(
                        id,
                        AckPacket::new(PacketType::PubRel, packet_id, ReasonCode::Success),
                        out,
                    );
                }
                SlotState::Sent => self.resend_publish(id, packet_id, slot, out),
            }
        }
    }

    /// Sends a PUBLISH again. A message no longer expires after the first send [MQTT-4.3.3-7].
    fn resend_publish(&mut self, id: SessionId, at: PacketId, slot: FlightSlot, out: &mut Outbox) {
        let bytes = self.messages.lend(slot.message);
        self.resend_copy(id, at, slot, &bytes.view().draft(), out);
        self.messages.restore(slot.message, bytes);
    }

    fn resend_copy(
        &mut self,
        id: SessionId,
        at: PacketId,
        slot: FlightSlot,
        draft: &IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let (list, waited_s) = (self.ids_of(slot.ids), waited_s(self.context.now, draft));
        let session = self.get_mut(id);
        let form = EncodedPublish {
            version: session.version,
            qos: slot.qos,
            retain: slot.retain,
            dup: true, // [MQTT-3.3.1-1]
            id: Some(at),
            subscription_ids: list.as_slice(),
            alias: AliasChoice::None,
            waited_s,
            strip: NamespaceStrip::new(session.prefix_len, draft),
        };
        let session = self.get_mut(id);
        let len = form.len(draft);
        if len > session.packet_bytes_max as usize {
            session.flight().finish(at, slot.state, slot.qos);
            self.remove_record(id, &slot);
            self.release_slot(slot);
            return self.count_sent(id, None, out);
        }
        let Some(conn) = session.conn() else { return };
        form.write(draft, &mut out.write(conn, &mut session.write).own);
        out.count_bytes(len);
        self.count_sent(id, Some(len), out);
    }

    pub(crate) fn count_drop(&mut self, id: SessionId, drop: DropReason, count: u64) {
        self.counters.drops[drop as usize] += count;
        self.get_mut(id).extras().drops[drop as usize] += count;
    }
}
