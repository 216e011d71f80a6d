//! The queue of a group while no member has room. The front is in memory. Behind the front,
//! messages of a persistent group are only in the store: see `StoredTail`.

use super::{QueuedMessage, SharedGroup};
use crate::counters::DropReason;
use crate::ids::SubscriptionFlags;
use crate::interface::outbox::Outbox;
use crate::memory::cost;
use crate::message::{Durability, IncomingPublish, Message};
use crate::options::QueuePolicy;
use crate::routing::ShardRouting;
use crate::session::flight::granted_qos;
use crate::session::session_table::SessionTable;
use mqtt::{QoS, SubscribeOptions};

/// A message before it joins a group's queue.
#[derive(Debug)]
struct PendingEnqueue {
    message: Message,
    bytes: u64,
    is_stored: bool,
}

impl SharedGroup {
    /// Whether the queue is empty, its stored tail included.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.stored_from.is_none()
    }

    /// Removes the oldest message to make room. Stored messages were acknowledged, so they do not
    /// make room for messages without a record.
    fn take_oldest(&mut self, for_stored: bool) -> Option<QueuedMessage> {
        let may_go = |waiting: &QueuedMessage| for_stored || waiting.position.is_none();
        let at = self.queue.iter().position(may_go)?;
        let oldest = self.queue.remove(at)?;
        self.queue_bytes -= oldest.message.bytes() as u64;
        Some(oldest)
    }
}

impl ShardRouting {
    /// Queues a message in the group because no member has room, within the bounds of a session's
    /// queue.
    pub(crate) fn queue_for_group(
        &mut self,
        at: u32,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let group = &self.groups.groups[at];
        let best = group.members.iter().map(|joined| joined.options.qos).max();
        let packed = SubscriptionFlags::new(SubscribeOptions {
            qos: best.unwrap_or_default(),
            ..Default::default()
        });
        let qos = granted_qos(draft.qos, packed);
        let anyone_online = group.members.iter().any(|joined| joined.online);
        if qos == QoS::AtMostOnce && !anyone_online && !sessions.context.options.queue_qos0 {
            return self.count_group_drop(at, DropReason::Offline, sessions, out);
        }
        let is_stored = group.stored_queue.is_some()
            && qos != QoS::AtMostOnce
            && draft.durability != Durability::Memory;
        let message = draft.message().clone();
        let bytes = message.bytes() as u64;
        let joining = PendingEnqueue { message, bytes, is_stored };
        let is_crowded = sessions.is_pressure_elevated();
        // Messages which are only in the store do not count as memory.
        let spools = is_stored && group.continues_in_store(is_crowded);
        if !self.make_room_in_group(at, &joining, is_crowded && !spools, sessions, out) {
            return;
        }
        let group = &mut self.groups.groups[at];
        if spools {
            group.spool(bytes);
        } else {
            group.queue_bytes += bytes;
            self.groups.queue_bytes += bytes + cost::SLOT;
        }
        // Messages which members get at QoS 0 only are not stored, whatever their durability.
        let position =
            if is_stored { self.write_group_message(at, &joining.message, sessions) } else { None };
        if !spools {
            let waiting = QueuedMessage { message: joining.message, position };
            self.groups.groups[at].queue.push_back(waiting);
        }
    }

    /// Makes room by the queue policy. Returns whether there is room; else the message is dropped.
    fn make_room_in_group(
        &mut self,
        at: u32,
        joining: &PendingEnqueue,
        is_crowded: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let &PendingEnqueue { bytes, is_stored, .. } = joining;
        let (messages_max, bytes_max) = sessions.context.options.queue_bounds(is_stored);
        let is_full = |group: &SharedGroup| {
            let (messages, sum) = group.queued_totals(is_stored);
            messages > 0 && (messages >= messages_max || sum + bytes > bytes_max)
        };
        let full = is_full(&self.groups.groups[at]);
        let drop = if full { DropReason::QueueFull } else { DropReason::OutOfMemory };
        if (full || is_crowded) && sessions.context.options.queue_policy != QueuePolicy::DropOldest
        {
            self.count_group_drop(at, drop, sessions, out);
            return false;
        }
        let mut room = 0;
        while is_full(&self.groups.groups[at]) || (is_crowded && room < bytes) {
            let Some(oldest) = self.groups.groups[at].take_oldest(is_stored) else { break };
            let bytes = oldest.message.bytes() as u64;
            room += bytes;
            self.groups.queue_bytes -= bytes + cost::SLOT;
            sessions.remove_moved_record(self.groups.groups[at].record_id_at(oldest.position));
            self.count_group_drop(at, drop, sessions, out);
        }
        // Reads the tail, so that the next messages to drop are in memory.
        self.request_group_tail(at, full && is_stored, out);
        if is_full(&self.groups.groups[at]) || (is_crowded && room < bytes) {
            self.count_group_drop(at, drop, sessions, out);
            return false;
        }
        true
    }

    /// Counts a dropped message of a group. The log reports drops at most once a second.
    fn count_group_drop(
        &mut self,
        at: u32,
        drop: DropReason,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        sessions.counters.drops[drop as usize] += 1;
        let group = &mut self.groups.groups[at];
        group.drops.count(drop);
        group.drops.log_if_due(&group.name, sessions.context.now, out);
    }

    /// Gives queued messages to members while any has room.
    pub(crate) fn drain_group_queue(
        &mut self,
        at: u32,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        loop {
            self.refresh_rooms(at, sessions);
            let now = sessions.context.now;
            let group = &self.groups.groups[at];
            let Some(QueuedMessage { message, position }) = group.queue.front().cloned() else {
                break;
            };
            let origin = group.record_id_at(position);
            let expired = message.is_expired(now);
            if !expired && !self.give_to_member(at, &mut message.draft(), origin, sessions, out) {
                break;
            }
            let bytes = message.bytes() as u64;
            self.groups.queue_bytes -= bytes + cost::SLOT;
            let group = &mut self.groups.groups[at];
            group.queue.pop_front();
            group.queue_bytes -= bytes;
            if expired {
                sessions.counters.drops[DropReason::Expired as usize] += 1;
                sessions.remove_moved_record(origin);
            }
        }
        self.request_group_tail(at, false, out);
        let group = &mut self.groups.groups[at];
        group.drops.log_if_due(&group.name, sessions.context.now, out);
    }
}
