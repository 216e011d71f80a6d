//! What waits in a group while no member has room: in memory, and where a member outlives its
//! connection, behind a front of that, in the store alone.

use super::{Group, Waiting};
use crate::flight::granted;
use crate::memory::cost;
use crate::message::{Draft, Message};
use crate::options::{Durability, QueuePolicy};
use crate::outbox::Outbox;
use crate::shard::Shard;
use crate::sys::Drop;
use crate::topics::Packed;
use mqtt::{QoS, SubscribeOptions};

/// A message that is to join a group's queue.
#[derive(Debug)]
struct Joining {
    message: Message,
    bytes: u64,
    is_stored: bool,
}

impl Group {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.unread.is_none()
    }

    /// Takes out the oldest that may make room: what the store has was acknowledged, and makes none
    /// for what only memory has.
    fn take_oldest(&mut self, for_stored: bool) -> Option<Waiting> {
        let may_go = |waiting: &Waiting| for_stored || waiting.position.is_none();
        let at = self.queue.iter().position(may_go)?;
        let oldest = self.queue.remove(at)?;
        self.queue_bytes -= oldest.message.bytes() as u64;
        Some(oldest)
    }
}

impl Shard {
    /// Nobody has room: the message waits in the group, within a session's bounds.
    pub(super) fn queue_for_group(&mut self, at: u32, draft: &mut Draft<'_>, out: &mut Outbox) {
        let group = &self.groups.groups[at];
        let best = group.members.iter().map(|joined| joined.options.qos).max();
        let packed =
            Packed::new(SubscribeOptions { qos: best.unwrap_or_default(), ..Default::default() });
        let qos = granted(draft.qos, packed);
        let anyone_online = group.members.iter().any(|joined| joined.online);
        if qos == QoS::AtMostOnce && !anyone_online && !self.options.queue_qos0 {
            return self.drop_of_group(at, Drop::Offline, out);
        }
        let is_stored = group.lasting.is_some()
            && qos != QoS::AtMostOnce
            && draft.durability != Durability::Memory;
        let message = draft.message().clone();
        let bytes = message.bytes() as u64;
        let joining = Joining { message, bytes, is_stored };
        let is_crowded = self.sessions.is_crowded();
        // What only the store has is not in the way of memory.
        let spools = is_stored && group.goes_on_in_store(is_crowded);
        if !self.make_room_in_group(at, &joining, is_crowded && !spools, out) {
            return;
        }
        let group = &mut self.groups.groups[at];
        if spools {
            group.spool(bytes);
        } else {
            group.queue_bytes += bytes;
            self.groups.queue_bytes += bytes + cost::SLOT;
        }
        // What members get at QoS 0 only is not stored, whatever its publisher said.
        let position = if is_stored { self.write_waiting(at, &joining.message) } else { None };
        if !spools {
            let waiting = Waiting { message: joining.message, position };
            self.groups.groups[at].queue.push_back(waiting);
        }
    }

    /// Says whether there is room, which the queue's policy may have made.
    fn make_room_in_group(
        &mut self,
        at: u32,
        joining: &Joining,
        is_crowded: bool,
        out: &mut Outbox,
    ) -> bool {
        let &Joining { bytes, is_stored, .. } = joining;
        let (messages_max, bytes_max) = self.options.queue_bounds(is_stored);
        let is_full = |group: &Group| {
            let (messages, sum) = group.waiting(is_stored);
            messages > 0 && (messages >= messages_max || sum + bytes > bytes_max)
        };
        let full = is_full(&self.groups.groups[at]);
        let drop = if full { Drop::QueueFull } else { Drop::OutOfMemory };
        if (full || is_crowded) && self.options.queue_policy != QueuePolicy::DropOldest {
            self.drop_of_group(at, drop, out);
            return false;
        }
        let mut room = 0;
        while is_full(&self.groups.groups[at]) || (is_crowded && room < bytes) {
            let Some(oldest) = self.groups.groups[at].take_oldest(is_stored) else { break };
            let bytes = oldest.message.bytes() as u64;
            room += bytes;
            self.groups.queue_bytes -= bytes + cost::SLOT;
            self.strike(self.groups.groups[at].origin(oldest.position));
            self.drop_of_group(at, drop, out);
        }
        // The next one that may have to go is in memory by then.
        self.read_group_on(at, full && is_stored, out);
        if is_full(&self.groups.groups[at]) || (is_crowded && room < bytes) {
            self.drop_of_group(at, drop, out);
            return false;
        }
        true
    }

    /// Counts one message that a group does not get, and says so at most once a second.
    fn drop_of_group(&mut self, at: u32, drop: Drop, out: &mut Outbox) {
        self.sessions.counters.drops[drop as usize] += 1;
        let group = &mut self.groups.groups[at];
        group.drops.count(drop);
        group.drops.tell(&group.name, self.now, out);
    }

    /// Gives out what waits, as long as somebody has room.
    pub(super) fn flow_group(&mut self, at: u32, out: &mut Outbox) {
        loop {
            self.refresh_rooms(at);
            let now = self.now;
            let group = &self.groups.groups[at];
            let Some(Waiting { message, position }) = group.queue.front().cloned() else { break };
            let origin = group.origin(position);
            let expired = message.is_expired(now);
            if !expired && !self.give(at, &mut message.draft(), origin, out) {
                break;
            }
            let bytes = message.bytes() as u64;
            self.groups.queue_bytes -= bytes + cost::SLOT;
            let group = &mut self.groups.groups[at];
            group.queue.pop_front();
            group.queue_bytes -= bytes;
            if expired {
                self.sessions.counters.drops[Drop::Expired as usize] += 1;
                self.strike(origin);
            }
        }
        self.read_group_on(at, false, out);
        let group = &mut self.groups.groups[at];
        group.drops.tell(&group.name, self.now, out);
    }
}
