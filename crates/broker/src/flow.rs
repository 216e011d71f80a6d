//! What waits for a session goes on: out of its queue, or again to a client that came back.

use crate::alias::Alias;
use crate::deliver::{Hit, Numbered, waited_s};
use crate::encode::{Cut, Form};
use crate::flight::{Marks, Slot, State};
use crate::gate::Gate;
use crate::input::SessionId;
use crate::limits::NONE;
use crate::message::Draft;
use crate::outbox::Outbox;
use crate::session::Sessions;
use crate::sys::Drop;
use crate::topics::Packed;
use mqtt::{PacketId, PacketType, QoS, Reason};

impl Sessions {
    /// Sends what waits, as far as the window, the socket and the tick have room.
    pub(crate) fn flow(&mut self, id: SessionId, out: &mut Outbox) {
        self.resend(id, out);
        self.read_on_if_lasting(id, out);
        let mut has_taken = false;
        loop {
            let session = self.get_mut(id);
            let window = session.window;
            if session.conn == NONE || session.gate.is_shut() {
                break;
            }
            let metered = session.gate.has(Gate::METERED);
            if metered && self.is_ahead(id) {
                break;
            }
            let session = self.get_mut(id);
            let Some(flight) = &session.flight else { break };
            let Some(&front) = flight.waiting.front() else { break };
            if front.qos != QoS::AtMostOnce {
                if !flight.has_room(window) {
                    break;
                }
                if !self.may_go(id, &front) {
                    // Once the disk has it this is called again.
                    if self.is_settled(id, &front) {
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
                self.meter_sent(id, self.counters.bytes_sent - before);
            }
        }
        // What was dropped and not sent is followed by no acknowledgement that would read on.
        if has_taken {
            self.read_on_if_lasting(id, out);
        }
        self.lift_barrier(id);
        self.feed(id);
        if self.get(id).is_member {
            self.rooms.push(id);
        }
        self.get_mut(id).rest();
    }

    #[inline]
    fn read_on_if_lasting(&mut self, id: SessionId, out: &mut Outbox) {
        let session = self.get(id);
        if session.lasting.is_some() && session.conn != NONE {
            self.read_on(id, out);
        }
    }

    /// Whether the disk has what this slot waits for, and its id is free.
    #[inline]
    fn may_go(&self, id: SessionId, slot: &Slot) -> bool {
        let session = self.get(id);
        let Some(lasting) = &session.lasting else { return true };
        let position = lasting.positions.whole(slot.position);
        let at = lasting.shifts.id_of(position);
        let reaches = session.flight.as_ref().is_none_or(|flight| flight.reaches(at));
        reaches && lasting.is_open(position) && self.is_settled(id, slot)
    }

    /// Whether it has waited for longer than its publisher or the queue's age limit has it.
    pub(crate) fn is_stale(&self, id: SessionId, slot: &Slot) -> bool {
        let message = self.messages.get(slot.message);
        let age_s_max = self.options.of_session(self.get(id)).queue_age_s_max;
        message.is_expired(self.now) || message.is_older(age_s_max, self.now)
    }

    /// A message whose turn has come.
    fn send_waiting(&mut self, id: SessionId, mut slot: Slot, out: &mut Outbox) {
        // PUBREL is all that is left of it, and had no place beside what was sent.
        if slot.marks.has(Marks::RELEASED) {
            let packet_id = self.get_mut(id).number_slot(slot);
            return self.acknowledge(id, PacketType::PubRel, packet_id, Reason::Success, out);
        }
        // [MQTT-3.3.2-5]
        if slot.may_be_dropped() && self.is_stale(id, &slot) {
            return self.drop_slot(id, slot, Drop::Expired, out);
        }
        let (bytes, before) = (self.messages.lend(slot.message), self.written());
        let mut draft = bytes.view().draft();
        draft.kept = Some(slot.message);
        if slot.qos == QoS::AtMostOnce {
            let hit = Hit {
                session: id,
                options: Packed::default(),
                ids: slot.ids,
                group: slot.group,
                from_retained: false,
                alone: true,
            };
            self.send_qos0(hit, slot.retain, &mut draft, out);
            self.messages.release(slot.message);
        } else {
            slot.state = State::Sent;
            let packet_id = self.get_mut(id).number_slot(slot);
            let (qos, retain, ids) = (slot.qos, slot.retain, slot.ids);
            let dup = slot.marks.has(Marks::WAS_SENT);
            let numbered = Numbered { id: packet_id, qos, retain, dup, ids };
            self.send_numbered(id, numbered, true, &mut draft, out);
        }
        self.heed_sent(id, slot.qos, before, &mut draft);
        self.messages.restore(slot.message, bytes);
    }

    /// Retained messages that wait for this session may have room now.
    pub(crate) fn feed(&mut self, id: SessionId) {
        let waits = self.get(id).rare.as_ref().is_some_and(|rare| !rare.cursors.is_empty());
        if waits {
            self.hungry.push(id);
        }
    }

    /// Goes on with this session in the next tick.
    pub(crate) fn postpone(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        if !session.unfinished {
            session.unfinished = true;
            self.unfinished.push(id);
        }
    }

    /// Everything unfinished again after the client came back, in order [MQTT-4.4.0-1], as far as
    /// its new window goes.
    pub(crate) fn resend(&mut self, id: SessionId, out: &mut Outbox) {
        let session = self.get_mut(id);
        let window = session.window;
        let suspended = session.lasting.as_ref().is_some_and(|lasting| lasting.suspended);
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
                State::Released => {
                    self.acknowledge(id, PacketType::PubRel, packet_id, Reason::Success, out);
                }
                State::Sent => self.resend_publish(id, packet_id, slot, out),
            }
        }
    }

    /// Once sent, a message no longer expires [MQTT-4.3.3-7].
    fn resend_publish(&mut self, id: SessionId, at: PacketId, slot: Slot, out: &mut Outbox) {
        let bytes = self.messages.lend(slot.message);
        self.resend_copy(id, at, slot, &bytes.view().draft(), out);
        self.messages.restore(slot.message, bytes);
    }

    fn resend_copy(
        &mut self,
        id: SessionId,
        at: PacketId,
        slot: Slot,
        draft: &Draft<'_>,
        out: &mut Outbox,
    ) {
        let (list, waited_s) = (self.ids_of(slot.ids), waited_s(self.now, draft));
        let session = self.get_mut(id);
        let form = Form {
            version: session.version,
            qos: slot.qos,
            retain: slot.retain,
            dup: true, // [MQTT-3.3.1-1]
            id: Some(at),
            subscription_ids: list.as_slice(),
            alias: Alias::None,
            waited_s,
            cut: Cut::new(session.mount, draft),
        };
        let session = self.get_mut(id);
        let len = form.len(draft);
        if len > session.packet_bytes_max as usize {
            session.flight().finish(at, slot.state, slot.qos);
            self.strike(id, &slot);
            self.forget(slot);
            return self.count_sent(id, None, out);
        }
        let Some(conn) = session.conn() else { return };
        form.write(draft, &mut out.write(conn, &mut session.write).own);
        out.count_bytes(len);
        self.count_sent(id, Some(len), out);
    }

    pub(crate) fn count_drop(&mut self, id: SessionId, drop: Drop, count: u64) {
        self.counters.drops[drop as usize] += count;
        self.get_mut(id).rare().drops[drop as usize] += count;
    }
}
