//! Delivery to a persistent session, with a record in the store for each message.

use crate::counters::DropReason;
use crate::durability::persistent_session::PersistentSession;
use crate::durability::records;
use crate::durability::records::{QueueRecord, RecordBody, kind};
use crate::durability::write_batch::QueueInsert;
use crate::ids::{QueueRecordId, RecordNumber, SessionId, SlotState};
use crate::interface::outbox::Outbox;
use crate::interface::store_access::{RecordChange, RecordSpace, queue_key};
use crate::limits::{NONE, QUEUE_FRONT_BYTES, QUEUE_FRONT_MESSAGES};
use crate::message::{Durability, IncomingPublish};
use crate::options::QueuePolicy;
use crate::session::deliver::Delivery;
use crate::session::flight::{FlightSlot, SlotMarks};
use crate::session::session_table::SessionTable;
use mqtt::{PacketId, QoS};

impl SessionTable {
    /// Delivers a QoS 1 or 2 message to a persistent session. Every message has a queue position,
    /// from which the packet id follows, and durable messages a record. A QoS 2 message whose
    /// publisher waits for the commit waits too: after a crash, the repeated message would have
    /// another id.
    pub(crate) fn deliver_persistent(
        &mut self,
        hit: Delivery,
        qos: QoS,
        retain: bool,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let stored = draft.durability != Durability::Memory;
        let session = self.get(hit.session);
        let Some(persistent) = &session.persistent else { return };
        if persistent.stored_from.is_some() && stored {
            return self.spool(hit, qos, retain, draft, out);
        }
        let session = self.get(hit.session);
        let Some(persistent) = &session.persistent else { return };
        let next = persistent.positions.next();
        let waits = qos == QoS::ExactlyOnce && draft.durability == Durability::Sync;
        let at = persistent.shifts.id_of(next);
        let reaches = session.flight.as_ref().is_none_or(|flight| flight.can_use_id(at))
            && persistent.is_before_barrier(next);
        let room = session.gate.is_open() && session.has_room();
        if waits || !reaches || !room || !self.has_memory_for(hit.session, draft) {
            if stored && hit.group == NONE && self.has_long_front(hit.session) {
                self.continue_in_store(hit.session);
                return self.spool(hit, qos, retain, draft, out);
            }
            self.enqueue(hit, qos, retain, draft, out);
            if room && !reaches {
                // Messages in flight may stay unacknowledged for long.
                self.drain_queue(hit.session, out);
            }
            return;
        }
        let message = self.messages.keep(draft);
        let mut slot = FlightSlot::new(message, qos, retain, hit.ids, hit.group);
        self.assign_position(hit.session, &mut slot, draft);
        self.send_slot(hit, slot, draft, out);
    }

    /// Gives a slot a queue position, and adds a record to the batch unless the message has
    /// `Durability::Memory`.
    pub(crate) fn assign_position(
        &mut self,
        id: SessionId,
        slot: &mut FlightSlot,
        draft: &IncomingPublish<'_>,
    ) {
        let Some(position) = self.next_position(id) else { return };
        slot.position = position as u32;
        if draft.durability == Durability::Memory {
            return;
        }
        slot.marks.set(SlotMarks::STORED);
        if slot.qos == QoS::ExactlyOnce && draft.durability == Durability::Sync {
            slot.marks.set(SlotMarks::WAITS);
        }
        self.messages.add_reference(slot.message);
        self.write_queue_record(id, position, slot, draft.durability);
    }

    fn next_position(&mut self, id: SessionId) -> Option<u64> {
        let persistent = self.get_mut(id).persistent.as_mut()?;
        let (position, moved) = persistent.positions.allocate();
        if moved {
            self.make_dirty(id);
        }
        Some(position)
    }

    /// Adds a queue record to the batch, which takes over one reference to the message.
    fn write_queue_record(
        &mut self,
        id: SessionId,
        position: u64,
        slot: &FlightSlot,
        durability: Durability,
    ) {
        let Some(persistent) = &self.get(id).persistent else { return };
        let number = persistent.number;
        let is_long = persistent.is_left_unread;
        let entry = self.queue_record_of(slot);
        let message = slot.message;
        let is_spooled = !slot.marks.has(SlotMarks::STORED);
        let takes_copy = is_spooled && is_long;
        let is_unread = is_spooled && !is_long;
        self.write_batch.insert_in_queue(QueueInsert {
            number,
            position,
            entry,
            message,
            is_unread,
            takes_copy,
        });
        let is_synced = durability == Durability::Sync;
        if is_synced {
            self.write_batch.mark_urgent();
            self.write_batch.stores_routed = true;
        }
        // A QoS 2 message read back from the store must not be sent before the commit.
        if slot.qos == QoS::ExactlyOnce && (is_synced || is_spooled) {
            self.unsettled.push((id, position + 1));
        }
    }

    fn queue_record_of(&self, slot: &FlightSlot) -> QueueRecord {
        let group = (slot.group != NONE).then(|| self.group_name(slot.group));
        QueueRecord {
            state: slot.state,
            ids: self.ids_of(slot.ids).as_slice().into(),
            group,
            ..QueueRecord::new(slot.qos, slot.retain)
        }
    }

    /// Whether memory has enough of the queue, by `QUEUE_FRONT_MESSAGES`, `QUEUE_FRONT_BYTES` or
    /// memory pressure, so that new messages go to the store only.
    fn has_long_front(&self, id: SessionId) -> bool {
        let Some(flight) = &self.get(id).flight else { return self.is_pressure_elevated() };
        flight.waiting.len() >= QUEUE_FRONT_MESSAGES
            || flight.waiting_bytes >= QUEUE_FRONT_BYTES
            || self.is_pressure_elevated()
    }

    /// Continues the queue in the store only: later messages go through [`spool`](Self::spool).
    fn continue_in_store(&mut self, id: SessionId) {
        let Some(persistent) = &mut self.get_mut(id).persistent else { return };
        let next = persistent.positions.next();
        (persistent.stored_from, persistent.unsent_unread) = (Some(next), next);
        persistent.is_left_unread = true;
        (persistent.spooled, persistent.spooled_bytes) = (0, 0);
        persistent.is_unreadable = false;
    }

    /// Makes room in a queue that continues in the store only, by the policy of the queue. The
    /// oldest messages are in memory, unless the client has been offline since the start: then
    /// nothing can be dropped, and the new message is refused.
    fn make_stored_room(&mut self, id: SessionId, bytes: u64, out: &mut Outbox) -> bool {
        if !self.queue_is_full(id, bytes, true) {
            return true;
        }
        let session = self.get(id);
        let away = session.conn == NONE;
        match self.context.options.options_of_session(session).queue_policy {
            QueuePolicy::DropNewest => false,
            QueuePolicy::Disconnect if !away => {
                if !self.overruns.contains(&id) {
                    self.overruns.push(id);
                }
                false
            }
            QueuePolicy::Disconnect | QueuePolicy::DropOldest => {
                self.drop_oldest(id, bytes, true, DropReason::QueueFull, out);
                if self
                    .get(id)
                    .persistent
                    .as_ref()
                    .is_some_and(|persistent| persistent.is_left_unread)
                {
                    self.request_stored_queue(id, out);
                }
                !self.queue_is_full(id, bytes, true)
            }
        }
    }

    /// Appends a message to the part of the queue that only the store has, or drops the message if
    /// the queue is full.
    fn spool(
        &mut self,
        hit: Delivery,
        qos: QoS,
        retain: bool,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        out.deliveries += 1;
        let message = self.messages.keep(draft);
        let bytes = self.messages.get(message).bytes() as u64;
        let has_place = self.make_stored_room(hit.session, bytes, out);
        if let Some(persistent) =
            self.get_mut(hit.session).persistent.as_mut().filter(|_| has_place)
        {
            persistent.spooled += 1;
            persistent.spooled_bytes += bytes;
        }
        let place = if has_place { self.next_position(hit.session) } else { None };
        match place {
            Some(position) => {
                let slot = FlightSlot::new(message, qos, retain, hit.ids, hit.group);
                self.write_queue_record(hit.session, position, &slot, draft.durability);
                self.release_delivery(hit);
                if draft.durability != Durability::Memory && self.get(hit.session).conn != NONE {
                    self.request_stored_queue(hit.session, out);
                }
            }
            None => {
                self.messages.release(message);
                draft.pooled = None;
                self.release_delivery(hit);
                self.on_delivery_dropped(hit.session, DropReason::QueueFull, draft);
                self.note_drop(hit.session, DropReason::QueueFull, 1, out);
            }
        }
    }

    /// Whether the slot may be sent: only a QoS 2 slot marked `WAITS` waits for the commit.
    pub(crate) fn is_committed(&self, id: SessionId, slot: &FlightSlot) -> bool {
        let Some(persistent) = &self.get(id).persistent else { return true };
        slot.qos != QoS::ExactlyOnce
            || !slot.marks.has(SlotMarks::WAITS)
            || persistent.queue_record_id(slot.position).position < persistent.settled
    }

    pub(crate) fn set_suspended(&mut self, id: SessionId, suspended: bool) {
        if let Some(persistent) = &mut self.get_mut(id).persistent {
            persistent.suspended = suspended;
        }
    }

    /// Removes the record of a slot that has left the session's queue, if the slot is marked
    /// `STORED`.
    #[inline]
    pub(crate) fn remove_record(&mut self, id: SessionId, slot: &FlightSlot) {
        if slot.marks.has(SlotMarks::STORED) {
            self.remove_stored_record(id, slot);
        }
    }

    fn remove_stored_record(&mut self, id: SessionId, slot: &FlightSlot) {
        if let Some(place) = self.record_id_of(self.get(id).persistent.as_deref(), slot) {
            self.write_batch.remove_queue_record(place);
        }
    }

    /// Replaces the record of a message after PUBREC: only the state for PUBREL is kept. Returns
    /// whether PUBREL has to wait for the commit.
    pub(crate) fn release_stored(&mut self, id: SessionId, slot: &FlightSlot) -> bool {
        if !slot.marks.has(SlotMarks::STORED) {
            return false;
        }
        let Some(persistent) = &self.get(id).persistent else { return false };
        let QueueRecordId { number, position } = persistent.queue_record_id(slot.position);
        let entry =
            QueueRecord { state: SlotState::Released, ..QueueRecord::new(slot.qos, slot.retain) };
        let value = records::queue_value(&entry, RecordBody::None);
        self.write_batch.push_change(RecordSpace::Queues, queue_key(number, position), Some(value));
        self.request_sync()
    }

    /// Requests a sync for the records of this tick. Returns whether an answer has to wait for the
    /// sync, which is so only with `Durability::Sync`.
    pub(crate) fn request_sync(&mut self) -> bool {
        let waits = self.context.options.durability == Durability::Sync;
        if waits {
            self.write_batch.mark_urgent();
        }
        waits
    }

    pub(crate) fn make_dirty(&mut self, id: SessionId) {
        if let Some(persistent) = &mut self.get_mut(id).persistent
            && !persistent.dirty
        {
            persistent.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Returns the store's key of the message in a slot, for a session that ends or goes offline;
    /// `None` unless the slot is marked `STORED`.
    pub(crate) fn record_id_of(
        &self,
        persistent: Option<&PersistentSession>,
        slot: &FlightSlot,
    ) -> Option<QueueRecordId> {
        persistent
            .filter(|_| slot.marks.has(SlotMarks::STORED))
            .map(|persistent| persistent.queue_record_id(slot.position))
    }

    pub(crate) fn write_received(&mut self, id: SessionId, packet_id: PacketId) {
        let Some(persistent) = &self.get(id).persistent else { return };
        let key = records::received_key(persistent.number, packet_id);
        self.write_batch.push_change(RecordSpace::Sessions, key, Some(Vec::new()));
        if self.request_sync() {
            self.write_batch.stores_routed = true;
        }
    }

    /// Erases a received packet id. Returns whether PUBCOMP has to wait for the commit.
    pub(crate) fn erase_received(&mut self, id: SessionId, packet_id: PacketId) -> bool {
        let Some(persistent) = &self.get(id).persistent else { return false };
        let key = records::received_key(persistent.number, packet_id);
        self.write_batch.push_change(RecordSpace::Sessions, key, None);
        self.request_sync()
    }

    /// Erases the record of an ended session. If part of the queue is only in the store, writes a
    /// tombstone and returns its number, for `collect_tombstone`.
    pub(crate) fn write_tombstone(
        &mut self,
        persistent: &PersistentSession,
        client_id: &str,
    ) -> Option<RecordNumber> {
        let key = records::text_key(kind::SESSION, client_id);
        self.write_batch.push_change(RecordSpace::Sessions, key, None);
        persistent.stored_from?;
        let key = records::tombstone_key(persistent.number);
        let unsent = persistent.unsent_unread.to_le_bytes().to_vec();
        self.write_batch.push_change(RecordSpace::Sessions, key, Some(unsent));
        Some(persistent.number)
    }

    /// Returns the durability of messages of a topic: the first match in
    /// `BrokerOptions::durabilities`, else the general option; `Durability::Memory` without a
    /// store.
    pub(crate) fn durability_of(&self, topic: &str) -> Durability {
        if !self.write_batch.has_store {
            return Durability::Memory;
        }
        let options = &self.context.options;
        let mut special = options.durabilities.iter();
        let special = special.find(|(filter, _)| mqtt::topic::filter_matches(filter, topic));
        special.map_or(options.durability, |(_, durability)| *durability)
    }

    /// Records that a client is offline, and in `unsent` the position from which on no message was
    /// sent.
    pub(crate) fn note_away(&mut self, id: SessionId) {
        let session = self.get_mut(id);
        let flight = session.flight.as_ref();
        let waiting = flight.and_then(|flight| {
            let never_sent = |slot: &&FlightSlot| {
                slot.qos != QoS::AtMostOnce && !slot.marks.has(SlotMarks::WAS_SENT)
            };
            flight.waiting.iter().find(never_sent).copied()
        });
        let Some(persistent) = &mut session.persistent else { return };
        persistent.unsent = match (waiting, persistent.stored_from) {
            (Some(slot), _) => persistent.positions.full_position(slot.position),
            (None, Some(unread)) => unread.max(persistent.unsent_unread),
            (None, None) => persistent.positions.next(),
        };
        self.make_dirty(id);
    }

    /// Whether SUBACK and UNSUBACK of a session wait for the commit.
    pub(crate) fn waits_for_store(&self, id: SessionId) -> bool {
        self.get(id).persistent.is_some() && self.context.options.durability == Durability::Sync
    }

    pub(crate) fn take_changes(&mut self) -> Vec<RecordChange> {
        for id in std::mem::take(&mut self.dirty) {
            self.write_session(id);
        }
        self.write_batch.take_changes(&mut self.messages)
    }
}
