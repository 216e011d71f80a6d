//! Delivery of one message to one session: sent at once if the window and the socket have room,
//! queued if not, dropped and counted if the policy of the queue requires. Every PUBLISH to a
//! client passes this module.

use crate::broker_event::BrokerEvent;
use crate::counters::DropReason;
use crate::ids::{ArenaRange, ConnId, MonotonicMs, SessionId, SlotState, SubscriptionFlags};
use crate::interface::outbox::Outbox;
use crate::limits::NONE;
use crate::memory::{CROWDED_WINDOW, SMALL_BYTES_MAX};
use crate::message::{Durability, EncodedRanges, IncomingPublish};
use crate::options::QueuePolicy;
use crate::session::alias::AliasChoice;
use crate::session::encoded_publish::{EncodedPublish, NamespaceStrip};
use crate::session::flight::{FlightSlot, SlotMarks, granted_qos};
use crate::session::send_gate::SendGate;
use crate::session::session_table::{Session, SessionTable};
use crate::session::subscriptions::packed_ids;
use mqtt::{PacketId, ProtocolVersion, QoS};

/// The delivery of a message to one subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) session: SessionId,
    pub(crate) options: SubscriptionFlags,
    /// Packed Subscription Identifiers; a list is owned by the receiver of the [`Delivery`].
    pub(crate) ids: u32,
    /// Index of the name of the shared group, or `NONE`.
    pub(crate) group: u32,
    /// The message is a retained one for a new subscription: the RETAIN flag stays
    /// [3.1.1:MQTT-3.3.1-8].
    pub(crate) from_retained: bool,
    /// Whether the session is the only subscriber on this shard, so encoded bytes need not be
    /// shared.
    pub(crate) alone: bool,
}

impl Session {
    /// Adds a slot to the flight, under the next packet id or the id of the queue position.
    #[inline(always)]
    pub(crate) fn number_slot(&mut self, slot: FlightSlot) -> PacketId {
        match &self.persistent {
            None => self.flight().send(slot),
            Some(persistent) => {
                let id = persistent.shifts.id_of(persistent.positions.full_position(slot.position));
                self.flight().send_at(id, slot)
            }
        }
    }

    /// Whether bytes encoded for another session may be sent to this session unchanged.
    #[inline]
    fn can_share_bytes(&self, range: ArenaRange, hit: Delivery) -> bool {
        self.aliases.is_none()
            && hit.ids == packed_ids::NONE
            && hit.group == NONE
            && range.len() <= self.packet_bytes_max as usize
    }
}

/// Header fields of a PUBLISH whose slot is in the flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryHeader {
    pub(in crate::session) id: PacketId,
    pub(in crate::session) qos: QoS,
    pub(in crate::session) retain: bool,
    /// The message was sent before [MQTT-3.3.1-1].
    pub(in crate::session) dup: bool,
    pub(in crate::session) ids: u32,
}

impl SessionTable {
    /// Delivers a message to one session of this shard: sends it, or queues it if the client is
    /// away or has no room. Every message to a subscriber takes this way.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        hit: Delivery,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        if self.get(hit.session).prefix_len != draft.encoded.prefix_len
            && !self.switch_namespace(hit, draft)
        {
            return;
        }
        let session = self.get_mut(hit.session);
        let qos = granted_qos(draft.qos, hit.options);
        // [MQTT-3.3.1-12] [MQTT-3.3.1-13]
        let retain = draft.retain && (hit.from_retained || hit.options.retain_as_published());
        let online = session.conn != NONE && session.gate.is_open();
        // Queued messages go first [MQTT-4.6.0-5] [MQTT-4.6.0-6].
        if qos == QoS::AtMostOnce {
            let behind = session.flight.as_ref().is_some_and(|flight| flight.waiting_qos0 > 0);
            if !online || behind {
                return self.enqueue(hit, QoS::AtMostOnce, retain, draft, out);
            }
            let known = draft.encoded.qos0[qos0_index(session.version, retain)];
            if let Some(range) = known.filter(|range| session.can_share_bytes(*range, hit)) {
                out.write(ConnId(session.conn), &mut session.write).push_shared(range);
                return self.count_sent(hit.session, Some(range.len()), out);
            }
            return self.send_qos0(hit, retain, draft, out);
        }
        if session.persistent.is_some() {
            return self.deliver_persistent(hit, qos, retain, draft, out);
        }
        if !online || !session.has_room() || !self.has_memory_for(hit.session, draft) {
            return self.enqueue(hit, qos, retain, draft, out);
        }
        let message = self.messages.keep(draft);
        let slot = FlightSlot::new(message, qos, retain, hit.ids, hit.group);
        self.send_slot(hit, slot, draft, out);
    }

    /// Switches the shared encodings to the namespace of the next subscriber. Returns whether the
    /// session receives the message: a topic equal to the namespace itself is outside (`tenant/#`
    /// matches it), and after the prefix a topic with `$` must not match a wildcard [MQTT-4.7.2-1].
    #[cold]
    fn switch_namespace(&mut self, hit: Delivery, draft: &mut IncomingPublish<'_>) -> bool {
        let mount = self.get(hit.session).prefix_len;
        let first = draft.topic.as_bytes().get(usize::from(mount));
        if first.is_none() || (mount > 0 && first == Some(&b'$')) {
            self.release_delivery(hit);
            return false;
        }
        draft.encoded = EncodedRanges::of_prefix_len(mount);
        true
    }

    /// Adds a slot to the flight and sends the message.
    #[inline(always)]
    pub(crate) fn send_slot(
        &mut self,
        hit: Delivery,
        slot: FlightSlot,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let (qos, retain) = (slot.qos, slot.retain);
        let session = self.get_mut(hit.session);
        let id = session.number_slot(slot);
        // Subscribers with equal packet ids share the bytes, without any encoding.
        let known = draft.encoded.numbered_as(numbered_key(session.version, qos, retain, id));
        if let Some(range) = known.filter(|range| session.can_share_bytes(*range, hit)) {
            out.write(ConnId(session.conn), &mut session.write).push_shared(range);
            return self.count_sent(hit.session, Some(range.len()), out);
        }
        let numbered = DeliveryHeader { id, qos, retain, dup: false, ids: hit.ids };
        self.send_numbered(hit.session, numbered, hit.alone, draft, out);
    }

    pub(crate) fn send_qos0(
        &mut self,
        hit: Delivery,
        retain: bool,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let list = self.ids_of(hit.ids);
        let mut form = EncodedPublish {
            version: ProtocolVersion::V311,
            qos: QoS::AtMostOnce,
            retain,
            dup: false, // [MQTT-4.3.1-1]
            id: None,
            subscription_ids: list.as_slice(),
            alias: AliasChoice::None,
            waited_s: waited_s(self.context.now, draft),
            strip: NamespaceStrip::default(),
        };
        let may_learn = !self.is_pressure_elevated();
        let sent =
            send_copy(self.get_mut(hit.session), &mut form, hit.alone, may_learn, draft, out);
        if let AliasChoice::New(_) = form.alias {
            self.count_aliases(hit.session);
        }
        self.release_delivery(hit);
        self.count_sent(hit.session, sent, out);
    }

    /// Releases the references of a delivery that is not kept.
    pub(crate) fn release_delivery(&mut self, hit: Delivery) {
        self.release_ids(hit.ids);
        if hit.group != NONE {
            self.release_group(hit.group);
        }
    }

    /// Sends a QoS 1 or 2 message whose slot is in the flight.
    pub(crate) fn send_numbered(
        &mut self,
        id: SessionId,
        numbered: DeliveryHeader,
        alone: bool,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let list = self.ids_of(numbered.ids);
        let mut form = EncodedPublish {
            version: ProtocolVersion::V311,
            qos: numbered.qos,
            retain: numbered.retain,
            // DUP is the broker's, independent of the publisher's [MQTT-3.3.1-3] [MQTT-4.3.2-2]
            // [MQTT-4.3.3-2].
            dup: numbered.dup,
            id: Some(numbered.id),
            subscription_ids: list.as_slice(),
            alias: AliasChoice::None,
            waited_s: waited_s(self.context.now, draft),
            strip: NamespaceStrip::default(),
        };
        let may_learn = !self.is_pressure_elevated();
        let sent = send_copy(self.get_mut(id), &mut form, alone, may_learn, draft, out);
        if let AliasChoice::New(_) = form.alias {
            self.count_aliases(id);
        }
        if sent.is_none() {
            // [MQTT-3.1.2-25]: too large for the client, so as if delivered.
            let DeliveryHeader { id: packet_id, qos, .. } = numbered;
            if let Some(slot) = self.get_mut(id).flight().finish(packet_id, SlotState::Sent, qos) {
                self.remove_record(id, &slot);
                self.release_slot(slot);
            }
            draft.pooled = None;
        }
        self.count_sent(id, sent, out);
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, id: SessionId, sent: Option<usize>, out: &mut Outbox) {
        out.deliveries += 1;
        match sent {
            Some(bytes) => {
                self.counters.publish_sent += 1;
                self.counters.bytes_sent += bytes as u64;
            }
            None => self.note_drop(id, DropReason::PacketTooLarge, 1, out),
        }
    }

    /// Adds a message to the session's queue. If the queue is full, expired messages are dropped
    /// first, then `QueuePolicy` decides: the oldest message is dropped, the new message, or the
    /// connection.
    pub(crate) fn enqueue(
        &mut self,
        hit: Delivery,
        qos: QoS,
        retain: bool,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        // The message is not sent, but the work counts for the tick.
        out.deliveries += 1;
        let session = self.get_mut(hit.session);
        let away = session.conn == NONE;
        let clean_and_away = away && session.expiry_s == 0;
        // QoS 1 and 2 messages wait for an offline client [3.1.1:MQTT-3.1.2-5].
        if clean_and_away || (qos == QoS::AtMostOnce && away && !self.keeps_qos0(hit.session)) {
            self.release_delivery(hit);
            self.on_delivery_dropped(hit.session, DropReason::Offline, draft);
            return self.note_drop(hit.session, DropReason::Offline, 1, out);
        }
        let message = self.messages.keep(draft);
        let bytes = self.messages.get(message).bytes() as u64;
        let mut slot = FlightSlot::new(message, qos, retain, hit.ids, hit.group);
        let is_stored = self.is_stored(hit.session, qos, draft);
        let mut full = self.queue_is_full(hit.session, bytes, is_stored);
        if full {
            self.drop_stale(hit.session, out);
            full = self.queue_is_full(hit.session, bytes, is_stored);
        }
        let drop = if full { DropReason::QueueFull } else { DropReason::OutOfMemory };
        let policy =
            match self.context.options.options_of_session(self.get(hit.session)).queue_policy {
                QueuePolicy::Disconnect if away => QueuePolicy::DropOldest,
                policy => policy,
            };
        let has_place = match policy {
            _ if !full && !self.is_pressure_elevated() => true,
            QueuePolicy::DropOldest => self.drop_oldest(hit.session, bytes, is_stored, drop, out),
            QueuePolicy::DropNewest => false,
            QueuePolicy::Disconnect => {
                if !self.overruns.contains(&hit.session) {
                    self.overruns.push(hit.session);
                }
                false
            }
        };
        if !has_place {
            self.release_slot(slot);
            draft.pooled = None;
            self.on_delivery_dropped(hit.session, drop, draft);
            return self.note_drop(hit.session, drop, 1, out);
        }
        if qos != QoS::AtMostOnce {
            self.assign_position(hit.session, &mut slot, draft);
        }
        let flight = self.get_mut(hit.session).flight();
        flight.waiting_bytes += bytes;
        flight.waiting_qos0 += u32::from(qos == QoS::AtMostOnce);
        flight.waiting.push_back(slot);
        self.watch_age(hit.session);
        let gate = self.get(hit.session).gate;
        if gate.has(SendGate::METERED) && !gate.is_shut() {
            self.postpone(hit.session);
        }
    }

    /// Whether memory allows a message with room in the window to be kept until the
    /// acknowledgement. Under pressure at most `CROWDED_WINDOW` messages, and larger ones only
    /// below high pressure.
    #[inline]
    pub(crate) fn has_memory_for(&self, id: SessionId, draft: &IncomingPublish<'_>) -> bool {
        if !self.is_pressure_elevated() {
            return true;
        }
        let flight = self.get(id).flight.as_ref();
        let large =
            draft.topic.len() + draft.properties.len() + draft.payload.len() > SMALL_BYTES_MAX;
        let room = if large { !self.is_pressure_high() } else { !self.is_pressure_critical() };
        room && flight.is_none_or(|flight| flight.unacknowledged < CROWDED_WINDOW)
    }

    /// Drops expired messages at the front of a queue to make room.
    pub(crate) fn drop_stale(&mut self, id: SessionId, out: &mut Outbox) {
        loop {
            let flight = self.get(id).flight.as_ref();
            let front = flight.and_then(|flight| flight.waiting.front().copied());
            let stale = front.filter(|slot| slot.may_be_dropped() && self.is_stale(id, slot));
            let Some(slot) = stale.and_then(|_| self.take_waiting(id, 0)) else { return };
            self.drop_slot(id, slot, DropReason::Expired, out);
        }
    }

    /// Drops a slot taken from the queue: event, record, references and counters.
    pub(crate) fn drop_slot(
        &mut self,
        id: SessionId,
        slot: FlightSlot,
        drop: DropReason,
        out: &mut Outbox,
    ) {
        if self.event_queue.filter.delivery_dropped {
            let message = self.messages.message(slot.message);
            self.on_delivery_dropped(id, drop, &mut message.draft());
        }
        self.remove_record(id, &slot);
        self.release_slot(slot);
        self.note_drop(id, drop, 1, out);
    }

    pub(crate) fn keeps_qos0(&self, id: SessionId) -> bool {
        self.context.options.options_of_session(self.get(id)).queue_qos0
    }

    /// Whether a queued message has a record in the store, and counts against the bounds for stored
    /// messages.
    pub(crate) fn is_stored(&self, id: SessionId, qos: QoS, draft: &IncomingPublish<'_>) -> bool {
        let lasts = self.get(id).persistent.is_some();
        lasts && qos != QoS::AtMostOnce && draft.durability != Durability::Memory
    }

    pub(crate) fn queue_is_full(&self, id: SessionId, bytes: u64, is_stored: bool) -> bool {
        let session = self.get(id);
        let waiting = session.flight.as_ref();
        let (messages, sum) =
            waiting.map_or((0, 0), |it| (it.waiting.len() as u64, it.waiting_bytes));
        let spooled = session.persistent.as_ref().filter(|_| is_stored);
        let (more, more_bytes) =
            spooled.map_or((0, 0), |it| (u64::from(it.spooled), it.spooled_bytes));
        let (messages_max, bytes_max) =
            self.context.options.options_of_session(session).queue_bounds(is_stored);
        let has_any = messages + more > 0;
        has_any && (messages + more >= messages_max || sum + more_bytes + bytes > bytes_max)
    }

    /// Makes room for `bytes` in the session's own queue by dropping messages from the front.
    /// Returns `false` if no message may be dropped and the room is still missing.
    pub(crate) fn drop_oldest(
        &mut self,
        id: SessionId,
        bytes: u64,
        is_stored: bool,
        drop: DropReason,
        out: &mut Outbox,
    ) -> bool {
        let mut room = 0;
        loop {
            // A message only in the store needs no memory.
            let is_short = !is_stored || drop == DropReason::OutOfMemory;
            let crowded = is_short && self.is_pressure_elevated() && room < bytes;
            if !crowded && !self.queue_is_full(id, bytes, is_stored) {
                return true;
            }
            let flight = self.get(id).flight.as_ref();
            // A message with a record in the store is acknowledged, so a message only in memory
            // must not replace it.
            let may_go = |slot: &FlightSlot| {
                slot.may_be_dropped() && (is_stored || !slot.marks.has(SlotMarks::STORED))
            };
            let oldest = flight.and_then(|flight| flight.waiting.iter().position(may_go));
            let Some(slot) = oldest.and_then(|at| self.take_waiting(id, at)) else {
                let flight = &self.get(id).flight;
                return !crowded && flight.as_ref().is_none_or(|it| it.waiting.is_empty());
            };
            room += self.messages.get(slot.message).bytes() as u64;
            self.drop_slot(id, slot, drop, out);
        }
    }

    pub(crate) fn take_waiting(&mut self, id: SessionId, at: usize) -> Option<FlightSlot> {
        let flight = self.get_mut(id).flight.as_mut()?;
        let slot = flight.waiting.remove(at)?;
        flight.waiting_qos0 -= u32::from(slot.qos == QoS::AtMostOnce);
        if flight.waiting.is_empty() && flight.waiting.capacity() > WAITING_KEPT {
            flight.waiting.shrink_to(WAITING_KEPT);
        }
        if !slot.marks.has(SlotMarks::RELEASED) {
            let bytes = self.messages.get(slot.message).bytes() as u64;
            self.get_mut(id).flight().waiting_bytes -= bytes;
        }
        Some(slot)
    }

    #[cold]
    pub(crate) fn note_drop(
        &mut self,
        id: SessionId,
        drop: DropReason,
        count: u64,
        out: &mut Outbox,
    ) {
        self.count_drop(id, drop, count);
        let session = self.get_mut(id);
        if let Some(withheld) = &mut session.extras().withheld_drops {
            withheld.0[drop as usize] += count;
            return;
        }
        session.extras().withheld_drops = Some(Box::default());
        let client_id = session.client_id.clone();
        out.events.push(BrokerEvent::Dropped { client_id, drop, count });
        self.withholding.push(id);
    }
}

pub(crate) fn waited_s(now: MonotonicMs, draft: &IncomingPublish<'_>) -> u32 {
    (now.0.saturating_sub(draft.at.0) / 1000) as u32
}

/// Writes one copy. `None` above the client's Maximum Packet Size [MQTT-3.1.2-24].
#[inline]
fn send_copy(
    session: &mut Session,
    form: &mut EncodedPublish<'_>,
    alone: bool,
    may_learn: bool,
    draft: &mut IncomingPublish<'_>,
    out: &mut Outbox,
) -> Option<usize> {
    let conn = session.conn()?;
    form.version = session.version;
    if session.prefix_len > 0 {
        form.strip = NamespaceStrip::new(session.prefix_len, draft);
    }
    if session.aliases.is_some() || !form.subscription_ids.is_empty() || alone {
        return send_own_copy(session, form, may_learn, draft, out);
    }
    let range = match find_range(form, draft) {
        Some(range) => range,
        None => {
            // The packet ids differ, so later copies are separate; only the first is shared.
            if form.id.is_some() && draft.encoded.numbered.is_some() {
                return send_own_copy(session, form, may_learn, draft, out);
            }
            let start = out.arena.len() as u32;
            form.write(draft, &mut out.arena);
            let range = ArenaRange { start, end: out.arena.len() as u32 };
            remember_range(form, draft, range);
            range
        }
    };
    let len = (range.end - range.start) as usize;
    if len > session.packet_bytes_max as usize {
        return None;
    }
    out.write(conn, &mut session.write).push_shared(range);
    Some(len)
}

fn send_own_copy(
    session: &mut Session,
    form: &mut EncodedPublish<'_>,
    may_learn: bool,
    draft: &IncomingPublish<'_>,
    out: &mut Outbox,
) -> Option<usize> {
    let conn = session.conn()?;
    let mut len = form.len(draft);
    if len > session.packet_bytes_max as usize {
        return None;
    }
    if let Some(aliases) = &mut session.aliases {
        form.alias = aliases.choose(form.strip.topic(draft), may_learn);
        if form.alias != AliasChoice::None {
            len = form.len(draft);
            // The first use of an alias makes the packet longer. Above the client's Maximum Packet
            // Size the aliases are given up.
            if len > session.packet_bytes_max as usize {
                aliases.retire();
                form.alias = AliasChoice::None;
                len = form.len(draft);
            }
        }
    }
    form.write(draft, &mut out.write(conn, &mut session.write).own);
    out.count_bytes(len);
    Some(len)
}

fn numbered_key(version: ProtocolVersion, qos: QoS, retain: bool, id: PacketId) -> u32 {
    u32::from(id.get())
        | (qos as u32) << 16
        | u32::from(retain) << 18
        | u32::from(version == ProtocolVersion::V5) << 19
}

fn qos0_index(version: ProtocolVersion, retain: bool) -> usize {
    usize::from(version == ProtocolVersion::V5) * 2 + usize::from(retain)
}

#[inline]
fn find_range(form: &EncodedPublish<'_>, draft: &IncomingPublish<'_>) -> Option<ArenaRange> {
    match form.id {
        None => draft.encoded.qos0[qos0_index(form.version, form.retain)],
        Some(id) => {
            draft.encoded.numbered_as(numbered_key(form.version, form.qos, form.retain, id))
        }
    }
}

fn remember_range(form: &EncodedPublish<'_>, draft: &mut IncomingPublish<'_>, range: ArenaRange) {
    match form.id {
        None => draft.encoded.qos0[qos0_index(form.version, form.retain)] = Some(range),
        Some(id) => {
            let key = numbered_key(form.version, form.qos, form.retain, id);
            draft.encoded.numbered = Some((key, range));
        }
    }
}

const WAITING_KEPT: usize = 64;
