//! Persistent sessions: the state in the store, and queues that the store holds in full. Memory has
//! the front of the queue only; after a start nothing, until the client reconnects.

mod session_records;

use crate::durability::pending_acks::PendingAck;
use crate::durability::records::{self, QueueRecord, RecordBody, kind};
use crate::durability::write_batch::{
    PositionAllocator, QueueInsert, RecordChange, RecordNumber, RecordSpace,
};
use crate::input::SessionId;
use crate::limits::{NONE, QUEUE_FRONT_BYTES, QUEUE_FRONT_MESSAGES};
use crate::options::{Durability, QueuePolicy};
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::message::IncomingPublish;
use crate::session::delivery::Delivery;
use crate::session::flight::{FlightSlot, SlotMarks, SlotState};
use crate::session::id_shifts::IdShifts;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::sys::DropReason;
use mqtt::{PacketId, QoS};

/// The state of a session in the store, for [`SessionTable`] and the records of `records`.
#[derive(Debug)]
pub(crate) struct PersistentSession {
    pub(crate) number: RecordNumber,
    pub(crate) positions: PositionAllocator,
    pub(crate) shifts: IdShifts,
    /// Start of the part of the queue that only the store has. New messages are appended to that
    /// part.
    pub(crate) stored_from: Option<u64>,
    /// Whether that part exists by [`continue_in_store`](SessionTable::continue_in_store), because
    /// the queue is long, and not because the client has been offline since the start.
    is_left_unread: bool,
    /// Number and bytes of the messages added to that part since the start.
    pub(crate) spooled: u32,
    pub(crate) spooled_bytes: u64,
    /// Whether a `StoreReadRequest::Queue` is in progress.
    pub(crate) is_reading: bool,
    /// Whether reading that part failed; the next connection of the client tries again.
    pub(crate) is_unreadable: bool,
    /// No message from this position on was ever sent.
    unsent: u64,
    /// In the part that only the store has, no message from this position on was ever sent.
    pub(crate) unsent_unread: u64,
    /// QoS 2 messages from this position on wait for the commit (`PendingAck::PositionsCommitted`).
    pub(crate) settled: u64,
    /// First queue position of this process.
    pub(crate) process_from: u64,
    /// End of the positions of the process whose messages are in flight. Later messages would get
    /// the same packet ids, so a message repeated after a power cut could be mistaken for another.
    /// Later messages therefore wait until the store knows which earlier ones are finished.
    pub(crate) barrier: Option<u64>,
    /// Whether the messages before the barrier are finished or overdue, and a commit of this fact
    /// is due.
    pub(crate) is_lifting_barrier: bool,
    /// Whether unfinished messages are not sent again yet: see `Shard::resume_when_durable`.
    pub(crate) suspended: bool,
    /// User that owned the session when the store was read: see `Shard::belongs_to_other_user`.
    pub(crate) owner: Option<Box<str>>,
    /// Whether the part of the queue that only the store has may hold messages of revoked
    /// subscriptions.
    pub(crate) may_hold_revoked: bool,
    /// Whether the session is in `SessionTable::dirty`, so the record will be written.
    dirty: bool,
}

/// Key of a stored message that moves to another queue. The shard that stores the message next
/// removes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRecordId {
    pub(crate) number: RecordNumber,
    pub(crate) position: u64,
}

impl PersistentSession {
    fn new(number: RecordNumber, mark: u64) -> PersistentSession {
        PersistentSession {
            number,
            positions: PositionAllocator::from_mark(mark),
            shifts: IdShifts::default(),
            stored_from: None,
            is_left_unread: false,
            spooled: 0,
            spooled_bytes: 0,
            is_reading: false,
            is_unreadable: false,
            unsent: u64::MAX,
            unsent_unread: 0,
            settled: mark,
            process_from: mark,
            barrier: None,
            is_lifting_barrier: false,
            suspended: false,
            owner: None,
            may_hold_revoked: false,
            dirty: false,
        }
    }

    /// Creates the state of a restored session, with the whole queue in the store only.
    pub(crate) fn restored(number: RecordNumber, mark: u64, unsent: u64) -> PersistentSession {
        let new = PersistentSession::new(number, mark);
        // No position from the mark on was allocated before.
        PersistentSession {
            stored_from: Some(0),
            unsent,
            unsent_unread: unsent.min(mark),
            // The rules may have changed since the previous process.
            may_hold_revoked: true,
            ..new
        }
    }

    fn queue_record_id(&self, slot: &FlightSlot) -> QueueRecordId {
        QueueRecordId { number: self.number, position: self.positions.full_position(slot.position) }
    }
}

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
            || persistent.queue_record_id(slot).position < persistent.settled
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
        let QueueRecordId { number, position } = persistent.queue_record_id(slot);
        let entry =
            QueueRecord { state: SlotState::Released, ..QueueRecord::new(slot.qos, slot.retain) };
        let value = records::queue_value(&entry, RecordBody::None);
        self.write_batch.push_change(
            RecordSpace::Queues,
            records::queue_key(number, position),
            Some(value),
        );
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
            .map(|persistent| persistent.queue_record_id(slot))
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
}

impl Shard {
    /// Gives the shard a store. `boot` counts the starts of that store.
    pub fn open_store(&mut self, boot: u32) {
        self.sessions.write_batch =
            crate::durability::write_batch::WriteBatch::open(boot, self.sessions.context.id.0);
    }

    /// Returns the records of this tick for the store, and whether a client waits for any record.
    /// `on_committed` follows once the store has accepted the batch.
    pub fn take_records(&mut self) -> (Vec<RecordChange>, bool) {
        for (session, position) in std::mem::take(&mut self.sessions.unsettled) {
            if self.sessions.contains(session) {
                let generation = self.sessions.get(session).generation;
                self.connections.defer_ack(
                    PendingAck::PositionsCommitted { session, generation, position },
                    &mut self.sessions,
                );
            }
        }
        let is_urgent = self.sessions.write_batch.is_urgent();
        self.sessions.durability.pending_acks.urgent |= is_urgent;
        (self.sessions.take_changes(), is_urgent)
    }
}

impl SessionTable {
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

impl ShardRouting {
    /// Makes a session persistent if the session outlives the connection and the options ask for a
    /// durable store. An existing persistent session is marked as online.
    pub(crate) fn make_persistent(&mut self, id: SessionId, sessions: &mut SessionTable) {
        let lasts = sessions.write_batch.has_store
            && sessions.context.options.durability != Durability::Memory
            && sessions.get(id).expiry_s > 0;
        if sessions.get(id).persistent.is_none() {
            if !lasts {
                return;
            }
            let number = sessions.write_batch.allocate_number();
            let session = sessions.get_mut(id);
            // Packet ids go on where they were.
            let flight = session.flight.as_ref();
            let used = flight.map_or(session.first_id, |flight| flight.next_id());
            session.persistent = Some(Box::new(PersistentSession::new(number, u64::from(used))));
            self.count_persistent(1, sessions);
        }
        if let Some(persistent) = &mut sessions.get_mut(id).persistent {
            persistent.unsent = u64::MAX;
        }
        sessions.make_dirty(id);
    }

    pub(crate) fn count_persistent(&mut self, by: i64, sessions: &mut SessionTable) {
        sessions.durability.lasting_sessions += by;
        let any = sessions.durability.lasting_sessions > 0;
        self.interest.set_persistent(sessions.context.id.0, any);
    }
}
