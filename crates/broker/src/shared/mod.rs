//! Shared subscriptions. One shard owns a group: it alone knows the members, wherever they are,
//! and chooses who gets a message, so that exactly one does. Members' shards tell it who has
//! room; while nobody has, messages wait in the group's own queue.

mod lasting;
mod queue;
mod tail;

use crate::deliver::Hit;
use crate::input::{Cross, Member, ShardId};
use crate::journal::{Number, Positions};
use crate::lasting::Origin;
use crate::limits::{NONE, SHARE_GRANT_MAX};
use crate::memory::cost;
use crate::message::{Draft, Message};
use crate::mount::share_of;
use crate::options::{Options, Strategy};
use crate::outbox::Outbox;
use crate::publish::awaited;
use crate::session::{Share, ids};
use crate::shard::Shard;
use crate::sys::Drop;
use crate::topics::{FilterId, Packed};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::SubscribeOptions;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use self::tail::{GroupDrops, StoredTail};
use crate::slab::Slab;

#[derive(Debug)]
pub(crate) struct Groups {
    groups: Slab<Group>,
    by_name: HashMap<Arc<str>, u32, FixedState>,
    /// Whether there is any group at all: most publishes need to know no more.
    pub(crate) any: bool,
    pub(crate) members: u64,
    /// Of the messages that wait in all queues.
    queue_bytes: u64,
    /// A name may have 64 KiB, of which the filter is one byte.
    name_bytes: u64,
}

#[derive(Debug)]
struct Group {
    /// The whole filter, `$share/` and all.
    name: Arc<str>,
    filter: FilterId,
    /// Its place among the groups of the filter.
    place: u32,
    members: Vec<Joined>,
    strategy: Strategy,
    /// The member whose turn it is, or that is stuck to.
    turn: usize,
    queue: VecDeque<Waiting>,
    queue_bytes: u64,
    /// Where the store has its queue, once a member is to outlive the process.
    lasting: Option<(Number, Positions)>,
    /// The part of the queue that only the store has.
    tail: StoredTail,
    drops: GroupDrops,
}

/// A message in a group's queue, with its position where the store has it.
#[derive(Clone, Debug)]
struct Waiting {
    message: Message,
    position: Option<u64>,
}

/// What the owner of a group says with a message to the member that it chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) member: Member,
    pub(crate) options: SubscribeOptions,
    pub(crate) id: u32,
}

#[derive(Debug)]
struct Joined {
    member: Member,
    client_hash: u64,
    options: SubscribeOptions,
    id: u32,
    online: bool,
    /// How many messages it may be given.
    room: u32,
}

impl Groups {
    pub(crate) fn new(seed: u64) -> Groups {
        let by_name = HashMap::with_hasher(FixedState::with_seed(seed));
        Groups {
            groups: Slab::default(),
            by_name,
            any: false,
            members: 0,
            queue_bytes: 0,
            name_bytes: 0,
        }
    }
}

impl Groups {
    pub(crate) fn lasts(&self, at: u32) -> bool {
        self.groups[at].lasting.is_some()
    }

    pub(crate) fn held(&self) -> u64 {
        self.members * cost::MEMBER + self.queue_bytes + self.name_bytes
    }
}

impl Options {
    /// How the group of a filter, `$share/` and all, chooses.
    fn strategy_of(&self, name: &str) -> Strategy {
        let share = share_of(name);
        let group = share.map_or("", |share| share.group);
        let special = self.shared_strategies.iter().find(|(known, _)| known == group);
        special.map_or(self.shared_strategy, |(_, strategy)| *strategy)
    }
}

impl Share {
    /// What the owner is to be told: how many messages more, if anything is news. Whoever was
    /// granted enough is not granted more for every acknowledgement.
    fn grant(&mut self, online: bool, room: u32) -> Option<u32> {
        let came_or_went = self.online != online;
        self.online = online;
        if !online {
            self.granted = 0;
            return came_or_went.then_some(0);
        }
        let more = room.saturating_sub(self.granted);
        if !came_or_went && (more == 0 || self.granted > room / 2) {
            return None;
        }
        self.granted += more;
        Some(more)
    }
}

impl Group {
    /// Where the store has what waits at this position.
    fn origin(&self, position: Option<u64>) -> Option<Origin> {
        let (number, _) = self.lasting?;
        position.map(|position| Origin { number, position })
    }

    /// The member to get a message, among those with room.
    fn choose(&mut self, hash: u64, draw: u64) -> Option<usize> {
        let len = self.members.len();
        let has_room = |at: &usize| self.members[*at].online && self.members[*at].room > 0;
        let at = match self.strategy {
            Strategy::RoundRobin => (1..=len).map(|step| (self.turn + step) % len).find(has_room),
            Strategy::Sticky => (0..len).map(|step| (self.turn + step) % len).find(has_room),
            Strategy::Random => {
                let start = draw as usize % len.max(1);
                (0..len).map(|step| (start + step) % len).find(has_room)
            }
            // The highest of all members' scores: a member that comes or goes moves only its own.
            Strategy::HashClient | Strategy::HashTopic => {
                let score = |at: &usize| mix(self.members[*at].client_hash ^ hash);
                (0..len).filter(has_room).max_by_key(score)
            }
        }?;
        self.turn = at;
        Some(at)
    }
}

fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

impl Shard {
    /// A member joins a group that this shard owns, or changes its options.
    pub(crate) fn join(
        &mut self,
        name: &Arc<str>,
        member: Member,
        client_id: &str,
        options: SubscribeOptions,
        id: u32,
        lasts: bool,
    ) {
        let at = match self.groups.by_name.get(name) {
            Some(&at) => at,
            None => self.create_group(name),
        };
        if lasts {
            self.make_group_lasting(at);
        }
        let client_hash = self.groups.by_name.hasher().hash_one(client_id);
        let group = &mut self.groups.groups[at];
        if let Some(known) = group.members.iter_mut().find(|known| known.member == member) {
            (known.options, known.id) = (options, id);
            return;
        }
        let joined = Joined { member, client_hash, options, id, online: true, room: 0 };
        group.members.push(joined);
        self.groups.members += 1;
    }

    fn create_group(&mut self, name: &Arc<str>) -> u32 {
        let share = share_of(name);
        let text = share.map_or("", |share| share.filter);
        let strategy = self.options.strategy_of(name);
        let (filter, unknown) = self.topics.find_or_insert(text);
        if unknown {
            self.want(text);
        }
        let at = self.groups.groups.insert(Group {
            name: name.clone(),
            filter,
            place: 0,
            members: Vec::new(),
            strategy,
            turn: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            lasting: None,
            tail: StoredTail::default(),
            drops: GroupDrops::default(),
        });
        self.groups.by_name.insert(name.clone(), at);
        self.groups.any = true;
        self.interest.set_grouped(self.id.0, true);
        self.groups.name_bytes += name.len() as u64;
        self.groups.groups[at].place = self.topics.filter_mut(filter).add_group(at);
        at
    }

    /// The options may name other strategies than before.
    pub(crate) fn choose_strategies(&mut self) {
        for &at in self.groups.by_name.values() {
            let group = &mut self.groups.groups[at];
            group.strategy = self.options.strategy_of(&group.name);
        }
    }

    /// A member goes; with the last one the group and what waited in it.
    pub(crate) fn leave(&mut self, name: &str, member: Member) {
        let Some(&at) = self.groups.by_name.get(name) else { return };
        let group = &mut self.groups.groups[at];
        let before = group.members.len();
        group.members.retain(|joined| joined.member != member);
        self.groups.members -= (before - group.members.len()) as u64;
        if !group.members.is_empty() {
            group.turn %= group.members.len();
            return;
        }
        let (filter, place, lasting) = (group.filter, group.place, group.lasting);
        let waiting = group.queue.len() as u64;
        let dropped = waiting + group.tail.messages;
        self.groups.queue_bytes -= group.queue_bytes + waiting * cost::SLOT;
        self.sessions.counters.drops[Drop::Offline as usize] += dropped;
        self.groups.by_name.remove(name);
        self.groups.name_bytes -= name.len() as u64;
        self.groups.groups.remove(at);
        if let Some((number, _)) = lasting {
            self.forget_group(name, number);
        }
        self.groups.any = !self.groups.by_name.is_empty();
        self.interest.set_grouped(self.id.0, self.groups.any);
        if let Some(moved) = self.topics.filter_mut(filter).remove_group(place) {
            self.groups.groups[moved].place = place;
        }
        let text = self.topics.filter(filter).text.clone();
        if self.topics.remove_if_unused(filter) {
            self.want_no_more(&text);
        }
    }

    /// A member may be given so many messages more. One that went away may be given none.
    pub(crate) fn set_room(
        &mut self,
        name: &str,
        member: Member,
        online: bool,
        more: u32,
        out: &mut Outbox,
    ) {
        let Some(&at) = self.groups.by_name.get(name) else { return };
        let group = &mut self.groups.groups[at];
        let joined = group.members.iter_mut().find(|joined| joined.member == member);
        if let Some(joined) = joined {
            // Whoever comes back tries again what could not be read.
            group.tail.is_unreadable &= joined.online || !online;
            joined.online = online;
            joined.room = if online { joined.room + more } else { 0 };
        }
        self.flow_group(at, out);
    }

    /// Tells the owners of a member's groups what changed.
    pub(crate) fn report_rooms(&mut self, out: &mut Outbox) {
        for id in std::mem::take(&mut self.sessions.rooms) {
            if !self.sessions.contains(id) {
                continue;
            }
            let member = self.member(id);
            let session = self.sessions.get_mut(id);
            let (online, room) = (session.conn != NONE, session.room().min(SHARE_GRANT_MAX));
            let Some(rare) = &mut session.rare else { continue };
            let mut reports = Vec::new();
            for share in &mut rare.shares {
                let more = share.grant(online, room);
                reports.push((share.group.clone(), share.owner, more));
            }
            for (group, owner, more) in reports {
                if owner == self.id {
                    // Members of its own shard an owner asks.
                    self.set_room(&group, member, online, 0, out);
                } else if let Some(more) = more {
                    let report = Cross::Room { group, member, online, more };
                    out.lanes[usize::from(owner.0)].push_back(report);
                }
            }
        }
    }

    /// Messages whose member ended before it had them.
    pub(crate) fn return_orphans(&mut self, out: &mut Outbox) {
        for (group, message, origin) in std::mem::take(&mut self.sessions.orphans) {
            if self.home_of(&group) == self.id {
                self.dispatch(&group, &message, origin, out);
            } else {
                self.give_back(group, message, origin, out);
            }
        }
    }

    /// Every group of the filters that matched gets the message once.
    pub(crate) fn dispatch_all(
        &mut self,
        filters: &[FilterId],
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) {
        for &filter in filters {
            for place in 0..self.topics.filter(filter).groups().len() {
                let at = self.topics.filter(filter).groups()[place];
                self.dispatch_to(at, draft, None, out);
            }
        }
    }

    /// The same after a start, for groups that were at home on the shard that did not get to it.
    pub(crate) fn dispatch_again(
        &mut self,
        filters: &[FilterId],
        was_there: impl Fn(&str) -> bool,
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) {
        for &filter in filters {
            for at in self.topics.filter(filter).groups().to_vec() {
                if was_there(&self.groups.groups[at].name) {
                    self.dispatch_to(at, draft, None, out);
                }
            }
        }
    }

    /// A message that one member could not have: it goes to another, unless it expired meanwhile
    /// [MQTT-3.3.2-5].
    pub(crate) fn dispatch(
        &mut self,
        name: &str,
        message: &Message,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) {
        let Some(&at) = self.groups.by_name.get(name) else { return self.strike(origin) };
        if message.is_expired(self.now) {
            self.sessions.counters.drops[Drop::Expired as usize] += 1;
            return self.strike(origin);
        }
        self.dispatch_to(at, &mut message.draft(), origin, out);
    }

    fn dispatch_to(
        &mut self,
        at: u32,
        draft: &mut Draft<'_>,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) {
        self.flow_group(at, out);
        if self.groups.groups[at].is_empty() && self.give(at, draft, origin, out) {
            return;
        }
        self.queue_for_group(at, draft, out);
        self.strike(origin);
    }

    /// Whoever keeps a message that came from elsewhere has it now, in the same tick.
    pub(crate) fn strike(&mut self, origin: Option<Origin>) {
        if let Some(place) = origin {
            self.sessions.journal.strike(place);
        }
    }

    /// Members of this shard need no report: their sessions are here to be asked.
    fn refresh_rooms(&mut self, at: u32) {
        for joined in &mut self.groups.groups[at].members {
            if joined.member.shard == self.id {
                let session = self.sessions.get(joined.member.session);
                (joined.online, joined.room) = (session.conn != NONE, session.room());
            }
        }
    }

    /// Hands the message to a member with room, if there is one.
    fn give(
        &mut self,
        at: u32,
        draft: &mut Draft<'_>,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) -> bool {
        let draw = self.draw();
        let group = &mut self.groups.groups[at];
        let hash = match group.strategy {
            Strategy::HashTopic => self.groups.by_name.hasher().hash_one(draft.topic),
            _ => u64::from(draft.publisher),
        };
        let Some(chosen) = group.choose(hash, draw) else { return false };
        let joined = &mut group.members[chosen];
        joined.room -= 1;
        let (member, options, id) = (joined.member, joined.options, joined.id);
        if member.shard != self.id {
            let (group, message) = (group.name.clone(), draft.message().clone());
            self.ledger.crossing += message.bytes() as i64;
            let origin = self.stand_in_group(at, &message, draft.once, origin);
            let asks = origin.is_none() && awaited(draft) && self.interest.lasts(member.shard.0);
            let ticket = if asks { self.ask(member.shard) } else { 0 };
            out.lanes[usize::from(member.shard.0)].push_back(Cross::Dispatch {
                group,
                member,
                message,
                options,
                subscription_id: id,
                origin,
                ticket,
            });
            return true;
        }
        let name = group.name.clone();
        self.deliver_as_member(&name, Given { member, options, id }, draft, out);
        self.strike(origin);
        true
    }

    /// What is to come once stands in the group's queue while it is on its way to a member of
    /// another shard, and so does what a member had in its own: where a session's queue is gone
    /// nobody looks for it.
    fn stand_in_group(
        &mut self,
        at: u32,
        message: &Message,
        once: bool,
        origin: Option<Origin>,
    ) -> Option<Origin> {
        let own = self.groups.groups[at].lasting.map(|(number, _)| number);
        let moves = origin.is_some_and(|before| Some(before.number) != own);
        // Behind the front it would be read, and given to a member again.
        let has_tail = self.groups.groups[at].tail.unread.is_some();
        if has_tail || !moves && (origin.is_some() || !once) {
            return origin;
        }
        let Some(position) = self.write_waiting(at, message) else { return origin };
        self.strike(origin);
        self.groups.groups[at].origin(Some(position))
    }

    fn deliver_as_member(
        &mut self,
        group: &Arc<str>,
        given: Given,
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) {
        let Given { member: Member { session, .. }, options, id } = given;
        let group = self.sessions.keep_group(group);
        let hit = Hit {
            session,
            options: Packed::new(options), // [MQTT-4.8.2-3]
            // Beside a copy for a subscription of its own, which has another [MQTT-3.3.4-5].
            ids: if id == 0 { ids::NONE } else { id },
            group,
            from_retained: false,
            alone: true,
        };
        self.sessions.deliver_heeded(hit, draft, out);
        let member = self.sessions.get(session);
        if !member.has_room() {
            self.sessions.rooms.push(session);
        }
    }

    /// The owner on another shard chose a member here. It may have gone meanwhile, or its client
    /// has: then another member gets the message.
    pub(crate) fn dispatched(
        &mut self,
        owner: ShardId,
        group: &Arc<str>,
        given: Given,
        message: &Message,
        origin: Option<Origin>,
        out: &mut Outbox,
    ) {
        let member = given.member;
        let known = self.sessions.current(member.session, member.generation);
        if !known || self.sessions.get(member.session).conn == NONE {
            // It stands in the group's queue still, if it does in any.
            return self.return_to(owner, group.clone(), message.clone(), origin, out);
        }
        let mut draft = message.draft();
        self.deliver_as_member(group, given, &mut draft, out);
        self.strike(origin);
        let shares = self.sessions.get_mut(member.session).rare.iter_mut();
        let mut shares = shares.flat_map(|rare| &mut rare.shares);
        if let Some(share) = shares.find(|share| share.group == *group) {
            share.granted = share.granted.saturating_sub(1);
            self.sessions.rooms.push(member.session);
        }
    }
}
