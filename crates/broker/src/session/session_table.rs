//! What MQTT keeps of a client when the socket goes, and the table of all sessions of a shard.
//! What most sessions never have is boxed.

use crate::authorization::client_permissions::ClientPermissions;
use crate::connection::alias::OutboundAliases;
use crate::connection::peer::ListenerId;
use crate::connection::rate_meter::RateMeter;
use crate::connection::send_gate::SendGate;
use crate::durability::persistent_session::{PersistentSession, QueueRecordId};
use crate::durability::write_batch::WriteBatch;
use crate::input::{ConnId, MonotonicMs, SessionId, ShardId};
use crate::limits::NONE;
use crate::memory::cost;
use crate::routing::message::MessagePool;
use crate::rules::events::EventQueue;
use crate::session::flight::{Flight, FlightSlot, SlotMarks};
use crate::session::retained_feed::RetainedCursors;
use crate::session::subscriptions::Subscription;
use crate::session::will::SessionWill;
use crate::slab::Slab;
use crate::statistics::broker_event::{BrokerEvent, WithheldDrops};
use crate::statistics::sys::{DROPS, ShardCounters};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use mqtt::{ProtocolVersion, SubscribeOptions};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::mem::offset_of;
use std::sync::Arc;

/// State of a session. Fields that a delivery or a publish touches stand first, within a cache
/// line.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Session {
    /// The connection, or `NONE` while the client is away.
    pub(crate) conn: u32,
    /// Its place among the writes of this tick: see `Outbox::write`.
    pub(crate) write: u32,
    pub(crate) packet_bytes_max: u32,
    /// The client's Receive Maximum or ours, whichever is lower.
    pub(crate) window: u16,
    pub(crate) version: ProtocolVersion,
    pub(crate) gate: SendGate,
    /// Listener of the last connection: its limits apply to the queue while the client is away.
    pub(crate) listener: ListenerId,
    /// Bytes by which names are longer than the client's own, because of its namespace: see
    /// `namespace`.
    pub(crate) prefix_len: u8,
    /// Waits in `Shard::unfinished` for a tick with room.
    pub(crate) unfinished: bool,
    /// Member of a shared group: its room is reported.
    pub(crate) is_member: bool,
    /// Another stream of a connection, which has its own: see `data_stream`.
    pub(crate) is_data_stream: bool,
    /// Request Problem Information [MQTT-3.1.2-29].
    pub(crate) problem_information: bool,
    /// CONNECT's Session Expiry Interval was not 0: only then may DISCONNECT name another than 0,
    /// whatever was granted.
    pub(crate) asked_to_stay: bool,
    pub(crate) flight: Option<Box<Flight>>,
    pub(crate) aliases: Option<Box<OutboundAliases>>,
    /// State in the store, if the session is to outlive the process.
    pub(crate) persistent: Option<Box<PersistentSession>>,
    /// Identity and permissions of the client, where they are checked.
    pub(crate) permissions: Option<Box<ClientPermissions>>,
    pub(crate) extras: Option<Box<SessionExtras>>,
    /// Client id with its namespace: see `namespace`.
    pub(crate) client_id: Box<str>,
    pub(crate) subscriptions: SmallVec<[Subscription; 2]>,
    pub(crate) expiry_s: u32,
    pub(crate) generation: u32,
    /// Next packet id while there is no flight.
    pub(crate) first_id: u16,
}

const _: () = assert!(offset_of!(Session, permissions) <= 48);
// Each client has one: what few clients need belongs into a box.
const _: () = assert!(size_of::<Option<Session>>() <= 120);

#[derive(Debug, Default)]
pub(crate) struct SessionExtras {
    pub(crate) will: Option<Box<SessionWill>>,
    /// When the will of a client that is away is due.
    pub(crate) will_at: Option<MonotonicMs>,
    /// When the session of a client that is away ends.
    pub(crate) ends_at: Option<MonotonicMs>,
    /// When what waits is looked at, where its age is limited.
    pub(crate) ages_at: Option<MonotonicMs>,
    pub(crate) shares: Vec<GroupMembership>,
    /// Filters that it alone has.
    pub(crate) exclusives: Vec<Arc<str>>,
    /// Retained messages still to be sent.
    pub(crate) cursors: RetainedCursors,
    /// Meter of messages to the client, where there is a limit.
    pub(crate) meter: Option<Box<RateMeter>>,
    pub(crate) drops: [u64; DROPS],
    /// Within a second after one was told of.
    pub(crate) withheld_drops: Option<Box<WithheldDrops>>,
    /// Subscriptions by filter, once there are too many to look through.
    pub(crate) by_filter: HashMap<u32, u32, FixedState>,
}

impl SessionExtras {
    fn is_empty(&self) -> bool {
        self.will.is_none()
            && self.will_at.is_none()
            && self.ends_at.is_none()
            && self.ages_at.is_none()
            && self.shares.is_empty()
            && self.exclusives.is_empty()
            && self.cursors.is_empty()
            && self.meter.is_none()
            && self.by_filter.is_empty()
            && self.withheld_drops.is_none()
            && self.drops == [0; DROPS]
    }
}

/// Membership of a shared group, as the member's shard knows it.
#[derive(Clone, Debug)]
pub(crate) struct GroupMembership {
    pub(crate) group: Arc<str>,
    /// The group's name among `SessionTable::group_names`.
    pub(crate) name: u32,
    /// The shard that has the group.
    pub(crate) owner: ShardId,
    pub(crate) options: SubscribeOptions,
    pub(crate) id: u32,
    /// State that was last reported to an owner on another shard: whether the member is connected,
    /// ...
    pub(crate) online: bool,
    /// ... and how many messages it may still be given.
    pub(crate) granted: u32,
}

impl Session {
    pub(crate) fn conn(&self) -> Option<ConnId> {
        (self.conn != NONE).then_some(ConnId(self.conn))
    }

    /// Whether it wants Reason Strings beside the codes of its acknowledgements
    /// [MQTT-3.1.2-29].
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

    /// Gives the memory of what is rare back once there is none of it left.
    pub(crate) fn free_empty_extras(&mut self) {
        if self.extras.as_ref().is_some_and(|extras| extras.is_empty()) {
            self.extras = None;
        }
    }

    /// Gives the flight's memory back once nothing is under way.
    pub(crate) fn free_idle_flight(&mut self) {
        if let Some(flight) = &self.flight
            && flight.is_idle()
        {
            self.first_id = flight.first_id();
            self.flight = None;
        }
    }

    /// Returns how many QoS 1 messages can be sent at once.
    pub(crate) fn free_window(&self) -> u32 {
        if !self.has_room() {
            return 0;
        }
        // With a rate each may be the last for a while.
        if self.gate.has(SendGate::METERED) {
            return 1;
        }
        let unacknowledged = self.flight.as_ref().map_or(0, |flight| flight.unacknowledged);
        u32::from(self.window - unacknowledged)
    }

    /// Connected, and what comes now is not only put into the queue.
    pub(crate) fn can_send_now(&self) -> bool {
        let waits = self.flight.as_ref().is_some_and(|flight| !flight.waiting.is_empty());
        let is_queued = waits && self.gate.has(SendGate::METERED);
        self.conn != NONE && !self.gate.is_shut() && !is_queued
    }

    /// Connected, with room for one more QoS 1 message right now.
    pub(crate) fn has_room(&self) -> bool {
        self.conn != NONE
            && !self.gate.is_shut()
            && self
                .flight
                .as_ref()
                .is_none_or(|flight| flight.waiting.is_empty() && flight.has_room(self.window))
    }
}

/// Subscription Identifiers of one delivery: none, one, or the index of a list.
pub(crate) mod ids {
    pub(crate) const NONE: u32 = 0;
    /// Identifiers end at 268,435,455, so this bit is free.
    pub(crate) const LIST: u32 = 1 << 31;
}

/// Subscription identifiers of a delivery, unpacked. Only several of them need an allocation.
pub(crate) enum SubscriptionIdList {
    None,
    One([u32; 1]),
    Many(Box<[u32]>),
}

impl SubscriptionIdList {
    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            SubscriptionIdList::None => &[],
            SubscriptionIdList::One(one) => one,
            SubscriptionIdList::Many(many) => many,
        }
    }
}

/// The name of a shared group that slots refer to.
#[derive(Debug)]
struct GroupName {
    name: Arc<str>,
    refs: u32,
}

#[derive(Debug)]
pub(crate) struct SessionTable {
    slab: Slab<Session>,
    by_id: HashTable<u32>,
    hasher: FixedState,
    generation: u32,
    pub(crate) messages: MessagePool,
    id_lists: Slab<Box<[u32]>>,
    group_names: Slab<GroupName>,
    groups_by_name: HashMap<Arc<str>, u32, FixedState>,
    pub(crate) counters: ShardCounters,
    pub(crate) event_queue: EventQueue,
    pub(crate) options: Arc<crate::BrokerOptions>,
    pub(crate) now: MonotonicMs,
    /// Sessions with something to send that this tick had no room for.
    pub(crate) unfinished: Vec<SessionId>,
    /// Group messages of members that ended or went away, with where the store has them.
    pub(crate) orphans: Vec<(Arc<str>, crate::Message, Option<QueueRecordId>)>,
    /// Records that this tick adds to the store.
    pub(crate) write_batch: WriteBatch,
    /// Sessions whose record is to be written.
    pub(crate) dirty: Vec<SessionId>,
    /// Sessions with QoS 2 messages below a position that wait for the disk.
    pub(crate) unsettled: Vec<(SessionId, u64)>,
    /// Sessions whose retained cursors may go on.
    pub(crate) cursors_ready: Vec<SessionId>,
    /// Sessions whose queues have an age to be looked at, and when.
    pub(crate) aging: Vec<(SessionId, MonotonicMs)>,
    /// Sessions that were sent what their rate allows, and until when they wait.
    pub(crate) rate_limited: Vec<(SessionId, MonotonicMs)>,
    /// Sessions whose queue overflowed under the policy `Disconnect`.
    pub(crate) overruns: Vec<SessionId>,
    /// Sessions of which something was told that may be withheld for a second.
    pub(crate) withholding: Vec<SessionId>,
    /// Events that report withheld events of sessions that ended.
    pub(crate) late_notes: Vec<BrokerEvent>,
    /// Members whose room may have changed in this tick.
    pub(crate) room_changes: Vec<SessionId>,
    pub(crate) online: u64,
    /// Sessions that are a stream beside another one's.
    pub(crate) data_streams: u64,
    /// Client ids, wills, rights and the aliases towards clients.
    texts: u64,
    /// From how many bytes of messages on the process' memory is crowded, tight, full.
    pub(crate) elevated_at: u64,
    pub(crate) high_at: u64,
    pub(crate) critical_at: u64,
}

impl SessionTable {
    pub(crate) fn new(
        seed: u64,
        options: Arc<crate::BrokerOptions>,
        now: MonotonicMs,
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
            options,
            now,
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

    pub(crate) fn is_current(&self, id: SessionId, generation: u32) -> bool {
        self.slab.get(id.0).is_some_and(|session| session.generation == generation)
    }

    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.slab.get(id.0).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Above every index of a session.
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

    /// Whether so many bytes more would make it so.
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

    /// Replaces the will. The one before, where there was one.
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

    /// Replaces what is known of the client.
    pub(crate) fn set_permissions(
        &mut self,
        id: SessionId,
        rights: Option<Box<ClientPermissions>>,
    ) {
        let after = rights.as_ref().map_or(0, |rights| rights.bytes());
        let mut before = std::mem::replace(&mut self.slab[id.0].permissions, rights);
        if let Some(before) = &mut before {
            let denials = before.withheld_denials(&self.slab[id.0].client_id, self.now);
            self.late_notes.extend(denials);
        }
        self.count_permissions(before.map_or(0, |rights| rights.bytes()), after);
    }

    #[inline]
    pub(crate) fn count_permissions(&mut self, before: u64, after: u64) {
        self.texts = self.texts + after - before;
    }

    /// Replaces the aliases towards the client.
    pub(crate) fn set_aliases(&mut self, id: SessionId, aliases: Option<Box<OutboundAliases>>) {
        let before = std::mem::replace(&mut self.slab[id.0].aliases, aliases);
        let less = before.map_or(0, |aliases| aliases.counted());
        self.texts = self.texts.saturating_add_signed(-less);
        self.count_aliases(id);
    }

    /// After the aliases towards a client have changed.
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
            prefix_len: crate::routing::namespace::prefix_len_of(client_id),
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

    /// Forgets a session whose subscriptions are gone. Messages that a shared group had given to
    /// it go back to the group [MQTT-4.8.2-5].
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

    /// A slot of a session that ends or goes away. A group's message goes back to it where `again`
    /// says so, and stays in the store until somebody else has it there.
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

    pub(crate) fn group_name(&self, at: u32) -> Arc<str> {
        self.group_names[at].name.clone()
    }

    /// Drops what a slot holds.
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

    pub(crate) fn keep_ids(&mut self, list: &[u32]) -> u32 {
        match list {
            [] => ids::NONE,
            [one] => *one,
            many => self.id_lists.insert(many.into()) | ids::LIST,
        }
    }

    #[inline]
    pub(crate) fn release_ids(&mut self, packed: u32) {
        if packed & ids::LIST != 0 {
            self.id_lists.remove(packed & !ids::LIST);
        }
    }

    pub(crate) fn ids_of(&self, packed: u32) -> SubscriptionIdList {
        if packed & ids::LIST != 0 {
            return SubscriptionIdList::Many(self.id_lists[packed & !ids::LIST].clone());
        }
        if packed == ids::NONE {
            SubscriptionIdList::None
        } else {
            SubscriptionIdList::One([packed])
        }
    }

    /// Adds a reference to a group's name.
    pub(crate) fn keep_group(&mut self, group: &Arc<str>) -> u32 {
        if let Some(&at) = self.groups_by_name.get(group) {
            self.group_names[at].refs += 1;
            return at;
        }
        let at = self.group_names.insert(GroupName { name: group.clone(), refs: 1 });
        self.groups_by_name.insert(group.clone(), at);
        at
    }

    pub(crate) fn release_group(&mut self, at: u32) {
        let group = &mut self.group_names[at];
        group.refs -= 1;
        if group.refs == 0
            && let Some(group) = self.group_names.remove(at)
        {
            self.groups_by_name.remove(&group.name);
        }
    }
}
