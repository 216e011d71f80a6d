//! Shared subscriptions. One shard owns a group: the owner knows all members, on any shard, and
//! chooses a single member for each message. Members' shards report room to the owner; while no
//! member has room, messages wait in the group's own queue.

mod persistent_groups;
mod queue;
mod stored_tail;

use crate::counters::DropReason;
use crate::durability::write_batch::PositionAllocator;
use crate::ids::{FilterId, QueueRecordId, RecordNumber, SessionRef};
use crate::interface::input::{DispatchTarget, GroupJoin, ShardMessage};
use crate::interface::outbox::Outbox;
use crate::limits::{NONE, SHARE_GRANT_MAX};
use crate::memory::cost;
use crate::message::namespace::parse_known_share;
use crate::message::{IncomingPublish, Message};
use crate::options::{BrokerOptions, SharedStrategy};
use crate::routing::ShardRouting;
use crate::routing::publish::needs_durable_ack;
use crate::session::session_table::SessionTable;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::SubscribeOptions;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use self::stored_tail::{GroupDrops, StoredTail};
use crate::slab::Slab;

/// The shared groups which this shard owns.
#[derive(Debug)]
pub(crate) struct SharedGroups {
    groups: Slab<SharedGroup>,
    by_name: HashMap<Arc<str>, u32, FixedState>,
    /// Whether any group exists. Most publishes need no more than this flag.
    pub(in crate::routing) any: bool,
    pub(crate) members: u64,
    /// Bytes of the messages in all groups' queues, with `cost::SLOT` each.
    queue_bytes: u64,
    /// Bytes of the groups' names, counted since a group name may take nearly 64 KiB.
    name_bytes: u64,
}

/// A shared group: the subscriptions of several sessions to `$share/GROUP/FILTER`.
#[derive(Debug)]
struct SharedGroup {
    /// The whole filter with `$share/GROUP/`.
    name: Arc<str>,
    filter: FilterId,
    /// Index among the groups of the filter.
    place: u32,
    members: Vec<GroupMember>,
    strategy: SharedStrategy,
    /// Index of the last chosen member, for `RoundRobin` and `Sticky`.
    turn: usize,
    queue: VecDeque<QueuedMessage>,
    queue_bytes: u64,
    /// The group's queue in the store, once a member's session outlives the process.
    stored_queue: Option<(RecordNumber, PositionAllocator)>,
    /// The part of the queue which is only in the store.
    tail: StoredTail,
    drops: GroupDrops,
}

/// A message in a group's queue, with its position if the message is stored.
#[derive(Clone, Debug)]
struct QueuedMessage {
    message: Message,
    position: Option<u64>,
}

/// A member of a group, on any shard.
#[derive(Debug)]
struct GroupMember {
    member: SessionRef,
    client_hash: u64,
    options: SubscribeOptions,
    id: u32,
    online: bool,
    /// Number of messages that may be dispatched to the member: for members on other shards the
    /// grant of `ShardMessage::MemberRoom`, less the dispatched messages.
    room: u32,
}

impl SharedGroups {
    pub(crate) fn new(seed: u64) -> SharedGroups {
        let by_name = HashMap::with_hasher(FixedState::with_seed(seed));
        SharedGroups {
            groups: Slab::default(),
            by_name,
            any: false,
            members: 0,
            queue_bytes: 0,
            name_bytes: 0,
        }
    }
}

impl SharedGroups {
    pub(crate) fn is_persistent(&self, at: u32) -> bool {
        self.groups[at].stored_queue.is_some()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.members * cost::MEMBER + self.queue_bytes + self.name_bytes
    }
}

impl BrokerOptions {
    /// Returns the strategy of a group, given by its whole filter with `$share/`.
    fn strategy_of(&self, name: &str) -> SharedStrategy {
        let share = parse_known_share(name);
        let group = share.map_or("", |share| share.group);
        let special = self.shared_strategies.iter().find(|(known, _)| known == group);
        special.map_or(self.shared_strategy, |(_, strategy)| *strategy)
    }
}

impl SharedGroup {
    /// Returns the store's key of a queued message, or `None` if the message or the group is not
    /// stored.
    fn record_id_at(&self, position: Option<u64>) -> Option<QueueRecordId> {
        let (number, _) = self.stored_queue?;
        position.map(|position| QueueRecordId { number, position })
    }

    /// Chooses the member for a message among the connected members with room.
    fn choose_member(&mut self, hash: u64, draw: u64) -> Option<usize> {
        let len = self.members.len();
        let has_room = |at: &usize| self.members[*at].online && self.members[*at].room > 0;
        let at = match self.strategy {
            SharedStrategy::RoundRobin => {
                (1..=len).map(|step| (self.turn + step) % len).find(has_room)
            }
            SharedStrategy::Sticky => (0..len).map(|step| (self.turn + step) % len).find(has_room),
            SharedStrategy::Random => {
                let start = draw as usize % len.max(1);
                (0..len).map(|step| (start + step) % len).find(has_room)
            }
            // Rendezvous hashing: if a member joins or leaves, only its own messages move.
            SharedStrategy::HashClient | SharedStrategy::HashTopic => {
                let score = |at: &usize| mix_hash(self.members[*at].client_hash ^ hash);
                (0..len).filter(has_room).max_by_key(score)
            }
        }?;
        self.turn = at;
        Some(at)
    }
}

fn mix_hash(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

impl ShardRouting {
    /// Adds a member to a group that this shard owns, or changes the member's options.
    pub(crate) fn join_group(
        &mut self,
        name: &Arc<str>,
        member: SessionRef,
        client_id: &str,
        join: GroupJoin,
        sessions: &mut SessionTable,
    ) {
        let GroupJoin { options, id, lasts } = join;
        let at = match self.groups.by_name.get(name) {
            Some(&at) => at,
            None => self.create_group(name, sessions),
        };
        if lasts {
            self.make_group_persistent(at, sessions);
        }
        let client_hash = self.groups.by_name.hasher().hash_one(client_id);
        let group = &mut self.groups.groups[at];
        if let Some(known) = group.members.iter_mut().find(|known| known.member == member) {
            (known.options, known.id) = (options, id);
            return;
        }
        let joined = GroupMember { member, client_hash, options, id, online: true, room: 0 };
        group.members.push(joined);
        self.groups.members += 1;
    }

    fn create_group(&mut self, name: &Arc<str>, sessions: &SessionTable) -> u32 {
        let share = parse_known_share(name);
        let text = share.map_or("", |share| share.filter);
        let strategy = sessions.context.options.strategy_of(name);
        let (filter, unknown) = self.topics.find_or_insert(text);
        if unknown {
            self.add_interest(text, sessions);
        }
        let at = self.groups.groups.insert(SharedGroup {
            name: name.clone(),
            filter,
            place: 0,
            members: Vec::new(),
            strategy,
            turn: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            stored_queue: None,
            tail: StoredTail::default(),
            drops: GroupDrops::default(),
        });
        self.groups.by_name.insert(name.clone(), at);
        self.groups.any = true;
        self.interest.set_grouped(sessions.context.id.0, true);
        self.groups.name_bytes += name.len() as u64;
        self.groups.groups[at].place = self.topics.filter_mut(filter).add_group(at);
        at
    }

    /// Applies the strategies of new options to all groups.
    pub(crate) fn choose_strategies(&mut self, sessions: &SessionTable) {
        for &at in self.groups.by_name.values() {
            let group = &mut self.groups.groups[at];
            group.strategy = sessions.context.options.strategy_of(&group.name);
        }
    }

    /// Removes a member of a shared group. With its last member the group is removed: messages in
    /// its queue are dropped, counted as [`DropReason::Offline`], and deleted from the store.
    pub(crate) fn leave_group(
        &mut self,
        name: &str,
        member: SessionRef,
        sessions: &mut SessionTable,
    ) {
        let Some(&at) = self.groups.by_name.get(name) else { return };
        let group = &mut self.groups.groups[at];
        let before = group.members.len();
        group.members.retain(|joined| joined.member != member);
        self.groups.members -= (before - group.members.len()) as u64;
        if !group.members.is_empty() {
            group.turn %= group.members.len();
            return;
        }
        let (filter, place, lasting) = (group.filter, group.place, group.stored_queue);
        let waiting = group.queue.len() as u64;
        let dropped = waiting + group.tail.messages;
        self.groups.queue_bytes -= group.queue_bytes + waiting * cost::SLOT;
        sessions.counters.drops[DropReason::Offline as usize] += dropped;
        self.groups.by_name.remove(name);
        self.groups.name_bytes -= name.len() as u64;
        self.groups.groups.remove(at);
        if let Some((number, _)) = lasting {
            self.forget_group(name, number, sessions);
        }
        self.groups.any = !self.groups.by_name.is_empty();
        self.interest.set_grouped(sessions.context.id.0, self.groups.any);
        if let Some(moved) = self.topics.filter_mut(filter).remove_group(place) {
            self.groups.groups[moved].place = place;
        }
        let text = self.topics.filter(filter).text.clone();
        if self.topics.remove_if_unused(filter) {
            self.remove_interest(&text, sessions);
        }
    }

    /// Adds `more` messages to a member's room. A disconnected member has no room.
    pub(crate) fn set_room(
        &mut self,
        name: &str,
        member: SessionRef,
        online: bool,
        more: u32,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(&at) = self.groups.by_name.get(name) else { return };
        let group = &mut self.groups.groups[at];
        let joined = group.members.iter_mut().find(|joined| joined.member == member);
        if let Some(joined) = joined {
            // A member which reconnects retries a failed read of the stored tail.
            group.tail.is_unreadable &= joined.online || !online;
            joined.online = online;
            joined.room = if online { joined.room + more } else { 0 };
        }
        self.drain_group_queue(at, sessions, out);
    }

    /// Reports changed room of this shard's members to the owners of their groups.
    pub(crate) fn report_rooms(&mut self, sessions: &mut SessionTable, out: &mut Outbox) {
        for id in std::mem::take(&mut sessions.room_changes) {
            if !sessions.contains(id) {
                continue;
            }
            let member = sessions.session_ref(id);
            let session = sessions.get_mut(id);
            let (online, room) = (session.conn != NONE, session.free_window().min(SHARE_GRANT_MAX));
            let Some(extras) = &mut session.extras else { continue };
            let mut reports = Vec::new();
            for share in &mut extras.shares {
                let more = share.update_grant(online, room);
                reports.push((share.group.clone(), share.owner, more));
            }
            for (group, owner, more) in reports {
                if owner == sessions.context.id {
                    // For members on its own shard the owner reads the session's room in
                    // `refresh_rooms`.
                    self.set_room(&group, member, online, 0, sessions, out);
                } else if let Some(more) = more {
                    let report = ShardMessage::MemberRoom { group, member, online, more };
                    out.lanes[usize::from(owner.0)].push_back(report);
                }
            }
        }
    }

    /// Returns messages whose member ended before delivery to their groups.
    pub(crate) fn return_orphans(&mut self, sessions: &mut SessionTable, out: &mut Outbox) {
        for (group, message, origin) in std::mem::take(&mut sessions.orphans) {
            if sessions.context.owner_of(&group) == sessions.context.id {
                self.dispatch_to_group(&group, &message, origin, sessions, out);
            } else {
                sessions.return_to_group(group, message, origin, out);
            }
        }
    }

    /// Dispatches the message once to every group of the matching filters.
    pub(crate) fn dispatch_to_groups(
        &mut self,
        filters: &[FilterId],
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        for &filter in filters {
            for place in 0..self.topics.filter(filter).groups().len() {
                let at = self.topics.filter(filter).groups()[place];
                self.dispatch_or_queue(at, draft, None, sessions, out);
            }
        }
    }

    /// Dispatches a restored message, which the last process had in transit, to the groups whose
    /// owner was the receiving shard, as `was_there` decides.
    pub(crate) fn redispatch_to_groups(
        &mut self,
        filters: &[FilterId],
        was_there: impl Fn(&str) -> bool,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        for &filter in filters {
            for at in self.topics.filter(filter).groups().to_vec() {
                if was_there(&self.groups.groups[at].name) {
                    self.dispatch_or_queue(at, draft, None, sessions, out);
                }
            }
        }
    }

    /// Dispatches a message which a member could not receive to another member, unless it has
    /// expired [MQTT-3.3.2-5].
    pub(crate) fn dispatch_to_group(
        &mut self,
        name: &str,
        message: &Message,
        origin: Option<QueueRecordId>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(&at) = self.groups.by_name.get(name) else {
            return sessions.remove_moved_record(origin);
        };
        if message.is_expired(sessions.context.now) {
            sessions.counters.drops[DropReason::Expired as usize] += 1;
            return sessions.remove_moved_record(origin);
        }
        self.dispatch_or_queue(at, &mut message.draft(), origin, sessions, out);
    }

    fn dispatch_or_queue(
        &mut self,
        at: u32,
        draft: &mut IncomingPublish<'_>,
        origin: Option<QueueRecordId>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        self.drain_group_queue(at, sessions, out);
        if self.groups.groups[at].is_empty()
            && self.give_to_member(at, draft, origin, sessions, out)
        {
            return;
        }
        self.queue_for_group(at, draft, sessions, out);
        sessions.remove_moved_record(origin);
    }

    /// Updates the room of members on this shard from their sessions.
    pub(crate) fn refresh_rooms(&mut self, at: u32, sessions: &SessionTable) {
        for joined in &mut self.groups.groups[at].members {
            if joined.member.shard == sessions.context.id {
                let session = sessions.get(joined.member.session);
                (joined.online, joined.room) = (session.conn != NONE, session.free_window());
            }
        }
    }

    /// Gives the message to a member with room. Returns `false` if there is none.
    pub(crate) fn give_to_member(
        &mut self,
        at: u32,
        draft: &mut IncomingPublish<'_>,
        origin: Option<QueueRecordId>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let draw = sessions.context.next_random();
        let group = &mut self.groups.groups[at];
        let hash = match group.strategy {
            SharedStrategy::HashTopic => self.groups.by_name.hasher().hash_one(draft.topic),
            _ => u64::from(draft.publisher),
        };
        let Some(chosen) = group.choose_member(hash, draw) else { return false };
        let joined = &mut group.members[chosen];
        joined.room -= 1;
        let (member, options, id) = (joined.member, joined.options, joined.id);
        if member.shard != sessions.context.id {
            let (group, message) = (group.name.clone(), draft.message().clone());
            sessions.ledger.crossing += message.bytes() as i64;
            let origin = self.store_in_group(at, &message, draft.exactly_once, origin, sessions);
            let asks = origin.is_none()
                && needs_durable_ack(draft)
                && self.interest.has_persistent(member.shard.0);
            let ticket = if asks { sessions.next_commit_token(member.shard) } else { 0 };
            out.lanes[usize::from(member.shard.0)].push_back(ShardMessage::DispatchToMember {
                group,
                target: DispatchTarget { member, options, id },
                message,
                origin,
                ticket,
            });
            return true;
        }
        let name = group.name.clone();
        sessions.deliver_as_member(&name, DispatchTarget { member, options, id }, draft, out);
        sessions.remove_moved_record(origin);
        true
    }

    /// Stores a message in the group's queue while it is in transit to a member of another shard,
    /// and returns the id of its record. A message which a member returned is stored too, since a
    /// removed session's queue is not searched. If the message is not stored again, returns
    /// `origin`, the record that it had before.
    fn store_in_group(
        &mut self,
        at: u32,
        message: &Message,
        once: bool,
        origin: Option<QueueRecordId>,
        sessions: &mut SessionTable,
    ) -> Option<QueueRecordId> {
        let own = self.groups.groups[at].stored_queue.map(|(number, _)| number);
        let moves = origin.is_some_and(|before| Some(before.number) != own);
        // A message behind the front would be read from the tail and dispatched again.
        let has_tail = self.groups.groups[at].tail.stored_from.is_some();
        if has_tail || !moves && (origin.is_some() || !once) {
            return origin;
        }
        let Some(position) = self.write_group_message(at, message, sessions) else { return origin };
        sessions.remove_moved_record(origin);
        self.groups.groups[at].record_id_at(Some(position))
    }
}
