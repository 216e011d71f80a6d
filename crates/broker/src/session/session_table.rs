//! Sessions: the state of a client that outlives a connection, and the table of all sessions of a
//! shard. State that few sessions have is boxed.

use crate::broker_event::BrokerEvent;
use crate::context::ShardContext;
use crate::counters::ShardCounters;
use crate::durability::ShardDurability;
use crate::durability::persistent_session::PersistentSession;
use crate::durability::write_batch::WriteBatch;
use crate::ids::{ConnId, ListenerId, MonotonicMs, QueueRecordId, SessionId, SessionRef};
use crate::interface::rule_event::EventQueue;
use crate::limits::NONE;
use crate::memory::{MemoryLedger, ProcessMemory, cost};
use crate::message::will::SessionWill;
use crate::message::{Message, MessagePool};
use crate::permissions::client_permissions::ClientPermissions;
use crate::session::alias::OutboundAliases;
use crate::session::flight::{Flight, FlightSlot, SlotMarks};
use crate::session::group_member::GroupName;
use crate::session::send_gate::SendGate;
use crate::session::session_extras::SessionExtras;
use crate::session::subscriptions::Subscription;
use crate::slab::Slab;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use mqtt::ProtocolVersion;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::mem::offset_of;
use std::sync::Arc;

/// State of a session. Fields used by each delivery or publish come first, within a cache line.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Session {
    /// The [`ConnId`] of the connection, or `NONE` while the client is offline.
    pub(crate) conn: u32,
    /// Slot in the writes of this tick for `Outbox::write`, or `NONE`.
    pub(in crate::session) write: u32,
    pub(crate) packet_bytes_max: u32,
    /// The lower of the client's Receive Maximum and `inflight_max` of the broker.
    pub(crate) window: u16,
    pub(crate) version: ProtocolVersion,
    pub(crate) gate: SendGate,
    /// Listener of the last connection, whose limits apply to the queue while the client is
    /// offline.
    pub(crate) listener: ListenerId,
    /// Length in bytes of the namespace prefix in front of topics and filters: see `namespace`.
    pub(crate) prefix_len: u8,
    /// Whether the session is in [`SessionTable::unfinished`].
    pub(crate) unfinished: bool,
    /// Whether the session is a member of a shared group, whose owner needs reports of free room.
    pub(crate) is_member: bool,
    /// Whether the session belongs to a data stream of a connection: see `data_stream`.
    pub(crate) is_data_stream: bool,
    /// Request Problem Information [MQTT-3.1.2-29].
    pub(crate) problem_information: bool,
    /// Whether the Session Expiry Interval of CONNECT was above 0: only then may DISCONNECT set a
    /// value above 0, whatever CONNACK granted.
    pub(crate) asked_to_stay: bool,
    pub(crate) flight: Option<Box<Flight>>,
    pub(in crate::session) aliases: Option<Box<OutboundAliases>>,
    /// State in the store; absent for a session that ends with the process.
    pub(crate) persistent: Option<Box<PersistentSession>>,
    /// Identity and permissions of the client, where permissions are checked.
    pub(crate) permissions: Option<Box<ClientPermissions>>,
    pub(crate) extras: Option<Box<SessionExtras>>,
    /// Client id with the namespace prefix: see `namespace`.
    pub(crate) client_id: Box<str>,
    pub(crate) subscriptions: SmallVec<[Subscription; 2]>,
    pub(crate) expiry_s: u32,
    pub(crate) generation: u32,
    /// Next packet id while `flight` is absent.
    pub(crate) first_id: u16,
}

const _: () = assert!(offset_of!(Session, permissions) <= 48);
// Every client has a `Session`, so state for few clients belongs in a box.
const _: () = assert!(size_of::<Option<Session>>() <= 120);

impl Session {
    pub(crate) fn conn(&self) -> Option<ConnId> {
        (self.conn != NONE).then_some(ConnId(self.conn))
    }

    /// Whether acknowledgements to the client may have a Reason String [MQTT-3.1.2-29].
    pub(crate) fn wants_reason_strings(&self) -> bool {
        self.version == ProtocolVersion::V5 && self.problem_information
    }

    pub(crate) fn extras(&mut self) -> &mut SessionExtras {
        self.extras.get_or_insert_default()
    }

    pub(crate) fn flight(&mut self) -> &mut Flight {
        let first = self.first_id;
        self.flight.get_or_insert_with(|| Box::new(Flight::starting_at(first)))
    }

    /// Frees the memory of [`SessionExtras`] once every field is empty.
    pub(crate) fn free_empty_extras(&mut self) {
        if self.extras.as_ref().is_some_and(|extras| extras.is_empty()) {
            self.extras = None;
        }
    }

    /// Frees the memory of the [`Flight`] once no message is in flight, and keeps the next packet
    /// id.
    pub(crate) fn free_idle_flight(&mut self) {
        if let Some(flight) = &self.flight
            && flight.is_idle()
        {
            self.first_id = flight.first_id();
            self.flight = None;
        }
    }

    /// Returns the number of QoS 1 messages that can be sent at once; at most 1 with a rate limit.
    pub(crate) fn free_window(&self) -> u32 {
        if !self.has_room() {
            return 0;
        }
        // With a rate limit, any message may be the last for a while.
        if self.gate.has(SendGate::METERED) {
            return 1;
        }
        let unacknowledged = self.flight.as_ref().map_or(0, |flight| flight.unacknowledged);
        u32::from(self.window - unacknowledged)
    }

    /// Whether the client is connected and a message can be sent now, without regard to the window.
    pub(crate) fn can_send_now(&self) -> bool {
        let waits = self.flight.as_ref().is_some_and(|flight| !flight.waiting.is_empty());
        let is_queued = waits && self.gate.has(SendGate::METERED);
        self.conn != NONE && !self.gate.is_shut() && !is_queued
    }

    /// Whether the client is connected and one more QoS 1 message can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.conn != NONE
            && !self.gate.is_shut()
            && self
                .flight
                .as_ref()
                .is_none_or(|flight| flight.waiting.is_empty() && flight.has_room(self.window))
    }
}

#[derive(Debug)]
pub(crate) struct SessionTable {
    slab: Slab<Session>,
    by_id: HashTable<u32>,
    hasher: FixedState,
    generation: u32,
    pub(crate) messages: MessagePool,
    pub(in crate::session) id_lists: Slab<Box<[u32]>>,
    pub(in crate::session) group_names: Slab<GroupName>,
    pub(in crate::session) groups_by_name: HashMap<Arc<str>, u32, FixedState>,
    pub(crate) counters: ShardCounters,
    pub(crate) event_queue: EventQueue,
    pub(crate) context: ShardContext,
    pub(crate) durability: ShardDurability,
    pub(crate) ledger: MemoryLedger,
    /// Sessions with messages to send, postponed because the tick had no room.
    pub(crate) unfinished: Vec<SessionId>,
    /// Group messages of members that ended or went offline, with the key of the store's record.
    pub(crate) orphans: Vec<(Arc<str>, Message, Option<QueueRecordId>)>,
    /// Records that this tick adds to the store.
    pub(crate) write_batch: WriteBatch,
    /// Sessions whose record is to be written.
    pub(crate) dirty: Vec<SessionId>,
    /// Sessions with QoS 2 messages below a queue position whose answers wait for the store.
    pub(crate) unsettled: Vec<(SessionId, u64)>,
    /// Sessions whose [`RetainedCursors`] may go on.
    pub(crate) cursors_ready: Vec<SessionId>,
    /// Sessions whose queues need a timer for the age limit, and the due time.
    pub(in crate::session) aging: Vec<(SessionId, MonotonicMs)>,
    /// Sessions above the rate limit, and the time until which the queue waits.
    pub(in crate::session) rate_limited: Vec<(SessionId, MonotonicMs)>,
    /// Sessions whose queue overflowed under `QueuePolicy::Disconnect`.
    pub(crate) overruns: Vec<SessionId>,
    /// Sessions with a reported event; repetitions within a second are withheld.
    pub(crate) withholding: Vec<SessionId>,
    /// Events with the withheld counts of sessions that ended.
    pub(crate) late_notes: Vec<BrokerEvent>,
    /// Members of shared groups whose free room may have changed in this tick.
    pub(crate) room_changes: Vec<SessionId>,
    pub(crate) online: u64,
    /// Number of sessions of data streams.
    pub(crate) data_streams: u64,
    /// Bytes of client ids, wills, permissions and topic aliases towards clients.
    texts: u64,
    /// Bytes of messages at which memory pressure is elevated, high and critical.
    pub(crate) elevated_at: u64,
    pub(crate) high_at: u64,
    pub(crate) critical_at: u64,
}

impl SessionTable {
    pub(crate) fn new(
        seed: u64,
        context: ShardContext,
        memory: Arc<ProcessMemory>,
    ) -> SessionTable {
        SessionTable {
            slab: Slab::default(),
            by_id: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            generation: 0,
            messages: MessagePool::default(),
            id_lists: Slab::default(),
            group_names: Slab::default(),
            groups_by_name: HashMap::with_hasher(FixedState::with_seed(seed)),
            counters: ShardCounters::default(),
            event_queue: EventQueue::default(),
            context,
            durability: ShardDurability::default(),
            ledger: MemoryLedger::new(memory),
            unfinished: Vec::new(),
            orphans: Vec::new(),
            write_batch: WriteBatch::default(),
            dirty: Vec::new(),
            unsettled: Vec::new(),
            cursors_ready: Vec::new(),
            aging: Vec::new(),
            rate_limited: Vec::new(),
            overruns: Vec::new(),
            withholding: Vec::new(),
            late_notes: Vec::new(),
            room_changes: Vec::new(),
            online: 0,
            data_streams: 0,
            texts: 0,
            elevated_at: u64::MAX,
            high_at: u64::MAX,
            critical_at: u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: SessionId) -> &Session {
        &self.slab[id.0]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SessionId) -> &mut Session {
        &mut self.slab[id.0]
    }

    pub(crate) fn with_messages(&mut self, id: SessionId) -> (&mut Session, &mut MessagePool) {
        (&mut self.slab[id.0], &mut self.messages)
    }

    /// Returns a session, and what is the same for all sessions.
    pub(crate) fn with_context(&mut self, id: SessionId) -> (&mut Session, &ShardContext) {
        (&mut self.slab[id.0], &self.context)
    }

    pub(crate) fn is_current(&self, id: SessionId, generation: u32) -> bool {
        self.slab.get(id.0).is_some_and(|session| session.generation == generation)
    }

    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.slab.get(id.0).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns a bound above every index of a session.
    pub(crate) fn index_bound(&self) -> u32 {
        self.slab.index_bound() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.slab.iter().map(|(id, session)| (SessionId(id), session))
    }

    pub(crate) fn each_mut(&mut self, change: impl FnMut(&mut Session)) {
        self.slab.iter_mut().for_each(change);
    }

    pub(crate) fn find(&self, client_id: &str) -> Option<SessionId> {
        let hash = self.hasher.hash_one(client_id);
        let same = |&id: &u32| &*self.slab[id].client_id == client_id;
        self.by_id.find(hash, same).map(|&id| SessionId(id))
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.slab.len() as u64 * cost::SESSION + self.texts
    }

    #[inline]
    pub(crate) fn is_pressure_elevated(&self) -> bool {
        self.messages.memory_bytes() >= self.elevated_at
    }

    /// Whether `bytes` more would elevate the memory pressure.
    pub(crate) fn would_elevate_pressure(&self, bytes: u64) -> bool {
        self.messages.memory_bytes() + bytes >= self.elevated_at
    }

    #[inline]
    pub(crate) fn is_pressure_high(&self) -> bool {
        self.messages.memory_bytes() >= self.high_at
    }

    #[inline]
    pub(crate) fn is_pressure_critical(&self) -> bool {
        self.messages.memory_bytes() >= self.critical_at
    }

    /// Replaces the will and counts the bytes. Returns the previous will.
    pub(crate) fn set_will(
        &mut self,
        id: SessionId,
        will: Option<Box<SessionWill>>,
    ) -> Option<Box<SessionWill>> {
        let session = &mut self.slab[id.0];
        if will.is_none() && session.extras.is_none() {
            return None;
        }
        self.texts += will.as_ref().map_or(0, |will| will.bytes());
        let before = std::mem::replace(&mut session.extras().will, will);
        self.texts -= before.as_ref().map_or(0, |will| will.bytes());
        before
    }

    /// Replaces the permissions of the client and counts the bytes. Withheld denials of the
    /// previous permissions go to [`SessionTable::late_notes`].
    pub(crate) fn set_permissions(
        &mut self,
        id: SessionId,
        rights: Option<Box<ClientPermissions>>,
    ) {
        let after = rights.as_ref().map_or(0, |rights| rights.bytes());
        let mut before = std::mem::replace(&mut self.slab[id.0].permissions, rights);
        if let Some(before) = &mut before {
            let denials = before.withheld_denials(&self.slab[id.0].client_id, self.context.now);
            self.late_notes.extend(denials);
        }
        self.count_permissions(before.map_or(0, |rights| rights.bytes()), after);
    }

    #[inline]
    pub(crate) fn count_permissions(&mut self, before: u64, after: u64) {
        self.texts = self.texts + after - before;
    }

    /// Replaces the topic aliases towards the client and counts the bytes.
    pub(crate) fn set_aliases(&mut self, id: SessionId, aliases: Option<Box<OutboundAliases>>) {
        let before = std::mem::replace(&mut self.slab[id.0].aliases, aliases);
        let less = before.map_or(0, |aliases| aliases.counted());
        self.texts = self.texts.saturating_add_signed(-less);
        self.count_aliases(id);
    }

    /// Counts the growth of the topic aliases towards a client, after each change.
    pub(crate) fn count_aliases(&mut self, id: SessionId) {
        if let Some(aliases) = &mut self.slab[id.0].aliases {
            self.texts = self.texts.saturating_add_signed(aliases.growth());
        }
    }

    pub(crate) fn create(&mut self, client_id: &str, version: ProtocolVersion) -> SessionId {
        let id = self.insert(client_id, version);
        let (hasher, slab) = (&self.hasher, &self.slab);
        let hash = hasher.hash_one(client_id);
        self.by_id.insert_unique(hash, id, |&id| hasher.hash_one(&*slab[id].client_id));
        SessionId(id)
    }

    pub(crate) fn insert(&mut self, client_id: &str, version: ProtocolVersion) -> u32 {
        self.texts += client_id.len() as u64;
        self.generation = self.generation.wrapping_add(1);
        self.slab.insert(Session {
            conn: NONE,
            write: NONE,
            version,
            gate: SendGate::default(),
            unfinished: false,
            is_member: false,
            is_data_stream: false,
            problem_information: true,
            asked_to_stay: false,
            window: u16::MAX,
            packet_bytes_max: u32::MAX,
            listener: ListenerId::NONE,
            prefix_len: crate::message::namespace::prefix_len_of(client_id),
            flight: None,
            aliases: None,
            client_id: client_id.into(),
            subscriptions: SmallVec::new(),
            extras: None,
            permissions: None,
            persistent: None,
            expiry_s: 0,
            generation: self.generation,
            first_id: 0,
        })
    }

    /// Removes a session after the subscriptions are gone. Messages of shared groups that were not
    /// delivered go back to the group [MQTT-4.8.2-5].
    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let hash = self.hasher.hash_one(&*self.slab[id.0].client_id);
        if let Ok(entry) = self.by_id.find_entry(hash, |&other| other == id.0) {
            entry.remove();
        }
        if self.by_id.is_empty() {
            self.by_id = HashTable::new();
        }
        self.set_aliases(id, None);
        self.set_will(id, None);
        self.set_permissions(id, None);
        let mut session = self.slab.remove(id.0)?;
        self.data_streams -= u64::from(session.is_data_stream);
        let drops = session.extras.as_mut().and_then(|extras| extras.withheld_drops.take());
        self.late_notes.extend(drops.iter().flat_map(|drops| drops.events(&session.client_id)));
        self.texts -= session.client_id.len() as u64;
        if let Some(flight) = session.flight.take() {
            let persistent = session.persistent.as_deref();
            for slot in flight.unfinished() {
                self.abandon_slot(persistent, slot, slot.may_move(true));
            }
            for slot in flight.waiting {
                self.abandon_slot(persistent, slot, slot.may_move(false));
            }
        }
        for share in session.extras.iter_mut().flat_map(|extras| extras.shares.drain(..)) {
            self.release_group(share.name);
        }
        Some(session)
    }

    /// Releases a slot of a session that ends or goes offline. With `again`, a group message
    /// becomes an orphan for another member; the store keeps the record until then.
    pub(crate) fn abandon_slot(
        &mut self,
        persistent: Option<&PersistentSession>,
        slot: FlightSlot,
        again: bool,
    ) {
        let origin = self.record_id_of(persistent, &slot);
        if slot.group != NONE && again && !slot.marks.has(SlotMarks::RELEASED) {
            let group = self.group_name(slot.group);
            self.messages.move_body(slot.message);
            self.orphans.push((group, self.messages.message(slot.message), origin));
        } else if let Some(place) = origin {
            self.write_batch.remove_queue_record(place);
        }
        self.release_slot(slot);
    }

    /// Releases the message, the identifiers and the group name of a slot.
    #[inline]
    pub(crate) fn release_slot(&mut self, slot: FlightSlot) {
        if slot.group != NONE {
            self.release_group(slot.group);
        }
        self.release_ids(slot.ids);
        if !slot.marks.has(SlotMarks::RELEASED) {
            self.messages.release(slot.message);
        }
    }

    pub(crate) fn session_ref(&self, id: SessionId) -> SessionRef {
        let generation = self.get(id).generation;
        SessionRef { shard: self.context.id, session: id, generation }
    }

    pub(crate) fn publisher_hash(&self, id: SessionId) -> u32 {
        self.context.client_hash(&self.get(id).client_id) as u32
    }

    pub(crate) fn has_exclusive(&self, id: SessionId, known: &str) -> bool {
        let extras = self.get(id).extras.as_ref();
        extras.is_some_and(|extras| extras.exclusives.iter().any(|own| **own == *known))
    }

    /// Creates the session of a data stream with the settings and permissions of the session `of`.
    /// A lookup by client id still finds `of`.
    pub(crate) fn create_data_stream(&mut self, of: SessionId) -> SessionId {
        let from = self.get(of);
        let (client_id, version) = (from.client_id.clone(), from.version);
        let (window, packet_bytes_max) = (from.window, from.packet_bytes_max);
        let (problem_information, listener) = (from.problem_information, from.listener);
        let rights = from.permissions.as_ref().map(|rights| Box::new(rights.for_data_stream()));
        let id = SessionId(self.insert(&client_id, version));
        let branch = self.get_mut(id);
        branch.is_data_stream = true;
        (branch.window, branch.packet_bytes_max) = (window, packet_bytes_max);
        branch.problem_information = problem_information;
        branch.listener = listener;
        self.data_streams += 1;
        self.set_permissions(id, rights);
        id
    }
}

impl SessionTable {
    /// Whether the will of a persistent session has a delay, which goes on while the process is
    /// down.
    pub(crate) fn has_delayed_will(&self, id: SessionId) -> bool {
        let session = self.get(id);
        let will = session.extras.as_ref().and_then(|extras| extras.will.as_ref());
        session.persistent.is_some() && will.is_some_and(|will| will.delay_s > 0)
    }
}
